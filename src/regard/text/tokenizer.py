"""Text to token ids and back.

A tokenizer is a vocabulary and the rules that cut text into it, on the `tokenizers` library; one `tokenizer.json` a
model. What is learned and how stands in `learning.py`, GPT-2's published vocabulary in `gpt2.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import tokenizers
from tokenizers import decoders

from regard.batch import Specials
from regard.errors import DataError, MissingError
from regard.text import gpt2, learning
from regard.text.dropout import MergeDropout
from regard.text.gpt2 import END_OF_TEXT, GPT2Files
from regard.text.learning import END, PADDING, SPACE, START, UNKNOWN, TokenizerSettings
from regard.text.survey import not_unicode

__all__ = ["END", "END_OF_TEXT", "PADDING", "START", "UNKNOWN", "GPT2Files", "Tokenizer", "TokenizerSettings"]

CHUNK = 8_192  # texts encoded at a time: the library keeps much more of each than its ids


class TextPair(Protocol):
    """A text and its translation."""

    @property
    def source(self) -> str:
        """What is translated."""
        ...

    @property
    def target(self) -> str:
        """Its translation."""
        ...


class Tokenizer:
    """A vocabulary and the rules that cut text into it.

    `source` is the tokenizer of what is translated from: this one, unless each language has its own.
    """

    def __init__(self, inner: tokenizers.Tokenizer, source: Tokenizer | None = None) -> None:
        # What a user writes is text, even if it reads "<eos>": only Regard places special tokens.
        inner.encode_special_tokens = True
        self._inner = inner
        self.specials = _specials(inner)
        self.unknown: int | None = None if inner.model.unk_token is None else inner.token_to_id(inner.model.unk_token)
        """The id of what the vocabulary does not cover; None where it covers everything, as bytes do."""
        self.source: Tokenizer = source or self
        if self.source.specials != self.specials:
            raise DataError(
                f"tokenizer: source and target must have the same special tokens, but have {self.source.specials} and "
                f"{self.specials}. Were they written by Regard?"
            )

    @classmethod
    def learn(cls, lines: Iterable[str], settings: TokenizerSettings | GPT2Files) -> Tokenizer:
        """Learn a vocabulary from `lines`, which are read twice; a published one needs none."""
        if isinstance(settings, GPT2Files):
            return cls.from_gpt2(Path(settings.encoder), Path(settings.merges))
        return cls(learning.learn(lines, settings))

    @classmethod
    def learn_pair(cls, pairs: Iterable[TextPair], settings: TokenizerSettings | GPT2Files) -> Tokenizer:
        """Learn from two languages: one vocabulary for both, or one for each if `settings.shared` is false."""
        learning.check_can_be_read_twice(pairs)
        if isinstance(settings, GPT2Files) or settings.shared:
            return cls.learn(_Texts(pairs, ("source", "target")), settings)
        target = learning.learn(_Texts(pairs, ("target",)), settings)
        return cls(target, cls.learn(_Texts(pairs, ("source",)), settings))

    @classmethod
    def from_gpt2(cls, encoder: Path, merges: Path) -> Tokenizer:
        """GPT-2's published vocabulary, from `encoder.json` and `vocab.bpe`, gzipped or not.

        <|endoftext|> starts, ends and pads. That is safe: padding is known by its place (segment 0), not by its id.
        """
        return cls(gpt2.read(encoder, merges))

    @classmethod
    def load(cls, file: Path) -> Tokenizer:
        """Read a `tokenizer.json`."""
        if not file.is_file():
            raise MissingError(f"{file}: a model folder must hold its tokenizer, but this file is not there.")
        try:
            content = file.read_text(encoding="utf-8")
            tree = json.loads(content)
            if "target" not in tree:
                return cls(tokenizers.Tokenizer.from_str(content))
            target, source = (tokenizers.Tokenizer.from_str(json.dumps(tree[side])) for side in ("target", "source"))
            return cls(target, cls(source))
        except DataError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"{file}: must be a tokenizer Regard wrote, but cannot be read ({error}).") from error

    def to_json(self) -> str:
        """The content of `tokenizer.json`: what the library writes, or two such objects, `source` and `target`."""
        own = self._inner.to_str(pretty=True)
        if self.source is self:
            return own
        sides = {"source": json.loads(self.source.to_json()), "target": json.loads(own)}
        return json.dumps(sides, indent=2, ensure_ascii=False)

    @property
    def size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The tokens of one text, without start and end."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, on all cores."""
        found: list[list[int]] = []
        try:
            for first in range(0, len(texts), CHUNK):
                chunk = self._inner.encode_batch_fast(texts[first : first + CHUNK], add_special_tokens=False)
                found.extend(encoding.ids for encoding in chunk)
        except TypeError as error:
            raise not_unicode(texts, "text") or error from error
        return found

    def training_cuts(self, settings: TokenizerSettings | GPT2Files, seed: int) -> Sequence[Tokenizer | MergeDropout]:
        """What to encode the training text with, once with each: this, or several with BPE-dropout."""
        if isinstance(settings, GPT2Files) or not settings.dropout:
            return [self]
        return [self.with_dropout(settings.dropout, seed, number) for number in range(settings.dropout_cuts)]

    def with_dropout(self, rate: float, seed: int, number: int = 0) -> MergeDropout:
        """The same vocabulary, but merges are left out with this chance: for training, never for use."""
        source = None if self.source is self else self.source.with_dropout(rate, seed, number)
        return MergeDropout(self._inner, self.specials, rate, (seed, number), source)

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids back to text. Padding, start and end are left out; what is unknown stays visible as <unk>."""
        unseen = (self.specials.padding, self.specials.start, self.specials.end)
        return self._inner.decode([token for token in ids if token not in unseen], skip_special_tokens=False)

    def labels(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Each token as a reader can see it, for pictures: ▁ marks a space."""
        if not isinstance(self._inner.decoder, decoders.ByteLevel):
            return tuple(self._inner.id_to_token(token) or "" for token in ids)
        return tuple(self._inner.decode([token], skip_special_tokens=False).replace(" ", SPACE) for token in ids)


@dataclass(frozen=True)
class _Texts:
    """The texts of one side or of both, as often as they are asked for."""

    pairs: Iterable[TextPair]
    sides: tuple[Literal["source", "target"], ...]

    def __iter__(self) -> Iterator[str]:
        return (getattr(pair, side) for pair in self.pairs for side in self.sides)


def _specials(inner: tokenizers.Tokenizer) -> Specials:
    special = {token.content: number for number, token in inner.get_added_tokens_decoder().items() if token.special}
    if END_OF_TEXT in special and PADDING not in special:
        return Specials(special[END_OF_TEXT], special[END_OF_TEXT], special[END_OF_TEXT])
    for token in (PADDING, START, END):
        if token not in special:
            raise DataError(f"tokenizer: must have the token {token}, but has not. Was it written by Regard?")
    return Specials(special[PADDING], special[START], special[END])
