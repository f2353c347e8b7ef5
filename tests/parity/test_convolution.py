"""Our convolutions against those of others: torch, transformers, and the numbers two other projects computed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.layers.attention import KeyValue
from regard.layers.convolution import CausalConvolution, CentredConvolution, Convolution, GatedLayer
from regard.layers.mask import Mask
from regard.models.bytenet import ByteNetSettings, DecoderBlock, EncoderBlock
from regard.models.convs2s import ConvS2S, ConvS2SSettings, MultiStepAttention
from regard.models.wavenet import WaveNetBlock, WaveNetSettings

sizes = st.integers(1, 5)


def conv1d_of(ours: Convolution, channels_in: int) -> nn.Conv1d:
    """torch's convolution with our weights: [D, k·C] there is [D, C, k] here."""
    theirs = nn.Conv1d(channels_in, ours.taps.out_features, ours.kernel, dilation=ours.dilation)
    with torch.no_grad():
        theirs.weight.copy_(ours.taps.weight.unflatten(1, (ours.kernel, channels_in)).transpose(1, 2))
        theirs.bias.copy_(ours.taps.bias)  # type: ignore[union-attr]
    return theirs


@given(kernel=sizes, dilation=sizes, length=st.integers(1, 12), channels=sizes, out=sizes)
def test_causal_is_conv1d_padded_on_the_left(kernel: int, dilation: int, length: int, channels: int, out: int) -> None:
    ours = CausalConvolution(channels, out, kernel, dilation)
    x_BTC = torch.randn(2, length, channels)
    found, _ = ours(x_BTC, Places.whole(x_BTC[:, :, 0]))
    padded = F.pad(x_BTC.transpose(1, 2), ((kernel - 1) * dilation, 0))
    torch.testing.assert_close(found, conv1d_of(ours, channels)(padded).transpose(1, 2))


@given(half=st.integers(0, 2), dilation=sizes, lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), out=sizes)
def test_centred_is_conv1d_padded_on_both_sides(half: int, dilation: int, lengths: list[int], out: int) -> None:
    """Each sentence of a row, and of rows with padding, is convolved as if it were alone."""
    ours, kernel = CentredConvolution(3, out, 2 * half + 1, dilation), 2 * half + 1
    x_BTC = torch.randn(1, sum(lengths) + 2, 3)
    segments = [number for number, length in enumerate(lengths, 1) for _ in range(length)]
    positions = [place for length in lengths for place in range(length)]
    places = Places(torch.tensor([[*positions, 0, 0]]), torch.tensor([[*segments, 0, 0]]))
    found = ours(x_BTC, places)[0, : sum(lengths)].split(lengths)
    theirs = conv1d_of(ours, 3)
    for sentence_TD, x_TC in zip(found, x_BTC[0, : sum(lengths)].split(lengths), strict=True):
        alone = F.pad(x_TC.T, (half * dilation, half * dilation))
        torch.testing.assert_close(sentence_TD, theirs(alone).T)
    assert theirs.kernel_size == (kernel,)


def test_the_gated_layer_is_conv1d_and_glu() -> None:
    layer = GatedLayer(4, 4, kernel=3, dropout=0.5).eval()
    x_BSC = torch.randn(2, 7, 4)
    padded = F.pad(x_BSC.transpose(1, 2), (1, 1))
    gated = F.glu(conv1d_of(layer.convolution, 4)(padded), dim=1).transpose(1, 2)
    torch.testing.assert_close(layer(x_BSC, Places.whole(x_BSC[:, :, 0])), (x_BSC + gated) * 0.5**0.5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing theirs calls torch.jit.script
@torch.no_grad()
def test_gated_blocks_are_the_wavenet_of_transformers() -> None:
    """Theirs looks to both sides. With all of its padding on the left it is causal, as the paper's is."""
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsWaveNet

    layers, channels, rate = 3, 4, 2
    config = VitsConfig(
        hidden_size=channels, wavenet_kernel_size=3, wavenet_dilation_rate=rate, speaker_embedding_size=0
    )
    theirs = VitsWaveNet(config, layers).eval()
    settings = WaveNetSettings(channels=channels, skip_channels=channels, kernel=3)
    x_BTC = torch.randn(2, 12, channels)
    for layer in theirs.in_layers:
        assert isinstance(layer, nn.Conv1d)
        layer.padding = (2 * layer.dilation[0],)
        layer.register_forward_hook(lambda layer, inputs, output_BCT: output_BCT[:, :, : inputs[0].shape[2]])
    places, wanted_BCT = Places.whole(x_BTC[:, :, 0]), theirs(x_BTC.transpose(1, 2), torch.ones(2, 1, 12))
    found = torch.zeros_like(x_BTC)
    for number, (inner, outer) in enumerate(zip(theirs.in_layers, theirs.res_skip_layers, strict=True)):
        assert isinstance(inner, nn.Conv1d)
        assert isinstance(outer, nn.Conv1d)
        block = WaveNetBlock(settings, rate**number, last=number == layers - 1)
        _copy(block.convolution.taps, inner.weight.transpose(1, 2).flatten(1), inner.bias)
        _copy(block.skip, outer.weight[-channels:, :, 0], outer.bias, last=channels)
        if block.residual is not None:
            _copy(block.residual, outer.weight[:channels, :, 0], outer.bias)
        x_BTC, skip_BTD, _ = block(x_BTC, places, None)
        found = found + skip_BTD
    torch.testing.assert_close(found, wanted_BCT.transpose(1, 2))


def _copy(ours: nn.Linear, weight: Tensor, bias: Tensor | None, last: int | None = None) -> None:
    assert bias is not None
    ours.weight.copy_(weight)
    ours.bias.copy_(bias[: ours.out_features] if last is None else bias[-last:])


def test_attention_is_the_papers_sums() -> None:
    """Section 3.3 of ConvS2S written out, query by query and key by key."""
    torch.manual_seed(0)
    channels, embedding, keys, seen = 3, 4, 5, (5, 2)
    attention = MultiStepAttention(channels, embedding)
    h_BTC, g_BTE = torch.randn(2, 2, channels), torch.randn(2, 2, embedding)
    z_BSE, e_BSE = torch.randn(2, keys, embedding), torch.randn(2, keys, embedding)
    segments = torch.tensor([[1] * m + [0] * (keys - m) for m in seen])
    source = Places(torch.arange(keys).expand(2, keys), segments)
    half = math.sqrt(0.5)

    visible = Mask().visible(Places.whole(g_BTE[:, :, 0]), source)
    memory = KeyValue(z_BSE[:, None], (z_BSE + e_BSE)[:, None] * half)
    found = attention(h_BTC, g_BTE, memory, visible)
    for row, m in enumerate(seen):
        for i in range(2):
            d = (attention.query.weight @ h_BTC[row, i] + attention.query.bias + g_BTE[row, i]) * half
            scores = [torch.dot(d, z_BSE[row, j]).exp() for j in range(m)]
            c = sum(scores[j] / sum(scores) * (z_BSE[row, j] + e_BSE[row, j]) * half for j in range(m))
            c = attention.output.weight @ (c * (m * math.sqrt(1 / m))) + attention.output.bias
            torch.testing.assert_close(found[row, i], (h_BTC[row, i] + c) * half)


# ---- numbers that other projects computed, from weights anyone can make again


def numbers(name: str, shape: tuple[int, ...]) -> Tensor:
    """Weights that follow from a parameter's name: the same in every version of every library."""
    return (torch.arange(math.prod(shape)) * 1.7 + sum(name.encode())).sin().mul(0.6).reshape(shape)


BYTENET_X_BTD = numbers("x", (2, 5, 6))
BYTENET_MASK_BT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@torch.no_grad()
def fill_bytenet(block: EncoderBlock | DecoderBlock) -> None:
    """Give a block of ours the weights that the block of `sequence-models` was run with."""
    names = {
        "narrow.0": "sequence1.0",
        "narrow.2": "sequence1.2.conv",
        "middle.0": "sequence1.3",
        "convolution.taps": "conv",
        "after.0": "sequence2.0",
        "widen": "sequence2.2.conv",
    }
    for ours, theirs in names.items():
        module = block.get_submodule(ours)
        assert isinstance(module, nn.Linear | nn.LayerNorm)
        shape = tuple(module.weight.shape)
        if ours == "convolution.taps":
            weight_DCk = numbers(f"{theirs}.weight", (shape[0], shape[1] // 3, 3))
            module.weight.copy_(weight_DCk.transpose(1, 2).flatten(1))
        else:
            module.weight.copy_(numbers(f"{theirs}.weight", shape))
        module.bias.copy_(numbers(f"{theirs}.bias", tuple(module.bias.shape)))


CONVS2S = ConvS2SSettings(encoder=((1, 4, 3), (1, 6, 1)), decoder=((1, 4, 3), (1, 6, 2)), embedding=5, max_positions=8)
VOCABULARY = 6
SOURCE = Tokens.padded([[3, 5, 4, 2], [5, 2]], padding=0)
TARGET = Tokens.padded([[2, 4, 3], [2, 5]], padding=0)
THEIR_NAMES = {
    r"source\.words": "encoder.embed_tokens",
    r"target\.words": "decoder.embed_tokens",
    r"source\.positions": "encoder.embed_positions",
    r"target\.positions": "decoder.embed_positions",
    r"(en|de)coder_entry": r"\1coder.fc1",
    r"(en|de)coder_exit": r"\1coder.fc2",
    r"(en|de)coder\.(\d+)\.convolution\.taps": r"\1coder.convolutions.\2",
    r"(en|de)coder\.(\d+)\.around": r"\1coder.projections.\2",
    r"decoder\.(\d+)\.cross_attention\.query": r"decoder.attention.\1.in_projection",
    r"decoder\.(\d+)\.cross_attention\.output": r"decoder.attention.\1.out_projection",
    r"output": "decoder.fc3",
}


def fairseq_name(ours: str) -> str:
    """What fairseq calls a parameter of ours."""
    module, kind = ours.rsplit(".", 1)
    [theirs] = [re.sub(pattern, name, module) for pattern, name in THEIR_NAMES.items() if re.fullmatch(pattern, module)]
    return f"{theirs}.{kind}"


@torch.no_grad()
def fill_convs2s(model: ConvS2S) -> None:
    """Give our model the weights that fairseq's was run with."""
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        theirs, shape = fairseq_name(name), tuple(parameter.shape)
        if "positions" in name:
            # Their table keeps row 0 for padding.
            parameter.copy_(numbers(theirs, (shape[0] + 1, shape[1]))[1:])
        elif name.endswith("taps.weight"):
            convolution = modules[name.removesuffix(".taps.weight")]
            assert isinstance(convolution, Convolution)
            kernel = convolution.kernel
            weight_kCD = numbers(theirs, (kernel, shape[1] // kernel, shape[0]))
            parameter.copy_(weight_kCD.permute(2, 0, 1).flatten(1))
        else:
            parameter.copy_(numbers(theirs, shape))


@dataclass(frozen=True)
class Theirs:
    """What somebody else's code answered, row by row without the padding."""

    rows: tuple[list[list[float]], ...]

    def agree(self, found_BTD: Tensor) -> None:
        for row, wanted in zip(found_BTD, self.rows, strict=True):
            torch.testing.assert_close(row[: len(wanted)], torch.tensor(wanted), rtol=0, atol=2e-6)


# sequence_models 1.8.0: ByteNetBlock(6, 3, 6, 3, dilation=2, causal=…, activation="relu")
BYTENET_CENTRED = Theirs(
    (
        [
            [0.125520, 1.083675, -0.324881, -0.585375, 0.709270, 0.164535],
            [-0.817780, 0.616944, 0.739654, -0.387970, -0.403318, 0.250959],
            [0.548053, 0.182628, -0.578195, 0.054188, 0.613714, -0.262768],
            [0.009467, 1.163954, -0.309412, -1.084224, 0.588807, 0.932490],
            [-0.201626, 0.109503, 0.173395, -0.154184, -0.133659, 0.188628],
        ],
        [
            [0.345792, 0.700520, -0.442457, -0.151371, 0.726582, -0.285724],
            [-0.539265, 0.981537, 0.322216, -0.878317, 0.009042, 0.769031],
            [0.267539, -0.031198, -0.259505, 0.098068, 0.234236, -0.158434],
        ],
    )
)
BYTENET_CAUSAL = Theirs(
    (
        [
            [0.474941, 1.004863, -0.733894, -0.815748, 0.944110, 0.572458],
            [-0.464146, 0.537182, 0.325709, -0.621121, -0.165647, 0.663800],
            [0.272653, 0.244744, -0.255827, 0.235759, 0.428622, -0.584277],
            [-0.344167, 1.243716, 0.104533, -0.851073, 0.351136, 0.519648],
            [-0.275647, 0.126198, 0.260040, -0.105382, -0.183407, 0.102214],
        ],
        [
            [0.712529, 0.617802, -0.871740, -0.393161, 0.973060, 0.142415],
            [-0.382282, 0.946130, 0.138459, -0.981816, 0.114547, 0.952297],
            [-0.099198, 0.051520, 0.169778, 0.339858, -0.012243, -0.586573],
        ],
    )
)
# fairseq 0.12.2: FConvEncoder(convolutions=((4, 3), (6, 1))), FConvDecoder(convolutions=((4, 3), (6, 2))),
# embed_dim = out_embed_dim = 5, weight norm removed; its logits, and its attention averaged over the layers.
CONVS2S_LOGITS = Theirs(
    (
        [
            [3.555028, -1.486657, -2.142260, 3.693791, -1.832019, -1.237739],
            [4.074508, -1.610631, -2.512472, 4.263510, -2.147761, -1.427296],
            [2.550927, -1.172150, -1.516833, 2.626255, -1.172107, -0.964753],
        ],
        [
            [3.878787, -1.725889, -2.177978, 3.976028, -2.136122, -1.153830],
            [5.023545, -2.200090, -2.751787, 5.141109, -2.965098, -1.320804],
        ],
    )
)
CONVS2S_ATTENTION = Theirs(
    (
        [
            [0.237470, 0.196445, 0.382545, 0.183540],
            [0.197609, 0.297322, 0.258237, 0.246832],
            [0.327963, 0.253090, 0.181838, 0.237109],
        ],
        [[0.532803, 0.467197, 0.0, 0.0], [0.286466, 0.713534, 0.0, 0.0]],
    )
)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_bytenets_block_answers_as_that_of_sequence_models(causal: bool) -> None:
    settings = ByteNetSettings(channels=3)
    places = Places(torch.arange(5).expand(2, 5), BYTENET_MASK_BT)
    if causal:
        decoder = DecoderBlock(settings, dilation=2)
        fill_bytenet(decoder)
        found_BTD, _ = decoder(BYTENET_X_BTD, places, None)
        BYTENET_CAUSAL.agree(found_BTD)
    else:
        encoder = EncoderBlock(settings, dilation=2)
        fill_bytenet(encoder)
        BYTENET_CENTRED.agree(encoder(BYTENET_X_BTD, places))


@torch.no_grad()
def test_convs2s_answers_as_fairseq() -> None:
    """Scores and attention of the authors' own code, on rows with padding."""
    model = ConvS2S(CONVS2S, VOCABULARY).eval()
    fill_convs2s(model)
    batch = Batch(SOURCE, TARGET, TARGET.ids_BT)
    CONVS2S_LOGITS.agree(model(batch))

    seen: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, MultiStepAttention):
            module.watcher = seen.append
    CONVS2S_LOGITS.agree(model(batch))
    CONVS2S_ATTENTION.agree(torch.stack(seen).mean(dim=0)[:, 0])
