"""The first look at a corpus counts its characters exactly."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import survey as module
from regard.text.survey import survey


def plain(text: str) -> str:
    return text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_every_character_is_counted(lines: list[str]) -> None:
    for chunk in (9, 2**20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "CHUNK", chunk)
            found = survey(lines, plain)
        expected = Counter("".join(lines))
        assert {chr(code): int(found.counts[code]) for code in found.counts.nonzero()[0]} == expected


def test_lines_are_normalised_one_by_one() -> None:
    found = survey(["a", "\u0308a\u0308"], lambda text: unicodedata.normalize("NFC", text))
    assert found.alphabet(1, 9) == ["a", "ä", "\u0308"]


def test_the_alphabet_is_by_frequency_then_by_code_point() -> None:
    found = survey(["ccbbaé", "c"], plain)
    assert found.alphabet(1, 9) == ["c", "b", "a", "é"]
    assert found.alphabet(1, 3) == ["c", "b", "a"]
    assert found.alphabet(2, 9) == ["c", "b"]
    assert found.alphabet(1, 2, without="c") == ["b", "a"]


def test_scripts_without_spaces_are_told_apart() -> None:
    assert survey(["where is 很久 ひらカ ไทย ລາວ မြန် ខ្មែរ བོད 𠀀?"], plain).unspaced == 2 + 3 + 3 + 3 + 4 + 5 + 3 + 1
    assert survey(["Der Zug fährt; Поезд; 기차; שלום; नमस्ते"], plain).unspaced == 0
