"""Corpora: one file or many, streamed into splits that never mix, with nothing lost on the way."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.counts import so_many
from regard.data import formats
from regard.data.corpus import (
    CorpusSettings,
    Files,
    LanguagePair,
    Mixture,
    Text,
    copies,
    load_corpus,
    open_corpus,
    read_pairs,
)
from regard.data.filters import NO_FILTERS, Filters
from regard.data.formats import Repairs
from regard.data.generated import Generated, Pair, generate
from regard.errors import DataError, UsageError
from regard.recipe import build_recipe, load_recipe
from regard.settings import to_toml

DATA = Path(os.environ.get("REGARD_DATA", Path(__file__).parents[2] / "../shared/data"))


def write(file: Path, lines: Iterable[str], end: str = "\n") -> Path:
    file.write_bytes("".join(line + end for line in lines).encode())
    return file


def corpus(tmp_path: Path, pairs: int, name: str = "c", **settings: Any) -> Files:
    # Two translations of each sentence: the same source must not stand on both sides of the split.
    source = write(tmp_path / f"{name}.en", [f"{name} sentence {number // 2}" for number in range(pairs)])
    target = write(tmp_path / f"{name}.de", [f"{name} Satz {number}" for number in range(pairs)])
    return Files(str(source), str(target), **settings)


# ---- splits


@pytest.mark.parametrize("pairs", [60, 400, 4_000])
def test_held_out_pairs_share_no_source_with_training_and_never_change(pairs: int, tmp_path: Path) -> None:
    files = corpus(tmp_path, pairs)
    splits = load_corpus(files)
    assert {pair.source for pair in splits.train}.isdisjoint({pair.source for pair in splits.valid})
    assert files.target is not None
    assert sorted(splits.train + splits.valid, key=str) == sorted(
        read_pairs(Path(files.source), Path(files.target)), key=str
    )
    assert splits == load_corpus(files)
    assert 2 <= len(splits.valid) <= len(splits.train)
    assert splits.test == []


def test_a_sentence_stays_on_its_side_when_the_corpus_grows(tmp_path: Path) -> None:
    small, large = (load_corpus(corpus(tmp_path, pairs)) for pairs in (4_000, 4_400))
    assert {pair.source for pair in small.valid} <= {pair.source for pair in large.valid}


def test_given_files_are_used_as_they_are_and_nothing_is_held_out(tmp_path: Path) -> None:
    files = corpus(tmp_path, 10)
    a, b = write(tmp_path / "v.en", ["v", "", "same"]), write(tmp_path / "v.de", ["V", "V", "same"])
    splits = load_corpus(Files(files.source, files.target, "files", str(a), str(b), str(b), str(a)))
    assert len(splits.train) == 10
    assert splits.valid == [Pair("v", "V"), Pair("", "V"), Pair("same", "same")]
    assert splits.test == [Pair(pair.target, pair.source) for pair in splits.valid]


@pytest.mark.parametrize("targets", [["eins"], [f"Satz {number}" for number in range(50)]])
def test_too_few_different_sentences_to_hold_out_are_named(targets: list[str], tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.en", ["same"] * len(targets)), write(tmp_path / "a.de", targets)
    with pytest.raises(DataError) as caught:
        load_corpus(Files(str(a), str(b)))
    for words in (
        "a.de: there must be enough different sentences",
        f"only {so_many(len(targets), 'pair')}.",
        "data.valid_source",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("lines", [["all in one line"], ["damaged \0", "one"]])
def test_text_that_cannot_be_divided_is_told_what_to_do(lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_corpus(Text(str(write(tmp_path / "a.txt", lines)))).valid()
    words = "only 1 line. Cut the text into lines, or give other text to validate on with `data.valid`."
    assert words in str(caught.value)
    assert "pairs" not in str(caught.value)
    assert "valid_source" not in str(caught.value)
    with pytest.raises(DataError, match="but there are only 51 lines"):
        open_corpus(Text(str(write(tmp_path / "a.txt", ["a"] * 51)), held_out=0.99)).valid()


def test_when_nothing_is_left_the_reasons_are_named(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.en", ["same", "x", ""]), write(tmp_path / "a.de", ["same", "y" * 500, "z"])
    with pytest.raises(DataError) as caught:
        load_corpus(Files(str(a), str(b)))
    words = "all 3 were dropped: 1 as `empty`, 1 as `ratio`, 1 as `identical`. Do both files have a line"
    assert f"{a} + {b}: there must be pairs left to train on, but {words}" in str(caught.value)


def test_pairs_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BLOCK", 10)
    monkeypatch.setattr(formats, "CHUNK", 64)
    (tmp_path / "a.tsv").write_bytes(b"".join(b"a %d\tA %d\n" % (n, n) for n in range(60)) + b"\xff\n")
    valid = write(tmp_path / "v.tsv", ["v\tV"])
    pairs = open_corpus(Files(str(tmp_path / "a.tsv"), valid_source=str(valid))).train()
    assert list(islice(pairs, 50)) == [Pair(f"a {n}", f"A {n}") for n in range(50)]
    with pytest.raises(DataError, match="line 61: must be UTF-8"):
        list(pairs)


def test_validation_and_report_do_not_need_somebody_to_train(tmp_path: Path) -> None:
    files = corpus(tmp_path, 400)
    streamed = open_corpus(files)
    train = list(streamed.train())
    assert streamed.valid() == open_corpus(files).valid() == load_corpus(files).valid
    assert streamed.report() == open_corpus(files).report()
    assert list(streamed.train()) == train  # as often as one likes
    assert streamed.report().warnings == open_corpus(files).report().warnings


def test_the_test_set_is_read_alone(tmp_path: Path) -> None:
    a = write(tmp_path / "t.tsv", ["one\teins"])
    assert open_corpus(Files("nowhere.en", "nowhere.de", test_source=str(a))).test() == [Pair("one", "eins")]


# ---- forms


def forms(place: Path, pairs: list[tuple[str, str]]) -> list[Files]:
    sides = [write(place / f"f.{number}", [pair[number] for pair in pairs]) for number in (0, 1)]
    table = write(place / "f.tsv", ["\t".join(("note", *pair)) for pair in pairs])
    objects = write(place / "f.ndjson", [json.dumps({"source": source, "target": target}) for source, target in pairs])
    (place / "f.txt.gz").write_bytes(gzip.compress(table.read_bytes()))
    (place / "parts").mkdir(exist_ok=True)
    for number, pair in enumerate(pairs):
        for side in (0, 1):
            write(place / f"parts/{number:03}.{side}", [pair[side]])
    return [
        Files(str(sides[0]), str(sides[1])),
        Files(str(table), columns=(2, 3)),
        Files(str(objects)),
        Files(str(place / "f.txt.gz"), format="tsv", columns=(2, 3)),
        Files(str(place / "parts/*.0"), str(place / "parts/*.1")),
    ]


def test_all_forms_are_the_same_corpus(tmp_path: Path) -> None:
    pairs = [(f"sentence {number}", f"Satz {number}") for number in range(60)]
    splits = [load_corpus(files) for files in forms(tmp_path, pairs)]
    assert splits[0].train
    for each in splits:  # in another order, if the files are others
        assert sorted(each.train, key=str) == sorted(splits[0].train, key=str)
        assert sorted(each.valid, key=str) == sorted(splits[0].valid, key=str)


def test_the_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"sentence {number}\tSatz {number}\n" for number in range(60))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    corpus = open_corpus(Files("-", format="tsv"))
    assert len(list(corpus.train())) + len(corpus.valid()) == 60
    assert corpus.report().corpora[0].read == 60


def test_every_dropped_line_is_named_by_its_file(tmp_path: Path) -> None:
    for name, lines in (("a", ["x", "", "z"]), ("b", ["\ufeffx", "y\r", "same"])):
        write(tmp_path / f"{name}.en", lines)
        write(tmp_path / f"{name}.de", ["X", "Y", "same"])
    valid = write(tmp_path / "v.tsv", ["\ufeffv\tV\r"])
    files = Files(str(tmp_path / "*.en"), str(tmp_path / "*.de"), valid_source=str(valid))
    report = open_corpus(files).report()
    places = {
        reason: [(Path(example.file).name, example.line) for example in dropped.examples]
        for reason, dropped in report.corpora[0].dropped.items()
        if dropped.count
    }
    assert places == {"empty": [("a.en", 2)], "identical": [("b.en", 3)], "duplicate": [("b.en", 1)]}
    assert [Path(file).name for file in report.repairs.byte_order_marks] == ["b.en", "v.tsv"]
    assert {Path(file).name: n for file, n in report.repairs.carriage_returns.items()} == {"b.en": 1, "v.tsv": 1}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target": "b", "valid_source": "v"}, "`valid_source` and `valid_target` must be given together"),
        ({"target": "b", "test_target": "t"}, "`test_source` and `test_target` must be given together"),
        ({}, "`source` and `target` must be given together, but one is missing; a file that holds both sides is named"),
        ({"source": "-", "target": "-"}, "must not both be `-`"),
        ({"source": "a.tsv", "target": "b", "format": "tsv"}, "`format` is for a file that holds both sides, but is"),
        (
            {"target": "b", "format": "jsonl", "valid_source": "v", "valid_target": "w"},
            '`format` .* is "jsonl" while `target` names a file for the other side; leave one of them out',
        ),
        ({"target": "b", "columns": (0, 1)}, r"`columns` must be counted from 1, but are \[0, 1\]"),
        ({"target": "b", "source_language": "en us"}, "`source_language` must be a code .* but is `en us`"),
        ({"target": "b", "target_language": "<2de>"}, "`target_language` must be a code"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Files(**{"source": "a", **settings})


def test_one_file_may_hold_both_sides_of_any_split() -> None:
    Files("a.tsv", valid_source="v.jsonl.gz", test_source="t.en", test_target="t.de")
    Files("a.en", "a.de", valid_source="v.tsv")
    Files("-", format="jsonl", valid_source="v")
    Files("a", format="tsv", test_source="t.en", test_target="t.de")
    Files("a.en", "a.de", format="tsv", valid_source="v")


# ---- several corpora


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=5), st.floats(1, 100), st.data())
def test_shares_are_as_asked_for(sizes: list[int], temperature: float, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 10), min_size=len(sizes), max_size=len(sizes)))
    times = copies(sizes, temperature, weights)
    assert min(times) == 1
    found = [size * often for size, often in zip(sizes, times, strict=True)]
    wanted = [weight * size ** (1 / temperature) for size, weight in zip(sizes, weights, strict=True)]
    assert [share / sum(found) for share in found] == pytest.approx([share / sum(wanted) for share in wanted])


def test_small_corpora_are_repeated_and_nothing_held_out_comes_back(tmp_path: Path) -> None:
    parts = corpus(tmp_path, 400, "large"), corpus(tmp_path, 100, "small")
    mixed = open_corpus(Mixture(parts, temperature=2.0))
    train, valid = Counter(mixed.train()), mixed.valid()
    large, small = (
        {pair: often for pair, often in train.items() if pair.source.startswith(name)} for name in ("large", "small")
    )
    # 400^½ : 100^½ is 2 : 1, so each pair of the small one comes twice.
    assert set(large.values()) == {1}
    assert set(small.values()) == {2}
    assert {pair.source for pair in train}.isdisjoint({pair.source for pair in valid})
    assert len(large) + len(small) + len(valid) == 500
    assert mixed.report().train == train.total()
    assert [found.copies for found in mixed.report().corpora] == [1, 2]
    assert list(mixed.train()) == list(mixed.train())


def test_a_fraction_of_a_repetition_is_a_part_of_the_pairs(tmp_path: Path) -> None:
    valid = str(write(tmp_path / "v.tsv", ["v\tV"]))
    parts = corpus(tmp_path, 1_000, "one", valid_source=valid), corpus(tmp_path, 1_000, "other")
    often = Counter(open_corpus(Mixture(parts, weights=(2.5, 1.0))).train())
    counts = Counter(often[pair] for pair in often if pair.source.startswith("one"))
    assert set(counts) == {2, 3}
    assert 400 < counts[3] < 600


def test_weights_that_make_an_epoch_endless_are_refused_before_it_is_written(tmp_path: Path) -> None:
    mixed = open_corpus(Mixture((corpus(tmp_path, 60, "one"), corpus(tmp_path, 60, "two")), weights=(1.0, 400.0)))
    words = r"data\.weights: an epoch must have at most 100 times as many pairs .* would have 24,060 of 120: pairs"
    with pytest.raises(UsageError, match=words):
        list(mixed.train())


def test_languages_are_told_and_tags_are_no_text(tmp_path: Path) -> None:
    parts = (
        corpus(tmp_path, 60, "a", source_language="en", target_language="de"),
        corpus(tmp_path, 60, "b", source_language="en", target_language="zh-Hans"),
        corpus(tmp_path, 60, "c", source_language="de", target_language="de"),
    )
    mixture = Mixture(parts, tag_target=True)
    pairs = [*open_corpus(mixture).train(), *open_corpus(mixture).valid()]
    assert all(isinstance(pair, LanguagePair) for pair in pairs)
    assert LanguagePair("b sentence 0", "b Satz 1", "en", "zh-Hans") in pairs
    assert "<2de>" not in "".join(pair.source for pair in pairs)
    opened, untagged = open_corpus(mixture), open_corpus(Mixture(parts))
    assert opened.target_languages == ["de", "zh-Hans"]
    assert all(len(open_corpus(other).target_languages) == 0 for other in (Mixture(parts), parts[0], Generated()))
    assert next(opened.texts([LanguagePair("a", "b", "en", "de")])) == ("a", "b", "de")
    assert next(untagged.texts([LanguagePair("a", "b", "en", "de")])) == ("a", "b")
    assert opened.origin().reading != untagged.origin().reading


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"corpora": ()}, "`corpora` must hold at least one corpus"),
        ({"temperature": 0.5}, "`temperature` must be at least 1, but is 0.5"),
        ({"weights": (1.0, 2.0)}, r"`weights` must be 1 numbers above 0, one a corpus, but are \[1.0, 2.0\]"),
        ({"weights": (0.0,)}, "`weights` must be 1 numbers above 0"),
        ({"corpora": (Files("-", "b"),)}, r"`corpora\[0\]` must be in files, which can be read again"),
        ({"tag_target": True}, r"`corpora\[0\].target_language` must be set for `tag_target`"),
    ],
)
def test_mixtures_that_cannot_be_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Mixture(**{"corpora": (Files("a", "b"),), **settings})


# ---- text and generated


def test_plain_text_keeps_its_order_and_loses_its_end(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(500)]
    lines[3:5] = ["", "line 2"]  # neither empty lines nor repeated ones are dropped from running text
    lines[10] = "damaged \0"
    text = open_corpus(Text(str(write(tmp_path / "a.txt", lines)), language="en"))
    train = list(text.train())
    kept = [line for line in lines if "\0" not in line]
    assert [pair.target for pair in train + text.valid()] == kept
    assert len(text.valid()) == 20
    assert train[0] == LanguagePair("", "line 0", None, "en")
    assert text.report().corpora[0].dropped["damaged"].examples[0].line == 11
    given = Text(str(tmp_path / "a.txt"), valid=str(tmp_path / "a.txt"), test=str(tmp_path / "a.txt"))
    assert len(open_corpus(given).valid()) == len(open_corpus(given).test()) == 500
    with pytest.raises(UsageError, match=r"data\.kind: must be a corpus of pairs, but is `text`"):
        load_corpus(given)


def test_a_generated_corpus_can_be_streamed_too() -> None:
    settings = Generated(pairs=50, valid=3, test=2)
    splits, streamed = generate(settings), open_corpus(settings)
    for pairs, found in (
        (splits.train, list(streamed.train())), (splits.valid, streamed.valid()), (splits.test, streamed.test()),
    ):  # fmt: skip
        assert found == [LanguagePair(pair.source, pair.target, "en", "de") for pair in pairs]
    assert load_corpus(settings) == splits
    assert open_corpus(Generated(pairs=50, valid=0)).valid() == []


# ---- recipes


def test_a_recipe_says_it_all(tmp_path: Path) -> None:
    simple = build_recipe({"data": {"kind": "files", "source": "a.en", "target": "a.de"}}, [], "here")
    assert simple.data == Files("a.en", "a.de")
    tree = {
        "kind": "mixture",
        "temperature": 5.0,
        "tag_target": True,
        "corpora": [
            {"source": "a.en", "target": "a.de", "target_language": "de", "filters": {"max_words": 80}},
            {"source": "b.tsv", "columns": [2, 1], "target_language": "fr"},
        ],
    }
    recipe = build_recipe({"data": tree}, [], "here")
    assert recipe.data == Mixture(
        (
            Files("a.en", "a.de", target_language="de", filters=Filters(max_words=80)),
            Files("b.tsv", columns=(2, 1), target_language="fr"),
        ),
        temperature=5.0,
        tag_target=True,
    )
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(recipe), encoding="utf-8")
    assert load_recipe(str(file)) == recipe
    with pytest.raises(UsageError, match=r"data.filters: `max_ratio` must be at least 1"):
        build_recipe({"data": {"kind": "files", "source": "a.tsv", "filters": {"max_ratio": 0.2}}}, [], "here")


def test_the_origin_changes_with_whatever_changes_the_pairs(tmp_path: Path) -> None:
    files = corpus(tmp_path, 60)
    origin = open_corpus(files).origin()
    assert origin.files == (Path(files.source), Path(files.target or ""))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert open_corpus(corpus(elsewhere, 60)).origin().reading == origin.reading
    others: list[CorpusSettings] = [
        Files(files.source, files.target, filters=NO_FILTERS),
        Files(files.source, files.target, columns=(2, 1)),
        Files(files.source, files.target, target_language="de"),
        Files(files.source, files.target, valid_source="v.tsv"),
        Mixture((files, files), weights=(1.0, 2.0)),
        Mixture((files, files)),
        Generated(),
        Generated(seed=2),
    ]
    readings = {origin.reading, *(open_corpus(other).origin().reading for other in others)}
    assert len(readings) == len(others) + 1


def test_the_origin_tells_files_side_by_side_from_files_one_after_another(tmp_path: Path) -> None:
    rows = [f"a {number}\tA {number}" for number in range(60)]
    a, b = str(write(tmp_path / "a.tsv", rows)), str(write(tmp_path / "b.tsv", rows))
    beside, after = open_corpus(Files(a, b)).origin(), open_corpus(Files(str(tmp_path / "*.tsv"))).origin()
    assert beside.files == after.files
    assert beside.reading != after.reading
    both = open_corpus(Mixture((Files(a), Files(b)))).origin()
    assert both.reading != open_corpus(Mixture((Files(str(tmp_path / "*.tsv")),))).origin().reading
    # As the names say, a table is read in one way, and objects in another.
    (tmp_path / "c").mkdir()
    write(tmp_path / "c/a.jsonl", rows)
    assert open_corpus(Files(str(tmp_path / "c/a.jsonl"))).origin().reading != open_corpus(Files(a)).origin().reading


def test_the_origin_has_partners_in_the_order_in_which_they_are_read(tmp_path: Path) -> None:
    for name in ("p/news.en", "p/news.test.en", "q/news.zh", "q/news.test.zh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, ["x"])
    found = open_corpus(Files(str(tmp_path / "p"), str(tmp_path / "q"))).origin().files
    assert [file.name for file in found] == ["news.en", "news.zh", "news.test.en", "news.test.zh"]


# ---- the real thing


@pytest.mark.data
def test_real_corpora() -> None:
    if not DATA.is_dir():
        pytest.skip("needs the corpora of REGARD_DATA")
    tatoeba = open_corpus(Files(str(DATA / "tatoeba/manythings.en-zh.tsv.bz2"))).report()
    assert tatoeba.corpora[0].read == 29_055
    assert tatoeba.corpora[0].kept > 29_000
    guesses = [tatoeba.languages[f"train {side}"] for side in ("source", "target")]
    assert [guess and guess.language for guess in guesses] == ["en", "zh"]
    captions = DATA / "multi30k/task1"
    files = [
        str(captions / f"{part}.{side}.gz") for part in ("train", "val", "test_2016_flickr") for side in ("en", "de")
    ]
    multi30k = Files(files[0], files[1], "files", *files[2:6])  # type: ignore[arg-type]
    report = open_corpus(multi30k).report()
    assert (report.corpora[0].read, report.valid, report.test) == (29_000, 1_014, 1_000)
    assert report.corpora[0].kept > 28_900
    assert report.warnings == ()
    europarl = DATA / "europarl-ende"
    pairs = open_corpus(Files(str(europarl / "train.en.bz2"), str(europarl / "train.de.xz"))).train()
    head = list(islice(pairs, 15_000))
    assert len({pair.source for pair in head}) > 14_000
    blocks = formats.partner_blocks(str(europarl / "dev.en.bz2"), str(europarl / "dev.de.bz2"), Repairs())
    assert sum(len(block.sources) for block in blocks) == 3_000


def test_the_page_about_corpora_shows_recipes_that_can_be_built() -> None:
    page = Path(__file__).parents[2] / "docs/data.md"
    examples = re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    kinds = [build_recipe(tomllib.loads(example), [], str(page)).data.kind for example in examples]
    assert kinds == ["files", "files", "mixture"]
