"""What the own API answers with, for its OpenAPI description; `regard.exploring` makes the values."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Matrix = list[list[float]]


class ErrorContent(BaseModel):
    """What is wrong: the place, the rule, the value found, and what to do."""

    type: Literal["usage", "data", "missing", "limit", "busy", "internal"]
    message: str
    field: str | None = None


class ErrorAnswer(BaseModel):
    """Every answer that is no result."""

    error: ErrorContent


class Languages(BaseModel):
    """From which language, if known, and into which."""

    source: str | None
    target: list[str]


class AttentionStack(BaseModel):
    """One kind of attention."""

    name: str
    layers: int
    heads: int


class ModelSummary(BaseModel):
    """A model that is served."""

    id: str
    name: str
    task: Literal["translate", "generate", "classify", "tag"]
    kind: str
    parameters: int | None
    """Not known of a folder of CTranslate2 that Regard did not write."""
    context: int | None
    languages: Languages
    attention: list[AttentionStack]
    walk: bool
    music: bool
    """Whether it writes music, for /api/music."""
    labels: list[str]
    """Those that it gives, for /api/classify and /api/tag."""
    running: bool
    """Whether it writes running text, for `lines` of /api/generate."""


class LimitsAnswer(BaseModel):
    """The most that may be asked for."""

    text: int
    beam: int
    nbest: int
    tokens: int
    n: int


class ModelsAnswer(BaseModel):
    """All models of this server."""

    models: list[ModelSummary]
    default: str
    limits: LimitsAnswer
    version: str


class TranslationItem(BaseModel):
    """One translation; scores compare translations of one text."""

    text: str
    score: float
    tokens: list[str]


class SegmentItem(BaseModel):
    """A sentence of a text, and its best translation."""

    source: str
    text: str
    score: float


class TranslateAnswer(BaseModel):
    """Translations, best first; the alignment is the first one's: source token, target token, weight.

    A text of several sentences has them as `segments`. Its translations are theirs, joined, and keep its lines; scores
    are sums, tokens and the alignment are of one sentence after the other.
    """

    translations: list[TranslationItem]
    segments: list[SegmentItem]
    source_tokens: list[str]
    alignment: list[tuple[int, int, float]]
    flags: list[str]
    milliseconds: int


class AlternativeItem(BaseModel):
    """A word that could follow, and how the translation would go on."""

    text: str
    probability: float
    translation: str
    score: float


class AlternativesAnswer(BaseModel):
    """Words that could follow a beginning, the likeliest first."""

    alternatives: list[AlternativeItem]


class HeadsItem(BaseModel):
    """One layer's heads in numbers."""

    name: str
    layer: int
    heads: int
    queries: list[str]
    keys: list[str]
    entropy: list[float]
    distance: list[float]
    separators: list[float]
    mean_entropy: float = Field(description="of the mean of all heads")


class AttentionAnswer(BaseModel):
    """Every attention of a text, without its weights."""

    source: str | None
    target: str
    maps: list[HeadsItem]


class HeadAnswer(BaseModel):
    """The weights of one head, a row a query."""

    weights: Matrix


class NodeItem(BaseModel):
    """A continuation that a search considered."""

    id: int
    parent: int | None
    token: str
    log_probability: float
    score: float
    kept: bool
    ended: bool


class ResultItem(BaseModel):
    """A text that a search found, and the nodes on the way to it."""

    text: str
    score: float
    nodes: list[int]


class BeamAnswer(BaseModel):
    """All rounds of a search for a translation of `source`: of several sentences perhaps the first."""

    source: str
    rounds: list[list[NodeItem]]
    results: list[ResultItem]


class NextItem(BaseModel):
    """A token that may follow."""

    id: int
    text: str
    probability: float
    chance: float
    end: bool


class NextAnswer(BaseModel):
    """The likeliest next tokens; flags say what is odd about how the text was read."""

    text_tokens: list[str]
    tokens: list[NextItem]
    kept: int
    entropy: float
    flags: list[str]


class GenerateAnswer(BaseModel):
    """A text that was written; with `stream`, it comes as events: pieces (`text`), then `done`."""

    text: str
    finish_reason: Literal["end", "length", "stop"]
    seed: int


class ChanceItem(BaseModel):
    """How likely a token is where it stands."""

    text: str
    probability: float
    rank: int
    top: list[tuple[str, float]]


class TokensAnswer(BaseModel):
    """A text, token by token: that of a language model, or a translation of `source`.

    Of a long text for a language model, so many tokens were `skipped`, and the last were read.
    """

    source: str | None
    tokens: list[ChanceItem]
    skipped: int


class TableItem(BaseModel):
    """A part of a matrix; `whole` are its true sizes, `first` where the part begins. A masked score is null."""

    name: str
    rows: list[str]
    columns: list[str] | None
    values: list[list[float | None]]
    whole: tuple[int, int]
    first: tuple[int, int]


class StepItem(BaseModel):
    """One step of a layer."""

    id: str
    title: str
    sentence: str
    formula: str
    shapes: str
    tensors: list[TableItem]
    kept: list[int] | None
    computed: list[int] | None


class WalkAnswer(BaseModel):
    """One layer, step by step; `source` is what was read to be translated, perhaps the first sentence of the text."""

    source: str | None
    tokens: list[str]
    target_tokens: list[str] | None
    stack: Literal["encoder", "decoder"]
    layer: int
    head: int
    position: int
    steps: list[StepItem]


class InsideAnswer(BaseModel):
    """All that is known of a model; pictures are SVG, tall ones for narrow screens."""

    inspection: dict[str, Any]
    wiring: str | None
    tall_wiring: str | None
    curves: str | None
    tall_curves: str | None
    card: str | None
    recipe: str = Field(description="TOML")
    word: str = Field(description="one of the vocabulary, to begin with")


class PositionsAnswer(BaseModel):
    """How a model tells positions apart."""

    kind: str
    rows: str
    columns: str
    values: Matrix
    similarity: Matrix
    first: int = Field(description="the position or the distance of the first row")
    sentence: str = Field(description="what the model does with them")


class NeighbourItem(BaseModel):
    """A token near another, and its place on a map."""

    text: str
    similarity: float
    x: float
    y: float


class NeighboursAnswer(BaseModel):
    """The tokens most like a word."""

    text: str
    pieces: list[str]
    tokens: list[NeighbourItem]
    place: tuple[float, float]
