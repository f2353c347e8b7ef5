"""How often each piece of text occurs: what vocabularies are learned from.

Words are counted as they stand between spaces; only then is each different word cut into pieces, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

import tokenizers

from regard.status import StatusLine
from regard.text.survey import chunks
from regard.text.words import SPACE, Spaces, as_written, spaces_of, split

# All different words together may have so many characters. Merging them takes some 60 bytes for each.
MOST_CHARACTERS = 2**24
# How often that is looked at, in characters read.
LOOK_EVERY = 2**24
LOOK_AT_CLOCK = 1_000  # words, which take some milliseconds


def count_pieces(lines: Iterable[str], inner: tokenizers.Tokenizer, status: StatusLine | None = None) -> Counter[str]:
    """The pieces into which a tokenizer's rules cut the lines, before anything is merged, and how often each occurs.

    When the different words have become too many to keep, those that came once so far are forgotten; if that is not
    enough, those that came twice, and so on.
    """
    spaces = spaces_of(inner)
    assert spaces is not None, "every kind that is learned from pieces treats words one by one"
    words: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    unseen = 0
    for first, texts in chunks(lines):
        plain = [text for text in texts if _is_plain(text, spaces)]
        if plain:
            words.update(split(plain, spaces)[0])
        if len(plain) < len(texts):
            pieces.update(piece for text in texts if not _is_plain(text, spaces) for piece in _cut(text, inner))
        unseen += sum(map(len, texts))
        if status is not None:
            status.show(partial("counted the words of {:,} lines".format, first - 1 + len(texts)))
        if unseen > LOOK_EVERY:
            _forget_the_rarest(words)
            _forget_the_rarest(pieces)
            unseen = 0
    _forget_the_rarest(words)
    for number, (word, count) in enumerate(words.items()):
        if status is not None and number % LOOK_AT_CLOCK == 0:
            status.show(partial("cut {:,} of {:,} different words".format, number, len(words)))
        for piece in _cut(as_written(word, spaces), inner):
            pieces[piece] += count
    return pieces


def _is_plain(text: str, spaces: Spaces) -> bool:
    """Whether words may be counted apart: there is no white space but single spaces, or spaces that only separate."""
    if not text.isprintable() or SPACE in text:
        return False
    return spaces == "between" or not ("  " in text or text.startswith(" ") or text.endswith(" "))


def _cut(text: str, inner: tokenizers.Tokenizer) -> list[str]:
    return [piece for piece, _ in inner.pre_tokenizer.pre_tokenize_str(inner.normalizer.normalize_str(text))]


def _forget_the_rarest(counted: Counter[str]) -> None:
    rarest = 1
    while sum(map(len, counted)) > MOST_CHARACTERS:
        for text in [text for text, count in counted.items() if count <= rarest]:
            del counted[text]
        rarest += 1
