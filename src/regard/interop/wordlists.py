"""Vocabularies that are lists of words, as fairseq and OpenNMT-py keep them, cut at spaces or by BPE codes.

Their text is prepared outside: cut into words, and often into subwords, as `un@@ believ@@ able`. With the codes of
subword-nmt the cutting is done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from regard.errors import DataError, UsageError
from regard.text.imported import HIDDEN, cast
from regard.text.tokenizer import Tokenizer

GOES_ON = "@@"  # behind a subword that is not the last of its word
ENDS = "</w>"  # inside the codes: behind one that is


def by_spaces(words: Sequence[str], special: Sequence[str], unknown: str, parts: Mapping[str, int]) -> Tokenizer:
    """A tokenizer whose tokens are these words, between spaces; text never becomes one of the `special` ones."""
    vocabulary = {HIDDEN + word if word in special else word: number for number, word in enumerate(words)}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=HIDDEN + unknown))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(rf"\A{HIDDEN}"), ""),
            decoders.Replace(Regex(r"\z"), " "),
            decoders.Replace(f"{GOES_ON} ", ""),
            decoders.Fuse(),
            decoders.Replace(Regex(r" \z"), ""),
        ]
    )
    cast(inner, parts)
    return Tokenizer(inner)


def by_codes(
    words: Sequence[str], special: Sequence[str], unknown: str, parts: Mapping[str, int], codes: Path
) -> Tokenizer:
    """A tokenizer that cuts by the codes of subword-nmt and numbers by these words."""
    inside = [_inside(word, special) for word in words]
    vocabulary = {word: number for number, word in enumerate(inside)}
    merges = _merges(codes)
    for left, right in merges:
        # What codes make and nobody counted has a number beyond the list, and is unknown to the model.
        for piece in (left, right, left + right):
            vocabulary.setdefault(piece, len(vocabulary))
    inner = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token=_inside(unknown, special), end_of_word_suffix=ENDS)
    )
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(rf"\A{HIDDEN}(.*)\z"), unknown + ENDS),
            decoders.Replace(ENDS, " "),
            decoders.Fuse(),
            decoders.Replace(Regex(r" \z"), ""),
        ]
    )
    cast(inner, parts)
    return Tokenizer(inner, size=len(words))


def _inside(word: str, special: Sequence[str]) -> str:
    if word in special:
        return HIDDEN + word
    return word.removesuffix(GOES_ON) if word.endswith(GOES_ON) else word + ENDS


def _merges(file: Path) -> list[tuple[str, str]]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: must be UTF-8, but byte {error.start} is not. Copy it again.") from error
    if not lines[0].startswith("#version: 0.2"):
        raise UsageError(f"{file}: must begin with `#version: 0.2`, but begins with {lines[0][:40]!r}. Learn it anew.")
    merges = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            left, _, right = line.strip("\r ").partition(" ")
            if not left or not right or " " in right:
                raise DataError(f"{file}:{number}: must be two pieces with a space between, but is {line!r}. Copy it.")
            merges.append((left, right))
    return merges


def check_words(words: Sequence[str], place: Path) -> None:
    """Each word once."""
    if len(set(words)) != len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise DataError(f"{place}: must list each word once, but lists {twice!r} again. Copy it again.")
