"""Classifiers and taggers: what they learn, through the one trainer, and what they refuse.

Shapes: B rows, T tokens, D model, C labels, N answers of a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.data.generated import Generated, Language, generate
from regard.errors import UsageError
from regard.models.encoder import (
    BodySettings,
    ConvolutionBodySettings,
    RecurrentBodySettings,
    TransformerBodySettings,
)
from regard.models.labelling import (
    Classifier,
    ClassifierSettings,
    LabelModel,
    Pooling,
    PoolingKind,
    Tagger,
    TaggerSettings,
)
from regard.training.optim import OptimiserSettings
from regard.training.trainer import Trainer, TrainingSettings

BODIES: dict[str, BodySettings] = {
    "transformer": TransformerBodySettings(layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0),
    "recurrent": RecurrentBodySettings(cell="gru", layers=1, d_model=32, dropout=0.0),
    "convolution": ConvolutionBodySettings(layers=2, d_model=32, kernel=5, dropout=0.0),
}
each_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())


@dataclass(frozen=True)
class Lesson:
    """Tokens, and the labels to give them: one, or one for each."""

    ids: list[int]
    labels: list[int]


class Lessons:
    """Batch number `step` is drawn from all lessons; every one pads to the longest."""

    def __init__(self, lessons: Sequence[Lesson], rows: int = 32) -> None:
        self.lessons, self.rows = lessons, rows

    def __getitem__(self, step: int) -> Batch:
        return collate(random.Random(step).sample(self.lessons, self.rows))


def collate(lessons: Sequence[Lesson]) -> Batch:
    answers = Tokens.padded([lesson.labels for lesson in lessons], IGNORED)
    return Batch(None, Tokens.padded([lesson.ids for lesson in lessons], 0), answers.ids_BT)


def mistakes(project: Callable[[Tensor], Tensor], features_BND: Tensor, labels_BN: Tensor) -> Tensor:
    """The criterion that counts wrong answers."""
    wrong_BN = project(features_BND).argmax(dim=-1) != labels_BN
    return (wrong_BN & (labels_BN != IGNORED)).float()


@torch.no_grad()
def accuracy(model: LabelModel, lessons: Sequence[Lesson]) -> float:
    batch = collate(lessons)
    wrong = model.eval().losses(batch, mistakes).sum().item()
    return 1 - wrong / int((batch.labels_BT != IGNORED).sum())


def train(model: LabelModel, lessons: Sequence[Lesson], steps: int) -> None:
    settings = TrainingSettings(
        steps=steps, label_smoothing=0.0, optimiser=OptimiserSettings(warmup=20, factor=0.15, clip=1.0)
    )
    trainer = Trainer(cast(Any, model), cast(Any, Lessons(lessons)), settings)
    for _ in range(steps):
        trainer.advance()


# ---- apple the fruit, Apple the company

OTHER, FRUIT, COMPANY = range(3)
CLAUSES = {
    FRUIT: (
        "i like eating apple",
        "she peels the {} apple with a knife",
        "the {} apple hangs on the tree",
        "he bought a kilo of apple at the market",
        "this apple tastes {}",
        "a {} piece of apple lies on the plate",
    ),
    COMPANY: (
        "the apple is a {} company",
        "apple sells {} phones",
        "she works for apple in the city",
        "shares of apple rose today",
        "apple has announced a {} computer",
        "the {} boss of apple gave a speech",
    ),
}
KINDS_OF_THINGS = ("great", "new", "red", "big", "small", "fine", "old", "dear")
JOINS = ("and", "but", "while", "because")
WORDS = {
    word: number
    for number, word in enumerate(
        sorted({word for clauses in CLAUSES.values() for clause in clauses for word in clause.split()} - {"{}"})
        + list(KINDS_OF_THINGS + JOINS),
        start=1,
    )
}


def sentences(count: int, seed: int) -> list[Lesson]:
    """Different sentences of one to three clauses; each apple is labelled, and no other word."""
    chance, found = random.Random(seed), {}
    while len(found) < count:
        words: list[str] = []
        labels: list[int] = []
        for number in range(chance.randint(1, 3)):
            sense = chance.choice((FRUIT, COMPANY))
            clause = chance.choice(CLAUSES[sense]).format(chance.choice(KINDS_OF_THINGS)).split()
            words += [chance.choice(JOINS)] * (number > 0) + clause
            labels += [OTHER] * (number > 0) + [sense if word == "apple" else OTHER for word in clause]
        found[" ".join(words)] = Lesson([WORDS[word] for word in words], labels)
    return list(found.values())


def apples(lessons: Sequence[Lesson]) -> list[Lesson]:
    """The same, with the other words' labels left out: what is easy must not hide what is not."""
    return [Lesson(one.ids, [IGNORED if label == OTHER else label for label in one.labels]) for one in lessons]


@pytest.fixture(scope="module")
def apple_lessons() -> tuple[list[Lesson], list[Lesson]]:
    lessons = sentences(1500, seed=1)
    return lessons[:1200], lessons[1200:]


@each_body
def test_a_tagger_learns_which_apple(body: BodySettings, apple_lessons: tuple[list[Lesson], list[Lesson]]) -> None:
    torch.manual_seed(0)
    learned, unseen = apple_lessons
    model = Tagger(TaggerSettings(body), len(WORDS) + 1, labels=3)
    train(model, learned, steps=120)
    a = accuracy(model, apples(unseen))
    b = accuracy(model, unseen)
    print("ACC", a, b)
    assert a >= 0.95
    assert b >= 0.95


def test_without_context_it_cannot_be_told(apple_lessons: tuple[list[Lesson], list[Lesson]]) -> None:
    """A tagger that sees one word has one answer for every apple, however long it learns."""
    torch.manual_seed(0)
    learned, unseen = apple_lessons
    alone = ConvolutionBodySettings(layers=1, d_model=32, kernel=1, dropout=0.0)
    model = Tagger(TaggerSettings(alone), len(WORDS) + 1, labels=3)
    train(model, learned, steps=120)
    print("ACC", accuracy(model, apples(unseen)))
    assert accuracy(model, apples(unseen)) < 0.6


# ---- which language?

LANGUAGES: tuple[Language, ...] = ("en", "de", "fr", "zh")


@pytest.fixture(scope="module")
def language_lessons() -> tuple[list[Lesson], list[Lesson], int]:
    """Lines of the generated corpus, read character by character, with their language; learned, unseen, characters."""
    parts: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for label, language in enumerate(LANGUAGES):
        other = LANGUAGES[label - 1]
        corpus = generate(Generated(source=other, target=language, pairs=600, valid=0, test=150))
        for part, pairs in zip(parts, (corpus.train, corpus.test), strict=True):
            # Sums of money look alike in several languages: "CHF 969" belongs to none.
            part += [(pair.target[:24], label) for pair in pairs if not set(pair.target) & set("€$H")]
    characters = {
        character: number for number, character in enumerate(sorted({c for text, _ in parts[0] for c in text}), 2)
    }
    learned, unseen = (
        [Lesson([characters.get(c, 1) for c in text], [label]) for text, label in part] for part in parts
    )
    return learned, unseen, len(characters) + 2


@each_body
def test_a_classifier_learns_which_language(
    body: BodySettings, language_lessons: tuple[list[Lesson], list[Lesson], int]
) -> None:
    torch.manual_seed(0)
    learned, unseen, characters = language_lessons
    model = Classifier(ClassifierSettings(body), characters, len(LANGUAGES))
    train(model, learned, steps=120)
    a = accuracy(model, unseen)
    print("ACC", a)
    assert a >= 0.95
