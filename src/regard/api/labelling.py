"""Labels of texts and of words, and how many of them are right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from regard.api.base import Base, must_be_pairs, must_be_texts
from regard.counts import so_many
from regard.data.labelled import Restoring
from regard.errors import UsageError
from regard.evaluation.labels import LabelReport, evaluate_labels, restoring_tallies
from regard.evaluation.report import TestSet
from regard.labelling import Choice, Counting, Labeller, TaggedText
from regard.models.labelling import LabelModel
from regard.text.restoring import restored


class Labelling(Base):
    """What a model that gives labels can do."""

    @cached_property
    def labeller(self) -> Labeller:
        """What gives labels, of a model that does."""
        network = self._loaded.network
        if not isinstance(network, LabelModel):
            does, use = ("translates", "translate") if network.reads_source else ("continues text", "generate")
            raise UsageError(
                f"labels: need a `classifier` or a `tagger`, but `{self.recipe.name}` {does}; its kind is "
                f"`{self.recipe.model.kind}`. Use `{use}`."
            )
        return Labeller(network, self.tokenizer, isinstance(self.recipe.data, Restoring))

    def classify(self, texts: Sequence[str], progress: Counting | None = None) -> list[Choice]:
        """The label of each text, with the chances of all labels.

        `progress` is called with the number of texts done since the last call.
        """
        self._must_label("classify")
        must_be_texts("classify", texts)
        return self.labeller.classify(texts, progress)

    def tag(self, texts: Sequence[str], progress: Counting | None = None) -> list[TaggedText]:
        """The label of each word of each text, with the chances of all labels; words stand between spaces.

        A model that restores capitals and punctuation gets the words without them, whatever stands in the text.
        """
        self._must_label("tag")
        must_be_texts("tag", texts)
        return self.labeller.tag(texts, progress)

    def restore(self, texts: Sequence[str], progress: Counting | None = None) -> list[str]:
        """Texts with capitals and punctuation, by a model that was trained to tell them (`data.kind = "restoring"`)."""
        self._must_label("tag")
        if not self.labeller.restores:
            raise UsageError(
                f"restore: needs a model of `data.kind` = `restoring`, but that of `{self.recipe.name}` is "
                f"`{self.recipe.data.kind}`. Ask for its tags instead."
            )
        return [restored(found.words, found.tags) for found in self.tag(texts, progress)]

    def evaluate_labels(
        self, texts: Sequence[str], labels: Sequence[str], files: Sequence[TestSet] = (), examples: int = 10,
        progress: Counting | None = None,
    ) -> LabelReport:  # fmt: skip
        """Label `texts` and compare with the right `labels`: one of each text, or those of its words between spaces."""
        must_be_pairs("evaluate", texts, labels)
        labeller = self.labeller
        if labeller.answers == "text":
            given = [[found.label] for found in labeller.classify(texts, progress)]
            right = [[label] for label in labels]
        else:
            given = [list(found.tags) for found in labeller.tag(texts, progress)]
            right = [label.split() for label in labels]
            for number, (one, other) in enumerate(zip(right, given, strict=True), 1):
                if len(one) != len(other):
                    raise UsageError(
                        f"evaluate: there must be a tag for each word, but text {number:,} has "
                        f"{so_many(len(other), 'word')} and {so_many(len(one), 'tag')}."
                    )
        more = restoring_tallies(right, given) if labeller.restores else ()
        return evaluate_labels(texts, right, given, labeller.labels, files, examples, more)

    def _must_label(self, task: Literal["classify", "tag"]) -> None:
        found = self.labeller.network.task
        if found != task:
            gives = "one label to each text" if found == "classify" else "a label to each word"
            raise UsageError(
                f"{task}: needs a `{'classifier' if task == 'classify' else 'tagger'}`, but `{self.recipe.name}` is a "
                f"`{self.recipe.model.kind}`, which gives {gives}. Use `{found}`."
            )
