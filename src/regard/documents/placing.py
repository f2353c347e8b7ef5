"""Where marks around words of a text belong around the words of its translation.

A mark is a pair of tags, a format, a link; its *stretch* is the words it stands around. The rule, for each mark:

1. Around the whole text, it stands around the whole translation.
2. Otherwise the words of the translation vote. A word that looks the same in both texts and is there once in each (a
   name, a number) votes for its twin; another word for the one it is linked to, if somebody knows such links; where
   nobody does, for the word as far along in the text as it is in the translation.
3. The mark stands around the words in a row with the most votes from inside it less those from outside. One that begins
   or ends with the text takes in a single word before or behind that: an article is linked to anything.

A mark stays inside the mark it was inside of, and marks side by side stay apart. A mark around nothing (a picture, a
note's number) follows the word it followed; if it touched the next word only, it stays before that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.text.sentences import UNSPACED

Links = Sequence[tuple[int, int]]
"""(source word, target word): words are what white space separates, counted from 0."""

# Words, single marks, and single characters of scripts that are written without spaces.
UNIT = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\w)+(?:['’-](?!{UNSPACED.pattern})\w+)*|[^\w\s]")
WORD = re.compile(r"\S+")
TWIN, LINKED, GUESSED, SILENT = 2.0, 1.0, 0.5, 0.25  # what votes weigh; who does not know counts a little against
MOST_WORK = 1_000_000  # marks × words; beyond that only their places count


@dataclass(frozen=True)
class Part:
    """What one sentence has of a mark: characters `start` to `end`, inside the part number `parent`.

    A mark that began before the sentence, or goes on behind it, is open on that side.
    """

    start: int
    end: int
    parent: int | None = None
    open_left: bool = False
    open_right: bool = False


Stretch = tuple[int, int]


def place(source: str, parts: Sequence[Part], target: str, links: Links | None = None) -> list[Stretch]:
    """For each part, in the order of the source and with parents first, from where to where it goes in the target."""
    ours, theirs = _units(source), _units(target)
    if not ours or not theirs or len(parts) * len(theirs) > MOST_WORK:
        return [_scaled(part, source, target) for part in parts]
    votes = _votes(source, ours, target, theirs, links)
    return _Placing(source, parts, ours, theirs, votes, len(target)).all()


def _units(text: str) -> list[Stretch]:
    return [found.span() for found in UNIT.finditer(text)]


def _scaled(part: Part, source: str, target: str) -> Stretch:
    """The same share of the way along: it keeps the order of all marks, and what is inside what."""
    ratio = len(target) / max(1, len(source))
    begin, end = (_edge(target, round(place * ratio)) for place in (part.start, part.end))
    return begin, end


def _edge(text: str, place: int) -> int:
    """The end of the word around a place."""
    while 0 < place < len(text) and not text[place - 1].isspace() and not text[place].isspace():
        place += 1
    return place


def _votes(
    source: str, ours: list[Stretch], target: str, theirs: list[Stretch], links: Links | None
) -> list[tuple[int, float] | None]:
    """For each target unit the source unit it votes for, and how much that weighs."""
    if links is None:
        ratio = len(ours) / len(theirs)
        votes: list[tuple[int, float] | None] = [(int((j + 0.5) * ratio), GUESSED) for j in range(len(theirs))]
    else:
        votes = _linked(source, ours, target, theirs, links)
    names, others = ([text[a:b].casefold() for a, b in units] for text, units in ((source, ours), (target, theirs)))
    here, there = Counter(names), Counter(others)
    places = {name: i for i, name in enumerate(names)}
    for j, name in enumerate(others):
        if here[name] == there[name] == 1:
            votes[j] = (places[name], TWIN)
    return votes


def _linked(
    source: str, ours: list[Stretch], target: str, theirs: list[Stretch], links: Links
) -> list[tuple[int, float] | None]:
    """Votes by links between words. In a word with punctuation the letters speak for it, and the marks stay silent."""
    heads = {}
    for i, word in reversed(list(enumerate(_words_of(source, ours)))):
        if word not in heads or source[ours[i][0]].isalnum():
            heads[word] = i
    partner = {target_word: source_word for source_word, target_word in links}
    votes: list[tuple[int, float] | None] = []
    numbers = _words_of(target, theirs)
    spoken = {word for word, (begin, _) in zip(numbers, theirs, strict=True) if target[begin].isalnum()}
    for word, (begin, _) in zip(numbers, theirs, strict=True):
        silent = word in spoken and not target[begin].isalnum()
        head = None if silent else heads.get(partner.get(word, -1))
        votes.append(None if head is None else (head, LINKED))
    return votes


def _words_of(text: str, units: list[Stretch]) -> list[int]:
    """The number of the word that each unit is in."""
    words = [found.span() for found in WORD.finditer(text)]
    numbers, word = [], 0
    for begin, _ in units:
        while words[word][1] <= begin:
            word += 1
        numbers.append(word)
    return numbers


class _Placing:
    """The marks of one sentence, while they find their stretches."""

    def __init__(
        self,
        source: str,
        parts: Sequence[Part],
        ours: list[Stretch],
        theirs: list[Stretch],
        votes: list[tuple[int, float] | None],
        length: int,
    ) -> None:
        self.source, self.parts = source, parts
        self.ours, self.theirs, self.votes, self.length = ours, theirs, votes, length
        self.units: list[Stretch | None] = [None] * len(parts)  # target units, from and up to before
        self.found: list[Stretch] = [(0, 0)] * len(parts)

    def all(self) -> list[Stretch]:
        """The stretches: first of marks around words, from the outermost inwards, then of those around nothing."""
        inside: dict[int | None, list[int]] = {}
        for number, part in enumerate(self.parts):
            inside.setdefault(part.parent, []).append(number)
        waiting: list[int | None] = [None]
        while waiting:
            parent = waiting.pop()
            children = inside.get(parent, [])
            wide = [number for number in children if self.parts[number].start < self.parts[number].end]
            points = [number for number in children if self.parts[number].start == self.parts[number].end]
            self._place_words(parent, wide)
            for number in points:
                self._place_point(number, parent, wide)
            waiting.extend(children)
        return self.found

    def _room(self, parent: int | None) -> Stretch:
        """The target units that the children of a mark may have."""
        if parent is None:
            return 0, len(self.theirs)
        return self.units[parent] or (0, 0)

    def _bounds(self, parent: int | None) -> Stretch:
        return (0, self.length) if parent is None else self.found[parent]

    def _place_words(self, parent: int | None, numbers: list[int]) -> None:
        low, high = self._room(parent)
        taken: set[int] = set()
        # Marks that must reach an edge choose first, then the short ones, which have the fewest words to choose from.
        order = sorted(numbers, key=lambda number: (
            not (self.parts[number].open_left or self.parts[number].open_right),
            self.parts[number].end - self.parts[number].start,
        ))  # fmt: skip
        for number in order:
            self.units[number] = stretch = self._best(number, low, high, taken)
            taken.update(range(*stretch) if stretch else ())
        begin, end = self._bounds(parent)
        for number in order:
            part, stretch = self.parts[number], self.units[number]
            if stretch is None:
                continue
            self.units[number] = stretch = self._to_the_edges(part, stretch, (low, high), taken)
            taken.update(range(*stretch))
            left = begin if stretch[0] == low and self._begins(part) else self.theirs[stretch[0]][0]
            right = end if stretch[1] == high and self._ends(part) else self.theirs[stretch[1] - 1][1]
            self.found[number] = left, right
        # One that found no word stands behind all others, but before one that goes on in the next sentence.
        behind = max((self.found[number][1] for number in order if self.units[number]), default=end)
        going_on = [self.found[number][0] for number in order if self.units[number] and self.parts[number].open_right]
        place = going_on[0] if going_on else behind
        for number in order:
            if self.units[number] is None:
                self.found[number] = place, place

    def _to_the_edges(self, part: Part, stretch: Stretch, room: Stretch, taken: set[int]) -> Stretch:
        """A stretch with the single free word that keeps it from an edge its mark reaches in the source."""
        (first, last), (low, high) = stretch, room
        if first == low + 1 and low not in taken and self._begins(part):
            first = low
        if last == high - 1 and last not in taken and self._ends(part):
            last = high
        return first, last

    def _begins(self, part: Part) -> bool:
        return part.open_left or part.start <= self.ours[0][0]

    def _ends(self, part: Part) -> bool:
        return part.open_right or part.end >= self.ours[-1][1]

    def _best(self, number: int, low: int, high: int, taken: set[int]) -> Stretch | None:
        """The units in a row, out of those that are free, that speak most for a mark; None where none is free."""
        part = self.parts[number]
        if (part.open_left and part.open_right) or (self._begins(part) and self._ends(part)):
            return None if taken or low == high else (low, high)
        inside = {i for i, (begin, end) in enumerate(self.ours) if begin < part.end and end > part.start}
        values = [self._value(j, inside) for j in range(low, high)]
        if not any(value > 0 for j, value in enumerate(values, low) if j not in taken):
            ratio = len(self.ours) / len(self.theirs)
            values = [1.0 if int((j + 0.5) * ratio) in inside else -1.0 for j in range(low, high)]
        best, found, total, begin = float("-inf"), None, 0.0, low
        for j, value in enumerate(values, low):
            if j in taken:
                total, begin = 0.0, j + 1
                continue
            if total < 0 and not part.open_left:
                total, begin = 0.0, j
            total += value
            if part.open_left and begin != low:
                break
            if total > best and not part.open_right:
                best, found = total, (begin, j + 1)
        if part.open_right:
            return self._best_end(values, low, high, taken)
        return found

    def _best_end(self, values: list[float], low: int, high: int, taken: set[int]) -> Stretch | None:
        """The last units in a row that speak most for a mark which goes on behind the sentence."""
        best, found, total = float("-inf"), None, 0.0
        for j in range(high - 1, low - 1, -1):
            if j in taken:
                break
            total += values[j - low]
            if total > best:
                best, found = total, (j, high)
        return found

    def _value(self, j: int, inside: set[int]) -> float:
        vote = self.votes[j]
        if vote is None:
            return -SILENT
        return vote[1] if vote[0] in inside else -vote[1]

    def _place_point(self, number: int, parent: int | None, siblings: list[int]) -> None:
        begin, end = self._bounds(parent)
        here = self.parts[number].start
        after = sum(stop <= here for _, stop in self.ours)  # so many units come before it
        if not after:
            place = begin
        elif after == len(self.ours):
            place = end
        else:
            leads = self.source[here - 1].isspace() and not self.source[here].isspace()
            unit = after if leads else after - 1
            voters = [j for j, vote in enumerate(self.votes) if vote is not None and vote[0] == unit]
            guess = min(len(self.theirs) - 1, unit * len(self.theirs) // len(self.ours))
            place = self.theirs[voters[0]][0] if leads and voters else self.theirs[voters[-1] if voters else guess][1]
        place = min(max(place, begin), end)
        for other in siblings:
            first, last = self.found[other]
            if self.parts[other].open_right and place > first:
                place = first
            elif first < place < last or (self.parts[other].open_left and place < last):
                place = last
        self.found[number] = place, place
