"""Numbers in settings are held to their bounds, and the sentence names the field, the rule and the value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, nan

import pytest

from regard.settings.bounds import check_at_least, check_positive, check_shares, check_weights


@dataclass(frozen=True)
class Numbers:
    """Some numbers, of which one may be left out."""

    one: float = 1.0
    other: float | None = None


def test_the_bounds_themselves_belong_to_what_is_allowed_where_the_rule_says_so() -> None:
    check_at_least(1, Numbers(1), "one")
    check_shares(Numbers(0), "one")
    check_weights(Numbers(0), "one")
    check_positive(Numbers(1e-300), "one")


@pytest.mark.parametrize("value", [0.999, -inf, nan])
def test_at_least(value: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"`one` must be at least 1, but is {value}; give 1 or more")):
        check_at_least(1, Numbers(value), "one")


@pytest.mark.parametrize("value", [-1e-9, 1.0, nan])
def test_shares(value: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"`one` must be at least 0 and below 1, but is {value}; give 0.1 ")):
        check_shares(Numbers(value), "one")


@pytest.mark.parametrize("value", [-1e-9, inf, nan])
def test_weights(value: float) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"`one` must be at least 0 and finite, but is {value}; give 0 or more")
    ):
        check_weights(Numbers(value), "one")


@pytest.mark.parametrize("value", [0.0, inf, nan])
def test_positive(value: float) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"`one` must be positive and finite, but is {value}; give a number above 0")
    ):
        check_positive(Numbers(value), "one")


def test_what_is_left_out_is_within_any_bound_and_the_first_that_is_not_is_named() -> None:
    check_at_least(1, Numbers(), "other", "one")
    with pytest.raises(ValueError, match="`other` must be at least 2, but is 1"):
        check_at_least(2, Numbers(2, 1), "one", "other")
