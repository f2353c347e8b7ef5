"""What may be asked of the own API, one class a route; the server's limits are checked beside them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.exploring.sentences import Tongue

Text = Annotated[str, Field(description="A text of any language.")]
Language = Annotated[
    str | None, Field(max_length=50, description="The target language, for a model that knows several.")
]
Beam = Annotated[int, Field(ge=1, le=1_000_000)]  # what is allowed is for the server's limits to say
Alpha = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Place = Annotated[int, Field(ge=0, le=1_000_000)]


class Body(BaseModel):
    """What all requests have in common."""

    # Strict: "4" is no number. And none of NaN and the infinities, which JSON does not know, but Python does.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[
        str | None, Field(max_length=200, description="Which model; unless given, the first that can do it.")
    ] = None
    text: Text

    @model_validator(mode="after")
    def _is_unicode(self) -> Self:
        # JSON can write half a character, "\\ud800", which nothing can send back.
        for value in self.__dict__.values():
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise ValueError("must be Unicode, but a text holds half a character") from None
        return self


class TranslateBody(Body):
    """A text to translate."""

    language: Language = None
    beam: Beam | None = None
    alpha: Alpha | None = None
    nbest: Count | None = None
    prefix: Annotated[
        str, Field(description="What the translation must begin with; for a text of one sentence alone.")
    ] = ""


class AlternativesBody(Body):
    """What else could follow the beginning of a translation."""

    prefix: str = ""
    count: Annotated[int, Field(ge=1, le=10)] = 10
    language: Language = None


class LookBody(Body):
    """A text to look at, and its translation, unless that is left to the model."""

    target: str | None = None
    language: Language = None


class HeadBody(LookBody):
    """One head of one layer."""

    name: Annotated[str, Field(max_length=50, description="As in the answer of /api/attention.")]
    layer: Place
    head: Place | Literal["mean"] = "mean"


class PictureBody(LookBody):
    """A picture to take."""

    what: Literal["matrix", "arcs", "heads", "alignment", "beam", "next", "positions", "neighbours", "curves", "page"]
    name: Annotated[str, Field(max_length=50)] | None = None
    layer: Place | None = None
    head: Place | None = None
    beam: Beam | None = None
    alpha: Alpha | None = None
    format: Literal["svg", "html"] = "svg"


class BeamBody(Body):
    """A search to watch."""

    beam: Beam | None = None
    alpha: Alpha | None = None
    language: Language = None


class SamplingBody(Body):
    """A text to go on from, and how tokens are drawn."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class NextBody(SamplingBody):
    """What could come next."""

    count: Annotated[int, Field(ge=1, le=100)] = 10


class GenerateBody(SamplingBody):
    """A text to write."""

    max_tokens: Count | None = None
    lines: Annotated[Count, Field(description="The most lines, for a model of running text.")] = 1
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 1  # JavaScript knows no larger whole numbers
    stream: bool = True


class WalkBody(LookBody):
    """One layer to walk through."""

    stack: Literal["encoder", "decoder"] | None = None
    layer: Place = 0
    head: Place = 0
    position: Place | None = None
    tongue: Annotated[Tongue, Field(description="The language of titles and sentences.")] = "en"


class PositionsBody(Body):
    """Positions to show."""

    text: Text = ""
    length: Annotated[int, Field(ge=1, le=512)] = 64
    dimensions: Annotated[int, Field(ge=1, le=512)] = 64
    tongue: Annotated[Tongue, Field(description="The language of the sentence.")] = "en"


class NeighboursBody(Body):
    """A word whose neighbours are looked for."""

    count: Annotated[int, Field(ge=1, le=100)] = 10
