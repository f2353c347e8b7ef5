"""CTranslate2 behind our interface: the same answers, the same promises, and refusals by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import folder
from regard.batch import Batch, Tokens
from regard.data.corpus import open_corpus
from regard.decoding.constraints import Constraints
from regard.decoding.fast import search
from regard.decoding.search import Hypothesis, SearchSettings
from regard.engines.ctranslate2 import CTranslate2LanguageModel, CTranslate2Model
from regard.errors import DataError, UsageError
from regard.folder import Loaded
from regard.interop import ctranslate2 as interop
from regard.recipe import Recipe
from tests.interop.exported import GPTS, TRANSLATORS, empty, random_model, random_sources
from tests.tiny import generated_recipe

pytest.importorskip("ctranslate2")

Pair = tuple[Loaded, CTranslate2Model]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model of ours, and the same in CTranslate2."""
    loaded = random_model(TRANSLATORS["pre"].replace("40", "200"))
    folder = empty(tmp_path_factory.mktemp("engine") / "out")
    interop.write(loaded, folder)
    return loaded, CTranslate2Model(folder, loaded.tokenizer.tokens, loaded.tokenizer.source.tokens, 200)


def both(
    pair: Pair, settings: SearchSettings, constraints: list[Constraints] | None = None
) -> list[tuple[Hypothesis, Hypothesis]]:
    """The best text of each source, by theirs and by ours."""
    loaded, theirs = pair
    source = Tokens.padded(random_sources(loaded), loaded.tokenizer.specials.padding)
    found, wanted = (
        search(model, source, loaded.tokenizer.specials, settings, constraints) for model in (theirs, loaded.model)
    )
    return [(one[0], other[0]) for one, other in zip(found, wanted, strict=True)]


@pytest.mark.parametrize("extra", [0, 3, 50])
def test_greedy_search_gives_our_texts_scores_and_cuts(pair: Pair, extra: int) -> None:
    for one, other in both(pair, SearchSettings(beam=1, extra_length=extra)):
        assert one.tokens == other.tokens
        assert one.cut == other.cut
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)
        assert one.score == pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("penalty", ["gnmt", "length", "none"])
def test_texts_have_the_score_that_is_ours(pair: Pair, penalty: str) -> None:
    loaded, theirs = pair
    settings = SearchSettings(beam=4, nbest=4, penalty=penalty, extra_length=10)  # type: ignore[arg-type]
    specials = loaded.tokenizer.specials
    sources = random_sources(loaded)
    found = search(theirs, Tokens.padded(sources, specials.padding), specials, settings)
    for source, texts in zip(sources, found, strict=True):
        assert [each.score for each in texts] == sorted((each.score for each in texts), reverse=True)
        for each in texts:
            length = len(each.tokens) + 1
            assert each.score == pytest.approx(each.log_probability / float(settings.divisor(torch.tensor(length))))
            assert len(each.tokens) <= len(source) + 10


def test_answers_do_not_depend_on_company(pair: Pair) -> None:
    loaded, theirs = pair
    specials, settings = loaded.tokenizer.specials, SearchSettings(extra_length=6)
    sources = random_sources(loaded, 20)
    together = search(theirs, Tokens.padded(sources, specials.padding), specials, settings)
    for source, (best, *_) in zip(sources, together, strict=True):
        alone = search(theirs, Tokens.padded([source], specials.padding), specials, settings)[0][0]
        assert alone.tokens == best.tokens
        assert alone.score == pytest.approx(best.score, abs=1e-4)


def test_padding_and_start_are_never_written(pair: Pair) -> None:
    loaded, theirs = pair
    specials = loaded.tokenizer.specials
    source = Tokens.padded(random_sources(loaded, 30), specials.padding)
    for texts in search(theirs, source, specials, SearchSettings(beam=4, nbest=4, extra_length=20)):
        for each in texts:
            assert not {specials.padding, specials.start, specials.end} & set(each.tokens)


def test_a_wished_beginning_is_kept_and_scored(pair: Pair) -> None:
    loaded, _ = pair
    words = list(range(4, loaded.tokenizer.size))
    constraints = [Constraints(prefix=tuple(words[row : row + row % 4])) for row in range(12)]
    for (one, other), asked in zip(both(pair, SearchSettings(beam=1), constraints), constraints, strict=True):
        assert one.tokens[: len(asked.prefix)] == asked.prefix
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


def test_banned_words_are_not_written_and_scores_stay_the_models(pair: Pair) -> None:
    free = both(pair, SearchSettings(beam=1))
    banned = [Constraints(banned=(one.tokens[:1],) if one.tokens else ()) for one, _ in free]
    for (one, other), asked in zip(both(pair, SearchSettings(beam=1), banned), banned, strict=True):
        for phrase in asked.banned:
            assert phrase[0] not in one.tokens
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


def test_scores_of_given_texts_are_ours(pair: Pair) -> None:
    loaded, theirs = pair
    sources = random_sources(loaded, 6)
    source = Tokens.padded(sources, 0)
    target = Tokens.padded([[1, *ids[:-1]] for ids in reversed(sources)], 0)
    batch, real = Batch(source, target, target.ids_BT), target.places.segments_or_ones().bool()
    assert (theirs(batch) - loaded.model(batch))[real].abs().max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "constraints", "named"),
    [
        (SearchSettings(coverage=0.2), None, "`coverage`"),
        (SearchSettings(groups=2), None, "`groups`"),
        (SearchSettings(), [Constraints(required=(((5,),),))], "required words"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    pair: Pair, settings: SearchSettings, constraints: list[Constraints] | None, named: str
) -> None:
    loaded, theirs = pair
    source = Tokens.padded(random_sources(loaded, 1), 0)
    with pytest.raises(UsageError, match=f"ctranslate2 cannot .*{named}"):
        search(theirs, source, loaded.tokenizer.specials, settings, constraints)
    with pytest.raises(UsageError, match=r"ctranslate2 cannot .*sampling"):
        theirs.start(source, 1)


@torch.inference_mode()
def test_a_language_model_steps_as_ours(tmp_path: Path) -> None:
    loaded = random_model(GPTS["gpt2"])
    interop.write(loaded, empty(tmp_path / "out"))
    theirs = CTranslate2LanguageModel(tmp_path / "out", loaded.model.vocabulary, 40)
    states = [model.start(None, 2) for model in (theirs, loaded.model)]
    for tokens in (torch.tensor([[1, 5], [1, 7]]), torch.tensor([[9], [8]]), torch.tensor([[4], [6]])):
        (found, states[0]), (wanted, states[1]) = theirs.step(tokens, states[0]), loaded.model.step(tokens, states[1])
        assert (found - wanted).abs().max() < 1e-4
        states = [state.select(torch.tensor([1, 0])) for state in states]


def test_a_damaged_file_is_refused_with_a_sentence(pair: Pair, tmp_path: Path) -> None:
    _, theirs = pair
    for file in theirs.folder.iterdir():
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[: len(content) // 2] if file.name == "model.bin" else content)
    with pytest.raises(DataError, match="must be a model CTranslate2 can read"):
        CTranslate2Model(tmp_path, theirs.words, theirs.source_words)


@pytest.mark.parametrize("kind", TRANSLATORS)
@pytest.mark.parametrize("extra", [2, 30])
def test_a_beam_finds_what_ours_finds_even_at_the_limit(kind: str, extra: int, tmp_path: Path) -> None:
    """A random model rarely wants to end: nearly every text reaches its limit, where the two searches differ most."""
    loaded = random_model(TRANSLATORS[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    tokenizer = loaded.tokenizer
    theirs = CTranslate2Model(tmp_path / "out", tokenizer.tokens, tokenizer.source.tokens, loaded.model.context)
    for one, other in both((loaded, theirs), SearchSettings(extra_length=extra)):
        assert one.tokens == other.tokens or one.score >= other.score - 1e-4


def compare(recipe: Recipe | str, changes: list[str], count: int, place: Path) -> None:
    """Train, export, and translate test lines with both engines, by the recipe's own search."""
    regard.train(recipe, place / "own", changes)
    loaded = folder.load_folder(place / "own", torch.device("cpu"))
    interop.write(loaded, empty(place / "ct2"))
    lines = [pair.source for pair in open_corpus(loaded.recipe.data).test()][:count]
    own, theirs = (regard.load(place / name, device="cpu").translations(lines) for name in ("own", "ct2"))
    pairs = [(one, other) for (one,), (other,) in zip(own, theirs, strict=True)]
    assert len(pairs) == count
    worse = [(one.text, other.text) for one, other in pairs if other.score < one.score - 1e-4]
    assert not worse
    assert sum(one.text == other.text for one, other in pairs) >= 0.99 * count


def test_twenty_lines_get_the_translations_of_torch(tmp_path: Path) -> None:
    steps = [f"training.{name}=200" for name in ("steps", "validate_every", "save_every")]
    model = "model={encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0}"
    rest = ["data.test=20", "training.optimiser.warmup=50", "search.extra_length=30"]
    compare(generated_recipe([*steps, model, *rest]), [], 20, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_two_hundred_lines_get_the_translations_of_torch(norm: str, tmp_path: Path) -> None:
    """`beam` bad texts may end before the good one: stopping then gave 25.hundertdrei instead of 25. März 2041."""
    changes = [f"model.norm={norm}", "training.steps=500", "training.validate_every=500", "device=cpu"]
    compare("demo", changes, 200, tmp_path)


def test_the_likeliest_text_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2 does so only where it is asked for no penalty; what ranks texts is then ours."""
    _, theirs = pair
    asked: list[dict[str, Any]] = []
    translate = theirs._alone.translate_batch

    class Watched:
        def translate_batch(self, *texts: object, **options: Any) -> object:
            asked.append(options)
            return translate(*texts, **options)

        score_batch = theirs._alone.score_batch

    monkeypatch.setitem(theirs.__dict__, "_alone", Watched())
    monkeypatch.setitem(theirs.__dict__, "_beside", Watched())
    both(pair, SearchSettings(beam=3))
    assert asked
    assert all(each["length_penalty"] == 0 and each["num_hypotheses"] >= 2 * 3 for each in asked)
