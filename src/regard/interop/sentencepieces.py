"""SentencePiece's models as tokenizers of the library that Regard uses, with the ids of a vocabulary beside them.

Marian keeps two files that cut text (`source.spm`, `target.spm`) and one that numbers the pieces (`vocab.json`). The
pieces' scores are put into a unigram model in the order of the numbers:

    in both files               cut, and numbered
    only in the vocabulary      hidden: it has a number, but no text becomes it
    only in the spm             cut, with a number beyond the vocabulary, which stands for unknown

Characters in a row that the spm does not know become one piece. It has a number if the vocabulary happens to know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from regard.errors import DataError, MissingError, UsageError
from regard.text.imported import HIDDEN
from regard.text.words import SPACE

UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character is so much worse than the worst piece
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # kinds of pieces in the file
UNIGRAM = 1  # the kind of model
NO_CHARACTER = "\uffff"  # which is in no text: what stands for an unknown piece


@dataclass(frozen=True)
class Pieces:
    """What a model of SentencePiece knows."""

    scores: Mapping[str, float]
    """Of every piece that text is cut into."""
    charsmap: bytes
    """How characters are replaced before."""
    prefix: bool
    """Whether a space is put before the text."""
    strips: bool
    """Whether spaces at the ends vanish, and several become one."""
    splits: bool
    """Whether no piece goes across a space."""


def read(file: Path) -> Pieces:
    """Read an .spm file; needs the package sentencepiece."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise UsageError(
            f"{file}: is read by the package sentencepiece, which is not installed. Install it: "
            "pip install 'regard[import]'"
        ) from error
    if not file.is_file():
        raise MissingError(f"{file}: this file must be there, but is not. Is the folder whole?")
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined, unused-ignore]
    try:
        proto.ParseFromString(file.read_bytes())
    except Exception as error:  # protobuf's own kind, which has moved from place to place
        raise DataError(f"{file}: must be a model of SentencePiece, but cannot be read ({error}). Copy it.") from error
    trainer, normal = proto.trainer_spec, proto.normalizer_spec
    kinds = {piece.type for piece in proto.pieces}
    if not proto.pieces:
        raise DataError(f"{file}: must be a model of SentencePiece, but has no pieces. Copy it again.")
    if trainer.model_type != UNIGRAM:
        raise UsageError(f"{file}: must be a unigram model, but is of another kind. There is no way round.")
    if trainer.treat_whitespace_as_suffix or kinds & {USER_DEFINED, BYTE}:
        found = "spaces behind words" if trainer.treat_whitespace_as_suffix else "pieces for bytes or of a user"
        raise UsageError(f"{file}: must have plain pieces to be imported, but has {found}. There is no way round.")
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}
    if not normal.escape_whitespaces:
        raise UsageError(f"{file}: must mark spaces as {SPACE}, but does not. There is no way round.")
    return Pieces(
        scores,
        normal.precompiled_charsmap,
        normal.add_dummy_prefix,
        normal.remove_extra_whitespaces,
        trainer.split_by_whitespace,
    )


_NAMES = frozenset({"<s>", "</s>", "<unk>", "<pad>"})  # these are not text, whatever they are made of


def tokenizer(pieces: Pieces, vocabulary: Mapping[str, int], unknown: str) -> tokenizers.Tokenizer:
    """A tokenizer that cuts by `pieces` and numbers by `vocabulary`; its numbers may go beyond the vocabulary."""
    worst = min(pieces.scores.values())
    known = {character for piece in pieces.scores for character in piece}
    strange = {piece for piece in vocabulary if known.isdisjoint(piece) and piece not in _NAMES}
    entries: list[tuple[str, float]] = []
    for piece, _ in sorted(vocabulary.items(), key=lambda entry: entry[1]):
        if piece in pieces.scores:
            entries.append((piece, pieces.scores[piece]))
        elif piece in strange:
            entries.append((piece, worst - UNKNOWN_PENALTY))
        else:
            entries.append((HIDDEN + piece, 0.0))
    entries += [(piece, score) for piece, score in pieces.scores.items() if piece not in vocabulary]
    inner = tokenizers.Tokenizer(models.Unigram(entries, vocabulary[unknown], False))
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if pieces.strips:
        steps += [normalizers.Replace(Regex(f"[ {SPACE}]+"), " "), normalizers.Strip()]
    steps.append(_unknown_runs(known, strange))
    inner.normalizer = normalizers.Sequence(steps)
    scheme = "always" if pieces.prefix else "never"
    inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=pieces.splits)
    # What is hidden from the cutting is not hidden from the reader.
    shown = decoders.Replace(Regex(rf"\A{HIDDEN}"), "")
    inner.decoder = decoders.Sequence([shown, decoders.Metaspace(SPACE, prepend_scheme=scheme)])
    return inner


def _unknown_runs(known: Set[str], strange: Set[str]) -> normalizers.Normalizer:
    """Puts one character for each run of unknown ones that is not a piece by itself."""
    unknown = f"[^{''.join(map(_code, sorted({*known, ' ', SPACE})))}]"
    runs = f"{unknown}+"
    if strange:
        # Longest first: the first that matches is taken.
        spelled = "|".join(
            "".join(map(_code, piece)) for piece in sorted(strange, key=lambda piece: (-len(piece), piece))
        )
        runs = f"(?<!{unknown})(?!(?:{spelled})(?!{unknown})){unknown}+"
    return normalizers.Replace(Regex(runs), NO_CHARACTER)


def _code(character: str) -> str:
    """A character as regular expressions spell it, whatever it means to them."""
    return rf"\x{{{ord(character):x}}}"
