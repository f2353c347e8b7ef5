"""What comes next: the model's own probabilities, what sampling makes of them, and other ways to go on."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
import torch

from regard import shipped
from regard.api import load
from regard.batch import IGNORED, Batch, Tokens
from regard.decoding.constraints import Constraints
from regard.decoding.sampling import SamplingSettings, sample
from regard.decoding.scoring import score_texts
from regard.decoding.search import beam_search
from regard.errors import UsageError
from regard.exploring.bundle import as_row, best, source_ids
from regard.exploring.following import along, alternatives, next_tokens
from tests.exploring.bundles import Tiny, by_sentence, running, tiny

TEXT = "one two"


def next_probabilities(bundle: Tiny, text: str) -> torch.Tensor:
    ids = [bundle.tokenizer.specials.start, *bundle.tokenizer.encode(text)]
    with torch.inference_mode():
        logits, _ = bundle.network.step(torch.tensor([ids]), bundle.network.start(None, 1))
    return logits[0].softmax(dim=-1)


def test_probabilities_are_the_models() -> None:
    bundle = tiny("gpt")
    wanted = next_probabilities(bundle, TEXT)
    found = next_tokens(bundle, TEXT, count=5)
    assert [each.id for each in found.tokens] == wanted.topk(5).indices.tolist()
    assert [each.probability for each in found.tokens] == pytest.approx(wanted.topk(5).values.tolist(), abs=1e-5)
    assert found.entropy == pytest.approx(float(-(wanted * wanted.log()).sum()), abs=1e-4)
    assert "".join(found.text_tokens) == TEXT


def test_a_token_shows_what_it_adds_to_the_text() -> None:
    bundle = tiny("gpt", "kind='bytes', vocabulary=300")
    for each in next_tokens(bundle, "one", count=300).tokens:
        if each.text.isascii() and each.text.isprintable():
            assert bundle.tokenizer.decode([*bundle.tokenizer.encode("one"), each.id]) == "one" + each.text
    ends = [each for each in next_tokens(bundle, "one", count=300).tokens if each.end]
    assert [(each.id, each.text) for each in ends] == [(bundle.tokenizer.specials.end, "‹end›")]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSettings(temperature=0.5, top_k=3, max_tokens=1),
        SamplingSettings(temperature=2.0, max_tokens=1),
        SamplingSettings(top_p=0.3, max_tokens=1),
        SamplingSettings(temperature=0.0, max_tokens=1),
    ],
)
def test_chances_are_those_that_sampling_draws_by(sampling: SamplingSettings) -> None:
    bundle = tiny("gpt")
    found = next_tokens(bundle, TEXT, sampling, count=bundle.tokenizer.size)
    chances = {each.id: each.chance for each in found.tokens}
    assert sum(chances.values()) == pytest.approx(1, abs=1e-3)
    assert found.kept == sum(chance > 0 for chance in chances.values()) or sampling.temperature == 2.0
    if sampling.top_k:
        assert found.kept == 3
    draws, prompt = 2000, bundle.tokenizer.encode(TEXT)
    drawn = sample(bundle.network, [prompt] * draws, bundle.tokenizer.specials, sampling, range(draws))
    end = bundle.tokenizer.specials.end
    counts = Counter(text.tokens[0] if text.tokens else end for text in drawn)
    assert set(counts) <= {token for token, chance in chances.items() if chance > 0}
    for token, count in counts.items():
        chance = chances[token]
        assert abs(count / draws - chance) < 5 * math.sqrt(chance * (1 - chance) / draws) + 1e-3


def test_an_empty_and_a_long_text() -> None:
    bundle = tiny("gpt")
    empty, long = next_tokens(bundle, ""), next_tokens(bundle, "one " * 100)
    assert (empty.text_tokens, empty.flags) == ((), ())
    assert (len(long.tokens), long.flags) == (10, ("tail",))


def test_what_the_vocabulary_lacks_is_told() -> None:
    writer = load(shipped.path("writer"))
    assert next_tokens(writer, "The king is").flags == ()
    assert next_tokens(writer, "The 王 is").flags == ("unknown",)
    assert next_tokens(writer, "The 王 is" + 300 * " so").flags == ("unknown", "tail")


@pytest.mark.parametrize(("length", "flags"), [(256, ()), (257, ("tail",))])
def test_that_only_the_end_was_read_is_told_where_a_token_of_the_text_was_not(
    length: int, flags: tuple[str, ...]
) -> None:
    writer = load(shipped.path("writer"))
    assert writer.network.context == 256
    assert next_tokens(writer, length * "a").flags == flags
    assert bool(along(writer, length * "a", most=512).skipped) == bool(flags)


@pytest.mark.parametrize("name", ["gpt", "transformer", "recurrent", "decoder-only"])
def test_along_a_text_probabilities_are_those_of_scoring(name: str) -> None:
    bundle = tiny(name)
    translates = bundle.network.reads_source
    found = along(bundle, TEXT, "eins zwei" if translates else None)
    text = "eins zwei" if translates else TEXT
    source = as_row(bundle, source_ids(bundle, TEXT)) if translates else None
    ids = bundle.tokenizer.encode(text)
    (scored,) = score_texts(bundle.network, source, [ids], bundle.tokenizer.specials, end=translates)
    assert [token.probability for token in found.tokens] == pytest.approx(
        [math.exp(value) for value in scored.log_probabilities], abs=1e-5
    )
    assert "".join(token.text for token in found.tokens[: len(ids)]) == text
    for token in found.tokens:
        better = [chance for _, chance in token.top if chance > token.probability + 1e-6]
        assert token.rank > len(better)
        assert token.rank > 10 or token.top[token.rank - 1][1] == pytest.approx(token.probability, abs=1e-5)
    json.dumps(found.to_json(), allow_nan=False)


def test_along_the_end_of_a_long_text() -> None:
    bundle = tiny("gpt")
    context = bundle.network.context
    assert context is not None
    text = "one two three " * 30
    ids = bundle.tokenizer.encode(text)
    assert len(ids) > context
    with pytest.raises(UsageError, match="tokens: the text must have less than"):
        along(bundle, text)
    for most, read in ((1_000, context), (5, 5)):
        found = along(bundle, text, most=most)
        assert (len(found.tokens), found.skipped) == (read, len(ids) - read)
        assert text.strip().endswith(found.text)
        with torch.inference_mode():
            fed = Tokens.whole(torch.tensor([ids[-read - 1 : -1]]))
            batch = Batch(None, fed, torch.full_like(fed.ids_BT, IGNORED))
            chances_TV = bundle.network.logits(bundle.network.features(batch))[0].softmax(dim=-1)
        assert [token.probability for token in found.tokens] == pytest.approx(
            [float(chances_V[token]) for chances_V, token in zip(chances_TV, ids[-read:], strict=True)], abs=1e-5
        )
    whole = along(bundle, "one two", most=1_000)
    assert (whole.skipped, whole.tokens) == (0, along(bundle, "one two").tokens)


def test_along_its_own_translation() -> None:
    bundle = tiny("transformer")
    written = best(bundle, source_ids(bundle, TEXT))
    found = along(bundle, TEXT)
    assert len(found.tokens) == len(written.tokens) + 1
    assert math.log(math.prod(token.probability for token in found.tokens)) == pytest.approx(
        written.log_probability, abs=1e-2
    )


def test_in_running_text_the_end_of_a_line_is_a_token_like_any_other() -> None:
    bundle = running(tiny("gpt"))
    specials, encode = bundle.tokenizer.specials, bundle.tokenizer.encode
    # As in training: what ends a line is foreseen, and what begins one is read.
    answers = [*encode("one"), specials.end, *encode("two")]
    read = [specials.start, *encode("one"), specials.start, *encode("two")]
    with torch.inference_mode():
        logits, _ = bundle.network.step(torch.tensor([read]), bundle.network.start(None, 1))
        fed = Tokens.whole(torch.tensor([read[:-1]]))
        batch = Batch(None, fed, torch.full_like(fed.ids_BT, IGNORED))
        chances_TV = bundle.network.logits(bundle.network.features(batch))[0].softmax(dim=-1)
    found = along(bundle, "one\ntwo")
    assert found.text == "".join(token.text for token in found.tokens) == "one\ntwo"
    assert [token.probability for token in found.tokens] == pytest.approx(
        [float(chances_V[token]) for chances_V, token in zip(chances_TV, answers, strict=True)], abs=1e-5
    )
    following = next_tokens(bundle, "one\ntwo", count=bundle.tokenizer.size)
    assert "".join(following.text_tokens) == "one\ntwo"
    assert [each.id for each in following.tokens[:5]] == logits[0].topk(5).indices.tolist()
    (line_end,) = (each for each in following.tokens if each.id == specials.end)
    assert (line_end.text, line_end.end) == ("\n", False)
    # A word at the beginning of a line has no space before it.
    (word,) = encode("three")
    texts = {each.id: each.text for each in next_tokens(bundle, "one\n", count=bundle.tokenizer.size).tokens}
    assert texts[word] == "three"


def test_along_the_translation_of_the_first_sentence() -> None:
    bundle = by_sentence(tiny("transformer"))
    found = along(bundle, "One two. Three!")
    assert (found.source, found.tokens) == ("One two.", along(bundle, "One two.").tokens)


def test_alternatives_go_on_from_the_beginning() -> None:
    bundle = tiny("transformer")
    found = alternatives(bundle, TEXT, "eins ", count=4).alternatives
    assert 1 <= len(found) <= 4
    assert len({each.text for each in found}) == len(found)
    chances = [each.probability for each in found]
    assert chances == sorted(chances, reverse=True)
    for each in found:
        if each.text != "‹end›":
            assert each.translation.startswith(f"eins {each.text}")
    # The likeliest word's translation is what search makes of the beginning with that word's first token.
    source = as_row(bundle, source_ids(bundle, TEXT))
    first = next(each for each in found if each.text != "‹end›")
    whole = {
        bundle.tokenizer.decode(answer[0].tokens): answer[0].score
        for token in range(bundle.tokenizer.size)
        if first.text.startswith(bundle.tokenizer.labels([token])[0].strip("▁") or "?")
        for answer in beam_search(
            bundle.network,
            source,
            bundle.tokenizer.specials,
            bundle.recipe.search,
            [Constraints(prefix=(*bundle.tokenizer.encode("eins"), token))],
        )
    }
    assert whole[first.translation] == pytest.approx(first.score, abs=1e-4)


def test_a_beginning_that_does_not_end_in_a_space_may_go_on_inside_its_word() -> None:
    bundle = tiny("transformer")
    inside = alternatives(bundle, TEXT, "ei").alternatives
    assert any(not each.translation.startswith("ei ") for each in inside)
    assert all(each.translation.startswith("ei") for each in inside)
    new = alternatives(bundle, TEXT, "ei ").alternatives
    assert all(each.translation.startswith("ei ") or each.text == "‹end›" for each in new)


def test_what_does_not_fit_the_model_is_said() -> None:
    with pytest.raises(UsageError, match="next: needs a language model, but `transformer` translates"):
        next_tokens(tiny("transformer"), TEXT)
    with pytest.raises(UsageError, match="alternatives: needs a model that translates"):
        alternatives(tiny("gpt"), TEXT)
    with pytest.raises(UsageError, match="`count` must be from 1 to 10, but is 0"):
        alternatives(tiny("transformer"), TEXT, count=0)
    with pytest.raises(UsageError, match="`count` must be at least 1"):
        next_tokens(tiny("gpt"), TEXT, count=0)
    with pytest.raises(UsageError, match="at least one word"):
        along(tiny("gpt"), "")
