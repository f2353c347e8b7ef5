"""GPT-2's published vocabulary: `encoder.json` (tokens and their ids) and `vocab.bpe` (merges), gzipped or not."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from regard.errors import DataError, MissingError

END_OF_TEXT = "<|endoftext|>"
GZIP = b"\x1f\x8b"
FIX = "Take both files from where GPT-2 is published."


@dataclass(frozen=True)
class GPT2Files:
    """GPT-2's own vocabulary, read from the files it was published in."""

    encoder: str
    """The file `encoder.json` or `encoder.json.gz`."""
    merges: str
    """The file `vocab.bpe` or `vocab.bpe.gz`."""
    kind: Literal["gpt2"] = "gpt2"
    vocabulary: ClassVar[int] = 50_257


def read(encoder: Path, merges: Path) -> tokenizers.Tokenizer:
    """A tokenizer from the two files."""
    vocabulary = _vocabulary(encoder)
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, _merges(merges, vocabulary)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([END_OF_TEXT])
    return inner


def _vocabulary(file: Path) -> dict[str, int]:
    try:
        found = json.loads(_text(file))
    except ValueError as error:
        raise DataError(f"{file}: must be JSON, but is not ({error}). {FIX}") from error
    numbers = found.values() if isinstance(found, dict) else []
    if not numbers or sorted(number for number in numbers if isinstance(number, int)) != list(range(len(numbers))):
        raise DataError(f"{file}: must give each token its number, from 0 on, but does not. {FIX}")
    needed = {END_OF_TEXT, *pre_tokenizers.ByteLevel.alphabet()}
    if missing := sorted(needed - found.keys()):
        raise DataError(f"{file}: must have {END_OF_TEXT} and a token for each byte, but lacks {missing[0]!r}. {FIX}")
    return found


def _merges(file: Path, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_text(file).split("\n"), start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise DataError(
                f"{file}:{number}: a merge must be two tokens of the vocabulary that make a third, but is {line!r}. "
                f"{FIX}"
            )
        merges.append((left, right))
    return merges


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise MissingError(f"{file}: there is no such file. Check the path; it is relative to {Path.cwd()}.") from error
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error
    try:
        return (gzip.decompress(data) if data.startswith(GZIP) else data).decode("utf-8")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: must be a whole gzip file, but is not ({error}). Copy it again.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: must be UTF-8, but byte {error.start} is not. {FIX}") from error
