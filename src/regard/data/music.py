"""Pieces of music from files, as words: MIDI files, folders and archives of them, and chorales as JSON.

    {"train": [piece, …], "valid": […], "test": […]}    or only [piece, …]
    piece   [step, …]          one step after another of a fixed grid
    step    [74, 70, 65, 58]   the pitches of soprano, alto, tenor and bass; -1 or nothing is a rest

Where each step of a file is in rising order it is a set of pitches, as in the files of Boulanger-Lewandowski et al.
(2012): then the highest is given to the soprano, and so on. A step with fewer pitches leaves the lower voices out.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple

from regard.data.formats import Block, Repairs, Split, alone
from regard.data.sources import Music
from regard.data.streams import is_compressed, open_text
from regard.errors import DataError, MissingError
from regard.music import chorale
from regard.music.checking import LARGEST, too_large
from regard.music.encoding import Encoding, midi_words, transposed
from regard.music.notes import PITCHES

MIDI = (".mid", ".midi")
MOST_JSON = 2**28  # bytes
SHARE = 0.05  # of the folders, for validation, and again for test
RANGE = f"a pitch from 0 to {PITCHES - 1}, or -1 for a rest"


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
    tree = _json(file)
    found = {split for split in ("valid", "test") if isinstance(tree, dict) and tree.get(split)}
    if settings.valid is None and "valid" not in found:
        list(_chorales(file, settings.encoding, "train"))  # what else is wrong comes first
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
        yield from _chorales(place, encoding, split)
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


# ---- chorales


def _json(file: str) -> Any:
    with open_text(Path(file)) as stream:
        try:
            data = stream.read(MOST_JSON + 1)
            if len(data) > MOST_JSON:
                raise DataError(f"{file}: must have at most {MOST_JSON:,} bytes, but has more. Cut it up.")
            return json.loads(data)
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError, RecursionError) as error:
            raise DataError(f"{file}: must be JSON that can be read, but is not ({error}). Copy it again.") from error


def _chorales(file: str, encoding: Encoding, split: str) -> Iterator[_Tune]:
    if encoding != "chorale":
        raise DataError(f'{file}: JSON holds chorales, but `encoding` is "{encoding}". Set it to "chorale".')
    tree = _json(file)
    pieces = tree.get(split) if isinstance(tree, Mapping) else tree
    if not isinstance(pieces, list) or not pieces:
        raise DataError(f"{file}: must hold a list of pieces for `{split}`, but does not. See docs/music.md.")
    found = [_steps(f"{file}, {split} piece {number}", piece) for number, piece in enumerate(pieces, 1)]
    rising = all(one < other for steps in found for step in steps for one, other in pairwise(step))
    for number, steps in enumerate(found, 1):
        ordered = [tuple(reversed(step)) if rising else step for step in steps]
        filled = [tuple(None if pitch < 0 else pitch for pitch in step) for step in ordered]
        words = chorale.to_words([(*step, *[None] * (len(chorale.VOICES) - len(step))) for step in filled])
        yield _Tune(f"{file}, {split} piece {number}", words)


def _steps(place: str, piece: object) -> list[tuple[int, ...]]:
    if not isinstance(piece, list) or not piece:
        raise DataError(f"{place}: must be a list of steps, but is not. See docs/music.md.")
    return [_step(f"{place}, step {number}", step) for number, step in enumerate(piece, 1)]


def _step(place: str, step: object) -> tuple[int, ...]:
    if not isinstance(step, list) or len(step) > len(chorale.VOICES):
        what = f"has {len(step)}" if isinstance(step, list) else f"is {step!r}"
        raise DataError(f"{place}: must be a list of at most {len(chorale.VOICES)} pitches, but {what}. Correct it.")
    for pitch in step:
        # JSON as Python reads it may hold NaN and Infinity, and `true`, which Python counts as 1.
        number = isinstance(pitch, int | float) and not isinstance(pitch, bool) and -1 <= pitch < PITCHES
        if not number or pitch != int(pitch):
            raise DataError(f"{place}: must hold {RANGE}, but holds {pitch!r}. Correct it.")
    return tuple(int(pitch) for pitch in step)
