"""Music from files to a model to files again, at toy size: every recipe of music, by the command line alone."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.folder import read_recipe
from regard.music.midi import read_midi
from tests.exploring.test_composing import music_model
from tests.music.scores import SCALE, midi, off, on, track
from tests.tiny import failed, regard

pytest.importorskip("symusic")
SMALL = [
    "model.layers=1", "model.d_model=16", "model.d_ff=16", "model.heads=2", "model.reach=8", "batch.row=32",
    "batch.tokens=128", "training.steps=6", "training.validate_every=3", "training.save_every=3",
    "training.optimiser.warmup=2", "data.transpose=1", "device=cpu",
]  # fmt: skip


def chorales(place: Path) -> str:
    pieces = [[[60 + step % 5, 57, 52, 45 + number] for step in range(12)] for number in range(6)]
    (place / "c.json").write_text(json.dumps({"train": pieces[:4], "valid": pieces[4:5], "test": pieces[5:]}))
    return str(place / "c.json")


def performances(place: Path) -> str:
    (place / "m").mkdir()
    for number in range(5):
        events = [event for pitch in range(60, 72) for event in ((0, on(pitch, 40 + number)), (240, off(pitch)))]
        (place / "m" / f"{number}.mid").write_bytes(midi(track(*events)))
    return str(place / "m")


@pytest.mark.parametrize("recipe", ["music-jsb", "music-jsb-quarter", "music-piano"])
def test_train_and_compose(recipe: str, tmp_path: Path) -> None:
    data = performances(tmp_path) if recipe == "music-piano" else chorales(tmp_path)
    model, out, roll = (str(tmp_path / name) for name in ("model", "out.mid", "roll.svg"))
    trained = regard("train", recipe, f"data.music={data}", *SMALL, "--out", model)
    assert f"regard generate {model} --midi out.mid" in trained.err
    (tmp_path / "in.mid").write_bytes(SCALE)
    more = ["--seed", "2", "--max-tokens", "40", "--midi", out, "--roll", roll]
    fresh = regard("generate", model, *more)
    assert "seed 2" in fresh.err
    assert fresh.out == ""
    notes = read_midi(Path(out).read_bytes()).notes
    assert notes
    if recipe.startswith("music-jsb"):
        step = 0.75 if recipe == "music-jsb-quarter" else 0.1875
        assert all((note.start / step) % 1 < 0.01 or (note.start / step) % 1 > 0.99 for note in notes)
    ElementTree.parse(roll)
    primed = regard("generate", model, "--primer", str(tmp_path / "in.mid"), "--count", "2", *more)
    assert "after 4 of the primer" in primed.err
    pieces = [read_midi((tmp_path / f"out-{number}.mid").read_bytes()) for number in (1, 2)]
    for piece in pieces:
        assert {60, 62, 64, 65} <= {note.pitch for note in piece.notes}
        assert len(piece.notes) > 4
    assert pieces[0] != pieces[1]
    again = regard("generate", model, *more)
    assert again.err == fresh.err
    assert read_midi(Path(out).read_bytes()).notes == notes


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    here, out = str(tmp_path), str(tmp_path / "o.mid")
    failed(regard("generate", here, "--primer", "in.mid"), 2, "--primer needs --midi or --roll")
    failed(regard("generate", here, "S60", "--midi", out), 2, "not with a text, but there is a PROMPT")
    failed(regard("generate", here, "--json", "--midi", out), 2, "write whole files")
    failed(regard("generate", here, "--lines", "4", "--midi", out), 2, "music has no lines, but --lines is 4")
    failed(regard("generate", here, "--midi", out, "--roll", f"{here}/./o.mid"), 2, "must name two files")


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["tokenizer.encoding=chorale"], 'the encodings are "performance" and "chorale"'),
        (["tokenizer.grid=1"], "the grids are 4 and 1"),
        (["tokenizer={kind='bytes'}"], 'is "bytes"'),
        (["data={kind='text', text='a.txt'}"], '`data.kind` is "text"'),
    ],
)
def test_music_and_its_vocabulary_belong_together(overrides: list[str], found: str, tmp_path: Path) -> None:
    ran = regard("train", "music-piano", *overrides, "--out", str(tmp_path / "model"))
    failed(ran, 2, '`tokenizer.kind` must be "music"', found)


def test_a_roll_without_lines_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, roll = music_model(tmp_path / "model", "chorale"), tmp_path / "roll.svg"
    more = ["--max-tokens", "24", "--roll", str(roll)]
    assert regard("generate", model, *more).code == 0
    assert "attention of layer 2 of 2" in roll.read_text()
    monkeypatch.setattr("regard.exploring.composing.LEAST", 2.0)
    assert regard("generate", model, *more).code == 0
    assert "no note got 200% of a head in layer 2 of 2" in roll.read_text()


def test_one_note_is_one_note(tmp_path: Path) -> None:
    model, out = music_model(tmp_path / "model", "chorale"), tmp_path / "out.mid"
    written = regard("generate", model, "--max-tokens", "1", "--midi", out)
    assert f"{out}: 1 note, " in written.err


def test_pieces_drawn_some_at_a_time_are_those_drawn_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = music_model(tmp_path / "model", "chorale")
    more = ["--max-tokens", "24", "--count", "3", "--midi"]
    assert regard("generate", model, *more, tmp_path / "a.mid").code == 0
    monkeypatch.setattr("regard.cli.composing.PIECES", 2)
    assert regard("generate", model, *more, tmp_path / "b.mid").code == 0
    one, other = ([(tmp_path / f"{name}-{number}.mid").read_bytes() for number in (1, 2, 3)] for name in "ab")
    assert one == other
    assert len(set(one)) == 3


def test_another_recipe_is_not_needed_to_go_on(tmp_path: Path) -> None:
    before = music_model(tmp_path / "before", "chorale", "data.grid=1")
    changes = [f"data.music={chorales(tmp_path)}", "training.steps=2", "device=cpu", "log.tensorboard=false"]
    assert regard("train", f"init={before}", *changes, "--out", tmp_path / "after").code == 0
    found = read_recipe(tmp_path / "after")
    assert (found.tokenizer, found.data.grid) == (read_recipe(before).tokenizer, 1)  # type: ignore[union-attr]
