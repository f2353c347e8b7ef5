"""The one tree of all settings: a recipe says everything a run depends on.

A recipe is a TOML file. It may build on another one (`extends = "base"`), and single keys can be set on the
command line (`training.steps=500`). Presets are recipe files inside the package, in `regard/recipes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from regard import settings
from regard.data.batching import BatchSettings
from regard.data.corpus import CorpusSettings
from regard.data.generated import Generated
from regard.decoding.search import SearchSettings
from regard.errors import MissingError
from regard.models.build import ModelSettings
from regard.models.transformer import TransformerSettings
from regard.text.tokenizer import GPT2Files, TokenizerSettings
from regard.training.adapters import LogSettings
from regard.training.trainer import TrainingSettings

PRESETS = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Recipe:
    """Everything a training run depends on."""

    name: str = "unnamed"
    seed: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    licence: str | None = None
    """Under which the model is given away, as an SPDX identifier such as `cc-by-4.0`; for its card."""
    data: CorpusSettings = Generated()
    tokenizer: TokenizerSettings | GPT2Files = TokenizerSettings()
    model: ModelSettings = TransformerSettings()
    batch: BatchSettings = BatchSettings()
    training: TrainingSettings = TrainingSettings()
    search: SearchSettings = SearchSettings()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        settings.check_words(self)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"`seed` must be from 0 to 2^63 - 1, but is {self.seed}")
        if isinstance(self.tokenizer, GPT2Files) or self.tokenizer.shared:
            return
        tie = self.model.tie if isinstance(self.model, TransformerSettings) else None
        if tie not in ("target", "none"):
            found = f"`{self.model.kind}`" + ("" if tie is None else f' with `model.tie = "{tie}"`')
            raise ValueError(
                "`tokenizer.shared` = false gives each language a vocabulary, so the model must be a `transformer` "
                f'with `model.tie` = "target" or "none", but is {found}'
            )


def presets() -> list[str]:
    """The names of the recipes that come with Regard."""
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a preset."""
    file = PRESETS / f"{name}.toml"
    if not file.is_file():
        close = get_close_matches(name, presets(), n=1)
        hint = f"Did you mean `{close[0]}`?" if close else f"Presets: {', '.join(presets())}."
        raise MissingError(f"{name}: there is neither such a file nor such a preset. {hint}")
    return file


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from a file or a preset, with `key=value` overrides on top."""
    is_file = name.endswith(".toml") or "/" in name
    tree = settings.read(Path(name) if is_file else find(name), find, settings.table_kinds(Recipe))
    return build_recipe(tree, overrides, name)


def build_recipe(tree: dict[str, Any], overrides: Sequence[str], place: str) -> Recipe:
    """A recipe from plain values; `place` is named in errors."""
    return settings.build(Recipe, settings.override(tree, overrides, settings.table_kinds(Recipe)), place)
