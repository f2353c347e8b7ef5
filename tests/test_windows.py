"""A file in windows: by one process or several, whole or broken off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import windows
from regard.errors import DataError, UsageError
from regard.windows import Parts, Share, work_through

ALONE = Share()


def upper(lines: Sequence[str]) -> list[str]:
    return [line.upper() for line in lines]


def run(out: Path, lines: Sequence[str], share: Share = ALONE, resume: bool = False, job: str = "a") -> None:
    work_through(iter(lines), out, job, upper, share, resume, skip=lambda _: None)


@given(st.lists(st.text(st.sampled_from("ab é"), max_size=5), max_size=20), st.integers(1, 4), st.integers(1, 6))
def test_any_number_of_processes_write_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], world: int, size: int
) -> None:
    out = tmp_path_factory.mktemp("out") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", size)
        patch.setattr(Share, "wait_for_the_first", lambda self: None)
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
        work_through(iter("abcdef"), out, "a", fail_at_e, Share(), False, skipped.append)
    assert not out.exists()
    work_through(iter("abcdef"), out, "a", watch, Share(), True, skipped.append)
    assert (seen, skipped) == ([["e", "f"]], [["a", "b"], ["c", "d"]])
    assert out.read_text() == "A\nB\nC\nD\nE\nF\n"


def test_parts_of_another_job_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    parts = Parts(out, "a")
    parts.begin(resume=False)
    parts.write(0, ["x"], ["X"])
    assert parts.holds(0, ["x"])
    assert not parts.holds(1, ["x"])
    with pytest.raises(UsageError, match="go on with the model and settings it began with"):
        run(out, ["x"], resume=True, job="b")
    with pytest.raises(UsageError, match="go on with the lines of text it began with"):
        run(out, ["y"], resume=True)
    with pytest.raises(UsageError, match="left 1 parts of it"):
        run(out, ["x"])
    (parts.folder / "00000000").write_text("nonsense\n")
    with pytest.raises(DataError, match="must begin with a line of JSON"):
        run(out, ["x"], resume=True)


@pytest.mark.parametrize(("rank", "world"), [("1", "1"), ("-1", "2"), ("x", "2"), ("0", "")])
def test_an_environment_that_cannot_be_is_refused(rank: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(UsageError, match="RANK must be a number below WORLD_SIZE"):
        Share.of_this_process()
