"""Labels for texts: one for a whole text (classify), or one for each of its tokens (tag).

Shapes: B rows, T tokens, D model, C labels, N answers of a row: 1 of a classifier, T of a tagger.

    x_1 … x_T  = body(text)
    tagger       p(label of token t)   = softmax(W·x_t + b)
    classifier   p(label of the text)  = softmax(W·Σ_t w_t·x_t + b),    Σ_t w_t = 1
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.errors import UsageError
from regard.layers.attention import Watcher
from regard.layers.dropout import Dropout
from regard.layers.recurrent import readable
from regard.models.encoder import BodySettings, RecurrentBodySettings, TransformerBodySettings, build_body
from regard.models.interface import Criterion, Learner
from regard.settings import check_words

PoolingKind = Literal["mean", "first", "last", "attention"]


@dataclass(frozen=True)
class TaggerSettings:
    """A label for each token."""

    kind: Literal["tagger"] = "tagger"
    body: BodySettings = TransformerBodySettings()

    def __post_init__(self) -> None:
        check_words(self)


@dataclass(frozen=True)
class ClassifierSettings:
    """One label for a text."""

    kind: Literal["classifier"] = "classifier"
    body: BodySettings = TransformerBodySettings()
    pooling: PoolingKind = "mean"
    """Which tokens' vectors make the text's. mean: all alike · first, last: one · attention: as it learns to."""

    def __post_init__(self) -> None:
        check_words(self)
        body, pooling = self.body, self.pooling
        if not isinstance(body, RecurrentBodySettings):
            return
        # A state has read what came before it in its direction: at the wrong end of the text, that is nothing.
        if pooling == "first" or (pooling == "last" and body.bidirectional):
            direction = "in both directions" if body.bidirectional else "from left to right"
            fix = "" if body.bidirectional else ', "last"'
            raise ValueError(
                f"`pooling` must take a state that has read the whole text, but is {pooling!r}, and a body that reads "
                f'{direction} has not done so there; choose "mean"{fix} or "attention"'
            )


class LabelModel(Learner):
    """A body and an output projection: reads texts and labels them, as a whole or token by token.

    A training batch has the text as its `target`, no `source`, and in `labels_BT` a label for each answer, [B, N].
    """

    settings: ClassifierSettings | TaggerSettings
    task: ClassVar[Literal["classify", "tag"]]
    """What it does, as its command is called."""

    def __init__(self, body: BodySettings, vocabulary: int, labels: int) -> None:
        super().__init__()
        if labels < 2:
            raise UsageError(
                f"{type(self).__name__}: there must be at least 2 labels to choose between, but there are {labels}; "
                "give examples of each label"
            )
        self.vocabulary, self.labels = vocabulary, labels
        self.body = build_body(body, vocabulary)
        self.width = self.body.width
        self.context = body.limit if isinstance(body, TransformerBodySettings) else None
        """How many tokens it can read, the end among them; None if any number will do."""
        self.dropout = Dropout(body.dropout)
        self.output = _linear(self.width, labels)

    @abstractmethod
    def features(self, text: Tokens) -> Tensor:
        """What the output projection reads, [B, N, D]."""

    def logits(self, features_BND: Tensor) -> Tensor:
        """The output projection: features → unnormalised scores of the labels, [B, N, C]."""
        return self.output(features_BND)

    # A text is enough here: whoever wants to know its labels cannot give a batch that has them.
    def forward(self, text: Tokens) -> Tensor:
        """The scores of the labels, [B, N, C]."""
        return self.logits(self.features(text))

    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The training loss of every answer, [B, N]; the trainer asks for it as it asks a `SequenceModel`."""
        name = type(self).__name__
        if batch.source is not None:
            raise UsageError(
                f"{name}: reads one text, the batch's `target`, but a `source` of "
                f"{list(batch.source.ids_BT.shape)} is there, too; put the text in `target` and None in `source`"
            )
        features_BND = self.features(batch.target)
        if batch.labels_BT.shape != features_BND.shape[:2]:
            raise UsageError(
                f"{name}: `labels_BT` must be {list(features_BND.shape[:2])}, a label for each answer, "
                f"but is {list(batch.labels_BT.shape)}; give one a token to a tagger, one a row to a classifier"
            )
        return criterion(self.logits, features_BND, batch.labels_BT)


class Tagger(LabelModel):
    """A label for each token: N = T."""

    task = "tag"

    def __init__(self, settings: TaggerSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings.body, vocabulary, labels)
        self.settings, self.packs_sentences = settings, self.body.packs_sentences

    def features(self, text: Tokens) -> Tensor:
        """Each token's vector, [B, T, D]."""
        return self.dropout(self.body(text))


class Classifier(LabelModel):
    """One label for a text: N = 1."""

    task = "classify"
    answers_once = True

    def __init__(self, settings: ClassifierSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings.body, vocabulary, labels)
        # Whatever the body could do: a row has one answer, so it must be one text.
        self.settings, self.packs_sentences = settings, False
        self.pooling = Pooling(settings.pooling, self.width)

    def features(self, text: Tokens) -> Tensor:
        """The text's vector, [B, 1, D]."""
        text.places.check_one_sentence("Classifier")
        return self.dropout(self.pooling(self.body(text), text.places))


class Pooling(nn.Module):
    """The vectors of a text's tokens → one vector, Σ_t w_t·x_t. Set `watcher` to receive w, [B, 1, 1, T].

    mean         w_t = 1 / length
    first, last  w = 1 at that token, 0 elsewhere
    attention    w = softmax_t(vᵀ·tanh(W·x_t + b))      (Yang et al. 2016, section 2.2)
    """

    def __init__(self, kind: PoolingKind, d_model: int) -> None:
        super().__init__()
        if kind not in get_args(PoolingKind):
            known = ", ".join(get_args(PoolingKind))
            raise UsageError(f"Pooling: must be one of {known}, but is {kind!r}; choose one of them")
        self.kind = kind
        self.score: nn.Module | None = None
        if kind == "attention":
            self.score = nn.Sequential(_linear(d_model, d_model), nn.Tanh(), nn.Linear(d_model, 1, bias=False))
        self.watcher: Watcher | None = None

    def forward(self, x_BTD: Tensor, places: Places) -> Tensor:
        """[B, T, D] → [B, 1, D]."""
        weights_B1T = self._weights(x_BTD, readable(places))[:, None].to(x_BTD.dtype)
        if self.watcher is not None:
            self.watcher(weights_B1T[:, None])
        return weights_B1T @ x_BTD

    def _weights(self, x_BTD: Tensor, real_BT: Tensor | None) -> Tensor:
        if real_BT is None:
            real_BT = torch.ones_like(x_BTD[:, :, 0], dtype=torch.bool)
        if self.score is not None:
            return self.score(x_BTD)[:, :, 0].masked_fill(~real_BT, -torch.inf).softmax(dim=-1)
        lengths_B1 = real_BT.sum(dim=1, keepdim=True)
        if self.kind == "mean":
            return real_BT / lengths_B1
        # Padding stands on the right of a row, so the last real token is where its length says.
        place_B1 = torch.zeros_like(lengths_B1) if self.kind == "first" else lengths_B1 - 1
        return torch.arange(x_BTD.shape[1], device=x_BTD.device) == place_B1


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """A Glorot-uniform matrix and no bias to begin with."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
