"""Music that is drawn, and lines that are the model's own weights."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from regard import load
from regard.api import Model
from regard.decoding.sampling import SamplingSettings
from regard.errors import DataError, UsageError
from regard.music.encoding import Encoding, read_words
from regard.music.midi import read_midi, write_midi
from regard.viewing.capture import Call
from regard.viewing.figures import AttentionMap
from tests.music.scores import SCALE
from tests.tiny import language_model

pytest.importorskip("symusic")
SHORT = SamplingSettings(max_tokens=24)


def music_model(place: Path, encoding: Encoding, *more: str) -> Path:
    """A folder with a model of music that has learned nothing."""
    settings = [
        f"data={{kind='music', music='none.json', encoding='{encoding}'}}",
        "tokenizer={kind='music'}",
        "model={kind='gpt', layers=2, d_model=16, d_ff=24, heads=2, positions='relative', reach=8, dropout=0.0}",
    ]
    return language_model(place, [*settings, *more])


@pytest.fixture(scope="module", params=["chorale", "performance"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(music_model(tmp_path_factory.mktemp("model"), request.param))


def test_the_same_seed_gives_the_same_piece(model: Model) -> None:
    one, two = model.compose(None, SHORT, seed=3, count=2)
    assert one == model.compose(None, SHORT, seed=3)[0]
    assert (one.seed, two.seed) == (3, 4)
    assert one.words != two.words
    assert one.primer == 0
    assert not one.primed


def test_a_primer_is_what_the_piece_begins_with(model: Model) -> None:
    (found,) = model.compose(SCALE, SHORT, seed=1)
    assert found.primer > 0
    assert len(found.primed) == 4
    assert [note.pitch for note in found.piece.notes if note.start < 0.1][:1] == [60] or len(found.piece.notes) > 4
    known = read_words(found.words[: found.primer], "chorale" if found.words[0][0] == "S" else "performance").piece
    assert [note.pitch for note in known.notes] == [60, 62, 64, 65]


def test_a_grid_is_read_and_written(tmp_path: Path) -> None:
    quarters = load(music_model(tmp_path / "model", "chorale", "data.grid=1"))
    (found,) = quarters.compose(SCALE, SHORT, seed=1)
    assert found.primer == 4 * 4  # four quarters
    assert [round(note.start, 2) for note in found.piece.notes if note.start < 3][:2] == [0.0, 0.75]


def test_a_primer_that_is_cut_begins_with_a_whole_step(tmp_path: Path) -> None:
    chorale = load(music_model(tmp_path / "model", "chorale", "model.positions=learned", "model.max_positions=70"))
    (found,) = chorale.compose(SCALE, SHORT, seed=1)
    assert (found.primer, found.prompt_cut) == (32, 32)
    assert found.words[0] == "S64"


def test_as_json(model: Model) -> None:
    (found,) = model.compose(SCALE, SHORT, seed=1)
    plain = found.to_json()
    assert plain["notes"] == found.piece.to_json()
    assert plain["primed"] == sorted(found.primed)
    assert base64.b64decode(str(plain["midi"])) == write_midi(found.piece)
    read_midi(base64.b64decode(str(plain["midi"])))


def test_a_bad_primer_is_refused(model: Model) -> None:
    with pytest.raises(DataError, match=r"in\.mid: must be a MIDI file"):
        model.compose(b"nothing", SHORT, place="in.mid")


def test_lines_are_the_weights_of_the_layer(model: Model) -> None:
    (piece,) = model.compose(SCALE, SHORT, seed=2)
    found = model.note_attention(piece, layer=0)
    assert (found.layer, found.layers, found.heads) == (0, 2, 2)
    assert found.lines
    maps: list[AttentionMap] = []
    ids = model.tokenizer.encode(" ".join(piece.words))
    Call(model.network, model.tokenizer, None, ids).show(maps.append)
    weights = next(one for one in maps if one.layer == 0).weights
    owners = piece.reading.owners
    for line in found.lines:
        row = owners.index(line.note)  # the first word of the note, and so the row that wrote it
        columns = [place + 1 for place, owner in enumerate(owners) if owner == line.seen]
        assert line.weight == pytest.approx(float(weights[line.head, row, columns].sum()), abs=1e-5)
        assert line.weight >= 0.05
    strongest = max(found.lines, key=lambda line: line.weight)
    row = owners.index(strongest.note)
    by_note = [np.sum([weights[strongest.head, row, place + 1] for place, owner in enumerate(owners) if owner == note])
               for note in range(len(piece.piece.notes))]  # fmt: skip
    assert strongest.weight == pytest.approx(max(by_note), abs=1e-5)


def test_the_last_layer_is_looked_at_unless_told(model: Model) -> None:
    (piece,) = model.compose(SCALE, SHORT)
    assert model.note_attention(piece) == model.note_attention(piece, 1)
    with pytest.raises(UsageError, match=r"layer: must be from 0 to 1, .*but is 2"):
        model.note_attention(piece, 2)


def test_a_model_of_text_composes_nothing(tmp_path: Path) -> None:
    model = load(language_model(tmp_path / "text"))
    with pytest.raises(UsageError, match="compose: needs a model of music, but `babble` was trained on text"):
        model.compose()
