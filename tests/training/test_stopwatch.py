"""Time that counts through stops and steps back, and rates that come to their end when it is up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import experiment, folder, resumption
from regard.batch import Specials
from regard.data.batching import Batches, BatchSettings
from regard.errors import UsageError
from regard.models.build import build
from regard.models.transformer import TransformerSettings
from regard.recipe import Recipe
from regard.training import checkpoint
from regard.training.optim import OptimiserSettings, Schedule
from regard.training.stopwatch import Stopwatch
from regard.training.team import ALONE, Team
from regard.training.trainer import Trainer, TrainingSettings
from tests.tiny import generated_recipe

MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, heads=2)
LINEAR = OptimiserSettings(schedule="linear", rate=1e-2, final=1e-3, warmup=3)
SETTINGS = TrainingSettings(steps=1_000, minutes=1.0, by_clock=True, optimiser=LINEAR)


class Hands:
    """A clock that somebody sets; `tick` is what it moves by itself each time it is looked at."""

    def __init__(self) -> None:
        self.now, self.tick = 1e6, 0.0

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    found = Hands()
    # This module's clock alone: others measure the speed of steps, and wait.
    monkeypatch.setattr("regard.training.stopwatch.time", SimpleNamespace(monotonic=found.monotonic))
    return found


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def trainer(settings: TrainingSettings = SETTINGS, team: Team = ALONE) -> Trainer:
    torch.manual_seed(0)
    batches = Batches([([4, 5], [6, 7])] * 8, Specials(0, 1, 2), BatchSettings(tokens=8, shapes=2), seed=1)
    return Trainer(build(MODEL, 10), batches, settings, team=team)


def step(run: Trainer) -> tuple[float, float]:
    """The rate of one step, and its progress."""
    run.advance()
    report = run.report()
    return report.learning_rate, report.progress


# ---- the watch


def test_time_counts_once_it_is_started_and_on_top_of_earlier_parts(hands: Hands) -> None:
    watch = Stopwatch()
    hands.now += 5
    assert watch.seconds == 0
    watch.go_on_from(100.0, 20.0)
    hands.now += 5
    assert (watch.seconds, watch.warm) == (100.0, 20.0)
    watch.start()
    hands.now += 5
    assert watch.seconds == 105.0
    watch.go_on_from(40.0, 0.0)  # back to a checkpoint: the time is gone
    assert watch.seconds == 105.0


@given(st.floats(0, 100), st.floats(0.1, 100), st.lists(st.floats(0, 200), min_size=2, max_size=5))
def test_what_is_over_goes_from_nothing_to_all(warm: float, left: float, later: list[float]) -> None:
    watch = Stopwatch()
    watch.go_on_from(warm, 0.0)
    assert watch.over(warm + left, warming=True) == 0
    found = []
    for seconds in sorted(later):
        watch.go_on_from(warm + seconds, watch.warm)
        found.append(watch.over(warm + left, warming=False))
        assert found[-1] == pytest.approx(min(1.0, seconds / left), abs=1e-9)
    assert found == sorted(found)


def test_all_is_over_where_the_warm_up_took_all_the_time(hands: Hands) -> None:
    watch = Stopwatch()
    watch.start()
    hands.now += 60
    assert watch.over(60.0, warming=True) == 0
    assert watch.over(60.0, warming=False) == 1


# ---- rates


def test_the_rate_is_at_its_end_when_the_time_is_up(hands: Hands) -> None:
    """Ten seconds of compilation and one a step: the rate falls over what is left after the warm-up."""
    run = trainer()
    run.stopwatch.start()
    found = []
    for number in range(1, 54):
        found.append(step(run))
        hands.now += 10.0 if number == 1 else 1.0
    rates, progress = zip(*found, strict=True)
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    # Step 3 is the last of the warm-up and begins after 11 seconds, so that 49 of the 60 are left.
    expected = [min(1.0, number / 49) for number in range(51)]
    assert progress[2:] == pytest.approx(expected)
    assert rates[2:] == pytest.approx([1e-3 + 9e-3 * (1 - each) for each in expected])
    assert rates[-1] == pytest.approx(1e-3)
    run.close()


def test_the_steps_count_where_they_are_done_first(hands: Hands) -> None:
    by_clock, by_steps = trainer(replace(SETTINGS, steps=8)), trainer(replace(SETTINGS, steps=8, by_clock=False))
    by_clock.stopwatch.start()
    for number in range(1, 9):
        hands.now += 0.1
        assert (
            step(by_clock)
            == step(by_steps)
            == pytest.approx((LINEAR.learning_rate(number, 8, 8), max(0, number - 3) / 5))
        )
    by_clock.close()
    by_steps.close()


def test_a_run_that_goes_on_has_the_time_that_is_left(hands: Hands, tmp_path: Path) -> None:
    first = trainer()
    first.stopwatch.start()
    for _ in range(5):
        step(first)
        hands.now += 6
    checkpoint.save(tmp_path, first.snapshot(), keep=1)
    first.close()
    hands.now += 10_000  # nobody trained
    second = trainer()
    second.restore(checkpoint.newest(tmp_path)[0])
    second.stopwatch.start()
    # 30 seconds are over, of which the warm-up took 12.
    assert step(second)[1] == pytest.approx((30 - 12) / (60 - 12))
    hands.now += 12
    assert step(second)[1] == pytest.approx((42 - 12) / (60 - 12))
    second.restore(checkpoint.newest(tmp_path)[0])  # as after gradients that were no numbers
    assert step(second)[1] == pytest.approx((42 - 12) / (60 - 12))
    second.close()


def test_a_checkpoint_from_before_there_was_a_clock_is_read(tmp_path: Path) -> None:
    run = trainer()
    place = checkpoint.save(tmp_path, run.snapshot(), keep=1)
    state = json.loads((place / checkpoint.STATE).read_text())
    (place / checkpoint.STATE).write_text(
        json.dumps({key: state[key] for key in state if key not in ("seconds", "warm")})
    )
    found = checkpoint.load(place, checked=True)
    assert (found.seconds, found.warm) == (0.0, 0.0)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_both_schedules_that_end_can_follow_it(schedule: Schedule) -> None:
    settings = OptimiserSettings(schedule=schedule, rate=1.0, warmup=10)
    rates = [settings.learning_rate(11, 512, 10**9, over) for over in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)
    assert settings.learning_rate(5, 512, 10**9, 1.0) == 0.5  # the warm-up is in steps


def test_the_leaders_clock_is_everybodys(hands: Hands) -> None:
    class Led(Team):
        def agree(self, value: float) -> float:
            return 0.25

    run = trainer(team=Led())
    run.stopwatch.start()
    for _ in range(4):
        hands.now += 14
        found = step(run)
    assert found == pytest.approx((1e-3 + 9e-3 * 0.75, 0.25))
    run.close()


# ---- settings


def test_it_needs_minutes_and_a_schedule_that_ends() -> None:
    with pytest.raises(ValueError, match="`by_clock` needs `minutes`"):
        replace(SETTINGS, minutes=None)
    with pytest.raises(ValueError, match=r'"cosine" or "linear".*but it is "constant"'):
        replace(SETTINGS, optimiser=replace(LINEAR, schedule="constant"))


# ---- whole runs


def timed(*overrides: str) -> Recipe:
    wish = "training.optimiser={schedule='linear', rate=1e-3, warmup=4}"
    return generated_recipe(["training={steps=100000, minutes=1.0, by_clock=true}", wish, *overrides])


def events(out: Path, event: str) -> list[dict[str, float]]:
    lines = map(json.loads, (out / folder.METRICS).read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def test_a_run_by_the_clock(hands: Hands, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, hands.tick = tmp_path / "model", 1.0
    outcome = experiment.train(timed(), out)
    assert outcome.ending.reason == "time"
    last = events(out, "step")[-1]
    assert last["progress"] > 0.95
    assert last["learning_rate"] < 0.05 * 1e-3
    assert "note: the time was up" not in capsys.readouterr().err
    card = (out / folder.CARD).read_text()
    assert "the rate followed the clock, to its end after 1:00" in card
    assert f"({100 * last['progress']:.1f} % of the way done)" in card
    assert "though not to the bit" in card
    # Whoever proves that it goes on as it should lets the clock stand still.
    assert resumption.verify_resume(out).passed
    # Its time is up: there is nothing to go on with, until there is more of it.
    assert experiment.train(timed(), out, resume=True).step == outcome.step
    more = experiment.train(timed("training.minutes=1.2"), out, resume=True)
    assert outcome.step < more.step < outcome.step + 12
    with pytest.raises(UsageError, match=r"training\.by_clock changed"):
        experiment.train(timed("training.by_clock=false"), out, resume=True)


def test_a_rate_that_did_not_fall_is_told_of(hands: Hands, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hands.tick = 5.0
    experiment.train(timed("training.by_clock=false"), tmp_path / "cut")
    assert "With training.by_clock=true it falls in time." in capsys.readouterr().err
    experiment.train(timed("training.optimiser.warmup=1000"), tmp_path / "warm")
    assert "warning: the time was up in the warm-up of 1,000 steps" in capsys.readouterr().err
