"""Translations that are neither perfect nor hopeless, made from made-up sentences."""

from __future__ import annotations

import random

NOUNS = [
    "Bahnhof",
    "Zug",
    "Kind",
    "Haus",
    "Garten",
    "Nachbar",
    "Brief",
    "Vertrag",
    "Minister",
    "Fluss",
    "Preis",
    "Hund",
]
VERBS = ["sieht", "kauft", "findet", "braucht", "verliert", "besucht", "malt", "beschreibt"]
ENDS = ["am 14. März.", "um 15:04 Uhr.", "heute!", "nicht mehr.", "für 1.250,50 €.", "(wie immer).", "in Baden-Baden?"]


def references(lines: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [
        f"Der {chance.choice(NOUNS)} {chance.choice(VERBS)} den {chance.choice(NOUNS)} {chance.choice(ENDS)}"
        for _ in range(lines)
    ]


def spoilt(texts: list[str], rate: float, seed: int) -> list[str]:
    """Words dropped, doubled and put in lower case with this chance each."""
    chance = random.Random(seed)
    found = []
    for text in texts:
        words = [word.lower() if chance.random() < rate else word for word in text.split() if chance.random() > rate]
        found.append(" ".join(word for word in words for _ in range(1 + (chance.random() < rate / 2))))
    return found
