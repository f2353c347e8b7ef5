"""What looks odd about a translation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.flags import LOOP, is_copy, is_loop, repeats


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 1), ("abc", 1), ("aa", 2), ("abab", 2), ("xababab", 3), ("abcabcabcabcx", 4), ("aaab", 3)],
)
def test_repeats_are_counted(text: str, expected: int) -> None:
    assert repeats([ord(char) for char in text]) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(LOOP, 7), st.lists(st.integers(4, 6)))
def test_what_is_said_again_and_again_is_a_loop(unit: list[int], times: int, around: list[int]) -> None:
    said = [*around, *unit * times, *around]
    assert repeats(said) >= times
    assert is_loop([1, 2, 3], said)
    assert not is_loop(said, said)  # the source says it, too


def test_what_is_said_often_but_not_in_a_row_is_no_loop() -> None:
    assert not is_loop([], [1, 2, 1, 3, 1, 4, 1, 5])
    assert not is_loop([], [1] * (LOOP - 1))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The house is old.", "The house is old.", True),
        ("The house is old.", "the  house is OLD.", True),
        ("The house by the lake is old.", "The house by the lake is alt.", True),
        ("The house is old.", "Das Haus ist alt.", False),
        ("今天天气很好我们走吧", "今天天气很好我们走", True),
        ("12.5", "12.5", False),
        ("Berlin", "Berlin", True),
        ("ab", "cd", False),
        ("word", "", False),
    ],
)
def test_copies_are_noticed(source: str, target: str, expected: bool) -> None:
    assert is_copy(source, target) == expected
