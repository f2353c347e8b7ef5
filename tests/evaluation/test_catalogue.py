"""Which figures there are, and how they are chosen for a language."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.generated import Generated
from regard.data.sources import Files, Mixture, Text
from regard.errors import UsageError
from regard.evaluation.catalogue import Scoring, headline, language_of, tallies, target_language
from regard.evaluation.metrics import Lines
from tests.evaluation.texts import references, spoilt

EXPECTED = references(30)
LINES = Lines(spoilt(EXPECTED, 0.2, 1), [EXPECTED])
CHINESE = Lines(["我们明天在车站等他。"], [["我们明天在火车站等你。"]])


def names(lines: Lines, scoring: Scoring) -> list[str]:
    return [tally.name for tally in tallies(lines, scoring)]


def test_several_bleus_come_from_one_decode_each_with_its_definition() -> None:
    found = {tally.name: tally.signature for tally in tallies(LINES, Scoring(language="de_AT"))}
    assert list(found) == [
        "exact match", "BLEU", "BLEU lower-cased", "BLEU intl", "BLEU char", "BLEU tokenised", "BLEU compounds split",
        "BLEU with 1/2^n", "chrF", "chrF++", "TER",
    ]  # fmt: skip
    assert len(set(found.values())) == len(found)
    assert "case:lc" in found["BLEU lower-cased"]
    assert "tok:like-moses-de|smooth:none" in found["BLEU tokenised"]
    assert "tok:like-moses-de-atat|smooth:none" in found["BLEU compounds split"]


def test_the_tokenizer_asked_for_comes_first_and_none_twice() -> None:
    found = tallies(LINES, Scoring("intl", lowercase=True))
    assert "case:lc|eff:no|tok:intl" in found[1].signature
    assert [tally.name for tally in found][2:4] == ["BLEU 13a", "BLEU char"]
    assert all("case:mixed" not in tally.signature for tally in found)
    assert "BLEU lower-cased" not in [tally.name for tally in found]


def test_a_hyphen_counts_as_in_papers_that_split_compounds() -> None:
    lines = Lines(["der Baden-Badener Zug kam an"], [["der Baden Badener Zug kam an"]])
    found = {tally.name: tally.score().value for tally in tallies(lines, Scoring(language="de"))}
    assert found["BLEU compounds split"] != found["BLEU tokenised"]


@pytest.mark.parametrize(
    ("texts", "tokenize"),
    [
        (["我们在火车站等你。", "OK"], "zh"),
        (["私たちは駅で待っています。"], "char"),
        (["Das Zeichen 火 heißt Feuer."], "13a"),
        (["우리는 역에서 기다립니다."], "13a"),
        (["12:30"], "13a"),
    ],
)
def test_the_script_decides_how_text_is_cut(texts: list[str], tokenize: str) -> None:
    assert Scoring().settled(texts).tokenize == tokenize
    assert Scoring("none").settled(texts).tokenize == "none"


def test_chinese_is_not_cut_at_spaces() -> None:
    assert names(CHINESE, Scoring()) == [
        "exact match", "BLEU", "BLEU lower-cased", "BLEU char", "BLEU with 1/2^n", "chrF", "chrF++", "TER",
    ]  # fmt: skip
    found = {tally.name: tally for tally in tallies(CHINESE, Scoring())}
    assert "tok:zh" in found["BLEU"].signature
    assert "asian:yes" in found["TER"].signature
    assert 0 < found["TER"].score().value < 100
    assert 0 < found["BLEU with 1/2^n"].score().value < 100


def test_systems_are_compared_by_bleu_and_chrf() -> None:
    assert [tally.name for tally in headline(LINES, Scoring())] == ["BLEU", "chrF"]


def test_an_unknown_tokenizer_is_named() -> None:
    with pytest.raises(UsageError, match="must be one of 13a, intl, char, zh, none, but is `moses`"):
        Scoring("moses")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("test.de", "de"),
        ("a/newstest2014.zh.gz", "zh"),
        ("train.BG.tsv.xz", "bg"),
        ("de.txt", None),
        ("test", None),
        ("corpus.no.dups", None),
    ],
)
def test_names_tell_languages(name: str, language: str | None) -> None:
    assert language_of(Path(name)) == language


def test_a_corpus_tells_its_target_language() -> None:
    named, by_file = Files("a.tsv", target_language="de-AT"), Files("a.en", "a.de", test_source="b", test_target="b.fr")
    assert [target_language(data) for data in (named, by_file)] == ["de", "fr"]
    assert target_language(Generated(source="de", target="en")) == "en"
    assert target_language(Files("a.tsv")) is None
    assert target_language(Text("a.de")) is None  # nothing is translated


def test_a_mixture_is_asked_for_the_language_of_its_test_sets() -> None:
    german, french = Files("a.tsv", target_language="de"), Files("b.tsv", target_language="fr")
    tested = Files("c.tsv", test_source="t.tsv", target_language="fr")
    assert target_language(Mixture((german, Files("a.en", "a.de")))) == "de"
    assert target_language(Mixture((german, tested))) == "fr"
    assert target_language(Mixture((german, french))) is None


def test_a_language_is_known_by_its_code_and_the_signature_names_its_rules() -> None:
    with pytest.raises(UsageError, match=r"`language` must be a code out of ar, .*, but is `German`"):
        Scoring(language="German")
    rules = {code: next(tally.signature for tally in tallies(LINES, Scoring(language=code)) if tally.name ==
                        "BLEU tokenised") for code in ("de", "es", "it")}  # fmt: skip
    assert "tok:like-moses-de|" in rules["de"]
    assert "tok:like-moses-it|" in rules["it"]  # its apostrophes
    assert "tok:like-moses-other|" in rules["es"]


def test_lowercase_is_told_by_every_signature_it_changes() -> None:
    upper, lower = Lines(["Ein Haus am See im Wald"], [["ein haus am see im wald"]]), Scoring(lowercase=True)
    assert {tally.name: round(tally.score().value) for tally in tallies(upper, lower)} == {
        **{tally.name: 100 for tally in tallies(upper, lower)}, "exact match": 0, "TER": 0,
    }  # fmt: skip
    assert "case:lc" in tallies(upper, Scoring())[-1].signature  # TER
