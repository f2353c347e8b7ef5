from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest

from regard.data.corpus import open_corpus
from regard.data.dataset import read_dataset
from regard.data.known import report_of
from regard.data.sources import Music
from regard.errors import DataError, MissingError
from regard.text.tokenizer import MusicEvents
from tests.music.scores import SCALE, midi, off, on, track

CHORALE = [[74, 70, 65, 58], [74, 70, -1, 58], [72, 69], []]
WORDS = "S74 A70 T65 B58 S74 A70 T- B58 S72 A69 T- B- S- A- T- B-"


def write(file: Path, tree: object) -> str:
    data = json.dumps(tree).encode()
    file.write_bytes(lzma.compress(data) if file.suffix == ".xz" else data)
    return str(file)


def chorales(place: Path, **settings: object) -> Music:
    file = write(place / "c.json.xz", {"train": [CHORALE, [[60]]], "valid": [[[61]]], "test": [[[62]]]})
    return Music(file, encoding="chorale", **settings)  # type: ignore[arg-type]


def test_chorales_bring_their_splits(tmp_path: Path) -> None:
    corpus = open_corpus(chorales(tmp_path))
    assert [pair.target for pair in corpus.train()] == [WORDS, "S60 A- T- B-"]
    assert [pair.target for pair in corpus.valid()] == ["S61 A- T- B-"]
    assert [pair.target for pair in corpus.test()] == ["S62 A- T- B-"]
    assert corpus.one_sided
    assert corpus.report().warnings == ()


def test_pieces_are_counted_in_words(tmp_path: Path) -> None:
    report = open_corpus(chorales(tmp_path)).report()
    assert (report.lengths["target"].mean, report.lengths["target"].longest) == (10, 16)
    assert "\n  words: target mean 10, longest 16\n" in report.to_text() + "\n"
    assert "characters" not in report.to_text()
    assert report_of(report.to_json()).to_text() == report.to_text()


def test_only_training_is_transposed(tmp_path: Path) -> None:
    corpus = open_corpus(chorales(tmp_path, transpose=2))
    found = [pair.target for pair in corpus.train()]
    assert len(found) == 10
    assert [text.split()[0] for text in found[5:]] == ["S60", "S59", "S61", "S58", "S62"]
    assert len(corpus.valid()) == len(corpus.test()) == 1


def test_sets_of_pitches_go_from_high_to_low(tmp_path: Path) -> None:
    file = write(tmp_path / "sets.json", {"train": [[[58, 65, 70, 74], [60, 64]]], "valid": [[[60]]]})
    (pair,) = open_corpus(Music(file, encoding="chorale")).train()
    assert pair.target == "S74 A70 T65 B58 S64 A60 T- B-"


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"train": [[[60, 61, 62, 63, 64]]]}, "train piece 1, step 1: must be a list of at most 4 pitches, but has 5"),
        ({"train": [[[60], [128]]]}, "step 2: must hold a pitch from 0 to 127, or -1 for a rest, but holds 128"),
        ({"train": [[[60.5]]]}, "but holds 60.5"),
        ({"train": [[["x"]]]}, "but holds 'x'"),
        ({"train": [[[float("nan"), 1]]]}, "but holds nan"),
        ({"train": [[[float("inf")]]]}, "but holds inf"),
        ({"train": [[[60, True]]]}, "but holds True"),
        ({"train": [[5]]}, "at most 4 pitches, but is 5"),
        ({"train": [[]]}, "train piece 1: must be a list of steps"),
        ({"train": []}, "must hold a list of pieces for `train`"),
    ],
)
def test_json_that_is_no_chorale_is_refused(tree: dict[str, object], message: str, tmp_path: Path) -> None:
    corpus = open_corpus(Music(write(tmp_path / "c.json", {**tree, "valid": [[[60]]]}), encoding="chorale"))
    with pytest.raises(DataError, match=message):
        list(corpus.train())


def test_what_is_no_json_or_cut_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[[")
    (tmp_path / "b.json.xz").write_bytes(lzma.compress(b"[1]")[:-8])
    for name in ("a.json", "b.json.xz"):
        with pytest.raises(DataError, match=f"{name}: must be JSON that can be read"):
            open_corpus(Music(str(tmp_path / name), encoding="chorale"))


def test_chorales_are_no_performances(tmp_path: Path) -> None:
    file = write(tmp_path / "c.json", {"train": [CHORALE], "valid": [CHORALE]})
    with pytest.raises(DataError, match='JSON holds chorales, but `encoding` is "performance"'):
        list(open_corpus(Music(file)).train())


def test_pieces_to_validate_on_must_come_from_somewhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must hold pieces to validate on.*`data\.valid`"):
        open_corpus(Music(write(tmp_path / "c.json", [CHORALE]), encoding="chorale"))
    other = write(tmp_path / "v.json", [[[61]]])
    corpus = open_corpus(Music(write(tmp_path / "c.json", [CHORALE]), encoding="chorale", valid=other))
    assert [pair.target for pair in corpus.valid()] == ["S61 A- T- B-"]


# ---- MIDI files


def some_midi(pitch: int) -> bytes:
    return midi(track((0, on(pitch)), (480, off(pitch))))


def folders(place: Path, pieces: int = 5, performances: int = 3) -> Path:
    for piece in range(pieces):
        (place / f"piece-{piece}").mkdir(parents=True)
        for number in range(performances):
            (place / f"piece-{piece}" / f"{number}.mid").write_bytes(some_midi(40 + 10 * piece + number))
    (place / "LICENSE.md").write_text("not music")
    return place


def pieces_of(corpus_texts: list[str]) -> set[int]:
    return {int(text.split()[1].removeprefix("on")) // 10 for text in corpus_texts}


def test_all_performances_of_a_piece_stand_on_one_side(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    corpus = open_corpus(Music(str(folders(tmp_path / "m"))))
    splits = [[pair.target for pair in pairs] for pairs in (list(corpus.train()), corpus.valid(), corpus.test())]
    assert [len(split) for split in splits] == [9, 3, 3]
    found = [pieces_of(split) for split in splits]
    assert found[0] | found[1] | found[2] == {4, 5, 6, 7, 8}
    assert sum(map(len, found)) == 5


def test_an_archive_is_read_as_its_folder_is(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    place = folders(tmp_path / "m")
    with tarfile.open(tmp_path / "m.tar.xz", "w:xz") as archive:
        for file in sorted(place.rglob("*")):
            archive.add(file, str(file.relative_to(place)), recursive=False)
    for split in ("train", "valid", "test"):
        one, other = (open_corpus(Music(str(tmp_path / name))) for name in ("m", "m.tar.xz"))
        texts = [[pair.target for pair in getattr(corpus, split)()] for corpus in (one, other)]
        assert texts[0] == texts[1]
        assert texts[0]


def test_files_in_one_folder_are_held_out_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    for number in range(4):
        (tmp_path / f"{number}.midi").write_bytes(some_midi(60 + number))
    corpus = open_corpus(Music(str(tmp_path)))
    assert [len(pairs) for pairs in (list(corpus.train()), corpus.valid(), corpus.test())] == [2, 1, 1]


def test_a_bad_file_among_good_ones_is_left_out_and_told_of(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    for number in range(8):
        (tmp_path / f"{number}.mid").write_bytes(some_midi(60 + number))
    corpus = open_corpus(Music(str(tmp_path)))
    before = len(list(corpus.train()))
    (tmp_path / f"{place_of_training(tmp_path)}.mid").write_bytes(SCALE[:-12])
    corpus = open_corpus(Music(str(tmp_path)))
    assert len(list(corpus.train())) == before - 1
    report = corpus.report()
    (problem,) = report.repairs.left_out.values()
    assert "track 1: must have the" in problem
    assert f"left out: 1 that cannot be read; the first is {problem}" in report.to_text()


def place_of_training(folder: Path) -> int:
    """The number of a file that is trained on."""
    (first, *_) = open_corpus(Music(str(folder))).train()
    return int(first.target.split()[1].removeprefix("on")) - 60


@pytest.mark.parametrize("bad", range(4))
def test_a_folder_of_bad_files_is_never_held_out(bad: int, tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    place = folders(tmp_path / "m", pieces=4)
    for file in (place / f"piece-{bad}").iterdir():
        file.write_bytes(SCALE[:-12])
    corpus = open_corpus(Music(str(place)))
    assert [len(pairs) for pairs in (list(corpus.train()), corpus.valid(), corpus.test())] == [3, 3, 3]
    assert len(corpus.report().repairs.left_out) == 3


def test_a_good_folder_beside_a_bad_one_has_nothing_to_validate_on(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    place = folders(tmp_path / "m", pieces=2, performances=1)
    (place / "piece-1" / "0.mid").write_bytes(SCALE[:-12])
    with pytest.raises(DataError, match=r"must hold pieces to validate on.*Left out.*piece-1/0\.mid, track 1: must"):
        open_corpus(Music(str(place)))


def test_what_is_wrong_with_the_only_file_comes_before_what_is_missing_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    (tmp_path / "bad.mid").write_bytes(SCALE[:-12])
    with pytest.raises(DataError, match=r"bad\.mid, track 1: must have the"):
        open_corpus(Music(str(tmp_path / "bad.mid")))
    (tmp_path / "good.mid").write_bytes(SCALE)
    with pytest.raises(DataError, match="must hold pieces to validate on"):
        open_corpus(Music(str(tmp_path / "good.mid")))
    for tree, message in (([[5]], "train piece 1, step 1: must be a list"), ({"a": 1}, "a list of pieces for `train`")):
        with pytest.raises(DataError, match=message):
            open_corpus(Music(write(tmp_path / "c.json", tree), encoding="chorale"))
    with pytest.raises(DataError, match="JSON holds chorales"):
        open_corpus(Music(write(tmp_path / "c.json", [CHORALE])))


def test_where_all_files_are_bad_one_is_named(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    place = folders(tmp_path / "m")
    for file in place.rglob("*.mid"):
        file.write_bytes(SCALE[:-12])
    with pytest.raises(DataError, match=r"piece-\d/0\.mid, track 1: must have the \d+ bytes it says"):
        list(open_corpus(Music(str(place))).train())


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.tar").write_bytes(b"no tar at all" * 100)
    (tmp_path / "n.tar.xz").write_bytes(lzma.compress(bytes(2_000))[:-5])
    for name in ("m.tar", "n.tar.xz"):
        with pytest.raises(DataError, match=f"{name}: must be a whole .tar"):
            open_corpus(Music(str(tmp_path / name)))


def test_an_archive_of_huge_files_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar.xz", "w:xz") as archive:
        member = tarfile.TarInfo("a/huge.mid")
        member.size = 2**24 + 1
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(DataError, match=r"a/huge\.mid: a MIDI file must have at most 16,777,216 bytes"):
        open_corpus(Music(str(tmp_path / "m.tar.xz")))


def test_places_that_hold_no_music_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no such file or folder"):
        open_corpus(Music(str(tmp_path / "nothing")))
    with pytest.raises(MissingError, match=r"must hold MIDI files, named \*\.mid"):
        open_corpus(Music(str(tmp_path)))
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    with pytest.raises(DataError, match=r"a\.mp3: must be a MIDI file, a folder or \.tar of them"):
        open_corpus(Music(str(tmp_path / "a.mp3")))


def test_tokens_are_words(tmp_path: Path) -> None:
    data = read_dataset(chorales(tmp_path), MusicEvents(encoding="chorale"), seed=1, cache=tmp_path / "cache")
    assert data.tokenizer.size == 4 + 4 * 129
    assert data.train.tokens == 2 + 16 + 4
    assert data.report is not None
    assert data.report.coverage is not None
    assert data.report.coverage["target"].unknown_share == 0


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="`transpose` must be from 0 to 12 semitones, but is 13"):
        Music("m", transpose=13)
    with pytest.raises(ValueError, match="`grid` must be from 1 to 96 steps in a quarter note, but is 0"):
        Music("m", grid=0)
    with pytest.raises(ValueError, match="`encoding` must be"):
        Music("m", encoding="abc")  # type: ignore[arg-type]
