"""The probability of a text, as one that runs on and line by line, against sums made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Specials
from regard.decoding.scoring import score_texts
from regard.errors import DataError, UsageError
from regard.evaluation import running
from regard.evaluation.running import _begins, read_before, text_likelihood
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.tiny import failed, language_model, regard, write_lines

LINES = ["the cat sat", "on the", "", "mat the cat"]
TOKENIZER = Tokenizer.learn(LINES, TokenizerSettings(kind="words", vocabulary=20))
SPECIALS = TOKENIZER.specials


def gpt() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTSettings(layers=1, d_model=16, d_ff=16, heads=2, positions="rotary"), TOKENIZER.size)


def recurrent() -> RecurrentLM:
    torch.manual_seed(0)
    return RecurrentLM(RecurrentLMSettings(d_model=8), TOKENIZER.size)


def test_an_overlap_needs_windows() -> None:
    with pytest.raises(UsageError, match="this reads on and on, with its state carried"):
        text_likelihood(recurrent(), TOKENIZER, LINES, window=4, overlap=3)
    with pytest.raises(UsageError, match="this reads line by line"):
        text_likelihood(gpt(), TOKENIZER, LINES, window=None, overlap=3)


def step_by_step(model: SequenceModel, lines: list[str], context: int) -> list[float]:
    """−log P of every token of the text, each after at most `context` tokens before it, one call a token."""
    text = [token for line in lines for token in (*TOKENIZER.encode(line), SPECIALS.end)]
    read = read_before(np.array(text), SPECIALS).tolist()
    found = []
    for place, token in enumerate(text):
        before = torch.tensor([read[max(0, place + 1 - context) : place + 1]])
        logits_BV, _ = model.eval().step(before, model.start(None, 1))
        found.append(-float(logits_BV.log_softmax(-1)[0, token]))
    return found


@pytest.mark.parametrize("build", [gpt, recurrent])
@torch.no_grad()
def test_a_text_that_runs_on(build) -> None:  # type: ignore[no-untyped-def]
    model = build()
    wanted = step_by_step(model, LINES, 100)
    found = text_likelihood(model, TOKENIZER, LINES, window=100)
    assert found.nats_L.sum() == pytest.approx(sum(wanted), rel=1e-5)
    assert found.nats_L[1] == pytest.approx(sum(wanted[4:7]), rel=1e-5)
    assert found.tokens_L.tolist() == [4, 3, 1, 4]
    assert found.words_L is not None
    assert found.words_L.tolist() == [4, 3, 1, 4]
    assert found.bytes_L.sum() == len("\n".join(LINES)) + 1


@torch.no_grad()
def test_a_state_is_carried_from_piece_to_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text longer than is read at once; what comes after a border depends on what came before it."""
    monkeypatch.setattr(running, "SLOTS", 3)
    model, heard = recurrent(), []
    found = text_likelihood(model, TOKENIZER, LINES, window=100, progress=lambda what, count: heard.append(count))
    assert heard == [3, 6, 9, 12]
    wanted = step_by_step(model, LINES, 100)
    assert found.nats_L.tolist() == pytest.approx([sum(wanted[a:b]) for a, b in ((0, 4), (4, 7), (7, 8), (8, 12))])


@torch.no_grad()
def test_windows_share_tokens_and_judge_each_once() -> None:
    model = gpt()
    full = step_by_step(model, LINES, 100)
    found = text_likelihood(model, TOKENIZER, LINES, window=5, overlap=4)
    # With all but one token shared, every token from the fifth on has four before it.
    wanted = [*full[:5], *step_by_step(model, LINES, 5)[5:]]
    assert found.nats_L.sum() == pytest.approx(sum(wanted), rel=1e-5)
    assert "windows of 5 tokens|4 of them shared" in found.tallies()[0].signature


def test_a_state_carried_on_knows_no_windows() -> None:
    model = recurrent()
    one, other = (text_likelihood(model, TOKENIZER, LINES, window).nats_L for window in (2, 50))
    assert one.tolist() == other.tolist()


@torch.no_grad()
def test_line_by_line() -> None:
    model = gpt()
    found = text_likelihood(model, TOKENIZER, LINES, window=None)
    scored = score_texts(model, None, [TOKENIZER.encode(line) for line in LINES], SPECIALS)
    assert found.nats_L.tolist() == pytest.approx([-each.log_probability for each in scored], rel=1e-5)


def test_perplexities_per_unit() -> None:
    found = text_likelihood(gpt(), TOKENIZER, LINES, window=8)
    scores = {tally.name: tally.score().value for tally in found.tallies()}
    nats = found.nats_L.sum()
    assert scores["perplexity per word"] == pytest.approx(math.exp(nats / 12))
    assert scores["perplexity per byte"] == pytest.approx(math.exp(nats / 32))


@given(st.integers(1, 200), st.integers(1, 40), st.data())
def test_windows_cover_a_text(length: int, window: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, window - 1))
    begins = list(_begins(length, window, overlap))
    judged = 0
    for begin in begins:
        assert begin <= judged
        judged = begin + min(window, length)
    assert judged == length


def test_what_stands_before_each_token() -> None:
    specials = Specials(padding=0, start=1, end=2)
    assert read_before(np.array([5, 2, 2, 6]), specials).tolist() == [1, 5, 1, 1]


def test_what_cannot_be_read() -> None:
    with pytest.raises(DataError, match="at least one line of text, but there is none"):
        text_likelihood(gpt(), TOKENIZER, [], window=4)
    with pytest.raises(UsageError, match=r"`overlap` must be from 0 to less than a window \(4 tokens\), but is 4"):
        text_likelihood(gpt(), TOKENIZER, LINES, window=4, overlap=4)


# ---- the command


def test_the_command(tmp_path: Path) -> None:
    model = language_model(tmp_path / "babble", ["batch={layout='blocks', row=8, tokens=64}"])
    text = write_lines(tmp_path / "text.txt", ["one two", "zwei"])
    ran = regard("evaluate", model, text)
    assert ran.code == 0, ran.err
    for unit in ("token", "word", "byte"):
        assert f"perplexity per {unit}" in ran.out
    assert "windows of 8 tokens|4 of them shared" in ran.out
    assert "words:5" in ran.out
    assert "BLEU" not in ran.out
    assert "8 tokens|0 of them shared" in regard("evaluate", model, text, "--overlap", 0).out
    failed(regard("evaluate", model, text, text), 2, "a language model is given one text, but `babble` got 2 files")
    empty = write_lines(tmp_path / "empty.txt", [])
    assert regard("evaluate", model, empty).code != 0
