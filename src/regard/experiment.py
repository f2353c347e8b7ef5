"""One training run: from a recipe to a model folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from regard import folder
from regard.batch import Tokens
from regard.data.batching import Batches, Example
from regard.data.corpus import Corpus, Text, open_corpus, target_tags
from regard.data.generated import Pair
from regard.data.prepare import cache_folder, prepare
from regard.data.store import TokenStore
from regard.decoding.search import SearchSettings, beam_search
from regard.errors import UsageError
from regard.models.build import build
from regard.recipe import Recipe
from regard.text.dropout import MergeDropout
from regard.text.tokenizer import Tokenizer
from regard.training import checkpoint
from regard.training.log import TrainingLog
from regard.training.trainer import Trainer, Validation

SAMPLES = 3
# The size of a corpus' files from which on its tokens are filed, and from which on its pairs are not kept in memory.
FILED = 2**26
STREAMED = 2**28
GREEDY = SearchSettings(beam=1)
FIXED = ("seed", "data", "tokenizer", "model", "batch")  # what a resumed run may not change


@dataclass(frozen=True)
class Outcome:
    """How a run ended: at which step, by which signal (None: it was done), and the last validation."""

    step: int
    signal: str | None
    validation: Validation | None


def train(recipe: Recipe, out: Path, resume: bool = False) -> Outcome:
    """Train a model into the folder `out`; with `resume`, go on from its newest checkpoint."""
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: must be new or empty, but is in use. Choose another --out, or go on with --resume.")
    if resume:
        _check_same_run(recipe, out)
    torch.manual_seed(recipe.seed)
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)  # now, not after an hour of reading: it may not be possible
    try:
        run = _Run(recipe, out, resume)
    except BaseException:
        if new and not any(out.iterdir()):
            out.rmdir()
        raise
    try:
        return run.to_the_end()
    finally:
        run.log.close()


class _Run:
    """The parts of one run, and what happens between steps."""

    def __init__(self, recipe: Recipe, out: Path, resume: bool) -> None:
        self.recipe, self.out = recipe, out
        self.checkpoints = out / folder.CHECKPOINTS
        self.device = choose_device(recipe.device)
        if isinstance(recipe.data, Text):
            raise UsageError("data.kind: must be a corpus of pairs, but is `text`, which has one side. Choose `files`.")
        if target_tags(recipe.data):
            raise UsageError("data.tag_target: must be false while nothing adds the tags, but is true. Leave it out.")
        pairs = _TrainingPairs(open_corpus(recipe.data))
        if resume:
            self.tokenizer = Tokenizer.load(out / folder.TOKENIZER)
        else:
            self.tokenizer = Tokenizer.learn_pair(pairs, recipe.tokenizer)
        examples = self._examples(pairs)
        valid_pairs = pairs.corpus.valid()
        if not valid_pairs:
            raise UsageError("data.valid: a run needs at least 1 pair to validate on, but has 0. Ask for more.")
        self.samples = valid_pairs[:SAMPLES]
        train, valid = (
            Batches(some, self.tokenizer.specials, recipe.batch, recipe.seed)
            for some in (examples, encode(valid_pairs, self.tokenizer))
        )
        self.valid = [valid[place] for place in range(valid.per_epoch)]
        self.model = build(recipe.model, self.tokenizer.size, self.tokenizer.source.size).to(self.device)
        if not self.model.reads_source:
            raise UsageError(
                f"model.kind: must be a model that reads a source, because the corpus has sentence pairs, but is "
                f"`{recipe.model.kind}`, a language model. Choose a kind such as `transformer`."
            )
        if recipe.batch.layout == "packed" and not self.model.packs_sentences:
            raise UsageError(
                f"batch.layout: must be `buckets` for a `{recipe.model.kind}` model, which needs one sentence a row, "
                "but is `packed`. Choose `buckets`."
            )
        self.trainer = Trainer(self.model, train, recipe.training)
        warnings = self._go_back_to_checkpoint() if resume else []
        # Not before: a recipe that does not fit its checkpoint must not replace the one that does.
        # A run that goes on keeps the report it began with: its corpus may not have to be read again.
        report = None if resume else pairs.corpus.report().with_coverage(self.tokenizer)
        folder.write_beginning(out, recipe, self.tokenizer, None if report is None else report.to_json())
        self.log = TrainingLog(out / folder.METRICS, recipe.training.steps, first=self.trainer.step)
        for warning in warnings:
            self.log.say(f"warning: {warning}")
        if report is not None:
            self.log.say(report.to_text())
        self.log.say(
            f"{train.examples:,} training pairs, {valid.examples:,} for validation; {self.tokenizer.size:,} "
            f"subwords; {sum(weight.numel() for weight in self.model.parameters()):,} parameters on {self.device}"
        )
        self.log.say(train.summary())

    def to_the_end(self) -> Outcome:
        """Step until done or told to stop; either way nothing learned is lost."""
        settings, validation = self.recipe.training, None
        with _signals() as received:
            while self.trainer.step < settings.steps:
                self.log.step(self.trainer.advance())
                last = self.trainer.step == settings.steps
                if last or self.trainer.step % settings.validate_every == 0:
                    validation = self._validate()
                if last or received or self.trainer.step % settings.save_every == 0:
                    checkpoint.save(self.checkpoints, self.trainer.snapshot(), settings.keep)
                if received and not last:
                    return Outcome(self.trainer.step, received[0], validation)
        return self._finish(validation or self._validate())

    def _examples(self, pairs: _TrainingPairs) -> Sequence[Example] | TokenStore:
        """The training pairs as tokens: in memory, or from a large corpus in files that a later run finds again."""
        cuts = self.tokenizer.training_cuts(self.recipe.tokenizer, self.recipe.seed)
        if pairs.bytes < FILED or len(cuts) > 1:
            return [example for cut in cuts for example in encode(list(pairs), cut)]
        texts = ((pair.source, pair.target) for pair in pairs)
        return prepare(cache_folder(), pairs.corpus.origin(), texts, self.tokenizer)

    def _go_back_to_checkpoint(self) -> list[str]:
        snapshot, damaged = checkpoint.newest(self.checkpoints)
        self.trainer.restore(snapshot)
        checkpoint.set_aside(self.checkpoints, after=snapshot.step)
        return damaged

    def _validate(self) -> Validation:
        validation = self.trainer.validate(self.valid)
        values = {"step": self.trainer.step, "nll": validation.nll, "perplexity": validation.perplexity}
        self.log.event("validation", values)
        self.log.say(f"step {self.trainer.step:,}: validation perplexity {validation.perplexity:.3f} per token")
        for pair, translation in zip(self.samples, self._translate(self.samples), strict=True):
            mark = "✓" if translation == pair.target else "✗"
            self.log.say(f"  {mark} {pair.source}  →  {translation}")
        return validation

    def _translate(self, pairs: Sequence[Pair]) -> list[str]:
        specials = self.tokenizer.specials
        sources = [[*ids, specials.end] for ids in self.tokenizer.source.encode_all([pair.source for pair in pairs])]
        tokens = Tokens.padded(sources, specials.padding).to(self.device)
        found = beam_search(self.model, tokens, specials, GREEDY)
        return [self.tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]

    def _finish(self, validation: Validation) -> Outcome:
        """Average the newest checkpoints and write the model."""
        newest = checkpoint.found(self.checkpoints)[-self.recipe.training.average :]
        self.model.load_state_dict(checkpoint.averaged(newest))
        averaged = self.trainer.validate(self.valid)
        self.log.say(
            f"average of the last {len(newest)} checkpoints: validation perplexity {averaged.perplexity:.3f} "
            f"(last step alone: {validation.perplexity:.3f})"
        )
        values = {"step": self.trainer.step, "checkpoints": len(newest), "nll": averaged.nll}
        self.log.event("average", values)
        folder.write_end(self.out, checkpoint.weights_of(self.model), self._card(averaged))
        return Outcome(self.trainer.step, None, averaged)

    def _card(self, validation: Validation) -> str:
        parameters = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"# {self.recipe.name}\n\n"
            f"A {self.recipe.model.kind} of {parameters:,} parameters over {self.tokenizer.size:,} subwords, trained "
            f"with Regard for {self.trainer.step:,} steps. All settings are in `{folder.RECIPE}`.\n\n"
            f"Validation perplexity: {validation.perplexity:.3f} per token over {validation.tokens:,} tokens.\n\n"
            "```python\nimport regard\n\n"
            f'model = regard.load("{self.out.name}")\nmodel.translate(["…"])\n```\n'
        )


def _check_same_run(recipe: Recipe, out: Path) -> None:
    """A run is a function of its recipe: what it has read and learned from may not change under way."""
    before = folder.read_recipe(out)
    changed = [name for name in FIXED if getattr(recipe, name) != getattr(before, name)]
    for name in ("label_smoothing", "optimiser"):
        if getattr(recipe.training, name) != getattr(before.training, name):
            changed.append(f"training.{name}")
    if changed:
        raise UsageError(
            f"{out}: a run must go on with the settings it began with, but {', '.join(changed)} changed. Leave them as "
            f"they are in {out / folder.RECIPE}, or train anew into another folder."
        )
    reached = [int(place.name) for place in checkpoint.found(out / folder.CHECKPOINTS)]
    if reached and recipe.training.steps < reached[-1]:
        raise UsageError(
            f"{out}: training.steps must be at least {reached[-1]:,}, the step this run has reached, but is "
            f"{recipe.training.steps:,}. Ask for more."
        )


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device: must be one this machine has, but is `{name}` and none is visible. Use `cpu`.")
    try:
        return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError as error:
        raise UsageError(f"device: must be `auto`, `cpu` or `cuda`, but is `{name}` ({error}).") from error


def encode(pairs: Sequence[Pair], tokenizer: Tokenizer | MergeDropout) -> list[Example]:
    """Sentence pairs as token ids."""
    sources = tokenizer.source.encode_all([pair.source for pair in pairs])
    targets = tokenizer.encode_all([pair.target for pair in pairs])
    return list(zip(sources, targets, strict=True))


class _TrainingPairs:
    """The training pairs: read when they are first asked for, and kept for the next time unless there are too many."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.bytes = sum(file.stat().st_size for file in corpus.origin().files if file.is_file())
        self._kept: list[Pair] | None = None

    def __iter__(self) -> Iterator[Pair]:
        if self._kept is None and self.bytes < STREAMED:
            self._kept = list(self.corpus.train())
        return self.corpus.train() if self._kept is None else iter(self._kept)


@contextmanager
def _signals() -> Iterator[list[str]]:
    """Collect the names of the signals that ask to stop, instead of dying of them; a second one kills as usual."""
    received: list[str] = []
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: signals are somebody else's business there
            break
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
