"""How many of what there are, in words that agree: one line is, two lines are."""

from __future__ import annotations


def so_many(count: int, thing: str, things: str | None = None) -> str:
    """`1 line`, `2 lines`, `1,000 lines`; `things` are several of them, unless they are a `thing` and an s."""
    return f"{count:,} {agreeing(count, thing, things)}"


def agreeing(count: int, thing: str, things: str | None = None) -> str:
    """The word alone, as in `is` and `are`."""
    return thing if count == 1 else things or f"{thing}s"
