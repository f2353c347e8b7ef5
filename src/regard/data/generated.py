"""A bilingual corpus that needs no download: numbers and dates, in words and in figures, in four languages.

    42                                           zweiundvierzig
    Saturday, March 14, 2015                     Samstag, 14. März 2015
    The train leaves on Saturday at 3:04 PM.     Der Zug fährt am Samstag um 15:04 Uhr ab.

The lines come in the kinds listed in `KINDS`, each with a share of the corpus and a count of all its lines. A line is
a kind and an index below that count, and both sides are written from the index; so no source and no target
occurs twice in a corpus, and the splits are disjoint on both sides. What a line means depends on the seed alone,
not on the languages: en-de and en-fr with one seed say the same things. The test lines do not change with `pairs`.

The wording comes from num2words (words for numbers) and Babel (CLDR: names and formats), with these house rules:

- English is American: no "and" and no comma within a number in words, the month before the day.
- Chinese numerals are written here, because num2words has none: 二 everywhere, never 两 (10,205 is 一万零二百零五).
- Mended: German "einhunderteinstausend" → "einhunderteintausend"; French "quatre-vingtsième" →
  "quatre-vingtième" and "1 mars" → "1er mars".
- French clock times are written 15 h 04, as in print; CLDR would have 15:04.
- The narrow and the no-break spaces of CLDR become plain spaces; all text is in Unicode's NFC form.

The same settings give the same corpus with the same versions of num2words and Babel; a new CLDR may reword it.
`python -m regard.data.generated` prints samples.
"""

import datetime
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import islice
from random import Random
from typing import Literal, NamedTuple, get_args

from regard.errors import UsageError

Language = Literal["en", "de", "fr", "zh"]


@dataclass(frozen=True)
class Generated:
    """Settings of a generated corpus: the two languages, the size of each split, and the seed."""

    kind: Literal["generated"] = "generated"
    source: Language = "en"
    target: Language = "de"
    pairs: int = 20_000
    valid: int = 500
    test: int = 500
    seed: int = 1

    def __post_init__(self) -> None:
        languages = get_args(Language)
        for name in ("source", "target"):
            if getattr(self, name) not in languages:
                found = getattr(self, name)
                raise UsageError(f"data.{name} must be one of {', '.join(languages)}, but is {found!r}.")
        if self.source == self.target:
            others = ", ".join(language for language in languages if language != self.source)
            raise UsageError(
                f"data.target must differ from data.source, but both are {self.source!r}; choose one of {others}."
            )
        for name, least in (("pairs", 1), ("valid", 0), ("test", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"data.{name} must be at least {least}, but is {getattr(self, name)}.")
        held_out, most = self.valid + self.test, sum(kind.size for kind in KINDS if not kind.train_only)
        if held_out > most:
            raise UsageError(
                f"data.valid + data.test must be at most {most}, but is {held_out}; ask for fewer."
            )
        if self.pairs > capacity() - held_out:
            raise UsageError(
                f"data.pairs must be at most {capacity() - held_out} beside {held_out} lines for valid and test, "
                f"but is {self.pairs}; ask for fewer."
            )


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of a parallel corpus: a source and the one right target."""

    source: str
    target: str


@dataclass(frozen=True)
class Splits:
    """The three parts of a corpus; no source and no target occurs in two of them, or twice in one."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def generate(settings: Generated) -> Splits:
    """Write the corpus that `settings` describe."""
    streams = [_shuffled(kind.size, Random(f"{settings.seed} {kind.name}")) for kind in KINDS]
    room = [0 if kind.train_only else kind.size for kind in KINDS]

    def take(count: int, name: str) -> list[Pair]:
        pairs = []
        for kind, stream, lines in zip(KINDS, streams, _allot(count, room), strict=True):
            for turn, index in islice(stream, lines):
                source = _plain(kind.source(settings.source, index, turn))
                pairs.append(Pair(source, _plain(kind.target(settings.target, index, turn))))
        Random(f"{settings.seed} {name}").shuffle(pairs)
        return pairs

    # The streams give each index once. Test comes first, so that its lines do not depend on the other sizes.
    test = take(settings.test, "test")
    room = [size - lines for size, lines in zip(room, _allot(settings.test, room), strict=True)]
    valid = take(settings.valid, "valid")
    room = [size - lines for size, lines in zip(room, _allot(settings.valid, room), strict=True)]
    room = [kind.size if kind.train_only else size for kind, size in zip(KINDS, room, strict=True)]
    return Splits(train=take(settings.pairs, "train"), valid=valid, test=test)
