"""From settings to a model: the one place that knows all kinds."""

from __future__ import annotations

from typing import Any

import torch

from regard.errors import UsageError
from regard.memory import ran_out
from regard.models.bert import Bert, BertSettings
from regard.models.bytenet import ByteNet, ByteNetSettings
from regard.models.convs2s import ConvS2S, ConvS2SSettings
from regard.models.decoder_only import DecoderOnlySettings, decoder_only
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.labelling import Classifier, ClassifierSettings, LabelModel, Tagger, TaggerSettings
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.models.transformer_xl import TransformerXL, TransformerXLSettings
from regard.models.wavenet import WaveNet, WaveNetSettings
from regard.models.xlnet import XLNet, XLNetSettings
from regard.text.labels import FIRST

ModelSettings = (
    TransformerSettings
    | GPTSettings
    | DecoderOnlySettings
    | RecurrentSettings
    | RecurrentLMSettings
    | ByteNetSettings
    | ConvS2SSettings
    | WaveNetSettings
    | TransformerXLSettings
    | XLNetSettings
    | BertSettings
    | ClassifierSettings
    | TaggerSettings
)
AnyModel = SequenceModel[Any] | LabelModel | Bert
"""What a recipe may train."""


def build(settings: ModelSettings, vocabulary: int, source_vocabulary: int | None = None) -> SequenceModel[Any]:
    """A freshly initialised model of these settings over `vocabulary` tokens, which writes token by token.

    A source vocabulary of its own is the Transformer's privilege; recipes that give other models one are refused.
    """
    return writing(build_any(settings, vocabulary, source_vocabulary), settings.kind)


def writing(model: AnyModel, name: str) -> SequenceModel[Any]:
    """The model, if it writes; others are refused by this name."""
    if isinstance(model, LabelModel):
        raise UsageError(
            f"model: must be one that writes text, but `{name}` is a {model.settings.kind}: it gives labels. "
            f"Use `{model.task}`."
        )
    if isinstance(model, Bert):
        raise UsageError(
            f"model: must be one that writes text, but `{name}` is a {model.settings.kind}: it fills gaps. Use `fill`."
        )
    return model


def build_any(settings: ModelSettings, vocabulary: int, source_vocabulary: int | None = None) -> AnyModel:
    """A freshly initialised model of any kind. Where it labels texts, `vocabulary` is that of its labels, special
    tokens among them, and `source_vocabulary` that of the texts."""
    try:
        return _build(settings, vocabulary, source_vocabulary)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
        with torch.device("meta"):
            model = _build(settings, vocabulary, source_vocabulary)
    weights = dict(model.named_parameters())
    largest = max(weights, key=lambda name: weights[name].numel())
    size = sum(weight.nbytes for weight in weights.values()) / 1e9
    raise UsageError(
        f"model: its weights must fit into memory, but take {size:,.0f} GB; the largest is {largest}, "
        f"{' × '.join(map(str, weights[largest].shape))}. Choose smaller sizes; `regard inspect` lists every matrix."
    )


def _build(settings: ModelSettings, vocabulary: int, source_vocabulary: int | None) -> AnyModel:
    match settings:
        case TransformerSettings():
            return Transformer(settings, vocabulary, source_vocabulary)
        case DecoderOnlySettings():  # these two before GPT's, which they extend
            return decoder_only(settings, vocabulary)
        case TransformerXLSettings():
            return TransformerXL(settings, vocabulary)
        case GPTSettings():
            return GPT(settings, vocabulary)
        case RecurrentSettings():
            return RecurrentEncoderDecoder(settings, vocabulary)
        case RecurrentLMSettings():
            return RecurrentLM(settings, vocabulary)
        case ByteNetSettings():
            return ByteNet(settings, vocabulary)
        case ConvS2SSettings():
            return ConvS2S(settings, vocabulary)
        case WaveNetSettings():
            return WaveNet(settings, vocabulary)
        case XLNetSettings():
            return XLNet(settings, vocabulary)
        case BertSettings():
            return Bert(settings, vocabulary)
        case ClassifierSettings():
            return Classifier(settings, source_vocabulary or vocabulary, vocabulary - FIRST)
        case TaggerSettings():
            return Tagger(settings, source_vocabulary or vocabulary, vocabulary - FIRST)
