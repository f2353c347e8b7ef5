"""Source and target in one sequence: the contracts are in tests/contracts; here is what they cannot see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.batch import IGNORED, Batch, Places, Specials, Tokens
from regard.data.batching import Batches, BatchSettings, collate
from regard.errors import UsageError
from regard.models.decoder_only import (
    DecoderOnly,
    DecoderOnlySettings,
    JointDecoderOnly,
    decoder_only,
    following,
    next_in_sentence,
)
from regard.models.gpt import GPT, GPTSettings
from regard.training.loss import smoothed_cross_entropy

SPECIALS = Specials(padding=0, start=1, end=2)
SMALL = DecoderOnlySettings(layers=2, d_model=16, d_ff=24, heads=2, positions="rotary", dropout=0.0)
CRITERION = smoothed_cross_entropy(0.0)
PAIRS = [([5, 6, 7], [8, 9]), ([4], [3, 3, 3])]


def gpt_of(model: DecoderOnly, settings: DecoderOnlySettings) -> GPT:
    """The language model with the same weights."""
    own = {name: getattr(settings, name) for name in ("layers", "d_model", "d_ff", "heads", "positions", "dropout")}
    gpt = GPT(GPTSettings(**own), model.vocabulary)
    gpt.load_state_dict(model.state_dict())
    return gpt.eval()


def test_what_is_added_to_the_residual_starts_smaller_the_more_layers_add_to_it() -> None:
    """GPT-2's 0.02, and for the two outputs of each layer 0.02 / √(2·layers)."""
    torch.manual_seed(0)
    for layer in GPT(GPTSettings(layers=8, d_model=64, d_ff=128, heads=2), 12).layers:
        weights = {name: layer.get_parameter(f"{name}.weight") for name in ("attention.query", "feedforward.inner")}
        assert [weight.std().item() for weight in weights.values()] == pytest.approx([0.02, 0.02], rel=0.05)
        outputs = [layer.get_parameter(f"{name}.weight") for name in ("attention.output", "feedforward.outer")]
        assert [weight.std().item() for weight in outputs] == pytest.approx([0.005, 0.005], rel=0.05)


def test_it_is_a_language_model_that_reads_the_source_first() -> None:
    torch.manual_seed(0)
    model = decoder_only(SMALL, 12).eval()
    gpt = gpt_of(model, SMALL)
    found_BTV = model(collate(PAIRS, SPECIALS))
    for row, (source, target) in enumerate(PAIRS):
        read = [*source, SPECIALS.end, SPECIALS.start, *target]
        ids = torch.tensor([read])
        wanted_TV = gpt(Batch(None, Tokens.whole(ids), torch.full_like(ids, IGNORED)))[0, len(source) + 1 :]
        torch.testing.assert_close(found_BTV[row, : len(target) + 1], wanted_TV, atol=1e-5, rtol=1e-5)


def test_the_last_layer_computes_nothing_of_the_source_but_what_it_keeps() -> None:
    """Nobody asks what comes after a token of the source, and no layer above would read it."""
    model, ran = decoder_only(SMALL, 12).eval(), []
    for number, layer in enumerate(model.layers):
        layer.get_submodule("feedforward").register_forward_hook(lambda *_, number=number: ran.append(number))
    state = model.start(Tokens.whole(torch.tensor([[5, 6, 7]])), 1)
    assert ran == [0]
    assert [layer.keys_BHKE.shape[2] for layer in state.layers] == [3, 3]


def test_pairs_that_share_a_row_are_as_if_alone() -> None:
    torch.manual_seed(0)
    model = decoder_only(SMALL, 12).eval()
    batch = Batches(PAIRS, SPECIALS, BatchSettings(tokens=32, layout="packed", row=16), 1)[0]
    assert batch.target.places.segments_BT is not None
    assert int(batch.target.places.segments_BT.max()) == 2
    alone = {tuple(target): CRITERION(model.logits, model.features(one), one.labels_BT)[one.labels_BT != IGNORED]
             for source, target in PAIRS for one in [collate([(source, target)], SPECIALS)]}  # fmt: skip
    losses_BT = CRITERION(model.logits, model.features(batch), batch.labels_BT)
    for segment in (1, 2):
        inside_BT = batch.target.places.segments_BT == segment
        key = tuple(batch.labels_BT[inside_BT][:-1].tolist())
        torch.testing.assert_close(losses_BT[inside_BT], alone[key], atol=1e-5, rtol=1e-5)


def test_targets_go_on_where_their_own_source_ends() -> None:
    source = Places(torch.tensor([[0, 1, 0, 0]]), torch.tensor([[1, 1, 2, 0]]))
    target = Places(torch.tensor([[0, 0, 1, 0, 0]]), torch.tensor([[1, 2, 2, 0, 0]]))
    found = following(source, target)
    assert found.positions_BT.tolist() == [[2, 1, 2, 0, 0]]
    whole = following(Places.whole(torch.zeros(1, 3)), Places.whole(torch.zeros(1, 2)))
    assert (whole.positions_BT.tolist(), whole.segments_BT) == ([[3, 4]], None)


def test_the_loss_is_on_the_target_or_on_both() -> None:
    torch.manual_seed(0)
    batch = collate(PAIRS, SPECIALS)
    plain, both = decoder_only(SMALL, 12), decoder_only(replace(SMALL, source_loss=0.5), 12)
    assert (type(plain), type(both)) == (DecoderOnly, JointDecoderOnly)
    both.load_state_dict(plain.state_dict())
    target_BT = plain.losses(batch, CRITERION)
    joint_BU = both.losses(batch, CRITERION)
    assert batch.source is not None
    length = batch.source.ids_BT.shape[1]
    torch.testing.assert_close(joint_BU[:, length:], target_BT)
    # The source's loss is that of a language model, times its weight: x_1 stands before all, <end> after all.
    ids = torch.tensor([[5, 6, 7, 2]])
    labels = torch.tensor([[6, 7, 2, IGNORED]])
    gpt = gpt_of(plain, SMALL)
    wanted_BT = gpt.losses(Batch(None, Tokens.whole(ids), labels), CRITERION)
    torch.testing.assert_close(joint_BU[0, :length], 0.5 * wanted_BT[0], atol=1e-5, rtol=1e-5)


def test_what_comes_next_in_a_sentence() -> None:
    tokens = Tokens(torch.tensor([[5, 6, 2, 7, 2, 0]]), Places(torch.zeros(1, 6), torch.tensor([[1, 1, 1, 2, 2, 0]])))
    assert next_in_sentence(tokens).tolist() == [[6, 2, IGNORED, 2, IGNORED, IGNORED]]


def test_source_and_target_share_the_learned_positions() -> None:
    model = decoder_only(replace(SMALL, positions="learned", max_positions=10), 12).eval()
    assert model.context == 5
    model(collate([([5] * 4, [6] * 4)], SPECIALS))
    with pytest.raises(UsageError, match="at most 10 tokens, since positions are learned up to"):
        model(collate([([5] * 6, [6] * 6)], SPECIALS))


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="`source_loss` must be at least 0 and finite, but is -1"):
        replace(SMALL, source_loss=-1.0)
