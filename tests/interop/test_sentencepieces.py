"""SentencePiece's models as tokenizers of ours: the same pieces for any text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, MissingError, UsageError
from regard.interop import sentencepieces
from tests.interop import foreign

spm = pytest.importorskip("sentencepiece")
LETTERS = "aeinorst.,!ßüö漢字🙂ｆ½▁<>/ \t\u00a0\u200b\u3000é\u0301"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, object, dict[str, int]]]:
    place = tmp_path_factory.mktemp("pieces")
    vocabulary = foreign.marian_vocabulary(place)
    found = {}
    for side in ("source", "target"):
        file = place / f"{side}.spm"
        ours = sentencepieces.tokenizer(sentencepieces.read(file), vocabulary, "<unk>")
        found[side] = (spm.SentencePieceProcessor(model_file=str(file)), ours, vocabulary)
    return found


@pytest.mark.parametrize("side", ["source", "target"])
@given(text=st.text(alphabet=LETTERS, max_size=30) | st.text(max_size=20))
def test_ids_are_those_of_marian(side: str, sides: dict[str, tuple[object, object, dict[str, int]]], text: str) -> None:
    theirs, ours, vocabulary = sides[side]
    unknown = vocabulary["<unk>"]
    wanted = [vocabulary.get(piece, unknown) for piece in theirs.encode(text, out_type=str)]  # type: ignore[attr-defined]
    found = ours.encode(text, add_special_tokens=False).ids  # type: ignore[attr-defined]
    assert [token if token < len(vocabulary) else unknown for token in found] == wanted


def test_the_vocabulary_has_all_three_kinds(sides: dict[str, tuple[object, object, dict[str, int]]]) -> None:
    """Otherwise the test above would show less than it says."""
    theirs, ours, vocabulary = sides["source"]
    known = {theirs.id_to_piece(number) for number in range(3, theirs.get_piece_size())}  # type: ignore[attr-defined]
    assert known - vocabulary.keys()
    assert {"ß", "ü"} <= vocabulary.keys() - known
    assert ours.get_vocab_size() > len(vocabulary)  # type: ignore[attr-defined]


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        sentencepieces.read(tmp_path / "no.spm")
    for content in (b"", b"\xff\xff\xff", b"some text"):
        (tmp_path / "bad.spm").write_bytes(content)
        with pytest.raises(DataError):
            sentencepieces.read(tmp_path / "bad.spm")


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    import io

    trained = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three"] * 5), model_writer=trained, vocab_size=20, model_type="bpe",
        minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    (tmp_path / "bpe.spm").write_bytes(trained.getvalue())
    with pytest.raises(UsageError, match="must be a unigram model"):
        sentencepieces.read(tmp_path / "bpe.spm")
