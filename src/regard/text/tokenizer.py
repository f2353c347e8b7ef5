"""Subwords: text to token ids and back, with one vocabulary for both languages.

Byte-pair encoding (Sennrich et al. 2016) on the `tokenizers` library; one `tokenizer.json` a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard.batch import Specials
from regard.errors import DataError, MissingError

PADDING, START, END, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
OPENING = "<"  # how each of these begins
SPACE = "▁"


@dataclass(frozen=True)
class TokenizerSettings:
    """How text becomes tokens.

    `bpe` learns subwords of characters and marks spaces with ▁; a character it never saw becomes <unk>.
    `bytes` learns subwords of bytes, as GPT-2 does: any text comes back exactly.
    """

    kind: Literal["bpe", "bytes"] = "bpe"
    vocabulary: int = 8_000
    split_digits: bool = True

    def __post_init__(self) -> None:
        smallest = 4 if self.kind == "bpe" else 260
        if self.vocabulary < smallest:
            raise ValueError(
                f"`vocabulary` must be at least {smallest} for kind `{self.kind}`, but is {self.vocabulary}"
            )


class Tokenizer:
    """A vocabulary and the rules that cut text into it."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        # What a user writes is text, even if it reads "<eos>": only Regard places special tokens.
        inner.encode_special_tokens = True
        self._inner = inner
        self.specials = Specials(*(self._id(token) for token in (PADDING, START, END)))

    @classmethod
    def learn(cls, lines: Iterable[str], settings: TokenizerSettings) -> Tokenizer:
        """Learn a vocabulary from `lines` (both languages together make a shared one)."""
        inner = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN if settings.kind == "bpe" else None))
        if settings.kind == "bpe":
            # No subword reaches across "<": text full of "<eos>" must not teach merges that spell a special token.
            cuts = [pre_tokenizers.Metaspace(SPACE), pre_tokenizers.Split(OPENING, "isolated")]
            inner.pre_tokenizer = pre_tokenizers.Sequence(cuts)
            inner.decoder = decoders.Metaspace(SPACE)
            alphabet: list[str] = []
        else:
            inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            inner.decoder = decoders.ByteLevel()
            alphabet = pre_tokenizers.ByteLevel.alphabet()
        if settings.split_digits:
            digits = pre_tokenizers.Digits(individual_digits=True)
            inner.pre_tokenizer = pre_tokenizers.Sequence([inner.pre_tokenizer, digits])
        trainer = trainers.BpeTrainer(
            vocab_size=settings.vocabulary,
            special_tokens=[PADDING, START, END, UNKNOWN],
            initial_alphabet=alphabet,
            show_progress=False,
        )
        inner.train_from_iterator(lines, trainer)
        return cls(inner)

    @classmethod
    def load(cls, file: Path) -> Tokenizer:
        """Read a `tokenizer.json`."""
        if not file.is_file():
            raise MissingError(f"{file}: a model folder must hold its tokenizer, but this file is not there.")
        try:
            return cls(tokenizers.Tokenizer.from_file(str(file)))
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"{file}: must be a tokenizer Regard wrote, but cannot be read ({error}).") from error

    def _id(self, token: str) -> int:
        found = self._inner.token_to_id(token)
        if found is None:
            raise DataError(f"tokenizer: must have the token {token}, but has not. Was it written by Regard?")
        return found

    def to_json(self) -> str:
        """The content of `tokenizer.json`."""
        return self._inner.to_str(pretty=True)

    @property
    def size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The tokens of one text, without start and end."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, on all cores."""
        try:
            return [list(found.ids) for found in self._inner.encode_batch(texts, add_special_tokens=False)]
        except TypeError as error:
            raise _not_unicode(texts) or error from error

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids back to text. Padding, start and end are left out; an unknown character stays visible."""
        unseen = (self.specials.padding, self.specials.start, self.specials.end)
        return self._inner.decode([token for token in ids if token not in unseen], skip_special_tokens=False)

    def labels(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Each token as a reader can see it, for pictures: ▁ marks a space."""
        if not isinstance(self._inner.decoder, decoders.ByteLevel):
            return tuple(self._inner.id_to_token(token) or "" for token in ids)
        return tuple(self._inner.decode([token], skip_special_tokens=False).replace(" ", SPACE) for token in ids)


def _not_unicode(texts: Sequence[str]) -> DataError | None:
    """What to say of the first text with half a character in it, as Python makes of stray bytes in an argument."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return DataError(
                f"text {number}: must be Unicode, but character {error.start + 1} is the lone surrogate "
                f"U+{ord(text[error.start]):04X}. Was the text decoded from bytes that are not UTF-8? Convert it first."
            )
    return None
