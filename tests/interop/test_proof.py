"""The proof itself: it passes where both sides are the same, and fails where they are not."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from regard import folder
from regard.errors import DataError
from regard.folder import Loaded
from regard.interop import proof
from regard.interop.proof import Proof, must_pass, prove
from regard.interop.sides import Inputs, ModelSide, Written, inputs_for

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def loaded(words_model: Path) -> Loaded:
    return folder.load_folder(words_model, CPU)


def against(loaded: Loaded, change: float) -> Proof:
    """The model against itself with one weight changed."""
    other = copy.deepcopy(loaded.model)
    with torch.no_grad():
        next(weight for name, weight in other.named_parameters() if "inner.weight" in name)[0, 0] += change
    return prove(ModelSide("one", loaded.model), ModelSide("other", other), inputs_for(loaded, None, 5))


def test_a_model_agrees_with_itself(loaded: Loaded, words_model: Path) -> None:
    side = ModelSide("one", loaded.model, words_model)
    found = prove(side, side, inputs_for(loaded, ["one", "two", "", "three"], 10))
    assert found.passed
    assert (found.difference, found.texts) == (0.0, 3)
    assert found.same == {"greedy": (3, 3), "beam 4": (3, 3)}
    assert found.sizes == ((words_model / folder.WEIGHTS).stat().st_size,) * 2
    assert min(found.speeds) > 0
    assert "passed" in found.to_text()
    assert found.to_json()["passed"] is True


def test_one_weight_that_differs_is_noticed(loaded: Loaded) -> None:
    found = against(loaded, 0.5)
    assert not found.passed
    assert found.difference is not None
    assert found.difference > 1e-4
    assert "FAILED" in found.to_text()


@pytest.mark.parametrize("strange", [math.nan, math.inf])
@torch.inference_mode()
def test_scores_that_are_no_numbers_are_infinitely_far_off(strange: float, loaded: Loaded) -> None:
    """max(0.0, nan) is 0.0: without care, a model of nothing but NaN would agree perfectly."""
    other = copy.deepcopy(loaded.model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.fill_(strange)
    ours, theirs = ModelSide("one", loaded.model), ModelSide("other", other)
    texts = inputs_for(loaded, None, 2)
    scores = [side.scores(texts.texts, [[texts.specials.start]] * 2) for side in (ours, theirs)]
    assert scores[1] is not None
    assert not scores[1][0].isfinite().all()
    difference, _ = proof._differences(ours, theirs, texts, [(), ()])
    assert difference == math.inf


def test_other_texts_fail_where_scores_are_not_told() -> None:
    found = Proof("one", "other", 100, None, 0, {"greedy": (99, 100), "beam 4": (98, 100)}, (1, 1), (1.0, 1.0))
    assert not found.passed
    assert Proof("one", "other", 100, None, 0, {"greedy": (99, 100)}, (1, 1), (1.0, 1.0)).passed


def test_fewer_bits_are_told_and_not_judged() -> None:
    far = Proof("one", "other", 9, 0.7, 50, {"greedy": (4, 9)}, (1, 1), (1.0, 1.0), math.inf, 0.0)
    assert far.passed
    assert not far.judged
    assert "not judged" in far.to_text()
    assert far.to_json()["tolerance"] is None
    broken = Proof("one", "other", 9, math.inf, 50, {"greedy": (4, 9)}, (1, 1), (1.0, 1.0), math.inf, 0.0)
    assert not broken.passed


def test_nothing_asked_is_nothing_proved() -> None:
    assert not Proof("one", "other", 0, 0.0, 0, {}, (1, 1), (1.0, 1.0)).passed


def test_a_failure_says_that_nothing_was_removed(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(DataError, match="left as it is"):
        must_pass(against(loaded, 0.5), tmp_path)
    assert (tmp_path / "kept").exists()


def test_inputs_are_those_of_the_model(loaded: Loaded, babbling_model: Path) -> None:
    own = inputs_for(loaded, None, 4)
    assert own.texts == [
        [*loaded.tokenizer.source.encode(word), own.specials.end] for word in ("zero", "one", "two", "three")
    ]
    language = folder.load_folder(babbling_model, CPU)
    prompts = inputs_for(language, ["one two three four five"], 3)
    assert [row[0] for row in prompts.texts] == [language.tokenizer.specials.start]
    assert len(prompts.texts[0]) <= 9


@dataclass(frozen=True)
class Stubborn(ModelSide):
    """With a beam it writes the same for all texts."""

    always: Written = ()

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        return super().write(inputs, beam) if beam == 1 else [self.always] * len(inputs.texts)


def test_another_text_is_judged_by_its_score(loaded: Loaded) -> None:
    """A search may find what ours missed, and is then not wrong; one that finds worse is."""
    inputs = inputs_for(loaded, ["one", "two", "three"], 3)
    right, wrong = ModelSide("right", loaded.model), Stubborn("wrong", loaded.model, always=(5, 6, 7, 8))
    better = prove(wrong, right, inputs)
    assert better.same["beam 4"] == (0, 3)
    assert better.as_good == {"beam 4": 3}
    assert better.passed
    assert "beam 4    0 of 3 the same, 3 others as good" in better.to_text()
    worse = prove(right, wrong, inputs)
    assert worse.as_good == {"beam 4": 0}
    assert not worse.passed


def test_the_quality_of_texts_is_told_where_it_is_asked_for(loaded: Loaded) -> None:
    right, wrong = ModelSide("right", loaded.model), Stubborn("wrong", loaded.model, always=(5, 6, 7, 8))
    read = loaded.tokenizer.decode
    own = inputs_for(loaded, None, 5)
    assert own.references == ["null", "eins", "zwei", "drei", "vier"]
    found = prove(right, wrong, own, read=read)
    assert found.quality is not None
    assert found.quality.references == 5
    assert found.quality.figures["right"]["chrF"] == 100
    assert found.quality.figures["wrong"]["chrF"] < 50
    assert "right BLEU" in found.to_text()
    assert "against 5 references" in found.to_text()
    alone = prove(right, right, inputs_for(loaded, ["one", "two"], 2), read=read)
    assert alone.quality is not None
    assert alone.quality.references == 0
    assert alone.quality.figures["right"]["chrF"] == 100
    assert "against what right wrote" in alone.to_text()
    assert prove(right, right, own).quality is None
