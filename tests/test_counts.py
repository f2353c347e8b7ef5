"""Words that agree with how many there are."""

from __future__ import annotations

from regard.counts import agreeing, so_many


def test_one_is_not_several() -> None:
    assert [so_many(count, "line") for count in (0, 1, 2, 1_000)] == ["0 lines", "1 line", "2 lines", "1,000 lines"]
    assert (so_many(1, "batch", "batches"), so_many(2, "batch", "batches")) == ("1 batch", "2 batches")


def test_a_word_alone() -> None:
    assert (agreeing(1, "is", "are"), agreeing(0, "is", "are"), agreeing(3, "line")) == ("is", "are", "lines")
