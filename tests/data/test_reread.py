"""Training pairs come again as they came the first time, and the files are read once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import status
from regard.data import reread
from regard.data.corpus import Corpus, Files, LanguagePair, open_corpus
from regard.data.generated import Pair
from regard.data.reread import TrainingPairs
from regard.errors import MissingError
from regard.status import StatusLine

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LANGUAGES = st.sampled_from([None, "de", "zh-Hans"])
PAIRS = st.lists(st.builds(Pair, TEXT, TEXT) | st.builds(LanguagePair, TEXT, TEXT, LANGUAGES, LANGUAGES))


class Once(Corpus):
    """A corpus that can be read once."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._once = iter([pairs])

    def train(self):  # type: ignore[no-untyped-def]
        yield from next(self._once)


@given(PAIRS, st.integers(1, 4), st.sampled_from([0, 50, 10**6]))
def test_pairs_come_again(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], block: int, most: int) -> None:
    folder = tmp_path_factory.mktemp("copies") / "deep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reread, "BLOCK", block)
        patch.setattr(reread, "IN_MEMORY", most)
        with TrainingPairs(Once(pairs), folder) as found:
            assert list(found) == pairs
            assert list(found) == pairs
            # Two at a time, in turns.
            assert list(zip(found, found, strict=True)) == list(zip(pairs, pairs, strict=True))
    # Only a large copy needs the folder, and nothing is left in it.
    assert list(folder.glob("*")) == []
    assert folder.exists() or not pairs or most


def test_a_status_tells_how_many_were_read_and_not_what_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "BLOCK", 2)
    monkeypatch.setattr(status, "PAUSE_ELSEWHERE", 0.0)
    shown = StringIO()
    with TrainingPairs(Once([Pair("a", "b")] * 3), tmp_path, StatusLine(shown)) as pairs:
        assert len(list(pairs)) == len(list(pairs)) == 3
    assert shown.getvalue() == "read 2 examples\nread 3 examples\n"


def test_who_stops_halfway_starts_again(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [json.dumps({"source": f"a\n{number}", "target": f"b\t{number}"}) + "\n" for number in range(60)]
    file.write_text("".join(lines))
    corpus = open_corpus(Files(str(file)))
    with TrainingPairs(corpus, tmp_path) as pairs:
        assert len(list(islice(pairs, 10))) == 10
        everything = list(pairs)
        file.unlink()
        assert list(pairs) == everything
        assert len(everything) + len(corpus.valid()) == 60
        assert corpus.report().train == len(everything)
    with pytest.raises(MissingError, match="no such file"):
        list(pairs)
