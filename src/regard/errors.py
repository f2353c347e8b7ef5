"""Every exception Regard raises on purpose.

    RegardError                 a mistake we can name; the command line prints it without a traceback
    ├── UsageError      (2)     the command or the recipe asks for something that does not exist
    ├── DataError       (65)    a file was read and its content is wrong
    ├── MissingError    (66)    a file or folder is not there
    └── InternalError   (70)    Regard itself broke a promise; please report it

The number is the exit code of the command line (BSD's sysexits). A message says four things:
the place, the rule, the value found, and what to do about it.
"""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of signs that steer a terminal, or the order of what it shows


def proposal(name: str, known: Iterable[str], otherwise: str) -> str:
    """The nearest of the known names as a question, for whoever misspelt one; `otherwise` where none is near."""
    close = get_close_matches(name, list(known), n=1)
    return f"Did you mean `{close[0]}`?" if close else otherwise


def printable(text: str, kept: str = "") -> str:
    """A text to quote in a message: of a stranger's file no sign may speak to the terminal or begin a line."""
    return "".join(
        sign if sign in kept or unicodedata.category(sign) not in _UNSEEN else sign.encode("unicode_escape").decode()
        for sign in text
    )


class RegardError(Exception):
    """A mistake we can name, in a sentence that says place, rule, value and fix."""

    exit_code = 70


class UsageError(RegardError):
    """The command or the recipe asks for something that does not exist or cannot be."""

    exit_code = 2


class DataError(RegardError):
    """A file was read, and its content breaks a rule."""

    exit_code = 65


class MissingError(RegardError):
    """A file or folder is not there."""

    exit_code = 66


class InternalError(RegardError):
    """Regard itself broke a promise; please report it."""

    exit_code = 70
