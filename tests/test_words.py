"""A word that no setting knows is refused from Python as it is from a recipe, and no part falls back to another."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from types import NoneType
from typing import Any, Literal, get_origin

import pytest

from regard.errors import UsageError
from regard.layers.embedding import Embedding
from regard.layers.positions import position_scheme
from regard.layers.recurrent import StateAttention
from regard.models.labelling import ClassifierSettings, Pooling, TaggerSettings
from regard.recipe import Recipe
from regard.settings import check_words
from regard.settings.shape import fields_of, options_of, walk

# Data and tokenizers are told apart by `kind` where they are read, and refuse what they do not know there.
READ_ELSEWHERE = ("regard.data.generated", "regard.data.labelled", "regard.data.sources", "regard.text.")


def chosen_words() -> list[tuple[type, str]]:
    """Every field, of every table of settings, that takes one of a few words."""
    found = []
    for root in (Recipe, TaggerSettings, ClassifierSettings):
        for _, table in walk(root):
            if table.__module__.startswith(READ_ELSEWHERE):
                continue
            for name, (_, hint) in fields_of(table).items():
                options = [option for option in options_of(hint) if option is not NoneType]
                if all(get_origin(option) is Literal for option in options):
                    found.append((table, name))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("table", "name"), chosen_words(), ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_word_is_refused(table: type, name: str) -> None:
    assert all(field.default is not MISSING for field, _ in fields_of(table).values())
    with pytest.raises(ValueError, match=rf"`{name}` must be .*, but is 'wrong'"):
        table(**{name: "wrong"})


def test_the_fields_are_found() -> None:
    found = {(table.__name__, name) for table, name in chosen_words()}
    assert {
        ("TransformerSettings", "positions"),
        ("GPTSettings", "norm"),
        ("TransformerBodySettings", "activation"),
        ("TransformerSettings", "tie"),
        ("RecurrentSettings", "attention"),
        ("RecurrentSettings", "attend"),
        ("RecurrentSettings", "context"),
        ("ClassifierSettings", "pooling"),
        ("SearchSettings", "penalty"),
        ("TrainingSettings", "precision"),
    } <= found


@dataclass(frozen=True)
class Choice:
    word: Literal["a", "b"] = "a"
    perhaps: Literal["c"] | None = None
    number: int | Literal["auto"] = "auto"
    name: str = ""

    def __post_init__(self) -> None:
        check_words(self)


def test_what_is_no_choice_between_words_is_left_alone() -> None:
    Choice("b", "c", 7, "anything")
    with pytest.raises(ValueError, match='`word` must be "a" or "b", but is None'):
        Choice(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`perhaps` must be \"c\", but is 'd'"):
        Choice(perhaps="d")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build",
    [
        lambda word: position_scheme(word, heads=2, d_k=4, reach=3, d_model=8),
        lambda word: Embedding(9, 8, 0.0, word),
        lambda word: StateAttention(8, word),
        lambda word: Pooling(word, 8),
    ],
    ids=["position_scheme", "Embedding", "StateAttention", "Pooling"],
)
def test_a_part_does_not_fall_back_to_another(build: Any) -> None:
    with pytest.raises(UsageError, match=r"must be one of .*, but (is|are) 'wrong'"):
        build("wrong")
