"""Whether a model keeps its promises: the same answer in any company."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard import verification
from regard.api.base import Base, must_be_texts
from regard.errors import UsageError
from regard.models.interface import SequenceModel
from regard.translation.translator import Options
from regard.verification import Check


class Verifying(Base):
    """What can be checked of a model."""

    def verify(
        self,
        texts: Sequence[str] | None = None,
        count: int = 24,
        tolerance: float | None = None,
        language: str | None = None,
    ) -> Iterator[Check]:
        """Check, one by one, that answers do not depend on neighbours, order, padding, batch size or cache.

        Asks about `texts`, where one that is too long counts as its sentences, or about `count` texts of random tokens.
        Scores may differ by `tolerance`; unless given, by what rounding explains.
        """
        network, specials = self._loaded.network, self.tokenizer.specials
        if isinstance(network, SequenceModel):
            self._must_read_alike("verify")
        asked = self._random_texts(count) if texts is None else self._texts_to_verify(texts, language)
        if len(asked) < 2:
            raise UsageError(f"verify: needs at least 2 texts, so that there are neighbours, but has {len(asked)}.")
        allowed = verification.tolerance(network) if tolerance is None else tolerance
        if not isinstance(network, SequenceModel):
            return verification.verify_labels(network, specials, asked, allowed)
        if network.reads_source:
            sources = [[*ids, specials.end] for ids in asked]
            return verification.verify_translator(network, specials, self.recipe.search, sources, allowed)
        return verification.verify_generator(network, specials, asked, allowed)

    def _random_texts(self, count: int) -> list[list[int]]:
        reader, context = self.tokenizer.source, self._loaded.network.context
        half = None if context is None else context // 2
        return verification.random_texts(reader.size, self.tokenizer.specials, count, half, self.recipe.seed)

    def _texts_to_verify(self, texts: Sequence[str], language: str | None) -> list[list[int]]:
        must_be_texts("verify", texts)
        if self.task != "translate":
            return self.tokenizer.source.encode_all(texts)
        units = self._translator.units(texts, self.recipe.search, Options(language=language))
        return [unit.ids[:-1] for unit in units]
