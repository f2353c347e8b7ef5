"""Prepared corpora: encoded once, found again as long as nothing changed, never half done."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from regard.data import prepare as module
from regard.data.corpus import Origin
from regard.data.generated import Pair
from regard.data.prepare import NOTES, cache_folder, encode_in_memory, prepare
from regard.data.store import TokenStore
from regard.errors import DataError, MissingError, UsageError
from regard.files import check_folder
from regard.status import StatusLine
from regard.text.tokenizer import Tokenizer, TokenizerSettings

PAIRS = [(f"the {word} number {place}", f"die {word} Nummer {place}" * 2) for place in range(30) for word in ("a", "b")]
SENTENCES = [side for pair in PAIRS for side in pair]
TOKENIZER = Tokenizer.learn(SENTENCES, TokenizerSettings(vocabulary=80))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
        os.utime(tmp_path / name, (1e9, 1e9))  # at rest for long
    return tmp_path / "a.en", tmp_path / "a.de"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def quiet() -> StatusLine:
    return StatusLine(io.StringIO())


def unread() -> Iterator[tuple[str, ...]]:
    raise AssertionError("the corpus was read, but should have been found")
    yield ()


def made(cache: Path, origin: Origin, tokenizer: Tokenizer = TOKENIZER) -> bool:
    """Whether the corpus had to be read."""
    read = []

    def pairs() -> Iterator[tuple[str, ...]]:
        read.append(True)
        yield from PAIRS

    prepare(cache, origin, pairs(), tokenizer, status=quiet())
    return bool(read)


def folders(cache: Path) -> list[Path]:
    return [place for place in cache.iterdir() if place.is_dir()]


def content(store: TokenStore) -> list[tuple[str, ...]]:
    sides = [side for side in (store.source, store.target) if side is not None]
    return [tuple(TOKENIZER.decode(side[number]) for side in sides) for number in range(len(store))]


@pytest.mark.parametrize(("examples", "characters"), [(1, 10**6), (7, 10**6), (1_000, 100), (1_000, 10**6)])
def test_every_pair_is_there_in_order_whatever_the_chunks(
    examples: int, characters: int, cache: Path, files: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_EXAMPLES", examples)
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", characters)
    assert content(prepare(cache, Origin(files, "as it is"), iter(PAIRS), TOKENIZER, status=quiet())) == PAIRS


def test_texts_of_one_side_are_for_language_models(cache: Path, files: tuple[Path, ...]) -> None:
    texts = [(source,) for source, _ in PAIRS]
    store = prepare(cache, Origin(files, "as it is"), texts, TOKENIZER, status=quiet())
    assert store.source is None
    assert content(store) == texts


def test_each_side_is_encoded_by_its_own_tokenizer(cache: Path, files: tuple[Path, ...]) -> None:
    sources, targets = zip(*PAIRS, strict=True)
    own = Tokenizer.learn_pair([Pair(*pair) for pair in PAIRS], TokenizerSettings(vocabulary=60, shared=False))
    store = prepare(cache, Origin(files, "as it is"), PAIRS, own, status=quiet())
    assert store.source is not None
    assert [own.source.decode(store.source[number]) for number in range(len(store))] == list(sources)
    assert [own.decode(store.target[number]) for number in range(len(store))] == list(targets)


def test_it_is_found_again_and_proves_what_it_holds(cache: Path, files: tuple[Path, ...]) -> None:
    stream = io.StringIO()
    first = prepare(cache, Origin(files, "as it is"), PAIRS, TOKENIZER, status=StatusLine(stream))
    again = prepare(cache, Origin(files, "as it is"), unread(), TOKENIZER)
    assert content(first) == content(again) == PAIRS
    (folder,) = folders(cache)
    check_folder(folder)
    about = json.loads((folder / "store.json").read_text())
    assert [file["name"] for file in about["files"]] == ["a.en", "a.de"]
    assert f"encoded 60 examples, {first.tokens:,} tokens" in stream.getvalue()


def test_only_what_matters_makes_it_anew(cache: Path, files: tuple[Path, ...], tmp_path: Path) -> None:
    assert made(cache, Origin(files, "as it is"))
    # Touched, copied, or a new set of notes: the bytes are the same.
    os.utime(files[0], (2e9 / 2 + 5, 1e9 + 5))
    assert not made(cache, Origin(files, "as it is"))
    copy = tmp_path / "copy.en"
    copy.write_bytes(files[0].read_bytes())
    assert not made(cache, Origin((copy, files[1]), "as it is"))
    (cache / NOTES).write_text("no notes")
    assert not made(cache, Origin(files, "as it is"))
    # Other bytes, another order of the files, another way to read them, another tokenizer.
    copy.write_bytes(files[0].read_bytes().replace(b"number", b"Number"))
    assert made(cache, Origin((copy, files[1]), "as it is"))
    assert made(cache, Origin(files[::-1], "as it is"))
    assert made(cache, Origin(files, "without long lines"))
    other = Tokenizer.learn(SENTENCES, TokenizerSettings(split_digits=False))
    assert made(cache, Origin(files, "as it is"), other)
    assert len(folders(cache)) == 5
    assert not made(cache, Origin(files, "as it is"))


def test_a_file_at_rest_is_hashed_once(cache: Path, files: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    made(cache, Origin(files, "as it is"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "hash_of", lambda *_: pytest.fail("hashed again"))
        assert not made(cache, Origin(files, "as it is"))
    # One that was just written may change again within the same tick of the clock: it is not believed.
    os.utime(files[0])
    made(cache, Origin(files, "as it is"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "hash_of", lambda *_: pytest.fail("hashed again"))
        with pytest.raises(pytest.fail.Exception):
            made(cache, Origin(files, "as it is"))


def test_nothing_half_done_is_left_and_a_damaged_folder_is_made_anew(cache: Path, files: tuple[Path, ...]) -> None:
    def broken() -> Iterator[tuple[str, ...]]:
        yield from PAIRS[:5]
        raise DataError("line 6: is not UTF-8")

    with pytest.raises(DataError, match="line 6"):
        prepare(cache, Origin(files, "as it is"), broken(), TOKENIZER, status=quiet())
    assert folders(cache) == []
    made(cache, Origin(files, "as it is"))
    (folder,) = folders(cache)
    (folder / "target.ids").write_bytes(b"")
    assert made(cache, Origin(files, "as it is"))
    assert content(TokenStore.open(folder)) == PAIRS


def test_a_folder_with_other_bytes_is_made_anew_with_a_word(cache: Path, files: tuple[Path, ...]) -> None:
    made(cache, Origin(files, "as it is"))
    (folder,) = folders(cache)
    whole = (folder / "target.ids").read_bytes()
    (folder / "target.ids").write_bytes(whole[:8] + b"\xff" * 40 + whole[48:])
    stream = io.StringIO()
    store = prepare(cache, Origin(files, "as it is"), PAIRS, TOKENIZER, status=StatusLine(stream))
    assert content(store) == PAIRS
    assert "warning: a prepared corpus is damaged, and is made anew: " in stream.getvalue()
    assert "target.ids: its SHA-256 must be" in stream.getvalue()
    assert not made(cache, Origin(files, "as it is"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a file that can be read, but: Is a directory"):
        module.hash_of(tmp_path)


def test_a_corpus_that_changes_while_it_is_read_is_refused(cache: Path, files: tuple[Path, ...]) -> None:
    def pairs() -> Iterator[tuple[str, ...]]:
        yield from PAIRS
        files[1].write_text("something else")

    with pytest.raises(DataError, match=r"a\.de: must not change while being read, but did"):
        prepare(cache, Origin(files, "as it is"), pairs(), TOKENIZER, status=quiet())
    assert folders(cache) == []


def test_an_empty_corpus_and_a_missing_file_are_named(cache: Path, files: tuple[Path, ...], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="corpus: must have at least one example, but has none"):
        prepare(cache, Origin(files, "as it is"), [], TOKENIZER)
    with pytest.raises(MissingError, match=r"nothing\.en: there is no such file"):
        prepare(cache, Origin((tmp_path / "nothing.en",), ""), PAIRS, TOKENIZER)


def test_whoever_wants_the_same_waits_for_the_first(cache: Path, files: tuple[Path, ...]) -> None:
    reads = []

    def pairs() -> Iterator[tuple[str, ...]]:
        reads.append(True)
        time.sleep(0.05)
        yield from PAIRS

    # Threads lock each other out as processes do, because each opens the lock for itself.
    with ThreadPoolExecutor(4) as pool:
        waiting = [
            pool.submit(prepare, cache, Origin(files, "as it is"), pairs(), TOKENIZER, status=quiet()) for _ in range(4)
        ]
        assert all(content(found.result()) == PAIRS for found in waiting)
    assert len(reads) == 1


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "regard"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/regard")
    monkeypatch.setenv("REGARD_CACHE", "/mine")
    assert cache_folder() == Path("/mine")


def test_several_cuts_are_there_once_each(cache: Path, files: tuple[Path, ...]) -> None:
    cuts = [TOKENIZER.with_dropout(0.3, seed=1, number=number) for number in range(3)]
    origin = Origin(files, "as it is")
    store, memory = prepare(cache, origin, PAIRS, *cuts, status=quiet()), encode_in_memory(PAIRS, *cuts)
    assert content(store) == content(memory) == PAIRS * 3
    assert [store.target[number] for number in (3, 63, 123)] == [cut.encode_all([PAIRS[3][1]])[0] for cut in cuts]
    # Fewer cuts, or others, are another corpus.
    assert content(prepare(cache, origin, PAIRS, *cuts[:2], status=quiet())) == PAIRS * 2
    assert prepare(cache, origin, PAIRS, *cuts[1:], status=quiet()).tokens != store.tokens
    assert len(folders(cache)) == 3


def test_a_source_begins_with_the_token_of_its_language(cache: Path, files: tuple[Path, ...]) -> None:
    tokenizer = Tokenizer.learn(SENTENCES, TokenizerSettings(vocabulary=80), languages=["de", "zh-Hans"])
    tagged = [(*pair, ("de", "zh-Hans")[number % 2]) for number, pair in enumerate(PAIRS)]
    for encoder in (tokenizer, tokenizer.with_dropout(0.0, seed=1)):
        store = prepare(cache, Origin(files, "as it is"), tagged, encoder, status=quiet())
        assert store.source is not None
        for number, (source, target, language) in enumerate(tagged):
            assert store.source[number] == tokenizer.encode_sources([source], language)[0]
            assert store.source[number][0] == tokenizer.languages[language]
            assert store.target[number] == tokenizer.encode(target)
    with pytest.raises(UsageError, match="a token for each target language, but has none for de, zh-Hans"):
        encode_in_memory(tagged, TOKENIZER)
