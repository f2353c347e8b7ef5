"""metrics.jsonl and the status line of a training run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from regard.status import StatusLine
from regard.training.log import TrainingLog
from regard.training.trainer import StepReport


def report(step: int, loss: float = 2.0) -> StepReport:
    return StepReport(step, loss, 1e-3, 0.5, 100)


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_every_event_is_a_line_of_json_at_once(metrics: Path) -> None:
    log = TrainingLog(metrics, steps=2, first=0, status=StatusLine(io.StringIO()))
    log.step(report(1))
    assert len(lines(metrics)) == 1  # a reader need not wait for the end
    log.event("validation", {"step": 1, "nll": 0.5, "perplexity": 1.6})
    log.close()
    step, validation = lines(metrics)
    assert set(step) == {"event", "step", "loss", "learning_rate", "gradient_norm", "tokens", "seconds"}
    assert (step["event"], step["step"], step["loss"], step["tokens"]) == ("step", 1, 2.0, 100)
    assert validation["event"] == "validation"
    assert set(validation) == {"event", "step", "nll", "perplexity", "seconds"}


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


def test_the_last_step_is_always_shown_with_the_mean_loss(metrics: Path) -> None:
    stream = io.StringIO()
    log = TrainingLog(metrics, steps=2, first=0, status=StatusLine(stream))
    log.step(report(1, loss=4.0))
    log.step(report(2, loss=2.0))
    log.say("done")
    log.close()
    shown, said = stream.getvalue().split("\n")[:-1]
    assert shown.startswith("step 2/2  loss 3.000  ")
    assert shown.endswith("0:00 left")
    assert said == "done"
