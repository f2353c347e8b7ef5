"""Gaps in texts: what a model that sees both sides puts there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from regard.api.base import Base, must_be_texts
from regard.errors import UsageError
from regard.filling import GAP, MOST, Filled, Filler
from regard.models.interface import FillsGaps


class Filling(Base):
    """What a model can put into gaps."""

    def fill(self, texts: Sequence[str], count: int = MOST, gap: str = GAP) -> list[Filled]:
        """Find what stands in every gap of each text; `gap` is how one is written, each a token.

        The `count` likeliest tokens are told of each gap. Gaps of one text know nothing of each other.
        """
        must_be_texts("fill", texts)
        if count < 1:
            raise UsageError(f"fill: `count` must be at least 1, but is {count}. Ask for more.")
        filler = self._filler
        return [filler.fill(text, count, gap) for text in texts]

    @cached_property
    def _filler(self) -> Filler:
        network = self._loaded.network
        if not isinstance(network, FillsGaps):
            raise UsageError(
                f"fill: needs a model that sees both sides of a gap, a `bert` or an `xlnet`, but `{self.recipe.name}` "
                f"is a `{self.recipe.model.kind}`. Choose another."
            )
        return Filler(network, self.tokenizer, network.context)
