"""Batches: every example once an epoch, within the budget, in an order that is a function of (seed, step)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import Batches, BatchSettings, Example, Layout, collate, shuffled
from regard.data.store import TokenStore
from regard.errors import DataError, UsageError
from regard.models.bytenet import ByteNet, ByteNetSettings
from regard.models.convs2s import ConvS2S, ConvS2SSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.training.loss import smoothed_cross_entropy

SPECIALS = Specials(padding=0, start=1, end=2)
LAYOUTS: list[Layout] = ["buckets", "packed"]
EITHER = st.sampled_from(LAYOUTS)


def examples(count: int, longest: int = 20, seed: int = 0) -> list[Example]:
    """Examples that can be told apart by their first source token, with text tokens from 10 on."""
    draw = random.Random(seed)

    def rest() -> list[int]:
        return [draw.randrange(10, 99) for _ in range(draw.randrange(longest))]

    return [([1_000 + number, *rest()], rest()) for number in range(count)]


def texts(count: int) -> TokenStore:
    return TokenStore.of_texts([target for _, target in examples(count)], SPECIALS.end)


def ids(batch: Batch) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    source = [] if batch.source is None else batch.source.ids_BT.tolist()
    return source, batch.target.ids_BT.tolist(), batch.labels_BT.tolist()


def sentences(batch: Batch) -> list[Example]:
    """What is in a batch, taken apart by row and segment, with every rule about places and labels checked."""
    assert batch.source is not None
    found: list[Example] = []
    for row in range(len(batch.labels_BT)):
        parts: list[dict[int, list[int]]] = []
        for tokens in (batch.source, batch.target):
            segments = tokens.places.segments_or_ones()[row]
            assert segments.dtype == tokens.places.positions_BT.dtype == tokens.ids_BT.dtype == torch.long
            numbers = sorted(set(segments.tolist()) - {0})
            assert numbers == list(range(1, len(numbers) + 1))
            assert set(tokens.ids_BT[row][segments == 0].tolist()) <= {SPECIALS.padding}
            assert set(tokens.places.positions_BT[row][segments == 0].tolist()) <= {0}
            part = {}
            for number in numbers:
                inside = segments == number
                places = inside.nonzero().flatten().tolist()
                assert places == list(range(places[0], places[-1] + 1))
                assert tokens.places.positions_BT[row][inside].tolist() == list(range(len(places)))
                part[number] = tokens.ids_BT[row][inside].tolist()
            parts.append(part)
        segments, labels = batch.target.places.segments_or_ones()[row], batch.labels_BT[row]
        assert (labels[segments == 0] == IGNORED).all()
        assert parts[0].keys() == parts[1].keys()
        for number, read in parts[1].items():
            source, answer = parts[0][number], labels[segments == number].tolist()
            assert source[-1] == SPECIALS.end
            assert read == [SPECIALS.start, *answer[:-1]]
            assert answer[-1] == SPECIALS.end
            found.append((source[:-1], answer[:-1]))
    return found


def epoch(batches: Batches, number: int) -> list[Batch]:
    return [batches[number * batches.per_epoch + place] for place in range(batches.per_epoch)]


def counted(found: list[Example]) -> Counter[Any]:
    return Counter((tuple(source), tuple(target)) for source, target in found)


# ---- what is in an epoch


@given(st.integers(1, 60), st.integers(1, 200), EITHER, st.integers(1, 40), st.integers(0, 5))
def test_every_example_once_an_epoch_as_it_was(count: int, tokens: int, layout: Layout, row: int, seed: int) -> None:
    data = examples(count)
    batches = Batches(data, SPECIALS, BatchSettings(max(tokens, row), layout, row), seed)
    for number in (0, 3):
        assert counted([pair for batch in epoch(batches, number) for pair in sentences(batch)]) == counted(data)


@given(st.integers(1, 60), st.integers(1, 300), EITHER, st.integers(1, 40))
def test_a_batch_keeps_to_its_budget_unless_one_row_alone_exceeds_it(
    count: int, tokens: int, layout: Layout, row: int
) -> None:
    batches = Batches(examples(count), SPECIALS, BatchSettings(max(tokens, row), layout, row), seed=1)
    for batch in epoch(batches, 0):
        source, target, labels = ids(batch)
        assert len(source) == len(target) == len(labels)
        for side in (source, target):
            assert len(side) == 1 or len(side) * len(side[0]) <= max(tokens, row)


@given(st.integers(1, 60), st.integers(1, 200), EITHER, st.integers(1, 9))
def test_shapes_are_few_and_known_before(count: int, tokens: int, layout: Layout, shapes: int) -> None:
    batches = Batches(examples(count), SPECIALS, BatchSettings(tokens + 10, layout, 10, shapes), seed=1)
    seen, slots, real = set(), 0, 0
    for number in (0, 1):
        for batch in epoch(batches, number):
            assert batch.source is not None
            seen.add((*batch.source.ids_BT.shape, batch.target.ids_BT.shape[1]))
            for tokens_of_side in (batch.source, batch.target):
                slots += tokens_of_side.ids_BT.numel()
                real += int((tokens_of_side.places.segments_or_ones() != 0).sum())
    assert seen == set(batches.shapes)
    assert len(batches.shapes) <= (shapes if layout == "buckets" else 3)  # rows of 10, of 20, and of what is needed
    assert batches.padding_share == pytest.approx(1 - real / slots)
    some = "1 batch" if batches.per_epoch == 1 else f"{batches.per_epoch} batches"
    assert f"{some} an epoch, {len(batches.shapes)} shape" in batches.summary()


def test_a_long_sentence_makes_rows_that_are_not_common() -> None:
    pairs = [*examples(2_000), ([7] * 50, [8] * 50)]
    batches = Batches(pairs, SPECIALS, BatchSettings(tokens=100, layout="packed", row=25), seed=1)
    assert len(batches.shapes) == 2
    assert batches.common(0.02) == batches.lengths[:1]
    assert batches.common(0.0) == batches.lengths


def test_little_is_padded_and_batches_are_full() -> None:
    for layout in LAYOUTS:
        batches = Batches(examples(3_000, longest=60), SPECIALS, BatchSettings(1_000, layout, row=100), seed=1)
        assert batches.padding_share < 0.15
        # Of the places that the budget allows, most are used.
        used = 0
        for batch in epoch(batches, 0):
            assert batch.source is not None
            used += max(batch.source.ids_BT.numel(), batch.target.ids_BT.numel())
        assert used > 0.8 * 1_000 * batches.per_epoch


# ---- order


@pytest.mark.parametrize("layout", [*LAYOUTS, "blocks"])
def test_any_step_can_be_had_without_the_ones_before(layout: Layout) -> None:
    data: Any = texts(50) if layout == "blocks" else examples(50)
    settings = BatchSettings(64, layout, row=16)
    one = Batches(data, SPECIALS, settings, seed=7)
    steps = range(3 * one.per_epoch)
    in_order = [ids(one[step]) for step in steps]
    mixed = list(steps)
    random.Random(0).shuffle(mixed)
    again = Batches(data, SPECIALS, settings, seed=7)
    for step in mixed:
        assert ids(again[step]) == in_order[step]
    assert ids(Batches(data, SPECIALS, settings, seed=7)[steps[-1]]) == in_order[-1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epochs_and_seeds_differ(layout: Layout) -> None:
    def order(seed: int, number: int) -> list[list[Example]]:
        batches = Batches(examples(50), SPECIALS, BatchSettings(64, layout, row=16), seed)
        return [sentences(batch) for batch in epoch(batches, number)]

    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    # Not only the batches change places: which sentences share one changes, too.
    shapes = [
        [batch.labels_BT.shape for batch in epoch(Batches(examples(50), SPECIALS, BatchSettings(32), seed), 0)]
        for seed in (1, 2)
    ]
    assert shapes[0] != shapes[1]
    together = [{frozenset(str(pair) for pair in batch) for batch in order(1, number)} for number in (0, 1)]
    assert together[0] != together[1]


def test_the_order_is_the_same_for_ever() -> None:
    # These numbers were written down once: a run begun with an older version must go on as it would have.
    assert shuffled(8, 1, 0, 0).tolist() == [2, 4, 7, 5, 0, 6, 3, 1]
    assert sorted(shuffled(1_000, 5, 6, 7).tolist()) == list(range(1_000))


# ---- several processes


@given(st.integers(1, 60), EITHER, st.sampled_from([1, 2, 3, 4, 8]))
def test_the_shares_of_all_processes_are_the_batch(count: int, layout: Layout, ranks: int) -> None:
    data = examples(count)
    batches = Batches(data, SPECIALS, BatchSettings(120, layout, row=24), seed=3)
    found: list[Example] = []
    for step in range(batches.per_epoch):
        whole, shares = batches[step], [batches.share(step, rank, ranks) for rank in range(ranks)]
        rows = len(whole.labels_BT)
        assert {share.labels_BT.shape for share in shares} == {(-(-rows // ranks), whole.labels_BT.shape[1])}
        assert torch.equal(torch.cat([share.target.ids_BT for share in shares])[:rows], whole.target.ids_BT)
        assert (torch.cat([share.labels_BT for share in shares])[rows:] == IGNORED).all()
        found += [pair for share in shares for pair in sentences(share)]
    assert counted(found) == counted(data)


@pytest.mark.parametrize(("step", "rank", "ranks"), [(-1, 0, 1), (0, 2, 2), (0, -1, 2)])
def test_a_step_or_process_that_cannot_be_is_refused(step: int, rank: int, ranks: int) -> None:
    batches = Batches(examples(3), SPECIALS, BatchSettings(), seed=1)
    with pytest.raises(UsageError, match=f"batch {step}, process {rank} of {ranks}: .* must count from 0"):
        batches.share(step, rank, ranks)


MODELS: dict[str, Callable[[], SequenceModel[Any]]] = {
    "transformer": lambda: Transformer(TransformerSettings(d_model=16, d_ff=16, heads=2, dropout=0.0), 99),
    "recurrent": lambda: RecurrentEncoderDecoder(RecurrentSettings(d_model=16, dropout=0.0), 99),
    "bytenet": lambda: ByteNet(ByteNetSettings(channels=8, dilations=(1, 2), repeats=1), 99),
    "convs2s": lambda: ConvS2S(
        ConvS2SSettings(encoder=((2, 16, 3),), decoder=((2, 16, 3),), embedding=16, dropout=0.0), 99
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_an_empty_row_changes_neither_loss_nor_gradient(kind: str) -> None:
    torch.manual_seed(1)
    model, criterion = MODELS[kind]().train(), smoothed_cross_entropy(0.1)
    data = [([11, 12, 13], [14, 15]), ([16], [17, 18, 19])]
    batches = Batches(data, SPECIALS, BatchSettings(100, shapes=1), seed=1)
    # Two rows for two processes of three, and none for the last.
    batch, padded = batches[0], [batches.share(0, rank, 3) for rank in range(3)]
    assert (padded[2].labels_BT == IGNORED).all()
    results = []
    for shares in ([batch], padded):
        model.zero_grad()
        loss = torch.stack([model.losses(share, criterion).sum() for share in shares]).sum()
        loss.backward()
        gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
        results.append((loss.detach(), torch.cat(gradients)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


# ---- running text


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 3))
def test_every_token_of_running_text_is_a_label_once_an_epoch(count: int, row: int, number: int) -> None:
    store = texts(count)
    batches = Batches(store, SPECIALS, BatchSettings(60, "blocks", row), seed=2)
    text = store.target.ids.tolist()
    answers: Counter[int] = Counter()
    followed: Counter[tuple[int, int]] = Counter()
    for batch in epoch(batches, number):
        assert batch.source is None
        # No segments: a causal model reads whole rows with its fastest kernel.
        assert batch.target.places.segments_BT is None
        assert batch.target.places.positions_BT[0].tolist() == list(range(row))
        assert batch.labels_BT.shape == batches.shapes[0][::2]
        real = batch.labels_BT != IGNORED
        assert (batch.target.ids_BT[~real] == SPECIALS.padding).all()
        answers.update(batch.labels_BT[real].tolist())
        followed.update(zip(batch.target.ids_BT[real].tolist(), batch.labels_BT[real].tolist(), strict=True))
        # Inside a row, what is read is the label before; an <end> is read as the <start> of what follows.
        for read, answer in zip(batch.target.ids_BT.tolist(), batch.labels_BT.tolist(), strict=True):
            length = len([token for token in answer if token != IGNORED])
            known = [SPECIALS.start if token == SPECIALS.end else token for token in answer[: max(length - 1, 0)]]
            assert read[1 : len(known) + 1] == known
    assert answers == Counter(text)
    before = [SPECIALS.start if token == SPECIALS.end else token for token in [text[-1], *text[:-1]]]
    assert followed == Counter(zip(before, text, strict=True))


def test_rows_of_running_text_begin_elsewhere_in_each_epoch() -> None:
    batches = Batches(texts(30), SPECIALS, BatchSettings(60, "blocks", 20), seed=2)
    rows = [{tuple(row) for batch in epoch(batches, number) for row in ids(batch)[1]} for number in (0, 1, 2)]
    assert rows[0] != rows[1] != rows[2]


def test_running_text_is_read_as_it_stands_at_first() -> None:
    store = TokenStore.of_texts([[11, 12], [13]], SPECIALS.end)
    batch = Batches(store, SPECIALS, BatchSettings(6, "blocks", row=6), seed=1)[0]
    assert ids(batch) == ([], [[1, 11, 12, 1, 13, 0]], [[11, 12, 2, 13, 2, IGNORED]])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_texts_can_be_rows_of_whole_sentences_too(layout: Layout) -> None:
    store = texts(40)
    batches = Batches(store, SPECIALS, BatchSettings(60, layout, row=20), seed=1)
    labels = [label for batch in epoch(batches, 0) for row in ids(batch)[2] for label in row if label != IGNORED]
    assert Counter(labels) == Counter(store.target.ids.tolist())
    assert batches[0].source is None


# ---- rows and their edges


def test_the_decoder_reads_start_and_y_and_must_answer_y_and_end() -> None:
    batch = collate([([11, 12], [21, 22, 23]), ([13], [])], SPECIALS)
    source, target, labels = ids(batch)
    assert source == [[11, 12, 2], [13, 2, 0]]
    assert target == [[1, 21, 22, 23], [1, 0, 0, 0]]
    assert labels == [[21, 22, 23, 2], [2, IGNORED, IGNORED, IGNORED]]
    assert batch.source is not None
    assert batch.source.places.segments_or_ones().tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.target.places.segments_or_ones().tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]


@given(st.lists(st.tuples(st.lists(st.integers(0, 99)), st.lists(st.integers(0, 99))), min_size=1, max_size=5))
def test_any_pairs_are_told_apart_by_place_and_not_by_id(pairs: list[Example]) -> None:
    # Ids that equal padding, start or end are text like any other.
    assert sentences(collate(pairs, SPECIALS)) == pairs


def test_no_examples_are_refused() -> None:
    with pytest.raises(DataError, match="examples: there must be at least one"):
        Batches([], SPECIALS, BatchSettings(), seed=1)


def test_running_text_needs_texts() -> None:
    with pytest.raises(UsageError, match=r"batch\.layout: `blocks` is for running text, but the corpus has pairs"):
        Batches(examples(3), SPECIALS, BatchSettings(layout="blocks"), seed=1)


@pytest.mark.parametrize("name", ["tokens", "row", "shapes"])
def test_settings_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, but is 0"):
        BatchSettings(**{name: 0})  # type: ignore[arg-type]


def test_a_batch_must_have_room_for_a_row() -> None:
    with pytest.raises(ValueError, match=r"`tokens` must be at least `row` \(128\), but is 100"):
        BatchSettings(100, "packed")


def test_a_batch_is_no_window_into_the_store() -> None:
    store = TokenStore.of_pairs(examples(100), SPECIALS.end)
    before = store.target.ids.copy()
    Batches(store, SPECIALS, BatchSettings(100), seed=1)[0].target.ids_BT.fill_(7)
    assert np.array_equal(store.target.ids, before)


# ---- rows that go on from batch to batch


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 7))
def test_a_stream_reads_every_token_once_and_rows_go_on(count: int, rows: int, row: int) -> None:
    store = texts(count)
    settings = BatchSettings(tokens=rows * row, layout="stream", row=row)
    batches = Batches(store, SPECIALS, settings, seed=3)
    found = [batches[step] for step in range(batches.per_epoch)]
    labels_BT = torch.cat([batch.labels_BT for batch in found], dim=1)
    read_BT = torch.cat([batch.target.ids_BT for batch in found], dim=1)
    in_order = [token for line in labels_BT.tolist() for token in line if token != IGNORED]
    assert in_order == store.target.ids.tolist()
    for read, labels in zip(read_BT.tolist(), labels_BT.tolist(), strict=True):
        real = [token for token in labels if token != IGNORED]
        assert labels[: len(real)] == real, "padding stands at the end of a row"
        wanted = [SPECIALS.start if token == SPECIALS.end else token for token in real[:-1]]
        assert read[1 : len(real)] == wanted
    assert batches.shapes == [(labels_BT.shape[0], 0, row)]
    assert [batches.begins(step) for step in range(batches.per_epoch + 1)] == [
        step % batches.per_epoch == 0 for step in range(batches.per_epoch + 1)
    ]
    assert ids(batches[batches.per_epoch]) == ids(batches[0])


def test_a_stream_divided_among_processes_keeps_its_rows() -> None:
    batches = Batches(texts(40), SPECIALS, BatchSettings(tokens=15, layout="stream", row=5), seed=3)
    for step in range(batches.per_epoch):
        shares = [batches.share(step, rank, 2).labels_BT for rank in (0, 1)]
        together = torch.cat(shares)
        assert torch.equal(together[:3], batches[step].labels_BT)
        assert (together[3:] == IGNORED).all()


def test_a_stream_needs_running_text() -> None:
    with pytest.raises(UsageError, match="`stream` is for running text, but the corpus has pairs"):
        Batches(examples(3), SPECIALS, BatchSettings(tokens=8, layout="stream", row=4), 1)
