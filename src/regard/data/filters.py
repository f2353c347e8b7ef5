"""Which pairs are kept for training. What is dropped is counted, each pair under one reason, with examples.

    empty       a side has nothing but spaces
    damaged     a side holds U+0000, U+FFFD or a control character of Latin-1: it was once decoded wrongly
    too long    a side has more characters or words than the limit
    ratio       one side is too many times as long as the other
    identical   both sides are the same
    script      a side is mostly in letters of another script than its language's
    duplicate   the same pair came before

They are asked in this order, and the first that says no has the pair. Words are what spaces separate.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import Block

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

ADVICE = {
    "empty": "Do both files have a line for each sentence?",
    "damaged": "Find the text before it was damaged, or keep it with drop_damaged = false.",
    "too long": "Cut the text into sentences, or raise max_characters and max_words.",
    "ratio": "Do the lines of both sides belong together? For other tasks than translation, set max_ratio = 0.",
    "identical": "Is one side not translated? If they should be the same, set drop_identical = false.",
    "script": "Are the sides swapped, or the languages wrong? If not, set min_script = 0.",
    "duplicate": "If repetition means something here, set drop_duplicates = false.",
}
"""What to do when much is dropped; the settings are those of `Filters`."""
REASONS = tuple(ADVICE)
EXAMPLES = 5
EXAMPLE_LENGTH = 200
# Short sentences differ in length without being wrong: "Hi." is "Guten Tag!".
SLACK = 30
SCRIPT_SAMPLE = 2_000
SCRIPT_SHARE = 0.1

DAMAGE = re.compile("[\0\x80-\x9f\ufffd]")
LATIN = "Latin"
SCRIPTS = {
    LATIN: (
        "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1d00-\u1d25\u1e00-\u1eff\u2c60-\u2c7f\ua722-\ua7ff",
        "en de fr es it pt nl sv da no nb nn fi is et lv lt pl cs sk sl hr hu ro sq tr id ms vi sw eu ca gl ga cy",
    ),
    "Greek": ("\u0370-\u0373\u0376-\u037d\u0386\u0388-\u03ff\u1f00-\u1ffc", "el"),
    "Cyrillic": ("\u0400-\u052f\u1c80-\u1c8a\ua640-\ua69f", "ru uk be bg mk kk ky tg mn"),
    "Armenian": ("\u0531-\u0587", "hy"),
    "Hebrew": ("\u05d0-\u05f2\ufb1d-\ufb4f", "he yi"),
    "Arabic": (
        "\u0620-\u064a\u066e-\u06d3\u06d5-\u06ff\u0750-\u077f\u08a0-\u08c9\ufb50-\ufdfb\ufe70-\ufefc",
        "ar fa ur ps ug",
    ),
    "Devanagari": ("\u0900-\u097f", "hi mr ne sa"),
    "Bengali": ("\u0980-\u09fe", "bn as"),
    "Tamil": ("\u0b82-\u0bfa", "ta"),
    "Telugu": ("\u0c00-\u0c7f", "te"),
    "Thai": ("\u0e01-\u0e4e", "th"),
    "Georgian": ("\u10a0-\u10ff\u1c90-\u1cbf", "ka"),
    "Khmer": ("\u1780-\u17d3", "km"),
    "Hangul": ("\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3", "ko"),
    "Kana": ("\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9d", "ja"),
    "Han": ("\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff", "zh lzh yue cmn ja ko"),
}
"""The letters of each script, as inside the brackets of a regular expression, and languages written in no other."""


def _letters(scripts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("[" + "".join(SCRIPTS[script][0] for script in scripts) + "]")


LETTERS = {script: _letters([script]) for script in SCRIPTS}
WIDE = _letters(["Han", "Kana", "Hangul"])


@dataclass(frozen=True)
class Filters:
    """Which pairs are kept for training; validation and test pairs are never touched."""

    drop_empty: bool = True
    drop_damaged: bool = True
    max_characters: int = 2_000
    max_words: int = 250
    max_ratio: float = 3.0
    drop_identical: bool = True
    min_script: float = 0.5
    drop_duplicates: bool = True

    def __post_init__(self) -> None:
        for name in ("max_characters", "max_words"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0, which is no limit, but is {getattr(self, name)}")
        if self.max_ratio and not self.max_ratio >= 1:
            raise ValueError(f"`max_ratio` must be at least 1, or 0 for no limit, but is {self.max_ratio}")
        if not 0 <= self.min_script <= 1:
            raise ValueError(f"`min_script` must be from 0 to 1, but is {self.min_script}")


NO_FILTERS = Filters(False, False, 0, 0, 0.0, False, 0.0, False)


def translates(languages: tuple[str | None, str | None], filters: Filters) -> bool:
    """Whether pairs are translations, as far as settings tell.

    They are not where both sides are named as one language. Where one has no name, no limit on the ratio of lengths
    says that they are something else, such as summaries.
    """
    source, target = languages
    return source != target if source and target else bool(filters.max_ratio)


@dataclass(frozen=True)
class Example:
    """A pair that was dropped, and where it stands; long texts are cut."""

    file: str
    line: int
    source: str
    target: str


@dataclass
class Dropped:
    """How many pairs were dropped for one reason, and the first few of them."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


class Kept(NamedTuple):
    """Pairs that came through, with a hash of each source and of each pair."""

    sources: list[str]
    targets: list[str]
    source_keys: Keys
    pair_keys: Keys


class Sieve:
    """Drops pairs block by block and keeps count: `read` is `kept` and all `dropped` together."""

    def __init__(self, settings: Filters, languages: tuple[str | None, str | None] = (None, None)) -> None:
        self._settings = settings
        self._scripts = [_SideScripts(language, settings.min_script) for language in languages]
        self._seen = _Seen()
        self.read = self.kept = 0
        self.dropped = {reason: Dropped() for reason in REASONS}

    @property
    def scripts(self) -> tuple[tuple[str, ...], ...]:
        """The scripts that each side may use beside Latin, as its language says, or else as its first lines do."""
        return tuple(tuple(sorted(side.own)) for side in self._scripts)

    def sift(self, block: Block) -> Kept:
        """The pairs of a block that are to be kept, in order."""
        reasons = self._reasons(block.sources, block.targets)
        good = reasons < 0
        sources, targets = (list(compress(side, good.tolist())) for side in (block.sources, block.targets))
        source_keys = keys_of(sources)
        pair_keys = pair_keys_of(source_keys, keys_of(targets))
        if self._settings.drop_duplicates:
            again = self._seen.add(pair_keys)
            reasons[np.flatnonzero(good)[again]] = REASONS.index("duplicate")
            sources, targets = (list(compress(side, (~again).tolist())) for side in (sources, targets))
            source_keys, pair_keys = source_keys[~again], pair_keys[~again]
        self._count(block, reasons)
        return Kept(sources, targets, source_keys, pair_keys)

    def _reasons(self, sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.int8]:
        """For each pair the number of the first reason to drop it, -1 where there is none; duplicates come later."""
        settings, sides = self._settings, (sources, targets)
        reasons = np.full(len(sources), -1, dtype=np.int8)

        def drop(reason: str, mask: Mask) -> None:
            reasons[mask & (reasons < 0)] = REASONS.index(reason)

        if settings.drop_empty:
            drop("empty", _either(map(_is_empty, side) for side in sides))
        if settings.drop_damaged:
            drop("damaged", _either(map(_is_damaged, side) for side in sides))
        characters = [_lengths(side) for side in sides]
        if settings.max_characters:
            drop("too long", np.maximum(*characters) > settings.max_characters)
        if settings.max_words:
            counted = zip(sides, characters, strict=True)
            drop("too long", _either(_has_more_words(*side, settings.max_words) for side in counted))
        if settings.max_ratio:
            drop("ratio", _ratios(sources, targets) > settings.max_ratio)
        if settings.drop_identical:
            drop("identical", np.fromiter(map(operator.eq, sources, targets), dtype=bool, count=len(sources)))
        if settings.min_script:
            pairs = zip(self._scripts, sides, strict=True)
            drop("script", _either(scripts.foreign(side) for scripts, side in pairs))
        return reasons

    def _count(self, block: Block, reasons: NDArray[np.int8]) -> None:
        self.read += len(reasons)
        self.kept += int((reasons < 0).sum())
        for number, reason in enumerate(REASONS):
            places = np.flatnonzero(reasons == number)
            found = self.dropped[reason]
            found.count += len(places)
            for place in places[: EXAMPLES - len(found.examples)]:
                texts = (side[place][:EXAMPLE_LENGTH] for side in (block.sources, block.targets))
                found.examples.append(Example(block.file, block.first + int(place), *texts))


# ---- one reason each


def _is_empty(text: str) -> bool:
    return not text or text.isspace()


def _is_damaged(text: str) -> bool:
    # Most lines are ASCII, which is known at once, and can then only hold the first of these characters.
    return "\0" in text if text.isascii() else DAMAGE.search(text) is not None


def _has_more_words(texts: Sequence[str], characters: NDArray[np.int64], most: int) -> Mask:
    found = np.zeros(len(texts), dtype=bool)
    # So many words need at least as many letters and spaces.
    for place in np.flatnonzero(characters > 2 * most).tolist():
        found[place] = sum(map(bool, texts[place].split(" "))) > most
    return found


def _ratios(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.float64]:
    """How many times as long the longer side is."""
    source, target = (np.fromiter(map(_weight, side), dtype=np.float64) + SLACK for side in (sources, targets))
    return np.maximum(source, target) / np.minimum(source, target)


def _weight(text: str) -> int:
    """The length of a text, comparable between scripts: where a word is one or two characters, each counts thrice."""
    return len(text) if text.isascii() else len(text) + 2 * len(WIDE.findall(text))


def _lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def _either(sides: Iterable[Any]) -> Mask:
    source, target = (side if isinstance(side, np.ndarray) else np.fromiter(side, dtype=bool) for side in sides)
    return source | target


class _SideScripts:
    """Finds texts of one side that are mostly in letters of a script that is not its own.

    Latin is never foreign: names, units and code are written in it everywhere.
    """

    def __init__(self, language: str | None, least: float) -> None:
        self._least = least
        self.own = scripts_of(language)
        self._declared = bool(self.own)
        self._letters = dict.fromkeys(SCRIPTS, 0)
        self._sampled = 0
        self._look_for(self.own)

    def foreign(self, texts: Sequence[str]) -> Mask:
        """Which texts are."""
        if not self._declared and self._sampled < SCRIPT_SAMPLE:
            self._learn(texts[:SCRIPT_SAMPLE])
        strange, own = self._strange, self._own
        found = np.zeros(len(texts), dtype=bool)
        for place, text in enumerate(texts):
            if not text.isascii() and strange.search(text):
                others = len(strange.findall(text))
                found[place] = len(own.findall(text)) < self._least * (others + len(own.findall(text)))
        return found

    def _learn(self, texts: Sequence[str]) -> None:
        """Without a language, a side's scripts are those that its first lines use not only now and then."""
        self._sampled += len(texts)
        for script, count in count_letters(texts).items():
            self._letters[script] += count
        enough = SCRIPT_SHARE * sum(self._letters.values())
        self.own = frozenset(script for script, count in self._letters.items() if count and count >= enough)
        self._look_for(self.own)

    def _look_for(self, own: frozenset[str]) -> None:
        # Where a side has a script beside Latin, Latin letters say nothing for or against a text.
        main = own - {LATIN} or {LATIN}
        self._own = _letters(sorted(main))
        self._strange = _letters(script for script in SCRIPTS if script not in main | {LATIN})


def scripts_of(language: str | None) -> frozenset[str]:
    """The scripts of a language code such as `de` or `zh-Hans`; empty where they are not known."""
    code = re.split("[-_]", (language or "").lower())[0]
    return frozenset(script for script, (_, languages) in SCRIPTS.items() if code in languages.split(" "))


def count_letters(texts: Iterable[str]) -> dict[str, int]:
    """How many letters of each script there are; scripts without any are left out."""
    text = "".join(texts)
    if text.isascii():
        found = {LATIN: len(LETTERS[LATIN].findall(text))}
    else:
        found = {script: len(letters.findall(text)) for script, letters in LETTERS.items()}
    return {script: count for script, count in found.items() if count}


# ---- keys


def keys_of(texts: Iterable[str]) -> Keys:
    """A hash of 8 bytes for each text, the same on every machine and on every run."""
    digests = b"".join([sha256(text.encode()).digest()[:8] for text in texts])
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def pair_keys_of(sources: Keys, targets: Keys) -> Keys:
    """A hash of each pair, from those of its sides."""
    # Not symmetric, so that a pair and its reverse differ; the factor is odd, so that no bit of a source is lost.
    return sources * np.uint64(0x9E3779B97F4A7C15) + targets


class _Seen:
    """All keys met so far, 8 bytes each, in a few sorted runs of which each is more than twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def add(self, keys: Keys) -> Mask:
        """Which of the keys were met before, among them those that stand twice in `keys`."""
        again = np.ones(len(keys), dtype=bool)
        again[np.unique(keys, return_index=True)[1]] = False
        for run in self._runs:
            places = np.minimum(run.searchsorted(keys), len(run) - 1)
            again |= run[places] == keys
        if not again.all():
            self._runs.append(np.sort(keys[~again]))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            # A stable sort merges two sorted runs in one go.
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
        return again
