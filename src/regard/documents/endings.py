"""How passages end: titles, cells and labels have no full stop, and their translations get none.

    My holiday    Mein Urlaub.    Mein Urlaub

Models learn from sentences, so they end whatever they write as one.
"""

from __future__ import annotations

import re

from regard.text.sentences import CLOSING, UNSPACED_ENDS

MARKS = f".!?…:;：；؟।॥۔{UNSPACED_ENDS}"
BEHIND = CLOSING.replace("\\", "") + "“‘«‹}>"  # what closes with a mark, in one language or another
SPACES = " \u00a0\u202f"
INITIALS = re.compile(r"(?:\b[^\W\d_]\.){2,}\Z")  # a.m., U.S.A.: their last full stop belongs to them
FAR = 16  # characters in which to look for them


def like(source: str, translation: str) -> str:
    """A translation without the mark at its end, where its source has none there."""
    if _ends(source) or not _ends(translation):
        return translation
    said = translation.rstrip(BEHIND + SPACES)
    bare = said.rstrip(MARKS + SPACES)
    if not bare or INITIALS.search(said[-FAR:]):
        return translation
    return bare + translation[len(said) :]


def _ends(text: str) -> bool:
    """Whether a text ends in a mark, whatever closes behind it."""
    return text.rstrip(BEHIND + SPACES).endswith(tuple(MARKS))
