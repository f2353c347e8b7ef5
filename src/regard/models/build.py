"""From settings to a model: the one place that knows all kinds."""

from __future__ import annotations

from typing import Any

from regard.models.bytenet import ByteNet, ByteNetSettings
from regard.models.convs2s import ConvS2S, ConvS2SSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.models.wavenet import WaveNet, WaveNetSettings

ModelSettings = (
    TransformerSettings
    | GPTSettings
    | RecurrentSettings
    | RecurrentLMSettings
    | ByteNetSettings
    | ConvS2SSettings
    | WaveNetSettings
)


def build(settings: ModelSettings, vocabulary: int, source_vocabulary: int | None = None) -> SequenceModel[Any]:
    """A freshly initialised model of these settings over `vocabulary` tokens.

    A source vocabulary of its own is the Transformer's privilege; recipes that give other models one are refused.
    """
    match settings:
        case TransformerSettings():
            return Transformer(settings, vocabulary, source_vocabulary)
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
