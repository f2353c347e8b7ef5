"""The search in fixed memory finds what the other one finds; on a GPU also when it is recorded."""

from __future__ import annotations

import gc
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.batch import Specials, Tokens
from regard.decoding import fast
from regard.decoding.constraints import Constraints
from regard.decoding.fast import able, fast_search, search
from regard.decoding.search import SearchSettings, beam_search
from regard.memory import release
from regard.models.interface import SequenceModel
from regard.models.transformer import Transformer, TransformerSettings
from tests.contracts.zoo import ZOO

SPECIALS = Specials(padding=0, start=1, end=2)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

few = settings(max_examples=settings().max_examples // 2)
sources = st.lists(st.lists(st.integers(3, 11), min_size=1, max_size=6), min_size=1, max_size=5)


def same(model: SequenceModel[Any], source: Tokens, search_settings: SearchSettings) -> None:
    found = fast_search(model, source, SPECIALS, search_settings)
    wanted = beam_search(model, source, SPECIALS, search_settings)
    assert found is not None
    for mine, its in zip(found, wanted, strict=True):
        assert [(each.tokens, each.cut) for each in mine] == [(each.tokens, each.cut) for each in its]
        assert [each.score for each in mine] == pytest.approx([each.score for each in its], abs=1e-4)


@pytest.mark.parametrize(
    "name", ["transformer", "transformer-rotary-window", "transformer-learned", "transformer-qk-norm"]
)
@few
@given(data=st.data())
def test_it_finds_what_plain_search_finds(name: str, data: st.DataObject) -> None:
    beam = data.draw(st.integers(1, 5))
    chosen = SearchSettings(
        beam=beam,
        penalty=data.draw(st.sampled_from(["gnmt", "length", "none"])),
        alpha=data.draw(st.sampled_from([0.0, 0.6, 2.0])),
        nbest=data.draw(st.integers(1, beam)),
        extra_length=data.draw(st.sampled_from([0, 2, 40])),
    )
    model = ZOO[name].model(vocabulary=12, seed=data.draw(st.integers(0, 2)))
    same(model, Tokens.padded(data.draw(sources), 0), chosen)


def test_a_large_vocabulary_is_searched_by_blocks() -> None:
    torch.manual_seed(1)
    sizes = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2)
    same(Transformer(sizes, 2_000).eval(), Tokens.padded([[3, 4], [5]], 0), SearchSettings(extra_length=5))


def test_sentences_that_are_left_move_to_a_smaller_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["transformer"].model(vocabulary=12, seed=0)
    moves = []
    plain = fast._Engine.take_over
    monkeypatch.setattr(
        fast._Engine, "take_over", lambda self, *rest: (moves.append(self.shape.sentences), plain(self, *rest))[1]
    )
    source = Tokens.padded([[3] * size for size in (1, 1, 1, 2, 3, 9)], 0)
    same(model, source, SearchSettings(extra_length=1, alpha=0.0))
    assert moves, "all sentences ended at once: the test shows nothing"
    assert moves == sorted(moves, reverse=True)


def test_what_it_cannot_do_is_left_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["transformer"].model(vocabulary=12, seed=0)
    assert able(model, SearchSettings())
    for asked in ({"coverage": 0.1}, {"min_length": 2}, {"no_repeat": 2}, {"groups": 2}):
        assert not able(model, SearchSettings(**asked))  # type: ignore[arg-type]
    assert not able(ZOO["convs2s"].model(vocabulary=12, seed=0), SearchSettings())
    monkeypatch.setattr(fast, "fast_search", lambda *rest: pytest.fail("must not be asked"))
    source = Tokens.padded([[3, 4]], 0)
    wanted = beam_search(model, source, SPECIALS, SearchSettings())
    assert search(model, source, SPECIALS, SearchSettings()) == wanted  # one sentence on a CPU: nothing is gained
    many = Tokens.padded([[3, 4]] * fast.SENTENCES_ON_CPU, 0)
    search(model, many, SPECIALS, SearchSettings(beam=1))
    search(model, many, SPECIALS, SearchSettings(), [Constraints(prefix=(5,))] * fast.SENTENCES_ON_CPU)


def test_many_sentences_are_searched_the_fast_way_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = ZOO["transformer"].model(vocabulary=12, seed=0), []
    plain = fast.fast_search
    monkeypatch.setattr(fast, "fast_search", lambda *rest: (asked.append(1), plain(*rest))[1])
    many = Tokens.padded([[3 + row % 5] * (1 + row) for row in range(fast.SENTENCES_ON_CPU)], 0)
    found = search(model, many, SPECIALS, SearchSettings(nbest=4))
    assert asked
    for mine, its in zip(found, beam_search(model, many, SPECIALS, SearchSettings(nbest=4)), strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in its]


def test_scores_that_are_no_numbers_find_nothing() -> None:
    sizes = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2)
    model = Transformer(sizes, 12).eval()
    nn.init.constant_(model.embedding.table.weight, torch.nan)
    assert fast_search(model, Tokens.padded([[3, 4]], 0), SPECIALS, SearchSettings(extra_length=2)) is None


def test_engines_do_not_keep_a_model_alive() -> None:
    sizes = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2)
    model = Transformer(sizes, 12).eval()
    before = len(fast._ENGINES)
    same(model, Tokens.padded([[3]], 0), SearchSettings(extra_length=1))
    assert len(fast._ENGINES) == before + 1
    del model
    assert len(fast._ENGINES) == before


def test_searches_that_begin_at_once_share_their_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so their lock; who has another one runs recordings beside them."""
    model, threads, made = ZOO["transformer"].model(vocabulary=12, seed=0), 4, fast._Engines.__init__
    together = Barrier(threads)

    def slowly(self: fast._Engines, of: nn.Module) -> None:
        time.sleep(0.05)
        made(self, of)

    def first_search(_: int) -> fast._Engines:
        together.wait()
        return fast._engines(model)

    monkeypatch.setattr(fast._Engines, "__init__", slowly)
    with ThreadPoolExecutor(threads) as pool:
        first, *others = pool.map(first_search, range(threads))
    assert all(each is first for each in others)


def test_an_engine_goes_with_its_search() -> None:
    model = ZOO["transformer"].model(vocabulary=12, seed=0)
    sources = Tokens.padded([[3 + row % 5] * (1 + row) for row in range(12)], 0)
    gc.collect()
    gc.disable()  # by itself, and not when the collector comes by: its memory may be gigabytes
    try:
        assert fast_search(model, sources, SPECIALS, SearchSettings(extra_length=4)) is not None
        assert not [each for each in gc.get_objects() if type(each) is fast._Engine]
    finally:
        gc.enable()


def weighing(*weights: int) -> fast._Engines:
    """The engines of a model, of these weights, the last used one last."""
    engines = fast._Engines(ZOO["transformer"].model(vocabulary=12, seed=0))
    for number, weight in enumerate(weights):
        engines.kept[number] = cast(fast._Engine, SimpleNamespace(weight=weight))
    return engines


@pytest.mark.parametrize(
    ("weights", "most", "heaviest", "left"),
    [
        ((5, 1, 2), 8, 8, [0, 1, 2]),
        ((5, 1, 2), 8, 7, [1, 2]),
        ((1, 5, 2), 8, 6, [2]),
        ((1, 1, 20), 8, 6, [2]),  # the one in use may be heavier
        ((0, 0, 0, 0), 3, 6, [1, 2, 3]),
    ],
)
def test_engines_are_kept_by_what_they_weigh(
    weights: tuple[int, ...], most: int, heaviest: int, left: list[int]
) -> None:
    engines = weighing(*weights)
    engines._bound(most, heaviest)
    assert list(engines.kept) == left


def test_an_engine_weighs_what_its_memory_takes() -> None:
    model = ZOO["transformer"].model(vocabulary=12, seed=0)
    shape = fast._Shape(sentences=3, beams=2, capacity=8, source_length=5)
    light, heavy = (
        fast._Engine(cast(fast.FixedModel, model), each, SPECIALS, SearchSettings(beam=2), None).weight
        for each in (shape, replace(shape, sentences=30))
    )
    keys_and_values = 2 * len(model.decoder) * model.width * 4  # type: ignore[arg-type]
    assert light > 3 * keys_and_values * (2 * 8 + 5)
    assert heavy == pytest.approx(10 * light, rel=0.01)


def test_where_there_is_no_room_for_an_engine_the_others_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tries = weighing(1, 2), list[int]()

    def made(self: fast._Engine, *_: Any) -> None:
        tries.append(len(engines.kept))
        if engines.kept:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.weight = 3

    monkeypatch.setattr(fast._Engine, "__init__", made)
    monkeypatch.setattr(fast, "within_reach", lambda _: 100)
    weight = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32, data_ptr=lambda: 1)
    engines.model = cast(Any, SimpleNamespace(parameters=lambda: iter([weight])))  # of a model on a GPU
    with engines.lock:  # a search is under way, and nobody else may make it forget
        found = engines.get(fast._Shape(2, 2, 8, 5), SPECIALS, SearchSettings(beam=2))
    assert list(engines.kept.values()) == [found]
    assert tries == [2, 0]


def test_engines_give_their_memory_back_unless_a_search_is_under_way() -> None:
    engines = weighing(1, 2)
    with engines.lock:
        release()
        assert len(engines.kept) == 2
    release()
    assert not engines.kept


@gpu
@pytest.mark.gpu
def test_on_a_gpu_the_engines_weigh_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=64, heads=4), 500).eval().cuda()
    monkeypatch.setattr(fast, "within_reach", lambda _: 2**25)
    for size in (2, 20, 40, 60, 80, 100):
        ids = [[3 + (row + place) % 400 for place in range(size)] for row in range(4)]
        same(model, Tokens.padded(ids, 0).to(torch.device("cuda")), SearchSettings(nbest=4))
        kept = list(fast._engines(model).kept.values())
        assert len(kept) == 1 or sum(engine.weight for engine in kept) <= fast.MOST_SHARE * 2**25
    assert sum(engine.weight for engine in kept) > 0


@gpu
@pytest.mark.gpu
def test_on_a_gpu_without_room_for_recordings_the_rounds_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=64, heads=4), 500).eval().cuda()
    plain = fast._Engine._round

    def round_(self: fast._Engine, reach: Hashable) -> None:
        plain(self, reach)
        if torch.cuda.is_current_stream_capturing():
            torch.empty(2**50, device="cuda")  # there is no room for the end of a recording

    monkeypatch.setattr(fast._Engine, "_round", round_)
    for _ in range(3):
        ids = [[3 + (row * 7 + place) % 400 for place in range(1 + row % 9)] for row in range(40)]
        same(model, Tokens.padded(ids, 0).to(torch.device("cuda")), SearchSettings(nbest=4))
    monkeypatch.undo()
    same(model, Tokens.padded([[3, 4]], 0).to(torch.device("cuda")), SearchSettings(nbest=4))


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_recorded_rounds_find_the_same(beam: int) -> None:
    model = Transformer(TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=64, heads=4), 500).eval().cuda()
    for turn in range(4):  # plain, recorded, replayed, replayed with other sentences
        ids = [[3 + (row * 7 + place * turn) % 400 for place in range(1 + row % 9)] for row in range(40)]
        same(model, Tokens.padded(ids, 0).to(torch.device("cuda")), SearchSettings(beam=beam, nbest=beam))
