"""The vectors a model has for positions and for words.

Shapes: L positions, D dimensions, V vocabulary, E head size, R distances.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import UsageError
from regard.exploring.bundle import Bundle, must_hold_words
from regard.exploring.sentences import Tongue, told
from regard.layers.positions import (
    LearnedPositions,
    LinearBias,
    RelativePositions,
    RelativeWaves,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.models.convs2s import PositionedEmbedding
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer
from regard.viewing.labels import readable, special_labels

DIGITS = 4
BOTH_SIDES = ("relative", "relative-waves")  # kinds of distances to what stands before and behind
LONGEST = 4096
WORDS_TO_TRY = ("father", "Vater", "March", "Juni", "three", "drei")


# ---- positions


@dataclass(frozen=True)
class Positions:
    """How a model tells positions apart.

    `values` has a row for each position, or for each distance where only these matter, and `similarity[i][j]` is the
    cosine between rows i and j, not of the shown dimensions alone.
    """

    kind: str
    rows: str
    """What a row is: a position or a distance."""
    columns: str
    """What a column is: a dimension or a head."""
    values: tuple[tuple[float, ...], ...]
    similarity: tuple[tuple[float, ...], ...]
    first: int = 0
    """The position or the distance of the first row; those behind have a minus."""
    sentence: str = ""
    """What the model does with them."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@torch.inference_mode()
def positions(bundle: Bundle, length: int = 64, dimensions: int = 64, tongue: Tongue = "en") -> Positions:
    """The first `length` positions in their first `dimensions`; raises UsageError for a model that has none.

    Rotary positions are shown as the cosines and sines of their angles; relative ones as the learned vector of each
    distance from far behind to far ahead, or the key that is made from its waves; ALiBi as what each head takes off a
    score at each distance. `tongue` is the language of the sentence.
    """
    for name, value in (("length", length), ("dimensions", dimensions)):
        if not 1 <= value <= LONGEST:
            raise UsageError(f"positions: `{name}` must be from 1 to {LONGEST:,}, but is {value}.")
    kind, rows, columns, values_LD = _positions(bundle.network, length, bundle.recipe.name)
    norms_L1 = values_LD.norm(dim=1, keepdim=True).clamp(min=1e-12)
    unit_LD = values_LD / norms_L1
    # Of distances to both sides, the row in the middle is that of a token to itself.
    first = -(len(values_LD) // 2) if kind in BOTH_SIDES else 0
    shown, alike = _rounded(values_LD[:, :dimensions]), _rounded(unit_LD @ unit_LD.T)
    return Positions(kind, rows, columns, shown, alike, first, told(kind, tongue))


def _positions(network: SequenceModel[Any], length: int, name: str) -> tuple[str, str, str, Tensor]:
    for module in network.modules():
        match module:
            case SinusoidalPositions():
                places_L = torch.arange(length, device=module.frequencies_D.device)
                return "sinusoidal", "position", "dimension", module(places_L[None])[0].float().cpu()
            case LearnedPositions():
                return "learned", "position", "dimension", module.table.weight[:length].float().cpu()
            case PositionedEmbedding():
                return "learned", "position", "dimension", module.positions.weight[:length].float().cpu()
            case RotaryPositions():
                angles_LE = torch.arange(length)[:, None] * module.frequencies_E.float().cpu()
                return "rotary", "position", "dimension", torch.stack([angles_LE.cos(), angles_LE.sin()], -1).flatten(1)
            case RelativePositions():
                near = min(module.reach, length // 2)
                table_RE = module.table_RE[module.reach - near : module.reach + near + 1]
                return "relative", "distance", "dimension", table_RE.float().cpu()
            case RelativeWaves():
                near = length // 2
                keys_RD = module.key(
                    module.waves(torch.arange(-near, near + 1, device=module.content_HE.device)).flip(0)
                )
                return "relative-waves", "distance", "dimension", keys_RD.float().cpu()
            case LinearBias():
                distances_L = torch.arange(length)[:, None]
                return "alibi", "distance", "head", -distances_L * module.slopes_H.float().cpu()
    raise UsageError(
        f"positions: needs a model with positions of its own, but `{name}` has none: it knows the order of words from "
        "reading them one after another."
    )


def _rounded(values: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(value, DIGITS) for value in row) for row in values.tolist())


# ---- words


@dataclass(frozen=True)
class Neighbour:
    """A token near another: the cosine between their vectors, and where it stands on a map of all that are shown."""

    text: str
    similarity: float
    x: float
    y: float


@dataclass(frozen=True)
class Neighbours:
    """The tokens whose embedding is most like that of a word, the most alike first.

    On the map, two directions in which the vectors differ most (their first principal components), the word itself is
    at `place`.
    """

    text: str
    pieces: tuple[str, ...]
    """What the vocabulary makes of the word; the mean of their vectors is compared."""
    tokens: tuple[Neighbour, ...]
    place: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@torch.inference_mode()
def neighbours(bundle: Bundle, text: str, count: int = 12) -> Neighbours:
    """The `count` tokens most like a word, which may be several pieces; the word's own and special ones left out."""
    must_hold_words("neighbours", text)
    table_VD, tokenizer = _embedding(bundle)
    if not 1 <= count <= len(table_VD):
        raise UsageError(f"neighbours: `count` must be from 1 to {len(table_VD):,}, but is {count}.")
    ids = _whole(tokenizer, text.strip())
    own_D = table_VD[ids].mean(dim=0)
    cosine_V = torch.cosine_similarity(table_VD, own_D[None], dim=1)
    left_out = sorted({*ids, *special_labels(tokenizer), *([] if tokenizer.unknown is None else [tokenizer.unknown])})
    cosine_V[left_out] = -torch.inf
    best_N = cosine_V.topk(min(count, len(table_VD) - len(left_out))).indices
    places = _map(torch.cat([own_D[None], table_VD[best_N]]))
    found = zip(readable(tokenizer, best_N.tolist()), cosine_V[best_N].tolist(), places[1:], strict=True)
    return Neighbours(
        text.strip(),
        readable(tokenizer, ids),
        tuple(Neighbour(label, round(cosine, DIGITS), *place) for label, cosine, place in found),
        places[0],
    )


def word_to_try(tokenizer: Tokenizer) -> str:
    """A word with a vector of its own, whose neighbours are worth a look; where there are no words, a letter; where
    there are no letters, as in music, whatever there is."""
    for word in WORDS_TO_TRY:
        if len(_whole(tokenizer, word)) == 1:
            return word
    labels = readable(tokenizer, range(tokenizer.size))  # those that come first are the most frequent
    special = special_labels(tokenizer)
    own = [label for token, label in enumerate(labels) if token not in special and token != tokenizer.unknown]
    kinds = ([label for label in own if label.isalpha() and len(label) >= least] for least in (4, 1))
    return next((label for kind in (*kinds, own) for label in kind if len(_whole(tokenizer, label)) == 1), "")


def _whole(tokenizer: Tokenizer, text: str) -> list[int]:
    """A vocabulary of bytes tells a word inside a text from one at its beginning; the one that is whole is meant."""
    return min((tokenizer.encode(text), tokenizer.encode(f" {text}")), key=len)


def _embedding(bundle: Bundle) -> tuple[Tensor, Tokenizer]:
    """The matrix that has a row for every token, and the tokenizer that numbers them: the target's."""
    size = bundle.tokenizer.size
    for module in bundle.network.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings == size:
            return module.weight.float().cpu(), bundle.tokenizer
    raise UsageError(f"neighbours: needs a model with a vector a token, but `{bundle.recipe.name}` has none.")


def _map(vectors_ND: Tensor) -> list[tuple[float, float]]:
    """Each vector's place along the two directions in which all differ most."""
    unit = torch.nn.functional.normalize(vectors_ND, dim=1).double().numpy()
    centred: NDArray[np.float64] = unit - unit.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(unit), 2))
    across = centred @ directions[:2].T
    flat[:, : across.shape[1]] = across
    return [(round(float(x), DIGITS), round(float(y), DIGITS)) for x, y in flat]
