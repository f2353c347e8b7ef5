"""Stores give back what was put in, from memory and from files, and say when a folder is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.store import DESCRIPTION, Example, StoreWriter, TokenStore
from regard.errors import DataError, MissingError
from regard.text.ragged import Ragged

END = 2
SENTENCES = st.lists(st.integers(0, 70_000), max_size=9)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=12)


def write(folder: Path, examples: list[Example], vocabulary: int = 100, chunk: int = 3) -> Path:
    folder.mkdir()
    with StoreWriter(folder, ("source", "target"), vocabulary, END) as writer:
        for first in range(0, len(examples), chunk):
            part = examples[first : first + chunk]
            writer.append(sides(part))
        writer.finish({"key": "k"})
    return folder


def sides(examples: list[Example]) -> dict[str, Ragged]:
    sources, targets = zip(*examples, strict=True)
    return {"source": Ragged.of(sources), "target": Ragged.of(targets)}


def content(store: TokenStore) -> list[Example]:
    assert store.source is not None
    return [(store.source[number], store.target[number]) for number in range(len(store))]


@given(PAIRS)
def test_memory_gives_back_what_it_was_given(pairs: list[Example]) -> None:
    store = TokenStore.of_pairs(pairs, END)
    assert content(store) == pairs
    assert store.source is not None
    assert store.source.lengths.tolist() == [len(source) + 1 for source, _ in pairs]
    assert store.target.lengths.tolist() == [len(target) + 1 for _, target in pairs]
    assert store.tokens == sum(len(source) + len(target) + 2 for source, target in pairs)
    assert TokenStore.of_texts([target for _, target in pairs], END).tokens == sum(len(t) + 1 for _, t in pairs)


@given(PAIRS, st.integers(1, 5))
def test_files_give_back_the_same_whatever_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Example], chunk: int
) -> None:
    folder = write(tmp_path_factory.mktemp("store") / "pairs", pairs, vocabulary=70_001, chunk=chunk)
    memory, files = TokenStore.of_pairs(pairs, END), TokenStore.open(folder)
    chunks = TokenStore.of_chunks((sides(pairs[n : n + chunk]) for n in range(0, len(pairs), chunk)), END)
    for store in (files, chunks):
        assert content(store) == pairs
        for one, other in ((memory.source, store.source), (memory.target, store.target)):
            assert one is not None
            assert other is not None
            assert np.array_equal(one.ids, other.ids)
            assert np.array_equal(one.begin, other.begin)


@pytest.mark.parametrize(("vocabulary", "size"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_where_they_fit(vocabulary: int, size: int, tmp_path: Path) -> None:
    folder = write(tmp_path / "pairs", [([vocabulary - 1], [5, 6])], vocabulary)
    assert (folder / "target.ids").stat().st_size == 3 * size
    assert content(TokenStore.open(folder)) == [([vocabulary - 1], [5, 6])]


def test_a_store_of_one_side_has_no_source(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, ("target",), 100, END) as writer:
        writer.append({"target": Ragged.of([[5, 6], []])})
        writer.finish({})
    store = TokenStore.open(tmp_path)
    assert store.source is None
    assert [store.target[0], store.target[1]] == [[5, 6], []]


def test_opening_maps_the_files_and_reads_none_of_them(tmp_path: Path) -> None:
    store = TokenStore.open(write(tmp_path / "pairs", [([5], [6])]))
    assert isinstance(store.target.ids.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        store.target.ids[0] = 1


def cut_short(folder: Path) -> None:
    (folder / "source.ids").write_bytes((folder / "source.ids").read_bytes()[:-1])


def other_ends(folder: Path) -> None:
    file = folder / "target.begin"
    file.write_bytes(file.read_bytes()[:-8] + (99).to_bytes(8, "little"))


def other_version(folder: Path) -> None:
    about = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps(about | {"format_version": 7}))


def no_types(folder: Path) -> None:
    about = json.loads((folder / DESCRIPTION).read_text())
    del about["dtype"]
    (folder / DESCRIPTION).write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut_short, r"source\.ids: must be 6 bytes long, as store\.json says, but is 5"),
        (other_ends, r"target\.begin: must end with the number of tokens \(4\), but ends with 99"),
        (other_version, r"store\.json: format_version must be 1 for this Regard, but is 7"),
        (no_types, r"store\.json: must say how to read the folder, but does not \(KeyError: 'dtype'\)"),
        (lambda folder: (folder / DESCRIPTION).write_text("{"), r"store\.json: must be what Regard wrote"),
    ],
)
def test_a_damaged_folder_is_named(spoil: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "pairs", [([5], [6]), ([], [7])])
    spoil(folder)
    with pytest.raises(DataError, match=message):
        TokenStore.open(folder)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"must hold a store\.json, but has none"):
        TokenStore.open(tmp_path)
    folder = write(tmp_path / "pairs", [([5], [6])])
    (folder / "target.ids").unlink()
    with pytest.raises(MissingError, match=r"target\.ids: store\.json beside it names this file, but it is not there"):
        TokenStore.open(folder)
