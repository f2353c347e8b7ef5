"""Do two sides say the same? The same inputs through both, and a table of what came out.

Shapes: T tokens, V vocabulary.

    scores    at every place of every text, what each side gives every token: the largest difference
    greedy    the text each writes, token for token
    beam      the same with a beam; a translation's score is divided by its length. Another text is as good if our
              model gives it at least the score of ours: two searches may stop at different times
    quality   where it is asked for: BLEU and chrF of these texts
    size      of the weights, in bytes
    speed     target tokens a second with the beam, both in this run

Both sides end a text at the same limit, if it has not ended before. A score that is no number is infinitely far off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from regard.counts import so_many
from regard.errors import DataError
from regard.evaluation.metrics import score
from regard.interop.sides import ROWS, Inputs, Side, Written, settings_for

TOLERANCE = 1e-4  # of scores, in fp32
AGREE = 0.99  # the share of texts that must be the same: two tokens may be equally likely, up to rounding
BEAM = 4
WEIGHTS = (".safetensors", ".bin", ".onnx", ".data", ".spm")


Read = Callable[[Written], str]
"""How what was written reads."""


@dataclass(frozen=True)
class Quality:
    """BLEU and chrF of each side against references; where there are none, of their texts against ours."""

    figures: Mapping[str, Mapping[str, float]]
    """Of each side: its figures by name."""
    references: int

    def to_text(self, ours: str) -> str:
        """A line for the table."""
        told, first = [], self.figures.get(ours, {})
        for side, figures in self.figures.items():
            words = [
                f"{name} {value:.2f}" + (f" ({value - first[name]:+.2f})" if first and side != ours else "")
                for name, value in figures.items()
            ]
            told.append(f"{side} {', '.join(words)}")
        against = so_many(self.references, "reference") if self.references else f"what {ours} wrote"
        return f"  quality   {'; '.join(told)}; against {against}"

    def to_json(self, ours: str) -> dict[str, object]:
        """For programs."""
        against = "references" if self.references else ours
        return {"against": against, **{side: dict(figures) for side, figures in self.figures.items()}}


@dataclass(frozen=True)
class Proof:
    """What came out."""

    ours: str
    theirs: str
    texts: int
    difference: float | None
    """The largest between two scores; None where a side does not tell its scores."""
    places: int
    """At how many places of texts they were compared."""
    same: Mapping[str, tuple[int, int]]
    """For greedy and beam: how many texts are the same, of how many."""
    sizes: tuple[int, int]
    speeds: tuple[float, float]
    tolerance: float = TOLERANCE
    least: float = AGREE
    notes: Sequence[str] = field(default=())
    as_good: Mapping[str, int] = field(default_factory=dict)
    """Of the texts that are not the same, how many our model likes at least as much as ours."""
    quality: Quality | None = None

    @property
    def passed(self) -> bool:
        """Whether scores are within the tolerance and enough texts the same. Scores that are no numbers never are."""
        apart = self.difference
        near = apart is None or (math.isfinite(apart) and apart <= self.tolerance)
        right = [(same + self.as_good.get(name, 0), of) for name, (same, of) in self.same.items()]
        return self.texts > 0 and near and all(count >= self.least * of for count, of in right)

    @property
    def judged(self) -> bool:
        """Whether a difference could have failed it: with fewer bits than fp32, differences are only told."""
        return self.least > 0 or math.isfinite(self.tolerance)

    @property
    def verdict(self) -> str:
        """What it comes to."""
        if not self.passed:
            return "FAILED"
        return "passed" if self.judged else "not judged: fewer bits give other texts; the lines above say how many"

    def to_json(self) -> dict[str, object]:
        """For programs; what is infinite is null."""
        limits = {"difference": self.difference, "tolerance": self.tolerance}
        return {
            "passed": self.passed, "judged": self.judged, "ours": self.ours, "theirs": self.theirs,
            "texts": self.texts, "places": self.places,
            **{name: each if each is not None and math.isfinite(each) else None for name, each in limits.items()},
            "same": {name: {"same": same, "of": of} for name, (same, of) in self.same.items()},
            "as_good": dict(self.as_good),
            "quality": None if self.quality is None else self.quality.to_json(self.ours),
            "bytes": dict(zip((self.ours, self.theirs), self.sizes, strict=True)),
            "tokens_per_second": dict(zip((self.ours, self.theirs), self.speeds, strict=True)),
            "notes": list(self.notes),
        }  # fmt: skip

    def to_text(self) -> str:
        """A table for people."""
        told = "one side does not tell them"
        if self.difference is not None:
            allowed = f", of {self.tolerance:.0e} allowed" if math.isfinite(self.tolerance) else ""
            told = f"differ by at most {self.difference:.1e}{allowed}, at {so_many(self.places, 'place')}"
        lines = [f"{self.ours} and {self.theirs}, asked about {so_many(self.texts, 'text')}", f"  scores    {told}"]
        for name, (same, of) in self.same.items():
            others = self.as_good.get(name, 0)
            lines.append(
                f"  {name:<9} {same:,} of {of:,} the same" + (f", {so_many(others, 'other')} as good" if others else "")
            )
        if self.quality is not None:
            lines.append(self.quality.to_text(self.ours))
        sizes = [
            f"{name} {size / 1e6:,.1f} MB" for name, size in zip((self.ours, self.theirs), self.sizes, strict=True)
        ]
        speeds = [f"{name} {speed:,.0f}" for name, speed in zip((self.ours, self.theirs), self.speeds, strict=True)]
        lines += [f"  size      {', '.join(sizes)}", f"  speed     {', '.join(speeds)} tokens a second, beam {BEAM}"]
        lines += [f"  note      {note}" for note in self.notes]
        return "\n".join([*lines, f"  {self.verdict}"])


def prove(
    ours: Side,
    theirs: Side,
    inputs: Inputs,
    tolerance: float = TOLERANCE,
    least: float = AGREE,
    notes: Sequence[str] = (),
    read: Read | None = None,
) -> Proof:
    """Ask both sides and compare; with `read`, tell how good their texts are, too."""
    with torch.inference_mode():
        mine = ours.write(inputs, 1)
        same = {"greedy": _same(mine, theirs.write(inputs, 1))}
        (mine_best, my_speed), (their_best, their_speed) = _timed(ours, inputs), _timed(theirs, inputs)
        same[f"beam {BEAM}"] = _same(mine_best, their_best)
        as_good = {f"beam {BEAM}": _as_good(ours, inputs, mine_best, their_best)}
        difference, places = _differences(ours, theirs, inputs, mine)
    sizes = (_bytes(ours.folder), _bytes(theirs.folder))
    return Proof(
        ours.name, theirs.name, len(inputs.texts), difference, places, same, sizes, (my_speed, their_speed),
        tolerance, least, notes, as_good, None if read is None else _quality(ours, theirs, inputs, read, mine_best,
                                                                             their_best),
    )  # fmt: skip


def _timed(side: Side, inputs: Inputs) -> tuple[list[Written], float]:
    begin = time.perf_counter()
    found = side.write(inputs, BEAM)
    took = max(time.perf_counter() - begin, 1e-9)
    return found, sum(len(each) + 1 for each in found) / took


def _same(mine: Sequence[Written], others: Sequence[Written]) -> tuple[int, int]:
    return sum(one == other for one, other in zip(mine, others, strict=True)), len(mine)


def _as_good(ours: Side, inputs: Inputs, mine: Sequence[Written], others: Sequence[Written]) -> int:
    """How many of the others' texts are not ours, but score as well under our model, up to rounding."""
    apart = [number for number in range(len(mine)) if mine[number] != others[number]]
    count = 0
    for first in range(0, len(apart), ROWS):
        some = apart[first : first + ROWS]
        scores = [_text_scores(ours, inputs, some, written) for written in (mine, others)]
        count += sum(other >= one - TOLERANCE for one, other in zip(*scores, strict=True))
    return count


def _text_scores(side: Side, inputs: Inputs, numbers: Sequence[int], written: Sequence[Written]) -> list[float]:
    """What whole texts score, their end among them, by the penalty that all search with; nothing if it is not told."""
    asked, start = [inputs.texts[number] for number in numbers], inputs.specials.start
    texts = [[*written[number], inputs.specials.end] for number in numbers]
    before = [[start] for _ in asked] if inputs.translates else asked
    targets = [[*first, *text[:-1]] for first, text in zip(before, texts, strict=True)]
    found = side.scores(asked if inputs.translates else [], targets)
    totals = []
    for scores_TV, text in zip(found or [], texts, strict=bool(found)):
        log_probabilities_TV = scores_TV.float().log_softmax(dim=-1)[-len(text) :]
        total = log_probabilities_TV.gather(1, torch.tensor(text)[:, None]).sum()
        totals.append(float(total / settings_for(inputs, BEAM).divisor(torch.tensor(len(text)))))
    return totals


def _quality(
    ours: Side, theirs: Side, inputs: Inputs, read: Read, mine: Sequence[Written], others: Sequence[Written]
) -> Quality:
    my_texts, their_texts = ([read(text) for text in texts] for texts in (mine, others))
    sides = {ours.name: my_texts, theirs.name: their_texts} if inputs.references else {theirs.name: their_texts}
    right = inputs.references or my_texts
    figures = {
        side: {each.name: each.value for each in score(texts, right) if each.name in ("BLEU", "chrF")}
        for side, texts in sides.items()
    }
    return Quality(figures, len(inputs.references))


def _differences(ours: Side, theirs: Side, inputs: Inputs, written: Sequence[Written]) -> tuple[float | None, int]:
    """Over the texts that greedy search wrote, or for a language model over prompt and text."""
    largest, places, start = 0.0, 0, inputs.specials.start
    for first in range(0, len(inputs.texts), ROWS):
        some = inputs.texts[first : first + ROWS]
        texts = written[first : first + ROWS]
        if inputs.translates:
            sources, targets = some, [[start, *text] for text in texts]
        else:
            sources, targets = [], [[*prompt, *text] for prompt, text in zip(some, texts, strict=True)]
        mine, others = ours.scores(sources, targets), theirs.scores(sources, targets)
        if mine is None or others is None:
            return None, 0
        for one, other in zip(mine, others, strict=True):
            apart = float((one.float() - other.float()).abs().max())
            largest, places = max(largest, apart if math.isfinite(apart) else math.inf), places + len(one)
    return largest, places


def _bytes(folder: Path | None) -> int:
    if folder is None:
        return 0
    files = folder.iterdir() if folder.is_dir() else [folder]
    return sum(file.stat().st_size for file in files if file.suffix in (*WEIGHTS, ".pt") or ".data-" in file.name)


def must_pass(proof: Proof, place: Path) -> None:
    """Raise for a proof that failed; what was written stays, to be looked at."""
    if not proof.passed:
        raise DataError(
            f"{place}: both sides must say the same, but do not; see the table. The folder was left as it is, to look "
            "at; do not use it."
        )
