"""Where memory is short, everything that reads texts reads fewer at a time, and finds the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import load
from regard.api import Model
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.errors import DataError, UsageError
from regard.evaluation.alignment import word_attention
from regard.evaluation.likelihood import likelihood
from regard.evaluation.running import text_likelihood
from regard.memory import NoRoomError
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings
from regard.serve.problems import problem_of
from regard.translation.translator import Options, TextError
from tests.tight import tight
from tests.tiny import ENGLISH, GERMAN, failed, regard, write_lines

LINES = [f"{one} {other}" for one, other in zip(ENGLISH, ENGLISH[3:] + ENGLISH[:3], strict=True)]


@pytest.fixture
def model(words_model: Path) -> Model:
    return load(words_model)


@pytest.fixture
def writer(babbling_model: Path) -> Model:
    return load(babbling_model)


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


Found = tuple[list[str], Any]
"""The words that were found, and the numbers."""


def translations(model: Model) -> Found:
    found = model.translations(LINES, SearchSettings(beam=2, nbest=2), options=Options(alignment=True))
    words = [f"{each.text} {each.flags}" for some in found for each in some]
    return words, [each.score for some in found for each in some]


def drawn(model: Model) -> Found:
    found = model.translations(LINES[:4], SearchSettings(), options=Options(samples=3))
    return [each.text for each, *_ in found], [each.score for each, *_ in found]


def perplexity(model: Model) -> Found:
    found = likelihood(model.network, model.tokenizer, ENGLISH, GERMAN)
    return [], [*found.nats_L, *found.tokens_L]


def scores(model: Model) -> Found:
    found = model.score(GERMAN, ENGLISH if model.network.reads_source else None)
    return [str(each.tokens) for each in found], [each.log_probability for each in found]


def lines(model: Model) -> Found:
    return [], text_likelihood(model.network, model.tokenizer, ENGLISH, None).nats_L


def windows(model: Model) -> Found:
    return [], text_likelihood(model.network, model.tokenizer, ENGLISH, 8).nats_L


def aligned(model: Model) -> Found:
    found = word_attention(model.network, model.tokenizer, ENGLISH, GERMAN)
    return [str(each.names) for each in found], np.concatenate([each.weights_ATS.ravel() for each in found])


def texts(model: Model) -> Found:
    found = model.generations(["a", "bc"], SamplingSettings(max_tokens=5), 0, 4)
    return [each.text for some in found for each in some], []


READERS = {
    "model": [translations, drawn, perplexity, scores, aligned],
    "writer": [scores, lines, windows, texts],
}


@pytest.mark.parametrize(
    ("name", "read"),
    [(name, read) for name, some in READERS.items() for read in some],
    ids=lambda one: getattr(one, "__name__", one),
)
@pytest.mark.parametrize("most", [1, 3])
def test_what_is_read_in_halves_is_the_same(
    name: str,
    read: Callable[[Model], Found],
    most: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: Model = request.getfixturevalue(name)
    wanted = read(chosen)
    rows = most * (3 if read is drawn else 1)  # each text is as many rows as there are samples
    tried = tight(monkeypatch, chosen.network, rows)
    words, numbers = read(chosen)
    assert words == wanted[0]
    np.testing.assert_allclose(numbers, wanted[1], rtol=1e-4, atol=1e-5)
    assert max(tried) > rows, "it fitted at once: the test shows nothing"


def test_texts_that_come_later_begin_smaller(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = tight(monkeypatch, model.network, 4)
    model.translate(LINES)
    tried.clear()
    done: list[tuple[int, int]] = []
    model.translations(LINES, progress=lambda *now: done.append(now))
    assert max(tried) <= 4
    assert sum(lines for lines, _ in done) == len(LINES)


def test_a_text_that_is_carried_on_is_read_in_shorter_stretches(writer: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    network = RecurrentLM(RecurrentLMSettings(d_model=8), writer.tokenizer.size)
    wanted = text_likelihood(network, writer.tokenizer, ENGLISH, 8).nats_L
    read_on, project, tried = network.read_on, network.logits, []

    def shorter(batch: Any, before: Any) -> Any:
        tried.append(batch.labels_BT.shape[1])
        return read_on(batch, before)

    def logits(features: Any) -> Any:
        if features.shape[1] > 10:  # after the state has moved on
            raise torch.OutOfMemoryError("CUDA out of memory")
        return project(features)

    monkeypatch.setattr(network, "read_on", shorter)
    monkeypatch.setattr(network, "logits", logits)
    found = text_likelihood(network, writer.tokenizer, ENGLISH, 8).nats_L
    assert max(tried) > 10
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_text_that_does_not_fit_alone_is_named(model: Model, writer: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, model.network, 0)
    with pytest.raises(TextError, match=r"text \d+: its search must fit .*\d tokens, `beam` 4\)\. Lower `beam`.*bf16"):
        model.translate(LINES)
    with pytest.raises(TextError, match="`samples` 3"):
        drawn(model)
    with pytest.raises(UsageError, match=r"score: text \d+: must fit into the memory of the device"):
        scores(model)
    with pytest.raises(NoRoomError, match=r"perplexity: pair \d+: must fit into the memory .* tokens\)\. See whether"):
        perplexity(model)
    with pytest.raises(DataError, match=r"align: pair \d+: must fit"):
        aligned(model)
    tight(monkeypatch, writer.network, 0)
    with pytest.raises(DataError, match=r"evaluate: line \d+: must fit"):
        lines(writer)
    with pytest.raises(DataError, match="evaluate: the window from token 1 on: must fit"):
        windows(writer)
    with pytest.raises(DataError, match=r"generate: the text after 'a': must fit .*\(1 token and up to 5 more\)"):
        texts(writer)


def test_evaluate_tells_its_scores_where_only_the_references_do_not_fit(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write_lines(tmp_path / name, some) for name, some in (("en", ENGLISH), ("de", GERMAN))]

    def no_room(*_: object) -> None:
        raise NoRoomError("perplexity: pair 3", "900 and 800 tokens")

    monkeypatch.setattr("regard.evaluation.likelihood.likelihood", no_room)
    ran = regard("evaluate", words_model, *files, "--json")
    assert ran.code == 0, ran.err
    assert "BLEU" in [score["name"] for score in json.loads(ran.out)["scores"]]
    assert "there is no perplexity: perplexity: pair 3: must fit" in ran.out + ran.err


def test_a_server_that_has_no_room_says_that_it_is_busy() -> None:
    problem = problem_of(torch.OutOfMemoryError("CUDA out of memory"))
    assert (problem.status, problem.kind, problem.headers) == (503, "busy", {"retry-after": "5"})
    assert "must fit into the memory of the device" in problem.message
    assert problem_of(RuntimeError("sizes do not match")).status == 500


def test_the_line_that_does_not_fit_is_named_by_translate(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("regard.translation.translator.find", no_room)
    file = write_lines(tmp_path / "texts", ["one"])
    failed(regard("translate", words_model, file), 2, f"{file}, line 1: its search must fit", "--beam 4", "--longest")
