"""Models of ours in ONNX: every score of theirs is ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.batch import Batch, Places, Tokens
from regard.engines.onnx import OnnxModel
from regard.errors import UsageError
from regard.interop import onnx as interop
from regard.interop.export import export
from tests.interop.exported import GPTS, SMALL, TRANSLATORS, empty, random_model, random_sources

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ODD = {
    "odd": "{encoder_layers=1, decoder_layers=1, d_model=15, d_ff=24, heads=3, d_k=6, d_v=7, dropout=0.0, window=3}",
    "tanh": '{encoder_layers=1, decoder_layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, activation="gelu-tanh"}',
    "relu2": '{encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0, activation="relu2"}',
    "turned": "{encoder_layers=2, decoder_layers=2, d_model=15, d_ff=24, heads=3, d_k=6, d_v=7, dropout=0.0, window=3, "
    'positions="rotary"}',
    "relative": f'{{{SMALL}, positions="relative", reach=2}}',
    "normed": f"{{{SMALL}, qk_norm=true, norm_epsilon=1e-2}}",
    "normed turned": f'{{{SMALL}, qk_norm=true, norm_epsilon=1e-2, positions="rotary", d_v=5}}',
    "normed gpt": '{kind="gpt", layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, positions="alibi", qk_norm=true}',
    "sloping": '{encoder_layers=1, decoder_layers=2, d_model=24, d_ff=24, heads=3, dropout=0.0, positions="alibi"}',
    "sloping gpt": '{kind="gpt", layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, positions="alibi", window=4}',
    "relative gpt": '{kind="gpt", layers=2, d_model=16, d_ff=24, heads=2, d_k=5, dropout=0.0, positions="relative"}',
}
INSIDE = ["five-minutes", "turned", "relative", "sloping", "rotary", "relative gpt", "sloping gpt"]


@pytest.mark.parametrize("kind", [*TRANSLATORS, *ODD, *GPTS])
@torch.inference_mode()
def test_scores_agree_all_at_once_and_step_by_step(kind: str, tmp_path: Path) -> None:
    loaded = random_model((TRANSLATORS | ODD | GPTS)[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    for file in (tmp_path / "out").glob("*.onnx"):
        onnx.checker.check_model(str(file), full_check=True)
    theirs = OnnxModel(tmp_path / "out", loaded.recipe.model, loaded.model.vocabulary)
    assert theirs.reads_source == loaded.model.reads_source
    sources = random_sources(loaded, 5)
    source = Tokens.padded(sources, 0) if theirs.reads_source else None
    target = Tokens.padded([[1, *ids[:-1]] for ids in reversed(sources)], 0)
    real = target.places.segments_or_ones().bool()
    batch = Batch(source, target, target.ids_BT)
    assert (theirs(batch) - loaded.model(batch))[real].abs().max() < 1e-4
    states = [model.start(source, 5) for model in (theirs, loaded.model)]
    kept = torch.tensor([4, 4, 2, 2, 0, 0])  # three sentences with two beams each
    for place in range(6):
        tokens = torch.randint(4, 30, (5 if place < 2 else 6, 2 if place == 4 else 1))
        (found, states[0]), (wanted, states[1]) = (
            theirs.step(tokens, states[0]), loaded.model.step(tokens, states[1])
        )  # fmt: skip
        assert (found - wanted).abs().max() < 1e-4
        if place == 1:
            states = [state.select(kept) for state in states]


@pytest.mark.parametrize("kind", INSIDE)
@torch.inference_mode()
def test_sentences_that_share_a_row_have_positions_of_their_own(kind: str, tmp_path: Path) -> None:
    loaded = random_model((TRANSLATORS | ODD | GPTS)[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    theirs = OnnxModel(tmp_path / "out", loaded.recipe.model, loaded.model.vocabulary)
    places = Places(torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0]]), torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 0]]))
    text = Tokens(torch.tensor([[9, 7, 11, 8, 3, 5, 12, 3, 0]]), places)
    batch = Batch(text if theirs.reads_source else None, text, text.ids_BT)
    assert (theirs(batch) - loaded.model(batch))[:, :-1].abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["five-minutes", "turned", "relative", "sloping", "normed turned"])
def test_beams_find_the_same_texts_with_positions_inside_attention(kind: str, tmp_path: Path) -> None:
    texts = ["one two three", "four", "a b c d e f g", "seven six five", "eins zwei", "k l", "h i j a", "drei"]
    found = export(random_model((TRANSLATORS | ODD)[kind]), tmp_path / "out", "onnx", texts=texts).proof
    assert found is not None
    assert found.passed, found.to_text()


@torch.inference_mode()
def test_rotary_positions_have_no_end(tmp_path: Path) -> None:
    loaded = random_model(GPTS["rotary"])
    interop.write(loaded, empty(tmp_path / "out"))
    theirs = OnnxModel(tmp_path / "out", loaded.recipe.model, loaded.model.vocabulary)
    assert theirs.context is None
    ids = torch.randint(4, 30, (1, 2_100), generator=torch.Generator().manual_seed(1))
    states = [model.step(ids, model.start(None, 1))[1] for model in (theirs, loaded.model)]
    found, wanted = (
        model.step(torch.tensor([[7, 8]]), state)[0]
        for model, state in zip((theirs, loaded.model), states, strict=True)
    )
    assert (found - wanted).abs().max() < 1e-4


def test_what_is_not_exported_is_named(tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS["paper"].replace("dropout=0.0", 'dropout=0.0, positions="relative-waves"'))
    with pytest.raises(UsageError, match='positions = "relative-waves"'):
        interop.write(loaded, empty(tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    loaded = random_model(
        TRANSLATORS["paper"].replace("dropout=0.0", "dropout=0.0, tie='all'"), ["tokenizer.vocabulary=200"]
    )
    interop.write(loaded, empty(tmp_path / "out"))
    table = loaded.model.vocabulary * 16
    graph = onnx.load(tmp_path / "out/decoder.onnx").graph
    assert sum(len(weight.raw_data) == 4 * table for weight in graph.initializer) == 1


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "alibi"])
@torch.inference_mode()
def test_8_bits_are_near_and_other_rows_do_not_matter(positions: str, tmp_path: Path) -> None:
    sizes = "encoder_layers=1, decoder_layers=1, d_model=128, d_ff=256, heads=2, dropout=0.0"
    loaded = random_model(f'{{{sizes}, positions="{positions}"}}')
    interop.write(loaded, empty(tmp_path / "small"), "int8")
    interop.write(loaded, empty(tmp_path / "whole"))
    bytes_ = [(tmp_path / name / "decoder.onnx").stat().st_size for name in ("small", "whole")]
    assert bytes_[0] < bytes_[1] / 2
    small = OnnxModel(tmp_path / "small", loaded.recipe.model, loaded.model.vocabulary)
    sources = random_sources(loaded, 6)
    source, tokens = Tokens.padded(sources, 0), torch.full((6, 1), 1)
    found, _ = small.step(tokens, small.start(source, 6))
    wanted, _ = loaded.model.step(tokens, loaded.model.start(source, 6))
    assert 0 < (found - wanted).norm() < 0.05 * wanted.norm()
    for row in range(6):
        alone, _ = small.step(tokens[:1], small.start(Tokens.padded(sources[row : row + 1], 0), 1))
        # A difference in the last bit may tip an input to the next of 256 levels; a scale shared by rows would do more.
        assert (alone[0] - found[row]).norm() < 0.03 * found[row].norm()
