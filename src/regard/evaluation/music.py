"""How probable a model finds pieces of music: nats a word, and of a chorale nats a step.

Each piece is read by itself, from its beginning; a very long one in excerpts, each as if nothing came before it. The
end of a piece is not counted: published figures are about notes. How many bytes its words have means nothing, so there
is no figure of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.batch import IGNORED, Batch, Tokens
from regard.errors import DataError
from regard.evaluation.likelihood import SLOTS, in_batches
from regard.evaluation.metrics import Numbers, Progress, Tally
from regard.evaluation.report import Report, TestSet
from regard.evaluation.running import losses
from regard.evaluation.significance import with_intervals
from regard.memory import Halves, NoRoomError
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer

EXCERPT = 2_560  # words: as long as the longest chorale


@dataclass(frozen=True)
class MusicLikelihood:
    """−log P of every piece in nats, and its words."""

    nats_L: Numbers
    words_L: Numbers
    excerpt: int | None
    """The longest stretch that was read at once, where a piece is longer."""

    def tallies(self, split: str, voices: int | None) -> list[Tally]:
        """Nats a word; where a step has a word for each of some voices, nats a step as well."""
        alone = "each piece alone" if self.excerpt is None else f"excerpts of {self.excerpt} words"
        words, how = int(self.words_L.sum()), f"{alone}|ends of pieces:no|pieces:{len(self.nats_L)}"
        counts_LC = np.stack([self.nats_L, self.words_L], axis=1)
        units = {"word": 1} if voices is None else {"word": 1, "step": voices}
        return [
            Tally(f"nats per {unit}, {split}", f"{how}|{unit}s:{words // size}", counts_LC, _mean(size))
            for unit, size in units.items()
        ]


def _mean(size: int) -> Callable[[Numbers], Numbers]:
    return lambda sums: np.asarray(size * sums[..., 0] / np.maximum(sums[..., 1], 1))


@torch.inference_mode()
def music_likelihood(
    model: SequenceModel[Any], tokenizer: Tokenizer, pieces: Sequence[str], progress: Progress | None = None
) -> MusicLikelihood:
    """How probable the model finds each piece, which is given as words between spaces."""
    most = EXCERPT if model.context is None else min(EXCERPT, model.context)
    ids = tokenizer.encode_all(pieces)
    excerpts = [(number, piece[first : first + most])
                for number, piece in enumerate(ids) for first in range(0, len(piece), most)]  # fmt: skip
    if not excerpts:
        raise DataError("evaluate: there must be at least one piece of music, but there is none. Is it the right file?")
    model.eval()
    nats_L, done, halves = np.zeros(len(pieces)), 0, Halves()

    def judge(places: Sequence[int]) -> list[float]:
        words = [excerpts[place][1] for place in places]
        read = Tokens.padded([[tokenizer.specials.start, *one[:-1]] for one in words], tokenizer.specials.padding)
        return losses(model, Batch(None, read, Tokens.padded(words, IGNORED).ids_BT)).sum(axis=1).tolist()

    def no_room(place: int) -> NoRoomError:
        number, words = excerpts[place]
        return NoRoomError(f"evaluate: piece {number + 1:,}", f"{len(words):,} words at a time")

    for places in in_batches([len(words) for _, words in excerpts], SLOTS):
        np.add.at(nats_L, [excerpts[place][0] for place in places], halves.each(places, judge, no_room))
        done += sum(len(excerpts[place][1]) for place in places)
        if progress is not None:
            progress("words", done)
    words_L = np.array([len(piece) for piece in ids], dtype=np.float64)
    return MusicLikelihood(nats_L, words_L, most if words_L.max() > most else None)


def evaluate_music(
    found: Mapping[str, MusicLikelihood],
    voices: int | None,
    files: Sequence[TestSet] = (),
    progress: Progress | None = None,
) -> Report:
    """The figures of each set of pieces, with intervals from a bootstrap over pieces."""
    tallies = [tally for split, one in found.items() for tally in one.tallies(split, voices)]
    # Each by itself: sets of pieces have different sizes, and what is drawn again is pieces of one set.
    scores = [score for tally in tallies for score in with_intervals([tally], progress=progress)]
    return Report(sum(len(one.nats_L) for one in found.values()), list(files), scores, [], [], [], [])
