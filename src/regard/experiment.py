"""One training run: from a recipe to a model folder."""

from __future__ import annotations

import math
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from regard import card, folder, settings, signals
from regard.assembly import new_trainer, torn_apart
from regard.bands.comparing import not_compared, watch_of
from regard.continuing import check_same_run
from regard.counts import so_many
from regard.data.dataset import Dataset, read_dataset
from regard.data.glance import check_there
from regard.errors import DataError, MissingError, UsageError
from regard.examination import Examination, Examiner
from regard.files import FULL, tidy, write_file
from regard.fitting import check_fits
from regard.initial import Beginning, beginning_of
from regard.interop import features
from regard.machine import choose_device
from regard.planning import training_flops
from regard.recipe import Recipe
from regard.status import StatusLine
from regard.text.labels import labels_of
from regard.text.tokenizer import Tokenizer
from regard.training import checkpoint
from regard.training.adapters import check_packages, open_sinks
from regard.training.log import TrainingLog
from regard.training.optim import ENDING, height_of
from regard.training.pace import Pace
from regard.training.ranking import Ranking
from regard.training.report import Ending
from regard.training.saving import Saver
from regard.training.team import Team, join, own_device
from regard.training.validation import Validation
from regard.viewing.training_curves import CURVES, read_metrics, training_svg

BAD_STEPS = 3  # in a row: then a run goes back to its last checkpoint
ROLL_BACKS = 3  # without a checkpoint of good steps between: then it gives up


@dataclass(frozen=True)
class Outcome:
    """How a run ended, which signal asked it to stop (None: none did), and the last validation.

    One that came when the steps were done stopped nothing: then the model is whole, as the ending says.
    """

    ending: Ending
    signal: str | None
    validation: Validation | None

    @property
    def step(self) -> int:
        """The last step it made."""
        return self.ending.step

    @property
    def unfinished(self) -> bool:
        """Whether it stopped before there was a model."""
        return self.ending.reason == "signal"


def train(recipe: Recipe, out: Path, resume: bool = False) -> Outcome:
    """Train a model into the folder `out`; with `resume`, go on from its newest checkpoint, or begin anew if there was
    none yet.

    Where the environment names several processes, as `torchrun` does, each of them calls this.
    """
    check_fits(recipe)
    with join(own_device(choose_device(recipe.device))) as team:
        again = resume or team.restarted
        # Another attempt at a run that had no checkpoint yet begins it anew; a finished model is never begun anew.
        goes_on = again and (bool(checkpoint.found(out / folder.CHECKPOINTS)) or (out / folder.WEIGHTS).exists())
        if team.leads and not again and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(
                f"{out}: must be new or empty, but is in use. Choose another --out, or go on with --resume."
            )
        if resume or goes_on:
            check_same_run(recipe, out)
        else:
            check_there(recipe.data)
        new = not out.exists()
        if team.leads:
            check_packages(recipe.log)
            out.mkdir(parents=True, exist_ok=True)  # now, not after an hour of reading: it may not be possible
            tidy(out)
        try:
            run = _Run(recipe, out, goes_on, team)
        except BaseException:
            if team.leads and new and not (out / folder.RECIPE).exists():
                (out / folder.TOKENIZER).unlink(missing_ok=True)  # which is there early for the others of a team
                if not any(out.iterdir()):
                    out.rmdir()
            raise
        try:
            if resume and not goes_on:
                run.log.say(f"note: there is no checkpoint in {out} to go on from, so the run begins anew.")
            with run.saver:
                return run.to_the_end()
        except OSError as error:
            if error.errno in FULL:
                raise _no_room(out, error) from error
            raise
        finally:
            run.trainer.close()
            run.log.close()


def _no_room(out: Path, error: OSError) -> MissingError:
    kept = checkpoint.found(out / folder.CHECKPOINTS)
    whole = f"The checkpoint of step {int(kept[-1].name):,} is whole" if kept else "There is no checkpoint yet"
    return MissingError(
        f"{error.filename or out}: the disk must have room for what a run writes, but has none ({error.strerror}). "
        f"{whole}: make room, then go on with: regard train --resume --out {out}"
    )


def _name(received: list[str]) -> str:
    """Of the signal that asked to stop; of a team, another member may have had it."""
    return received[0] if received else "SIGTERM"


class _Run:
    """The parts of one run, and what happens between steps."""

    def __init__(self, recipe: Recipe, out: Path, resume: bool, team: Team) -> None:
        self.recipe, self.out, self.team = recipe, out, team
        self.checkpoints = out / folder.CHECKPOINTS
        begins = None if resume else beginning_of(recipe)
        self.data = team.first(lambda: self._read(resume, begins))
        self.trainer = new_trainer(recipe, self.data, team, begins)
        self.examiner = Examiner(recipe, self.data, self.trainer)
        self.saver = Saver(self.checkpoints, team)
        self.ranking = Ranking(recipe.training)
        self._saved = -1  # the step of the newest checkpoint
        warnings = self._go_back_to_checkpoint() if resume else []
        # Not before: a recipe that does not fit its checkpoint must not replace the one that does.
        # A run that goes on keeps the report it began with: its corpus may not have to be read again.
        if team.leads:
            report = None if self.data.report is None else self.data.report.to_json()
            report = report and {**report, folder.FINGERPRINT: self.data.fingerprint.to_json()}
            folder.write_beginning(out, recipe, self.data.tokenizer, report)
        self.log = self._open_log()
        self.watch = watch_of(recipe, self.data.fingerprint.to_json())
        alone = self.trainer.device.type != "cpu" or torch.get_num_threads() == 1
        self.pace = None if alone else Pace()  # a thread alone waits for no other
        for warning in warnings:
            self.log.say(f"warning: {warning}")
        self._introduce()
        if not resume and (why := not_compared(recipe, self.data.fingerprint.to_json())) is not None:
            self.log.say(why)

    def _introduce(self) -> None:
        """Say what is trained, on what, and what looks wrong."""
        data = self.data
        if data.report is not None:
            self.log.say(data.report.to_text())
        labels = "" if data.train.labels is None else f"; {len(labels_of(data.tokenizer))} labels"
        self.log.say(
            f"{so_many(len(data.train), 'example')} to train on, {len(data.valid):,} for validation; "
            f"{self._vocabulary:,} tokens{labels}; {self._parameters:,} parameters on {self.trainer.device}"
        )
        self.log.say(self.trainer.batches.summary())
        if self.recipe.export.check:
            for line in features.report(self.recipe.model):
                self.log.say(line)
        if torn := torn_apart(self.recipe, data, self.trainer.model):
            self.log.say(f"warning: {torn}")
        course = self.recipe.training.optimiser
        for name in course.idle():
            self.log.say(
                f"note: `training.optimiser.{name}` is {getattr(course, name)}, which changes nothing: the schedule "
                f'"{course.schedule}" goes by `{height_of(course.schedule)}`.'
            )
        steps = self.recipe.training.steps
        if course.warmup > steps and not self.recipe.training.by_clock:
            self.log.say(
                f"warning: the warm-up of {so_many(course.warmup, 'step')} is longer than the run of {steps:,}, so "
                "that the learning rate stays low to its end. Lower training.optimiser.warmup."
            )

    def _read(self, resume: bool, begins: Beginning | None) -> Dataset:
        """The corpus; whoever comes first learns the vocabulary, and the others of a team find it in the folder."""
        known = resume or not self.team.leads
        tokenizer = begins.tokenizer if begins is not None else None
        tokenizer = Tokenizer.load(self.out / folder.TOKENIZER) if known else tokenizer
        # Batches are drawn by number: those of another corpus would be others, and nobody would notice.
        before = folder.read_fingerprint(self.out) if resume else None
        status = StatusLine() if self.team.leads else None
        data = read_dataset(
            self.recipe.data, self.recipe.tokenizer, self.recipe.seed, tokenizer, status=status, before=before,
            reports=not known,
        )  # fmt: skip
        if status is not None:
            status.clear()  # its last state was seldom the end
        if not known and self.team.size > 1:
            write_file(self.out / folder.TOKENIZER, data.tokenizer.to_json())
        return data

    @property
    def _vocabulary(self) -> int:
        """How many tokens the model knows; labels are none."""
        tokenizer = self.data.tokenizer
        return tokenizer.size if self.data.train.labels is None else tokenizer.source.size

    @property
    def _parameters(self) -> int:
        return sum(weight.numel() for weight in self.trainer.model.parameters())

    def _open_log(self) -> TrainingLog:
        first, steps = self.trainer.step, self.recipe.training.steps
        if not self.team.leads:
            return TrainingLog(Path(os.devnull), steps, first, StatusLine(Path(os.devnull).open("w")))
        sinks = open_sinks(self.recipe.log, self.out, first, self.recipe.name, settings.to_toml(self.recipe))
        log = TrainingLog(self.out / folder.METRICS, steps, first, sinks=sinks)
        log.event(card.START, card.start_facts(first, self.trainer.device, self.team.size))
        return log

    def to_the_end(self) -> Outcome:
        """Step until done or told to stop; either way nothing learned is lost.

        Who is told to stop while there is no step left to be made writes the model first, which is soon done.
        """
        with signals.noted() as received:
            outcome = self._steps(received)
            told = self.team.any(bool(received))
            return replace(outcome, signal=_name(received)) if told else outcome

    def _steps(self, received: list[str]) -> Outcome:
        """Step on; `received` are the signals that have come."""
        course, found, rolled_back = self.recipe.training, None, 0
        self.trainer.stopwatch.start()
        report_every = course.report_every or (10 if self.trainer.device.type == "cuda" else 1)
        if self._saved < 0:
            self._save()  # something to go back to
        if self._owes_a_validation():
            found = self._validate()
            self._save()
        if (early := self.ranking.no_improvement(self.trainer.step)) is not None:
            return self._finish(early, found)  # it had stopped to improve before it was interrupted
        if self.team.any(self._time_left() < 0) and self.trainer.step < course.steps:
            return self._finish(self._out_of_time(), found)  # its time was up before it went on
        while self.trainer.step < course.steps:
            self.trainer.advance()
            step, last = self.trainer.step, self.trainer.step == course.steps
            validates, saves = last or step % course.validate_every == 0, last or step % course.save_every == 0
            # A team can agree to stop only where all of its members meet; who is alone stops at once.
            due = step % report_every == 0 or (bool(received) and self.team.size == 1)
            if not (validates or saves or due):
                continue
            self._report()
            self.saver.check()
            if self.trainer.wasted_in_a_row >= BAD_STEPS:
                rolled_back += 1
                self._roll_back(rolled_back)
                continue
            late = self.team.any(self._time_left() < 0) and not last
            told = self.team.any(bool(received)) and not last
            if validates or late:
                found = self._validate()
            if saves or late or told or (validates and step in self.ranking.best()):
                self._save()
                if not self.trainer.wasted_in_a_row:  # a checkpoint amid bad steps is no sign that it goes better
                    rolled_back = 0
            if told:
                self.saver.wait()
                ending = Ending.signal(step, _name(received))
                self.log.end(ending)
                self.log.say(ending.sentence)
                return Outcome(ending, None, None if found is None else found.validation)
            if late:
                return self._finish(self._out_of_time(), found)
            if validates and (early := self.ranking.no_improvement(step)) is not None:
                return self._finish(early, found)
        return self._finish(Ending.done(course.steps), found)

    # ---- between steps

    def _report(self) -> None:
        report = self.trainer.report()
        note = self.watch.report(report) if self.watch is not None else None
        self.log.step(report, self.watch.aside if self.watch is not None else "", max(0.0, self._time_left()))
        if note is not None:
            self.log.say(note)
        if self.pace is not None and self.pace.fell_behind(report):
            self.log.say(
                f"note: {self.pace.now:,.0f} tokens a second, where it was {self.pace.fastest:,.0f}. If other programs "
                f"keep this machine busy, {torch.get_num_threads()} threads of a run wait for each other, and one "
                f"alone is faster: stop with Ctrl-C, and go on with: OMP_NUM_THREADS=1 regard train --resume --out "
                f"{shlex.quote(str(self.out))}"
            )

    def _time_left(self) -> float:
        """Seconds to the time limit of all parts of the run; below 0 where it is over."""
        limit = self.recipe.training.minutes
        return math.inf if limit is None else 60 * limit - self.trainer.stopwatch.seconds

    def _out_of_time(self) -> Ending:
        course, step = self.recipe.training, self.trainer.step
        if course.optimiser.schedule in ENDING and step < course.optimiser.warmup:
            self.log.say(
                f"warning: the time was up in the warm-up of {course.optimiser.warmup:,} steps, so that the learning "
                "rate never fell. Raise training.minutes, or lower training.optimiser.warmup."
            )
        elif course.optimiser.schedule in ENDING and not course.by_clock:
            self.log.say(
                "note: the time was up before the learning rate had fallen to its end, which makes a model worse than "
                "it could be. With training.by_clock=true it falls in time."
            )
        return Ending.out_of_time(step, course.steps, 60 * (course.minutes or 0))

    def _save(self) -> None:
        snapshot = replace(self.trainer.snapshot(), validations=self.ranking.validations)
        self.saver.save(snapshot, self.recipe.training.keep, spare=self.ranking.spared(snapshot.step))
        self._saved = snapshot.step

    def _go_back_to_checkpoint(self) -> list[str]:
        self.saver.wait()
        snapshot, damaged = checkpoint.newest(self.checkpoints, self.team)
        self.trainer.restore(snapshot)
        self.ranking, self._saved = Ranking(self.recipe.training, snapshot.validations), snapshot.step
        if self.team.leads:
            checkpoint.set_aside(self.checkpoints, after=snapshot.step)
        return damaged

    def _roll_back(self, times: int) -> None:
        """Gradients are no numbers any more: back to the last checkpoint, and on with the batches after these."""
        step, cursor = self.trainer.step, self.trainer.cursor
        if times > ROLL_BACKS:
            ending = Ending.diverged(step, ROLL_BACKS)
            self.log.end(ending)
            self.log.say(ending.sentence)
            raise DataError(f"{self.out}: {ending.sentence}")
        for line in self._go_back_to_checkpoint():
            self.log.say(f"warning: {line}")
        self.trainer.go_to(cursor)
        self.log.say(
            f"warning: {BAD_STEPS} or more steps in a row up to step {step:,} had gradients that are no numbers. Back "
            f"to the checkpoint of step {self.trainer.step:,}, and on with the batches after those."
        )

    def _owes_a_validation(self) -> bool:
        """Whether the run broke off in the validation of the step it goes on from. The last step's is made anyway."""
        step, course = self.trainer.step, self.recipe.training
        due = 0 < step < course.steps and step % course.validate_every == 0
        return due and step not in self.ranking

    def _validate(self) -> Examination:
        try:
            found = self.examiner.examine()
        except Exception:
            self._save_before_it_ends()
            raise
        self.ranking.add(found.step, self._goodness(found))
        self.log.event("validation", found.to_json())
        self.log.say(str(found))
        if self.watch is not None and (note := self.watch.validated(found.step, found.validation.nll)) is not None:
            self.log.say(note)
        self.log.samples(found.samples)
        self._draw_curves()
        return found

    def _save_before_it_ends(self) -> None:
        """What was learned since the last checkpoint must not be lost with a validation that cannot be made.

        Of a team one member alone may be here, and it takes all of them to save.
        """
        if self.team.size > 1:
            return
        with suppress(Exception):  # what ended the validation is told
            if self._saved != self.trainer.step:
                self._save()
            self.saver.wait()
            self.log.say(f"step {self.trainer.step:,}: its validation failed; what was learned is saved")

    def _goodness(self, found: Examination) -> float:
        """What the best are chosen by, more for a better one; the same for all members of a team."""
        by_bleu = found.bleu if self.recipe.training.best_by == "bleu" else None
        return self.team.agree(by_bleu.value if by_bleu is not None else -found.validation.nll)

    def _draw_curves(self) -> None:
        if not self.team.leads:
            return
        usual = None if self.watch is None else self.watch.course
        if drawn := training_svg(read_metrics(self.out / folder.METRICS), self.recipe.name, usual):
            write_file(self.out / CURVES, drawn)

    # ---- the end

    def _finish(self, ending: Ending, last: Examination | None) -> Outcome:
        """Choose the final weights and write the model; a run that goes on at its very end has no `last` validation."""
        last = last or self._validate()
        self.saver.wait()
        if self._saved != self.trainer.step:
            self._save()
            self.saver.wait()
        weights, what, final = self._final_model()
        self.log.say(f"{what}: validation {final.likelihood} (last step alone: {last.likelihood_alone})")
        self.log.event("average", {"step": self.trainer.step, "of": what, "nll": final.validation.nll})
        course = self.recipe.training
        if course.ema is None and course.average > 1 and final.validation.nll > last.validation.nll:
            self.log.say(
                "note: the last step alone is better: it still learned fast, and the mean holds it back. To end with "
                f"that: regard train --resume --out {shlex.quote(str(self.out))} training.average=1"
            )
        self.log.end(ending)  # the card tells it, and the manifest is over all
        self._draw_curves()
        if self.team.leads:
            folder.write_end(self.out, weights, self._card(ending, final))
        self.log.say(ending.sentence)  # not before: who reads it takes the model to be there
        return Outcome(ending, None, final.validation)

    def _card(self, ending: Ending, final: Examination) -> str:
        events = read_metrics(self.out / folder.METRICS)
        tokens = sum(event["tokens"] for event in events if event["event"] == "step")
        tokenizer = self.data.tokenizer
        flops = training_flops(self.recipe, tokenizer.size, tokens, ending.step, tokenizer.source.size)
        result = card.Result(
            self._parameters, self._vocabulary, ending.step, ending.sentence, final.validation, flops, final.scores
        )
        return card.model_card(self.out, self.recipe, result)

    def _final_model(self) -> tuple[dict[str, Tensor], str, Examination]:
        """Weights, what they are, and what a model with them can do, which has them now."""
        course = self.recipe.training
        weights, what = self._final_weights(course.average)
        self.trainer.load_weights(weights)
        final = self.examiner.examine()
        best = self.ranking.highest
        if course.average_of == "best" and course.average > 1 and course.ema is None and self._goodness(final) < best:
            # Of a short run that soon learns by heart, the best are too few and too different.
            self.log.say(f"{what}: validation {final.likelihood}, which is worse than the best alone, so that is taken")
            weights, what = self._final_weights(1)
            self.trainer.load_weights(weights)
            final = self.examiner.examine()
        return weights, what, final

    def _final_weights(self, count: int) -> tuple[dict[str, Tensor], str]:
        """The weights to end with, and what they are: a moving mean, or that of so many checkpoints."""
        course = self.recipe.training
        if course.ema is not None:
            return self.trainer.moving_weights(), "moving average of the weights"
        if self.team.leads:
            for line in checkpoint.set_damaged_aside(self.checkpoints):
                self.log.say(f"warning: {line}")
        places = {int(place.name): place for place in checkpoint.found(self.checkpoints)}
        steps = self.ranking.averaged(places.keys(), self.trainer.step, count)
        if self.team.leads and not steps:
            raise DataError(f"{self.checkpoints}: there must be a whole checkpoint to end with, but there is none.")
        which = "last" if course.average_of == "newest" else "best"
        weights = checkpoint.averaged([places[step] for step in steps]) if self.team.leads else {}
        several = f"average of the {which} {len(steps)} checkpoints"
        return weights, several if len(steps) > 1 else f"the {which} checkpoint"
