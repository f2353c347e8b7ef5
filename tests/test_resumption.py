"""Going on is proved, also where rows go on from batch to batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard import experiment
from regard.recipe import build_recipe
from regard.resumption import verify_resume
from regard.training import checkpoint
from regard.training.trainer import Trainer
from tests.tiny import write_lines


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent language model that has read a text in rows that go on."""
    place = tmp_path_factory.mktemp("stream")
    text = write_lines(place / "text", ["the cat sat on the mat", "a dog ate the cat"] * 40)
    settings = [
        f"data={{kind='text', text='{text}', held_out=0.2}}",
        "tokenizer={kind='words'}",
        "model={kind='recurrent-lm', d_model=16, dropout=0.2, spread=0.05}",
        "batch={layout='stream', tokens=40, row=10}",
        "training={steps=17, validate_every=17, save_every=8, keep=2, average=1, label_smoothing=0.0}",
        "training.optimiser={kind='sgd', schedule='steps', rate=5.0, warmup=0, clip=0.5}",
        "log.tensorboard=false",
        "device=cpu",
    ]
    with torch.random.fork_rng():
        experiment.train(build_recipe({}, settings, "stream"), place / "out")
    return place / "out"


def test_a_stream_goes_on_to_the_bit(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verify_resume(stream)
    assert (found.step, found.different) == (17, [])
    assert found.to_json()["passed"] is True
    load = checkpoint.load

    def forgetful(place: Path, checked: bool = False) -> checkpoint.Snapshot:
        snapshot = load(place, checked)
        snapshot.carried.clear()
        return snapshot

    # A run that forgets what its rows go on from must not pass.
    start = checkpoint.newest(stream / "checkpoints")
    monkeypatch.setattr(checkpoint, "load", forgetful)
    monkeypatch.setattr(checkpoint, "newest", lambda *_: start)
    assert verify_resume(stream).different != []
    assert "tensors differ" in str(verify_resume(stream))


def test_what_rows_go_on_from_is_compared_as_well(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, made = Trainer.snapshot, []

    def spoilt(self: Trainer) -> checkpoint.Snapshot:
        made.append(snapshot(self))
        if len(made) == 3:  # at the end of the run with a stop
            made[-1].carried["0.output"] += 1
        return made[-1]

    monkeypatch.setattr(Trainer, "snapshot", spoilt)
    assert verify_resume(stream).different == ["carried/0.output"]
