"""Recurrent layers against torch's own with the same weights, and a published model that turns letters into sounds.

Shapes: B rows, T tokens, D model, X input.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.batch import Batch, Specials, Tokens
from regard.decoding.search import SearchSettings, beam_search
from regard.layers.interleaved import Column, InterleavedEncoder
from regard.layers.recurrent import (
    Cell,
    Hidden,
    Link,
    ReadingLayer,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentStack,
    StackSizes,
)
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("REGARD_DATA", ROOT / "../shared/data"))
TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([7, 1, 4])


def same(found: Tensor | None, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def states(end: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """torch's last states, [layers · directions, B, D] each: the output, and an LSTM's memory cell."""
    return end if isinstance(end, tuple) else (end,)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both ways"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_an_encoder_layer_is_torchs(cell: Cell, bidirectional: bool, padded: bool) -> None:
    torch.manual_seed(0)
    layer = ReadingLayer(StackSizes(cell, 1, 5, 6, dropout=0, bidirectional=bidirectional), 5, keep_cell=True)
    theirs = TORCH[cell](5, 3 if bidirectional else 6, batch_first=True, bidirectional=bidirectional)
    named = dict(layer.left_to_right.kernel.named_parameters())
    if layer.right_to_left is not None:
        named |= {f"{name}_reverse": weight for name, weight in layer.right_to_left.kernel.named_parameters()}
    theirs.load_state_dict(named)

    x_BTX = torch.randn(3, 7, 5)
    found_BTD, end = layer(x_BTX, LENGTHS if padded else None)
    if padded:
        packed = pack_padded_sequence(x_BTX, LENGTHS, batch_first=True, enforce_sorted=False)
        wanted, last = theirs(packed)
        wanted_BTD, _ = pad_packed_sequence(wanted, batch_first=True)
        real = torch.arange(7) < LENGTHS[:, None]
        found_BTD, wanted_BTD = found_BTD[real], wanted_BTD[real]
    else:
        wanted_BTD, last = theirs(x_BTX)
    same(found_BTD, wanted_BTD)
    for ours, wanted in zip((end.output_BD, end.cell_BD), states(last), strict=False):
        same(ours, torch.cat(wanted.unbind(0), dim=-1))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_stack_is_torchs_at_once_and_token_by_token(cell: Cell) -> None:
    torch.manual_seed(0)
    stack = RecurrentStack(StackSizes(cell, 2, 5, 6, dropout=0))
    theirs = TORCH[cell](5, 6, num_layers=2, batch_first=True)
    theirs.load_state_dict(
        {
            name.replace("_l0", f"_l{number}"): weight
            for number, layer in enumerate(stack.layers)
            for name, weight in layer.kernel.named_parameters()  # type: ignore[union-attr]
        }
    )
    x_BTX = torch.randn(3, 7, 5)
    wanted_BTD, last = theirs(x_BTX)
    for pieces in (x_BTX.split(7, dim=1), x_BTX.split(1, dim=1), x_BTX.split([4, 1, 2], dim=1)):
        hidden, found = stack.zero(3), []
        for piece in pieces:
            y_BTD, hidden = stack(piece, hidden)
            found.append(y_BTD)
        same(torch.cat(found, dim=1), wanted_BTD)
        for layer, end in enumerate(hidden):
            for ours, wanted in zip((end.output_BD, end.cell_BD), states(last), strict=False):
                same(ours, wanted[layer])


def torchs(layer: nn.Module, x_BTX: Tensor, turned: bool = False) -> Tensor:
    """What torch's LSTM makes of whole rows, from left to right or `turned`, with the weights of one of our layers."""
    kernel = layer.kernel
    assert isinstance(kernel, nn.LSTM)
    theirs = nn.LSTM(kernel.input_size, kernel.hidden_size, batch_first=True)
    theirs.load_state_dict(kernel.state_dict())
    y_BTD: Tensor = theirs(x_BTX.flip(1) if turned else x_BTX)[0]
    return y_BTD.flip(1) if turned else y_BTD


def test_gnmts_encoder_is_torchs_lstms_the_lowest_both_ways_with_sums_around_the_others() -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(StackSizes("lstm", 3, 5, 6, 0.0, "residual", "first"), keep_cells=False)
    x_BTX = torch.randn(3, 7, 5)
    lowest, second, third = encoder.layers
    assert isinstance(lowest, ReadingLayer)
    assert lowest.right_to_left is not None
    below = torch.cat([torchs(lowest.left_to_right, x_BTX), torchs(lowest.right_to_left, x_BTX, True)], dim=-1)
    for layer in (second, third):
        assert isinstance(layer, ReadingLayer)
        assert layer.right_to_left is None
        below = below + torchs(layer.left_to_right, below)
    same(encoder(x_BTX, None)[0], below)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_deep_atts_encoder_is_two_columns_of_torchs_lstms_that_turn_around(layers: int) -> None:
    torch.manual_seed(0)
    encoder = InterleavedEncoder(StackSizes("lstm", layers, 5, 6, 0.0, "fast-forward"), keep_cells=False)
    x_BTX = torch.randn(3, 7, 5)
    columns = []
    for first, column in enumerate(encoder.columns):
        assert isinstance(column, Column)
        road_BTX = x_BTX
        for number, (layer, link) in enumerate(zip(column.layers, column.links, strict=True)):
            y_BTD = torchs(layer, road_BTX, turned=(first + number) % 2 == 1)
            assert isinstance(link, Link)
            assert link.join is not None
            road_BTX = link.join(torch.cat([road_BTX, y_BTD], dim=-1))
        columns.append(road_BTX)
    same(encoder(x_BTX, None)[0], torch.cat(columns, dim=-1))


def test_deep_atts_columns_read_padded_rows_within_their_lengths() -> None:
    torch.manual_seed(0)
    encoder = InterleavedEncoder(StackSizes("lstm", 3, 5, 6, 0.0, "fast-forward"), keep_cells=True)
    x_BTX = torch.randn(3, 7, 5)
    padded_BTD, ends = encoder(x_BTX, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone_BTD, own = encoder(x_BTX[row : row + 1, :length], None)
        same(padded_BTD[row, :length], alone_BTD[0])
        for end, alone in zip(ends, own, strict=True):
            assert end.cell_BD is not None
            same(end.output_BD[row], alone.output_BD[0])
            same(end.cell_BD[row : row + 1], alone.cell_BD)


@torch.no_grad()
def test_gnmts_decoder_is_torchs_lstms_the_lowest_asks_and_all_read_the_answer() -> None:
    torch.manual_seed(0)
    settings = RecurrentSettings(
        cell="lstm", decoder_layers=3, d_model=6, links="residual", asks="bottom", feed_all=True, dropout=0
    )
    model = RecurrentEncoderDecoder(settings, vocabulary=9).eval()
    source, target_BT = Tokens.whole(torch.tensor([[3, 4, 5]])), torch.tensor([[1, 6, 7, 8]])
    state = model.start(source, rows=1)
    assert model.attention is not None
    assert state.memory is not None
    lowest, *others = [layer for layer in model.decoder.layers if isinstance(layer, RecurrentLayer)]
    bottom, contexts, below = state.hidden[0], [], []
    for token_B in target_BT.unbind(1):
        contexts.append(model.attention(bottom.output_BD[:, None], state.memory, None).context_BQD)
        x_B1X = torch.cat([model.embedding(token_B)[:, None], contexts[-1]], dim=-1)
        cell_BD = bottom.cell_BD
        assert cell_BD is not None
        y_B1D, (output, cell) = lowest.kernel(x_B1X, (bottom.output_BD[None], cell_BD[None]))
        bottom = Hidden(output[0], cell[0])
        below.append(y_B1D)
    x_BTD, context_BTD = torch.cat(below, dim=1), torch.cat(contexts, dim=1)
    for layer, start in zip(others, state.hidden[1:], strict=True):
        assert start.cell_BD is not None
        beside = torch.cat([x_BTD, context_BTD], dim=-1)
        x_BTD = x_BTD + layer.kernel(beside, (start.output_BD[None], start.cell_BD[None]))[0]
    same(model.features(Batch(source, Tokens.whole(target_BT), target_BT)), x_BTD)


LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
CONSONANTS = ["B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V"]
CONSONANTS += ["W", "Y", "Z", "ZH"]
VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
# Every vowel comes without stress, with main and with secondary stress; one slipped in without a mark.
STRESSED = [vowel + stress for vowel in VOWELS for stress in "012"]
SOUNDS = ["<pad>", "<unk>", "<s>", "</s>", *sorted([*CONSONANTS, *STRESSED, "UW"])]
# One vocabulary for both sides, as all our models have: first the letters, then the sounds.
SPECIALS = Specials(*(len(LETTERS) + SOUNDS.index(name) for name in ("<pad>", "<s>", "</s>")))


def letters_to_sounds(weights: dict[str, np.ndarray]) -> RecurrentEncoderDecoder:
    """Our model with the published weights: a GRU each way, and the last state as all that is handed over."""
    settings = RecurrentSettings(d_model=256, bidirectional=False, attention="none", context="last", tied=False)
    model = RecurrentEncoderDecoder(settings, len(LETTERS) + len(SOUNDS)).eval()
    tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    # A letter is never an answer.
    never, nothing = torch.full((len(LETTERS),), -torch.inf), torch.zeros(len(LETTERS), 256)
    ours = {
        "embedding.weight": torch.cat([tensors["enc_emb"], tensors["dec_emb"]]),
        "output.weight": torch.cat([nothing, tensors["fc_w"]]),
        "output_bias_V": torch.cat([never, tensors["fc_b"]]),
    }
    for side, kernel in {"enc": "encoder.layers.0.left_to_right.kernel", "dec": "decoder.layers.0.kernel"}.items():
        for theirs, name in {"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}.items():
            ours[f"{kernel}.{name}_l0"] = tensors[f"{side}_{theirs}"]
    model.load_state_dict(ours)
    return model


@pytest.mark.data
def test_published_weights_speak_as_their_package_does() -> None:
    path = DATA / "weights-g2p-gru/checkpoint20.npz"
    if not path.exists():
        pytest.skip(f"needs {path.name} in weights-g2p-gru of REGARD_DATA")
    with np.load(path) as weights:
        model = letters_to_sounds(dict(weights))
    lines = (Path(__file__).parent / "data/g2p_expected.tsv").read_text(encoding="utf-8").splitlines()
    words, wanted = zip(*(line.split("\t") for line in lines if not line.startswith("#")), strict=True)
    assert len(words) >= 500

    unknown = LETTERS.index("<unk>")
    spelled = [[LETTERS.index(c) if c in LETTERS else unknown for c in word] + [2] for word in words]
    found = beam_search(model, Tokens.padded(spelled, padding=0), SPECIALS, SearchSettings(beam=1))
    spoken = [[SOUNDS[token - len(LETTERS)] for token in best.tokens] for [best] in found]
    # Their decoder stops after 20 sounds.
    assert [" ".join(sounds[:20]) for sounds in spoken] == list(wanted)
