"""A bilingual corpus that needs no download: numbers, dates and times, in words and in figures.

    42                                           zweiundvierzig
    Saturday, March 14, 2015                     Samstag, 14. März 2015
    The train leaves on Saturday at 3:04 PM.     Der Zug fährt am Samstag um 15:04 Uhr ab.

The lines are of the kinds in `KINDS`, each with a share of the corpus and a count of all its lines. A line is
a kind and an index below that count, and both sides are written from the index. Hence no source and no target
occurs twice in a corpus, and the splits are disjoint on both sides; corpora of one seed say the same things
in any two languages; and the test lines stay the same when `pairs` or `valid` changes.

The wording is that of `regard.data.wording`, in Unicode's NFC form. The same settings give the same corpus
with the same versions of num2words and Babel; a new version may word some lines differently.

`python -m regard.data.generated` prints samples.
"""

import datetime
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, NamedTuple, get_args

from regard.data import wording
from regard.data.wording import Language
from regard.errors import UsageError

__all__ = ["KINDS", "Generated", "Kind", "Language", "Pair", "Splits", "capacity", "generate"]


@dataclass(frozen=True)
class Generated:
    """Settings of a generated corpus: its two languages, the size of each split, and the seed."""

    kind: Literal["generated"] = "generated"
    source: Language = "en"
    target: Language = "de"
    pairs: int = 20_000
    valid: int = 500
    test: int = 500
    seed: int = 1

    def __post_init__(self) -> None:
        languages = get_args(Language)
        for name, language in (("source", self.source), ("target", self.target)):
            if language not in languages:
                raise UsageError(f"data.{name} must be one of {', '.join(languages)}, but is {language!r}.")
        if self.source == self.target:
            others = ", ".join(language for language in languages if language != self.source)
            raise UsageError(
                f"data.source and data.target must differ, but both are {self.source!r}; try one of {others}."
            )
        for name, count, least in (
            ("pairs", self.pairs, 1),
            ("valid", self.valid, 0),
            ("test", self.test, 0),
        ):
            if count < least:
                raise UsageError(f"data.{name} must be at least {least}, but is {count}; ask for more lines.")
        held_out, most = self.valid + self.test, sum(kind.size for kind in KINDS if not kind.train_only)
        if held_out > most:
            raise UsageError(f"data.valid + data.test must be at most {most}, but is {held_out}; ask for fewer lines.")
        most = capacity() - held_out
        if self.pairs > most:
            raise UsageError(
                f"data.pairs must be at most {most} beside the {held_out} lines of data.valid and data.test, "
                f"but is {self.pairs}; ask for fewer lines."
            )


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of a parallel corpus: a source and its one right target."""

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
    streams = [enumerate(_shuffled(kind.size, Random(f"{settings.seed} {kind.name}"))) for kind in KINDS]
    room = [0 if kind.train_only else kind.size for kind in KINDS]

    def take(split: str, count: int) -> list[Pair]:
        pairs = []
        for position, lines in enumerate(_allot(count, room)):
            room[position] -= lines
            kind = KINDS[position]
            for turn, index in islice(streams[position], lines):
                source = kind.source(settings.source, index, turn)
                target = kind.target(settings.target, index, turn)
                pairs.append(Pair(unicodedata.normalize("NFC", source), unicodedata.normalize("NFC", target)))
        Random(f"{settings.seed} {split}").shuffle(pairs)
        return pairs

    # Test first: its lines then depend on no other size, and scores stay comparable when the corpus grows.
    test = take("test", settings.test)
    valid = take("valid", settings.valid)
    room = [kind.size if kind.train_only else left for kind, left in zip(KINDS, room, strict=True)]
    return Splits(train=take("train", settings.pairs), valid=valid, test=test)


def capacity() -> int:
    """How many different lines there are in all: the most that the three splits can hold together."""
    return sum(kind.size for kind in KINDS)


def _shuffled(size: int, random: Random) -> Iterator[int]:
    """Every number below `size` once, in random order, at the cost of only those that are taken."""
    moved: dict[int, int] = {}  # a Fisher-Yates shuffle that keeps only the places it has changed
    for place in range(size):
        other = random.randrange(place, size)
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)


def _allot(count: int, room: list[int]) -> list[int]:
    """Divide `count` lines among the kinds by share; what a full kind cannot take goes to the others."""
    given = [0] * len(room)
    left = count
    while left:
        open_kinds = [position for position, size in enumerate(room) if given[position] < size]
        shares = sum(KINDS[position].share for position in open_kinds)
        now = left
        for position in open_kinds:
            fair = max(1, now * KINDS[position].share // shares)
            lines = min(fair, room[position] - given[position], left)
            given[position] += lines
            left -= lines
    return given


class _Phrase(NamedTuple):
    """One thing said in each language."""

    en: str
    de: str
    fr: str
    zh: str

    def fill(self, language: Language, **values: str) -> str:
        text: str = getattr(self, language)
        return text.format(**values)


_SPANS = (
    _Phrase("from {a} to {b}", "von {a} bis {b}", "de {a} à {b}", "从{a}到{b}"),
    _Phrase("between {a} and {b}", "zwischen {a} und {b}", "entre {a} et {b}", "在{a}和{b}之间"),
)
_CURRENCIES = {
    "EUR": _Phrase("{n} euros", "{n} Euro", "{n} euros", "{n}欧元"),
    "USD": _Phrase("{n} dollars", "{n} Dollar", "{n} dollars", "{n}美元"),
    "CHF": _Phrase("{n} Swiss francs", "{n} Schweizer Franken", "{n} francs suisses", "{n}瑞士法郎"),
}
_CHANGES = (
    _Phrase("The price rises by {n}.", "Der Preis steigt um {n}.", "Le prix augmente de {n}.", "价格上涨{n}。"),
    _Phrase("The price falls by {n}.", "Der Preis sinkt um {n}.", "Le prix baisse de {n}.", "价格下降{n}。"),
    _Phrase("The rent rises by {n}.", "Die Miete steigt um {n}.", "Le loyer augmente de {n}.", "房租上涨{n}。"),
    _Phrase("The rent falls by {n}.", "Die Miete sinkt um {n}.", "Le loyer baisse de {n}.", "房租下降{n}。"),
)
_CHAPTER = _Phrase(
    "The {nth} chapter begins on page {page}.",
    "Das {nth} Kapitel beginnt auf Seite {page}.",
    "Le {nth} chapitre commence à la page {page}.",
    "{nth}章从第{page}页开始。",
)
_TRIPS = (
    _Phrase(
        "The train leaves on {day} at {time}.",
        "Der Zug fährt am {day} um {time} Uhr ab.",
        "Le train part {day} à {time}.",
        "火车将于{day}{time}出发。",
    ),
    _Phrase(
        "The train arrives on {day} at {time}.",
        "Der Zug kommt am {day} um {time} Uhr an.",
        "Le train arrive {day} à {time}.",
        "火车将于{day}{time}到达。",
    ),
    _Phrase(
        "The plane takes off on {day} at {time}.",
        "Das Flugzeug startet am {day} um {time} Uhr.",
        "L'avion décolle {day} à {time}.",
        "飞机将于{day}{time}起飞。",
    ),
)
_EVENTS = (
    _Phrase(
        "The meeting takes place on {full}.",
        "Das Treffen findet am {weekday}, dem {long}, statt.",
        "La réunion a lieu le {full}.",
        "会议于{full}举行。",
    ),
    _Phrase(
        "We arrive on {full}.",
        "Wir kommen am {weekday}, dem {long}, an.",
        "Nous arrivons le {full}.",
        "我们于{full}到达。",
    ),
    _Phrase(
        "The contract ends on {long}.",
        "Der Vertrag endet am {long}.",
        "Le contrat prend fin le {long}.",
        "合同于{long}到期。",
    ),
)
_MEMORIES = (
    _Phrase(
        "She was born on {long}.",
        "Sie wurde am {long} geboren.",
        "Elle est née le {long}.",
        "她出生于{long}。",
    ),
    _Phrase("He was born on {long}.", "Er wurde am {long} geboren.", "Il est né le {long}.", "他出生于{long}。"),
    _Phrase(
        "The letter was written on {long}.",
        "Der Brief wurde am {long} geschrieben.",
        "La lettre a été écrite le {long}.",
        "这封信写于{long}。",
    ),
)

Write = Callable[[Language, int, int], str]


@dataclass(frozen=True)
class Kind:
    """A kind of line: `source` and `target` write, in a language, line number `index`, which is below `size`.

    Last they get `turn`, which counts the lines taken: a source that has several forms uses them in turn.
    """

    name: str
    share: int
    size: int
    source: Write
    target: Write
    train_only: bool = False


def _numbers(name: str, share: int, low: int, high: int, train_only: bool = False) -> Kind:
    """Bare numbers from `low` to `high`: words or figures in, words out."""

    def source(language: Language, index: int, turn: int) -> str:
        return (wording.words, wording.figures)[turn % 2](language, low + index)

    def target(language: Language, index: int, turn: int) -> str:
        return wording.words(language, low + index)

    return Kind(name, share, high - low + 1, source, target, train_only)


def _amounts(name: str, share: int, first: int, end: int) -> Kind:
    """Sums of money: words in, figures out. `first` and `end` count the numbers that do not end in 01."""
    currencies = list(_CURRENCIES)

    def number(index: int) -> int:
        # Before a noun, German changes a number that ends in one (einhundertein Euro): those are left out.
        hundreds, rest = divmod(first + index // len(currencies), 99)
        return 100 * hundreds + rest + (rest > 0)

    def source(language: Language, index: int, turn: int) -> str:
        phrase = _CURRENCIES[currencies[index % len(currencies)]]
        return phrase.fill(language, n=wording.words(language, number(index)))

    def target(language: Language, index: int, turn: int) -> str:
        return wording.money(language, number(index), currencies[index % len(currencies)])

    return Kind(name, share, len(currencies) * (end - first), source, target)


def _span(language: Language, index: int, turn: int) -> str:
    index, phrase = divmod(index, len(_SPANS))
    low, gap = divmod(index, 499)
    a, b = low + 2, low + gap + 3
    return _SPANS[phrase].fill(language, a=wording.words(language, a), b=wording.words(language, b))


def _change(language: Language, index: int, turn: int) -> str:
    tenths, phrase = divmod(index, len(_CHANGES))
    return _CHANGES[phrase].fill(language, n=wording.percent(language, tenths + 1))


def _chapter(language: Language, index: int, turn: int) -> str:
    page, chapter = divmod(index, 99)
    return _CHAPTER.fill(language, nth=wording.ordinal(language, chapter + 1), page=str(page + 1))


def _trip(language: Language, index: int, turn: int) -> str:
    index, phrase = divmod(index, len(_TRIPS))
    minutes, day = divmod(index, 7)
    day_name, time = wording.weekday(language, day), wording.time(language, minutes)
    return _TRIPS[phrase].fill(language, day=day_name, time=time)


_FIRST = datetime.date(1800, 1, 1)
_DAYS = (datetime.date(2100, 1, 1) - _FIRST).days
_PAST = (datetime.date(2000, 1, 1) - _FIRST).days


def _day(index: int) -> datetime.date:
    return _FIRST + datetime.timedelta(days=index)


def _full_date(language: Language, index: int, turn: int) -> str:
    return wording.date(language, _day(index), "full")


def _long_date(language: Language, index: int, turn: int) -> str:
    return wording.date(language, _day(index), "long")


def _any_date(language: Language, index: int, turn: int) -> str:
    day = _day(index)
    match turn % 3:
        case 0:
            return wording.date(language, day, "long")
        case 1:
            return wording.numeric_date(language, day)
        case _:
            return day.isoformat()


def _date_words(language: Language, index: int, turn: int) -> str:
    return wording.date_words(language, _day(index))


def _event(language: Language, index: int, turn: int) -> str:
    days, phrase = divmod(index, len(_EVENTS))
    return _dated(language, _EVENTS[phrase], _day(_PAST + days))


def _memory(language: Language, index: int, turn: int) -> str:
    days, phrase = divmod(index, len(_MEMORIES))
    return _dated(language, _MEMORIES[phrase], _day(days))


def _dated(language: Language, phrase: _Phrase, day: datetime.date) -> str:
    full, long = (wording.date(language, day, form) for form in ("full", "long"))
    return phrase.fill(language, full=full, long=long, weekday=wording.weekday(language, day.weekday()))


# The shares are in percent. The numbers below 100 are the words that larger ones are made of: holding one back
# would ask the model for a word it never saw.
KINDS = (
    _numbers("numbers below 100", 1, 0, 99, train_only=True),
    _numbers("numbers below 10,000", 14, 100, 9_999),
    _numbers("numbers below 1,000,000", 10, 10_000, 999_999),
    Kind("spans", 8, len(_SPANS) * 499 * 499, _span, _span),
    _amounts("small amounts", 6, 2, 990),  # 3 to 999; Chinese would want 两 for a sum of two
    _amounts("large amounts", 6, 990, 99_000),  # 1,000 to 99,999
    Kind("changes", 6, len(_CHANGES) * 999, _change, _change),
    Kind("chapters", 6, 99 * 999, _chapter, _chapter),
    Kind("trips", 10, len(_TRIPS) * 7 * 1440, _trip, _trip),
    Kind("full dates", 8, _DAYS, _full_date, _full_date),
    Kind("long dates", 9, _DAYS, _any_date, _long_date),
    Kind("dates in words", 6, _DAYS, _date_words, _date_words),
    Kind("events", 6, len(_EVENTS) * (_DAYS - _PAST), _event, _event),
    Kind("memories", 4, len(_MEMORIES) * _PAST, _memory, _memory),
)


def _introduce() -> None:
    pairs: tuple[tuple[Language, Language], ...] = (("en", "de"), ("en", "fr"), ("en", "zh"), ("de", "en"))
    for source, target in pairs:
        print(f"{source} → {target}")
        for pair in generate(Generated(source=source, target=target, pairs=1, valid=0, test=14)).test:
            print(f"  {pair.source:<58}  {pair.target}")


if __name__ == "__main__":
    _introduce()
