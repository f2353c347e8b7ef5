"""A file in windows: by one process or several, whole or broken off."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import windows
from regard.errors import DataError, MissingError, UsageError
from regard.windows import Parts, Share, work_through

ALONE = Share()


def upper(lines: Sequence[str]) -> list[str]:
    return [line.upper() for line in lines]


def run(
    out: Path,
    lines: Sequence[str],
    share: Share = ALONE,
    resume: bool = False,
    job: str = "a",
    source: Path | None = None,
) -> None:
    work_through(windows.windows([list(lines)]), out, job, upper, share, resume, lambda _: None, source)


@pytest.fixture
def one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a test run in turn, the first one last: nobody waits."""
    monkeypatch.setattr(Share, "agree", lambda self, decide: self.rank != 0 or decide())


@given(st.lists(st.text(st.sampled_from("ab é"), max_size=5), max_size=20), st.integers(1, 4), st.integers(1, 6))
def test_any_number_of_processes_write_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], world: int, size: int
) -> None:
    out = tmp_path_factory.mktemp("out") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", size)
        patch.setattr(Share, "agree", lambda self, decide: self.rank != 0 or decide())
        Parts(out, "a").begin(resume=False)
        for rank in reversed(range(world)):
            run(out, lines, Share(rank, world), resume=True)
    assert out.read_text(encoding="utf-8") == "".join(f"{line.upper()}\n" for line in lines)
    assert [file.name for file in out.parent.iterdir()] == ["file"]


def test_what_was_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    out, seen, skipped = tmp_path / "out", list[Sequence[str]](), list[Sequence[str]]()

    def fail_at_e(lines: Sequence[str]) -> list[str]:
        if "e" in lines:
            raise OSError("no power")
        return upper(lines)

    def watch(lines: Sequence[str]) -> list[str]:
        seen.append(lines)
        return upper(lines)

    with pytest.raises(OSError, match="no power"):
        work_through(windows.windows([list("abcdef")]), out, "a", fail_at_e, Share(), False, skipped.append)
    assert not out.exists()
    work_through(windows.windows([list("abcdef")]), out, "a", watch, Share(), True, skipped.append)
    assert (seen, skipped) == ([["e", "f"]], [["a", "b"], ["c", "d"]])
    assert out.read_text() == "A\nB\nC\nD\nE\nF\n"


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_full_disk_keeps_what_is_done_and_nothing_else(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for so many parts; with two, for all of them and not for the whole."""
    monkeypatch.setattr(windows, "WINDOW", 2)
    out, parts = tmp_path / "out", tmp_path / ".out.parts"
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write = Path.write_bytes

    def full(place: Path, content: bytes) -> int:
        if len(list(parts.iterdir())) >= room:
            write(place, content[:1])
            raise error
        return write(place, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        patch.setattr(shutil, "copyfileobj", mock.Mock(side_effect=error))
        with pytest.raises((OSError, MissingError)) as raised:
            run(out, "abcd")
    if room:
        assert str(raised.value).startswith(f"{out}: the disk must have room, but has none (No space left on device). ")
        assert str(raised.value).endswith("kept: make room, then go on with the same command and --resume.")
        assert f"{room} part" in str(raised.value)
    else:
        assert getattr(raised.value, "filename", None) == str(out)
    assert sorted(file.name for file in tmp_path.iterdir()) == ([".out.parts"] if room else [])
    run(out, "abcd", resume=bool(room))
    assert out.read_text() == "A\nB\nC\nD\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as raised:
        run(Path("/dev/full"), "ab")
    assert raised.value.filename == "/dev/full"


def test_parts_of_another_job_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    parts = Parts(out, "a")
    parts.begin(resume=False)
    parts.write(0, windows.digest(["x"]), ["X"])
    assert parts.holds(0, windows.digest(["x"]))
    assert not parts.holds(1, windows.digest(["x"]))
    with pytest.raises(UsageError, match="go on with the model and settings it began with"):
        run(out, ["x"], resume=True, job="b")
    with pytest.raises(UsageError, match="go on with the lines of text it began with"):
        run(out, ["y"], resume=True)
    with pytest.raises(UsageError, match="left 1 part of it"):
        run(out, ["x"])
    (parts.folder / "00000000").write_text("nonsense\n")
    with pytest.raises(DataError, match="must begin with a line of JSON"):
        run(out, ["x"], resume=True)


def test_parts_of_another_job_are_never_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_after_another: None
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 1)
    out = tmp_path / "out"
    parts = Parts(out, "b")
    parts.begin(resume=False)
    parts.write(1, windows.digest(["y"]), ["of another job"])  # the second process's window
    for rank in (1, 0):
        with pytest.raises(UsageError, match="go on with the model and settings it began with"):
            run(out, ["x", "y"], Share(rank, 2), resume=True)
    with pytest.raises(UsageError, match="model and settings"):
        Parts(out, "a").join([windows.digest(["x"]), windows.digest(["y"])])
    assert not out.exists()


def test_a_whole_output_is_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, source = tmp_path / "out", tmp_path / "in"
    source.write_text("x\n")
    run(out, ["x"], source=source)
    run(out, ["never read"], resume=True, source=source)
    assert out.read_text() == "X\n"
    assert "is whole already" in capsys.readouterr().err


@pytest.mark.parametrize("job", ["a", "b"])
@pytest.mark.parametrize("changed", [None, "in", "out", ".out.done"])
def test_a_run_that_is_to_go_on_writes_over_no_output_of_another(job: str, changed: str | None, tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "in"
    source.write_text("x\n")
    run(out, ["x"], source=source)
    if changed is not None:
        (tmp_path / changed).write_text("changed\n")
    before = out.read_text()
    if (job, changed) == ("a", None):
        run(out, ["never read"], resume=True, source=source)
    else:
        with pytest.raises(UsageError, match="not known to be of the same model, settings and lines, or was changed"):
            run(out, ["never read"], resume=True, job=job, source=source)
    assert out.read_text() == before
    run(out, ["y"], job=job, source=source)
    assert out.read_text() == "Y\n"


# Where an output goes


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    for text in ("x", "y"):  # it leads nowhere, then to a file
        run(link, [text])
        assert link.is_symlink()
        assert real.read_text() == f"{text.upper()}\n"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    run(pipe, ["x", "y"])
    reader.join(10)
    assert heard == [b"X\nY\n"]
    assert pipe.is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
    with pytest.raises(UsageError, match="from beginning to end, but this run is to go on with it"):
        run(pipe, ["x"], resume=True)
    with pytest.raises(UsageError, match="but there are 2 processes"):
        run(pipe, ["x"], Share(0, 2))


# Several processes


def test_processes_must_be_told_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    for address, port in (("", ""), ("localhost", ""), ("localhost", "x")):
        monkeypatch.setenv("MASTER_ADDR", address)
        monkeypatch.setenv("MASTER_PORT", port)
        with pytest.raises(UsageError, match="MASTER_ADDR and MASTER_PORT where to meet"):
            Share.of_this_process()
    monkeypatch.setenv("MASTER_PORT", "29400")
    assert Share.of_this_process() == Share(0, 2)


def test_processes_that_do_not_meet_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed

    def fail(*_: object, **__: object) -> None:
        raise torch.distributed.DistNetworkError("connection refused")

    monkeypatch.setattr(torch.distributed, "init_process_group", fail)
    with pytest.raises(UsageError, match="must meet at MASTER_ADDR:MASTER_PORT, but do not"):
        run(tmp_path / "out", ["x"], Share(0, 2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "world"), [("1", "1"), ("-1", "2"), ("x", "2"), ("0", "")])
def test_an_environment_that_cannot_be_is_refused(rank: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(UsageError, match="RANK must be a number below WORLD_SIZE"):
        Share.of_this_process()
