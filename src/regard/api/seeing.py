"""What a model thinks, as plain values and as pictures: each is described where it is made, in `regard.exploring`."""

from __future__ import annotations

from dataclasses import dataclass

from regard.api.base import Base
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.exploring import attention, beam, composing, following, inside, pictures, vectors, walk
from regard.models.interface import SequenceModel
from regard.viewing.figures import AttentionMap, attention_html


@dataclass(frozen=True)
class Picture:
    """A text, its translation (None by a language model), and every attention that made it."""

    model: str
    source: str
    translation: str | None
    maps: list[AttentionMap]

    def to_html(self) -> str:
        """One self-contained page."""
        return attention_html(
            self.maps, title=f"What {self.model} looks at", source=self.source, target=self.translation
        )


class Seeing(Base):
    """What there is to see of a model."""

    def look(self, text: str, search: SearchSettings | None = None, language: str | None = None) -> Picture:
        """Translate `text`, or read it with a language model, and take a picture of every attention.

        Of several sentences, a model that translates each by itself is seen with the first; so it is in all below.
        """
        looked = self.attention(text, None, language, search)
        translation = None if looked.source is None else looked.target
        return Picture(self.recipe.name, looked.source or text, translation, looked.maps())

    def attention(
        self,
        text: str,
        target: str | None = None,
        language: str | None = None,
        search: SearchSettings | None = None,
    ) -> attention.Looked:
        """What every head looked at while it read `text` and wrote `target`, or its own translation.

        A model that gives labels or fills gaps reads `text` alone; to a BERT, each _ in it is a gap.
        """
        if not isinstance(network := self._loaded.network, SequenceModel):
            return attention.look_at_reading(network, self.tokenizer, text)
        return attention.look(self, text, target, language, search)

    def beam_tree(
        self, text: str, beams: int | None = None, alpha: float | None = None, language: str | None = None
    ) -> beam.BeamTree:
        """The tree that a beam search for a translation of `text` grows."""
        return beam.grow(self, text, beams, alpha, language)

    def next_tokens(
        self, text: str, sampling: SamplingSettings | None = None, count: int = following.MOST
    ) -> following.NextTokens:
        """The likeliest tokens after `text`, for a language model."""
        return following.next_tokens(self, text, sampling, count)

    def along(self, text: str, target: str | None = None, language: str | None = None) -> following.AlongText:
        """How likely each token is where it stands: of `text`, or of a translation of it."""
        return following.along(self, text, target, language)

    def alternatives(
        self,
        text: str,
        prefix: str = "",
        count: int = following.MOST,
        language: str | None = None,
        search: SearchSettings | None = None,
    ) -> following.Alternatives:
        """Words that could follow `prefix`, the beginning of a translation of `text`."""
        return following.alternatives(self, text, prefix, count, language, search)

    def walk(
        self,
        text: str,
        target: str | None = None,
        stack: walk.Stack | None = None,
        layer: int = 0,
        head: int = 0,
        position: int | None = None,
        language: str | None = None,
    ) -> walk.Walk:
        """`text` through one layer, step by step, with its real numbers."""
        return walk.walk(self, text, target, stack, layer, head, position, language)

    def note_attention(self, composition: composing.Composition, layer: int = -1) -> composing.NoteAttention:
        """Which notes one layer looked at when it wrote each note of a composition."""
        return composing.note_attention(self, composition, layer)

    def positions(self, length: int = 64, dimensions: int = 64) -> vectors.Positions:
        """How the model tells positions apart."""
        return vectors.positions(self, length, dimensions)

    def neighbours(self, text: str, count: int = 12) -> vectors.Neighbours:
        """The tokens whose vectors are most like a word's."""
        return vectors.neighbours(self, text, count)

    def draw(self, what: pictures.What, asked: pictures.Asked) -> pictures.Shown:
        """A picture of it: attention, search, chances, positions, words, or how it learned."""
        if not isinstance(network := self._loaded.network, SequenceModel):
            return pictures.draw_reading(self, network, what, asked, self.place)
        return pictures.draw(self, what, asked, self.place)

    def summary(self, identifier: str) -> inside.Summary:
        """What a list of models says of this one."""
        if not isinstance(self._loaded.network, SequenceModel):
            return inside.label_summary(self._loaded, identifier, self.labels)
        return inside.summary(self, identifier)

    def inside(self) -> inside.Inside:
        """Its matrices, costs, wiring, curves, card and recipe."""
        return inside.inside(self, self.place)
