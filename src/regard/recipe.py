"""The one tree of all settings: a recipe says everything a run depends on.

A recipe is a TOML file. It may build on another one (`extends = "base"`), and single keys can be set on the
command line (`training.steps=500`). Presets are recipe files inside the package, in `regard/recipes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard import settings, shipped
from regard.data.batching import BatchSettings
from regard.data.corpus import CorpusSettings, Elsewhere, Files, Music
from regard.data.generated import Generated
from regard.data.labelled import answers_of
from regard.decoding.search import SearchSettings
from regard.errors import MissingError, UsageError, proposal
from regard.models.build import ModelSettings
from regard.models.transformer import TransformerSettings
from regard.text.learning import MERGING
from regard.text.tokenizer import GPT2Files, Imported, MusicEvents, TokenizerSettings, VocabularySettings
from regard.training.adapters import LogSettings
from regard.training.trainer import TrainingSettings

PRESETS = Path(__file__).parent / "recipes"
DEFAULT_KIND = TransformerSettings().kind
SAME_WEIGHTS = {"gpt", "decoder-only"}  # one stack of layers, weight by weight
BODY = "bert"  # what it learns is the body of a model that labels
LABELLING = {"classifier": "text", "tagger": "words"}  # what each kind of model labels
# Settings of a model that no weight depends on.
WEIGHTLESS = ("dropout", "source_loss", "balance", "masked", "predicted", "memory")
CUTS = ("dropout", "dropout_cuts")  # settings of a tokenizer that change what is trained on, not the vocabulary


@dataclass(frozen=True)
class ExportSettings:
    """What the model is to be used for elsewhere."""

    check: bool = False
    """Say when training starts what of the model other toolkits cannot express."""


@dataclass(frozen=True)
class Recipe:
    """Everything a training run depends on."""

    name: str = "unnamed"
    seed: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    init: str | None = None
    """A finished model folder to begin with: its weights, its vocabulary and the sizes of its model."""
    licence: str | None = None
    """Under which the model is given away, as an SPDX identifier such as `cc-by-4.0`; for its card."""
    attribution: tuple[str, ...] = ()
    """Whose data the model learned from, a sentence each, where their licence asks for it; for its card."""
    data: CorpusSettings = Generated()
    tokenizer: VocabularySettings = TokenizerSettings()
    model: ModelSettings = TransformerSettings()
    batch: BatchSettings = BatchSettings()
    training: TrainingSettings = TrainingSettings()
    search: SearchSettings = SearchSettings()
    log: LogSettings = LogSettings()
    export: ExportSettings = ExportSettings()

    @property
    def running(self) -> bool:
        """Whether the model learns from running text, in which the end of a line is a token like any other."""
        music = isinstance(self.tokenizer, MusicEvents)  # there, a line is a whole piece
        return self.batch.window is not None and not music

    def __post_init__(self) -> None:
        settings.check_words(self)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"`seed` must be from 0 to 2^63 - 1, but is {self.seed}")
        _check_music(self.data, self.tokenizer)
        if _check_labels(self.data, self.tokenizer, self.model):
            return
        if isinstance(self.tokenizer, GPT2Files | Imported | MusicEvents) or self.tokenizer.shared:
            return
        tie = self.model.tie if isinstance(self.model, TransformerSettings) else None
        if tie not in ("target", "none"):
            found = f"`{self.model.kind}`" + ("" if tie is None else f' with `model.tie = "{tie}"`')
            raise ValueError(
                "`tokenizer.shared` = false gives each language a vocabulary, so the model must be a `transformer` "
                f'with `model.tie` = "target" or "none", but is {found}'
            )


def _check_music(data: CorpusSettings, tokenizer: VocabularySettings) -> None:
    """Music has words of its own, of which there are as many as there are."""
    if not isinstance(data, Music) and not isinstance(tokenizer, MusicEvents):
        return
    found = f'is "{tokenizer.kind}"'
    if isinstance(data, Music) and isinstance(tokenizer, MusicEvents):
        if (data.encoding, data.grid) == (tokenizer.encoding, tokenizer.grid):
            return
        found = f'the encodings are "{data.encoding}" and "{tokenizer.encoding}"'
        if data.encoding == tokenizer.encoding:
            found = f"the grids are {data.grid} and {tokenizer.grid}"
    elif not isinstance(data, Music):
        found = f'`data.kind` is "{data.kind}"'
    raise ValueError(
        '`tokenizer.kind` must be "music", with the `encoding` and the `grid` of the data, where `data.kind` is '
        f'"music", and only there, but {found}'
    )


def _check_labels(data: CorpusSettings, tokenizer: VocabularySettings, model: ModelSettings) -> bool:
    """Whether it is about labels; then corpus, model and vocabulary must be."""
    answers, kind = answers_of(data), LABELLING.get(model.kind)
    if answers is None and kind is None:
        return False
    if answers != kind and not isinstance(data, Elsewhere):
        wanted = {"text": "a `classifier`", "words": "a `tagger`", None: "neither `classifier` nor `tagger`"}[answers]
        raise ValueError(f"`model.kind` must be {wanted} where `data.kind` is `{data.kind}`, but is `{model.kind}`")
    if not isinstance(tokenizer, TokenizerSettings) or tokenizer.dropout:
        found = "`tokenizer.dropout` is on" if isinstance(tokenizer, TokenizerSettings) else f"it is `{tokenizer.kind}`"
        raise ValueError(
            f"`tokenizer` must be learned from the texts, without dropout, for a `{model.kind}`, but {found}"
        )
    return True


def presets() -> list[str]:
    """The names of the recipes that come with Regard."""
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a preset."""
    file = PRESETS / f"{name}.toml"
    if not file.is_file():
        hint = proposal(name, presets(), f"Presets: {', '.join(presets())}.")
        raise MissingError(f"{name}: there is neither such a file nor such a preset. {hint}")
    return file


def load_recipe(
    name: str, overrides: Sequence[str] = (), sides: Mapping[str, str] | None = None, place: str | None = None
) -> Recipe:
    """A recipe from a file or a preset, with `key=value` overrides on top; `place`, if not `name`, is named in errors.

    Files of two `sides` take the place of its whole corpus: what it validates and tests on goes with what it trains on.
    """
    is_file = name.endswith(".toml") or "/" in name
    tree = settings.read(Path(name) if is_file else find(name), find, settings.table_kinds(Recipe))
    if sides:
        tree = {**tree, "data": {"kind": Files.kind, **sides}}
    return build_recipe(_begun(tree, overrides), overrides, place or name)


def build_recipe(tree: dict[str, Any], overrides: Sequence[str], place: str) -> Recipe:
    """A recipe from plain values; `place` is named in errors."""
    tree = settings.override(tree, overrides, settings.table_kinds(Recipe))
    data, tokenizer = tree.get("data"), tree.get("tokenizer")
    if isinstance(data, dict) and isinstance(tokenizer, dict) and tokenizer.get("kind") == MusicEvents.kind:
        # The words of music are those that the data are written in.
        followed = {key: data[key] for key in ("encoding", "grid") if key in data}
        tree = {**tree, "tokenizer": {**followed, **tokenizer}}
    return settings.build(Recipe, tree, place)


def _begun(tree: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The tree with the vocabulary and the model of the folder that `init` names; what is typed goes on top of them.

    Of the model's own settings stay those that no weight depends on, and its kind where the same weights serve both; of
    the tokenizer's those that only say how training text is cut. Whose data the first one learned from is told, too.
    """
    asked = settings.override(tree, overrides, settings.table_kinds(Recipe))
    if not isinstance(asked.get("init"), str):
        return tree
    if not asked["init"]:
        raise UsageError(
            "init: must be a model folder or the name of a shipped model, but is empty. Name one, or leave it out."
        )
    place = shipped.resolve(asked["init"]) / "recipe.toml"
    if not place.is_file():
        raise MissingError(f"init: must be a model folder, but {asked['init']} has no {place.name}. Is the path right?")
    before = settings.read(place, find)
    owed = [*before.get("attribution", []), *tree.get("attribution", [])]
    tree = {**tree, "attribution": list(dict.fromkeys(owed))}
    tokenizer = _cut_as(asked.get("tokenizer", {}), before.get("tokenizer", {}))
    model, own = dict(before.get("model", {})), asked.get("model", {})
    kind, was = own.get("kind", DEFAULT_KIND), model.get("kind", DEFAULT_KIND)
    if was == BODY and kind in LABELLING:
        body = {key: value for key, value in model.items() if key not in ("kind", *WEIGHTLESS)}
        kept = {key: value for key, value in own.get("body", {}).items() if key in WEIGHTLESS}
        model = {**own, "body": {"kind": "transformer", **body, **kept}}
        return {**tree, "model": model, "tokenizer": tokenizer}
    if kind != was and not {kind, was} <= SAME_WEIGHTS:
        raise UsageError(
            f"init: {asked['init']} must hold a `{kind}` as the recipe asks for, but holds a `{was}`. Of other kinds, "
            "only a `gpt` can go on as a `decoder-only` and the other way round, and a `bert` as a `classifier` or a "
            "`tagger`. "
            "Choose another folder, or another recipe."
        )
    if kind != was:
        model.pop("source_loss", None)  # which a `gpt` does not have
    kept = {key: own[key] for key in WEIGHTLESS if key in own}
    return {**tree, "model": {**model, "kind": kind, **kept}, "tokenizer": tokenizer}


def _cut_as(asked: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The vocabulary that was there before, with the cuts that are asked for, where it has any merges to leave out."""
    kept = {key: asked[key] for key in CUTS if key in asked}
    return {**before, **kept} if before.get("kind", TokenizerSettings.kind) in MERGING else before
