"""The promises of the generated corpus: one-to-one, disjoint, deterministic, any size, clean text."""

import subprocess
import sys
import unicodedata
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import generated
from regard.data.generated import KINDS, Generated, Language, Pair, Splits, capacity, generate
from regard.data.wording import words
from regard.errors import UsageError

DIRECTIONS: list[tuple[Language, Language]] = list(permutations(("en", "de", "fr", "zh"), 2))


def everything(splits: Splits) -> list[Pair]:
    return splits.train + splits.valid + splits.test


@pytest.mark.parametrize(("source", "target"), DIRECTIONS)
def test_no_source_and_no_target_occurs_twice(source: Language, target: Language) -> None:
    splits = generate(Generated(source=source, target=target, pairs=1000, valid=100, test=200))
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (1000, 100, 200)
    pairs = everything(splits)
    assert len({pair.source for pair in pairs}) == len(pairs)
    assert len({pair.target for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("language", ["en", "de", "fr", "zh"])
def test_kinds_never_share_a_line(language: Language) -> None:
    # The first lines of each kind, small numbers and early dates, are where kinds would meet.
    sources = [kind.source(language, i, i) for kind in KINDS for i in range(min(300, kind.size))]
    targets = [kind.target(language, i, i) for kind in KINDS for i in range(min(300, kind.size))]
    assert len(set(sources)) == len(sources)
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_last_line_of_each_kind_exists_and_differs_from_the_first(kind: generated.Kind) -> None:
    for language in ("en", "de", "fr", "zh"):
        assert kind.source(language, kind.size - 1, 0) != kind.source(language, 0, 0)
        assert kind.target(language, kind.size - 1, 0) != kind.target(language, 0, 0)


def test_text_is_normalised_and_has_only_plain_spaces() -> None:
    directions: tuple[tuple[Language, Language], ...] = (("en", "fr"), ("de", "zh"))
    for source, target in directions:
        for pair in everything(generate(Generated(source=source, target=target, pairs=1000))):
            for text in (pair.source, pair.target):
                assert text == unicodedata.normalize("NFC", text).strip()
                assert "  " not in text
                assert not {c for c in text if c.isspace()} - {" "}
                assert "{" not in text


def test_same_settings_same_corpus_and_another_seed_another() -> None:
    settings = Generated(pairs=500, valid=50, test=50)
    assert generate(settings) == generate(settings)
    other = generate(Generated(pairs=500, valid=50, test=50, seed=2))
    assert set(other.test) != set(generate(settings).test)


def test_the_corpus_is_the_same_in_another_process() -> None:
    # The order must not lean on hash(), which differs from process to process.
    program = (
        "from regard.data.generated import *;"
        "print([p.target for p in generate(Generated(target='zh', pairs=30, valid=0, test=30)).test])"
    )
    run = [sys.executable, "-X", "utf8", "-c", program]
    here = [pair.target for pair in generate(Generated(target="zh", pairs=30, valid=0, test=30)).test]
    assert subprocess.run(run, capture_output=True, check=True, encoding="utf8").stdout.strip() == str(here)


def test_the_test_lines_do_not_depend_on_the_other_sizes() -> None:
    small, large = generate(Generated(pairs=10, valid=0)), generate(Generated(pairs=1000, valid=100))
    assert small.test == large.test


def test_one_seed_says_the_same_in_every_language() -> None:
    german, chinese = (generate(Generated(target=target, pairs=300)) for target in ("de", "zh"))
    assert [pair.source for pair in everything(german)] == [pair.source for pair in everything(chinese)]


def test_the_default_mixture_has_the_stated_shares() -> None:
    assert sum(kind.share for kind in KINDS) == 100
    rooms = [kind.size for kind in KINDS]
    for kind, lines in zip(KINDS, generated._allot(10_000, rooms), strict=True):
        assert lines == pytest.approx(100 * kind.share, abs=15)


@given(st.lists(st.integers(0, 50), min_size=len(KINDS), max_size=len(KINDS)), st.data())
def test_allotment_gives_exactly_what_was_asked_within_the_room(room: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, sum(room)))
    given_lines = generated._allot(count, room)
    assert sum(given_lines) == count
    assert all(0 <= lines <= size for lines, size in zip(given_lines, room, strict=True))


@given(st.integers(0, 300), st.integers())
def test_shuffling_gives_every_number_once(size: int, seed: int) -> None:
    assert sorted(generated._shuffled(size, Random(seed))) == list(range(size))


def test_numbers_below_a_hundred_are_only_trained_on() -> None:
    splits = generate(Generated(pairs=10_000))
    assert {"zero", "0"} & {pair.source for pair in splits.train}
    trained = {pair.target for pair in splits.train}
    assert {words("de", number) for number in range(100)} <= trained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "de", "target": "de"}, "data.source and data.target must differ, but both are 'de'"),
        ({"source": "es"}, "data.source must be one of en, de, fr, zh, but is 'es'"),
        ({"pairs": 0}, "data.pairs must be at least 1, but is 0"),
        ({"test": -1}, "data.test must be at least 0, but is -1"),
        ({"pairs": 3_000_000}, f"data.pairs must be at most {capacity() - 1000} "),
        ({"valid": 3_000_000}, f"data.valid \\+ data.test must be at most {capacity() - 100}, "),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Generated(**arguments)  # type: ignore[arg-type]


def test_there_is_room_for_a_million_pairs() -> None:
    assert Generated(pairs=1_000_000).pairs == 1_000_000
    assert Generated(pairs=capacity() - 1000)


def test_a_full_corpus_uses_every_line_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    small = tuple(kind for kind in KINDS if kind.size < 3000)
    monkeypatch.setattr(generated, "KINDS", small)
    splits = generate(Generated(pairs=capacity() - 20, valid=10, test=10))
    assert len({pair.target for pair in everything(splits)}) == sum(kind.size for kind in small)


def test_reading_the_settings_loads_no_language_library() -> None:
    program = (
        "import sys, regard.data.generated as g; g.Generated(); "
        "sys.exit(any(name in sys.modules for name in ('babel', 'num2words')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_module_introduces_itself(capsys: pytest.CaptureFixture[str]) -> None:
    generated._introduce()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "en → de",
        "en → fr",
        "en → zh",
        "de → en",
    ]
    assert len(lines) == 4 * 15
