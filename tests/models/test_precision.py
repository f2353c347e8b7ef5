"""A model in another precision gives the same scores, or nearly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.batch import Batch, Specials, Tokens
from regard.decoding.search import SearchSettings, beam_search
from regard.errors import UsageError
from regard.layers import quantised
from regard.layers.quantised import Int8Linear, PackedLinear, can_pack, can_quantise
from regard.models.gpt import GPT, GPTSettings
from regard.models.precision import Precision, convert
from regard.models.transformer import Transformer, TransformerSettings
from tests.contracts.zoo import ZOO

SIZES: dict[str, Any] = {"d_model": 32, "d_ff": 48, "heads": 2, "dropout": 0.0}
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def small_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "WORTHWHILE", 1)


def translator(tie: Any = "all") -> Transformer:
    torch.manual_seed(1)
    return Transformer(TransformerSettings(encoder_layers=2, decoder_layers=2, tie=tie, **SIZES), 40).eval()


def batch() -> Batch:
    source = Tokens.padded([[5, 6, 7], [8]], 0)
    return Batch(source, source, source.ids_BT)


@pytest.mark.parametrize(("precision", "kind", "tolerance"), [("fp32", PackedLinear, 1e-4), ("int8", Int8Linear, 0.2)])
@pytest.mark.parametrize("tie", ["all", "none"])
@torch.no_grad()
def test_scores_stay(precision: Precision, kind: type, tolerance: float, tie: str) -> None:
    if not (can_pack() if precision == "fp32" else can_quantise()):
        pytest.skip("torch has no such kernels here")
    model = translator(tie)
    wanted = model(batch())
    convert(model, precision)
    assert isinstance(model.output, kind)
    assert sum(isinstance(module, kind) for module in model.modules()) == 2 * 4 + 2 * 7 + 1
    assert not any(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(model(batch()), wanted, atol=tolerance, rtol=0)


@torch.no_grad()
def test_a_language_model_converts_too() -> None:
    torch.manual_seed(1)
    model = GPT(GPTSettings(layers=2, max_positions=16, **SIZES), 40).eval()
    ids = torch.randint(40, (2, 9))
    text = Batch(None, Tokens.whole(ids), ids)
    wanted = model(text)
    convert(model, "fp32")
    torch.testing.assert_close(model(text), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", sorted(ZOO))
@torch.no_grad()
def test_every_family_converts(name: str, precision: Precision) -> None:
    if not (can_pack() if precision == "fp32" else can_quantise()):
        pytest.skip("torch has no such kernels here")
    model = ZOO[name].model(vocabulary=12, seed=0)
    source = Tokens.padded([[5, 6, 7], [8]], 0)
    text = Batch(source if model.reads_source else None, source, source.ids_BT)
    wanted = model(text)
    convert(model, precision)
    torch.testing.assert_close(model(text), wanted, atol=1e-4 if precision == "fp32" else 0.5, rtol=0)


@pytest.mark.skipif(not can_quantise(), reason="torch cannot multiply in 8 bits here")
def test_int8_scales_each_row_by_itself() -> None:
    model = translator()
    convert(model, "int8")
    specials, settings = Specials(0, 1, 2), SearchSettings(beam=2, extra_length=8)
    sentences = [[5, 6, 7], [8], [9, 9, 3, 4]]
    together = beam_search(model, Tokens.padded(sentences, 0), specials, settings)
    for sentence, found in zip(sentences, together, strict=True):
        alone = beam_search(model, Tokens.padded([sentence], 0), specials, settings)[0]
        assert alone[0].tokens == found[0].tokens
        assert alone[0].score == pytest.approx(found[0].score, abs=1e-4)


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match='"bf16" is for GPUs'):
        convert(translator(), "bf16")
    monkeypatch.setattr(quantised, "can_quantise", lambda: False)
    with pytest.raises(UsageError, match='"int8" needs 8-bit products'):
        convert(translator(), "int8")
    monkeypatch.setattr(quantised, "can_pack", lambda: False)
    model = translator()
    convert(model, "fp32")
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


@gpu
@pytest.mark.gpu
@torch.no_grad()
def test_bf16_keeps_the_waves_in_tune() -> None:
    model = translator().cuda()
    wanted = model(batch().to(torch.device("cuda")))
    convert(model, "bf16")
    assert model.embedding.weight_VD.dtype == torch.bfloat16
    assert all(buffer.dtype == torch.float32 for buffer in model.buffers())
    torch.testing.assert_close(model(batch().to(torch.device("cuda"))).float(), wanted, atol=0.15, rtol=0)
    with pytest.raises(UsageError, match='"int8" is for CPUs'):
        convert(model, "int8")
