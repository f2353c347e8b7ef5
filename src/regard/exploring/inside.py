"""What a model is: a line for lists of models, and everything that is known of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard import folder, settings
from regard.bands.comparing import usual_course
from regard.data.generated import Generated
from regard.data.sources import Files
from regard.engines.ctranslate2 import CTranslate2Model
from regard.errors import UsageError
from regard.exploring.bundle import Bundle
from regard.exploring.sentences import LEARNED, WIRED, Tongue, curved, wired
from regard.exploring.vectors import word_to_try
from regard.exploring.walk import can_walk
from regard.models.bert import Bert
from regard.models.build import AnyModel, build_any
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.recipe import Recipe
from regard.text.tokenizer import MusicEvents, Tokenizer
from regard.training.usual import Course
from regard.viewing.capture import role
from regard.viewing.inspection import Inspection, look
from regard.viewing.parameters import anatomy
from regard.viewing.training_curves import Event, read_metrics, training_svg
from regard.viewing.wiring_svg import tall_wiring_svg, wiring_svg

PHONE = 220  # pixels for the curves of a plot, so that it can be read on a phone with its names and numbers

Task = Literal["translate", "generate", "classify", "tag", "fill"]


def task_of(network: AnyModel) -> Task:
    """What a model is for."""
    if isinstance(network, LabelModel):
        return network.task
    if isinstance(network, Bert):
        return "fill"
    return "translate" if network.reads_source else "generate"


@dataclass(frozen=True)
class AttentionStack:
    """One kind of attention a model has: encoder, decoder or cross, and how many layers and heads."""

    name: str
    layers: int
    heads: int


@dataclass(frozen=True)
class Languages:
    """From which language a model translates, if it is known, and into which."""

    source: str | None
    target: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """What a list of models says of one."""

    id: str
    name: str
    task: Task
    kind: str
    parameters: int | None
    """None where nobody knows: in a folder of CTranslate2 that Regard did not write."""
    context: int | None
    languages: Languages
    attention: tuple[AttentionStack, ...]
    walk: bool
    music: bool
    labels: tuple[str, ...] = ()
    """Those that it gives, if it does."""
    running: bool = False
    """Whether it writes running text, of any number of lines."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        values = asdict(self)
        values["languages"]["target"] = list(self.languages.target)
        for name in ("attention", "labels"):
            values[name] = list(values[name])
        return values


def summary(bundle: Bundle, identifier: str) -> Summary:
    """What to say of a model in a list."""
    network, described = bundle.network, _is_described(bundle)
    return Summary(
        identifier,
        bundle.recipe.name,
        "translate" if network.reads_source else "generate",
        bundle.recipe.model.kind if described else "ctranslate2",
        _parameters(_outline(bundle.recipe, bundle.tokenizer)) if described else None,
        network.context,
        languages(bundle),
        attention_stacks(network),
        can_walk(network),
        isinstance(bundle.recipe.tokenizer, MusicEvents),
        running=bundle.recipe.running,
    )


def label_summary(loaded: folder.Loaded, identifier: str, labels: tuple[str, ...]) -> Summary:
    """What to say in a list of a model that gives labels or fills gaps."""
    recipe, network = loaded.recipe, loaded.network
    return Summary(
        identifier,
        recipe.name,
        task_of(network),
        recipe.model.kind,
        _parameters(_outline(recipe, loaded.tokenizer)),
        network.context,
        Languages(None, ()),
        (),  # nothing here can look at it
        False,
        False,
        labels,
    )


def languages(bundle: Bundle) -> Languages:
    """What the recipe's corpora say, and the tags of a vocabulary that knows several languages."""
    data: Any = bundle.recipe.data
    corpora = getattr(data, "corpora", (data,))
    sources = {_language(corpus, "source") for corpus in corpora}
    targets = list(dict.fromkeys(filter(None, (_language(corpus, "target") for corpus in corpora))))
    source = sources.pop() if len(sources) == 1 and bundle.network.reads_source else None
    return Languages(source, tuple(bundle.tokenizer.source.languages) or tuple(targets))


def _language(corpus: Any, side: Literal["source", "target"]) -> str | None:
    """A generated corpus says it by its sides, files by settings or their names; plain text is its own target."""
    if isinstance(corpus, Files):
        return corpus.languages[0 if side == "source" else 1]
    if isinstance(corpus, Generated):
        return corpus.source if side == "source" else corpus.target
    return getattr(corpus, "language", None) if side == "target" else None


def attention_stacks(network: nn.Module) -> tuple[AttentionStack, ...]:
    """Every kind of attention with its layers and heads."""
    found: dict[str, list[int]] = {}
    for name, module in network.named_modules():
        if hasattr(module, "watcher"):
            heads = getattr(module, "heads", 1)
            found.setdefault(role(name)[0], []).append(heads if isinstance(heads, int) else 1)
    return tuple(AttentionStack(name, len(heads), max(heads)) for name, heads in found.items())


@dataclass(frozen=True)
class Inside:
    """A model's matrices and costs, its wiring and its learning as pictures, its card and its recipe.

    Of each picture there is one for a phone, with its parts below each other. `word` is one of its vocabulary to begin
    with, where neighbours are looked for.
    """

    inspection: dict[str, object]
    wiring: str | None
    tall_wiring: str | None
    curves: str | None
    tall_curves: str | None
    card: str | None
    recipe: str
    word: str

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def inside(bundle: Bundle, place: Path | None = None, tongue: Tongue = "en") -> Inside:
    """Everything that is known of a model; curves and card are read from its folder `place`, if it has one.

    `tongue` is the language of the pictures.
    """
    recipe, tokenizer = bundle.recipe, bundle.tokenizer
    model = _outline(recipe, tokenizer)
    if isinstance(model, SequenceModel) and not _is_described(bundle):  # others run nowhere but here
        raise UsageError(
            f"inside: a recipe must say how a model is built, but CTranslate2's files of `{recipe.name}` say only how "
            "it runs. Look at the model that it was made from."
        )
    card = None if place is None else place / folder.CARD
    wirings: tuple[str | None, str | None] = (None, None)
    if not isinstance(model, LabelModel):
        title, say = WIRED[tongue].format(recipe.name), partial(wired, tongue=tongue)
        wirings = wiring_svg(model, title, say), tall_wiring_svg(model, title, say)
    # Why its losses differ is told by the page, in its own language.
    curves: tuple[str | None, str | None] = (None, None)
    if course := _course(bundle, place):
        events, usual = course
        title, say = LEARNED[tongue].format(recipe.name), partial(curved, tongue=tongue)
        curves = (
            training_svg(events, title, usual, None, say=say),
            training_svg(events, title, usual, None, 1, PHONE, say),
        )
    return Inside(
        inspection(model, recipe).to_json(),
        *wirings,
        *curves,
        card.read_text(encoding="utf-8") if card is not None and card.is_file() else None,
        settings.to_toml(recipe),
        word_to_try(tokenizer),
    )


def _is_described(bundle: Bundle) -> bool:
    """Whether the recipe says how the model is built."""
    return not isinstance(bundle.network, CTranslate2Model) or bundle.network.described


def _outline(recipe: Recipe, tokenizer: Tokenizer) -> AnyModel:
    """The model as it was trained, without its weights: what computes may have laid them out in another way."""
    with torch.device("meta"):
        return build_any(recipe.model, tokenizer.size, tokenizer.source.size)


def _parameters(model: AnyModel) -> int:
    return sum(weight.numel() for weight in model.parameters())


def inspection(model: AnyModel, recipe: Recipe, length: int | None = None) -> Inspection:
    """The parts and the costs of a model made by a recipe; its weights need not be there. `length` is the tokens of a
    row, a usual length unless given."""
    parts = anatomy(model, recipe.name, recipe.model.kind, model.vocabulary)
    return look(model, parts, length, recipe.batch.tokens, recipe.search.beam, recipe.training.optimiser)


def learning_curves(bundle: Bundle, place: Path | None) -> str | None:
    """How the model learned, as SVG; None where its folder does not say."""
    if (course := _course(bundle, place)) is None:
        return None
    events, usual = course
    return training_svg(events, LEARNED["en"].format(bundle.recipe.name), usual)


def _course(bundle: Bundle, place: Path | None) -> tuple[list[Event], Course | None] | None:
    """What its folder says of how a model learned, and what is usual."""
    if place is None or not (place / folder.METRICS).is_file():
        return None
    return read_metrics(place / folder.METRICS), usual_course(place)
