"""What a model can do while it learns: its likelihood, its scores, and some texts of its own, on examples held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.batch import Batch, Tokens
from regard.counts import so_many
from regard.data.batching import Batches
from regard.data.dataset import Dataset
from regard.decoding.sampling import SamplingSettings, sample
from regard.decoding.search import SearchSettings, beam_search
from regard.evaluation.labels import counted, tallies
from regard.evaluation.metrics import Lines, Score, bleu
from regard.filling import GAP, Filler
from regard.labelling import Labeller
from regard.memory import Halves, NoRoomError
from regard.models.bert import Bert
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.recipe import Recipe
from regard.training.log import Sample
from regard.training.trainer import Trainer
from regard.training.validation import RESUME, Validation

SAMPLES = 3
LABELLED = 5_000  # texts that are labelled, for accuracy and F1
GREEDY = SearchSettings(beam=1)
ROWS = 64  # that are translated at once
CONTINUED = SamplingSettings(temperature=0.8, top_k=40, max_tokens=30)  # how a language model shows what it can
PROMPT = 8


@dataclass(frozen=True)
class Examination:
    """What a model could do at one step. In a team the leader alone has scores and samples."""

    step: int
    validation: Validation
    label_scores: tuple[Score, ...]
    """Accuracy and F1, of a model that gives labels."""
    bleu: Score | None
    """If the recipe asks for it."""
    samples: tuple[Sample, ...]
    gives_labels: bool
    """Instead of text."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """Those beside the likelihood."""
        return (*self.label_scores, *([] if self.bleu is None else [self.bleu]))

    @property
    def likelihood(self) -> str:
        """The likelihood in words: a perplexity, or a loss where there are labels."""
        return f"{'loss' if self.gives_labels else 'perplexity'} {self.likelihood_alone}"

    @property
    def likelihood_alone(self) -> str:
        """The same without its name."""
        return f"{self.validation.nll:.4f}" if self.gives_labels else f"{self.validation.perplexity:.3f}"

    def to_json(self) -> dict[str, object]:
        """For `metrics.jsonl`."""
        values: dict[str, object] = {
            "step": self.step, "nll": self.validation.nll, "perplexity": self.validation.perplexity,
            "perplexity_per_byte": self.validation.perplexity_per_byte,
        }  # fmt: skip
        values |= {score.name.replace(" ", "_"): score.value for score in self.label_scores}
        return values if self.bleu is None else {**values, "bleu": self.bleu.value}

    def __str__(self) -> str:
        each = "a label" if self.gives_labels else "per token"
        scores = "".join(f", {score.name} {score.value:.2f}" for score in self.scores)
        return f"step {self.step:,}: validation {self.likelihood} {each}{scores}"


class Examiner:
    """Examines the model of a trainer, always on the same examples."""

    def __init__(self, recipe: Recipe, data: Dataset, trainer: Trainer) -> None:
        self.recipe, self.data, self.trainer = recipe, data, trainer
        self._halves = Halves()

    def examine(self) -> Examination:
        """The model as it is now; all members of a team must ask."""
        # Of what is hidden only a part is to be said: nobody knows how many bytes that is.
        size = self.data.valid_bytes if self.trainer.batches.lesson is None else 0
        validation = self.trainer.validate(self._batches(), size)
        label_scores = self._label_scores()
        samples = self._samples(max(SAMPLES, self._bleu_lines))
        return Examination(
            self.trainer.step, validation, tuple(label_scores), self._bleu(samples), tuple(samples[:SAMPLES]),
            gives_labels=self.data.valid.labels is not None,
        )  # fmt: skip

    def _batches(self) -> Iterator[Batch]:
        lesson = self.trainer.batches.lesson
        batches = Batches(self.data.valid, self.data.tokenizer.specials, self.recipe.batch, self.recipe.seed, lesson)
        return (batches[place] for place in range(batches.per_epoch))

    def _label_scores(self) -> list[Score]:
        # Evenly from all of them: a corpus may have them sorted by their labels.
        pairs = self.data.valid_pairs[:: -(-len(self.data.valid_pairs) // LABELLED)]
        with self.trainer.reading() as model:
            if not self.trainer.team.leads or not isinstance(model, LabelModel):
                return []
            labeller = Labeller(model, self.data.tokenizer)
            if model.task == "classify":
                found = [[choice.label] for choice in labeller.classify([pair.source for pair in pairs])]
                right = [[pair.target] for pair in pairs]
            else:
                found = [list(text.tags) for text in labeller.tag([pair.source for pair in pairs])]
                right = [pair.target.split() for pair in pairs]
        _, each_LC = counted(right, found, labeller.labels)
        return [tally.score() for tally in tallies(each_LC)[:2]]

    @property
    def _bleu_lines(self) -> int:
        return self.recipe.training.bleu_lines if self.data.valid.source is not None else 0

    def _bleu(self, samples: Sequence[Sample]) -> Score | None:
        judged = samples[: self._bleu_lines]
        if not judged:
            return None
        lines = Lines([each.translation for each in judged], [[each.reference or "" for each in judged]])
        return replace(bleu(lines).score(), name=f"BLEU (greedy, {so_many(len(lines), 'line')})")

    def _samples(self, count: int) -> list[Sample]:
        """What the model makes of the first examples: their translation, or how their text goes on."""
        tokenizer, specials = self.data.tokenizer, self.data.tokenizer.specials
        pairs = self.data.valid_pairs[:count]
        with self.trainer.reading() as model:
            if self.trainer.team.leads and isinstance(model, Bert):
                return [self._filled(model, number) for number in range(min(SAMPLES, len(pairs)))]
            if not self.trainer.team.leads or not isinstance(model, SequenceModel):
                return []
            if self.data.valid.source is None:
                prompts = [self.data.valid.target[number][:PROMPT] for number in range(min(SAMPLES, len(pairs)))]
                drawn = self._halves.each(
                    range(len(prompts)),
                    lambda some: sample(model, [prompts[number] for number in some], specials, CONTINUED, some),
                    lambda number: self._no_room(number, prompts[number]),
                )
                return [
                    Sample(tokenizer.decode(prompt), None, tokenizer.decode(found.tokens))
                    for prompt, found in zip(prompts, drawn, strict=True)
                ]
            texts = self._translate(model, [self.data.valid.source[number] for number in range(len(pairs))])
        return [Sample(pair.source, pair.target, text) for pair, text in zip(pairs, texts, strict=True)]

    def _filled(self, model: Bert, number: int) -> Sample:
        """The beginning of an example with a gap in its middle, and what the model puts there."""
        # Rows may be shorter than lines are, and positions learned for no more than a row: the end needs one, too.
        most = 2 * PROMPT if model.context is None else min(2 * PROMPT, model.context - 1)
        ids = self.data.valid.target[number][:most]
        place, decode = len(ids) // 2, self.data.tokenizer.decode
        if not ids:
            return Sample("", None, "")
        found = Filler(model, self.data.tokenizer, model.context).fill_tokens(ids, [place], 1)
        return Sample(f"{decode(ids[:place])} {GAP} {decode(ids[place + 1 :])}", None, found.gaps[0].tokens[0])

    def _translate(self, model: SequenceModel[Any], sources: Sequence[Sequence[int]]) -> list[str]:
        tokenizer, specials = self.data.tokenizer, self.data.tokenizer.specials

        def find(numbers: Sequence[int]) -> list[str]:
            rows = [[*sources[number], specials.end] for number in numbers]
            tokens = Tokens.padded(rows, specials.padding).to(self.trainer.device)
            found = beam_search(model, tokens, specials, GREEDY)
            return [tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]

        texts = []
        for first in range(0, len(sources), ROWS):
            some = range(first, min(first + ROWS, len(sources)))
            texts += self._halves.each(some, find, lambda number: self._no_room(number, sources[number]))
        return texts

    def _no_room(self, number: int, ids: Sequence[int]) -> NoRoomError:
        place = f"validation after step {self.trainer.step:,}: example {number + 1:,}"
        return NoRoomError(place, f"{len(ids):,} tokens", RESUME)
