"""Music that a model writes, and which notes it looked at when it wrote each of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.decoding.sampling import Finish
from regard.errors import UsageError
from regard.exploring.bundle import Bundle
from regard.generation import Generation
from regard.models.gpt import GPTSettings
from regard.music.encoding import Encoding, last_words, midi_words, read_words
from regard.music.midi import write_midi
from regard.music.notes import Piece
from regard.music.reading import Reading
from regard.text.tokenizer import MusicEvents
from regard.viewing.capture import Call
from regard.viewing.figures import AttentionMap
from regard.viewing.pianoroll import Line

LONGEST_PRIMER = 1_024  # words: attention over a whole sonata would not fit the memory
MOST_WORDS = 2_560  # of a piece that are looked at: their weights have to fit the memory, too
EACH = 2  # lines of a note and a head
LEAST = 0.05  # what a line stands for, at least


@dataclass(frozen=True)
class Composition:
    """A piece as the model wrote it, after a primer or after nothing."""

    words: tuple[str, ...]
    """Those of the primer, then those of the model."""
    primer: int
    """How many of the words are the primer's."""
    reading: Reading
    finish_reason: Finish
    seed: int
    prompt_cut: int = 0
    """How many words at the primer's beginning were left out, because there was no room for them."""

    @property
    def piece(self) -> Piece:
        """Its notes."""
        return self.reading.piece

    @property
    def primed(self) -> frozenset[int]:
        """The numbers of the notes that the primer began."""
        return frozenset(owner for owner in self.reading.owners[: self.primer] if owner is not None)

    def to_json(self) -> dict[str, object]:
        """The notes as [start, duration, pitch, velocity], which are the primer's, and the MIDI file in base64."""
        midi = write_midi(self.piece) if self.piece.notes else b""
        return {
            "notes": self.piece.to_json(),
            "primed": sorted(self.primed),
            "midi": base64.b64encode(midi).decode(),
            "words": len(self.words),
            "finish_reason": self.finish_reason,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class NoteAttention:
    """Lines from notes to the notes that a layer looked at when it wrote them."""

    layer: int
    layers: int
    heads: int
    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, object]:
        """Lines as [note, note looked at, head, weight]; everything is counted from 0."""
        return {
            "layer": self.layer,
            "layers": self.layers,
            "heads": self.heads,
            "lines": [[line.note, line.seen, line.head, round(line.weight, 4)] for line in self.lines],
        }


def encoding_of(model: Bundle, what: str = "music") -> Encoding:
    """How a model writes music; raises UsageError for one that writes none."""
    return _events(model, what).encoding


def _events(model: Bundle, what: str) -> MusicEvents:
    settings = model.recipe.tokenizer
    if not isinstance(settings, MusicEvents):
        raise UsageError(
            f"{what}: needs a model of music, but `{model.recipe.name}` was trained on text. Train one: "
            "regard train music-jsb"
        )
    return settings


@dataclass(frozen=True)
class Primer:
    """What a piece begins with, as words, and how many words of the file were left out before them."""

    words: tuple[str, ...] = ()
    cut: int = 0

    @property
    def text(self) -> str:
        """As the model reads it."""
        return " ".join(self.words)


def primer_of(model: Bundle, midi: bytes | None, place: str = "primer") -> Primer:
    """The notes of a MIDI file as a model reads them: of a long one about the last 1,024 words; or nothing."""
    events = _events(model, "music")
    if midi is None:
        return Primer()
    words, context = midi_words(midi, events.encoding, place, events.grid), model.network.context
    room = LONGEST_PRIMER if context is None else min(LONGEST_PRIMER, context // 2)
    kept = tuple(last_words(words, events.encoding, room))
    return Primer(kept, len(words) - len(kept))


def composed(model: Bundle, primer: Primer, written: Generation, seed: int) -> Composition:
    """The piece that a primer and what was written after it make up."""
    words, events = (*primer.words, *written.text.split()), _events(model, "music")
    reading = read_words(words, events.encoding, events.grid)
    return Composition(words, len(primer.words), reading, written.finish_reason, seed, primer.cut)


def note_attention(model: Bundle, composition: Composition, layer: int = -1) -> NoteAttention:
    """What one layer looked at, by note and head; -1 is the last layer.

    A row of attention writes a word, and looks at those before it. A note's row is that of its first word; the weights
    of all words that speak of a note are added up. Of each row the largest are kept.
    """
    encoding_of(model, "attention")
    settings = model.recipe.model
    if not isinstance(settings, GPTSettings):
        raise UsageError(f"attention: needs a model of kind `gpt`, but this is a `{settings.kind}`. Choose another.")
    if not -settings.layers <= layer < settings.layers:
        raise UsageError(
            f"layer: must be from 0 to {settings.layers - 1}, or below 0 to count from the last, but is {layer}. "
            "Choose one of these."
        )
    layer %= settings.layers
    words = composition.words[:MOST_WORDS]  # exact: no word looks at those behind it
    if model.network.context is not None:
        words = words[: model.network.context - 1]
    maps: list[AttentionMap] = []
    ids = model.tokenizer.encode(" ".join(words))
    Call(model.network, model.tokenizer, None, ids).show(maps.append, only=("decoder", layer))
    (found,) = maps
    lines = _lines(found.weights, composition.reading.owners[: len(words)])
    return NoteAttention(layer, settings.layers, len(found.weights), tuple(lines))


def _lines(weights_HQK: NDArray[np.floating[Any]], owners: Sequence[int | None]) -> list[Line]:
    """For each note and head the notes that were looked at most."""
    notes = 1 + max((owner for owner in owners if owner is not None), default=-1)
    # Row q writes word q; column k is word k - 1, because the start of the piece comes first.
    members_KN = np.zeros((weights_HQK.shape[2], notes), np.float32)
    first: dict[int, int] = {}
    for place, owner in enumerate(owners):
        if owner is not None:
            members_KN[place + 1, owner] = 1
            first.setdefault(owner, place)
    lines = []
    for note, place in sorted(first.items()):
        seen_HN = weights_HQK[:, place] @ members_KN
        for head, seen_N in enumerate(seen_HN):
            best = np.argsort(-seen_N, kind="stable")[:EACH]
            lines += [Line(note, int(one), head, float(seen_N[one])) for one in best if seen_N[one] >= LEAST]
    return lines
