"""What is searched as one, and what together."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from regard.translation.units import batches, cut

TEXTS = st.lists(st.text(alphabet=st.sampled_from("ab. ,\u00ad"), max_size=60), max_size=5)
END = 0


def encode(texts: Sequence[str]) -> list[list[int]]:
    """A token a letter that is no space, and the end."""
    return [[*(ord(letter) for letter in "".join(text.split())), END] for text in texts]


def letters(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, st.integers(2, 20))
def test_nothing_but_spaces_and_invisible_signs_is_lost(texts: list[str], longest: int) -> None:
    units = cut(texts, encode, longest, begin=False)
    assert [unit.place for unit in units] == sorted(unit.place for unit in units)
    assert all(unit.ids == encode([unit.text])[0] and len(unit.ids) <= longest for unit in units)
    for place, text in enumerate(texts):
        own = [unit for unit in units if unit.place == place]
        assert [(unit.number, unit.pieces) for unit in own] == [(number, len(own)) for number in range(len(own))]
        said = letters("".join(unit.text for unit in own))
        assert said.replace("\u00ad", "") == letters(text).replace("\u00ad", "")


@given(TEXTS, st.integers(2, 20))
def test_of_each_text_one_beginning_is_read(texts: list[str], longest: int) -> None:
    units = cut(texts, encode, longest, begin=True)
    assert [unit.place for unit in units] == [
        place for place, text in enumerate(texts) if letters(text).replace("\u00ad", "")
    ]
    for unit in units:
        assert len(unit.ids) <= longest
        assert (unit.number, unit.pieces) == (0, 1)
        if not unit.begins and len(letters(texts[unit.place])) < longest:
            assert unit.text == texts[unit.place]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 8), st.integers(1, 400))
def test_batches_have_every_unit_once_the_longest_first(lengths: list[int], beam: int, slots: int) -> None:
    found = batches(lengths, beam, slots)
    numbers = [number for batch in found for number in batch]
    assert sorted(numbers) == list(range(len(lengths)))
    assert [lengths[number] for number in numbers] == sorted(lengths, reverse=True)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] * beam <= slots for batch in found)
