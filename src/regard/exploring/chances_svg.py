"""How likely each token of a text is where it stands, and what may come next, as bars."""

from __future__ import annotations

from regard.exploring.following import AlongText, NextTokens, TokenChance
from regard.viewing.svg import MARGIN, picture, shortened, text, text_width

ROW, BAR = 22, 150  # a token's height, and the width of a probability of 1
MOST_ROWS = 32  # of a column; a longer text goes on in the next one
LONGEST_LABEL = 16
LONGEST_OTHERS = 44


def along_svg(found: AlongText, title: str, following: NextTokens | None = None) -> str:
    """Draw a text token by token: its probability as a bar, its rank, and the likeliest tokens at its place.

    Below stands what comes after it, if that is given.
    """
    tokens = found.tokens
    rows = min(len(tokens), MOST_ROWS)
    columns = [tokens[first : first + MOST_ROWS] for first in range(0, len(tokens), MOST_ROWS)]
    labels = max(*(text_width(_label(token.text)) for token in tokens), text_width("token", 11))
    others = max(text_width(_others(token), 11) for token in tokens)
    wide = labels + 10 + BAR + 52 + 34 + others + 40
    top = MARGIN + 58
    parts = [text(MARGIN, MARGIN + 12, title, "title")]
    for number, column in enumerate(columns):
        x = MARGIN + number * wide
        parts += _heads(x, labels, top - 14)
        for row, token in enumerate(column):
            parts += _row(token, x, top + row * ROW, labels)
    height = top + rows * ROW + MARGIN
    if following is not None:
        parts += _next(following, height + 16, labels)
        height += 16 + 24 + len(following.tokens) * ROW + MARGIN
    width = max(MARGIN + len(columns) * wide - 40, text_width(title, 15) + 2 * MARGIN, 460)
    return picture(title, width + MARGIN, height, parts)


def _heads(x: float, labels: float, y: float) -> list[str]:
    return [
        text(x + labels, y, "token", "quiet small", "end"),
        text(x + labels + 10, y, "probability", "quiet small"),
        text(x + labels + 10 + BAR + 86, y, "rank", "quiet small", "end"),
        text(x + labels + 10 + BAR + 100, y, "likeliest here", "quiet small"),
    ]


def _row(token: TokenChance, x: float, y: float, labels: float) -> list[str]:
    told = f"{token.text}: probability {token.probability:.6f}, rank {token.rank}"
    return [
        text(x + labels, y + 15, _label(token.text), "", "end", told),
        *_bar(x + labels + 10, y, token.probability),
        text(x + labels + 10 + BAR + 86, y + 15, f"{token.rank:,}", "quiet" if token.rank == 1 else "mark", "end"),
        text(x + labels + 10 + BAR + 100, y + 15, _others(token), "quiet small"),
    ]


def _bar(x: float, y: float, probability: float, look: str = "cell") -> list[str]:
    return [
        f'<rect class="empty" x="{x:.1f}" y="{y + 4:.1f}" width="{BAR}" height="14" rx="2"/>'
        f'<rect class="{look} bar" x="{x:.1f}" y="{y + 4:.1f}" width="{BAR * probability:.4f}" height="14" rx="2"/>',
        text(x + BAR + 8, y + 15, f"{probability:.1%}", "small"),
    ]


def _next(found: NextTokens, top: float, labels: float) -> list[str]:
    labels = max(labels, *(text_width(_label(token.text)) for token in found.tokens))
    parts = [text(MARGIN, top + 12, f"what comes next; entropy {found.entropy:.2f} nats", "strong")]
    for row, token in enumerate(found.tokens):
        y = top + 24 + row * ROW
        parts += [
            text(MARGIN + labels, y + 15, _label(token.text), "", "end", token.text),
            *_bar(MARGIN + labels + 10, y, token.probability),
        ]
    return parts


def _label(piece: str) -> str:
    return shortened(_visible(piece), LONGEST_LABEL)


def _visible(piece: str) -> str:
    return (piece.strip(" ") or "␣" * len(piece) or "␣").replace("\n", "⏎").replace("\t", "⇥")


def _others(token: TokenChance) -> str:
    likely = [f"{label} {chance:.0%}" for label, chance in token.top[:4] if chance >= 0.005]
    return shortened(", ".join(likely or [token.top[0][0]]), LONGEST_OTHERS)
