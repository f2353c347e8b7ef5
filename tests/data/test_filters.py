"""What is dropped, why, and that every pair is accounted for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import filters
from regard.data.filters import (
    EXAMPLE_LENGTH,
    EXAMPLES,
    NO_FILTERS,
    REASONS,
    Filters,
    Kept,
    Sieve,
    count_letters,
    keys_of,
    pair_keys_of,
    scripts_of,
)
from regard.data.formats import Block

ENGLISH, GERMAN = "The house is green.", "Das Haus ist grün."
RUSSIAN, CHINESE, JAPANESE, GREEK = (
    "Дом стоит на холме.",
    "房子是绿色的。",
    "それは緑の家です。",
    "Το σπίτι είναι πράσινο.",
)

pieces = st.sampled_from(["a", "b ", " ", "ü", "\0", "\ufffd", "\x85", "д", "字", "\u2028", "word ", "long" * 90])
texts = st.lists(pieces, max_size=8).map("".join)
lists_of_pairs = st.lists(st.tuples(texts, texts), max_size=40)
settings = st.builds(
    Filters, st.booleans(), st.booleans(), st.sampled_from([0, 10, 400]), st.sampled_from([0, 1, 3]),
    st.sampled_from([0.0, 1.0, 2.0]), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.booleans(),
)  # fmt: skip


def block(*pairs: tuple[str, str], first: int = 1) -> Block:
    return Block("a.en", first, [source for source, _ in pairs], [target for _, target in pairs])


def reasons(
    *pairs: tuple[str, str], languages: tuple[str | None, str | None] = (None, None), **changes: Any
) -> list[str]:
    """Why each pair is dropped, if it is; one at a time, so that none is a duplicate of another."""
    found = []
    for pair in pairs:
        sieve = Sieve(Filters(**changes), languages)
        sieve.sift(block(pair))
        found.append(next((reason for reason, dropped in sieve.dropped.items() if dropped.count), ""))
    return found


@given(st.lists(lists_of_pairs, max_size=4), settings)
def test_every_pair_is_kept_or_counted_once(blocks: list[list[tuple[str, str]]], chosen: Filters) -> None:
    sieve, kept, first = Sieve(chosen), [], 1
    for pairs in blocks:
        found = sieve.sift(block(*pairs, first=first))
        kept += list(zip(found.sources, found.targets, strict=True))
        assert len(found.sources) == len(found.source_keys) == len(found.pair_keys)
        first += len(pairs)
    everything = [pair for pairs in blocks for pair in pairs]
    assert sieve.read == len(everything)
    assert sieve.kept == len(kept)
    assert sieve.kept + sum(dropped.count for dropped in sieve.dropped.values()) == sieve.read
    # In order, nothing invented, and the examples stand where they say they do.
    rest = iter(everything)
    assert all(pair in rest for pair in kept)
    for dropped in sieve.dropped.values():
        assert len(dropped.examples) == min(dropped.count, EXAMPLES)
        for example in dropped.examples:
            source, target = everything[example.line - 1]
            assert (example.source, example.target) == (source[:EXAMPLE_LENGTH], target[:EXAMPLE_LENGTH])
    if chosen.drop_duplicates:
        assert max(Counter(kept).values(), default=1) == 1


@given(st.lists(lists_of_pairs, max_size=3))
def test_no_filters_keep_everything(blocks: list[list[tuple[str, str]]]) -> None:
    sieve = Sieve(NO_FILTERS)
    for pairs in blocks:
        found = sieve.sift(block(*pairs))
        assert list(zip(found.sources, found.targets, strict=True)) == pairs


@given(lists_of_pairs, st.integers(1, 7), settings)
def test_how_lines_come_in_blocks_changes_nothing(pairs: list[tuple[str, str]], size: int, chosen: Filters) -> None:
    # Scripts are learned from the first block on, so that there they have to be known.
    whole, parts = (Sieve(chosen, ("en", "de")) for _ in range(2))
    together = whole.sift(block(*pairs))
    found = [parts.sift(block(*pairs[at : at + size], first=at + 1)) for at in range(0, len(pairs), size)]
    assert [text for part in found for text in part.sources] == together.sources
    assert parts.dropped == whole.dropped


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((ENGLISH, GERMAN), ""),
        (("", GERMAN), "empty"),
        ((ENGLISH, " \u3000\t"), "empty"),
        (("a\0b", GERMAN), "damaged"),
        ((ENGLISH, "gr\ufffdn"), "damaged"),
        ((ENGLISH, "grÃ\x9fn"), "damaged"),
        (("sides \u2028 apart", "Seiten \u2029 getrennt"), ""),
        ((ENGLISH, "x" * 1_000_000), "too long"),
        (("x" * 2_001, "y" * 2_001), "too long"),
        (("x" * 2_000, "y" * 2_000), ""),
        (("a " * 251, "b " * 250), "too long"),
        (("a  " * 250, "b " * 250), ""),
        ((ENGLISH, GERMAN * 10), "ratio"),
        (("No.", "Auf gar keinen Fall, mein Lieber."), ""),
        (("a" * 160, "房子是绿色的" * 5), ""),
        ((ENGLISH, ENGLISH), "identical"),
        ((ENGLISH, ENGLISH + " "), ""),
    ],
)
def test_the_defaults(pair: tuple[str, str], reason: str) -> None:
    assert reasons(pair) == [reason]


def test_each_can_be_switched_off() -> None:
    faulty: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
        "empty": (("", ""), {"drop_empty": False, "drop_identical": False}),
        "damaged": (("\0", "x"), {"drop_damaged": False}),
        "too long": (("x " * 5_000, "y " * 5_000), {"max_characters": 0, "max_words": 0}),
        "ratio": (("x", "y" * 200), {"max_ratio": 0.0}),
        "identical": (("x", "x"), {"drop_identical": False}),
        "script": ((ENGLISH, RUSSIAN), {"min_script": 0.0}),
    }
    assert [*faulty, "duplicate"] == list(REASONS)
    for reason, (pair, off) in faulty.items():
        assert reasons(pair, languages=("en", "de")) == [reason]
        assert reasons(pair, languages=("en", "de"), **off) == [""]
    for drop, kept in ((True, 1), (False, 2)):
        sieve = Sieve(Filters(drop_duplicates=drop))
        sieve.sift(block((ENGLISH, GERMAN), (ENGLISH, GERMAN)))
        assert sieve.kept == kept


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_words", -1, "`max_words` must be at least 0, which is no limit, but is -1"),
        ("max_characters", -5, "`max_characters` must be at least 0"),
        ("max_ratio", 0.5, "`max_ratio` must be at least 1, or 0 for no limit, but is 0.5"),
        ("max_ratio", float("nan"), "`max_ratio` must be at least 1"),
        ("min_script", 1.5, "`min_script` must be from 0 to 1, but is 1.5"),
    ],
)
def test_limits_that_cannot_be_are_named(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(Filters(), **{name: value})


# ---- scripts


@pytest.mark.parametrize(
    ("languages", "target", "is_foreign"),
    [
        (("en", "de"), RUSSIAN, True),
        (("en", "de"), CHINESE, True),
        (("en", "de"), f"Das Wort {GREEK[3:8]} ist griechisch.", False),
        (("en", "zh"), CHINESE, False),
        (("en", "zh-Hans"), RUSSIAN, True),
        (("en", "zh"), "GIMP README", False),  # names and code may be written as they are
        (("en", "ja"), JAPANESE, False),
        (("en", "zh"), "それはあれです", True),
        (("en", "ru"), f"{RUSSIAN[:3]} GIMP 2.10 README, INSTALL und Größe", False),
        (("en", "de"), "123 !? …", False),
        (("en", "de"), "ab где", True),  # two letters of five
        (("en", "de"), "abc где", False),
    ],
)
def test_mostly_letters_of_another_script_are_found(languages: tuple[str, str], target: str, is_foreign: bool) -> None:
    assert reasons((ENGLISH, target), languages=languages, max_ratio=0.0) == ["script" if is_foreign else ""]


def test_without_a_language_the_first_lines_say_the_script() -> None:
    sieve = Sieve(Filters(drop_duplicates=False))
    sieve.sift(block(*[(ENGLISH, CHINESE)] * 40, (ENGLISH, RUSSIAN)))
    sieve.sift(block((RUSSIAN, CHINESE), (ENGLISH, CHINESE), first=42))
    assert sieve.dropped["script"].count == 2
    assert [example.line for example in sieve.dropped["script"].examples] == [41, 42]
    assert sieve.scripts == (("Latin",), ("Han",))


def test_a_side_of_two_scripts_may_have_both() -> None:
    sieve = Sieve(Filters(drop_duplicates=False))
    sieve.sift(block(*[(ENGLISH, RUSSIAN), (ENGLISH, GREEK)] * 5, (ENGLISH, CHINESE)))
    assert (sieve.kept, sieve.dropped["script"].count) == (10, 1)


def test_letters_are_counted_by_script() -> None:
    assert count_letters(["abc 12", "Größe", RUSSIAN]) == {"Latin": 8, "Cyrillic": 15}
    assert count_letters(["ascii only"]) == {"Latin": 9}
    assert count_letters(["それは緑"]) == {"Kana": 3, "Han": 1}
    assert count_letters(["12 !?", "…"]) == {}
    # No letter of one script counts for another.
    for script, pattern in filters.LETTERS.items():
        letters = [chr(code) for code in [*range(0x10000), 0x20000] if pattern.match(chr(code))]
        assert count_letters(letters) == {script: len(letters)}


def test_languages_have_scripts() -> None:
    assert scripts_of("de") == {"Latin"}
    assert scripts_of("ZH_hant") == {"Han"}
    assert scripts_of("ja") == {"Han", "Kana"}
    assert scripts_of("sr") == scripts_of("xx") == scripts_of(None) == frozenset()


# ---- keys


def test_duplicates_are_found_across_blocks_whatever_came_between() -> None:
    random = np.random.default_rng(5)
    numbers = random.integers(0, 3_000, 10_000).tolist()
    sieve, kept = Sieve(Filters()), []
    for at in range(0, len(numbers), 97):
        kept += sieve.sift(block(*[(f"number {n}", f"Zahl {n}") for n in numbers[at : at + 97]], first=at + 1)).sources
    assert kept == [f"number {n}" for n in dict.fromkeys(numbers)]
    assert sieve.dropped["duplicate"].count == len(numbers) - len(kept)


def test_a_pair_and_its_reverse_or_another_division_are_different() -> None:
    a, b = keys_of(["ab", "a", "", "b"]), keys_of(["c", "bc", "abc", "ac"])
    assert len({*pair_keys_of(a, b).tolist(), *pair_keys_of(b, a).tolist()}) == 8


def test_keys_are_the_same_on_every_machine() -> None:
    sources = keys_of(["", "ü"])
    assert sources.tolist() == [0xE3B0C44298FC1C14, 0x607474CA475A9724]
    # Those of pairs as well: they say which pairs of a mixture are repeated, and prepared corpora outlive a version.
    assert pair_keys_of(sources, keys_of(["a", "b"])).tolist() == [0xF40EE5E57E2BBB6E, 0xBEC5456C48452F3E]


def test_keys_take_eight_bytes_each() -> None:
    seen = filters._Seen()
    for at in range(50):
        assert not seen.add(keys_of(f"{at} {n}" for n in range(100))).any()
    assert sum(run.nbytes for run in seen._runs) == 5_000 * 8
    assert len(seen._runs) < 13  # each is more than twice as long as the next
    assert seen.add(keys_of(["0 0", "49 99", "new", "new"])).tolist() == [True, True, False, True]


def test_kept_pairs_carry_their_keys() -> None:
    found: Kept = Sieve(Filters()).sift(block((ENGLISH, GERMAN), ("", ""), ("b", "B")))
    assert found.source_keys.tolist() == keys_of([ENGLISH, "b"]).tolist()
    assert found.pair_keys.tolist() == pair_keys_of(keys_of([ENGLISH, "b"]), keys_of([GERMAN, "B"])).tolist()
