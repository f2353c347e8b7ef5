"""Folders and files that are whole or not there, and every kind of damage named."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from regard import files
from regard.errors import DataError, MissingError, RegardError, UsageError
from regard.files import (
    MANIFEST,
    begin_folder,
    check_folder,
    read_manifest,
    remove_folder,
    seal,
    tidy,
    write_file,
    write_folder,
    write_part,
)

CONTENT = {"a.txt": b"first\n", "b.bin": bytes(range(256))}


def fill(folder: Path) -> None:
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)


def fill_anew(folder: Path) -> None:
    (folder / "new.txt").write_text("new")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    place = tmp_path / "whole"
    write_folder(place, fill)
    return place


def visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_folder_holds_what_was_filled_in_and_a_manifest_that_proves_it(whole: Path) -> None:
    assert visible(whole) == ["a.txt", "b.bin", MANIFEST]
    assert {name: (whole / name).read_bytes() for name in CONTENT} == CONTENT
    manifest = json.loads((whole / MANIFEST).read_bytes())
    assert manifest["format_version"] == 1
    assert manifest["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in CONTENT.items()
    }
    check_folder(whole)
    assert visible(whole.parent) == ["whole"]


def test_a_second_write_replaces_the_whole_folder(whole: Path) -> None:
    write_folder(whole, fill_anew)
    assert visible(whole) == [MANIFEST, "new.txt"]
    check_folder(whole)
    assert visible(whole.parent) == ["whole"]


def test_a_fill_that_fails_leaves_the_old_folder_and_no_rubbish(whole: Path) -> None:
    before = {file.name: file.read_bytes() for file in whole.iterdir()}

    def failing(folder: Path) -> None:
        (folder / "a.txt").write_text("half of it")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_folder(whole, failing)
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before
    assert visible(whole.parent) == ["whole"]


def full(*_: object) -> NoReturn:
    """What the system says of a full disk, where it names no file."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_what_was_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "page.html"
    place.write_text("before")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_file(place, "after")
    assert raised.value.filename == str(place)
    with pytest.raises(OSError, match="No space left") as raised:
        write_folder(tmp_path / "model", full)
    assert raised.value.filename == str(tmp_path / "model")
    assert visible(tmp_path) == ["page.html"]
    assert place.read_text() == "before"


def test_what_has_a_name_keeps_it_while_a_folder_is_filled(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:  # such as a corpus that is read
        write_folder(tmp_path / "model", lambda _: (tmp_path / "corpus.en").read_bytes())
    assert raised.value.filename == str(tmp_path / "corpus.en")


class Crash(BaseException):
    """The plug is pulled: no handler of ours may tidy up after this."""


def crash_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Let rename number `call` (from 1) never happen."""
    real, calls = Path.rename, 0

    def rename(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Crash
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)


@pytest.mark.parametrize("step", [1, 2])
def test_a_crash_between_two_steps_leaves_a_whole_folder_or_none_and_can_be_repeated(
    whole: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with monkeypatch.context() as patch:
        crash_at(patch, step)
        with pytest.raises(Crash):
            write_folder(whole, fill_anew)
    assert whole.exists() is (step == 1)
    if whole.exists():
        check_folder(whole)
    # Whatever happened, one whole copy of what was there before is still on the disk.
    copies = [folder for folder in whole.parent.iterdir() if (folder / "a.txt").is_file()]
    assert len(copies) == 1
    check_folder(copies[0])

    # The same again, with what the first crash left lying about.
    with monkeypatch.context() as patch:
        crash_at(patch, 1)
        with pytest.raises(Crash):
            write_folder(whole, fill_anew)
    check_folder(copies[0])
    write_folder(whole, fill)
    check_folder(whole)


def test_rubbish_of_an_earlier_crash_does_not_get_into_the_folder(tmp_path: Path) -> None:
    rubbish = tmp_path / ".whole.writing"
    rubbish.mkdir()
    (rubbish / "old.txt").write_text("rubbish")
    write_folder(tmp_path / "whole", fill)
    assert visible(tmp_path / "whole") == ["a.txt", "b.bin", MANIFEST]


def test_everything_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real_sync, real_rename = files._sync, Path.rename

    def sync(place: Path) -> None:
        events.append(f"sync {place.name}")
        real_sync(place)

    def rename(self: Path, target: Path) -> Path:
        events.append(f"rename {target.name}")
        return real_rename(self, target)

    monkeypatch.setattr(files, "_sync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    write_folder(tmp_path / "whole", fill)
    renamed = events.index("rename whole")
    assert {"sync a.txt", "sync b.bin", f"sync .{MANIFEST}.writing"} <= set(events[:renamed])
    assert events[renamed + 1] == f"sync {tmp_path.name}"


def test_write_file_replaces_or_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "card.md"
    write_file(file, "Grüße\n")
    assert file.read_bytes() == "Grüße\n".encode()

    def full(handle: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            write_file(file, b"other")
    assert file.read_bytes() == "Grüße\n".encode()
    write_file(file, b"\x00\xff")
    assert file.read_bytes() == b"\x00\xff"
    assert visible(tmp_path) == ["card.md"]


def test_write_file_names_a_missing_folder_and_a_folder_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"nowhere/card.md: must be in a folder that is there"):
        write_file(tmp_path / "nowhere" / "card.md", "")
    with pytest.raises(UsageError, match="must be a file to write, but is a folder"):
        write_file(tmp_path, "")


def missing(folder: Path) -> None:
    (folder / "a.txt").unlink()


def truncated(folder: Path) -> None:
    (folder / "b.bin").write_bytes(CONTENT["b.bin"][:-1])


def flipped(folder: Path) -> None:
    content = bytearray(CONTENT["b.bin"])
    content[100] ^= 1
    (folder / "b.bin").write_bytes(content)


def no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def manifest_of(content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / MANIFEST).write_bytes(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (missing, MissingError, ["a.txt", "names this file, but it is not there"]),
        (truncated, DataError, ["b.bin", "must be 256 bytes long", "but is 255", "copy"]),
        (flipped, DataError, ["b.bin", "SHA-256 must be", "changed or damaged", "copy"]),
        (no_manifest, MissingError, ["whole: must hold a manifest.json"]),
        (manifest_of(b""), DataError, [MANIFEST, "Copy the folder again"]),
        (manifest_of(b"{"), DataError, [MANIFEST, "cannot be read as one"]),
        (manifest_of(b"\xff\xfe"), DataError, [MANIFEST, "cannot be read as one"]),
        (manifest_of(b"[" * 100_000), DataError, [MANIFEST, "cannot be read as one"]),
        (manifest_of(b"null"), DataError, [MANIFEST, "cannot be read as one"]),
        (manifest_of(b'{"format_version": 1}'), DataError, [MANIFEST, "KeyError", "files"]),
        (manifest_of(b'{"format_version": 1, "files": [1]}'), DataError, [MANIFEST, "cannot be read as one"]),
        (manifest_of(b'{"format_version": 1, "files": {"a.txt": 3}}'), DataError, [MANIFEST]),
        (
            manifest_of(b'{"format_version": 1, "files": {"a.txt": {"bytes": Infinity, "sha256": ""}}}'),
            DataError,
            [MANIFEST, "cannot be read as one"],
        ),
        (manifest_of(b'{"format_version": 3, "files": "elsewhere"}'), DataError, ["must be 1 or 2", "but is 3"]),
        (manifest_of(b'{"format_version": 1, "files": {}}'), DataError, [MANIFEST, "not in the form in which Regard"]),
    ],
)
def test_every_damage_is_named(
    whole: Path, damage: Callable[[Path], None], kind: type[RegardError], words: list[str]
) -> None:
    damage(whole)
    with pytest.raises(kind) as caught:
        check_folder(whole)
    for word in words:
        assert word in str(caught.value)


def test_no_byte_of_a_folder_can_change_unnoticed(tmp_path: Path) -> None:
    write_folder(tmp_path / "whole", lambda folder: (folder / "a.txt").write_bytes(b"first"))
    for file in (tmp_path / "whole").iterdir():
        content = file.read_bytes()
        for place in range(len(content)):
            for mask in (0x01, 0x20, 0x2A, 0xFF):  # 0x2A makes a space of an end of line
                file.write_bytes(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :])
                with pytest.raises(RegardError):
                    check_folder(tmp_path / "whole")
        file.write_bytes(content)
    check_folder(tmp_path / "whole")


def test_several_processes_write_one_folder(tmp_path: Path) -> None:
    place = tmp_path / "new" / "whole"

    def named(name: str) -> Callable[[Path], list[str]]:
        def fill(folder: Path) -> list[str]:
            (folder / name).write_bytes(CONTENT[name])
            return [name]

        return fill

    begin_folder(place)
    first = threading.Thread(target=write_part, args=(place, named("a.txt"), 0, 2))
    first.start()
    first.join(0.1)
    assert first.is_alive()
    assert not place.exists()
    write_part(place, named("b.bin"), 1, 2)
    first.join()
    assert visible(place) == ["a.txt", "b.bin", MANIFEST]
    assert set(read_manifest(place)) == set(CONTENT)
    check_folder(place)
    assert visible(place.parent) == ["whole"]


def test_a_part_that_never_comes_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    begin_folder(tmp_path / "whole")
    with pytest.raises(MissingError, match="process 1 must have written its part within 0 s, but has not"):
        write_part(tmp_path / "whole", lambda folder: [], 0, 2, patience=0.05)
    assert visible(tmp_path) == []


def test_a_removed_folder_is_gone_at_once(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            (folder / "a.txt").unlink()
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Crash):
            remove_folder(whole)
    assert visible(whole.parent) == [".whole.removing"]
    tidy(whole.parent)
    assert visible(whole.parent) == []


def test_tidying_up_removes_what_killed_writers_left_and_nothing_else(whole: Path) -> None:
    home = whole.parent
    for name in (".a.writing", ".b.removing", ".whole.old"):
        fill_in = home / name
        fill_in.mkdir()
        fill(fill_in)
    (home / ".card.md.writing").write_text("half a ca")
    (home / ".notes.old").write_text("a user's")
    (home / ".hidden").mkdir()
    (home / "b.writing").mkdir()
    tidy(home)
    assert visible(home) == [".hidden", ".notes.old", "b.writing", "whole"]
    check_folder(whole)


def test_tidying_up_puts_back_what_was_moved_aside_for_something_that_never_came(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        crash_at(patch, 2)
        with pytest.raises(Crash):
            write_folder(whole, fill_anew)
    assert not whole.exists()
    tidy(whole.parent)
    assert visible(whole.parent) == ["whole"]
    assert set(read_manifest(whole)) == set(CONTENT)
    check_folder(whole)


def test_a_file_the_manifest_does_not_name_is_nobodys_business(whole: Path) -> None:
    (whole / "notes.txt").write_text("mine")
    check_folder(whole)
    assert set(read_manifest(whole)) == set(CONTENT)


def test_seal_covers_only_the_named_files(tmp_path: Path) -> None:
    fill(tmp_path)
    seal(tmp_path, ["a.txt"])
    (tmp_path / "b.bin").write_bytes(b"changed")
    check_folder(tmp_path)
    assert set(read_manifest(tmp_path)) == {"a.txt"}


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "inner/file"])
def test_a_manifest_names_only_files_of_its_own_folder(tmp_path: Path, name: str) -> None:
    manifest = {"format_version": 1, "files": {name: {"bytes": 1, "sha256": "0"}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="which is not a file of this folder"):
        check_folder(tmp_path)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "/dev/../dev/fd/{}", "link"])
def test_a_stream_goes_on_where_it_is_though_it_leads_to_a_file(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with kept.open("wb", buffering=0) as stream:
        place = Path(name.format(stream.fileno()))
        if name == "link":
            place = tmp_path / "link"
            place.symlink_to(f"/dev/fd/{stream.fileno()}")
        stream.write(b"before\n")
        write_file(place, "text\n")
        stream.write(b"after\n")
    assert kept.read_text() == "before\ntext\nafter\n"


def test_a_link_is_written_through_and_a_pipe_is_written_into(tmp_path: Path) -> None:
    real, link, pipe = (tmp_path / name for name in ("real", "link", "pipe"))
    link.symlink_to(real)
    for content in ("first", "second"):
        write_file(link, content)
        assert (link.is_symlink(), real.read_text()) == (True, content)
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(pipe, "text")
    reader.join(10)
    assert (pipe.is_fifo(), heard) == (True, [b"text"])
    with pytest.raises(UsageError, match="must be a file to write, but is a folder"):
        write_file(Path(), "text")
    lost = tmp_path / "lost"
    lost.symlink_to(tmp_path / "no" / "file")
    with pytest.raises(MissingError, match="must be in a folder that is there"):
        write_file(lost, "text")
