"""Two text files of one's own: train, translate, score, look, share; every command as the tutorial types it."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch

import regard as library
from tests.tiny import ENGLISH, GERMAN, regard, write_lines

SETTINGS = (
    "tokenizer.vocabulary=120",
    "model={encoder_layers=1, decoder_layers=1, d_model=64, d_ff=128, heads=2, dropout=0.0, norm='pre'}",
    "training={steps=80, validate_every=80, save_every=80, keep=1, average=1, label_smoothing=0.0}",
    "training.optimiser={warmup=20, clip=1.0}",
    "batch.tokens=512",
    "search={beam=2, extra_length=5}",
)


def test_from_two_files_to_a_model_that_can_be_given_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Each word alone and with marks, so that all are learned though some lines are held out; one side is
    # compressed, and its last line has no end.
    marks = ("", "!", "?", ".", ",", ";", ":", " -")
    source, target = ([f"{word}{mark}" for mark in marks for word in words] for words in (ENGLISH, GERMAN))
    write_lines(Path("corpus.en"), source)
    Path("corpus.de.gz").write_bytes(gzip.compress("\n".join(target).encode()))

    with torch.random.fork_rng():
        ran = regard("train", *SETTINGS, "--source", "corpus.en", "--target", "corpus.de.gz", "--out", "runs/mine")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "The model is in runs/mine. Try: regard translate runs/mine" in ran.err

    # The folder is all that is needed: the corpus may go, the folder may move.
    Path("corpus.en").unlink()
    shutil.rmtree("runs/mine/checkpoints")
    Path("runs/mine").rename("given away")
    words = [word for word in ENGLISH if word in ("one", "two", "ten")]
    translated = regard("translate", "given away", stdin="\n".join(words).encode())
    assert translated.code == 0
    assert translated.out.count("\n") == 3
    model = library.load("given away")
    assert model.translate(words) == translated.out.split("\n")[:-1]
    right = sum(model.translate([one])[0] == other for one, other in zip(ENGLISH, GERMAN, strict=True))
    assert right >= 8  # a few words were held out

    write_lines(Path("test.en"), ENGLISH)
    write_lines(Path("test.de"), GERMAN)
    scores = json.loads(regard("evaluate", "given away", "test.en", "test.de", "--json").out)["scores"]
    assert (scores[0]["name"], scores[0]["value"]) == ("exact match", pytest.approx(100 * right / 13))
    assert regard("view", "given away", "one two").code == 0
    assert "one two" in Path("attention.html").read_text(encoding="utf-8")
    assert regard("inspect", "given away").out.startswith("mine: transformer")
    # Without arguments, evaluate and resume look for the corpus, and say that it is gone.
    gone = regard("train", "--resume", "--out", "given away")
    assert (gone.code, gone.out) == (66, "")
    assert "corpus.en: there is no such file" in gone.err
    assert library.load("given away").translate(["one"]) == model.translate(["one"])
