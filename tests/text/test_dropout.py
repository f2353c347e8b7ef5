"""BPE-dropout: a pure function of seed and text, drawn as the algorithm says, and never lossy."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.generated import Pair
from regard.data.prepare import encode_in_memory
from regard.errors import DataError
from regard.text import dropout
from regard.text.dropout import MergeDropout, Merges, encode_each
from regard.text.learning import MERGING, Kind
from regard.text.tokenizer import Tokenizer, TokenizerSettings

DRAW = random.Random(3)
WORDS = ["".join(DRAW.choice("abcde") for _ in range(DRAW.randint(1, 9))) for _ in range(80)]
LINES = [" ".join(DRAW.choices(WORDS, k=10)) for _ in range(300)]
PLAIN = {kind: Tokenizer.learn(LINES, TokenizerSettings(kind, 500)) for kind in MERGING}
TEXTS = st.lists(st.text(st.sampled_from("abcde  <é日\n"), max_size=30), max_size=5)


@pytest.mark.parametrize("kind", MERGING)
@given(texts=TEXTS)
def test_without_dropout_nothing_changes(kind: Kind, texts: list[str]) -> None:
    assert PLAIN[kind].with_dropout(0.0, seed=1).encode_all(texts) == PLAIN[kind].encode_all(texts)


@pytest.mark.parametrize("kind", MERGING)
@given(texts=TEXTS)
def test_text_comes_back_as_without_dropout(kind: Kind, texts: list[str]) -> None:
    plain = PLAIN[kind]
    for rate in (0.1, 0.9):
        found = plain.with_dropout(rate, seed=1).encode_all(texts)
        assert [plain.decode(ids) for ids in found] == [plain.decode(ids) for ids in plain.encode_all(texts)]


def test_the_subwords_follow_from_seed_and_text_alone() -> None:
    plain = PLAIN["bpe"]
    found = plain.with_dropout(0.3, seed=7).encode_all(LINES)
    assert plain.with_dropout(0.3, seed=7).encode_all(LINES[40:45]) == found[40:45]
    assert plain.with_dropout(0.3, seed=7).encode_all(LINES[::-1]) == found[::-1]
    for other in (plain.with_dropout(0.3, seed=8), plain.with_dropout(0.3, seed=7, number=1)):
        assert sum(a != b for a, b in zip(other.encode_all(LINES), found, strict=True)) > 200
    # The same word is cut differently from place to place, not only from text to text.
    assert len(set(plain.with_dropout(0.5, seed=1).encode_all([" ".join([WORDS[0]] * 50)])[0])) > 3


def test_the_subwords_never_change_from_version_to_version() -> None:
    """A resumed run must read what it would have read; if this fails, old runs cannot be continued."""
    tokenizer = Tokenizer.learn(["low lower lowest"] * 9, TokenizerSettings(vocabulary=40))
    found = tokenizer.with_dropout(0.3, seed=1).encode_all(["low lower", "lowest"])
    assert tokenizer.labels(found[0]) == ("▁low", "▁", "l", "o", "w", "e", "r")
    assert tokenizer.labels(found[1]) == ("▁lo", "w", "e", "st")


def test_many_words_and_cuts_at_once_are_cut_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short words, those too long for a table of their own length, and tables with room for a few words only."""
    texts = [*LINES[:40], "", "abc" * 20, f"{'edcba' * 5} {'ab' * 11} a", " ".join(["abcde" * 4, "é日"] * 3)]
    cuts = [PLAIN["bpe"].with_dropout(0.3, 7, number) for number in range(3)]
    alone = [[_by_hand(PLAIN["bpe"], text, 0.3, (7, number)) for text in texts] for number in range(3)]
    assert [cut.encode_all(texts) for cut in cuts] == alone
    for size in (1, 64):
        monkeypatch.setattr(dropout, "TABLE", size)
        rows = encode_each(cuts[0].merges, [cut.draws for cut in cuts], texts)
        assert [row.lists() for row in rows] == alone


def test_words_are_looked_up_once_for_all_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts, seen, atoms = [PLAIN["bpe"].with_dropout(0.3, 7, number) for number in range(3)], [], Merges.atoms
    monkeypatch.setattr(Merges, "atoms", lambda merges, texts: seen.append(len(texts)) or atoms(merges, texts))
    encode_in_memory([(line,) for line in LINES], *cuts)
    assert seen == [len(LINES)]


def _by_hand(tokenizer: Tokenizer, text: str, rate: float, seed: tuple[int, int]) -> list[int]:
    """One text, one word, one merge after another: what the draws are said to follow from."""
    model = json.loads(tokenizer.to_json())["model"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
    key = b"".join(number.to_bytes(8, "little") for number in seed)
    start = int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "little")
    found: list[str] = []
    for number, word in enumerate(text.split()):
        first = _mixed(start + number)
        parts = [(char if char in model["vocab"] else "<unk>", first + place) for place, char in enumerate(f"▁{word}")]
        while True:
            parts = [(part, _mixed(draw)) for part, draw in parts]
            kept = [
                (ranks[one, two], place)
                for place, ((one, draw), (two, _)) in enumerate(itertools.pairwise(parts))
                if (one, two) in ranks and draw >= int(rate * 2.0**64)
            ]
            if not kept:
                break
            place = min(kept)[1]
            (one, draw), (two, _) = parts[place : place + 2]
            parts[place : place + 2] = [(one + two, draw)]
        found += [part for part, _ in parts]
    return [model["vocab"][part] for part in found]


def _mixed(number: int) -> int:
    """SplitMix64 (Steele et al. 2014), of which Python's numbers have too many bits."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % 2**64
    return number ^ (number >> 31)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_cuts_are_as_frequent_as_the_algorithm_says(rate: float) -> None:
    """The share of each cut of a word, against a plain reading of the paper: drop each merge, then do the best."""
    tokenizer = PLAIN["bpe"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(json.loads(tokenizer.to_json())["model"]["merges"])}
    draw, times = random.Random(1), 4_000
    word = max(WORDS, key=len)

    def cut() -> tuple[str, ...]:
        parts = list(f"▁{word}")
        while kept := [(ranks[pair], place) for place, pair in enumerate(itertools.pairwise(parts))
                       if pair in ranks and draw.random() >= rate]:  # fmt: skip
            place = min(kept)[1]
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return tuple(parts)

    texts = [f"{word} {number}" for number in range(times)]
    found = Counter(
        tokenizer.labels(ids[: len(ids) - 1 - len(text.split(" ")[1])])
        for text, ids in zip(texts, tokenizer.with_dropout(rate, seed=1).encode_all(texts), strict=True)
    )
    expected = Counter(cut() for _ in range(times))
    assert max(expected.values()) < times
    for parts in expected | found:
        # Five standard deviations of a share that is estimated twice.
        share = (expected[parts] + found[parts]) / (2 * times)
        assert abs(expected[parts] - found[parts]) <= 5 * (2 * times * share * (1 - share)) ** 0.5 + 3, parts


def test_training_text_is_cut_several_times_if_asked() -> None:
    plain = PLAIN["bpe"]
    assert plain.training_cuts(TokenizerSettings(), seed=1) == [plain]
    cuts = plain.training_cuts(TokenizerSettings(dropout=0.2, dropout_cuts=3), seed=1)
    assert len({str(cut.encode_all(LINES)) for cut in cuts}) == 3
    assert len({cut.to_json() for cut in cuts}) == 3
    for cut in cuts:
        assert isinstance(cut, MergeDropout)
        assert (cut.size, cut.specials, cut.source) == (plain.size, plain.specials, cut)


def test_each_language_is_cut_by_its_own_vocabulary() -> None:
    settings = TokenizerSettings(vocabulary=40, shared=False, dropout=0.2)
    pair = Tokenizer.learn_pair([Pair("abc abc", "xyz xyz")], settings)
    cut = pair.training_cuts(settings, seed=1)[0]
    assert pair.source.decode(cut.source.encode_all(["abc"])[0]) == "abc"
    assert pair.decode(cut.encode_all(["xyz"])[0]) == "xyz"
    assert "abc" in cut.to_json()
    assert "xyz" in cut.to_json()


def test_a_vocabulary_without_merges_and_no_texts_at_all() -> None:
    bare = Tokenizer.learn(["a b"], TokenizerSettings(vocabulary=7))
    assert bare.with_dropout(0.5, seed=1).encode_all([]) == []
    assert bare.with_dropout(0.5, seed=1).encode_all(["", "ab"]) == [[], bare.encode("ab")]


def test_a_lone_surrogate_is_named() -> None:
    with pytest.raises(DataError, match="text 2: must be Unicode"):
        PLAIN["bpe"].with_dropout(0.1, seed=1).encode_all(["fine", "so\udcff"])
