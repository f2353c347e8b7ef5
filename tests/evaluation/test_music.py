"""Nats of pieces of music, against sums made by hand; and the command that tells them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import load
from regard.errors import UsageError
from regard.evaluation import music
from regard.evaluation.music import evaluate_music, music_likelihood
from regard.memory import NoRoomError
from regard.models.gpt import GPT, GPTSettings
from regard.text.tokenizer import MusicEvents, Tokenizer
from tests.exploring.test_composing import music_model
from tests.tight import tight
from tests.tiny import failed, language_model, regard, write_lines

TOKENIZER = Tokenizer.learn([], MusicEvents(encoding="chorale"))
PIECES = ["S60 A57 T52 B45 S62 A57 T52 B45", "S70 A- T50 B40"]


def gpt(**changes: object) -> GPT:
    torch.manual_seed(0)
    settings = {"layers": 1, "d_model": 16, "d_ff": 16, "heads": 2, "positions": "relative", "reach": 8, **changes}
    return GPT(GPTSettings(**settings), TOKENIZER.size).eval()  # type: ignore[arg-type]


@torch.no_grad()
def by_hand(model: GPT, words: list[int]) -> float:
    """-log P of each word after those before it, one call a word; without the end."""
    nats = 0.0
    for place, word in enumerate(words):
        before = torch.tensor([[TOKENIZER.specials.start, *words[:place]]])
        scores_BV, _ = model.step(before, model.start(None, 1))
        nats -= float(scores_BV.log_softmax(-1)[0, word])
    return nats


def test_each_piece_is_read_alone_and_without_its_end() -> None:
    model = gpt()
    found = music_likelihood(model, TOKENIZER, PIECES)
    wanted = [by_hand(model, TOKENIZER.encode(piece)) for piece in PIECES]
    np.testing.assert_allclose(found.nats_L, wanted, rtol=1e-5)
    assert found.words_L.tolist() == [8, 4]
    assert found.excerpt is None
    report = evaluate_music({"test": found}, voices=4)
    names = {score.name: score for score in report.scores}
    assert names["nats per word, test"].value == pytest.approx(sum(wanted) / 12, rel=1e-5)
    assert names["nats per step, test"].value == pytest.approx(sum(wanted) / 3, rel=1e-5)
    assert names["nats per step, test"].signature == "each piece alone|ends of pieces:no|pieces:2|steps:3"
    assert len(names) == 2


def test_a_long_piece_is_read_in_excerpts(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = TOKENIZER.encode(PIECES[0])
    for model in (gpt(positions="learned", max_positions=3), gpt()):
        monkeypatch.setattr(music, "EXCERPT", 3)
        found = music_likelihood(model, TOKENIZER, PIECES[:1])
        assert found.excerpt == 3
        wanted = sum(by_hand(model, ids[first : first + 3]) for first in (0, 3, 6))
        assert found.nats_L[0] == pytest.approx(wanted, rel=1e-5)


def test_the_command(tmp_path: Path) -> None:
    steps = [[[60, 57, 52, 45], [62, 57, 52, 45]]]
    data = tmp_path / "c.json"
    data.write_text(json.dumps({"train": steps, "valid": steps * 3, "test": steps * 2}))
    model = music_model(tmp_path / "model", "chorale", f"data.music={data}")
    report = json.loads(regard("evaluate", model, "--json").out)
    names = [f"nats per {unit}, {split}" for split in ("valid", "test") for unit in ("word", "step")]
    assert [score["name"] for score in report["scores"]] == names
    assert [(file["role"], file["lines"]) for file in report["files"]] == [("valid", 3), ("test", 2)]
    one = music_likelihood(load(model).network, TOKENIZER, PIECES[:1])
    assert report["scores"][0]["value"] == pytest.approx(float(one.nats_L[0]) / 8, rel=1e-4)
    assert report["scores"][3]["value"] == pytest.approx(float(one.nats_L[0]) / 2, rel=1e-4)
    words = write_lines(tmp_path / "words.txt", PIECES)
    text = regard("evaluate", model, words).out
    assert "nats per word, pieces" in text
    assert "perplexity" not in text
    failed(regard("evaluate", model, words, words), 2, "pieces of music are in one file")
    failed(regard("evaluate", model, "--overlap", 3), 2, "each is read by itself, but --overlap is given")


def test_a_model_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="evaluate: needs a model of music"):
        load(language_model(tmp_path / "text")).evaluate_music({"test": PIECES})


def test_where_memory_is_short_fewer_pieces_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt()
    wanted = music_likelihood(model, TOKENIZER, PIECES * 3)
    tried, heard = tight(monkeypatch, model, 2), list[tuple[str, int]]()
    found = music_likelihood(model, TOKENIZER, PIECES * 3, lambda *now: heard.append(now))
    np.testing.assert_allclose(found.nats_L, wanted.nats_L, rtol=1e-5)
    assert max(tried) > 2
    assert heard[-1] == ("words", 36)
    tight(monkeypatch, model, 0)
    with pytest.raises(NoRoomError, match=r"evaluate: piece \d: must fit .*\(8 words at a time\)"):
        music_likelihood(model, TOKENIZER, PIECES)
