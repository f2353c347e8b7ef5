"""Labels as a vocabulary, and words cut one by one."""

from __future__ import annotations

import pytest

from regard.errors import DataError
from regard.text import labels
from regard.text.labels import FIRST, WordCutter, labels_of, numbers_of, with_labels
from regard.text.tokenizer import Tokenizer, TokenizerSettings

TEXT = Tokenizer.learn(["the cat sat on the mat", "a cat"] * 3, TokenizerSettings(vocabulary=40))


def test_labels_have_numbers_in_their_order_and_survive_a_file() -> None:
    tokenizer = with_labels(TEXT, ["no idea", "yes", "no", "yes"], several=False)
    again = Tokenizer.from_json(tokenizer.to_json())
    for one in (tokenizer, again):
        assert labels_of(one) == ("no", "no idea", "yes")
        assert numbers_of(one, ["yes", "no idea"]) == [2, 1]
        assert one.encode("no idea") == [FIRST + 1]
        assert one.source.encode("the cat") == TEXT.encode("the cat")


@pytest.mark.parametrize(("labels", "words"), [(["same"], "at least 2"), (["<pad>", "x"], "<pad>"), ([], "at least 2")])
def test_labels_that_cannot_be(labels: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        with_labels(TEXT, labels, several=False)


def test_a_label_nobody_knows() -> None:
    with pytest.raises(DataError, match=r"no, yes.*'maybe' is not\. Correct it, or .* train without `init`"):
        numbers_of(with_labels(TEXT, ["yes", "no"], several=False), ["yes", "maybe"])


@pytest.mark.parametrize("kind", ["bpe", "bpe-end", "bytes", "words", "characters"])
def test_words_cut_one_by_one_are_those_of_the_text(kind: str) -> None:
    settings = TokenizerSettings(kind, vocabulary=300)  # type: ignore[arg-type]
    tokenizer = Tokenizer.learn(["the cat sat on the mat"], settings)
    (cut,) = WordCutter(tokenizer).cut([["the", "cat", "sat"]])
    joined = [token for word in cut for token in word]
    assert tokenizer.decode(joined).strip() == "the cat sat"
    assert all(cut)


def test_no_more_words_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "KEPT", 3)
    cutter = WordCutter(TEXT)
    for _ in range(2):
        for number in range(20):
            ((one, two),) = cutter.cut([["cat", f"mat{number}"]])
            assert one == TEXT.encode("cat")
            assert two == TEXT.encode(f"mat{number}")
            assert len(cutter._known) <= 3 + 2


def test_a_word_of_which_nothing_is_left_still_has_a_token() -> None:
    ((ids, other),) = WordCutter(TEXT).cut([["▁", "cat"]])
    assert ids == [TEXT.unknown]
    assert other == TEXT.encode("cat")
