"""What of a model other toolkits cannot express, by the names of its settings."""

from __future__ import annotations

from typing import Literal, get_args

from regard.interop import ctranslate2, huggingface, onnx
from regard.models.build import ModelSettings

Target = Literal["huggingface", "ctranslate2", "onnx"]
TARGETS: tuple[Target, ...] = get_args(Target)


def lacking(settings: ModelSettings, target: Target) -> list[str]:
    """The settings that `target` cannot express; empty if it can express all."""
    match target:
        case "huggingface":
            return huggingface.lacking(settings)
        case "ctranslate2":
            return ctranslate2.lacking(settings)
        case "onnx":
            return onnx.lacking(settings)


def report(settings: ModelSettings) -> list[str]:
    """A line for each target: what it cannot express of these settings, or that it can express all."""
    lines = []
    for target in TARGETS:
        found = lacking(settings, target)
        lines.append(
            f"export: {target} cannot express {', '.join(f'model.{name}' for name in found)}"
            if found
            else f"export: {target} can express this model"
        )
    return lines
