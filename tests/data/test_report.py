"""The report before training: what it counts is true, and each warning comes when it should and only then."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import oddities
from regard.data.corpus import Files, Mixture, Text, open_corpus
from regard.data.filters import Filters, Kept, Sieve, keys_of
from regard.data.formats import Block
from regard.data.gathering import Survey
from regard.data.generated import Generated, Language, generate
from regard.data.known import report_of
from regard.data.report import EDGES, SAMPLE, Coverage, DataReport
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.data.talk import TALK

Texts = Sequence[tuple[str, str]]


def pairs(source: Language, target: Language, count: int = 300) -> Texts:
    return generated(source, target, count, "train")


def other_pairs(source: Language, target: Language, count: int = 60) -> Texts:
    """Pairs that are not among `pairs`."""
    return generated(source, target, count, "valid")


def generated(source: Language, target: Language, count: int, split: str) -> Texts:
    splits = generate(Generated(source=source, target=target, pairs=300, valid=120, test=0))
    return [(pair.source, pair.target) for pair in getattr(splits, split)[:count]]


def write(file: Path, texts: Texts) -> str:
    file.write_bytes("".join(f"{source}\t{target}\n" for source, target in texts).encode())
    return str(file)


def reported(place: Path, train: Texts, valid: Texts | None = None, **settings: Any) -> DataReport:
    given = None if valid is None else write(place / "valid.tsv", valid)
    return open_corpus(Files(write(place / "train.tsv", train), valid_source=given, **settings)).report()


def warnings(report: DataReport) -> list[str]:
    """All but that the corpus is small, which the corpora of tests are."""
    return [warning for warning in report.warnings if "pairs to train on" not in warning]


def see(survey: Survey, texts: Texts) -> None:
    sieve = Sieve(Filters())
    survey.see(sieve.sift(Block("a", 1, [source for source, _ in texts], [target for _, target in texts])))


# ---- counts


@given(
    st.lists(st.lists(st.tuples(st.text("ab ", max_size=500), st.text("ab ", max_size=500)), max_size=9), max_size=3)
)
def test_lengths_are_counted_however_they_come(blocks: list[list[tuple[str, str]]]) -> None:
    survey = Survey({})
    for block in blocks:
        sources, targets = [source for source, _ in block], [target for _, target in block]
        survey.see(Kept(sources, targets, keys_of(sources), keys_of(targets)))
    everything = [pair for block in blocks for pair in block]
    for number, side in enumerate(("source", "target")):
        lengths = [len(pair[number]) for pair in everything]
        if not any(lengths):
            assert side not in survey.lengths()
            continue
        found = survey.lengths()[side]
        assert found.longest == max(lengths)
        assert found.mean == pytest.approx(sum(lengths) / len(lengths))
        lows, highs = (-1, *EDGES), (*EDGES, math.inf)
        assert found.counts == tuple(
            sum(low < length <= high for length in lengths) for low, high in zip(lows, highs, strict=True)
        )


def test_the_sample_is_fair_and_the_same_whatever_the_order() -> None:
    texts = [(f"sentence {number}", f"Satz {number}") for number in range(5_000)]
    one, other = Survey({}), Survey({})
    for at in range(0, 5_000, 500):
        see(one, texts[at : at + 500])
    see(other, texts[::-1])
    assert one.sample == other.sample
    assert len(set(one.sample)) == SAMPLE
    places = np.array([int(source.split(" ")[1]) for source, _ in one.sample])
    assert abs(places.mean() - 2_500) < 5 * 1_443 / math.sqrt(SAMPLE)  # five times what chance would do


def test_the_report_is_json_and_a_dozen_lines(tmp_path: Path) -> None:
    train = [*pairs("en", "de"), ("", "leer"), ("x", "y" * 400)]
    report = reported(tmp_path, train, source_language="en", target_language="de")
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["format_version"] == 1
    assert plain["train"] + plain["valid"] == plain["corpora"][0]["kept"] == 300
    dropped = plain["corpora"][0]["dropped"]
    assert {reason: found["count"] for reason, found in dropped.items() if found["count"]} == {"empty": 1, "ratio": 1}
    expected = {"file": str(tmp_path / "train.tsv"), "line": 301, "source": "", "target": "leer"}
    assert dropped["empty"]["examples"] == [expected]
    assert plain["languages"]["train source"]["language"] == "en"
    assert plain["corpora"][0]["scripts"] == [["Latin"], ["Latin"]]
    assert sum(plain["lengths"]["target"]["counts"]) == 300
    assert "sample" not in plain
    text = report.to_text()
    assert text.startswith(
        f"{tmp_path}/train.tsv: 302 read, 300 kept\n  dropped: 1 empty (train.tsv, line 301); 1 ratio ("
    )
    assert f"{plain['train']} to train on, {plain['valid']} held out to validate, 0 to test" in text
    assert "looks like en (100% sure) → de (" in text
    assert text.count("\n") + 1 <= 12
    assert all(len(line) <= 120 for line in text.split("\n") if "train.tsv" not in line)


def test_bars_are_as_long_as_their_shares(tmp_path: Path) -> None:
    train = [("x" * 10 + f" {number:03}", "y" * (10 if number % 4 else 60) + f" {number:03}") for number in range(100)]
    text = reported(tmp_path, train).to_text()
    lines = {line.split("  ")[1].strip(): line for line in text.split("\n") if "%" in line and "to" in line}
    assert "█" * 24 + " 100%" in lines["up to 25"]
    assert "█" * 18 + " " * 6 + "  75%" in lines["up to 25"]
    assert "█" * 6 + " " * 18 + "  25%" in lines["up to 100"]
    assert "up to 200" not in text


def test_what_was_taken_away_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("\ufeffone\teins\r\ntwo\tzwei\nthree\tdrei\r".encode())
    report = open_corpus(Files(str(tmp_path / "a.tsv"), valid_source=write(tmp_path / "v.tsv", [("a", "b")]))).report()
    # A \r at the very end stands before no \n, so nothing is said of line ends \r\n.
    words = f"taken away: a byte order mark in {tmp_path}/a.tsv; 2 \\r at line ends in {tmp_path}/a.tsv\n"
    assert words in report.to_text()


def test_coverage_says_how_a_vocabulary_fits(tmp_path: Path) -> None:
    report = reported(tmp_path, pairs("en", "zh"))
    english = Tokenizer.learn([source for source, _ in report.sample], TokenizerSettings(vocabulary=120))
    found = report.with_coverage(english)
    assert found.coverage is not None
    source, target = found.coverage["source"], found.coverage["target"]
    assert source.unknown_share == 0
    assert 1 < source.tokens_per_word < 8
    assert target.unknown_share > 0.3
    assert [warning for warning in found.warnings if warning not in report.warnings] == [
        f"{target.unknown_share:.1%} of the tokens on the target side are unknown to the vocabulary: it has too few "
        "characters. Use a larger `tokenizer.vocabulary`, or bytes."
    ]
    taken_over = report.with_coverage(english, learned=False).warnings[-1]
    assert "unknown to the vocabulary, which was learned from other text. Take over one that knows them" in taken_over
    assert "tokenizer.vocabulary" not in taken_over
    assert f"source: {source.tokens_per_word:.2f} tokens a word, 0.00% unknown" in found.to_text()
    assert json.loads(json.dumps(found.to_json()))["coverage"]["target"] == vars(target)
    # Bytes know everything.
    whole = report.with_coverage(Tokenizer.learn(["ab"], TokenizerSettings("bytes", vocabulary=300)))
    assert whole.warnings == report.warnings
    assert whole.coverage is not None
    assert isinstance(whole.coverage["target"], Coverage)
    assert whole.coverage["target"].tokens_per_character > 1


def two_files(source: Path, target: Path, texts: Texts) -> tuple[str, str]:
    for file, number in ((source, 0), (target, 1)):
        with (gzip.open if file.suffix == ".gz" else open)(file, "wb") as stream:
            stream.write("".join(f"{pair[number]}\n" for pair in texts).encode())
    return str(source), str(target)


def test_names_of_files_tell_the_languages_where_settings_do_not(tmp_path: Path) -> None:
    # So few frequent words say nothing of French.
    files = two_files(tmp_path / "a.en", tmp_path / "a.fr.gz", pairs("en", "fr"))
    report = open_corpus(Files(*files)).report()
    assert "\n  en → fr, by the names of the files\n" in report.to_text()
    assert warnings(report) == []
    assert report_of(json.loads(json.dumps(report.to_json()))).to_text() == report.to_text()
    # What is read, and how, does not depend on names: a run goes on with a file that was renamed.
    plain = two_files(tmp_path / "one", tmp_path / "two", pairs("en", "fr"))
    assert open_corpus(Files(*files)).origin().reading == open_corpus(Files(*plain)).origin().reading
    named = open_corpus(Files(*files, source_language="en", target_language="fr")).report()
    assert "\n  looks like en (100% sure) → an unknown language\n" in named.to_text()
    same = two_files(tmp_path / "b.en", tmp_path / "c.en", pairs("en", "de"))
    assert "\n  looks like en (100% sure) → de (" in open_corpus(Files(*same)).report().to_text()
    swapped = two_files(tmp_path / "s.de", tmp_path / "s.en", pairs("en", "de"))
    [warning] = warnings(open_corpus(Files(*swapped)).report())
    assert warning == "the sides seem to be swapped: source is to be de, but looks like en (100% sure)"


# ---- warnings


def test_a_good_corpus_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = reported(tmp_path, pairs("en", "de"), other_pairs("en", "de"), source_language="en")
    assert warnings(report) == []
    assert "only 300 pairs to train on" in report.warnings[0]
    monkeypatch.setattr(oddities, "FEW_PAIRS", 300)
    assert open_corpus(Generated(pairs=300, valid=10, test=10)).report().warnings == ()


def test_swapped_sides_are_noticed(tmp_path: Path) -> None:
    train, other = pairs("en", "de"), other_pairs("de", "en")
    [warning] = warnings(reported(tmp_path, train, other))
    assert warning.startswith("the sides of valid seem to be swapped: its targets look more like the sources of train")
    [warning] = warnings(reported(tmp_path, train, source_language="de", target_language="en"))
    assert warning == "the sides seem to be swapped: source is to be de, but looks like en (100% sure)"
    [warning] = warnings(reported(tmp_path, train, source_language="en", target_language="fr"))
    assert warning.startswith("the target side is to be fr, but looks like de (")
    # Scripts tell, too: what does not fit is dropped, and the advice says why it may be.
    reverse = [(f"{TALK['zh']} {number}", f"{TALK['en']} {number}") for number in range(20)]
    mixed = [*pairs("en", "zh", 80), *reverse]
    [warning] = warnings(reported(tmp_path, mixed, source_language="en", target_language="zh"))
    assert "20% of the pairs were dropped, 20 of them as `script`. Are the sides swapped" in warning


def test_one_language_on_both_sides_is_noticed(tmp_path: Path) -> None:
    english = [source for source, _ in pairs("en", "de")]
    found = warnings(
        reported(tmp_path, list(zip(english, english[::-1], strict=True)), filters=Filters(max_ratio=99.0))
    )
    assert [warning for warning in found if "both sides look like en (100% sure)" in warning]
    # Of a language without a profile, too.
    czech = [(f"{TALK['cs']} {number}", f"{number} {TALK['cs']}") for number in range(100)]
    [warning] = warnings(reported(tmp_path, czech))
    assert warning.startswith("both sides look like one language (their trigrams have a cosine of 1.00)")


def test_one_language_is_no_surprise_where_nothing_is_translated(tmp_path: Path) -> None:
    """Both sides are named as one language, or no limit on the ratio says that these are summaries."""
    english = [source for source, _ in pairs("en", "de")]
    texts = list(zip(english, english[::-1], strict=True))
    summaries = reported(tmp_path, texts, filters=Filters(max_ratio=0.0))
    named = reported(tmp_path, texts, source_language="en", target_language="en", filters=Filters(max_ratio=99.0))
    for report in (summaries, named):
        assert warnings(report) == []
        assert report.warnings[0].endswith("a model may learn them by heart instead of what they have in common")
    other = reported(tmp_path, texts, source_language="en", target_language="fr", filters=Filters(max_ratio=0.0))
    assert other.warnings[0].endswith("instead of how to translate")
    assert [warning for warning in other.warnings if "both sides look like en" in warning]


def test_much_that_is_dropped_comes_with_advice(tmp_path: Path) -> None:
    train = [*pairs("en", "de", 80), *((f"summary {number}", f"{number} story " * 40) for number in range(20))]
    [warning] = warnings(reported(tmp_path, train))
    assert warning.startswith(f"{tmp_path}/train.tsv: 20% of the pairs were dropped, 20 of them as `ratio`. ")
    assert "For other tasks than translation, set max_ratio = 0." in warning
    assert warnings(reported(tmp_path, train, filters=Filters(max_ratio=0.0))) == []


def test_overlap_with_other_splits_is_noticed(tmp_path: Path) -> None:
    train = pairs("en", "de")
    valid = [*train[:3], (train[3][0], "anders gesagt"), *other_pairs("en", "de", 36)]
    report = reported(tmp_path, train, valid)
    assert vars(report.overlaps["valid"]) == {"sources": 4, "pairs": 3}
    [warning] = warnings(report)
    assert warning.startswith("4 of 40 valid sources also occur in training, 3 of them with the same target")
    # One in a hundred may be chance, and is only counted.
    few = reported(tmp_path, train, [train[0], *other_pairs("en", "de", 120)])
    assert (few.overlaps["valid"].sources, warnings(few)) == (1, [])


def test_odd_pairs_in_other_splits_are_kept_and_told(tmp_path: Path) -> None:
    valid = [*other_pairs("en", "de"), ("", "leer"), ("x" * 3_000, "y" * 3_000), ("OK", "OK"), ("OK", "OK")]
    report = reported(tmp_path, pairs("en", "de"), valid)
    assert report.valid == 64
    assert warnings(report) == [
        "1 of 64 valid pairs would be dropped from training as `empty`, first pair 61; they are kept",
        "1 of 64 valid pairs would be dropped from training as `too long`, first pair 62; they are kept",
    ]


def test_pairs_held_out_of_a_mixture_fit_its_filters(tmp_path: Path) -> None:
    chinese = write(tmp_path / "enzh.tsv", pairs("en", "zh", 200))
    parts = Files(write(tmp_path / "ende.tsv", pairs("en", "de"))), Files(chinese, target_language="zh")
    assert warnings(open_corpus(Mixture(parts)).report()) == []


def test_odd_pairs_are_judged_by_the_filters_and_languages_of_their_own_corpus(tmp_path: Path) -> None:
    valid = write(tmp_path / "v.tsv", [*other_pairs("en", "zh"), ("a text", "ein anderer Text " * 20)])
    german, chinese = write(tmp_path / "ende.tsv", pairs("en", "de")), write(tmp_path / "enzh.tsv", pairs("en", "zh"))
    odd = f"{chinese}: 1 of 61 valid pairs would be dropped from training as `ratio`"
    for most, expected in ((0.0, []), (3.0, [odd])):
        own = Filters(max_ratio=most)
        parts = Files(german), Files(chinese, valid_source=valid, target_language="zh", filters=own)
        found = warnings(open_corpus(Mixture(parts)).report())
        assert [warning[: len(words)] for warning, words in zip(found, expected, strict=True)] == expected


def test_swapped_and_equal_sides_are_noticed_in_each_corpus_of_a_mixture(tmp_path: Path) -> None:
    good = Files(write(tmp_path / "ende.tsv", pairs("en", "de")), source_language="en", target_language="de")
    swapped = Files(write(tmp_path / "s.tsv", pairs("de", "en")), source_language="en", target_language="de")
    [warning] = warnings(open_corpus(Mixture((good, swapped))).report())
    assert warning.startswith(f"{swapped.source}: the sides seem to be swapped: source is to be en, but looks like de")
    english = [source for source, _ in pairs("en", "de")]
    alike = write(tmp_path / "alike.tsv", list(zip(english, english[::-1], strict=True)))
    found = warnings(open_corpus(Mixture((good, Files(alike, filters=Filters(max_ratio=99.0))))).report())
    assert [warning for warning in found if warning.startswith(f"{alike}: both sides look like en (100% sure)")]
    crossed = Files(swapped.source, valid_source=write(tmp_path / "v.tsv", other_pairs("en", "de")))
    [warning] = warnings(open_corpus(Mixture((good, crossed))).report())
    assert warning.startswith(f"{crossed.source}: the sides of valid seem to be swapped: ")


def test_many_repetitions_are_told(tmp_path: Path) -> None:
    parts = [Files(write(tmp_path / f"{name}.tsv", pairs(name, "de"))) for name in ("en", "fr")]
    [warning] = warnings(open_corpus(Mixture(tuple(parts), weights=(1.0, 20.0))).report())
    assert warning.startswith(f"{tmp_path}/fr.tsv: each pair comes 20 times an epoch, and may be learned by heart.")


@pytest.mark.parametrize("split", ["", "valid_"])
def test_a_table_beside_a_target_is_told(split: str, tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", pairs("en", "de"))
    beside = write(tmp_path / "beside.tsv", pairs("en", "de"))
    lines = tmp_path / "a.de"
    lines.write_text("".join(f"{target}\n" for _, target in pairs("en", "de")), encoding="utf-8")
    settings = {"source": train, f"{split}source": beside, f"{split}target": str(lines)}
    words = f"{beside} stands beside {lines}, so each of its lines is taken for one sentence, though its name is that"
    assert [warning for warning in open_corpus(Files(**settings)).report().warnings if warning.startswith(words)]


def test_mixtures_are_not_guessed_at_as_a_whole(tmp_path: Path) -> None:
    there, back = write(tmp_path / "ende.tsv", pairs("en", "de")), write(tmp_path / "deen.tsv", pairs("de", "en"))
    parts = Files(there), Files(back)
    report = open_corpus(Mixture(parts, temperature=2.0, weights=(1.0, 1.5))).report()
    assert (warnings(report), report.languages) == ([], {})
    assert "ende.tsv: 300 read, 300 kept\n" in report.to_text()
    assert "deen.tsv: 300 read, 300 kept, each 1.50 times an epoch" in report.to_text()


def test_plain_text_has_one_side(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{TALK['en']}\n" * 60, encoding="utf-8")
    report = open_corpus(Text(str(tmp_path / "a.txt"))).report()
    assert report.warnings == ()
    assert list(report.lengths) == ["target"]
    assert "looks like en (100% sure)\n" in report.to_text()
    bytes_tokenizer = Tokenizer.learn([TALK["en"]], TokenizerSettings("bytes", vocabulary=300))
    assert list(report.with_coverage(bytes_tokenizer).coverage or {}) == ["target"]
