"""A corpus encoded once, kept in a folder, and found again as long as nothing it depends on has changed.

The folder's name is a hash of what decides its content: the bytes of the corpus files, how they are read (which lines
are left out, say), and the tokenizer. A moved or copied corpus is found again; a changed one is not. To hash a large
corpus at every start would take minutes: the hash of a file is noted with the file's size and time of change, and
believed as long as both stay the same.

Reading, encoding and writing overlap, and no more than a few chunks are in memory at a time. One process at a
time prepares a folder; others that want the same one wait for it, and find it done.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from regard.batch import Specials
from regard.data.corpus import Origin
from regard.data.prefetch import Ahead
from regard.data.store import FORMAT_VERSION, StoreWriter, TokenStore, read_description
from regard.errors import DataError, MissingError
from regard.files import write_file, write_folder
from regard.status import StatusLine

CHUNK_EXAMPLES = 4_096
CHUNK_CHARACTERS = 2**20
SIDES = {1: ("target",), 2: ("source", "target")}
NOTES = "files.json"
# A file changed again within the clock's resolution would look unchanged; a note is made once it has been at rest.
AT_REST = 2.0

Texts = tuple[str, ...]
"""One example: (source, target), or (text,) for a language model."""


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    @property
    def source(self) -> Encoder:
        """The tokenizer of the source side; the same one where both sides share a vocabulary."""
        ...

    @property
    def size(self) -> int:
        """How many tokens there are."""
        ...

    @property
    def specials(self) -> Specials:
        """The ids of the tokens that are not text."""
        ...

    def to_json(self) -> str:
        """Everything that decides how text is encoded."""
        ...

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, without start and end."""
        ...


def cache_folder() -> Path:
    """Where prepared corpora are kept: `$REGARD_CACHE`, or `regard` in the user's cache. It may be deleted any time."""
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("REGARD_CACHE") or Path(users) / "regard")


def prepare(
    cache: Path, origin: Origin, examples: Iterable[Texts], tokenizer: Encoder, status: StatusLine | None = None
) -> TokenStore:
    """The examples as token ids, from the folder of an earlier time if there is one; `examples` is not read then."""
    cache.mkdir(parents=True, exist_ok=True)
    before = _states(origin.files)
    about = _description(cache, origin, tokenizer)
    folder = cache / str(about["key"])[:20]
    with _alone(folder):
        found = _found(folder, about)
        if found is not None:
            return found
        status = status or StatusLine()

        def fill(beside: Path) -> None:
            _encode(beside, examples, tokenizer, about, status)
            if _states(origin.files) != before:
                changed = " or ".join(map(str, origin.files))
                raise DataError(
                    f"{changed}: must not change while being read, but did. Start again when it is at rest."
                )

        write_folder(folder, fill)
    return TokenStore.open(folder)


def _found(folder: Path, about: dict[str, object]) -> TokenStore | None:
    try:
        return TokenStore.open(folder) if read_description(folder).get("key") == about["key"] else None
    except (MissingError, DataError):  # not there, of another version, or damaged: then it is made anew
        return None


# ---- encoding


def _encode(
    folder: Path, examples: Iterable[Texts], tokenizer: Encoder, about: dict[str, object], status: StatusLine
) -> None:
    started = time.monotonic()
    # Three threads: the tokenizer works outside Python, and so does decompression, while this one writes.
    with Ahead(_encoded(examples, tokenizer), 2) as chunks:
        first = next(chunks, None)
        if first is None:
            raise DataError("corpus: must have at least one example, but has none. Look at the files and the filters.")
        vocabulary = max(tokenizer.size, tokenizer.source.size)
        with StoreWriter(folder, SIDES[len(first)], vocabulary, tokenizer.specials.end) as writer:
            writer.append(first)
            for chunk in chunks:
                writer.append(chunk)
                status.show(lambda: _progress(writer, time.monotonic() - started))
            writer.finish(about)
    status.show(lambda: _progress(writer, time.monotonic() - started), now=True)
    status.close()


def _progress(writer: StoreWriter, seconds: float) -> str:
    tokens = sum(writer.tokens.values())
    return f"encoded {writer.examples:,} examples, {tokens:,} tokens; {tokens / max(seconds, 1e-9):,.0f} tokens/s"


def _encoded(examples: Iterable[Texts], tokenizer: Encoder) -> Iterator[list[list[list[int]]]]:
    """For each chunk, for each side, the sentences' ids."""
    encoders = {"source": tokenizer.source, "target": tokenizer}
    with Ahead(_chunks(examples), 2) as chunks:
        for chunk in chunks:
            sides = zip(SIDES[len(chunk[0])], zip(*chunk, strict=True), strict=True)
            yield [encoders[side].encode_all(texts) for side, texts in sides]


def _chunks(examples: Iterable[Texts]) -> Iterator[list[Texts]]:
    """Examples together, so many that all cores have work, and not so many that memory fills up."""
    chunk: list[Texts] = []
    characters = 0
    for example in examples:
        chunk.append(example)
        characters += sum(map(len, example))
        if len(chunk) == CHUNK_EXAMPLES or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


# ---- what it depends on


def _description(cache: Path, origin: Origin, tokenizer: Encoder) -> dict[str, object]:
    hashes = _hashes(cache, origin.files)
    about: dict[str, object] = {
        "files": [{"name": file.name, "sha256": found} for file, found in zip(origin.files, hashes, strict=True)],
        "reading": origin.reading,
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
    }
    decides = json.dumps([FORMAT_VERSION, hashes, origin.reading, about["tokenizer"]])
    return {"key": hashlib.sha256(decides.encode()).hexdigest(), **about}


def _states(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Size and time of change of each file."""
    try:
        return [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except FileNotFoundError as error:
        raise MissingError(f"{error.filename}: there is no such file. Check the path.") from error


def _hashes(cache: Path, files: tuple[Path, ...]) -> list[str]:
    """The SHA-256 of each file: as noted, where neither size nor time have changed since."""
    with _alone(cache / NOTES):
        notes = _read_notes(cache)
        found = []
        for file, state in zip(files, _states(files), strict=True):
            name = str(file.resolve())
            size, changed, sha256 = notes.get(name, (None, None, ""))
            if (size, changed) != state:
                with file.open("rb") as stream:
                    sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
                if time.time() - state[1] / 1e9 > AT_REST:
                    notes[name] = (*state, sha256)
                    write_file(cache / NOTES, json.dumps(notes, indent=2, ensure_ascii=False) + "\n")
            found.append(sha256)
    return found


def _read_notes(cache: Path) -> dict[str, tuple[int, int, str]]:
    try:
        notes = json.loads((cache / NOTES).read_bytes())
        return {str(name): (int(size), int(changed), str(found)) for name, (size, changed, found) in notes.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or not ours: then files are hashed anew
        return {}


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same place; the system opens the lock if one dies."""
    with place.with_name(f".{place.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
