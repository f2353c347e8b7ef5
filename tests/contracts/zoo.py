"""The models that have to keep the contracts. Adding one is one line in `ZOO`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.models.bytenet import ByteNet, ByteNetSettings
from regard.models.convs2s import ConvS2S, ConvS2SSettings
from regard.models.decoder_only import DecoderOnlySettings, decoder_only
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.models.transformer_xl import TransformerXL, TransformerXLSettings
from regard.models.wavenet import WaveNet, WaveNetSettings
from regard.models.xlnet import XLNet, XLNetSettings

Model = SequenceModel[Any]


@dataclass(frozen=True)
class Entry:
    """A small model: how to build it over a vocabulary, and which contracts speak of it."""

    build: Callable[[int], Model]
    reads_source: bool = True
    packs: bool = True  # several sentences in one row, told apart by segments
    watched: bool = True  # has attention that shows its weights to a `watcher`

    @cache  # noqa: B019 (the zoo lives as long as the tests)
    def model(self, vocabulary: int, seed: int) -> Model:
        """The model with random weights from `seed`, without dropout; built once for all contracts."""
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            model = self.build(vocabulary).eval()
            for parameter in model.parameters():
                # A fresh model has zeros (biases, gates) behind which a mistake could hide.
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model


class Deaf(Model):
    """A language model that is handed a source and does not listen: so search, which begins with one, can use it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.vocabulary, self.width, self.context = model, model.vocabulary, model.width, model.context

    def features(self, batch: Batch) -> Tensor:
        return self.model.features(replace(batch, source=None))

    def logits(self, features_BTD: Tensor) -> Tensor:
        return self.model.logits(features_BTD)

    def start(self, source: Tokens | None, rows: int) -> Any:
        return self.model.start(None, rows)

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(tokens_BT, state)


def _transformer(settings: TransformerSettings) -> Entry:
    return Entry(lambda vocabulary: Transformer(settings, vocabulary))


def _gpt(settings: GPTSettings) -> Entry:
    return Entry(lambda vocabulary: GPT(settings, vocabulary), reads_source=False)


def _decoder_only(settings: DecoderOnlySettings) -> Entry:
    return Entry(lambda vocabulary: decoder_only(settings, vocabulary))


TRANSFORMER = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=24, heads=2)
LEARNED = 12  # positions: enough for a sentence, fewer than the tokens of a row that holds several
GPT_2 = GPTSettings(layers=2, d_model=16, d_ff=24, heads=2, max_positions=LEARNED)
DECODER_ONLY = DecoderOnlySettings(layers=2, d_model=16, d_ff=24, heads=2, max_positions=2 * LEARNED)
WAVENET = WaveNetSettings(channels=6, skip_channels=8, dilations=(1, 2), repeats=2)
BYTENET = ByteNetSettings(channels=6, dilations=(1, 2), repeats=2)
CONVS2S = ConvS2SSettings(encoder=((2, 8, 3), (1, 12, 1)), decoder=((2, 8, 3), (1, 12, 2)), embedding=10)
RECURRENT = RecurrentSettings(encoder_layers=2, decoder_layers=2, d_model=12)
GNMT = replace(
    RECURRENT, cell="lstm", encoder_layers=3, bidirectional="first", links="residual", asks="bottom", feed_all=True
)
RECURRENT_LM = RecurrentLMSettings(d_model=12)
TRANSFORMER_XL = TransformerXLSettings(layers=2, d_model=16, d_ff=24, heads=2, memory=3)
XLNET = XLNetSettings(layers=2, d_model=16, d_ff=24, heads=2)


def _recurrent(settings: RecurrentSettings) -> Entry:
    watched = settings.attention != "none"
    return Entry(lambda vocabulary: RecurrentEncoderDecoder(settings, vocabulary), packs=False, watched=watched)


def _recurrent_lm(settings: RecurrentLMSettings) -> Entry:
    build = lambda vocabulary: RecurrentLM(settings, vocabulary)
    return Entry(build, reads_source=False, packs=False, watched=False)


def _transformer_xl(settings: TransformerXLSettings) -> Entry:
    return Entry(lambda vocabulary: TransformerXL(settings, vocabulary), reads_source=False)


ZOO: dict[str, Entry] = {
    "transformer": _transformer(TRANSFORMER),
    "transformer-pre-norm": _transformer(replace(TRANSFORMER, norm="pre", d_v=5)),
    "transformer-rotary-window": _transformer(replace(TRANSFORMER, positions="rotary", window=3, tie="none")),
    "transformer-relative": _transformer(replace(TRANSFORMER, positions="relative", reach=2, activation="swiglu")),
    "transformer-alibi": _transformer(replace(TRANSFORMER, positions="alibi", tie="embeddings")),
    "transformer-learned": _transformer(replace(TRANSFORMER, positions="learned", max_positions=LEARNED, tie="target")),
    "transformer-moe": _transformer(replace(TRANSFORMER, experts=4)),
    "transformer-qk-norm": _transformer(replace(TRANSFORMER, qk_norm=True, positions="rotary", d_v=5)),
    "gpt": _gpt(GPT_2),
    "gpt-relative": _gpt(replace(GPT_2, positions="relative", reach=2)),
    "gpt-qk-norm": _gpt(replace(GPT_2, qk_norm=True, positions="relative", reach=2)),
    "gpt-moe": _gpt(replace(GPT_2, experts=3, activation="swiglu")),
    "gpt-rotary-window": _gpt(replace(GPT_2, norm="post", positions="rotary", window=2, tied=False)),
    "decoder-only": _decoder_only(DECODER_ONLY),
    "decoder-only-rotary": _decoder_only(replace(DECODER_ONLY, positions="rotary", source_loss=0.5)),
    "decoder-only-relative": _decoder_only(replace(DECODER_ONLY, positions="relative", reach=3)),
    "gpt-relative-waves": _gpt(replace(GPT_2, positions="relative-waves")),
    "transformer-relative-waves": _transformer(replace(TRANSFORMER, positions="relative-waves", norm="pre")),
    "transformer-xl": _transformer_xl(TRANSFORMER_XL),
    "transformer-xl-qk-norm": _transformer_xl(replace(TRANSFORMER_XL, qk_norm=True)),
    "transformer-xl-alibi": _transformer_xl(replace(TRANSFORMER_XL, positions="alibi", memory=1, norm="pre")),
    "xlnet": Entry(lambda vocabulary: XLNet(XLNET, vocabulary), reads_source=False),
    "xlnet-rotary": Entry(lambda vocabulary: XLNet(replace(XLNET, positions="rotary"), vocabulary), reads_source=False),
    "xlnet-relative": Entry(
        lambda vocabulary: XLNet(replace(XLNET, positions="relative", norm="pre"), vocabulary), reads_source=False
    ),
    "xlnet-qk-norm": Entry(lambda vocabulary: XLNet(replace(XLNET, qk_norm=True), vocabulary), reads_source=False),
    "wavenet": Entry(lambda vocabulary: WaveNet(WAVENET, vocabulary), reads_source=False, watched=False),
    "bytenet": Entry(lambda vocabulary: ByteNet(BYTENET, vocabulary), packs=False, watched=False),
    "convs2s": Entry(lambda vocabulary: ConvS2S(CONVS2S, vocabulary)),
    "convs2s-tied": Entry(lambda vocabulary: ConvS2S(replace(CONVS2S, tied=True), vocabulary)),
    "recurrent": _recurrent(RECURRENT),
    "recurrent-additive-after": _recurrent(replace(RECURRENT, attend="after", links="fast-forward")),
    "recurrent-general": _recurrent(replace(RECURRENT, cell="lstm", context="last", attention="general")),
    "recurrent-input-feeding": _recurrent(replace(RECURRENT, cell="lstm", attention="dot", input_feeding=True)),
    "recurrent-scaled": _recurrent(replace(RECURRENT, bidirectional=False, attention="scaled", links="residual")),
    "recurrent-hard-before": _recurrent(replace(RECURRENT, cell="rnn", attention="dot", attend="before", hard=True)),
    "recurrent-last": _recurrent(replace(RECURRENT, attention="none", context="last", tied=False, d_embedding=7)),
    "recurrent-mean": _recurrent(replace(RECURRENT, cell="rnn", attention="none", context="mean", feed_context=True)),
    "recurrent-gnmt": _recurrent(GNMT),
    "recurrent-moe": _recurrent(replace(GNMT, experts=4, d_ff=10)),
    "recurrent-deep-att": _recurrent(replace(GNMT, bidirectional="alternating", links="fast-forward", feed_all=False)),
    "recurrent-lm": _recurrent_lm(RECURRENT_LM),
    "recurrent-lm-gru": _recurrent_lm(replace(RECURRENT_LM, cell="gru", links="residual", tied=True)),
}
