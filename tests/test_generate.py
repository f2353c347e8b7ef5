"""`regard generate`, and the same from Python."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import generation, load, verification
from regard.api import Model
from regard.cli import common
from regard.decoding.sampling import Sample, SamplingSettings, sample
from regard.errors import UsageError
from tests.tiny import ENGLISH, failed, language_model, regard, write_lines

KEYS = {"text", "tokens", "log_probabilities", "top", "finish_reason"}
SHORT = SamplingSettings(max_tokens=12)
RUNNING = "batch={layout='blocks', tokens=512, row=32}"


@pytest.fixture(scope="module")
def model(babbling_model: Path) -> Model:
    return load(babbling_model)


# From Python


def test_the_same_seed_gives_the_same_text_in_any_company(model: Model) -> None:
    prompts = ["one", "", "three four five", "ü"]
    together = model.generate(prompts, SHORT, seed=7)
    assert together == [model.generate([prompt], SHORT, seed=7)[0] for prompt in prompts]
    assert together[::-1] == model.generate(prompts[::-1], SHORT, seed=7)
    assert together != model.generate(prompts, SHORT, seed=8)


def test_the_likeliest_are_drawn_the_same_with_and_without_a_report(model: Model) -> None:
    for sampling in (SamplingSettings(max_tokens=12, top_k=5), SamplingSettings(max_tokens=12, temperature=0)):
        reported = replace(sampling, alternatives=2)
        ((one,),), ((other,),) = (model.generations(["one"], each) for each in (sampling, reported))
        assert one.tokens == other.tokens
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-5)


def test_more_texts_go_on_with_the_seeds_that_follow(model: Model) -> None:
    found = model.generations(["one", "two"], SHORT, seed=3, count=3)
    assert [len(texts) for texts in found] == [3, 3]
    for number in range(3):
        assert [texts[number].text for texts in found] == model.generate(["one", "two"], SHORT, seed=3 + number)
    with pytest.raises(UsageError, match="`count` must be at least 1, but is 0"):
        model.generations(["one"], count=0)


def test_texts_come_as_they_are_drawn(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def counting(*args: object, **named: object) -> list[Sample]:
        drawn.append(len(args[1]))  # type: ignore[arg-type]
        return sample(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(generation, "sample", counting)
    one = SamplingSettings(max_tokens=1)
    texts = model.each_generation(["one", "two"], one, seed=3, count=10**9)
    first = [next(texts).text for _ in range(3)]
    assert drawn == [generation.ROWS]
    assert first == [found.text for found in model.generations(["one"], one, seed=3, count=3)[0]]
    few = model.each_generation(["one", "two"], SHORT, seed=3, count=50)
    assert list(few) == [found for texts in model.generations(["one", "two"], SHORT, 3, 50) for found in texts]
    with pytest.raises(UsageError, match="`count` must be at least 1, but is 0"):
        model.each_generation(["one"], count=0)


def test_a_line_that_ends_at_once_does_not_end_running_text(model: Model, tmp_path: Path) -> None:
    running = load(language_model(tmp_path / "running", [RUNNING]))
    assert (running.running, model.running) == (True, False)
    (texts,) = model.generations(["one"], SHORT, seed=1, count=1_000)
    seed = 1 + [found.finish_reason == "end" and found.text == "" for found in texts].index(True)
    ((found,),) = running.generations(["one"], SHORT, seed=seed)
    assert found.text.startswith("\n")
    assert found.text.strip("\n")
    assert "".join(running.stream("one", SHORT, seed=seed)) == found.text
    other = 1 + [found.text != "" for found in texts].index(True)
    assert running.generate(["one"], SHORT, seed=other) == [texts[other - 1].text]


def test_a_prompt_of_running_text_may_have_several_lines(model: Model, tmp_path: Path) -> None:
    running = load(language_model(tmp_path / "running", [RUNNING, "tokenizer={kind='bpe', vocabulary=120}"]))
    start, encode = running.tokenizer.specials.start, running.tokenizer.encode
    prompt = [*encode("one"), start, *encode("two"), start]
    greedy = SamplingSettings(temperature=0, max_tokens=1, top_k=1)
    (drawn,) = sample(running.network, [prompt], running.tokenizer.specials, greedy, [1])
    assert running.tokenizer.encode_lines("one\ntwo\n") == prompt
    assert running.tokenizer.decode_lines(prompt) == "one\ntwo\n"
    # It begins a line, so it has no space before it.
    assert running.generate(["one\ntwo\n"], greedy) == [running.tokenizer.decode(drawn.tokens)]
    assert model.tokenizer.encode("one\ntwo") != model.tokenizer.encode_lines("one\ntwo")


def test_every_token_is_told_of(model: Model) -> None:
    ((found,),) = model.generations(["one"], SamplingSettings(max_tokens=6, alternatives=10), seed=2)
    assert len(found.tokens) == len(found.log_probabilities) == len(found.top)
    for token, chance, top in zip(found.tokens, found.log_probabilities, found.top, strict=True):
        assert len(top) == 10
        assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
        assert math.exp(chance) <= top[0][1] + 1e-6
        if token in dict(top) and list(dict(top)).count(token) == 1:
            assert chance <= 0
    assert found.finish_reason == "length"


def test_a_stream_gives_the_same_text_in_pieces(model: Model) -> None:
    settings = SamplingSettings(max_tokens=40)
    pieces = list(model.stream("one", settings, seed=5))
    assert "".join(pieces) == model.generate(["one"], settings, seed=5)[0]
    assert len(pieces) > 10
    before = threading.active_count()
    listening = model.stream("one", settings, seed=5)
    assert next(listening) == pieces[0]
    listening.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_what_goes_wrong_in_a_stream_is_raised(babbling_model: Path) -> None:
    broken = load(babbling_model)
    with torch.no_grad():
        next(broken.network.parameters()).fill_(math.nan)
    with pytest.raises(Exception, match="scores that are numbers"):
        list(broken.stream("one", SHORT))


def test_texts_are_scored_token_by_token(model: Model) -> None:
    texts = ["one", "", "twelve eleven", "two"]
    found = model.score(texts)
    assert [len(each.log_probabilities) for each in found] == [len(model.tokenizer.encode(text)) + 1 for text in texts]
    for text, each in zip(texts, found, strict=True):
        (alone,) = model.score([text])
        assert alone.log_probability == pytest.approx(each.log_probability, abs=1e-4)
    with pytest.raises(UsageError, match="a language model needs no sources, but got 1 text and 1 source"):
        model.score(["one"], ["eins"])


def test_each_kind_of_model_says_what_it_is_for(model: Model, words_model: Path) -> None:
    with pytest.raises(UsageError, match=r"`babble` is a language model of kind `gpt`\. Use `generate`"):
        model.translate(["one"])
    translator = load(words_model)
    with pytest.raises(UsageError, match="generate: needs a language model, but `words` translates"):
        translator.generate(["one"])
    with pytest.raises(UsageError, match="generate: needs a language model"):
        translator.stream("one")
    with pytest.raises(UsageError, match="score: needs one source a text, but got 1 text and no sources"):
        translator.score(["eins"])
    (likely, unlikely) = translator.score(["eins", "zwei"], ["one", "one"])
    assert likely.log_probability > unlikely.log_probability


def test_one_string_is_not_taken_for_a_list_of_letters(model: Model) -> None:
    with pytest.raises(UsageError, match="generate: needs a list of texts, but has one, 'one'"):
        model.generate("one")
    with pytest.raises(UsageError, match="stream: needs one text, but has a list"):
        model.stream(["one"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a list of texts, but number 2 is a int"):
        model.score(["one", 2])  # type: ignore[list-item]


# The command


def test_a_prompt_is_gone_on_with(babbling_model: Path, model: Model) -> None:
    options = ("--max-tokens", 12, "--seed", 4)
    settings = SamplingSettings(max_tokens=12)
    ran = regard("generate", babbling_model, "one", *options)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == model.generate(["one"], settings, seed=4)[0] + "\n"
    assert regard("generate", babbling_model, "one", *options, "--stream").out == ran.out
    assert regard("generate", babbling_model, "-", *options, stdin=b"one\n").out == ran.out
    assert regard("generate", babbling_model, *options, stdin=b"one\n").out == ran.out
    assert regard("generate", babbling_model, "", *options).out == model.generate([""], settings, seed=4)[0] + "\n"
    assert regard("generate", babbling_model, *options, stdin=b"").out == ""
    for more in ((), ("-",)):
        failed(regard("generate", babbling_model, *more, *options, stdin=None), 2, "stdin: must be open")
    assert regard("generate", babbling_model, "one", *options, stdin=None).out == ran.out


def test_several_texts_have_a_line_between_them(babbling_model: Path, model: Model) -> None:
    settings = SamplingSettings(max_tokens=5, top_k=3)
    expected = [found.text for texts in model.generations(["one", "two"], settings, 1, 2) for found in texts]
    for more in ([], ["--stream"]):
        ran = regard(
            "generate", babbling_model, "--top-k", 3, "--max-tokens", 5, "--count", 2, *more, stdin=b"one\ntwo\n"
        )
        assert ran.out == "\n---\n".join(expected) + "\n"


def test_json_is_one_object_a_line(babbling_model: Path) -> None:
    ran = regard("generate", babbling_model, "--json", "--max-tokens", 3, "--count", 2, stdin=b"one\n\n")
    found = [json.loads(line) for line in ran.out.split("\n")[:-1]]
    assert len(found) == 4
    for each in found:
        assert set(each) == KEYS
        assert isinstance(each["text"], str)
        assert len(each["tokens"]) == len(each["log_probabilities"]) == len(each["top"]) <= 3
        assert all(isinstance(token, str) and 0 <= p <= 1 for top in each["top"] for token, p in top)
        assert all(len(top) == 10 for top in each["top"])
        assert each["finish_reason"] in ("end", "length")


def test_a_prompt_longer_than_the_model_can_read_is_told_of(babbling_model: Path) -> None:
    ran = regard("generate", babbling_model, " ".join(ENGLISH), "--max-tokens", 4)
    assert ran.code == 0
    assert "but the model reads 32 at most" in ran.err


def test_what_the_vocabulary_lacks_is_told_of_once(tmp_path: Path) -> None:
    place = language_model(tmp_path / "model", ["tokenizer={kind='characters'}"])
    options = ("--max-tokens", 2)
    ran = regard("generate", place, *options, stdin="one\none 中 two\n漢\n".encode())
    assert ran.code == 0
    assert ran.err == (
        "warning: the prompt 'one 中 two' holds '中', which the vocabulary lacks, or parts of it. The model reads them "
        "as unknown.\n"
    )
    assert regard("generate", place, "one", *options).err == ""
    assert "holds '\\n', which" in regard("generate", place, "one\ntwo", *options).err
    assert regard("generate", place, "one\ntwo", *options, "--lines", 2).err == ""
    running = language_model(tmp_path / "running", ["tokenizer={kind='characters'}", RUNNING])
    assert regard("generate", running, "one\ntwo", *options).err == ""


def test_progress_is_told_in_texts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("regard.status.PAUSE_ELSEWHERE", 0.0)
    with common.Progress(size=4, what="texts", each=8) as progress:
        progress.window(["one"])
        progress.add(2, 6)
    assert re.fullmatch(r"2 texts  [\d,.]+ texts/s  [\d,]+ tokens/s  25%  0:00 left\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "-1"], "--temperature must be at least 0"),
        (["--temperature", "inf"], "--temperature must be at least 0 (no chance) and finite, but is inf"),
        (["--top-p", "0"], "--top-p must be above 0"),
        (["--top-k", "-1"], "--top-k must be at least 0"),
        (["--min-p", "2"], "--min-p must be from 0"),
        (["--max-tokens", "0"], "--max-tokens must be at least 1"),
        (["--repetition-penalty", "0"], "--repetition-penalty must be above 0"),
        (["--count", "0"], "--count must be at least 1"),
        (["--seed", "-1"], "a seed must be from 0"),
        (["--stream", "--json"], "Choose one"),
    ],
)
def test_draws_that_cannot_be_are_refused_in_a_sentence(babbling_model: Path, options: list[str], words: str) -> None:
    failed(regard("generate", babbling_model, "one", *options), 2, words)


def test_the_wrong_kind_of_model_is_refused(babbling_model: Path, words_model: Path) -> None:
    failed(regard("generate", words_model, "one"), 2, "needs a language model, but `words` translates", "`translate`")
    failed(regard("translate", babbling_model, stdin=b"one\n"), 2, "`babble` is a language model", "`generate`")
    failed(regard("align", babbling_model, "no", "no"), 2, "align: needs a model that translates, but `babble`")


@pytest.mark.parametrize("kind", ["recurrent-lm", "wavenet"])
def test_other_language_models_write_too(kind: str, tmp_path: Path) -> None:
    sizes = {"recurrent-lm": "d_model=12", "wavenet": "channels=6, skip_channels=8, dilations=[1, 2]"}[kind]
    place = language_model(tmp_path / "model", [f"model={{kind='{kind}', {sizes}}}"])
    assert regard("generate", place, "one", "--max-tokens", 5).code == 0
    assert regard("verify", place, "--texts", 4).code == 0


def test_verify_asks_a_language_model(babbling_model: Path) -> None:
    answer = json.loads(regard("verify", babbling_model, "--texts", 5, "--json").out)
    names = ["neighbours", "order", "batch size", "cache", "prefix", "at once"]
    assert [check["name"] for check in answer["checks"]] == names
    assert answer["passed"] is True


def test_verify_steps_as_generate_does(babbling_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[object] = []
    monkeypatch.setattr(verification, "recorded", lambda network: stepped.append(network) or network)
    model = load(babbling_model)
    assert all(check.passed for check in model.verify(count=3))
    assert stepped == [model.network]


def test_texts_that_are_given_are_scored(babbling_model: Path, model: Model, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "texts", ["one", "", "one two"])
    ran = regard("score", babbling_model, texts)
    expected = model.score(["one", "", "one two"])
    assert ran.out == "".join(
        f"{each.log_probability:.4f}\t{each.log_probability / len(each.log_probabilities):.4f}\n" for each in expected
    )
    long = write_lines(tmp_path / "long", ["one", "one " * 99])
    failed(regard("score", babbling_model, long), 2, f"{long}, line 2: must have less than 32 tokens")
    failed(regard("score", babbling_model, texts, texts), 2, "a language model needs one file, of texts, but there are")
