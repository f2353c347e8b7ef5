"""Classifiers and taggers: what they learn, through the one trainer, and what they refuse.

Shapes: B rows, T tokens, D model, C labels, N answers of a row.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from regard import settings
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
    "transformer": TransformerBodySettings(
        layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0, positions="relative", reach=8
    ),
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
    """Batch number `step`, drawn from all lessons: as much of `Batches` as the trainer uses."""

    shapes = lengths = ()  # nobody counts them: nothing is compiled here
    streams = False

    def common(self, _share: float) -> tuple[()]:
        return ()

    def __init__(self, lessons: Sequence[Lesson], rows: int = 32) -> None:
        self.lessons, self.rows = lessons, rows

    def __getitem__(self, step: int) -> Batch:
        return collate(random.Random(step).sample(self.lessons, self.rows))

    def share(self, step: int, _rank: int, _ranks: int) -> Batch:
        return self[step]


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
    optimiser = OptimiserSettings(warmup=20, factor=0.5, clip=1.0)
    course = TrainingSettings(steps=steps, label_smoothing=0.0, optimiser=optimiser)
    trainer = Trainer(cast(Any, model), cast(Any, Lessons(lessons)), course)
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
ADJECTIVES = ("great", "new", "red", "big", "small", "fine", "old", "dear")
JOINS = ("and", "but", "while", "because")
WORDS = sorted({word for clauses in CLAUSES.values() for clause in clauses for word in clause.split()} - {"{}"})
NUMBERS = {word: number for number, word in enumerate([*WORDS, *ADJECTIVES, *JOINS], start=1)}
VOCABULARY = len(NUMBERS) + 1


def sentences(count: int, seed: int) -> list[Lesson]:
    """Different sentences of one or two clauses; each apple is labelled, and no other word."""
    chance = random.Random(seed)
    found: dict[str, Lesson] = {}
    while len(found) < count:
        words: list[str] = []
        labels: list[int] = []
        for number in range(chance.randint(1, 2)):
            sense = chance.choice((FRUIT, COMPANY))
            clause = chance.choice(CLAUSES[sense]).format(chance.choice(ADJECTIVES)).split()
            words += [chance.choice(JOINS)] * (number > 0) + clause
            labels += [OTHER] * (number > 0) + [sense if word == "apple" else OTHER for word in clause]
        found[" ".join(words)] = Lesson([NUMBERS[word] for word in words], labels)
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
    model = Tagger(TaggerSettings(body=body), VOCABULARY, labels=3)
    train(model, learned, steps=60)
    assert accuracy(model, apples(unseen)) >= 0.95
    assert accuracy(model, unseen) >= 0.95


def test_without_context_it_cannot_be_told(apple_lessons: tuple[list[Lesson], list[Lesson]]) -> None:
    """A tagger that sees one word has one answer for every apple: the more frequent one, at best."""
    torch.manual_seed(0)
    learned, unseen = apple_lessons
    alone = ConvolutionBodySettings(layers=1, d_model=32, kernel=1, dropout=0.0)
    model = Tagger(TaggerSettings(body=alone), VOCABULARY, labels=3)
    train(model, learned, steps=60)
    assert accuracy(model, apples(unseen)) < 0.6


# ---- which language?

LANGUAGES: tuple[Language, ...] = ("en", "de", "fr", "zh")
MONEY = ("€", "$", "CHF")


@pytest.fixture(scope="module")
def language_lessons() -> tuple[list[Lesson], list[Lesson], int]:
    """Lines of the generated corpus with their language, learned and unseen; and how many characters there are."""
    parts: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for label, language in enumerate(LANGUAGES):
        corpus = generate(Generated(source=LANGUAGES[label - 1], target=language, pairs=600, valid=0, test=150))
        for part, pairs in zip(parts, (corpus.train, corpus.test), strict=True):
            # Sums look alike in several languages: "CHF 969" belongs to none.
            lines = [pair.target for pair in pairs if not any(sign in pair.target for sign in MONEY)]
            part += [(line[:16], label) for line in lines]
    characters = sorted({character for line, _ in parts[0] for character in line})
    numbers = {character: number for number, character in enumerate(characters, start=2)}
    learned, unseen = (
        [Lesson([numbers.get(character, 1) for character in line], [label]) for line, label in part] for part in parts
    )
    return learned, unseen, len(numbers) + 2


@each_body
def test_a_classifier_learns_which_language(
    body: BodySettings, language_lessons: tuple[list[Lesson], list[Lesson], int]
) -> None:
    torch.manual_seed(0)
    learned, unseen, characters = language_lessons
    model = Classifier(ClassifierSettings(body=body), characters, len(LANGUAGES))
    train(model, learned, steps=80)
    assert accuracy(model, unseen) >= 0.95


# ---- pooling

PADDED = Tokens.padded([[1, 2, 3], [4]], padding=0, length=4)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("mean", [[1 / 3, 1 / 3, 1 / 3, 0], [1, 0, 0, 0]]),
        ("first", [[1, 0, 0, 0], [1, 0, 0, 0]]),
        ("last", [[0, 0, 1, 0], [1, 0, 0, 0]]),
    ],
)
def test_pooling_weighs_tokens(kind: PoolingKind, weights: list[list[float]]) -> None:
    pooling, seen = Pooling(kind, 5), list[Tensor]()
    pooling.watcher = seen.append
    x_BTD, weights_BT = torch.randn(2, 4, 5), torch.tensor(weights, dtype=torch.float)
    torch.testing.assert_close(pooling(x_BTD, PADDED.places), (weights_BT[:, :, None] * x_BTD).sum(dim=1)[:, None])
    torch.testing.assert_close(seen[0], weights_BT[:, None, None])


def test_pooling_by_attention_is_the_formula() -> None:
    pooling = Pooling("attention", 5)
    x_TD = torch.randn(3, 5)
    inner, _, outer = cast(Any, pooling.score)
    weights_T = torch.softmax(torch.tanh(x_TD @ inner.weight.T + inner.bias) @ outer.weight[0], dim=0)
    wanted_D = weights_T @ x_TD
    whole = Places.whole(x_TD[None, :, 0])
    torch.testing.assert_close(pooling(x_TD[None], whole)[0, 0], wanted_D)


def test_attention_learns_which_word_decides() -> None:
    """A text with word 1, 2 or 3 in it is labelled by it, and 0 where it has none of them; nobody says so."""
    torch.manual_seed(0)
    chance = random.Random(0)
    lessons = []
    for _ in range(600):
        label, ids = chance.randrange(4), [chance.randint(4, 20) for _ in range(12)]
        ids[chance.randrange(12)] = label or 4
        lessons.append(Lesson(ids, [label]))
    alone = ConvolutionBodySettings(layers=1, d_model=16, kernel=1, dropout=0.0)
    model = Classifier(ClassifierSettings(body=alone, pooling="attention"), 21, labels=4)
    train(model, lessons[:500], steps=60)
    seen: list[Tensor] = []
    model.pooling.watcher = seen.append
    assert accuracy(model, lessons[500:]) >= 0.95
    decides_BT = collate(lessons[500:]).target.ids_BT <= 3
    assert seen[0][:, 0, 0][decides_BT].mean() > 0.8


# ---- the trainer, settings, refusals


def test_the_trainer_counts_what_was_read() -> None:
    lessons = Lessons([Lesson([3, 1, 2], [1]), Lesson([1, 2], [0])], rows=2)
    batch = lessons[0]
    model = Classifier(ClassifierSettings(body=BODIES["recurrent"]), 5, labels=2)
    trainer = Trainer(cast(Any, model), cast(Any, lessons), TrainingSettings(label_smoothing=0.0))
    wanted = torch.nn.functional.cross_entropy(model(batch.target)[:, 0], batch.labels_BT[:, 0])
    trainer.advance()
    report = trainer.report()
    assert report.tokens == 5
    assert report.loss == pytest.approx(wanted.item())
    assert trainer.validate([batch]).tokens == 2


@dataclass(frozen=True)
class Recipe:
    model: ClassifierSettings | TaggerSettings


def test_settings_come_from_a_recipe() -> None:
    body = {"kind": "recurrent", "cell": "gru", "bidirectional": False}
    tree = {"model": {"kind": "classifier", "pooling": "last", "body": body}}
    wanted = ClassifierSettings(pooling="last", body=RecurrentBodySettings(cell="gru", bidirectional=False))
    assert settings.build(Recipe, tree, "test") == Recipe(wanted)
    assert settings.build(Recipe, {"model": {"kind": "tagger"}}, "test") == Recipe(TaggerSettings())


@pytest.mark.parametrize(
    ("pooling", "bidirectional", "advice"),
    [
        ("first", True, 'in both directions has not done so there; choose "mean" or "attention"'),
        ("last", True, 'in both directions has not done so there; choose "mean" or "attention"'),
        ("first", False, 'from left to right has not done so there; choose "mean", "last" or "attention"'),
    ],
)
def test_a_state_that_has_not_read_the_text_is_no_summary(
    pooling: PoolingKind, bidirectional: bool, advice: str
) -> None:
    with pytest.raises(ValueError, match=f"but is '{pooling}', and a body that reads {advice}"):
        ClassifierSettings(body=RecurrentBodySettings(bidirectional=bidirectional), pooling=pooling)


def test_batches_that_do_not_fit_are_refused() -> None:
    tagger = Tagger(TaggerSettings(body=BODIES["convolution"]), 5, labels=2)
    classifier = Classifier(ClassifierSettings(body=BODIES["convolution"]), 5, labels=2)
    labels_BT = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(UsageError, match=r"Classifier: `labels_BT` must be \[2, 1\], .* but is \[2, 4\]"):
        classifier.losses(Batch(None, PADDED, labels_BT), mistakes)
    with pytest.raises(UsageError, match=r"Tagger: `labels_BT` must be \[2, 4\], .* but is \[2, 1\]"):
        tagger.losses(Batch(None, PADDED, labels_BT[:, :1]), mistakes)
    with pytest.raises(UsageError, match=r"Tagger: .* a `source` of \[2, 4\] is there, too"):
        tagger.losses(Batch(PADDED, PADDED, labels_BT), mistakes)


def test_one_label_is_no_choice() -> None:
    with pytest.raises(UsageError, match="Tagger: there must be at least 2 labels to choose between, but there are 1"):
        Tagger(TaggerSettings(body=BODIES["convolution"]), 5, labels=1)


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/models/encoder.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)), names)
    assert isinstance(names["model"], Tagger)
