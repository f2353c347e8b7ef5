"""Do two sides say the same? The same inputs through both, and a table of what came out.

Shapes: T tokens, V vocabulary.

    scores    at every place of every text, what each side gives every token: the largest difference
    greedy    the text each writes, token for token
    beam      the same with a beam; a translation's score is divided by its length
    size      of the weights, in bytes
    speed     target tokens a second with the beam, both in this run

Both sides end a text at the same limit, if it has not ended before. A score that is no number is infinitely far off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.batch import Batch, Specials, Tokens
from regard.data.corpus import open_corpus
from regard.decoding.constraints import Constraints
from regard.decoding.fast import search as find
from regard.decoding.search import SearchSettings
from regard.errors import DataError, RegardError
from regard.folder import Loaded
from regard.models.interface import SequenceModel
from regard.verification import random_texts

TOLERANCE = 1e-4  # of scores, in fp32
AGREE = 0.99  # the share of texts that must be the same: two tokens may be equally likely, up to rounding
BEAM, ROWS, EXTRA, PROMPT = 4, 16, 30, 8
WEIGHTS = (".safetensors", ".bin", ".onnx", ".data", ".spm")


@dataclass(frozen=True)
class Inputs:
    """What both sides are asked: sources with their end, or prompts that begin with the start."""

    texts: Sequence[Sequence[int]]
    translates: bool
    specials: Specials


Written = tuple[int, ...]
"""What a side wrote for one text, without start and end."""


class Side(Protocol):
    """Somebody who can be asked."""

    @property
    def name(self) -> str:
        """As the table calls it."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where its weights are."""
        ...

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores, [T, V]; None if it does not tell."""
        ...

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        ...


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

    @property
    def passed(self) -> bool:
        """Whether scores are within the tolerance and enough texts the same. Scores that are no numbers never are."""
        apart = self.difference
        near = apart is None or (math.isfinite(apart) and apart <= self.tolerance)
        return self.texts > 0 and near and all(same >= self.least * of for same, of in self.same.values())

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
            "bytes": dict(zip((self.ours, self.theirs), self.sizes, strict=True)),
            "tokens_per_second": dict(zip((self.ours, self.theirs), self.speeds, strict=True)),
            "notes": list(self.notes),
        }  # fmt: skip

    def to_text(self) -> str:
        """A table for people."""
        told = "one side does not tell them"
        if self.difference is not None:
            allowed = f", of {self.tolerance:.0e} allowed" if math.isfinite(self.tolerance) else ""
            told = f"differ by at most {self.difference:.1e}{allowed}, at {self.places:,} places"
        lines = [f"{self.ours} and {self.theirs}, asked about {self.texts:,} texts", f"  scores    {told}"]
        for name, (same, of) in self.same.items():
            lines.append(f"  {name:<9} {same:,} of {of:,} the same")
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
) -> Proof:
    """Ask both sides and compare."""
    with torch.inference_mode():
        mine = ours.write(inputs, 1)
        same = {"greedy": _same(mine, theirs.write(inputs, 1))}
        (mine_best, my_speed), (their_best, their_speed) = _timed(ours, inputs), _timed(theirs, inputs)
        same[f"beam {BEAM}"] = _same(mine_best, their_best)
        difference, places = _differences(ours, theirs, inputs, mine)
    sizes = (_bytes(ours.folder), _bytes(theirs.folder))
    return Proof(
        ours.name, theirs.name, len(inputs.texts), difference, places, same, sizes, (my_speed, their_speed),
        tolerance, least, notes,
    )  # fmt: skip


def _timed(side: Side, inputs: Inputs) -> tuple[list[Written], float]:
    begin = time.perf_counter()
    found = side.write(inputs, BEAM)
    took = max(time.perf_counter() - begin, 1e-9)
    return found, sum(len(each) + 1 for each in found) / took


def _same(mine: Sequence[Written], others: Sequence[Written]) -> tuple[int, int]:
    return sum(one == other for one, other in zip(mine, others, strict=True)), len(mine)


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


# ---- the sides


@dataclass(frozen=True)
class ModelSide:
    """A model behind our interface, whichever engine runs it."""

    name: str
    model: SequenceModel[Any]
    folder: Path | None = None

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores."""
        target = Tokens.padded(targets, 0)
        source = Tokens.padded(sources, 0) if self.model.reads_source else None
        scores_BTV = self.model(Batch(source, target, target.ids_BT))
        return [scores_TV[: len(text)] for scores_TV, text in zip(scores_BTV, targets, strict=True)]

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        # Of a text that goes on from a prompt, ours counts the prompt, too: without a penalty that makes no difference.
        settings = SearchSettings(beam=beam, penalty="length" if inputs.translates else "none", extra_length=EXTRA)
        found: list[Written] = []
        for first in range(0, len(inputs.texts), ROWS):
            some = inputs.texts[first : first + ROWS]
            source, constraints = None, None
            if inputs.translates:
                source = Tokens.padded(some, inputs.specials.padding)
            else:
                constraints = [Constraints(prefix=tuple(prompt[1:])) for prompt in some]
            answers = find(self.model, source, inputs.specials, settings, constraints)
            for prompt, (best, *_) in zip(some, answers, strict=True):
                skipped = 0 if inputs.translates else len(prompt) - 1
                found.append(best.tokens[skipped:])
        return found


class TransformersSide:
    """A folder in transformers, loaded as anybody would load it."""

    def __init__(self, folder: Path, translates: bool) -> None:
        import transformers

        self.name, self.folder = "transformers", folder
        kind: Any = transformers.AutoModelForSeq2SeqLM if translates else transformers.AutoModelForCausalLM
        self.model: Any = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        self.translates = translates

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores."""
        target = Tokens.padded(targets, 0)
        real = target.places.segments_or_ones()
        if self.translates:
            source = Tokens.padded(sources, 0)
            found = self.model(input_ids=source.ids_BT, attention_mask=source.places.segments_or_ones(),
                               decoder_input_ids=target.ids_BT)  # fmt: skip
        else:
            found = self.model(input_ids=target.ids_BT, attention_mask=real)
        return [scores_TV[: len(text)] for scores_TV, text in zip(found.logits, targets, strict=True)]

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        found: dict[int, Written] = {}
        for numbers in self._groups(inputs):
            some = Tokens.padded([inputs.texts[number] for number in numbers], inputs.specials.padding)
            before = 1 if inputs.translates else some.ids_BT.shape[1]
            # A source may get so many tokens longer, its end counted; a prompt goes on for so many.
            limits = [EXTRA + (len(inputs.texts[number]) if inputs.translates else 0) for number in numbers]
            texts = self._generate(some, inputs, beam, before, limits)
            for number, text in zip(numbers, texts.tolist(), strict=True):
                ended = [place for place in range(before, len(text)) if text[place] == inputs.specials.end]
                found[number] = tuple(text[before : ended[0] if ended else None])
        return [found[number] for number in range(len(inputs.texts))]

    def _groups(self, inputs: Inputs) -> list[list[int]]:
        """Texts that share a batch; prompts only with others of their length, so that none is padded."""
        if inputs.translates:
            everything = list(range(len(inputs.texts)))
            return [everything[first : first + ROWS] for first in range(0, len(everything), ROWS)]
        groups: dict[int, list[int]] = {}
        for number, text in enumerate(inputs.texts):
            groups.setdefault(len(text), []).append(number)
        return list(groups.values())

    def _generate(self, some: Tokens, inputs: Inputs, beam: int, before: int, limits: Sequence[int]) -> Tensor:
        specials = inputs.specials
        penalty = SearchSettings().alpha if inputs.translates else 0.0
        options: dict[str, Any] = {"length_penalty": penalty, "early_stopping": "never"} if beam > 1 else {}
        never = sorted({specials.padding, specials.start} - {specials.end})
        if inputs.translates:
            options["decoder_start_token_id"] = specials.start
        # What the folder says of its own accord must not come between.
        config = self.model.generation_config
        config.forced_eos_token_id = config.bad_words_ids = config.max_length = None

        def end_at_limit(ids_RT: Tensor, scores_RV: Tensor) -> Tensor:
            """As ours: at its limit a text can only end, with the score that has."""
            at_R = torch.tensor(limits).repeat_interleave(len(ids_RT) // len(limits)) <= ids_RT.shape[1] - before
            others_V = torch.arange(scores_RV.shape[1]) != specials.end
            return scores_RV.masked_fill(at_R[:, None] & others_V, -torch.inf)

        texts: Tensor = self.model.generate(
            input_ids=some.ids_BT, attention_mask=some.places.segments_or_ones(), num_beams=beam, do_sample=False,
            max_new_tokens=max(limits) + 1, suppress_tokens=never or None, eos_token_id=specials.end,
            pad_token_id=specials.padding, logits_processor=[end_at_limit], **options,
        )  # fmt: skip
        return texts


# ---- what is asked


def inputs_for(loaded: Loaded, texts: Sequence[str] | None, count: int) -> Inputs:
    """`count` real inputs: of these texts, or of the model's own corpus, or random tokens where neither is there."""
    tokenizer, specials = loaded.tokenizer, loaded.tokenizer.specials
    translates = loaded.model.reads_source
    reader = tokenizer.source if translates else tokenizer
    found = _own_texts(loaded, count) if texts is None else list(texts)
    room = None if loaded.model.context is None else loaded.model.context - EXTRA - 2
    encoded = [ids for ids in reader.encode_all([text for text in found if text.strip()][:count]) if ids]
    if not encoded:
        encoded = random_texts(reader.size, specials, count, room, loaded.recipe.seed)
    if translates:
        tag = sorted(reader.languages.values())[:1]
        return Inputs([[*tag, *ids[:room], specials.end] for ids in encoded], True, specials)
    return Inputs([[specials.start, *ids[:PROMPT]] for ids in encoded], False, specials)


def _own_texts(loaded: Loaded, count: int) -> list[str]:
    try:
        corpus = open_corpus(loaded.recipe.data)
        pairs = corpus.test() or corpus.valid()
    except (RegardError, OSError):
        return []
    return [pair.source if loaded.model.reads_source else pair.target for pair in pairs[:count]]


def must_pass(proof: Proof, place: Path) -> None:
    """Raise for a proof that failed; what was written stays, to be looked at."""
    if not proof.passed:
        raise DataError(
            f"{place}: both sides must say the same, but do not; see the table. The folder was left as it is, to look "
            "at; do not use it."
        )
