"""metrics.jsonl, the status line of a training run, and what happens when a number or a server fails."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.status import StatusLine
from regard.training.log import RECENT, Sample, TrainingLog, sample_lines
from regard.training.report import Ending, StepReport


def report(step: int, loss: float = 2.0, steps: int = 1, tokens: int = 100, skipped: int = 0) -> StepReport:
    return StepReport(step, steps, loss, 1e-3, 0.5, tokens, 0.25 * steps, skipped, padding=0.125, progress=0.5)


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Kept:
    """A sink that keeps what it is given, and breaks when told to."""

    name = "a server"

    def __init__(self, breaks_at: int = 1_000_000) -> None:
        self.values: dict[int, dict[str, float]] = {}
        self.breaks_at, self.closed = breaks_at, False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self.breaks_at:
            raise ConnectionError("no route")
        self.values.setdefault(step, {}).update(values)

    def close(self) -> None:
        self.closed = True
        if self.breaks_at == 0:
            raise ConnectionError("no route")


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_every_event_is_a_line_of_json_at_once(metrics: Path) -> None:
    log = TrainingLog(metrics, steps=2, first=0, status=StatusLine(io.StringIO()))
    log.step(report(10, steps=10, skipped=1))
    assert len(lines(metrics)) == 1  # a reader need not wait for the end
    log.event("validation", {"step": 10, "nll": 0.5, "perplexity": 1.6})
    log.end(Ending.done(10))
    log.close()
    step, validation, end = lines(metrics)
    seconds = step.pop("seconds")
    assert step == {
        "event": "step", "step": 10, "steps": 10, "loss": 2.0, "learning_rate": 1e-3, "gradient_norm": 0.5,
        "tokens": 100, "took": 2.5, "skipped": 1, "padding": 0.125, "progress": 0.5,
    }  # fmt: skip
    assert 0 <= seconds <= validation.pop("seconds")
    assert validation == {"event": "validation", "step": 10, "nll": 0.5, "perplexity": 1.6}
    assert (end["event"], end["reason"], end["sentence"]) == ("end", "done", "All 10 steps done.")


def test_what_is_no_number_is_null_not_nan(metrics: Path) -> None:
    log = TrainingLog(metrics, steps=9, first=0, status=StatusLine(io.StringIO()))
    log.step(report(1, loss=math.nan, skipped=1))
    log.event("validation", {"step": 1, "perplexity": math.inf})
    log.close()
    assert "NaN" not in metrics.read_text()
    assert [event.get("loss", event.get("perplexity")) for event in lines(metrics)] == [None, None]


def test_a_resumed_run_forgets_what_lies_beyond_its_checkpoint(metrics: Path) -> None:
    log = TrainingLog(metrics, steps=9, first=0, status=StatusLine(io.StringIO()))
    for step in range(1, 6):
        log.step(report(step))
    log.event("validation", {"step": 5, "nll": 1.0, "perplexity": 2.7})
    log.close()
    # Killed in the middle of a line, with a checkpoint of step 3.
    metrics.write_bytes(metrics.read_bytes() + b'{"event": "step", "st')
    log = TrainingLog(metrics, steps=9, first=3, status=StatusLine(io.StringIO()))
    log.step(report(4))
    log.close()
    assert [line["step"] for line in lines(metrics)] == [1, 2, 3, 4]


def test_rubbish_in_the_file_does_not_stop_a_run(metrics: Path) -> None:
    metrics.write_bytes(b'\xff\xfe\n[]\n3\n{"step": "x"}\n{"step": 1}')
    log = TrainingLog(metrics, steps=9, first=1, status=StatusLine(io.StringIO()))
    log.step(report(2))
    log.close()
    assert [line["step"] for line in lines(metrics)] == [1, 2]


def last_status(metrics: Path, *reports: StepReport) -> str:
    stream = io.StringIO()
    log = TrainingLog(metrics, steps=reports[-1].step, first=0, status=StatusLine(stream))
    for each in reports:
        log.step(each)
    log.close()
    return stream.getvalue().split("\n")[-2]


def test_the_last_step_is_always_shown_with_the_mean_loss(metrics: Path) -> None:
    shown = last_status(metrics, report(1, loss=4.0), report(2, loss=2.0))
    assert shown == "step 2/2  loss 3.000  rate 1.0e-03  400 tokens/s  0:00 left"


def test_a_report_of_several_steps_weighs_as_much_as_they_do(metrics: Path) -> None:
    assert "loss 2.500 " in last_status(metrics, report(1, loss=4.0), report(4, loss=2.0, steps=3))


@pytest.mark.parametrize("at_a_time", [1, 10, 20])
def test_the_loss_shown_is_the_mean_of_the_last_twenty_steps(metrics: Path, at_a_time: int) -> None:
    """So that it can be held against a usual course, whose losses are the means of stretches."""
    steps = range(at_a_time, 61, at_a_time)
    assert "loss 2.000 " in last_status(
        metrics, *(report(step, loss=9.0 if step <= 40 else 2.0, steps=at_a_time) for step in steps)
    )


def test_what_is_unusual_stands_at_the_end_of_the_line(metrics: Path) -> None:
    stream = io.StringIO()
    log = TrainingLog(metrics, steps=1, first=0, status=StatusLine(stream))
    log.step(report(1), "0.40 above the usual")
    log.close()
    assert stream.getvalue().splitlines()[-1].endswith("0:00 left  0.40 above the usual")


def test_skipped_steps_are_counted_and_have_no_loss(metrics: Path) -> None:
    shown = last_status(metrics, report(1, loss=4.0), report(2, loss=math.nan, skipped=1), report(3, loss=2.0))
    assert "loss 3.000 " in shown
    assert shown.endswith("0:00 left  1 skipped")


def test_speed_is_that_of_the_last_seconds(metrics: Path) -> None:
    slow = [report(step, tokens=1) for step in range(1, 5)]
    quick = [report(step, tokens=250) for step in range(5, 8 + 4 * int(RECENT))]
    assert " 1,000 tokens/s " in last_status(metrics, *slow, *quick)


def test_time_left_does_not_count_the_first_report(metrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    # This module's clock alone: with everybody's, a server in a thread of this process would sleep for hours.
    monkeypatch.setattr("regard.training.log.time", SimpleNamespace(monotonic=lambda: now[0]))
    stream = io.StringIO()
    status = StatusLine(stream)
    monkeypatch.setattr(status, "show", lambda line, now: status.say(line()))
    log = TrainingLog(metrics, steps=100, first=0, status=status)
    for step, seconds in ((10, 500.0), (20, 20.0), (30, 40.0)):  # the last one with a validation before it
        now[0] += seconds
        log.step(StepReport(step, 10, 2.0, 1e-3, 0.5, 100, seconds=min(seconds, 20.0)))
    log.close()
    # At first as slow as the steps themselves; then the clock: 60 s for 20 steps.
    lefts = [line.split("tokens/s  ")[1] for line in stream.getvalue().split("\n")[:-1]]
    assert lefts == ["3:00 left", "2:40 left", "3:30 left"]


@pytest.mark.parametrize(("left", "shown"), [(5.0, "0:05 left"), (1_000.0, "0:25 left")])
def test_time_left_is_what_a_limit_leaves(left: float, shown: str, metrics: Path) -> None:
    stream = io.StringIO()
    log = TrainingLog(metrics, steps=200, first=0, status=StatusLine(stream))
    log._status.show = lambda line, now: log.say(line())  # type: ignore[method-assign]
    log.step(report(100, steps=100), time_left=left)  # a quarter of a second each
    log.close()
    assert stream.getvalue().splitlines()[-1].endswith(shown)


def test_numbers_are_passed_on(metrics: Path) -> None:
    sink = Kept()
    log = TrainingLog(metrics, steps=9, first=0, status=StatusLine(io.StringIO()), sinks=[sink])
    log.step(report(4, steps=4))
    log.event("validation", {"step": 4, "nll": 0.5, "signature": "x", "better": True, "tokens": 7})
    log.event("start", {"step": 0, "command": "regard train"})
    log.close()
    assert sink.closed
    assert sink.values == {
        4: {
            "train/loss": 2.0, "train/learning_rate": 1e-3, "train/gradient_norm": 0.5, "train/tokens_per_second": 100,
            "validation/nll": 0.5,
        }
    }  # fmt: skip


def test_a_server_that_fails_ends_its_own_log_and_nothing_else(metrics: Path) -> None:
    stream = io.StringIO()
    broken, good, late = Kept(breaks_at=2), Kept(), Kept(breaks_at=0)
    log = TrainingLog(metrics, steps=9, first=0, status=StatusLine(stream), sinks=[broken, good])
    for step in (1, 2, 3):
        log.step(report(step))
    log.close()
    TrainingLog(metrics, steps=9, first=3, status=StatusLine(stream), sinks=[late]).close()
    assert (list(broken.values), list(good.values), len(lines(metrics))) == ([1], [1, 2, 3], 3)
    assert stream.getvalue().split("\n")[:-1] == [
        "warning: a server gets no more numbers of this run: no route. `metrics.jsonl` goes on.",
        "warning: a server: no route.",
    ]


def test_samples_are_cut_to_the_window() -> None:
    right = Sample("one", "eins", "eins")
    assert sample_lines(right, 40) == ["  ✓ one  →  eins"]
    wrong = Sample("a long sentence about nothing", "x", "ein langer Satz über nichts")
    assert sample_lines(wrong, 80) == ["  ✗ a long sentence about nothing  →  ein langer Satz über nichts"]
    assert sample_lines(wrong, 20) == ["  ✗ a long sentence…", "    → ein langer Sa…"]


def test_samples_are_said(metrics: Path) -> None:
    stream = io.StringIO()
    log = TrainingLog(metrics, steps=9, first=0, status=StatusLine(stream))
    log.samples([Sample("one", "eins", "eins"), Sample("two", "zwei", "drei")])
    log.close()
    assert stream.getvalue() == "  ✓ one  →  eins\n  ✗ two  →  drei\n"


def test_what_has_no_right_answer_is_not_marked_as_wrong() -> None:
    assert sample_lines(Sample("one", "eins", "eins"), 80) == ["  ✓ one  →  eins"]
    assert sample_lines(Sample("one", "eins", "zwei"), 80) == ["  ✗ one  →  zwei"]
    assert sample_lines(Sample("the cat", None, " sat"), 80) == ["  · the cat  →   sat"]
