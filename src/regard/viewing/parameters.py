"""What a model is made of: every weight matrix, its shape and its size."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from torch import nn


@dataclass(frozen=True)
class Matrix:
    """One weight matrix or vector."""

    name: str
    shape: tuple[int, ...]
    parameters: int


@dataclass(frozen=True)
class Anatomy:
    """A model's name, kind, vocabulary and weights; a matrix used in several places is counted once."""

    name: str
    kind: str
    vocabulary: int
    parameters: int
    matrices: tuple[Matrix, ...]
    vocabulary_is_limit: bool = field(default=False, kw_only=True)
    """Whether so many tokens are only the most there may be: a vocabulary of characters is yet to be learned."""

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def anatomy(model: nn.Module, name: str, kind: str, vocabulary: int) -> Anatomy:
    """List a model's weights."""
    matrices = tuple(Matrix(path, tuple(weight.shape), weight.numel()) for path, weight in model.named_parameters())
    return Anatomy(name, kind, vocabulary, sum(matrix.parameters for matrix in matrices), matrices)
