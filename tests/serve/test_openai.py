"""OpenAI's own client, unchanged, against a real server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from regard.serve.completing import Stops
from regard.serve.limits import Limits
from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["words", "babble"]
    assert client.models.retrieve("babble").id == "babble"
    with pytest.raises(openai.NotFoundError, match="must be one of those served here"):
        client.models.retrieve("none")


def test_a_completion_is_what_the_model_writes(client: openai.OpenAI, server: Running) -> None:
    found = client.completions.create(model="babble", prompt="one", max_tokens=6, seed=3, temperature=0.7, top_p=0.9)
    model = server.desk.models["babble"].model
    from regard.decoding.sampling import SamplingSettings

    ((expected,),) = model.generations(["one"], SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=6), seed=3)
    assert found.choices[0].text == expected.text
    assert found.choices[0].finish_reason == ("length" if expected.finish_reason == "length" else "stop")
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(model.tokenizer.encode("one"))
    assert found.usage.completion_tokens == len(expected.tokens)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert (found.object, found.model) == ("text_completion", "babble")


def test_prompts_may_be_several_or_tokens(client: openai.OpenAI, server: Running) -> None:
    ids = server.desk.models["babble"].model.tokenizer.encode("one")
    one = client.completions.create(model="babble", prompt="one", max_tokens=4, seed=1).choices[0].text
    two = client.completions.create(model="babble", prompt="two", max_tokens=4, seed=1).choices[0].text
    for prompt, texts in (
        (["one", "two"], [one, two]), (ids, [one]), ([ids, ids], [one, one]), ([[]], None), ("", None),
    ):  # fmt: skip
        found = client.completions.create(model="babble", prompt=prompt, max_tokens=4, seed=1)
        assert texts is None or [choice.text for choice in found.choices] == texts


def test_n_texts_by_seeds_that_follow_each_other(client: openai.OpenAI) -> None:
    found = client.completions.create(model="babble", prompt=["a", "b"], n=2, max_tokens=4, seed=5)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    second = client.completions.create(model="babble", prompt="a", max_tokens=4, seed=6)
    assert found.choices[1].text == second.choices[0].text
    unseeded = {client.completions.create(model="babble", prompt="a", max_tokens=8).choices[0].text for _ in range(4)}
    assert len(unseeded) > 1


def test_logprobs(client: openai.OpenAI) -> None:
    found = client.completions.create(model="babble", prompt="one two", max_tokens=5, seed=1, logprobs=3, echo=True)
    choice = found.choices[0]
    told = choice.logprobs
    assert choice.text.startswith("one two")
    assert told is not None
    assert all((told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset))
    assert told.token_logprobs[0] is None
    assert all(value is not None and value <= 0 for value in told.token_logprobs[1:])
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset)
    for token, chance, top in list(zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True))[1:]:
        assert top[token] == pytest.approx(chance, abs=1e-4)
        assert 3 <= len(top) <= 4
        assert sum(math.exp(value) for value in top.values()) <= 1.001
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        assert "\ufffd" in token or choice.text[offset:].startswith(token)


def test_the_logprobs_of_a_prompt_are_those_of_scoring(client: openai.OpenAI, server: Running) -> None:
    found = client.completions.create(model="babble", prompt="two three", max_tokens=0, logprobs=0, echo=True)
    told = found.choices[0].logprobs
    (scored,) = server.desk.models["babble"].model.score(["two three"])
    assert told is not None
    assert told.token_logprobs is not None
    assert told.token_logprobs[1:] == pytest.approx(list(scored.log_probabilities[1:-1]), abs=1e-5)
    assert told.top_logprobs is None
    assert found.choices[0].text == "two three"


def test_streaming(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="babble", prompt="one", n=2, max_tokens=12, seed=2)
    chunks = list(client.completions.create(
        model="babble", prompt="one", n=2, max_tokens=12, seed=2, stream=True, stream_options={"include_usage": True},
    ))  # fmt: skip
    for choice in whole.choices:
        mine = [each for chunk in chunks for each in chunk.choices if each.index == choice.index]
        assert "".join(each.text for each in mine) == choice.text
        assert [each.finish_reason for each in mine if each.finish_reason] == [choice.finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_streaming_with_logprobs_and_echo(client: openai.OpenAI) -> None:
    asked = {"model": "babble", "prompt": "one", "max_tokens": 4, "seed": 2, "echo": True}
    for logprobs in (None, 1):
        whole = client.completions.create(**asked, logprobs=logprobs)
        chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, logprobs=logprobs, stream=True)]
        assert "".join(chunk.text for chunk in chunks) == whole.choices[0].text
    told = [token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.tokens or []]
    assert whole.choices[0].logprobs is not None
    assert told == whole.choices[0].logprobs.tokens


def test_a_stream_ends_with_done(server: Running) -> None:
    body = {"model": "babble", "prompt": "one", "max_tokens": 2, "stream": True}
    with server.client() as http, http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line.removeprefix("data: "))["object"] == "text_completion" for line in lines[:-1])


def test_stop_texts(client: openai.OpenAI) -> None:
    asked = {"model": "babble", "prompt": "one", "max_tokens": 30, "seed": 4}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[10:12]
    cut = client.completions.create(**asked, stop=["never there at all", stop], logprobs=0)
    assert cut.choices[0].text == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage is not None
    assert cut.usage.completion_tokens < 30
    chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, stop=stop, stream=True)]
    assert "".join(chunk.text for chunk in chunks) == cut.choices[0].text
    assert chunks[-1].finish_reason == "stop"


def test_what_may_begin_a_stop_is_held_back() -> None:
    stops = Stops(["END", "\n\n"])
    assert [stops.push(piece) for piece in ("aE", "N", "x\n", "b", "E", "ND c")] == ["a", "", "ENx", "\nb", "", ""]
    assert stops.reached
    left = Stops(["END"])
    assert left.push("xEN") + left.end() == "xEN"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"model": "words"}, "model", "must be a language model, but `words` translates"),
        ({"best_of": 3}, "best_of", "must be left out"),
        ({"suffix": "x"}, "suffix", "must be left out"),
        ({"presence_penalty": 0.5}, "presence_penalty", "repetition_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "must be left out"),
        ({"prompt": []}, "prompt", "must be at least one"),
        ({"prompt": [99_999]}, "prompt", "tokens must be below"),
        ({"max_tokens": 0}, "max_tokens", "at least 1 without `echo`"),
        ({"stop": ["x"] * 17}, "stop", "at most 16 texts"),
    ],
)
def test_what_cannot_be_is_refused(client: openai.OpenAI, fields: dict[str, object], param: str, words: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "babble", "prompt": "one", **fields})
    error = refused.value
    assert error.param == param
    assert error.type == "invalid_request_error"
    assert words in error.message
    assert set(json.loads(error.response.text)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "fields",
    [{"n": 9}, {"max_tokens": 10**9}, {"prompt": "x" * 5_001}, {"prompt": ["x"] * 129}, {"temperature": 3},
     {"top_p": 0}, {"logprobs": 21}, {"extra_body": {"unknown": 1}}, {"prompt": [-1]}, {"seed": 2**70}, {"n": 0}],
)  # fmt: skip
def test_too_much_is_refused(client: openai.OpenAI, fields: dict[str, object]) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.completions.create(model="babble", **{"prompt": "one", **fields})  # type: ignore[call-overload]
    assert 400 <= refused.value.status_code < 500
    assert refused.value.type == "invalid_request_error"


def test_a_key(babbling_model: Path) -> None:
    with running({"babble": babbling_model}, Limits(), key="secret") as guarded:
        with openai.OpenAI(base_url=f"{guarded.address}/v1", api_key="secret") as right:
            assert right.completions.create(model="babble", prompt="a", max_tokens=1).choices
        wrong = openai.OpenAI(base_url=f"{guarded.address}/v1", api_key="wrong", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError, match="missing or wrong"):
            wrong.models.list()
