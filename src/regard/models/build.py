"""From settings to a model: the one place that knows all kinds."""

from __future__ import annotations

from typing import Any

from regard.models.interface import SequenceModel
from regard.models.transformer import Transformer, TransformerSettings

ModelSettings = TransformerSettings


def build(settings: ModelSettings, vocabulary: int) -> SequenceModel[Any]:
    """A freshly initialised model of these settings over `vocabulary` tokens."""
    match settings:
        case TransformerSettings():
            return Transformer(settings, vocabulary)
