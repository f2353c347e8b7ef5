"""Models of ours in CTranslate2: the same scores, and the same texts where the search is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.batch import Tokens
from regard.decoding.scoring import score_texts
from regard.decoding.search import SearchSettings, beam_search
from regard.engines.loading import load_exported
from regard.errors import UsageError
from regard.folder import Loaded
from regard.interop import ctranslate2 as interop
from regard.interop.export import export
from tests.interop.exported import GPTS, TRANSLATORS, empty, random_model, random_sources

ctranslate2 = pytest.importorskip("ctranslate2")


def source_words(loaded: Loaded, sources: list[list[int]]) -> list[list[str]]:
    return [[loaded.tokenizer.source.tokens[token] for token in ids[:-1]] for ids in sources]


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_scores_of_given_texts_agree(kind: str, tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    sources = random_sources(loaded)
    texts = [ids[:-1] for ids in reversed(sources)]
    words = [[loaded.tokenizer.tokens[token] for token in ids] for ids in texts]
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    found = translator.score_batch(source_words(loaded, sources), words)
    specials = loaded.tokenizer.specials
    wanted = score_texts(loaded.model, Tokens.padded(sources, specials.padding), texts, specials)
    for theirs, ours in zip(found, wanted, strict=True):
        assert theirs.log_probs == pytest.approx(ours.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_greedy_texts_agree(kind: str, tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    sources, specials = random_sources(loaded), loaded.tokenizer.specials
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    never = [[loaded.tokenizer.tokens[token]] for token in (specials.padding, specials.start)]
    found = translator.translate_batch(
        source_words(loaded, sources), beam_size=1, max_decoding_length=20, suppress_sequences=never
    )
    settings = SearchSettings(beam=1, extra_length=30)
    wanted = beam_search(loaded.model, Tokens.padded(sources, specials.padding), specials, settings)
    for theirs, ours in zip(found, wanted, strict=True):
        assert theirs.hypotheses[0][:20] == [loaded.tokenizer.tokens[token] for token in ours[0].tokens[:20]]


@pytest.mark.parametrize("kind", GPTS)
def test_a_language_model_gives_the_same_scores(kind: str, tmp_path: Path) -> None:
    loaded = random_model(GPTS[kind])
    interop.write(loaded, empty(tmp_path / "out"))
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    ids = torch.tensor([[1, 7, 9, 12, 8, 20], [1, 11, 10, 30, 31, 5]])
    found = np.array(generator.forward_batch([row.tolist() for row in ids]))
    with torch.inference_mode():
        logits, state = loaded.model.step(ids[:, :1], loaded.model.start(None, 2))
        for place in range(1, 6):
            assert np.abs(found[:, place - 1] - logits.numpy()).max() < 1e-4
            logits, state = loaded.model.step(ids[:, place : place + 1], state)


def test_rotary_positions_have_no_end(tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS["five-minutes"])
    interop.write(loaded, empty(tmp_path / "out"))
    theirs = load_exported(tmp_path / "out", "ctranslate2").model
    assert theirs.context is None
    (source,) = random_sources(loaded, 1)
    source, target = Tokens.whole(torch.tensor([[source[0]] * 2_100 + source[-1:]])), [7] * 2_100
    specials = loaded.tokenizer.specials
    (wanted,) = score_texts(loaded.model, source, [target], specials)
    (found,) = score_texts(theirs, source, [target], specials)
    assert found.log_probabilities == pytest.approx(wanted.log_probabilities, abs=1e-4)


def test_squared_relus_are_stored_once(tmp_path: Path) -> None:
    for activation in ("relu", "relu2"):
        loaded = random_model(TRANSLATORS["paper"].replace("d_ff=24", f'd_ff=2400, activation="{activation}"'))
        interop.write(loaded, empty(tmp_path / activation))
    plain, squared = ((tmp_path / name / "model.bin").stat().st_size for name in ("relu", "relu2"))
    assert plain < squared < 1.01 * plain  # each layer has a second matrix, but with the numbers of the first


@pytest.mark.parametrize("kind", ["paper", "five-minutes"])
@pytest.mark.parametrize("numbers", ["int8", "int16"])
def test_small_numbers_are_near_and_our_weights_stay(numbers: interop.Numbers, kind: str, tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS[kind])
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    interop.write(loaded, empty(tmp_path / "out"), numbers)
    interop.write(loaded, empty(tmp_path / "whole"))
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, before[name]), name  # its quantiser writes into what it is given
    assert (tmp_path / "out/model.bin").stat().st_size < (tmp_path / "whole/model.bin").stat().st_size
    # Not every CPU computes with such numbers. They are what is in the file all the same.
    computed = numbers in ctranslate2.get_supported_compute_types("cpu")
    how = "default" if computed else "float32"
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1, compute_type=how)
    assert translator.compute_type.startswith(numbers if computed else how)
    sources = random_sources(loaded)
    texts = [ids[:-1] for ids in sources]
    words = [[loaded.tokenizer.tokens[token] for token in ids] for ids in texts]
    found = translator.score_batch(source_words(loaded, sources), words)
    specials = loaded.tokenizer.specials
    wanted = score_texts(loaded.model, Tokens.padded(sources, specials.padding), texts, specials)
    differences = [
        abs(a - b) for theirs, ours in zip(found, wanted, strict=True)
        for a, b in zip(theirs.log_probs, ours.log_probabilities, strict=True)
    ]  # fmt: skip
    assert sum(differences) / len(differences) < (0.3 if numbers == "int8" else 0.01)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ('{positions="relative"}', 'positions = "relative"'),
        ('{positions="alibi"}', 'positions = "alibi"'),
        ("{window=3}", "window = 3"),
        ("{qk_norm=true}", "qk_norm = true"),
        ('{kind="gpt", qk_norm=true}', "qk_norm = true"),
        ("{d_k=5, d_model=16, heads=2}", "d_k = 5"),
        ("{d_v=9}", "d_v = 9"),
        ('{final_norm=true, norm="post"}', "final_norm"),
        ('{final_norm=false, norm="pre"}', "final_norm = false"),
        ("{reads_end=false}", "reads_end = false"),
        ('{kind="bytenet"}', 'kind = "bytenet"'),
        ('{kind="decoder-only"}', 'kind = "decoder-only"'),
    ],
)
def test_what_cannot_be_expressed_is_named(model: str, named: str) -> None:
    from regard.recipe import build_recipe

    found = interop.lacking(build_recipe({}, [f"model={model}"], "t").model)
    assert len(found) == 1
    assert named in found[0]


def test_a_model_that_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS["paper"].replace("dropout=0.0", "dropout=0.0, window=3"))
    with pytest.raises(UsageError, match="window = 3"):
        interop.write(loaded, empty(tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_an_exact_conversion_passes_its_proof_even_untrained(kind: str, tmp_path: Path) -> None:
    loaded = random_model(TRANSLATORS[kind].replace("40", "200"))
    texts = ["one two three", "four", "a b c d e f g", "seven six five", "eins zwei", "k l", "h i j a", "drei"]
    found = export(loaded, tmp_path / "out", "ctranslate2", texts=texts).proof
    assert found is not None
    assert found.passed, found.to_text()
