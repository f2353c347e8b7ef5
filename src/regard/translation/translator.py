"""Texts in, translations out, whatever their lengths and their company.

Texts of similar length are searched together, and what is too long is cut at sentence ends (`regard.text.sentences`),
translated piece by piece and joined. Each text's answer is the same in any company.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import torch

from regard.batch import Tokens
from regard.decoding.constraints import Constraints
from regard.decoding.ensemble import Ensemble, Sources, select_rows
from regard.decoding.fast import OwnSearch
from regard.decoding.fast import search as find
from regard.decoding.search import Hypothesis, NothingFoundError, SearchSettings
from regard.errors import UsageError
from regard.memory import ADVICE, Halves
from regard.models.interface import SequenceModel
from regard.settings.bounds import check_at_least
from regard.text.tokenizer import Tokenizer
from regard.translation.alignment import TokenLink, align
from regard.translation.flags import is_copy, is_loop
from regard.translation.result import Translation, joined
from regard.translation.risk import least_risk
from regard.translation.units import Unit, batches, cut
from regard.translation.unknown import Copying
from regard.translation.wishes import Wishes

LONGEST = 512  # tokens of a text that is translated as one; training drops what has more than 250 words
# With somebody watching on a CPU: as fast there, and twice as often there is something to tell. Four of the longest
# pieces with four beams; with two of them a long text took a fifth longer.
SLOTS_WATCHED = 8_400

FEW = 3  # tokens, the end among them, that may say nothing; to look at what more of them say would take time

Progress = Callable[[int, int], None]
"""Called with the texts and the target tokens that are done since the last call."""


class TextError(UsageError):
    """A text of which `what` cannot be done as asked; `place` is its number among the texts, from 0, `reason` why."""

    def __init__(self, place: int, reason: str, what: str = "translate") -> None:
        super().__init__(f"{what}: text {place + 1}: {reason}")
        self.place, self.reason = place, reason


@dataclass(frozen=True)
class Options:
    """How to translate, beside how to search."""

    longest: int | None = None
    """A text of more tokens is cut at sentence ends, as is one of more than the model can read; 512 unless given."""
    language: str | None = None
    """What to translate into, for a model that knows several languages."""
    alignment: bool = False
    """Say for the best translation of each text which of its tokens looked at which of the source."""
    wishes: Wishes | None = None
    samples: int = 0
    """Draw so many translations and take the one most like the others, instead of searching; 0 searches."""
    copy_unknown: bool = False
    """Of a model of whole words: where it wrote <unk>, put the word of the source that it looked at most."""

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 2:
            raise ValueError(f"`longest` must be at least 2 tokens, but is {self.longest}")
        check_at_least(0, self, "samples")
        if self.samples and self.wishes is not None:
            raise ValueError("`wishes` must be left out with `samples`: what is drawn cannot be told what to hold")


class Translator:
    """A network and its vocabulary.

    `limit` is the longest sequence the network can read, None if there is none. An ensemble has `readers`: one
    tokenizer a member, to cut the sources.
    """

    def __init__(
        self,
        network: SequenceModel[Any],
        tokenizer: Tokenizer,
        limit: int | None = None,
        readers: Sequence[Tokenizer] = (),
    ) -> None:
        self.network, self.tokenizer, self.limit, self.readers = network, tokenizer, limit, tuple(readers)
        self._halves = Halves()

    def translations(
        self,
        texts: Sequence[str],
        search: SearchSettings,
        options: Options | None = None,
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """The `search.nbest` best translations of each text, best first; an empty text has one, which is empty.

        No two of them read alike, so there are fewer where the beam holds no more. The translation of a text that was
        cut has the sum of its pieces' scores, or with `samples` their mean; its first piece has the wished prefix.
        """
        steps = self.translating(texts, search, options, progress)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast(list[list[Translation]], end.value)

    def translating(
        self,
        texts: Sequence[str],
        search: SearchSettings,
        options: Options | None = None,
        progress: Progress | None = None,
        slots: int | None = None,
    ) -> Generator[None, None, list[list[Translation]]]:
        """The same a batch at a time, of so many beams × source tokens, for whoever has other things to do between."""
        options = options or Options()
        if options.samples:
            _check_drawing(search, options.samples)
        units = self.units(texts, search, options)
        copying = Copying(self.network, self.tokenizer) if options.copy_unknown else None
        if options.wishes is not None:
            self._check_wishes(units, search, options.wishes)
        left = Counter(unit.place for unit in units)
        if progress is not None:
            progress(len(texts) - len(left), 0)  # empty texts
        answers: list[list[Translation]] = [[] for _ in units]
        if slots is None and progress is not None and self._on_cpu:
            slots = SLOTS_WATCHED
        turns = batches([len(unit.ids) for unit in units], options.samples or search.beam, slots)
        for batch in turns:
            if batch is not turns[0]:
                yield
            found = self._halves.each(
                [units[number] for number in batch],
                lambda some: self._search(some, search, options, copying),
                lambda unit: _no_room(unit, search, options),
            )
            for number, translations in zip(batch, found, strict=True):
                answers[number] = translations
            if progress is not None:
                left.subtract(units[number].place for number in batch)
                done = {units[number].place for number in batch}
                tokens = sum(len(translations[0].tokens) for translations in found)
                progress(sum(not left[place] for place in done), tokens)
        results: list[list[Translation]] = [[Translation("", 0.0, 0.0, cut=False)] for _ in texts]
        for place, some in groupby(zip(units, answers, strict=True), key=lambda each: each[0].place):
            parts, of_parts = zip(*some, strict=True)
            share = len(parts) if options.samples else 1
            results[place] = of_parts[0] if len(parts) == 1 else joined([part.text for part in parts], of_parts, share)
        return results

    @property
    def _on_cpu(self) -> bool:
        own = isinstance(self.network, OwnSearch)  # which shares the work out itself
        return not own and next(self.network.parameters()).device.type == "cpu"

    def units(self, texts: Sequence[str], search: SearchSettings, options: Options) -> list[Unit]:
        """What is to be searched, in the order of the texts; empty texts have nothing."""
        longest = self._room(search, options.longest or LONGEST)
        # Who knows how a translation begins, or what it holds, does not say in which of its sentences.
        whole = options.wishes is not None and bool(options.wishes.prefix or options.wishes.required)
        return cut(
            self.tokenizer.source.readable(texts),
            lambda some: self.encode(some, options.language),
            longest,
            begin=search.too_long == "begin",
            each_sentence=search.each_sentence and not whole,
        )

    def _room(self, search: SearchSettings, longest: int) -> int:
        """The most tokens of a source, the end among them, that leave the target, which may get `extra_length` longer,
        its room in the model."""
        if self.limit is None:
            return longest + 1
        # A model with little room shares it equally.
        return max(1, min(longest + 1, max(self.limit // 2, self.limit - search.extra_length - 1)))

    def encode(self, texts: Sequence[str], language: str | None = None) -> list[list[int]]:
        """The source tokens of each text, with the end token."""
        read = self.tokenizer.encode_sources(self.tokenizer.source.readable(texts), language)
        return [[*ids, self.tokenizer.specials.end] for ids in read]

    def _search(
        self, units: Sequence[Unit], search: SearchSettings, options: Options, copying: Copying | None
    ) -> list[list[Translation]]:
        """The translations of units that share a batch."""
        sources = [unit.ids for unit in units]
        tokens = self.read([unit.text.strip() for unit in units], sources, options.language)
        if options.samples:
            found = least_risk(self.network, tokens, self.tokenizer, search, options.samples)
        else:
            constraints = None if options.wishes is None else self._constraints(units, options.wishes)
            try:
                found = self._find(tokens, search, constraints)
            except NothingFoundError as error:
                unit = units[error.row]
                raise TextError(
                    unit.place,
                    f"some translation of {unit.text[:40]!r} must keep to all that is asked for, but none does. Ask "
                    "for less: `wishes`, `no_repeat`, `min_length`.",
                ) from error
        links: Sequence[tuple[TokenLink, ...]] = [()] * len(units)
        if options.alignment:
            first = self.network.members[0] if isinstance(self.network, Ensemble) else self.network
            links = align(first, sources, [best.tokens for best, *_ in found], self.tokenizer.specials)
        texts = self._texts(units, found, copying)
        return [
            [
                self._translation(unit, hypothesis, text, best if not rank else ())
                for rank, (hypothesis, text) in enumerate(zip(hypotheses, of_unit, strict=True))
            ]
            for unit, hypotheses, of_unit, best in zip(units, found, texts, links, strict=True)
        ]

    def _texts(
        self, units: Sequence[Unit], found: Sequence[Sequence[Hypothesis]], copying: Copying | None
    ) -> list[list[str]]:
        """What each unit's hypotheses say."""
        if copying is None:
            return [[self.tokenizer.decode(each.tokens) for each in hypotheses] for hypotheses in found]
        everyone = [(unit, each.tokens) for unit, hypotheses in zip(units, found, strict=True) for each in hypotheses]
        sources, read = [unit.text.strip() for unit, _ in everyone], [unit.ids for unit, _ in everyone]
        texts = iter(copying.texts(sources, read, [tokens for _, tokens in everyone]))
        return [[next(texts) for _ in hypotheses] for hypotheses in found]

    def _find(
        self, tokens: Tokens, search: SearchSettings, constraints: list[Constraints] | None
    ) -> list[list[Hypothesis]]:
        """What search finds for each row, each text once, however it is cut into tokens.

        Where one came twice, or the best is empty, all that ended in the beam is asked for, and the next best takes the
        place.
        """
        specials = self.tokenizer.specials
        found = find(self.network, tokens, specials, search, constraints)
        once = [self._each_once(some, search.nbest) for some in found]
        again = [row for row, (some, each) in enumerate(zip(found, once, strict=True))
                 if len(each) < len(some) or self._is_empty(each[0])]  # fmt: skip
        if again and search.nbest < search.beam:
            rows = select_rows(tokens, torch.tensor(again, device=tokens.ids_BT.device))
            asked = None if constraints is None else [constraints[row] for row in again]
            more = find(self.network, rows, specials, replace(search, nbest=search.beam), asked)
            for row, others in zip(again, more, strict=True):
                # What was found comes first: groups of beams take turns, and all of them together do not.
                once[row] = self._each_once([*found[row], *others], search.nbest)
        return once

    def _each_once(self, hypotheses: Sequence[Hypothesis], most: int) -> list[Hypothesis]:
        """The first of these that read differently, each with the best score it has, best first; an empty one last."""
        if len(hypotheses) == 1:
            return [*hypotheses]
        kept: dict[str, Hypothesis] = {}
        for each in hypotheses:
            text = self._says(each)
            kept[text] = max(kept.get(text, each), each, key=lambda one: one.score)
        first = sorted(kept.items(), key=lambda one: not one[0])[:most]
        return [each for _, each in sorted(first, key=lambda one: (not one[0], -one[1].score))]

    def _is_empty(self, hypothesis: Hypothesis) -> bool:
        return len(hypothesis.tokens) <= FEW and not self._says(hypothesis)

    def _says(self, hypothesis: Hypothesis) -> str:
        return self.tokenizer.decode(hypothesis.tokens).strip()

    def read(self, texts: Sequence[str], ids: Sequence[Sequence[int]], language: str | None = None) -> Tokens:
        """Texts and what `encode` made of them as one batch; the members of an ensemble may cut them differently."""
        specials = self.tokenizer.specials
        device = next(self.network.parameters()).device
        if not self.readers:
            return Tokens.padded(ids, specials.padding).to(device)
        texts = self.tokenizer.source.readable(texts)
        cut = [[[*some, specials.end] for some in reader.encode_sources(texts, language)] for reader in self.readers]
        return Sources.of([Tokens.padded(some, specials.padding).to(device) for some in cut])

    def _constraints(self, units: Sequence[Unit], wishes: Wishes) -> list[Constraints]:
        """What each unit has to keep to: only the first piece of a text has its beginning."""
        first = wishes.constraints(self.tokenizer)
        return [first if unit.number == 0 else replace(first, prefix=()) for unit in units]

    def _check_wishes(self, units: Sequence[Unit], search: SearchSettings, wishes: Wishes) -> None:
        """Raise for the first text whose translation cannot hold what is wished for; before any of them is searched."""
        for unit, asked in zip(units, self._constraints(units, wishes), strict=True):
            if asked.wanted and unit.pieces > 1:
                raise TextError(
                    unit.place,
                    f"a text with required words must be short enough to be translated as one, but has to be split, "
                    f"after {unit.text[-40:]!r}. Split it into lines, and require words where they belong.",
                )
            limit = max(len(unit.ids), len(asked.prefix)) + search.extra_length
            if self.network.context is not None:
                limit = min(limit, self.network.context - 1)
            if asked.needed > limit:
                raise TextError(
                    unit.place,
                    f"the wished beginning and words must fit into {limit} tokens, but have {asked.needed}. Raise "
                    "`extra_length`, or ask for less.",
                )

    def _translation(self, unit: Unit, found: Hypothesis, text: str, links: tuple[TokenLink, ...]) -> Translation:
        tokenizer, source = self.tokenizer, unit.ids[:-1]
        odd = {
            "cut": found.cut,
            "loop": is_loop(source, found.tokens),
            "copy": is_copy(unit.text, text),
            "empty": not text.strip(),
            "begin": unit.begins,
            "unknown": tokenizer.source.unknown in source or tokenizer.unknown in found.tokens,
        }
        return Translation(
            text,
            found.score,
            found.log_probability,
            found.cut,
            tokenizer.labels(found.tokens),
            tokenizer.source.labels(source),
            links,
            tuple(flag for flag, holds in odd.items() if holds),
        )


def _no_room(unit: Unit, search: SearchSettings, options: Options) -> TextError:
    """What to say of a text that the device has no memory for."""
    what, fewer = ("samples", options.samples) if options.samples else ("beam", search.beam)
    return TextError(
        unit.place,
        f"its search must fit into the memory of the device, but does not, even alone ({len(unit.ids):,} tokens, "
        f"`{what}` {fewer}). Lower `{what}` or `longest`. {ADVICE}",
    )


def _check_drawing(search: SearchSettings, samples: int) -> None:
    """Raise for settings of search that drawing cannot keep to."""
    if search.nbest > samples:
        raise UsageError(f"translate: `nbest` must be at most `samples` ({samples}), but is {search.nbest}.")
    plain = SearchSettings()
    for name in ("coverage", "min_length", "no_repeat", "groups"):
        if getattr(search, name) != getattr(plain, name):
            raise UsageError(
                f"translate: `{name}` must be left out with `samples`, but is {getattr(search, name)}: translations "
                "are drawn, not searched for."
            )
