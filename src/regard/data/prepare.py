"""A corpus encoded once, kept in a folder, and found again as long as nothing it depends on has changed.

The folder's name is a hash of what decides its content: the bytes of the corpus files, how they are read (which lines
are left out, say), and the tokenizer. A moved or copied corpus is found again; a changed one is not. To hash a large
corpus at every start would take minutes: the hash of a file is noted with the file's size and time of change, and
believed as long as both stay the same.

Reading, encoding and writing overlap, and no more than a few chunks are in memory at a time. One process at a
time prepares a folder; others that want the same one wait for it, and find it done.

With BPE-dropout there are several tokenizers, and each example is there once for each of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.batch import Specials
from regard.counts import so_many
from regard.data.ahead import Ahead
from regard.data.reading import Origin
from regard.data.store import FORMAT_VERSION, StoreWriter, TokenStore, read_description
from regard.errors import DataError, MissingError, UsageError
from regard.files import check_folder, write_file, write_folder
from regard.status import StatusLine
from regard.text.cutters import Columns, Rows, cut_in_order
from regard.text.dropout import MergeDropout
from regard.text.ragged import Ragged

CHUNK_EXAMPLES = 4_096
CHUNK_CHARACTERS = 2**20
NOTES = "files.json"
# A file changed again within the clock's resolution would look unchanged; a note is made once it has been at rest.
AT_REST = 2.0

Texts = tuple[str, ...]
"""One example: (source, target); (source, target, language) for a source that asks for its language; or (text,)."""


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

    @property
    def languages(self) -> Mapping[str, int]:
        """For each target language that a source can ask for, the token that does."""
        ...

    def to_json(self) -> str:
        """Everything that decides how text is encoded."""
        ...

    def encode_flat(self, texts: Sequence[str]) -> Ragged:
        """The tokens of many texts, without start and end."""
        ...


def cache_folder() -> Path:
    """Where prepared corpora are kept: `$REGARD_CACHE`, or `regard` in the user's cache. It may be deleted any time."""
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("REGARD_CACHE") or Path(users) / "regard")


def prepare(
    cache: Path, origin: Origin, examples: Iterable[Texts], *tokenizers: Encoder, status: StatusLine | None = None
) -> TokenStore:
    """The examples as token ids, from the folder of an earlier time if there is one; `examples` is not read then.

    If there are several tokenizers, the examples are encoded with each of them.
    """
    cache.mkdir(parents=True, exist_ok=True)
    before = _states(origin.files)
    about = _description(cache, origin, tokenizers)
    folder = cache / str(about["key"])[:20]
    status = status or StatusLine()
    with _alone(folder):
        found = _found(folder, about, status)
        if found is not None:
            return found

        def fill(beside: Path) -> None:
            _encode(beside, examples, tokenizers, about, status)
            if _states(origin.files) != before:
                changed = " or ".join(map(str, origin.files))
                raise DataError(
                    f"{changed}: must not change while being read, but did. Start again when it is at rest."
                )

        write_folder(folder, fill)
    return TokenStore.open(folder)


def encode_in_memory(examples: Iterable[Texts], *tokenizers: Encoder, status: StatusLine | None = None) -> TokenStore:
    """The same, without a folder."""
    chunks = _with_first(encoded(examples, tokenizers))
    return TokenStore.of_chunks(chunks if status is None else _shown(chunks, status), tokenizers[0].specials.end)


def _shown(chunks: Iterable[Mapping[str, Ragged]], status: StatusLine) -> Iterator[Mapping[str, Ragged]]:
    """The chunks, while `status` shows how many there were."""
    started, examples, tokens = time.monotonic(), 0, 0
    for chunk in chunks:
        examples += len(chunk["target"].lengths)
        tokens += sum(len(side.ids) + len(side.lengths) for side in chunk.values())
        status.show(partial(_progress, examples, tokens, time.monotonic() - started))
        yield chunk


def _found(folder: Path, about: dict[str, object], status: StatusLine) -> TokenStore | None:
    """What an earlier time left, if every byte of it is as it was written."""
    try:
        if read_description(folder).get("key") != about["key"]:
            return None
        check_folder(folder)
        return TokenStore.open(folder)
    except MissingError:
        return None
    except DataError as error:
        status.say(f"warning: a prepared corpus is damaged, and is made anew: {error}")
        return None


# ---- encoding


def _encode(
    folder: Path,
    examples: Iterable[Texts],
    tokenizers: Sequence[Encoder],
    about: dict[str, object],
    status: StatusLine,
) -> None:
    started = time.monotonic()

    def so_far() -> str:
        return _progress(writer.examples, sum(writer.tokens.values()), time.monotonic() - started)

    # Three threads: while one reads and one encodes, which is partly done outside Python, this one writes.
    with Ahead(encoded(examples, tokenizers), 2) as ahead:
        chunks = _with_first(ahead)
        first = next(chunks)
        vocabulary = max(max(one.size, one.source.size) for one in tokenizers)
        with StoreWriter(folder, list(first), vocabulary, tokenizers[0].specials.end) as writer:
            writer.append(first)
            for chunk in chunks:
                writer.append(chunk)
                status.show(so_far)
            writer.finish(about)
    status.show(so_far, now=True)
    status.close()


def _with_first(chunks: Iterator[Mapping[str, Ragged]]) -> Iterator[Mapping[str, Ragged]]:
    """The chunks, of which there must be one."""
    first = next(chunks, None)
    if first is None:
        raise DataError("corpus: must have at least one example, but has none. Look at the files and the filters.")
    yield first
    yield from chunks


def _progress(examples: int, tokens: int, seconds: float) -> str:
    done = f"{so_many(examples, 'example')}, {so_many(tokens, 'token')}"
    return f"encoded {done}; {tokens / max(seconds, 1e-9):,.0f} tokens/s"


def encoded(examples: Iterable[Texts], tokenizers: Sequence[Encoder]) -> Iterator[dict[str, Ragged]]:
    """For each chunk, with each tokenizer, the tokens of each side."""
    cuts = [one for one in tokenizers if isinstance(one, MergeDropout)]
    with Ahead(_chunks(examples), 2) as chunks:
        columns = (list(zip(*chunk, strict=True)) for chunk in chunks)
        with closing(cut_in_order(columns, cuts) if cuts else _plainly(columns, tokenizers)) as found:
            for texts, rows in found:
                for tokenizer, sides in zip(tokenizers, rows, strict=True):
                    if len(texts) == 3:
                        sides[0] = sides[0].starting_with(_tags(texts[2], tokenizer.source.languages))
                    yield dict(zip(("source", "target")[-len(sides) :], sides, strict=True))


def _plainly(chunks: Iterable[Columns], tokenizers: Sequence[Encoder]) -> Generator[tuple[Columns, Rows], None, None]:
    """Each chunk and its tokens: for each tokenizer those of each side."""
    for texts in chunks:
        rows = []
        for one in tokenizers:
            sides = [one] if len(texts) == 1 else [one.source, one]
            rows.append([side.encode_flat(column) for side, column in zip(sides, texts, strict=False)])
        yield texts, rows


def _tags(languages: Sequence[str], known: Mapping[str, int]) -> NDArray[np.int64]:
    """For each example the token that asks for its language."""
    if unknown := sorted(set(languages) - known.keys()):
        raise UsageError(
            f"tokenizer: must have a token for each target language, but has none for {', '.join(unknown)}. "
            "Learn it with these `languages`."
        )
    return np.array([known[language] for language in languages], np.int64)


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


def _description(cache: Path, origin: Origin, tokenizers: Sequence[Encoder]) -> dict[str, object]:
    hashes = file_hashes(cache, origin.files)
    about: dict[str, object] = {
        "files": [{"name": file.name, "sha256": found} for file, found in zip(origin.files, hashes, strict=True)],
        "reading": origin.reading,
        "tokenizer": hashlib.sha256("\n".join(one.to_json() for one in tokenizers).encode()).hexdigest(),
    }
    decides = json.dumps([FORMAT_VERSION, hashes, origin.reading, about["tokenizer"]])
    return {"key": hashlib.sha256(decides.encode()).hexdigest(), **about}


def _states(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Size and time of change of each file."""
    try:
        return [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except FileNotFoundError as error:
        raise MissingError(f"{error.filename}: there is no such file. Check the path.") from error


def file_hashes(cache: Path, files: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file: as noted in the cache, where neither size nor time have changed since."""
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / NOTES):
        notes = _read_notes(cache)
        found = []
        for file, state in zip(files, _states(files), strict=True):
            name = str(file.resolve())
            size, changed, sha256 = notes.get(name, (None, None, ""))
            if (size, changed) != state:
                sha256 = hash_of(file)
                if time.time() - state[1] / 1e9 > AT_REST:
                    notes[name] = (*state, sha256)
                    write_file(cache / NOTES, json.dumps(notes, indent=2, ensure_ascii=False) + "\n")
            found.append(sha256)
    return found


def hash_of(file: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error


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
