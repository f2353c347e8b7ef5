"""The steps of a walk can be told in three languages, with the same values."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import torch

from regard.exploring import tellings
from regard.exploring.sentences import POSITIONS, SENTENCES, TITLES, Said, Tongue, curved, told, wired
from regard.models.build import build_any
from regard.models.labelling import LabelModel
from regard.recipe import build_recipe, load_recipe, presets
from regard.training.usual import Course, Usual
from regard.viewing.training_curves import training_svg
from regard.viewing.wiring import titles, wiring
from tests.exploring.bundles import MODELS

PLACE = re.compile(r"\{\w+\}")


@pytest.mark.parametrize("tongue", ["de", "zh"])
def test_every_title_and_sentence_is_there_with_the_same_values(tongue: str) -> None:
    all_of_them = ((TITLES, tellings.TITLES), (SENTENCES, tellings.SENTENCES), (POSITIONS, tellings.POSITIONS))
    for english, others in all_of_them:
        assert others[tongue].keys() == english.keys()
        for name, text in others[tongue].items():
            assert set(PLACE.findall(text)) == set(PLACE.findall(english[name])), name
            assert text != english[name] or name in ("feedforward", "position", "softmax")
    assert {"en", *tellings.TITLES} == {"en", *tellings.SENTENCES} == set(get_args(Tongue))


def test_only_what_is_added_is_said_to_be_added() -> None:
    added = {"en": "vectors are added", "de": "Vektoren werden zu denen der Tokens addiert", "zh": "向量加到"}
    for tongue in get_args(Tongue):
        assert [kind for kind in POSITIONS if added[tongue] in told(kind, tongue)] == ["sinusoidal", "learned"]


def test_values_are_written_as_the_language_does() -> None:
    said = Said(
        ("logits", "scale"), {"layers": 2, "word": "a", "vocabulary": 12_000, "count": 10, "d_k": 8, "root": 2.828}
    )
    assert "12,000" in said.sentence()
    assert "2.828" in said.sentence()
    assert "12.000" in said.sentence("de")
    assert "2,828" in said.sentence("de")
    assert "12,000" in said.sentence("zh")
    assert said.title("de") == "Nächstes Token & Geteilt durch √8"
    share = Said(("softmax",), {"word": "a", "other": "b.c", "share": 0.25})
    assert share.sentence().endswith("«b.c»: 25%.")
    assert share.sentence("de").endswith("„b.c“: 25\u00a0%.")


def test_every_word_of_a_wiring_is_there_in_every_language() -> None:
    """What all presets and small models show; names of cells and functions need no other word."""
    settings = [load_recipe(name).model for name in presets()]
    settings += [build_recipe({}, [f"model={{{each}}}"], "tiny").model for each in MODELS.values()]
    said: set[str] = set()
    for each in settings:
        with torch.device("meta"):
            model = build_any(each, 50, 50)
        if not isinstance(model, LabelModel):
            parts = [part for side in wiring(model) for box in side for part in box.parts]
            said |= {*titles(model), *(words for part in parts for words in (part.name, part.sizes, *part.below()))}
    assert len(said) > 50
    for words in said:
        bare = re.sub(
            r"GRU|LSTM|RNN|Feed-forward|Softmax|Tokens|ALiBi|GELU|Encoders?|Decoders?", "", wired(words, "de")
        )
        assert wired(words, "en") == words
        assert not re.search("[a-z]", wired(words, "zh").replace("Softmax", "").replace("ALiBi", "")), words
        assert wired(words, "de") != words or not re.search("[a-z]", bare), words
        assert (
            re.findall(r"\d+", wired(words, "de"))
            == re.findall(r"\d+", wired(words, "zh"))
            == re.findall(r"\d+", words)
        )
    assert tellings.WIRING["de"].keys() == tellings.WIRING["zh"].keys()
    assert wired("relative positions, reach 16", "de") == "relative Positionen, Reichweite 16"
    assert wired("3 of 1,024 experts", "zh") == "选 3 个专家，共 1,024 个"
    assert wired("somebody's part", "de") == "somebody's part"


def test_every_word_of_learning_curves_is_told_in_every_tongue() -> None:
    """What pictures of all kinds of runs show."""
    steps = [
        {"event": "step", "step": number, "steps": 1, "loss": 9 / number, "learning_rate": 1e-5 * number,
         "gradient_norm": 0.5, "tokens": 600, "took": 0.5}
        for number in (1, 1000, 2000)
    ]  # fmt: skip
    scores: list[dict[str, float]] = [{"bleu": 12.34}, {"accuracy": 98.7}, {"perplexity": 2.718}]
    said: set[str] = set()

    def say(words: str) -> str:
        said.add(words)
        return words

    for score in scores:
        validations = [{"event": "validation", "step": number, "nll": 1.0, **score} for number in (1000, 2000)]
        for runs in (1, 3):
            usual = Course("", runs, 1, (Usual(1, 5.0, 1.0),), ())
            assert training_svg([*steps, *validations], "", usual, say=say)
    words = {each for each in said if re.search("[a-z]{2}", each)}
    assert len(words) > 10
    for each in words:
        assert not re.search("[a-z]", curved(each, "zh")), each
        assert not re.search(r"\b(loss|token|step|learning|rate|set|before|read|run|best)\b", curved(each, "de")), each
        assert curved(each, "en") == each
    assert tellings.CURVES["de"].keys() == tellings.CURVES["zh"].keys()
    assert curved("validation perplexity a token; best 2.418 at step 12,000", "de") == (
        "Perplexität der Validierung; Bestwert 2,418, Schritt 12.000"
    )
    assert curved("2e-05", "de") == curved("2e-05", "zh") == "2e-05"
    assert curved("0.0015", "de") == "0,0015"
