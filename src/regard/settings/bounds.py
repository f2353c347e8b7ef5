"""Numbers in settings, held to their bounds: for `__post_init__`, by the names of the fields.

A field that is None, as one that may be left out, is within any bound. What is no number (NaN) is within none.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any


def check_at_least(least: int, settings: Any, *names: str) -> None:
    """Raise ValueError if one of these is less."""
    _check(settings, names, f"at least {least}", lambda value: value >= least, f"{least} or more")


def check_shares(settings: Any, *names: str) -> None:
    """Raise ValueError unless these are parts of a whole that leave some of it, as a dropout or Adam's betas must."""
    _check(settings, names, "at least 0 and below 1", lambda value: 0 <= value < 1, "0.1 or 0.9, say")


def check_weights(settings: Any, *names: str) -> None:
    """Raise ValueError unless these can weigh one thing against another; 0 is without it."""
    _check(settings, names, "at least 0 and finite", lambda value: 0 <= value < inf, "0 or more")


def check_positive(settings: Any, *names: str) -> None:
    """Raise ValueError unless these are above 0 and finite."""
    _check(settings, names, "positive and finite", lambda value: 0 < value < inf, "a number above 0")


def _check(settings: Any, names: Iterable[str], rule: str, holds: Callable[[float], bool], fix: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not holds(value):
            raise ValueError(f"`{name}` must be {rule}, but is {value}; give {fix}")
