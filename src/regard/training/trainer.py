"""The training loop's one step, and how to stop and go on exactly.

A run is a function of (settings, data, seed): batches and dropout follow from the number of the step, the rate from
the schedule. Nothing in a step waits for a GPU: what there is to say of it is added up on the device until somebody
asks for a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.batch import Batch
from regard.data.batching import Batches
from regard.data.prefetch import Portion, Prefetch
from regard.errors import DataError, UsageError
from regard.layers.dropout import Noise
from regard.machine import has_bf16
from regard.memory import ran_out, recording_ran_out
from regard.models.interface import Learner, SequenceModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_positive
from regard.training import checkpoint, graph, optim, sharding
from regard.training.checkpoint import Snapshot
from regard.training.graph import StepGraphs
from regard.training.objective import Objective, ObjectiveSettings
from regard.training.optim import OptimiserSettings
from regard.training.report import StepReport
from regard.training.reward import Rewards
from regard.training.sharding import WholeModel
from regard.training.stopwatch import Stopwatch
from regard.training.tally import Tally
from regard.training.team import ALONE, Parallel, Team
from regard.training.validation import Validation, Validator

Precision = Literal["auto", "fp32", "bf16"]
MANY_SHAPES = 16  # of batches: from there on compiling each takes longer than it saves
RARE = 0.02  # a shape that fewer batches have than this share of all is not compiled


@dataclass(frozen=True)
class TrainingSettings(ObjectiveSettings):
    """How long to train, how, and what to keep; the defaults are the paper's base model's."""

    steps: int = 100_000
    minutes: float | None = None
    """Stop after so much time, if the steps take longer; when a run goes on, what it took before counts."""
    by_clock: bool = False
    """Let the rate be at its end when the `minutes` are up, however many steps were made by then, or at the last step,
    if that comes first; for schedule = "cosine" and "linear"."""
    parts: int = 1
    """Read each batch in so many parts and add up their gradients: the same step in less memory. With recurrent models,
    experts and rewards it is another one: what they draw or balance depends on the rows that are read together."""
    precision: Precision = "auto"
    """What is computed with; weights and their updates are fp32 always. `auto` is bf16 on GPUs, fp32 elsewhere."""
    compile: Literal["auto", "layers", "yes", "no"] = "auto"
    """Whether to translate the model into faster code first; `auto` does on GPUs, for few shapes of batches. `layers`
    does as well, layer by layer: that is done in half the time, and no kernel reaches from one to the next."""
    parallel: Parallel = "auto"
    """How several processes share the work: `ddp` gives each all weights, `fsdp` a slice of each; `auto` is `fsdp` only
    where it must be."""
    deterministic: bool = True
    """Add numbers up in the same order every time on GPUs, too, so that a run can be repeated to the bit. Without it
    the base model trains a tenth faster there; on CPUs it makes no difference."""
    report_every: int | None = None
    """Steps between two reports; unless given, 1 on a CPU and 10 on a GPU, which has to be waited for."""
    validate_every: int = 1_000
    bleu_lines: int = 0
    """How many lines of the validation set to translate at each validation, for BLEU; 0 is none."""
    patience: int | None = None
    """Stop when so many validations in a row are no better than the best one."""
    best_by: Literal["loss", "bleu"] = "loss"
    """What makes a validation the best."""
    save_every: int = 1_000
    keep: int = 5
    """How many of the newest checkpoints stay."""
    keep_best: int = 0
    """How many of the best stay beside them."""
    average: int = 5
    """How many checkpoints the final weights are the mean of."""
    average_of: Literal["newest", "best"] = "newest"
    ema: float | None = None
    """Keep a moving mean of the weights, in which those after a step count so many times (0.999, say) as much as those
    one step later, and make it the final model. What they were before the first step has no part in it."""
    optimiser: OptimiserSettings = OptimiserSettings()

    def __post_init__(self) -> None:
        check_words(self)
        super().__post_init__()
        check_at_least(
            1, self, "steps", "parts", "validate_every", "save_every", "keep", "average", "report_every", "patience"
        )
        check_at_least(0, self, "bleu_lines", "keep_best")
        kept = self.keep if self.average_of == "newest" else self.keep_best
        name = "keep" if self.average_of == "newest" else "keep_best"
        if self.average > kept:
            raise ValueError(f"`average` must be at most `{name}` ({kept}), but is {self.average}")
        if self.best_by == "bleu" and not self.bleu_lines:
            raise ValueError('`best_by` = "bleu" needs `bleu_lines` of at least 1, but it is 0')
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"`ema` must be between 0 and 1, but is {self.ema}")
        check_positive(self, "minutes")
        if self.by_clock and self.minutes is None:
            raise ValueError(
                "`by_clock` needs `minutes`, at the end of which the rate is at its end, but it is not set"
            )
        if self.by_clock and (schedule := self.optimiser.schedule) not in optim.ENDING:
            endings = " or ".join(f'"{name}"' for name in optim.ENDING)
            raise ValueError(f'`by_clock` needs `optimiser.schedule` = {endings}, which fall, but it is "{schedule}"')


class Trainer:
    """A model, its optimiser and its batches, and the step they have reached."""

    def __init__(
        self,
        model: Learner,
        batches: Batches,
        settings: TrainingSettings,
        seed: int = 0,
        team: Team = ALONE,
        rewards: Rewards | None = None,
    ) -> None:
        self.model, self.batches, self.settings, self.team = model, batches, settings, team
        self.device = next(model.parameters()).device
        self.step = 0
        self.cursor = 0
        """The next batch: the number of the step, unless batches were passed over because nothing came of them."""
        self.stopwatch = Stopwatch()
        """Whoever trains starts it; to try out some steps, leave it as it stands."""
        self.parts = settings.parts
        self._precision = partial(_computing, self.device, _bf16(settings.precision, self.device))
        self.seed, self.noise = seed, Noise(model, seed)
        self._random = checkpoint.random_state(self.device)
        compiled, sharded = self._compiles(), team.shards(settings.parallel, model)
        self._whole = WholeModel(model) if sharded else None
        self._check_stream()
        worthwhile = batches.lengths if settings.compile == "yes" else batches.common(RARE)
        if settings.reward and sharded:
            raise UsageError(
                "training.parallel: must be `ddp` with `training.reward`, for which each process writes with all "
                f'weights, but is `{settings.parallel}`, which divides them. Set `training.parallel = "ddp"`.'
            )
        if not compiled or sharded:
            worthwhile = []
        by_layer = settings.compile == "layers"
        objective = Objective(model, settings, worthwhile, batches.streams, rewards, by_layer)
        self._reader = objective
        self.objective = team.wrap(objective, sharded, compiled)
        self.optimiser = optim.optimiser(model, settings.optimiser)
        kept = () if settings.ema is None else model.named_parameters()
        self.moving = {name: weight.detach().clone() for name, weight in kept}
        """The moving means of the weights by name, if such are kept."""
        self._compiled = compiled
        self._graphs = self._step_graphs()
        self._feed: Prefetch | None = None
        self._tally = Tally(self.device)
        self._validator = Validator(team, self.device, batches.streams, self._precision)

    def advance(self) -> None:
        """Read one batch and change the weights once; torch's generators stay as they were."""
        self.team.now(self.step + 1, self.cursor)
        self._tally.begin()
        if self._feed is None:
            self._feed = Prefetch(self.batches, self.cursor, self.device, self.team.rank, self.team.size)
        portion = next(self._feed)
        if self.batches.streams and self.batches.begins(self.cursor):
            self._reader.carried = {}
        over, schedule = self._over(), self.settings.optimiser
        rate = schedule.learning_rate(self.step + 1, self.model.width, self.settings.steps, over)
        optim.set_rate(self.optimiser, rate)
        with self._exactly(), self._drawing():
            loss, norm, usable = self._recorded(portion) if self._graphs else self._change_weights(portion)
        self.step += 1
        if (ema := self.settings.ema) is not None:
            # What the newest of so many weights counts in their mean; a step that was skipped moves nothing.
            self._move(usable * ((1 - ema) / (1 - ema**self.step)))
        self._tally.add(loss, norm, usable, portion, rate, schedule.progress(self.step, self.settings.steps, over))
        self.cursor += 1

    @torch.no_grad()
    def _move(self, share: Tensor) -> None:
        """The moving means come nearer to the weights by this share of the way, all in a few kernels."""
        means = list(self.moving.values())
        way = torch._foreach_sub([weight.detach() for weight in self.model.parameters()], means)
        torch._foreach_mul_(way, share)
        torch._foreach_add_(means, way)

    def report(self) -> StepReport:
        """What the steps since the last report did; a GPU is waited for."""
        return self._tally.report(self.step, self.team)

    @property
    def wasted_in_a_row(self) -> int:
        """Of the steps in the last report, the most in a row whose gradient was no number."""
        return self._tally.longest

    @torch.inference_mode()
    def validate(self, batches: Iterable[Batch], size: int = 0) -> Validation:
        """The mean negative log-likelihood of `batches`, without smoothing or dropout; `size` is their bytes."""
        with self.reading() as model:
            return self._validator.validate(model, batches, size, self.step)

    @contextmanager
    def reading(self) -> Iterator[Learner]:
        """The model with all its weights, to validate or translate with; all members of a team must ask for it."""
        if self._whole is None:
            yield self.model.eval()
        else:
            with self._whole.filled(self.model) as model:
                yield cast(Learner, model)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on from here; in a team, this member's part of it."""
        part, parts = self.team.rank, self.team.size if self._whole else 1
        state = checkpoint.optimiser_tensors(self.model, self.optimiser)
        return Snapshot(
            self.step,
            checkpoint.share_of(self.model.state_dict().items(), part, parts),
            checkpoint.share_of(state, part, parts),
            self._random,
            cursor=self.cursor,
            batch_parts=self.parts,
            seconds=self.stopwatch.seconds,
            warm=self.stopwatch.warm,
            moving=checkpoint.share_of(self.moving.items(), part, parts),
            carried=checkpoint.share_of((self._reader.carried or {}).items()),
            part=part,
            parts=parts,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to (or on from) a whole snapshot, of whatever team."""
        try:
            checkpoint.restore_weights(self.model, snapshot.weights)
        except RuntimeError as error:
            raise UsageError(
                f"checkpoint of step {snapshot.step:,}: its weights must fit the model of the recipe, but do not. "
                f"Leave the model's settings as they were. {error}"
            ) from error
        checkpoint.restore_optimiser(self.model, self.optimiser, snapshot.optimiser)
        self._random = {name: snapshot.random.get(name, own) for name, own in self._random.items()}
        for name, mean in self.moving.items():
            mean.copy_(sharding.divided_like(snapshot.moving[name], mean))
        self.step = snapshot.step
        self.stopwatch.go_on_from(snapshot.seconds, snapshot.warm)
        # As many as memory turned out to need: other parts are other sums, which round otherwise.
        self.parts = max(self.settings.parts, snapshot.batch_parts)
        self._graphs = self._step_graphs()  # recordings know the places of the moments that were there before
        self.go_to(snapshot.cursor)
        if self._reader.carried is not None:
            self._reader.carried = {name: kept.to(self.device) for name, kept in snapshot.carried.items()}

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take other weights, for good; in a team the leader's, and those of the others may be empty."""
        for name, own in self.model.state_dict().items():
            given = weights[name].to(own.dtype) if self.team.leads else torch.empty(own.shape, dtype=own.dtype)
            own.copy_(sharding.divided_like(self.team.share(given.to(self.device)), own))

    def go_to(self, cursor: int) -> None:
        """Read on from another batch; rows that would go on from the one before it begin anew."""
        self.close()
        if self._reader.carried is not None and cursor != self.cursor:
            self._reader.carried = {}
        self.cursor = cursor
        self._tally = Tally(self.device)

    def close(self) -> None:
        """Stop reading ahead."""
        if self._feed is not None:
            self._feed.close()
        self._feed = None

    def moving_weights(self) -> dict[str, Tensor]:
        """The weights of the model, their moving means where there are such; all members of a team must ask."""
        # A weight that several parts of the model share has one mean and several names.
        kept = {id(weight): self.moving[name] for name, weight in self.model.named_parameters()}
        named = self.model.named_parameters(remove_duplicate=False)
        means = checkpoint.share_of((name, kept[id(weight)]) for name, weight in named)
        return checkpoint.weights_of(self.model) | means

    # ---- one step

    def _over(self) -> float:
        """By the clock, how much of the time is over in which the rate falls; the leader's clock is everybody's."""
        if not self.settings.by_clock or self.settings.minutes is None:
            return 0.0
        warming = self.step < self.settings.optimiser.warmup
        return self.team.agree(self.stopwatch.over(60 * self.settings.minutes, warming))

    def _step_graphs(self) -> StepGraphs | None:
        """What records steps, where a step is one piece of work of one GPU, and there are few shapes of it."""
        whole = self.team.size == self.parts == 1 and len(self.batches.shapes) <= graph.MANY
        # Rewards are given by the host.
        records = self._compiled and whole and self.device.type == "cuda" and not self.settings.reward
        return StepGraphs(self._whole_step, self.device) if records else None

    def _change_weights(self, portion: Portion) -> tuple[Tensor, Tensor, Tensor]:
        loss, norm = self._gradients_in_memory(portion)
        return loss, norm, optim.apply(self.optimiser, norm + 0 * loss, self.settings.optimiser.clip)

    def _recorded(self, portion: Portion) -> tuple[Tensor, ...]:
        """The same step, played back; where its recording does not fit into memory, as usual from now on."""
        assert self._graphs is not None
        self.noise.set(self.cursor)
        try:
            return self._graphs.run(portion.batch, 1 / max(1, portion.labels))
        except (RuntimeError, MemoryError) as error:
            if not recording_ran_out(error):
                raise
        self._graphs = None
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        return self._change_weights(portion)

    def _whole_step(self, batch: Batch, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All that the GPU does in one step; what changes from step to step, it finds in its memory."""
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        with self._precision():
            loss = self.objective(batch) * share
            loss.backward()
        norm = nn.utils.get_total_norm([weight.grad for weight in self.model.parameters() if weight.grad is not None])
        return loss.detach(), norm, optim.apply(self.optimiser, norm + 0 * loss, self.settings.optimiser.clip)

    def _gradients_in_memory(self, portion: Portion) -> tuple[Tensor, Tensor]:
        """The loss and the gradients' norm; where memory runs out, again in twice as many parts."""
        while True:
            try:
                return self._gradients(portion)
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                if self.batches.streams:
                    raise DataError(
                        f"a batch must fit into memory, but does not, and a `stream` cannot be read in parts: {error} "
                        "Lower `batch.tokens` or `batch.row`, and train anew."
                    ) from error
                if self.team.size > 1:
                    # The others have gone on to where all meet, and cannot be called back.
                    raise DataError(
                        f"a batch must fit into memory, but does not: {error} Set `training.parts` to "
                        f"{2 * self.parts} or lower `batch.tokens`, then go on with --resume."
                    ) from error
                rows = len(portion.batch.labels_BT)
                if self.parts >= rows:
                    raise DataError(
                        f"step {self.step + 1}: a batch must fit into memory, but not even one row of it does "
                        f"({portion.slots // rows:,} tokens). Lower `batch.tokens` or `batch.row`, or take a smaller "
                        "model."
                    ) from error
            # Outside of the handler, whose traceback holds on to what did not fit.
            self.parts *= 2
            self.optimiser.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _gradients(self, portion: Portion) -> tuple[Tensor, Tensor]:
        if not self.model.training:  # to tell every part of a small model takes as long as some of its layers
            self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        # Whatever else is drawn in this step follows from the same numbers as dropout, and differs between members.
        drawn = int(np.random.PCG64([self.seed, self.cursor, self.team.rank]).random_raw())
        checkpoint.seed_random(drawn >> 1, self.device)
        # Counted by the hosts among themselves: to send a number to a GPU is to wait for it.
        labels = max(1.0, self.team.sum(torch.tensor(portion.labels, dtype=torch.float64)).item())
        total = torch.zeros((), device=self.device)
        for first_row, part, last in self._in_parts(portion.batch):
            self.noise.set(self.cursor, first_row * self.settings.readings)
            with self._precision(), self.team.accumulating(self.objective, last):
                loss = self.objective(part) * (1 / labels)
                # The team takes the mean over its members, where the sum is wanted.
                (loss * self.team.size).backward()
            total += loss.detach()
        gradients = [weight.grad for weight in self.objective.parameters() if weight.grad is not None]
        norm = self.team.whole(nn.utils.get_total_norm(gradients))
        return self.team.sum(total), norm

    def _in_parts(self, batch: Batch) -> Iterator[tuple[int, Batch, bool]]:
        """Some rows at a time: where in the whole team's batch they begin, the rows, and whether they are the last."""
        rows = len(batch.labels_BT)
        each = -(-rows // self.parts)
        for first in range(0, rows, each):
            part = batch if each >= rows else batch.rows(slice(first, first + each))
            yield self.team.rank * rows + first, part, first + each >= rows

    @contextmanager
    def _exactly(self) -> Iterator[None]:
        """Sums in one order, on a GPU, too, as long as a step takes: searches and validations need no such thing."""
        if not (self.settings.deterministic and self.device.type == "cuda"):
            yield
            return
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        # To be told is not enough for attention: only where a warning is not either does torch choose the exact kernel.
        torch.use_deterministic_algorithms(True, warn_only=not self.model.exact_on_gpu)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """The generators are the run's as long as a step takes: whoever trains draws from them, too."""
        with checkpoint.own_random(self.device):
            checkpoint.restore_random(self._random, self.device)
            try:
                yield
            finally:
                self._random = checkpoint.random_state(self.device)

    def _check_stream(self) -> None:
        """Each row goes on from its own past: nobody else may read some of them."""
        if self.batches.streams and self.team.size > 1:
            raise UsageError(
                "batch.layout: must not be `stream` with several processes, since each row goes on from its own past, "
                f"but there are {self.team.size} of them. Start one, or choose `blocks`."
            )
        if self.batches.streams and self.settings.parts > 1:
            raise UsageError(
                'training.parts: must be 1 with `batch.layout = "stream"`, since each row goes on from its own past, '
                f"but is {self.settings.parts}. Set `training.parts = 1`, or choose `blocks`."
            )

    def _compiles(self) -> bool:
        few = len(self.batches.shapes) <= MANY_SHAPES
        wanted = self.settings.compile == "yes" or (
            self.settings.compile != "no" and self.device.type == "cuda" and few and self.model.packs_sentences
        )
        wanted = wanted and isinstance(self.model, SequenceModel)  # what others compute is small, and not recorded
        wanted = wanted and not self.batches.streams  # a recording would go on from one memory for ever
        if wanted:
            # Each shape is a graph of its own: small and fast, as long as there are not too many.
            torch._dynamo.config.recompile_limit = max(8, 2 * len(self.batches.shapes))
        return wanted


def _computing(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    """In half of the bits where there is something to gain by it."""
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if bf16 else nullcontext()


def _bf16(precision: Precision, device: torch.device) -> bool:
    if precision == "auto":
        return has_bf16(device.type)
    return precision == "bf16"
