"""`regard verify`: what holds is said to hold, and what is broken is found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import verification
from regard.api import load
from regard.decoding.search import SearchSettings
from regard.errors import UsageError
from regard.files import MANIFEST, read_manifest, seal
from regard.layers import quantised
from regard.layers.mask import Visible
from regard.models.transformer import Transformer
from regard.verification import Check, random_texts, verify_translator
from tests.contracts.cases import SPECIALS
from tests.contracts.search_contracts import Lively
from tests.contracts.zoo import ZOO
from tests.tiny import ENGLISH, failed, regard, write_lines

NAMES = ["neighbours", "order", "batch size", "padding", "cache", "prefix", "at once"]
SEARCH = SearchSettings(beam=2, extra_length=4)


def checks(model: Any, seed: int = 0) -> dict[str, Check]:
    texts = [[*text, SPECIALS.end] for text in random_texts(model.vocabulary, SPECIALS, 6, 8, seed)]
    return {check.name: check for check in verify_translator(model, SPECIALS, SEARCH, texts, 1e-4)}


@pytest.mark.parametrize("name", [name for name, entry in ZOO.items() if entry.reads_source])
def test_our_models_pass(name: str) -> None:
    found = checks(ZOO[name].model(14, 3))
    assert list(found) == NAMES
    assert all(check.passed for check in found.values()), [str(check) for check in found.values()]


class Broken(Lively):
    """A model that listens to something it should not."""

    vocabulary = 14

    def __init__(self, leak: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(ZOO["transformer"].model(self.vocabulary, 3))
        self.leak = leak

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores_BV, state = super().step(tokens_BT, state)
        return self.leak(scores_BV, tokens_BT), state


@pytest.mark.parametrize(
    ("leak", "found"),
    [
        (lambda scores, tokens: scores * (1 + 0.1 * len(scores)), "neighbours"),
        (lambda scores, tokens: scores + torch.arange(scores.numel()).view_as(scores).sin(), "order"),
        (lambda scores, tokens: scores * 1.001, "cache"),
        (lambda scores, tokens: scores / tokens.shape[1], "prefix"),
        (lambda scores, tokens: scores * torch.nan if tokens.shape[1] > 1 else scores, "prefix"),
    ],
)
def test_a_leak_is_found(leak: Callable[[Tensor, Tensor], Tensor], found: str) -> None:
    check = checks(Broken(leak))[found]
    assert not check.passed
    assert "FAILED" in str(check)


def test_padding_that_is_seen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Transformer.start

    def start(self: Transformer, source: Any, rows: int) -> Any:
        state = real(self, source, rows)
        self.seen = source.ids_BT.shape[1]
        return state

    monkeypatch.setattr(Transformer, "start", start)
    model = Broken(lambda scores, tokens: scores * (1 + 0.1 * model.model.seen))
    found = checks(model)
    assert not found["padding"].passed
    assert found["order"].passed


def test_distances_that_padding_changes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Columns are no positions where source and target lie side by side: searching, which takes steps, does not see it.
    monkeypatch.setattr(Visible, "goes_by_columns", lambda visible: visible.places[0] is visible.places[1])
    found = checks(ZOO["decoder-only-relative"].model(14, 3))
    assert [name for name, check in found.items() if not check.passed] == ["at once"]


def test_random_texts_are_the_same_again_and_of_words_alone() -> None:
    texts = random_texts(20, SPECIALS, 50, 8, seed=1)
    assert texts == random_texts(20, SPECIALS, 50, 8, seed=1)
    assert texts != random_texts(20, SPECIALS, 50, 8, seed=2)
    assert {len(text) for text in texts} == set(range(1, 9))
    assert not {token for text in texts for token in text} & set(vars(SPECIALS).values())


def test_the_tolerance_follows_the_precision() -> None:
    assert verification.tolerance(torch.nn.Linear(2, 2).double()) < 1e-6  # type: ignore[arg-type]
    assert verification.tolerance(torch.nn.Linear(2, 2)) == 1e-4  # type: ignore[arg-type]
    assert verification.tolerance(torch.nn.Linear(2, 2).bfloat16()) == 0.1  # type: ignore[arg-type]


def test_a_few_texts_still_make_batches_of_other_sizes() -> None:
    model = Broken(lambda scores, tokens: scores * (1 + 0.1 * len(scores)))
    for count in (2, 3):
        texts = [[*text, SPECIALS.end] for text in random_texts(model.vocabulary, SPECIALS, count, 8, 0)]
        found = {check.name: check for check in verify_translator(model, SPECIALS, SEARCH, texts, 1e-4)}
        assert found["batch size"].meaning == f"batches of {count} and of 1"
        assert not found["batch size"].passed


def test_it_searches_as_translating_does(monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = verification.find, list[object]()
    monkeypatch.setattr(verification, "find", lambda *given: seen.append(given[0]) or real(*given))
    model = ZOO["transformer"].model(14, 3)
    checks(model)
    assert set(seen) == {model}


def test_texts_are_not_cut_and_what_is_too_long_counts_as_its_sentences(words_model: Path) -> None:
    model = load(words_model)
    asked = model._texts_to_verify(["one " * 99, ""], None)
    assert [len(text) for text in asked] == [len(model.tokenizer.source.encode("one " * 99))]
    assert len(model._texts_to_verify(["one two three four. " * 200], None)) > 1
    with pytest.raises(UsageError, match="verify: needs a list of texts, but has one"):
        model.verify("abc")


@pytest.mark.skipif(not quantised.can_quantise(), reason="no 8-bit products here")
def test_another_precision_can_be_verified(words_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "WORTHWHILE", 0)
    ran = regard("verify", words_model, "--texts", 4, "--steps", 0, "--precision", "int8")
    assert ran.code == 0
    assert "allowed 5e-01" in ran.out
    failed(regard("verify", words_model, "--precision", "int4"), 2, "precision: must be one of")


def test_the_command(words_model: Path, tmp_path: Path) -> None:
    ran = regard("verify", words_model, "--texts", 5)
    assert ran.code == 0
    assert [re.split(" {2,}", line)[:2] for line in ran.out.strip().split("\n")] == [
        ["ok", name] for name in [*NAMES, "resume"]
    ]
    file = write_lines(tmp_path / "words", ["", *ENGLISH])
    answer = json.loads(regard("verify", words_model, file, "--json", "--steps", 0).out)
    assert answer["passed"] is True
    assert [check["name"] for check in answer["checks"]] == NAMES
    keys = {"name", "meaning", "cases", "other_tokens", "needed", "allowed", "passed"}
    assert all(set(check) == keys and check["cases"] == 13 for check in answer["checks"])
    strict = regard("verify", words_model, "--texts", 5, "--tolerance", -1, "--json")
    assert strict.code == 1
    assert json.loads(strict.out)["passed"] is False


def test_what_cannot_be_verified_is_refused(words_model: Path, tmp_path: Path) -> None:
    failed(regard("verify", words_model, "--texts", 1), 2, "--texts must be at least 2")
    failed(regard("verify", words_model, write_lines(tmp_path / "one", ["one"])), 2, "needs at least 2 texts")
    failed(regard("verify", tmp_path / "nowhere"), 66, "must be a model folder")
    failed(regard("verify", words_model, "--steps", 1), 2, "--steps must be 0 or at least 2")


def test_a_run_that_has_not_ended_is_verified_as_a_run(words_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(words_model, run)
    (run / MANIFEST).unlink()
    ran = regard("verify", run, "--json")
    assert ran.code == 0
    (check,) = json.loads(ran.out)["checks"]
    assert check == {"name": "resume", "passed": True, "step": 40, "steps": 4, "different": []}


def test_a_model_without_its_corpus_can_be_verified(words_model: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    shutil.copytree(words_model, given)
    recipe = given / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("words.en", "gone.en"))
    seal(given, sorted(read_manifest(given)))
    ran = regard("verify", given, "--texts", 3)
    assert (ran.code, "its corpus is not here" in ran.err) == (0, True)
