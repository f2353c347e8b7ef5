"""What a translation is, and how that of a long text is put together from those of its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.text.sentences import join
from regard.translation.alignment import TokenLink

FLAGS = ("cut", "loop", "copy", "empty", "split", "begin", "unknown")


@dataclass(frozen=True)
class Translation:
    """One translation of a text.

    `flags` say what looks odd:

        cut       it reached the length limit, so its end may be missing
        loop      it says something four times in a row or more, and the source does not
        copy      it is the source, or nearly so
        empty     nothing was written, though the source has text
        split     the source was too long, or had several sentences: its pieces were translated one by one
        begin     the source was too long: only its beginning was read
        unknown   the vocabulary lacks something of the source, or <unk> was written
    """

    text: str
    score: float
    """The log-probability divided by the length penalty; compare it within one text only."""
    log_probability: float
    cut: bool
    tokens: tuple[str, ...] = ()
    source_tokens: tuple[str, ...] = ()
    alignment: tuple[TokenLink, ...] = ()
    """(source token, target token, weight of attention), if it was asked for."""
    flags: tuple[str, ...] = ()


def joined(parts: Sequence[str], answers: Sequence[list[Translation]], share: int) -> list[Translation]:
    """The translations of a text from those of its parts: the best of each, then the second best of each, …

    The score is the sum of theirs, divided by `share`.
    """
    found = []
    for rank in range(max(map(len, answers))):
        chosen = [translations[min(rank, len(translations) - 1)] for translations in answers]
        links: list[TokenLink] = []
        read = written = 0
        for each in chosen:
            links.extend((i + read, j + written, weight) for i, j, weight in each.alignment)
            read, written = read + len(each.source_tokens), written + len(each.tokens)
        flags = {flag for each in chosen for flag in each.flags} | {"split"}
        found.append(
            Translation(
                join(parts, [each.text for each in chosen]),
                sum(each.score for each in chosen) / share,
                sum(each.log_probability for each in chosen),
                any(each.cut for each in chosen),
                tuple(token for each in chosen for token in each.tokens),
                tuple(token for each in chosen for token in each.source_tokens),
                tuple(links),
                tuple(flag for flag in FLAGS if flag in flags),
            )
        )
    return found


def one_line(text: str) -> str:
    """A translation as it stands in a file of lines: a model of bytes may write a line end inside a text."""
    return " ".join(text.replace("\r", "\n").split("\n"))


def to_json(translations: Sequence[Translation]) -> dict[str, object]:
    """The translations of one text as `regard translate --json` prints them; docs/translate.md describes it."""
    best, *others = translations
    return {
        "text": best.text,
        "score": best.score,
        "tokens": best.tokens,
        "source_tokens": best.source_tokens,
        "alternatives": [{"text": other.text, "score": other.score} for other in others],
        "alignment": best.alignment,
        "flags": best.flags,
    }
