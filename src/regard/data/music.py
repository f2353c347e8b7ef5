"""Pieces of music as words, from MIDI files, folders and archives of them, and the splits there are."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import starmap
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

from regard.data.chorales import read_chorales, splits_in
from regard.data.formats import Block, Repairs, Split, alone
from regard.data.sources import Music
from regard.data.streams import is_compressed, open_text
from regard.errors import DataError, MissingError
from regard.music.checking import LARGEST, too_large
from regard.music.encoding import Encoding, midi_words, transposed

MIDI = (".mid", ".midi")
SHARE = 0.05  # of the folders, for validation, and again for test


class _Tune(NamedTuple):
    """A piece, and where it is from."""

    place: str
    words: list[str]


def splits(settings: Music) -> dict[str, Split]:
    """The splits there are: `train`, and `valid` and `test` where something is named or held out for them."""
    places = {"train": settings.music, "valid": settings.valid, "test": settings.test}
    held = _HeldOut({}) if _kind(find_music(settings.music)[0]) == ".json" else _held_out(settings)
    inside = _inside(settings, held)
    if settings.valid is None and "valid" not in inside:
        # To hold out by chance would hold out pieces whose other keys are trained on.
        left_out = f" Left out is what cannot be read: {held.problem}" if held.problem else ""
        raise DataError(
            f"{settings.music}: must hold pieces to validate on (`valid` in a JSON file, or a second folder or MIDI "
            f"file), but does not. Name some with `data.valid`.{left_out}"
        )
    return {
        split: Split(
            partial(_blocks, settings, split, held.splits), alone(partial(find_music, place or settings.music))
        )
        for split, place in places.items()
        if place is not None or split in inside
    }


def find_music(place: str) -> list[str]:
    """The files that a place names, in order."""
    path = Path(place)
    if path.is_dir():
        found = sorted(str(file) for file in path.rglob("*") if file.suffix.lower() in MIDI and file.is_file())
        if not found:
            raise MissingError(f"{place}: must hold MIDI files, named *.mid or *.midi, but there is none in it.")
        return found
    if not path.is_file():
        raise MissingError(f"{place}: there is no such file or folder. It is relative to {Path.cwd()}.")
    if _kind(place) not in (*MIDI, ".tar", ".json"):
        raise DataError(
            f"{place}: must be a MIDI file, a folder or .tar of them, or a .json of chorales, but its name is that of "
            "none. Rename it, or choose another."
        )
    return [place]


class _HeldOut(NamedTuple):
    """The split of each group of MIDI files that is not for training, and what is wrong with a file that was tried."""

    splits: dict[str, str]
    problem: DataError | None = None


def _inside(settings: Music, held: _HeldOut) -> set[str]:
    """The other splits that the training place itself has pieces for."""
    (file, *_) = find_music(settings.music)
    if _kind(file) != ".json":
        return set(held.splits.values())
    found = splits_in(file)
    if settings.valid is None and "valid" not in found:
        list(read_chorales(file, settings.encoding, "train"))  # what else is wrong comes first
    return found


def _held_out(settings: Music) -> _HeldOut:
    """What is held out of MIDI files, the same on every run. Groups without a file that can be read do not count."""
    if settings.valid is not None:
        return _HeldOut({})  # whoever names pieces to validate on wants all others for training
    groups = {group for file in find_music(settings.music) for group in _groups(settings.music, file)}
    order = sorted(groups, key=lambda group: hashlib.sha256(group.encode()).digest())
    share = _share(len(order))
    good, problem = _first_readable(settings, order, 2 * share + 1)  # one is left to train on
    if len(good) < 2:
        return _HeldOut({}, problem)
    each = share if len(good) > 2 * share else _share(len(good))
    tested = good[each : 2 * each] if settings.test is None and len(good) > 2 else []
    return _HeldOut(dict.fromkeys(good[:each], "valid") | dict.fromkeys(tested, "test"), problem)


def _share(groups: int) -> int:
    return max(1, round(SHARE * groups))


def _first_readable(settings: Music, order: list[str], most: int) -> tuple[list[str], DataError | None]:
    """The first groups, up to so many, with a MIDI file that can be read, and what is wrong with the first that cannot.

    Only as many are tried as it takes: to read all music twice would take long.
    """
    good: list[str] = []
    problem: DataError | None = None
    while len(good) < most and order:
        some, order = order[: most - len(good)], order[most - len(good) :]
        unsure = set(some)
        for name, group, data in _midi_files(settings.music, unsure.__contains__):
            try:
                midi_words(data, settings.encoding, name, settings.grid)
                unsure.discard(group)
            except DataError as error:
                problem = problem or error
        good += [group for group in some if group not in unsure]
    if problem is not None and not good:
        raise problem
    return good, problem


def _groups(place: str, file: str) -> Iterator[str]:
    if _kind(file) == ".tar":
        yield from (_group(PurePosixPath(member.name)) for member, _ in _members(file))
    elif _kind(file) in MIDI:
        yield _group(Path(file).relative_to(place) if Path(place).is_dir() else Path(file))


def _blocks(settings: Music, split: str, held: Mapping[str, str], repairs: Repairs) -> Iterator[Block]:
    """One piece a block, and in training one for each key that it is there in."""
    own = {"train": None, "valid": settings.valid, "test": settings.test}[split]
    read = partial(_tunes, encoding=settings.encoding, grid=settings.grid, left_out=repairs.left_out)
    keys = sorted(range(-settings.transpose, settings.transpose + 1), key=abs) if split == "train" else [0]
    if own is not None:
        tunes = read(own, "train", lambda group: True)
    else:
        tunes = read(settings.music, split, lambda group: held.get(group, "train") == split)
    for number, tune in enumerate(tunes, 1):
        moved = [words for key in keys if (words := transposed(tune.words, key) if key else tune.words) is not None]
        yield Block(tune.place, number, [""] * len(moved), [" ".join(words) for words in moved])


def _tunes(
    place: str,
    split: str,
    wanted: Callable[[str], bool],
    encoding: Encoding,
    grid: int,
    left_out: dict[str, str],
) -> Iterator[_Tune]:
    """The pieces of a place: of a JSON file those of a split, of MIDI files those of the groups that are wanted.

    Of several MIDI files, those that cannot be read are left out; if there is no other, the first is told of.
    """
    if _kind(place) == ".json" and Path(place).is_file():
        yield from starmap(_Tune, read_chorales(place, encoding, split))
        return
    found, problem = 0, None
    for name, _, data in _midi_files(place, wanted):
        try:
            tune = _Tune(name, midi_words(data, encoding, name, grid))
        except DataError as error:
            problem = problem or error
            left_out[name] = str(error)
            continue
        found += 1
        yield tune
    if problem is not None and not found:
        raise problem


def _midi_files(place: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, bytes]]:
    """The MIDI files of the groups that are wanted: what each is called, its group, and what is in it."""
    for file in find_music(place):
        if _kind(file) == ".tar":
            for member, data in _members(file, wanted):
                if data is not None:
                    yield f"{file}, {member.name}", _group(PurePosixPath(member.name)), data
            continue
        path = Path(file)
        group = _group(path.relative_to(place) if Path(place).is_dir() else path)
        if wanted(group):
            with path.open("rb") as stream:
                yield file, group, stream.read(LARGEST + 1)  # more is refused by its size


def _group(path: PurePath) -> str:
    """What a piece is held out with: all of its folder; by itself where there are no folders."""
    return path.name if str(path.parent) in (".", "/") or path.is_absolute() else str(path.parent)


def _members(
    file: str, wanted: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """The MIDI files of a tar as they come, with their content where it is wanted; nothing is unpacked to disk."""
    try:
        with open_text(Path(file)) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if not member.isfile() or name.suffix.lower() not in MIDI:
                    continue
                if member.size > LARGEST:
                    raise too_large(f"{file}, {member.name}", member.size)
                content = archive.extractfile(member) if wanted(_group(name)) else None
                yield member, None if content is None else content.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{file}: must be a whole .tar, but is not ({error}). Copy it again.") from error


def _kind(file: str) -> str:
    """The ending of a name without `.xz` and the like."""
    return (Path(file).with_suffix("") if is_compressed(file) else Path(file)).suffix.lower()
