"""Settings made in Python are held to the words that a recipe may choose between."""

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from regard.settings.shape import describe, fields_of, options_of


def check_words(settings: Any) -> None:
    """Raise ValueError if a field that takes one of a few words has another; for `__post_init__`.

    A type checker would tell, but not everybody runs one, and a word that nobody knows would build something else.
    """
    cls: type = type(settings)
    for name, (_, hint) in fields_of(cls).items():
        options, value = options_of(hint), getattr(settings, name)
        if all(get_origin(option) is Literal or option in (bool, NoneType) for option in options):
            words = [
                word
                for option in options
                for word in get_args(option) or ((True, False) if option is bool else (None,))
            ]
            if value not in words:
                raise ValueError(f"`{name}` must be {describe(hint)}, but is {value!r}")
