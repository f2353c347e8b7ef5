"""The languages of the models that are served: which model translates what, and which language a text is in.

A model's languages are those its recipe names. Where it names none, the ending of the corpus' files may (`train.en`);
where that is no language either, the code is `und`, undetermined.

The language of a text is guessed among those of the models:

1. Only languages stay that are written in the script most of its letters are in.
2. Of these, each gets points: how many of the text's words speak for the language, by a list of common words (English,
   German, French) or by letters that few languages have (`regard.data.guesses`), and into how few pieces its model's
   vocabulary cuts the text; who knows a language has longer pieces for it.
3. Confidence is the share of e^points.

Where no word speaks for either of two languages that share one vocabulary, they cannot be told apart, and get the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from babel import Locale, UnknownLocaleError

from regard.data.filters import SCRIPTS, count_letters
from regard.data.guesses import ending, shares
from regard.errors import UsageError
from regard.exploring import inside
from regard.serve.desk import Desk, Served
from regard.text.tokenizer import Tokenizer

UNDETERMINED = "und"
AUTO = "auto"
WORDS, PIECES = 8.0, 1.0  # what a share of words that speak for a language, and characters a token, are worth


@dataclass(frozen=True)
class Pair:
    """A model, and what it translates from and into; `tag` asks a model that knows several languages for one."""

    served: Served
    source: str
    target: str
    tag: str | None


@dataclass(frozen=True)
class Guess:
    """A language, and how sure it is, from 0 to 100."""

    language: str
    confidence: float


class Tongues:
    """All pairs of languages of a desk, in the order of its models."""

    def __init__(self, desk: Desk) -> None:
        self.pairs = [pair for served in desk.models.values() if served.task == "translate" for pair in _pairs(served)]

    @property
    def codes(self) -> list[str]:
        """All languages, sources first."""
        return list(dict.fromkeys([*(pair.source for pair in self.pairs), *(pair.target for pair in self.pairs)]))

    def targets(self, source: str) -> list[str]:
        """What there is a translation into, from a language."""
        return list(dict.fromkeys(pair.target for pair in self.pairs if pair.source == source))

    def find(self, source: str, target: str) -> Pair:
        """The first model for a pair of languages; `de` will do for `de-AT`. Raises UsageError if there is none."""
        exact = [pair for pair in self.pairs if (pair.source, pair.target) == (source, target)]
        near = [pair for pair in self.pairs if self.same(pair.source, source) and self.same(pair.target, target)]
        for pair in (*exact, *near):
            return pair
        known = ", ".join(dict.fromkeys(f"{pair.source} → {pair.target}" for pair in self.pairs)) or "none"
        raise UsageError(
            f"source and target: must be languages of a model here ({known}), but are `{source[:20]}` and "
            f"`{target[:20]}`. See /languages."
        )

    @staticmethod
    def same(one: str, other: str) -> bool:
        """Whether two codes are of one language, whatever the country."""
        return _base(one) == _base(other)

    def detect(self, text: str) -> list[Guess]:
        """The languages a text may be in, likeliest first; none for a text without letters."""
        if not any(map(str.isalpha, text)):
            return []
        letters = count_letters([text])
        script = max(letters, key=letters.__getitem__) if letters else None
        fitting = [code for code in self.codes if script is None or _written_in(code, script)]
        if not fitting:
            return []
        spoken = shares(text)
        points = [WORDS * spoken.get(_base(code), 0.0) + PIECES * self._pieces(code, text) for code in fitting]
        best = max(points)
        parts = [math.exp(each - best) for each in points]
        guesses = [Guess(code, round(100 * part / sum(parts), 1)) for code, part in zip(fitting, parts, strict=True)]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def _pieces(self, code: str, text: str) -> float:
        """How many characters a token of a language's vocabulary has in this text; of several, the most."""
        readers = [pair.served.model.tokenizer.source for pair in self.pairs if pair.source == code]
        writers = [pair.served.model.tokenizer for pair in self.pairs if pair.target == code]
        return max((_characters_a_token(tokenizer, text) for tokenizer in {*readers, *writers}), default=0.0)


def name_of(code: str) -> str:
    """What a language is called in English."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return "Undetermined" if code == UNDETERMINED else code


def target_of(served: Served) -> str | None:
    """The language that a model translates into, if it is known, and one."""
    found = {pair.target for pair in _pairs(served)} - {UNDETERMINED}
    return found.pop() if len(found) == 1 else None


def _pairs(served: Served) -> Sequence[Pair]:
    known = inside.languages(served.model)
    tags = served.model.tokenizer.source.languages
    source = known.source or _from_files(served, "source")
    return [Pair(served, source, target, target if target in tags else None)
            for target in known.target or [_from_files(served, "target")]]  # fmt: skip


def _from_files(served: Served, side: str) -> str:
    """The ending of a corpus' file that is a language, if one is."""
    data: Any = served.model.recipe.data
    files = getattr(data, side, ())
    codes = [ending(PurePath(str(file))) for file in ([files] if isinstance(files, str) else files)]
    return next((code for code in codes if 2 <= len(code) <= 3 and name_of(code) != code), UNDETERMINED)


def _base(code: str) -> str:
    return re.split("[-_]", code.lower())[0]


def _written_in(code: str, script: str) -> bool:
    """Whether a language is written in a script, as far as anybody here knows."""
    usual = {name for name, (_, languages) in SCRIPTS.items() if _base(code) in languages.split()}
    return not usual or script in usual


def _characters_a_token(tokenizer: Tokenizer, text: str) -> float:
    ids = tokenizer.encode(text)
    unknown = sum(token == tokenizer.unknown for token in ids)
    return (len(text) - 2 * unknown) / max(1, len(ids))
