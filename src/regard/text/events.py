"""The vocabulary of music: fixed, not learned. Music written as words is what `regard.music` describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tokenizers

from regard.music import chorale
from regard.music.encoding import Encoding, vocabulary
from regard.text.learning import SPECIALS, whole_words


@dataclass(frozen=True)
class MusicEvents:
    """Every word of a way to write music: `performance` or `chorale`."""

    kind: Literal["music"] = "music"
    encoding: Encoding = "performance"
    """As in the data; a recipe takes it from there, unless told."""
    grid: int = chorale.STEPS
    """Of chorales, the steps in a quarter note; taken from the data, too."""

    def __post_init__(self) -> None:
        chorale.check_grid(self.grid)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, special ones included."""
        return len(SPECIALS) + len(vocabulary(self.encoding))


def events(settings: MusicEvents) -> tokenizers.Tokenizer:
    """A tokenizer of words that stand between spaces."""
    return whole_words(vocabulary(settings.encoding))
