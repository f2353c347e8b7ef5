"""The model that `regard.load` gives."""

from __future__ import annotations

from collections.abc import Sequence

from regard import folder
from regard.api.filling import Filling
from regard.api.generating import Generating
from regard.api.labelling import Labelling
from regard.api.measuring import Measuring
from regard.api.seeing import Seeing
from regard.api.translating import Translating
from regard.api.verifying import Verifying
from regard.decoding.ensemble import Average, Ensemble
from regard.errors import UsageError
from regard.evaluation.catalogue import target_language


class Model(Measuring, Translating, Generating, Filling, Labelling, Verifying, Seeing):
    """A trained model, ready to use: a translator, a language model, or one that gives labels or fills gaps."""

    def together(self, others: Sequence[Model], average: Average = "log") -> Model:
        """An ensemble of this model and others, which need its target vocabulary and nothing else in common.

        `log` averages their log-probabilities, so that a token must please every model; `probability` their
        probabilities, so that it is enough to please one.
        """
        everyone = [self, *others]
        words = self.tokenizer.labels(range(self.tokenizer.size))
        for other in others:
            languages = [target_language(model.recipe.data) for model in (self, other)]
            if None not in languages and len(set(languages)) > 1:
                raise UsageError(
                    f"ensemble: all models must translate into one language, but `{self.recipe.name}` writes "
                    f"`{languages[0]}` and `{other.recipe.name}` `{languages[1]}`. Choose models of one direction."
                )
            if other.tokenizer.labels(range(other.tokenizer.size)) != words:
                raise UsageError(
                    f"ensemble: all models must share a target vocabulary, but `{other.recipe.name}` has another than "
                    f"`{self.recipe.name}`. Choose models that were trained with one tokenizer."
                )
        network = Ensemble([model.network for model in everyone], average).eval()
        loaded = folder.Loaded(self.recipe, self.tokenizer, network)
        return Model(loaded, readers=[model.tokenizer for model in everyone])
