"""Usual courses are made from runs that belong together."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks import bands as command
from regard import folder, settings
from regard.bands.band import BANDS, Band, read_band
from regard.bands.measuring import STRETCHES, _round_below, assumed, band_of_runs
from regard.errors import DataError, MissingError, UsageError
from regard.training.usual import Stretches
from regard.viewing.training_curves import read_metrics


def test_the_command_prints_the_file(runs: list[Path], measured: Band, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(run) for run in runs])
    assert capsys.readouterr().out == measured.to_toml()
    with pytest.raises(SystemExit, match="66"):
        command.main([str(runs[0]), "nowhere"])
    assert "nowhere" in capsys.readouterr().err


def test_one_run_is_usual_within_what_is_assumed(runs: list[Path], measured: Band) -> None:
    band = band_of_runs(runs[:1])
    assert "One run has no standard deviation: it is assumed." in band.to_toml()
    assert "assumed" not in measured.to_toml()
    assert [usual.step for usual in band.course.training] == [usual.step for usual in measured.course.training]
    assert band.course.training == assumed({usual.step: usual.mean for usual in band.course.training})


def test_what_is_assumed_is_half_the_fall_between_two_bounds() -> None:
    losses = [9.7, 4.3, 3.6, 3.4, 3.39, 0.9, 0.4, 0.39]
    found = assumed(dict(enumerate(losses, 1)))
    assert [(usual.step, usual.mean) for usual in found] == list(enumerate(losses, 1))
    assert [usual.sd for usual in found] == pytest.approx(
        [0.05 * 9.7, 0.05 * 4.3, 0.7 / 6, 0.05, 0.05, 0.05, 0.05, 0.05 * 0.39]
    )
    assert [usual.sd for usual in assumed({1: 2.0})] == [0.05]


def test_the_beginning_of_a_run_is_not_usual_whatever_it_is() -> None:
    """Its loss falls from twenty to four: half of that is no margin."""
    first, second, *_ = assumed({200: 9.73, 400: 4.32, 600: 3.65, 800: 3.40})
    assert (round(first.low, 1), round(first.high, 1)) == (8.3, 11.2)
    assert (round(second.low, 1), round(second.high, 1)) == (3.7, 5.0)


SHIPPED = sorted(BANDS.glob("*.toml"))  # not in a test: those of tests have bands of their own


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_what_is_assumed_holds_for_what_is_shipped(file: Path) -> None:
    course = read_band(file).course
    for rows in (course.training, course.validation):
        guess = assumed({usual.step: usual.mean for usual in rows})
        if course.runs == 1:
            assert [usual.sd for usual in rows] == pytest.approx([usual.sd for usual in guess], abs=2e-4)
        else:  # several runs know better, and what is assumed of one alone must not be narrower than they differ
            least = 1.18 if course.recipe == "bert-small" else 2.1  # whose seeds differ more than any others'
            assert all(usual.margin > least * known.sd for usual, known in zip(guess, rows, strict=True))


def test_a_run_that_its_recipe_ends_early_came_to_its_end(runs: list[Path], tmp_path: Path) -> None:
    early = Path(shutil.copytree(runs[0], tmp_path / "early"))
    events = [json.loads(line) for line in (early / folder.METRICS).read_text(encoding="utf-8").splitlines()]
    (end,) = (event for event in events if event["event"] == "end")
    end["reason"] = "no improvement"
    (early / folder.METRICS).write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    with pytest.raises(DataError, match="came to its end"):
        band_of_runs([early])
    recipe = folder.read_recipe(early)
    patient = replace(recipe, training=replace(recipe.training, patience=3))
    (early / folder.RECIPE).write_text(settings.to_toml(patient), encoding="utf-8")
    assert band_of_runs([early]).course == band_of_runs(runs[:1]).course


def test_a_standard_deviation_takes_in_its_neighbours_and_is_never_less_than_its_own(
    runs: list[Path], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(runs[0], tmp_path / "other"))
    lines = (other / folder.METRICS).read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        if event["event"] == "step" and event["step"] in (31, 32):
            event["loss"] += 3.0
    (other / folder.METRICS).write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    found = {usual.step: usual.sd for usual in band_of_runs([other, *runs[1:]]).course.training}
    own = {}
    for step in (28, 30, 32, 34):
        means = [dict(Stretches(2).of(losses_of(run)))[step] for run in (other, *runs[1:])]
        own[step] = stdev(means)
    assert found[32] == pytest.approx(own[32])
    assert found[30] == pytest.approx((fmean(own[step] ** 2 for step in (28, 30, 32))) ** 0.5)
    assert own[30] < found[30] < found[32]


def test_a_step_that_was_skipped_has_no_loss(runs: list[Path], tmp_path: Path) -> None:
    place = Path(shutil.copytree(runs[0], tmp_path / "run"))
    events = read_metrics(place / folder.METRICS)
    losses = {event["step"]: event for event in events if event["event"] == "step"}
    losses[31] |= {"skipped": 1, "loss": 0.0}
    (place / folder.METRICS).write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    means = {usual.step: usual.mean for usual in band_of_runs([place]).course.training}
    assert means[32] == losses[32]["loss"]


@pytest.mark.parametrize(("steps", "stretch"), [(1, 1), (40, 2), (99, 2), (100, 5), (199, 5), (200, 10), (10_000, 500)])
def test_a_run_has_twenty_stretches_of_a_round_length(steps: int, stretch: int) -> None:
    assert _round_below(steps / STRETCHES) == stretch


def losses_of(run: Path) -> list[tuple[int, int, float]]:
    events = read_metrics(run / folder.METRICS)
    return [(event["step"], event["steps"], event["loss"]) for event in events if event["event"] == "step"]


def test_the_command_is_kept_without_the_folders_of_one_machine(runs: list[Path], tmp_path: Path) -> None:
    place = Path(shutil.copytree(runs[0], tmp_path / "run"))
    first, rest = (place / folder.METRICS).read_text(encoding="utf-8").split("\n", 1)
    typed = "regard train pairs data.source=/corpora/a/words.en data.target=words.de seed=1 {}"
    for out in ("--out /models/pairs", "--out=/models/pairs"):
        start = json.dumps({**json.loads(first), "command": typed.format(out)})
        (place / folder.METRICS).write_text(f"{start}\n{rest}", encoding="utf-8")
        assert band_of_runs([place]).command == "regard train pairs data.source=words.en data.target=words.de seed=1"


def test_runs_that_do_not_belong_together_are_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a seed of its own"):
        band_of_runs([runs[0], runs[0]])
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        band_of_runs([runs[0], tmp_path])
    other, clocked = (Path(shutil.copytree(runs[1], tmp_path / name)) for name in ("other", "clocked"))
    text = (other / folder.RECIPE).read_text(encoding="utf-8")
    (other / folder.RECIPE).write_text(text.replace("factor = 0.3", "factor = 0.4"), encoding="utf-8")
    with pytest.raises(UsageError, match="differ in their seed alone, but its settings differ"):
        band_of_runs([runs[0], other])
    linear = text.replace('schedule = "paper"', 'schedule = "linear"')
    for place, minutes in ((other, 5.0), (clocked, 500.0)):
        timed = linear.replace("by_clock = false", f"by_clock = true\nminutes = {minutes}")
        (place / folder.RECIPE).write_text(timed.replace("seed = 2", f"seed = {minutes:.0f}"), encoding="utf-8")
    with pytest.raises(UsageError, match="differ in their seed alone, but its settings differ"):
        band_of_runs([other, clocked])
    (other / folder.RECIPE).write_text(text, encoding="utf-8")
    metrics = (other / folder.METRICS).read_text(encoding="utf-8").splitlines()
    (other / folder.METRICS).write_text("\n".join(metrics[:50]), encoding="utf-8")
    with pytest.raises(DataError, match="came to its end"):
        band_of_runs([runs[0], other])
