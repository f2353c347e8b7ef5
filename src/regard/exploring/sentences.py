"""What happens in each step of a walk, in plain words.

A step names its sentences and gives the values in them, so that the same can be said in another language: `tellings`
has every one of these in German and Chinese. Titles are called as sentences are, up to their dots.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regard.exploring import tellings

Value = str | int | float
Tongue = Literal["en", "de", "zh"]
"""A language that steps can be told in."""
NUMBER = re.compile(r"\d[\d,]*")
FIGURE = re.compile(r"\d[\d,.]*(?:e[+-]\d+)?")  # perhaps with decimals
SHARE = "share"  # the one value that is written in percent

WIRED = {"en": "How {} is wired", "de": "Wie {} verdrahtet ist", "zh": "{} 的连接"}
"""What a picture of a wiring is called."""
LEARNED = {"en": "How {} learned", "de": "Wie {} lernte", "zh": "{} 的学习经过"}
"""What a picture of learning curves is called."""

TITLES = {
    "embedding": "Embedding",
    "position": "Position",
    "input": "Into layer {layer}",
    "norm": "Norm",
    "add": "Add",
    "qkv": "Query, key, value",
    "source": "Query; the source’s keys and values",
    "turn": "Turned by position",
    "scores": "Scores",
    "scale": "Divided by √{d_k}",
    "bias": "Distance",
    "mask": "Mask",
    "softmax": "Softmax",
    "sum": "Weighted sum",
    "join": "Heads joined",
    "feedforward": "Feed-forward",
    "logits": "Next token",
}

NORMED = "Queries and keys are scaled to a mean square of 1, then by learned numbers, so no product can grow too large."
SENTENCES = {
    "embedding": "Each token is looked up in the embedding matrix: one row of {size} learned numbers.",
    "embedding.scaled": "It is multiplied by √{size}.",
    "position": "A vector that says where the token stands is added. Without it, the layers could not tell the order "
    "of tokens.",
    "position.learned": "Each position has a learned one.",
    "position.waves": "It is made of waves, sines at even and cosines at odd places.",
    "input": "These are the vectors as layer {below} left them: they now speak of tokens in their company.",
    "norm": "Each vector is shifted and scaled to mean 0 and variance 1, then by learned numbers.",
    "add": "What came out is added to what went in: the token keeps what it was, and gains what it found.",
    "qkv": "Three matrices make of each vector a query (what it looks for), a key (what it offers to be found by) and "
    "a value (what it gives). Here are those of head {head}.",
    "qkv.normed": NORMED,
    "qkv.first": "«{word}» is the first to be read: nothing is kept yet, and its own are computed.",
    "qkv.kept": "When «{word}» is read, the keys and values of all tokens before it ({count}) were kept; only its own "
    "are computed.",
    "source": "Each token being written asks with a query; the keys and values are those of the source, made once from "
    "what the encoder read. Here are those of head {head}.",
    "source.normed": NORMED,
    "turn": "Pairs of numbers in each query and key are turned by an angle that grows with the position: what is left "
    "in their product is the distance between the two.",
    "scores": "Every query meets every key: the more alike the two, the larger their product.",
    "scale": "A score is a sum of {d_k} products: its variance grows with {d_k}, so its usual size with √{d_k}. "
    "Divided by √{d_k} = {root} it keeps a size at which the softmax still learns.",
    "bias": "What the distance between two tokens is worth is added to their score.",
    "mask": "What may not be seen is blotted out: tokens that come later, and those outside a window if there is one. "
    "A score of −∞ becomes a weight of 0.",
    "mask.none": "Here nothing is hidden: every token may look at the whole text.",
    "softmax": "Each row becomes shares that sum to one. «{word}» looks most at «{other}»: {share}.",
    "sum": "The values are added up, each as much as its weight says: what «{word}» gathers from the tokens it looks "
    "at.",
    "join": "What all heads gathered, {heads} in all, is laid side by side and goes through one more matrix, back to "
    "the size of the model.",
    "feedforward": "Each token by itself goes through two matrices, with {activation} between them: out to {size} "
    "numbers and back.",
    "feedforward.gated": "Each token by itself goes through three matrices: two lead out to {size} numbers each, and "
    "one of these results, after silu, says how much of the other passes; the third leads back ({activation}).",
    "feedforward.zeros": "Of «{word}», {share} of them are not zero.",
    "logits": "After layer {layers}, the last, the vector of «{word}» is compared with the output vector of every "
    "token of the vocabulary. The softmax makes probabilities of the {vocabulary} scores; here are the likeliest "
    "{count}.",
}

POSITIONS = {
    "sinusoidal": "These vectors are added to those of the tokens: waves of different lengths, sines in even, cosines "
    "in odd columns.",
    "learned": "These vectors are added to those of the tokens: a learned one for each position.",
    "rotary": "Nothing is added to a token's vector: self-attention turns its query and key by angles whose "
    "cosines and sines stand here.",
    "relative": "Nothing is added to a token's vector: each distance, from far behind to far ahead, has a learned one, "
    "whose product with the query is added to the score.",
    "relative-waves": "Nothing is added to a token's vector: each distance, from far behind to far ahead, has a key "
    "made of waves, whose product with the query is added to the score.",
    "alibi": "Nothing is added to a token's vector: each head lowers a score by distance, as it is shown here.",
}
"""What is seen of the positions of a model of each kind."""


@dataclass(frozen=True)
class Said:
    """The sentences of a step by their names, and the values in them."""

    names: tuple[str, ...]
    values: Mapping[str, Value]

    def title(self, tongue: Tongue = "en") -> str:
        """A few words."""
        titles = TITLES if tongue == "en" else tellings.TITLES[tongue]
        names = dict.fromkeys(name.partition(".")[0] for name in self.names)
        return " & ".join(titles[name] for name in names).format(**self._written(tongue))

    def sentence(self, tongue: Tongue = "en") -> str:
        """All of it."""
        sentences = SENTENCES if tongue == "en" else tellings.SENTENCES[tongue]
        between = "" if tongue == "zh" else " "
        return between.join(sentences[name] for name in self.names).format(**self._written(tongue))

    def _written(self, tongue: Tongue) -> dict[str, str]:
        return {name: _written(name, value, tongue) for name, value in self.values.items()}


def told(kind: str, tongue: Tongue = "en") -> str:
    """How positions of this kind are told apart, and what is seen of them."""
    return (POSITIONS if tongue == "en" else tellings.POSITIONS[tongue])[kind]


def wired(words: str, tongue: Tongue) -> str:
    """What a picture of a wiring says, in another language: as a whole, or part by part; unknown names stay."""
    if tongue == "en":
        return words
    known = tellings.WIRING[tongue]
    if words in known:
        return known[words]
    return (", " if tongue == "de" else "，").join(_with_numbers(part, known) for part in words.split(", "))


def curved(words: str, tongue: Tongue) -> str:
    """What a picture of learning curves says, in another language: part by part, numbers as they are written there;
    unknown names stay."""
    if tongue == "en":
        return words
    figures = (_as_written(figure, tongue) for figure in FIGURE.findall(words))
    known = tellings.CURVES[tongue]
    parts = [known.get(part, part) for part in FIGURE.sub("#", words).split("; ")]
    return re.sub("#", lambda _: next(figures), ("; " if tongue == "de" else "；").join(parts))


def _with_numbers(words: str, known: Mapping[str, str]) -> str:
    numbers = iter(NUMBER.findall(words))
    found = known.get(NUMBER.sub("#", words))
    return words if found is None else re.sub("#", lambda _: next(numbers), found)


def _written(name: str, value: Value, tongue: Tongue) -> str:
    if isinstance(value, str):
        return value
    number = f"{value:.0%}" if name == SHARE else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return _as_written(number, tongue)


def _as_written(number: str, tongue: Tongue) -> str:
    """German has comma and point the other way round, and a space before the percent sign."""
    return number.translate(str.maketrans(",.", ".,")).replace("%", "\u00a0%") if tongue == "de" else number
