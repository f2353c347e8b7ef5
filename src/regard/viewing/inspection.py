"""All that can be known of a model before it is trained: its wiring, its matrices, and what it costs."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from regard.counts import so_many
from regard.models.build import AnyModel
from regard.models.labelling import LabelModel
from regard.training.optim import OptimiserSettings, state_bytes
from regard.viewing.costs import Flops, Memory, count, usual_length
from regard.viewing.parameters import Anatomy, Matrix
from regard.viewing.wiring import draw

MOMENTS = {"adam": "Adam's", "adamw": "Adam's", "muon": "Muon's and Adam's"}


@dataclass(frozen=True)
class Inspection(Anatomy):
    """A model's matrices, what it costs, and a drawing of its wiring."""

    labels: int
    """0 where it gives none."""
    flops: Flops
    memory: Memory
    optimiser: str
    """Its kind, which decides how large the moments are."""
    wiring: str
    """Empty where it gives labels."""

    def to_json(self) -> dict[str, object]:
        """Everything but the drawing as plain values; memory is in bytes."""
        values = asdict(self)
        del values["wiring"]
        return values

    def to_text(self) -> str:
        """A page for a terminal."""
        labels = f"{so_many(self.labels, 'label')}, " if self.labels else ""
        title = f"{self.name}: {self.kind}, {self.vocabulary:,} tokens, {labels}{self.parameters:,} parameters"
        parts = [title + _assumed(self), self.wiring, matrix_table(self), _flops(self.flops)]
        parts.append(_memory(self.memory, MOMENTS.get(self.optimiser, "")))
        return "\n\n".join(part for part in parts if part)


def look(
    model: AnyModel, parts: Anatomy, length: int | None, tokens: int, beams: int, optimiser: OptimiserSettings
) -> Inspection:
    """Add to a model's `parts` what else can be known; it must be on the meta device.

    Costs are those of rows of `length` tokens (None: a usual length), of training on batches of `tokens` tokens by an
    optimiser, and of search with `beams` beams.
    """
    flops, memory = count(model, length or usual_length(model), tokens, beams, state_bytes(model, optimiser))
    labels, wiring = (model.labels, "") if isinstance(model, LabelModel) else (0, draw(model))
    return Inspection(**vars(parts), labels=labels, flops=flops, memory=memory, optimiser=optimiser.kind, wiring=wiring)


def _assumed(parts: Anatomy) -> str:
    """Below the title, what a count rests on that nobody knows yet."""
    if not parts.vocabulary_is_limit:
        return ""
    return (
        f"\nif the text has {parts.vocabulary:,} tokens, as many as tokenizer.vocabulary allows. They are its "
        "characters, mostly fewer:\n--vocabulary 70 counts with 70."
    )


def matrix_table(anatomy: Anatomy) -> str:
    """Matrices with their sizes; those that all layers of a stack have share a row, in which * is the layer."""
    groups: dict[tuple[str, tuple[int, ...]], list[Matrix]] = {}
    for matrix in anatomy.matrices:
        groups.setdefault((re.sub(r"\.\d+\.", ".*.", matrix.name), matrix.shape), []).append(matrix)
    rows = [("matrix", "shape", "how many", "parameters")]
    for (name, shape), matrices in groups.items():
        size = sum(matrix.parameters for matrix in matrices)
        rows.append((name, " × ".join(map(str, shape)), str(len(matrices)), f"{size:,}"))
    rows.append(("total", "", str(len(anatomy.matrices)), f"{anatomy.parameters:,}"))
    # As wide as it needs to be: names cut off to fit a narrow window would be no names.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([f"{name:<{widths[0]}}", *cells]))
    return "\n".join(lines)


def _flops(flops: Flops) -> str:
    if not flops.decoding_token:
        return (
            f"arithmetic, with {so_many(flops.target_length, 'token')} (--length)\n"
            f"  training  {_short(flops.training_token)}FLOP a token, forward and backward\n"
            f"  reading   {_short(flops.decoding_source)}FLOP a text"
        )
    source = "" if flops.source_length is None else f"{flops.source_length} source and "
    reading = (
        "" if flops.source_length is None else f"{_short(flops.decoding_source)}FLOP to read the source once, then "
    )
    return (
        f"arithmetic, with {source}{so_many(flops.target_length, 'target token')} (--length)\n"
        f"  training  {_short(flops.training_token)}FLOP a target token, forward and backward\n"
        f"  decoding  {reading}{_short(flops.decoding_token)}FLOP to write token {flops.target_length}"
    )


def _memory(memory: Memory, whose: str) -> str:
    weights = f"weights {_short(memory.weights)}B"
    moments = f"{whose} moments {_short(memory.moments)}B" if memory.moments else "no moments"
    decoding = (
        f"\n  decoding  {_short(memory.decoding)}B with {so_many(memory.beams, 'beam')}: {weights}, "
        f"cache {_short(memory.cache)}B a beam"
    )
    return (
        "memory in float32, with the same lengths\n"
        f"  training  {_short(memory.training)}B at most, for a batch of {so_many(memory.rows, 'row')}: {weights}, "
        f"{moments},\n"
        f"            activations {_short(memory.activations)}B, then on the way back the gradients of all of them"
        + (decoding if memory.beams else "")
    )


def _short(value: int) -> str:
    """Three digits and a prefix: 82542592 → '82.5 M'."""
    amount, prefixes = float(value), ["", "k", "M", "G", "T", "P"]
    while amount >= 999.5 and len(prefixes) > 1:
        amount, prefixes = amount / 1000, prefixes[1:]
    digits = 0 if amount >= 99.95 or float(value) < 1000 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {prefixes[0]}"
