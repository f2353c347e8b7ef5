"""Texts of any length, with any wishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from regard.batch import Tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.sampling import Drawn, Sample
from regard.decoding.search import Hypothesis, SearchSettings
from regard.errors import UsageError
from regard.models.transformer import Transformer, TransformerSettings
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.translation import risk
from regard.translation.translator import Options, TextError, Translator
from regard.translation.wishes import Wishes

SEARCH = SearchSettings(beam=2, extra_length=4)
LINES = ["one two three. Four five, six seven", "eins zwei drei. vier fünf, sechs sieben"]
SETTINGS = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0)


def translator(limit: int | None = None) -> Translator:
    settings = SETTINGS if limit is None else replace(SETTINGS, positions="learned", max_positions=limit)
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(vocabulary=80))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Translator(Transformer(settings, tokenizer.size).eval(), tokenizer, limit)


def test_pieces_are_translated_one_by_one_and_joined() -> None:
    model = translator()
    text = "one two three. Four five six."
    alone = [
        model.translations([part], SEARCH, Options(alignment=True))[0][0]
        for part in ("one two three.", "Four five six.")
    ]
    length = max(len(each.source_tokens) for each in alone) + 1
    (whole,), (same,) = model.translations([text, "one two three."], SEARCH, Options(longest=length, alignment=True))
    assert whole.text == " ".join(each.text.strip() for each in alone)
    assert whole.score == pytest.approx(sum(each.score for each in alone), abs=1e-4)
    assert whole.tokens == alone[0].tokens + alone[1].tokens
    assert whole.source_tokens == alone[0].source_tokens + alone[1].source_tokens
    first, second = alone
    moved = [(i + len(first.source_tokens), j + len(first.tokens)) for i, j, _ in second.alignment]
    assert [(i, j) for i, j, _ in whole.alignment] == [(i, j) for i, j, _ in first.alignment] + moved
    assert "split" in whole.flags
    assert "split" not in same.flags
    assert same.text == first.text


def test_a_piece_has_as_many_words_as_fit() -> None:
    model, longest = translator(), 12
    units = model.units(["one two three four five six seven " * 9], SEARCH, Options(longest=longest))
    assert max(len(unit.ids) for unit in units) <= longest + 1
    for unit, following in pairwise(units):
        (more,) = model.encode([unit.text + following.text.split()[0]])
        assert len(more) > longest + 1


def test_of_a_text_that_is_too_long_the_beginning_alone_may_be_read() -> None:
    model = translator()
    (first,) = model.translations(["one two three."], SEARCH)[0]
    search = replace(SEARCH, too_long="begin")
    options = Options(longest=len(first.source_tokens) + 1)
    (begun,), (whole,) = model.translations(["one two three. Four five six.", "one two three."], search, options)
    assert (begun.text, begun.source_tokens) == (first.text, first.source_tokens)
    assert "begin" in begun.flags
    assert not {"begin", "split"} & set(whole.flags)
    # As many sentences as fit, not the first alone.
    (two,) = model.translations(["one two. three. " * 20], search, Options(longest=2 * len(first.source_tokens) + 2))[0]
    assert len(first.source_tokens) < len(two.source_tokens) <= 2 * len(first.source_tokens) + 2


def test_each_sentence_may_be_translated_by_itself() -> None:
    model, text = translator(), "one two three. Four five six."
    search = replace(SEARCH, each_sentence=True)
    parts = [model.translations([part], SEARCH)[0][0].text for part in ("one two three.", "Four five six.")]
    (whole,) = model.translations([text], search)[0]
    assert whole.text == " ".join(parts)
    assert "split" in whole.flags
    assert [unit.text for unit in model.units(["one two three."], search, Options())] == ["one two three."]
    for wishes in (Wishes(prefix="one"), Wishes(required=("six",))):
        assert len(model.units([text], search, Options(wishes=wishes))) == 1
    assert len(model.units([text], search, Options(wishes=Wishes(banned=("six",))))) == 2


def test_the_second_best_of_a_split_text_is_the_second_best_of_each_piece() -> None:
    search = replace(SEARCH, nbest=2)
    model = translator()
    parts = [model.translations([part], search)[0] for part in ("one two three.", "Four five six.")]
    (whole,) = model.translations(["one two three. Four five six."], search, Options(longest=7))
    assert [each.score for each in whole] == pytest.approx(
        [sum(part[rank].score for part in parts) for rank in range(2)], abs=1e-4
    )


@pytest.mark.parametrize("limit", [8, 16, 70])
def test_no_text_is_too_long_for_a_model(limit: int) -> None:
    model = translator(limit)
    (found,) = model.translations(["one two three. four five, six " * 10], SearchSettings(beam=2))
    assert "split" in found[0].flags
    assert "".join(found[0].source_tokens).count("▁") == 60


def test_texts_of_spaces_alone_are_empty_even_when_long() -> None:
    model = translator(8)
    (found,) = model.translations([" \t" * 50], SEARCH)
    assert (found[0].text, found[0].flags) == ("", ())


def test_progress_counts_every_text_once() -> None:
    done: list[tuple[int, int]] = []
    texts = ["one two three. four five, six", "", "one", "two"]
    found = translator().translations(texts, SEARCH, Options(longest=8), progress=lambda *counts: done.append(counts))
    assert sum(lines for lines, _ in done) == 4
    assert sum(tokens for _, tokens in done) == sum(len(best.tokens) for best, *_ in found)


def test_progress_of_a_long_text_is_seen_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model, done = translator(), list[tuple[int, int]]()
    texts = ["one two three. Four five, six seven. " * 5]
    calm = model.translations(texts, SEARCH, Options(longest=8))
    monkeypatch.setattr("regard.translation.translator.SLOTS_WATCHED", 2 * 9)
    found = model.translations(texts, SEARCH, Options(longest=8), progress=lambda *counts: done.append(counts))
    assert found[0][0].tokens == calm[0][0].tokens
    first, *others, last = done
    assert (first[0], last[0]) == (0, 1)
    assert len(others) > 3
    assert all(lines == 0 and tokens > 0 for lines, tokens in others)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_text_that_comes_twice_gives_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """What is cut in two ways is one text, with the better of its scores."""
    model = translator()
    whole = tuple(model.tokenizer.encode("eins"))
    letters = tuple(model.tokenizer.tokens.index(piece) for piece in ("▁", "e", "i", "n", "s"))
    assert model.tokenizer.decode(whole) == model.tokenizer.decode(letters)
    other, last = tuple(model.tokenizer.encode("zwei")), tuple(model.tokenizer.encode("drei"))
    ended = [Hypothesis(tokens, score, score, cut=False)
             for tokens, score in ((whole, -1.0), (letters, -2.0), (other, -3.0), (last, -4.0))]  # fmt: skip
    asked: list[int] = []

    def find(
        _: object, tokens: Tokens, specials: object, search: SearchSettings, *__: object
    ) -> list[list[Hypothesis]]:
        asked.append(search.nbest)
        return [ended[: search.nbest]] * len(tokens.ids_BT)

    monkeypatch.setattr("regard.translation.translator.find", find)
    search = SearchSettings(beam=4, nbest=2, groups=groups)
    (found,) = model.translations(["one"], search)
    assert [(each.text, each.score) for each in found] == [("eins", -1.0), ("zwei", -3.0)]
    assert asked == [2, 4]
    (found,) = model.translations(["one"], replace(search, nbest=4))
    assert [each.text for each in found] == ["eins", "zwei", "drei"]  # the beam holds no more
    asked.clear()
    model.translations(["one"], replace(search, nbest=1))
    assert asked == [1]


def test_an_empty_translation_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator()
    space = (model.tokenizer.tokens.index("▁"),)
    written = [(), space, tuple(model.tokenizer.encode("zwei"))]
    ended = [Hypothesis(tokens, -rank, -rank, cut=False) for rank, tokens in enumerate(written, 1)]

    def find(_: object, tokens: Tokens, __: object, search: SearchSettings, *___: object) -> list[list[Hypothesis]]:
        return [ended[: search.nbest]] * len(tokens.ids_BT)

    monkeypatch.setattr("regard.translation.translator.find", find)
    for count, texts in ((1, ["zwei"]), (2, ["zwei", ""]), (3, ["zwei", ""])):
        (found,) = model.translations(["one"], SearchSettings(beam=3, nbest=count))
        assert [each.text for each in found] == texts
        assert found[0].flags == ()
    (alone,) = model.translations(["one"], SearchSettings(beam=2, nbest=1))
    assert [(each.text, each.flags) for each in alone] == [("", ("empty",))]


def test_a_long_text_is_translated_in_turns() -> None:
    model = translator()
    text = "one two three. Four five six. " * 3
    steps = model.translating([text], SEARCH, Options(longest=7), slots=1)
    found: list[Any] = []

    def remember() -> Iterator[None]:
        found.extend((yield from steps))

    assert len(list(remember())) == 5  # three sentences twice, each alone: a turn lies between two
    assert [[one.text for one in some] for some in found] == [
        [one.text for one in some] for some in model.translations([text], SEARCH, Options(longest=7))
    ]


def test_wishes_are_kept() -> None:
    model = translator()
    (begun,) = model.translations(["one two"], SEARCH, Options(wishes=Wishes(prefix="zwei drei")))
    assert begun[0].text.startswith("zwei drei")
    (required,) = model.translations(["one two"], SEARCH, Options(wishes=Wishes(required=("vier",))))
    assert "vier" in required[0].text
    assert Wishes(banned=("vier ",)).constraints(model.tokenizer).banned == (tuple(model.tokenizer.encode("vier")),)
    with pytest.raises(UsageError, match="must hold text, but one is empty"):
        model.translations(["one"], SEARCH, Options(wishes=Wishes(banned=(" ",))))


def test_a_split_text_begins_once_and_cannot_be_asked_for_words() -> None:
    model = translator()
    text = "one two three. Four five six."
    (found,) = model.translations([text], SEARCH, Options(longest=7, wishes=Wishes(prefix="zwei drei")))
    assert "split" in found[0].flags
    assert found[0].text.startswith("zwei drei")
    assert found[0].text.count("zwei drei") == 1
    with pytest.raises(TextError, match=r"text 2: .* must be short enough .*, but has to be split, after 'one two"):
        model.translations(["one", text], SEARCH, Options(longest=7, wishes=Wishes(required=("vier",))))


def test_words_are_refused_in_words() -> None:
    model = translator()
    for wishes in (Wishes(prefix="eins ж"), Wishes(banned=("ж",)), Wishes(required=("eins", "ж"))):
        with pytest.raises(UsageError, match=r"must be in the model's vocabulary, but `.*ж` is not"):
            model.translations(["one"], SEARCH, Options(wishes=wishes))
    with pytest.raises(UsageError, match="must not hold a banned one, but `eins zwei` holds `zwei`"):
        model.translations(["one"], SEARCH, Options(wishes=Wishes(banned=("zwei",), required=("eins zwei",))))
    many = Options(wishes=Wishes(required=("eins", "zwei", "drei", "sieben")))
    with pytest.raises(TextError, match=r"text 2: the wished beginning and words must fit into . tokens, but have"):
        model.translations(["one two three. Four five, six seven", "one"], replace(SEARCH, extra_length=0), many)
    once = replace(SEARCH, no_repeat=1)
    with pytest.raises(TextError, match=r"text 2: some translation of 'one' must keep to all that is asked for"):
        model.translations(["", "one"], once, Options(wishes=Wishes(required=("eins eins",))))


def test_the_longest_text_that_is_not_split_has_as_many_tokens_as_is_said() -> None:
    model = translator()
    text = "one two three. Four five six."
    tokens = len(model.tokenizer.source.encode(text))
    flags = [model.translations([text], SEARCH, Options(longest=size))[0][0].flags for size in (tokens, tokens - 1)]
    assert ["split" in some for some in flags] == [False, True]


def test_a_translation_that_met_its_limit_says_so() -> None:
    (found,) = translator().translations(["one"], replace(SEARCH, extra_length=0, min_length=50))
    assert "cut" in found[0].flags
    assert found[0].cut


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"longest": 1}, "`longest` must be at least 2 tokens, but is 1"),
        ({"samples": -1}, "`samples` must be at least 0"),
        ({"samples": 2, "wishes": Wishes("x")}, "`wishes` must be left out with `samples`"),
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Options(**wrong)


# Least risk


def test_what_is_drawn_is_the_same_in_any_company() -> None:
    model, options = translator(), Options(samples=6)
    texts = ["one two", "three", "Four five, six seven one two three"]
    together = model.translations(texts, SearchSettings(nbest=2), options)
    for text, found in zip(texts, together, strict=True):
        (alone,) = model.translations([text], SearchSettings(nbest=2), options)
        assert [each.text for each in found] == [each.text for each in alone]
        assert [each.score for each in found] == pytest.approx([each.score for each in alone])
        assert found[0].score >= found[-1].score
        assert all(len(each.tokens) <= len(each.source_tokens) + 1 + 50 for each in found)


def test_a_draw_is_cut_by_its_own_limit_in_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    model, search = translator(), SearchSettings(beam=1, extra_length=0)
    texts = ["one", "Four five, six seven one two three"]
    together = model.translations(texts, search, Options(samples=1))
    alone = [model.translations([text], search, Options(samples=1))[0] for text in texts]
    assert [found[0].cut for found in together] == [found[0].cut for found in alone]
    limit = len(model.encode(["one"])[0])

    def draw(*_: object, **__: object) -> list[Sample]:
        return [Sample((Drawn(9, -1.0),) * limit, "end")] * 2

    monkeypatch.setattr(risk, "sample", draw)  # as long as the first may get, and it ended by itself
    assert [found[0].cut for found in model.translations(texts, search, Options(samples=1))] == [True, False]


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (SearchSettings(no_repeat=2), "`no_repeat` must be left out with `samples`, but is 2"),
        (SearchSettings(min_length=2), "`min_length` must be left out"),
        (SearchSettings(groups=2), "`groups` must be left out"),
        (SearchSettings(coverage=0.2), "`coverage` must be left out"),
        (SearchSettings(nbest=4), r"`nbest` must be at most `samples` \(3\), but is 4"),
    ],
)
def test_what_drawing_cannot_keep_to_is_refused(search: SearchSettings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        translator().translations(["one"], search, Options(samples=3))


def test_the_text_most_like_the_others_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator()
    texts = ["eins zwei drei", "eins zwei vier", "sieben", "eins zwei drei"]
    ids = [model.tokenizer.encode(text) for text in texts]

    def draw(*_: object, **__: object) -> list[Sample]:
        return [Sample(tuple(Drawn(token, -1.0) for token in some), "end") for some in ids]

    monkeypatch.setattr(risk, "sample", draw)
    (found,) = model.translations(["one"], SearchSettings(nbest=4), Options(samples=4))
    assert [each.text for each in found] == ["eins zwei drei", "eins zwei vier", "sieben"]
    assert found[0].log_probability == -len(ids[0])


# Ensembles


def test_members_of_an_ensemble_read_with_their_own_tokenizers() -> None:
    one = translator()
    others = Tokenizer.learn(LINES, TokenizerSettings(kind="characters", vocabulary=80))
    mixed = Tokenizer(one.tokenizer._inner, others)
    settings = replace(SETTINGS, tie="none")
    with torch.random.fork_rng():
        torch.manual_seed(2)
        second = Transformer(settings, mixed.size, others.size).eval()
    network = Ensemble([one.network, second])
    both = Translator(network, one.tokenizer, readers=[one.tokenizer, mixed])
    swapped = Translator(Ensemble([second, one.network]), mixed, readers=[mixed, one.tokenizer])
    found, same = (each.translations(["one two", "three"], SEARCH, Options(alignment=True)) for each in (both, swapped))
    # How long a text may get follows from what the first member reads.
    assert [each[0].tokens[:5] for each in found] == [each[0].tokens[:5] for each in same]
    assert found[0][0].alignment
    assert "".join(same[0][0].source_tokens) == "one two"


# Languages


def test_a_source_asks_for_its_target_language() -> None:
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(vocabulary=80), languages=["de", "fr"])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Translator(Transformer(SETTINGS, tokenizer.size).eval(), tokenizer)
    found = {
        language: model.translations(["one two three. Four five six."], SEARCH, Options(longest=8, language=language))[
            0
        ]
        for language in ("de", "fr")
    }
    for language, (best, *_) in found.items():
        asked = [place for place, token in enumerate(best.source_tokens) if token == f"<2{language}>"]
        assert len(asked) == 2  # each piece asks
        assert asked[0] == 0
    assert found["de"][0].score != found["fr"][0].score
    with pytest.raises(UsageError, match=r"must be one the model can translate into \(de, fr\), but none is given"):
        model.translations(["one"], SEARCH)
