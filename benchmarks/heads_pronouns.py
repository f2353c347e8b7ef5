"""Who is `it`: pairs of sentences that differ in one adjective, which decides what the pronoun stands for.

"The animal didn't cross the street because it was too tired" is about the animal; with "wide", about the street. In
German the pronoun takes the gender of its noun (er, sie, es), so a translation has to know.

For a head, the *lean* is its weight from "it" to the first noun, less that to the second. It *moves* by the lean in
the sentence about the first noun, less that in the sentence about the second. A head that finds the noun moves up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.heads_rules import Line
from regard.api import Model
from regard.exploring.attention import Looked

BECAUSE = re.compile(r"\b(?:weil|da|denn)\b.*?\b(?P<pronoun>er|sie|es)\b")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Riddle:
    """Two nouns with the German pronoun of each, what the first did not do to the second, and two adjectives."""

    first: str
    first_pronoun: str
    verb: str
    second: str
    second_pronoun: str
    of_first: str
    of_second: str
    negation: str = "did not"

    def sentence(self, adjective: str) -> str:
        """The sentence with an adjective."""
        return f"The {self.first} {self.negation} {self.verb} the {self.second} because it was too {adjective}."


RIDDLES = (
    Riddle("animal", "es", "cross", "street", "sie", "tired", "wide", "didn't"),
    Riddle("horse", "es", "jump over", "wall", "sie", "tired", "high"),
    Riddle("lorry", "er", "cross", "bridge", "sie", "heavy", "narrow"),
    Riddle("child", "es", "carry", "bag", "sie", "weak", "heavy"),
    Riddle("cat", "sie", "climb", "tree", "er", "lazy", "tall"),
    Riddle("dog", "er", "drink", "water", "es", "ill", "dirty"),
    Riddle("ship", "es", "enter", "port", "er", "large", "shallow"),
    Riddle("bank", "sie", "buy", "building", "es", "poor", "expensive"),
    Riddle("city", "sie", "build", "tunnel", "er", "poor", "expensive"),
    Riddle("government", "sie", "change", "law", "es", "weak", "popular"),
    Riddle("Commission", "sie", "withdraw", "proposal", "er", "stubborn", "good"),
    Riddle("Parliament", "es", "read", "report", "er", "busy", "long"),
    Riddle("Council", "er", "adopt", "directive", "sie", "divided", "complicated"),
    Riddle("committee", "er", "read", "document", "es", "tired", "long"),
    Riddle("country", "es", "close", "border", "sie", "weak", "long"),
    Riddle("union", "sie", "accept", "contract", "er", "proud", "vague"),
)


@dataclass(frozen=True)
class Solved:
    """What a model did with a riddle: its two translations, the pronouns in them, and how its heads moved.

    `leans_2LH` are those of the encoder's heads in both sentences, `looks_LH` their mean weight from "it" to both nouns
    together. `preference` is by how many nats the pronoun of the right noun gains against the other from one sentence
    to the other, None where a translation has no pronoun after "because".
    """

    riddle: Riddle
    texts: tuple[str, str]
    pronouns: tuple[str | None, str | None]
    leans_2LH: Floats
    looks_LH: Floats
    preference: float | None

    @property
    def right(self) -> tuple[bool, bool]:
        """Whether each translation has the pronoun of the noun it is about."""
        riddle, (one, other) = self.riddle, self.pronouns
        return one == riddle.first_pronoun, other == riddle.second_pronoun

    @property
    def written(self) -> tuple[int, int]:
        """Which noun the pronoun of each translation stands for: 1 the first, -1 the second, 0 neither."""
        numbers = {self.riddle.first_pronoun: 1, self.riddle.second_pronoun: -1}
        one, other = (0 if pronoun is None else numbers.get(pronoun, 0) for pronoun in self.pronouns)
        return one, other


def solve(model: Model, riddle: Riddle) -> Solved:
    """Translate both sentences of a riddle, and see how the heads of the encoder move."""
    sentences = [riddle.sentence(adjective) for adjective in (riddle.of_first, riddle.of_second)]
    looked = [model.attention(sentence) for sentence in sentences]
    weights = [_weights(model, riddle, sentence, each) for sentence, each in zip(sentences, looked, strict=True)]
    matches = [BECAUSE.search(each.target) for each in looked]
    both = np.stack([first - second for first, second in weights])
    looks = np.mean([first + second for first, second in weights], axis=0)
    preference = None
    if all(matches):
        odds = [
            _odds(model, riddle, sentence, match) for sentence, match in zip(sentences, matches, strict=True) if match
        ]
        preference = odds[0] - odds[1]
    pronouns = [match["pronoun"] if match else None for match in matches]
    return Solved(
        riddle, (looked[0].target, looked[1].target), (pronouns[0], pronouns[1]), both, looks, preference
    )  # fmt: skip


def line_of(model: Model, sentence: str) -> Line:
    """A source as its tokens."""
    tokenizer = model.tokenizer.source
    return Line.of(tokenizer, tokenizer.encode(sentence))


def row_of_it(line: Line) -> int:
    """The token that asks."""
    return line.tokens(*re.search(r"\bit\b", line.text).span())[-1]  # type: ignore[union-attr]


def _weights(model: Model, riddle: Riddle, sentence: str, looked: Looked) -> tuple[Floats, Floats]:
    """The weights of each head of the encoder from "it" to the first and to the second noun, [L, H] each."""
    line = line_of(model, sentence)
    weights_LHQK = np.stack([each.weights for each in looked.maps() if each.name == "encoder"]).astype(np.float64)
    places = [line.text.index(f" {noun} ") + 1 for noun in (riddle.first, riddle.second)]
    row = row_of_it(line)
    first, second = (
        weights_LHQK[:, :, row, line.tokens(place, place + len(noun))].sum(axis=-1)
        for place, noun in zip(places, (riddle.first, riddle.second), strict=True)
    )
    return first, second


def _odds(model: Model, riddle: Riddle, sentence: str, match: re.Match[str]) -> float:
    """By how many nats a translation is likelier with the first noun's pronoun than with the second's."""
    begin, end = match.span("pronoun")
    texts = [match.string[:begin] + word + match.string[end:] for word in (riddle.first_pronoun, riddle.second_pronoun)]
    one, other = model.score(texts, [sentence, sentence])
    return one.log_probability - other.log_probability


@dataclass(frozen=True)
class Mover:
    """A head, its mean move over all riddles, how many moved up, and its mean weight from "it" to both nouns.

    `chance` is how likely the best of so many heads moves up, or down, in so many riddles without knowing anything. Of
    the `spoken` translations whose pronoun stands for one of the nouns, it leans to that noun in `agrees`.
    """

    layer: int
    head: int
    move: float
    up: int
    riddles: int
    looks: float
    chance: float
    agrees: int
    spoken: int


def movers(solved: Sequence[Solved]) -> list[Mover]:
    """Every head of the encoder, the largest mean move first."""
    leans_N2LH = np.stack([each.leans_2LH for each in solved])
    moves_NLH = leans_N2LH[:, 0] - leans_N2LH[:, 1]
    written_N2 = np.array([each.written for each in solved])
    agrees_LH = (leans_N2LH * written_N2[:, :, None, None] > 0).sum(axis=(0, 1))
    looks_LH = np.mean([each.looks_LH for each in solved], axis=0)
    means_LH, ups_LH = moves_NLH.mean(axis=0), (moves_NLH > 0).sum(axis=0)
    found = [
        Mover(
            layer,
            head,
            float(means_LH[layer, head]),
            int(ups_LH[layer, head]),
            len(solved),
            float(looks_LH[layer, head]),
            min(1.0, means_LH.size * sign_test(int(ups_LH[layer, head]), len(solved))),
            int(agrees_LH[layer, head]),
            int((written_N2 != 0).sum()),
        )
        for layer, head in np.ndindex(*means_LH.shape)
    ]
    return sorted(found, key=lambda each: -each.move)


def sign_test(ups: int, total: int) -> float:
    """The chance of so uneven a split, or a more uneven one, of `total` fair coins; two-sided."""
    most = max(ups, total - ups)
    return min(1.0, 2 * sum(math.comb(total, count) for count in range(most, total + 1)) / 2**total)
