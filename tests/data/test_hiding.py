"""What is hidden from BERT and XLNet, and that it follows from seed, batch and place alone."""

from __future__ import annotations

import random

import pytest
import torch

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import Batches, BatchSettings, Layout
from regard.data.hiding import Lesson, Masking, Ordering
from regard.data.store import TokenStore

SPECIALS = Specials(padding=0, start=1, end=2)
VOCABULARY = 50
MASKING = Masking(0.15, mask=VOCABULARY, vocabulary=VOCABULARY, padding=0)
LAYOUTS: list[Layout] = ["buckets", "packed", "blocks"]


def batches(lesson: Lesson | None, layout: Layout = "blocks", tokens: int = 200, seed: int = 3) -> Batches:
    draw = random.Random(5)
    texts = [[draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(0, 25))] for _ in range(60)]
    store = TokenStore.of_texts(texts, SPECIALS.end)
    return Batches(store, SPECIALS, BatchSettings(tokens, layout, row=32, shapes=3), seed, lesson)


def same(one: Batch, other: Batch) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def tensors(batch: Batch) -> list[torch.Tensor]:
    order = batch.labels_BT if batch.order_BT is None else batch.order_BT
    return [batch.target.ids_BT, batch.labels_BT, order, batch.target.places.segments_or_ones()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_share_of_each_row_is_masked_and_the_rest_is_the_text(layout: Layout) -> None:
    plain, masked = batches(None, layout), batches(MASKING, layout)
    assert len(plain.shapes) == len(masked.shapes)
    for step in range(plain.per_epoch):
        before, after = plain[step], masked[step]
        real, said = before.labels_BT != IGNORED, after.labels_BT != IGNORED
        count = real.sum(dim=1)
        wanted = (count * 0.15).round().clamp(min=1).minimum(count)
        assert torch.equal(said.sum(dim=1), wanted.long())
        assert torch.equal(after.labels_BT[said], before.labels_BT[said])
        # A text is read as it is, with its end and without a start; what is no text is padding.
        assert torch.equal(after.target.ids_BT[real & ~said], before.labels_BT[real & ~said])
        assert torch.equal(after.target.places.segments_or_ones() != 0, real)
        assert after.order_BT is None


def test_most_are_masked_some_are_others_some_stay() -> None:
    some = batches(MASKING, tokens=3_200)
    read, labels = [], []
    for step in range(20 * some.per_epoch):
        batch = some[step]
        said = batch.labels_BT != IGNORED
        read.append(batch.target.ids_BT[said])
        labels.append(batch.labels_BT[said])
    found, wanted = torch.cat(read), torch.cat(labels)
    masks, kept = (found == VOCABULARY).float().mean(), (found == wanted).float().mean()
    assert len(found) > 1_500
    assert float(masks) == pytest.approx(0.8, abs=0.03)
    assert float(kept) == pytest.approx(0.1 + 0.1 / VOCABULARY, abs=0.025)
    assert found.max() == VOCABULARY
    others = found[(found != VOCABULARY) & (found != wanted)].float()
    assert float((others < VOCABULARY / 2).float().mean()) == pytest.approx(0.5, abs=0.1)  # any of the vocabulary


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", [1 / 6, 0.5, 1.0])
def test_the_known_come_first_and_the_others_one_by_one(layout: Layout, share: float) -> None:
    plain, ordered = batches(None, layout), batches(Ordering(share), layout)
    for step in range(plain.per_epoch):
        before, after = plain[step], ordered[step]
        real, said = before.labels_BT != IGNORED, after.labels_BT != IGNORED
        assert after.order_BT is not None
        assert torch.equal(after.target.ids_BT, before.target.ids_BT)
        assert torch.equal(after.labels_BT[said], before.labels_BT[said])
        assert (after.order_BT[real & ~said] == 0).all()
        for order, mine, count in zip(after.order_BT, said, real.sum(dim=1).tolist(), strict=True):
            wanted = min(count, max(1, round(count * share)))
            assert sorted(order[mine].tolist()) == list(range(1, wanted + 1))


@pytest.mark.parametrize("lesson", [MASKING, Ordering(0.5)], ids=["masking", "ordering"])
def test_it_follows_from_seed_and_step_alone(lesson: Lesson) -> None:
    one, again = batches(lesson), batches(lesson)
    backwards = [again[step] for step in (7, 3, 0)]
    assert all(same(one[step], found) for step, found in zip((7, 3, 0), backwards, strict=True))
    assert not same(one[0], batches(lesson, seed=4)[0])
    assert not torch.equal(one[0].labels_BT != IGNORED, one[1].labels_BT != IGNORED)


@pytest.mark.parametrize("lesson", [MASKING, Ordering(0.5)], ids=["masking", "ordering"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_processes_that_share_a_batch_hide_the_same(lesson: Lesson, ranks: int) -> None:
    some = batches(lesson)
    for step in range(3):
        whole, parts = some[step], [some.share(step, rank, ranks) for rank in range(ranks)]
        rows = len(whole.labels_BT)
        for place, wanted in enumerate(tensors(whole)):
            assert torch.equal(torch.cat([tensors(part)[place] for part in parts])[:rows], wanted)
