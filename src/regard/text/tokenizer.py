"""Text to token ids and back.

A tokenizer is a vocabulary and the rules that cut text into it, on the `tokenizers` library; one `tokenizer.json` a
model. What is learned and how stands in `learning.py`, GPT-2's published vocabulary in `gpt2.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import tokenizers
from tokenizers import decoders, models

from regard.batch import Specials
from regard.errors import DataError, MissingError, UsageError
from regard.status import StatusLine
from regard.text import gpt2, learning
from regard.text.dropout import Draws, MergeDropout, Merges
from regard.text.events import MusicEvents, events
from regard.text.gpt2 import END_OF_TEXT, GPT2Files
from regard.text.imported import HIDDEN, Imported, parts_of
from regard.text.learning import END, PADDING, START, UNKNOWN, TokenizerSettings
from regard.text.ragged import Ragged
from regard.text.survey import not_unicode
from regard.text.words import SPACE, WordTable, spaces_of

__all__ = [
    "END", "END_OF_TEXT", "PADDING", "START", "UNKNOWN", "GPT2Files", "Imported", "MusicEvents",
    "TextsOf", "Tokenizer", "TokenizerSettings", "VocabularySettings",
]  # fmt: skip

VocabularySettings = TokenizerSettings | GPT2Files | Imported | MusicEvents

CHUNK = 8_192  # texts encoded at a time: the library keeps much more of each than its ids
TAG = re.compile("<2(.+)>")
# Characters that nobody sees: controls, soft hyphens, spaces of no width, directions. Joiners (U+200C, U+200D) have a
# meaning, tabs and line ends separate words.
INVISIBLE = [*map(chr, (*range(9), *range(11, 32), 0x7F, 0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060,
                        *range(0x2066, 0x206A), 0xFEFF))]  # fmt: skip


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

    `source` is the tokenizer of what is translated from: this one, unless each language has its own. `size` is given
    where the rules know more pieces than the model has tokens: the pieces from there on are unknown to it.
    """

    def __init__(self, inner: tokenizers.Tokenizer, source: Tokenizer | None = None, size: int | None = None) -> None:
        # What a user writes is text, even if it reads "<eos>": only Regard places special tokens.
        inner.encode_special_tokens = True
        self._inner = inner
        added = inner.get_added_tokens_decoder().items()
        special = parts_of(inner) or {token.content: number for number, token in added if token.special}
        self.specials = _specials(special)
        tags = {token: tag[1] for token in special if (tag := TAG.fullmatch(token))}
        self.languages: Mapping[str, int] = {language: special[token] for token, language in tags.items()}
        """For each target language that a source can ask for, the id of the token that does."""
        self.unknown: int | None = _unknown(inner)
        """The id of what the vocabulary does not cover; None where it covers everything, as bytes do."""
        self._size = size
        self.source: Tokenizer = source or self
        if self.source.specials != self.specials:
            raise DataError(
                f"tokenizer: source and target must have the same special tokens, but have {self.source.specials} and "
                f"{self.specials}. Were they written by Regard?"
            )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        settings: VocabularySettings,
        languages: Sequence[str] = (),
        status: StatusLine | None = None,
    ) -> Tokenizer:
        """Learn a vocabulary from `lines`, which are read twice; a published one needs none.

        Each of `languages` gets a special token by which a source asks for it as the target language. `status` shows
        how far it is.
        """
        if isinstance(settings, Imported):
            raise UsageError(
                "tokenizer.kind: must be one that can be learned, but is `imported`. Choose another, such as `bpe`."
            )
        if isinstance(settings, MusicEvents):
            return cls(events(settings))
        if isinstance(settings, GPT2Files):
            inner = gpt2.read(Path(settings.encoder), Path(settings.merges))
            inner.add_special_tokens([learning.target_tag(language) for language in languages])
            return cls(inner)
        return cls(learning.learn(lines, settings, languages, status))

    @classmethod
    def learn_pair(
        cls,
        pairs: Iterable[TextPair],
        settings: VocabularySettings,
        languages: Sequence[str] = (),
        status: StatusLine | None = None,
    ) -> Tokenizer:
        """Learn from two languages: one vocabulary for both, or one for each if `settings.shared` is false.

        `languages` are those that a source may ask for, if there are several.
        """
        learning.check_can_be_read_twice(pairs)
        if isinstance(settings, GPT2Files | Imported | MusicEvents) or settings.shared:
            return cls.learn(TextsOf(pairs, ("source", "target")), settings, languages, status)
        target = learning.learn(TextsOf(pairs, ("target",)), settings, status=status)
        return cls(target, cls.learn(TextsOf(pairs, ("source",)), settings, languages, status))

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
            return cls.from_json(file.read_text(encoding="utf-8"))
        except DataError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"{file}: must be a tokenizer Regard wrote, but cannot be read ({error}).") from error

    @classmethod
    def from_json(cls, content: str) -> Tokenizer:
        """What `to_json` gave."""
        tree = json.loads(content)
        if "target" not in tree:
            return cls(tokenizers.Tokenizer.from_str(content))
        target = tokenizers.Tokenizer.from_str(json.dumps(tree["target"]))
        source = cls.from_json(json.dumps(tree["source"])) if "source" in tree else None
        return cls(target, source, tree.get("size"))

    def to_json(self) -> str:
        """The content of `tokenizer.json`: what the library writes, or two such objects, `source` and `target`.

        Where the rules know more pieces than the model, `size` stands beside them.
        """
        own = self._inner.to_str(pretty=True)
        if self.source is self and self._size is None:
            return own
        sides = {} if self.source is self else {"source": json.loads(self.source.to_json())}
        sides |= {"target": json.loads(own)} | ({} if self._size is None else {"size": self._size})
        return json.dumps(sides, indent=2, ensure_ascii=False)

    @property
    def size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._size or self._inner.get_vocab_size()

    @property
    def whole_words(self) -> bool:
        """Whether tokens are whole words, so that a word is known or not."""
        return isinstance(self._inner.model, models.WordLevel)

    @property
    def rules(self) -> tokenizers.Tokenizer:
        """A copy of the library's tokenizer underneath, for whoever hands it to another toolkit."""
        return tokenizers.Tokenizer.from_str(self._inner.to_str())

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every token as the vocabulary spells it, by id; `labels` are for readers."""
        return tuple(self._inner.id_to_token(token) or f"<{token}>" for token in range(self.size))

    def encode(self, text: str) -> list[int]:
        """The tokens of one text, without start and end."""
        return self.encode_all([text])[0]

    def encode_lines(self, text: str) -> list[int]:
        """The tokens of running text: as in training, each line but the first begins with the start token."""
        first, *others = self.encode_all(text.split("\n"))
        return [*first, *(token for line in others for token in (self.specials.start, *line))]

    def decode_lines(self, ids: Sequence[int]) -> str:
        """The text of tokens that `encode_lines` gave."""
        lines: list[list[int]] = [[]]
        for token in ids:
            if token == self.specials.start:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(map(self.decode, lines))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, on all cores."""
        found: list[list[int]] = []
        try:
            for first in range(0, len(texts), CHUNK):
                found += self._library(texts[first : first + CHUNK])
        except TypeError as error:
            raise not_unicode(texts, "text") or error from error
        return found

    def encode_flat(self, texts: Sequence[str]) -> Ragged:
        """The same tokens, laid end to end; for millions of texts, because a word that was met before is not cut again.

        The words are kept for the next time, which takes up to some hundred megabytes.
        """
        if self._table is None:
            return Ragged.of(self.encode_all(texts))
        try:
            parts = [self._table.look_up(texts[first : first + CHUNK])[0] for first in range(0, len(texts), CHUNK)]
        except TypeError as error:
            raise not_unicode(texts, "text") or error from error
        return Ragged.joined(parts)

    def encode_sources(self, texts: Sequence[str], language: str | None = None) -> list[list[int]]:
        """The tokens of texts to be translated into `language`; it must be given where the model knows several."""
        tag = self._tag(language)
        return [[*tag, *ids] for ids in self.source.encode_all(texts)]

    def _tag(self, language: str | None) -> list[int]:
        known = self.source.languages
        if language is None and not known:
            return []
        if language is not None and language in known:
            return [known[language]]
        found = "none is given" if language is None else f"it is `{language}`"
        if not known:
            raise UsageError(f"language: must be left out, because the model knows only one, but {found}.")
        raise UsageError(
            f"language: must be one the model can translate into ({', '.join(known)}), but {found}. Choose one of them."
        )

    def _library(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [found.ids for found in self._inner.encode_batch_fast(list(texts), add_special_tokens=False)]
        if self._size is None or self.unknown is None:
            return rows
        return [[token if token < self._size else self.unknown for token in row] for row in rows]

    @cached_property
    def _table(self) -> WordTable | None:
        spaces = spaces_of(self._inner)
        return None if spaces is None else WordTable(self._library, spaces)

    def training_cuts(self, settings: VocabularySettings, seed: int) -> Sequence[Tokenizer | MergeDropout]:
        """What to encode the training text with, once with each: this, or several with BPE-dropout."""
        if isinstance(settings, GPT2Files | Imported | MusicEvents) or not settings.dropout:
            return [self]
        return [self.with_dropout(settings.dropout, seed, number) for number in range(settings.dropout_cuts)]

    def with_dropout(self, rate: float, seed: int, number: int = 0) -> MergeDropout:
        """The same vocabulary, but merges are left out with this chance: for training, never for use."""
        source = None if self.source is self else self.source.with_dropout(rate, seed, number)
        return MergeDropout(self._merges, self.size, self.specials, Draws(rate, (seed, number)), self.languages, source)

    @cached_property
    def _merges(self) -> Merges:
        return Merges(self._inner)

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids back to text. What is unknown stays visible as <unk>; other special tokens are left out."""
        unseen = {self.specials.padding, self.specials.start, self.specials.end, *self.languages.values()}
        return self._inner.decode([token for token in ids if token not in unseen], skip_special_tokens=False)

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Where in its text each token of `encode_all` stands: from which character, and up to before which."""
        return [self._inner.encode(text, add_special_tokens=False).offsets for text in texts]

    def readable(self, texts: Sequence[str]) -> list[str]:
        """Texts without the characters that nobody sees and the vocabulary has not learned to read.

        It has learned those that it holds in longer pieces. One that it holds alone was met some time, and tears the
        word apart that it stands in: `rail` `\\u00ad` `way`. What covers everything, as bytes do, reads them all.
        """
        if self._unread is None:
            return list(texts)
        return [self._unread.sub(lambda found: " " if found[0].isspace() else "", text) for text in texts]

    @cached_property
    def _unread(self) -> re.Pattern[str] | None:
        if self.unknown is None:
            return None
        learned = "".join(token for token in self.tokens if len(token.strip(SPACE)) > 1)
        unread = "".join(each for each in INVISIBLE if each not in learned)
        return re.compile(f"[{re.escape(unread)}]") if unread else None

    def lacks(self, text: str) -> list[str]:
        """What of a text that is `readable` is unknown, each once: characters, or whole words where those are the
        tokens."""
        if self.unknown is None:
            return []
        (text,) = self.readable([text])
        found = zip(self.encode(text), *self.spans([text]), strict=True)
        pieces = (text[first:last].strip() for token, (first, last) in found if token == self.unknown)
        return list(dict.fromkeys(piece for piece in pieces if piece))

    def labels(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Each token as a reader can see it, for pictures: ▁ marks a space."""
        if not isinstance(self._inner.decoder, decoders.ByteLevel):
            found = (self._inner.id_to_token(token) or "" for token in ids)
            return tuple(token[1:] if len(token) > 1 and token[0] == HIDDEN else token for token in found)
        return tuple(self._inner.decode([token], skip_special_tokens=False).replace(" ", SPACE) for token in ids)


@dataclass(frozen=True)
class TextsOf:
    """The texts of one side or of both, as often as they are asked for."""

    pairs: Iterable[TextPair]
    sides: tuple[Literal["source", "target"], ...]

    def __iter__(self) -> Iterator[str]:
        return (getattr(pair, side) for pair in self.pairs for side in self.sides)


def _unknown(inner: tokenizers.Tokenizer) -> int | None:
    if isinstance(inner.model, models.Unigram):
        number: int | None = json.loads(inner.to_str())["model"]["unk_id"]
        return number
    return None if inner.model.unk_token is None else inner.token_to_id(inner.model.unk_token)


def _specials(special: Mapping[str, int]) -> Specials:
    if END_OF_TEXT in special and PADDING not in special:
        return Specials(special[END_OF_TEXT], special[END_OF_TEXT], special[END_OF_TEXT])
    for token in (PADDING, START, END):
        if token not in special:
            raise DataError(f"tokenizer: must have the token {token}, but has not. Was it written by Regard?")
    return Specials(special[PADDING], special[START], special[END])
