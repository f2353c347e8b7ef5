"""From settings to token ids: pairs, several languages and plain text, from memory and from files."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import status
from regard.batch import IGNORED
from regard.data import dataset
from regard.data.batching import Batches, BatchSettings
from regard.data.corpus import CorpusSettings, Files, LanguagePair, Mixture, Text, open_corpus
from regard.data.dataset import Dataset, read_dataset
from regard.data.generated import Generated
from regard.data.store import TokenStore
from regard.errors import DataError, UsageError
from regard.status import StatusLine
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.tiny import write_lines

SMALL = TokenizerSettings(vocabulary=60)


def files(place: Path, name: str, language: str) -> Files:
    sources = write_lines(place / f"{name}.en", [f"the number {number} of {name}" for number in range(120)])
    targets = write_lines(place / f"{name}.{language}", [f"die Zahl {number}, {name}" for number in range(120)])
    return Files(str(sources), str(targets), target_language=language)


def read(place: Path, settings: CorpusSettings, text: TokenizerSettings = SMALL, **given: Tokenizer) -> Dataset:
    return read_dataset(settings, text, 1, cache=place / "cache", status=StatusLine(io.StringIO()), **given)


def same(one: TokenStore, other: TokenStore) -> bool:
    assert (one.source is None) == (other.source is None)
    sides = [(one.target, other.target)]
    if one.source is not None and other.source is not None:
        sides.append((one.source, other.source))
    return all(np.array_equal(a.ids, b.ids) and np.array_equal(a.begin, b.begin) for a, b in sides)


def test_pairs_become_tokens(tmp_path: Path) -> None:
    data = read(tmp_path, files(tmp_path, "a", "de"))
    assert data.report is not None
    assert data.report.train == len(data.train)
    assert data.report.coverage is not None
    assert len(data.train) + len(data.valid) == 120
    assert len(data.valid) == len(data.valid_pairs)
    assert data.valid_bytes == sum(len(f"{pair.target}\n".encode()) for pair in data.valid_pairs)
    for number, pair in enumerate(data.valid_pairs):
        assert data.valid.source is not None
        assert data.tokenizer.decode(data.valid.source[number]) == pair.source
        assert data.tokenizer.decode(data.valid.target[number]) == pair.target


@pytest.mark.parametrize("text", [SMALL, TokenizerSettings(vocabulary=60, dropout=0.2, dropout_cuts=3)])
def test_tokens_from_files_are_those_from_memory(
    text: TokenizerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = files(tmp_path, "a", "de")
    memory = read(tmp_path, settings, text)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(dataset, "FILED", 0)
    filed = read(tmp_path, settings, text)
    again = read(tmp_path, settings, text, tokenizer=memory.tokenizer)
    assert same(memory.train, filed.train)
    assert same(memory.train, again.train)
    assert again.report is None
    assert len([place for place in (tmp_path / "cache").iterdir() if place.is_dir()]) == 1
    # What is judged by is never cut by chance.
    assert len(memory.train) == (120 - len(memory.valid)) * (text.dropout_cuts if text.dropout else 1)
    assert same(memory.valid, filed.valid)
    assert memory.valid.target[0] == memory.tokenizer.encode(memory.valid_pairs[0].target)


def test_what_is_cut_several_times_is_kept_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To cut it again takes a run that goes on as long as it took the first time."""
    settings = files(tmp_path, "a", "de")
    size = sum(file.stat().st_size for file in open_corpus(settings).origin().files)
    monkeypatch.setattr(dataset, "FILED", 3 * size)
    for cuts, kept in ((None, False), (2, False), (3, True)):
        text = SMALL if cuts is None else TokenizerSettings(vocabulary=60, dropout=0.2, dropout_cuts=cuts)
        read(tmp_path, settings, text)
        assert (tmp_path / "cache").exists() == kept


@pytest.mark.parametrize("shared", [True, False])
def test_each_stage_tells_how_far_it_is(shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "PAUSE_ELSEWHERE", 0.0)
    stream, text = io.StringIO(), TokenizerSettings(vocabulary=60, shared=shared, dropout=0.2, dropout_cuts=2)
    found = read_dataset(files(tmp_path, "a", "de"), text, 1, cache=tmp_path, status=StatusLine(stream))
    examples, told = len(found.train), stream.getvalue()
    lines = examples // 2 * (2 if shared else 1)
    for message in (f"read {examples // 2} examples", f"counted the words of {lines} lines", "cut 0 of ",
                    "of 60 tokens", f"encoded {examples} examples, {found.train.tokens:,} tokens"):  # fmt: skip
        assert message in told


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_large_corpus_is_read_once_and_known_again(
    given: bool, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "FILED", 0)
    text, settings = TokenizerSettings(vocabulary=60, shared=shared), files(tmp_path, "a", "de")
    if given:
        settings = replace(settings, valid_source=settings.source, valid_target=settings.target)
    first = read(tmp_path, settings, text)
    with monkeypatch.context() as patch:
        patch.setattr("regard.data.corpus.partner_blocks", lambda *_: pytest.fail("read again"))
        again = read(tmp_path, settings, text)
        resumed = read(tmp_path, settings, text, tokenizer=first.tokenizer)
    assert first.report is not None
    assert again.report is not None
    assert again.tokenizer.to_json() == first.tokenizer.to_json()
    assert again.valid_pairs == resumed.valid_pairs == first.valid_pairs
    assert again.report.to_text() == first.report.to_text()
    assert again.report.to_json() == first.report.to_json()
    assert again.report == replace(first.report, sample=())
    assert again.fingerprint == first.fingerprint
    assert resumed.report is None
    assert same(first.train, again.train)
    assert same(first.valid, again.valid)


def test_what_is_known_is_that_of_the_same_files_and_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "FILED", 0)
    settings = files(tmp_path, "a", "de")

    def kept() -> int:
        return len(list((tmp_path / "cache").glob("*.json"))) - (tmp_path / "cache/files.json").exists()

    read(tmp_path, settings)
    read(tmp_path, settings)
    assert kept() == 1
    read(tmp_path, settings, TokenizerSettings(vocabulary=70))
    test = str(write_lines(tmp_path / "t.tsv", ["t\tT"]))
    read(tmp_path, replace(settings, test_source=test))
    assert kept() == 3
    write_lines(tmp_path / "a.en", [f"another number {number}" for number in range(120)])
    assert read(tmp_path, settings).tokenizer.encode("another") != []
    assert kept() == 4
    # A damaged one is found out, and written anew.
    for place in (tmp_path / "cache").glob("*.json"):
        place.write_bytes(place.read_bytes().replace(b"number", b"Number"))
    assert "Number" not in str(read(tmp_path, settings).valid_pairs)
    assert kept() == 4


def test_a_run_that_goes_on_is_given_the_same_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = files(tmp_path, "a", "de")
    data = read(tmp_path, settings)
    before = json.loads(json.dumps(data.fingerprint.to_json()))

    def go_on(other: CorpusSettings) -> Dataset:
        return read_dataset(other, SMALL, 1, data.tokenizer, tmp_path / "cache", before=before)

    assert same(go_on(settings).train, data.train)
    with pytest.raises(DataError, match="but its files are read in another way"):
        go_on(replace(settings, target_language="fr"))
    with pytest.raises(DataError, match=r"v\.tsv is read, too"):
        go_on(replace(settings, valid_source=str(write_lines(tmp_path / "v.tsv", ["v\tV"]))))
    with pytest.raises(DataError, match=r"a\.en is not read any more"):
        go_on(Files(settings.target or "", settings.target))
    write_lines(tmp_path / "a.en", [f"the number {number}" for number in range(120)])
    with pytest.raises(DataError, match=r"data: a run must go on with the corpus .* but .*a\.en has changed\. Res"):
        go_on(settings)


def test_what_comes_through_a_pipe_is_known_by_what_came_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(lines: int, **given: Any) -> Dataset:
        text = "".join(f"number {number}\tZahl {number}\n" for number in range(lines))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return read_dataset(Files("-", format="tsv"), SMALL, 1, cache=tmp_path / "cache", **given)

    first = piped(120)
    before = first.fingerprint.to_json()
    assert before["files"] == {}
    assert same(piped(120, tokenizer=first.tokenizer, before=before).train, first.train)
    with pytest.raises(DataError, match=r"but the corpus has \d+ examples, not \d+\."):
        piped(110, tokenizer=first.tokenizer, before=before)


@pytest.mark.parametrize("shared", [True, False])
def test_sources_ask_for_their_language(shared: bool, tmp_path: Path) -> None:
    parts = files(tmp_path, "a", "de"), files(tmp_path, "b", "fr")
    data = read(tmp_path, Mixture(parts, tag_target=True), TokenizerSettings(vocabulary=60, shared=shared))
    tags = data.tokenizer.source.languages
    assert list(tags) == ["de", "fr"]
    for number, pair in enumerate(data.valid_pairs):
        assert isinstance(pair, LanguagePair)
        assert data.valid.source is not None
        first, *rest = data.valid.source[number]
        assert first == tags[pair.target_language or ""]
        assert rest == data.tokenizer.source.encode(pair.source)
    assert data.train.source is not None
    firsts = {data.train.source[number][0] for number in range(len(data.train))}
    assert firsts == set(tags.values())
    # Without tags, nothing of this.
    plain = read(tmp_path, Mixture(parts))
    assert plain.tokenizer.languages == {}


@pytest.mark.parametrize("given", [True, False])
def test_plain_text_is_for_language_models(given: bool, tmp_path: Path) -> None:
    lines = [f"Zeile {number} é" if number % 7 else "" for number in range(400)]
    valid = ["Zeile 7", "", "é"]
    text = str(write_lines(tmp_path / "a.txt", lines))
    data = read(tmp_path, Text(text, valid=str(write_lines(tmp_path / "v.txt", valid)) if given else None))
    assert data.train.source is None
    assert data.valid.source is None
    held = valid if given else lines[-20:]
    assert [pair.target for pair in data.valid_pairs] == held
    assert data.valid_bytes == len("".join(f"{line}\n" for line in held).encode())
    assert data.report is not None
    assert data.report.train == len(data.train) == (400 if given else 380)
    assert "source" not in data.report.lengths
    settings = BatchSettings(tokens=64, layout="blocks", row=16)
    for store in (data.train, data.valid):
        batches = Batches(store, data.tokenizer.specials, settings, seed=1)
        labels = [batches[step].labels_BT for step in range(batches.per_epoch)]
        assert sum(int((some != IGNORED).sum()) for some in labels) == store.tokens


def test_generated_pairs_and_a_run_without_validation() -> None:
    data = read_dataset(Generated(pairs=50, valid=3), SMALL, 1)
    assert (len(data.train), len(data.valid)) == (50, 3)
    with pytest.raises(UsageError, match="at least 1 example to validate on"):
        read_dataset(Generated(pairs=50, valid=0), SMALL, 1)


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs/data.md"
    example = page.read_text(encoding="utf-8").split("```python\n")[-1].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    lines = [f"Chapter {number}: It was a dark and stormy night." for number in range(400)]
    write_lines(tmp_path / "book.txt", lines)
    exec(compile(example, str(page), "exec"), {})
    shown = capsys.readouterr().out
    assert "book.txt: 400 read, 400 kept" in shown
    assert shown.endswith(f"\n{sum(len(line) + 1 for line in lines[-20:])}\n")
