"""Texts with labels, from files to batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.batch import IGNORED
from regard.data.batching import Batches, BatchSettings
from regard.data.corpus import open_corpus
from regard.data.dataset import Dataset, read_dataset
from regard.data.labelled import Class, Classes, Labelled, LabelSources, Restoring, Tagged
from regard.errors import DataError, UsageError
from regard.text.labels import labels_of
from regard.text.tokenizer import TokenizerSettings
from tests.tiny import ENGLISH, GERMAN, write_lines

TEXT = TokenizerSettings(vocabulary=60)


def dataset(settings: LabelSources) -> Dataset:
    return read_dataset(settings, TEXT, 1)


def languages(place: Path, **more: Any) -> Classes:
    one, other = (
        write_lines(place / "en", ENGLISH * 2),
        write_lines(place / "de.tsv", [f"x\t{word}" for word in GERMAN]),
    )
    return Classes((Class("en", str(one)), Class("de", str(other), 2, **more)), held_out=2)


def test_classes_are_sorted_out_once_and_for_all(tmp_path: Path) -> None:
    corpus = open_corpus(languages(tmp_path))
    train, valid, test = list(corpus.train()), corpus.valid(), corpus.test()
    assert [len(split) for split in (train, valid, test)] == [22, 2, 2]
    assert sorted(pair.source for pair in (*train, *valid, *test)) == sorted(ENGLISH + GERMAN)
    assert {pair.source: pair.target for pair in (*train, *valid, *test)}["zwölf"] == "de"
    assert list(open_corpus(languages(tmp_path)).train()) == train
    fewer = open_corpus(languages(tmp_path, most=5))
    assert {pair.source for pair in fewer.train() if pair.target == "de"} < set(GERMAN)
    assert sum(pair.target == "de" for pair in (*fewer.train(), *fewer.valid(), *fewer.test())) == 5


def test_a_batch_of_texts_has_one_label_a_row(tmp_path: Path) -> None:
    data = dataset(languages(tmp_path))
    assert labels_of(data.tokenizer) == ("de", "en")
    batches = Batches(data.train, data.tokenizer.specials, BatchSettings(tokens=40), 1)
    seen = {}
    for number in range(batches.per_epoch):
        batch = batches[number]
        assert batch.source is None
        assert batch.labels_BT.shape == (len(batch.target.ids_BT), 1)
        for ids, (label,) in zip(batch.target.ids_BT.tolist(), batch.labels_BT.tolist(), strict=True):
            if label == IGNORED:  # a row that is there to fill the batch
                assert set(ids) == {data.tokenizer.specials.padding}
                continue
            assert ids.count(data.tokenizer.specials.end) == 1
            seen[data.tokenizer.source.decode(ids)] = labels_of(data.tokenizer)[label]
    assert seen == {pair.source: pair.target for pair in open_corpus(languages(tmp_path)).train()}


def test_tables(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "table.tsv", ["good thing\t1\tnot bad", "", "bad thing\t2\tbad"])
    data = dataset(Labelled(str(file), valid=str(file), columns=(1, 3)))
    assert [(pair.source, pair.target) for pair in data.valid_pairs] == [
        ("good thing", "not bad"),
        ("bad thing", "bad"),
    ]
    assert labels_of(data.tokenizer) == ("bad", "not bad")
    assert len(data.train) == 2


SENTENCES = ["the DET", "cat NN NOUN", "", "", "a DET", "dog NOUN", "sleeps VERB"]


@pytest.mark.parametrize("layout", ["buckets", "packed"])
def test_tags_stand_at_the_first_token_of_their_word(tmp_path: Path, layout: Any) -> None:
    file = write_lines(tmp_path / "tags.txt", SENTENCES)
    data = dataset(Tagged(str(file), valid=str(file)))
    assert [pair.source for pair in data.valid_pairs] == ["the cat", "a dog sleeps"]
    assert labels_of(data.tokenizer) == ("DET", "NOUN", "VERB")
    batch = Batches(data.train, data.tokenizer.specials, BatchSettings(64, layout, row=32), 1)[0]
    assert batch.labels_BT.shape == batch.target.ids_BT.shape
    begins = torch.tensor([[label.startswith("▁") for label in data.tokenizer.source.labels(row)]
                           for row in batch.target.ids_BT.tolist()])  # fmt: skip
    assert torch.equal(batch.labels_BT != IGNORED, begins)
    articles = batch.target.ids_BT[batch.labels_BT == 0].tolist()
    assert {token[:2] for token in data.tokenizer.source.labels(articles)} == {"▁t", "▁a"}
    assert sorted(batch.labels_BT[batch.labels_BT != IGNORED].tolist()) == [0, 0, 1, 1, 2]


def test_restoring_takes_the_tags_from_the_text(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "text", ["Hello, World!", "…", "How are you?"])
    corpus = open_corpus(Restoring(str(file), valid=str(file)))
    assert [(pair.source, pair.target) for pair in corpus.train()] == [
        ("hello world", "C, C!"), ("how are you", "C l l?"),
    ]  # fmt: skip
    data = dataset(Restoring(str(file), valid=str(file), most=1))
    assert len(data.train) == 1
    assert len(labels_of(data.tokenizer)) == 21, "all that can be, whether they occur or not"


CONLL_U = [
    "# text = du pain 10 000 fois",
    "1-2\tdu\t_\t_", "1\tde\tde\tADP", "2\tle\tle\tDET", "2.1\tunseen\tx\tX", "3\t10 000\tx\tNUM", "# no word",
    "4\t#\t#\tSYM", "", "1\tfin\tfin\tNOUN",
]  # fmt: skip


def test_files_as_they_are_given_away(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "words.conllu", CONLL_U)
    (pairs,) = [open_corpus(Tagged(str(file), valid=str(file), columns=(2, 4))).valid()]
    assert [(pair.source, pair.target) for pair in pairs] == [("de le 10_000 #", "ADP DET NUM SYM"), ("fin", "NOUN")]
    file = write_lines(tmp_path / "words.txt", ["-DOCSTART- -X- O O", "", "Rome NNP B-LOC", "# # O"])
    (pair,) = open_corpus(Tagged(str(file), valid=str(file))).valid()
    assert (pair.source, pair.target) == ("Rome #", "B-LOC O")


@pytest.mark.parametrize(
    ("line", "words"), [("1\tcat", "line 1.*4 columns.*has 2"), ("1\tcat\tx\t ", "line 1.*no tag")]
)
def test_columns_that_are_missing(tmp_path: Path, line: str, words: str) -> None:
    file = write_lines(tmp_path / "words.conllu", [line])
    with pytest.raises(DataError, match=words):
        open_corpus(Tagged(str(file), valid=str(file), columns=(2, 4))).valid()


@pytest.mark.parametrize("columns", [(1, 1), (0, 2)])
def test_columns_that_cannot_be(columns: tuple[int, int]) -> None:
    for kind in (Labelled, Tagged):
        with pytest.raises(ValueError, match="two different ones"):
            kind("file", columns=columns)


def test_a_tenth_is_held_out_and_labels_are_counted(tmp_path: Path) -> None:
    lines = [f"text {number}\t{'rare' if number % 10 == 0 else 'usual'}" for number in range(2_000)]
    corpus = open_corpus(Labelled(str(write_lines(tmp_path / "table.tsv", lines))))
    assert 150 < len(corpus.valid()) < 250
    report = corpus.report()
    assert list(report.labels) == ["usual", "rare"]
    assert report.labels["rare"] == pytest.approx(0.1, abs=0.03)
    assert "labels: usual 9" in report.to_text()
    assert "target" not in report.to_text()


def test_labels_that_occur_once_are_told(tmp_path: Path) -> None:
    """Among more texts than are sampled, too."""
    often = [f"text {number}\t{'ab'[number % 2]}" for number in range(3_000)]

    def warned(*rare: str) -> tuple[str, ...]:
        file = write_lines(tmp_path / "table.tsv", [*often, *(f"odd {label}\t{label}" for label in rare)])
        return open_corpus(Labelled(str(file))).report().warnings

    assert warned() == ()
    [warning] = warned("c", "d")
    assert warning.startswith("2 of 4 labels occur only once: `c`, `d`. What a label means cannot be learned from one")
    [warning] = warned(*map(str, range(120)))
    assert warning.startswith("120 of 122 labels occur only once, such as `0`, `1`, `2`. ")
    words = write_lines(tmp_path / "tags", ["the DET", "cat NOUN", "", "the DET", "sat VERB", "cat NOUN"])
    [warning] = open_corpus(Tagged(str(words), valid=str(words))).report().warnings[:1]
    assert warning.startswith("1 of 3 labels occurs only once: `VERB`. ")


def test_a_label_that_is_held_out_is_known(tmp_path: Path) -> None:
    train, valid = write_lines(tmp_path / "a.tsv", ["x\t1", "y\t2"]), write_lines(tmp_path / "b.tsv", ["z\t3"])
    assert labels_of(dataset(Labelled(str(train), valid=str(valid))).tokenizer) == ("1", "2", "3")


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        (["text"], Labelled, "line 1.*2 columns"),
        (["text\t1", "text\t "], Labelled, "line 2.*no label"),
        (["\t1"], Labelled, "line 1.*no text"),
        (["the DET", "cat"], Tagged, "line 2.*'cat'"),
        (["# sent_id = 1", "1\tcat\tcat\tNOUN"], Tagged, r"line 1.*CoNLL-U.*data\.columns"),
        (["a\t1", "b\t1", "c\t1"], Labelled, "at least 2"),
    ],
)
def test_mistakes_in_files(tmp_path: Path, lines: list[str], kind: Any, words: str) -> None:
    file = write_lines(tmp_path / "file.tsv", lines)
    with pytest.raises(DataError, match=words):
        dataset(kind(str(file), valid=str(file)))


def test_too_little_to_hold_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.valid"):
        dataset(Labelled(str(write_lines(tmp_path / "x.tsv", ["a\t1"]))))
    short = write_lines(tmp_path / "short", ["a", "b"])
    with pytest.raises(DataError, match="at least 3"):
        dataset(Classes((Class("1", str(short)), Class("2", str(short)))))


def test_running_text_has_no_labels(tmp_path: Path) -> None:
    data = dataset(languages(tmp_path))
    with pytest.raises(UsageError, match="texts with labels"):
        Batches(data.train, data.tokenizer.specials, BatchSettings(64, "blocks", row=8), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Classes((Class("a", "x"), Class("a", "y"))),
        lambda: Class(" ", "x"),
        lambda: Class("a", "x", column=0),
        lambda: Classes((Class("a", "x"), Class("b", "y")), held_out=0),
        lambda: Labelled("x", columns=(0, 1)),
        lambda: Restoring("x", most=0),
    ],
)
def test_settings_that_cannot_be(wrong: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong()


def test_what_is_too_long(tmp_path: Path) -> None:
    endless = write_lines(tmp_path / "tags.txt", ["the DET"] * 2_001)
    with pytest.raises(DataError, match="empty line after each sentence"):
        dataset(Tagged(str(endless), valid=str(endless)))
    table = write_lines(tmp_path / "table.tsv", ["x " * 6_000 + "\t1", "y\t1", "z\t2"])
    data = dataset(Labelled(str(table), valid=str(write_lines(tmp_path / "valid.tsv", ["x\t1"]))))
    assert len(data.train) == 2
    assert data.report is not None
    assert data.report.corpora[0].kept == 2
