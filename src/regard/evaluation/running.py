"""How probable a language model finds a text: line by line, or as one text that runs on.

Shapes: B rows, T tokens, D model, N tokens of the text.

A text that runs on is read as it was in training: each line's end is a token, and what follows sees what came before. A
recurrent model carries its state from the first token to the last. Others read windows of so many tokens; a window
begins with the end of the one before, so that its first new token sees something, and every token is judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.errors import DataError, UsageError
from regard.evaluation.likelihood import SLOTS, Likelihood, in_batches
from regard.evaluation.metrics import Numbers
from regard.memory import Halves, NoRoomError
from regard.models.interface import Carried, ContinuingModel, SequenceModel
from regard.text.tokenizer import Tokenizer
from regard.training.loss import smoothed_cross_entropy

Ids = NDArray[np.int64]
Counting = Callable[[str, int], None]
CRITERION = smoothed_cross_entropy(0.0)


@torch.inference_mode()
def text_likelihood(
    model: SequenceModel[Any],
    tokenizer: Tokenizer,
    lines: Sequence[str],
    window: int | None,
    overlap: int | None = None,
    progress: Counting | None = None,
) -> Likelihood:
    """How probable the model finds each line, its end included.

    `window` is how many tokens are read at a time of a text that runs on; None reads every line for itself. Windows
    share `overlap` tokens with the one before; half of them, unless given.
    """
    if not lines:
        raise DataError("evaluate: there must be at least one line of text, but there is none. Is it the right file?")
    if overlap is not None and (window is None or isinstance(model, ContinuingModel)):
        how = "line by line" if window is None else "on and on, with its state carried"
        raise UsageError(f"evaluate: `overlap` is for a model that reads windows, but this reads {how}. Leave it out.")
    ids = tokenizer.encode_all(lines)
    lengths = np.array([len(line) + 1 for line in ids])
    model.eval()
    if window is None:
        nats_L, how = _by_lines(model, ids, tokenizer.specials, progress), "line by line"
    else:
        text_N = np.concatenate([np.array([*line, tokenizer.specials.end]) for line in ids])
        if isinstance(model, ContinuingModel):
            nats_N, how = _carried(model, text_N, tokenizer.specials, progress), "state carried on"
        else:
            shared = window // 2 if overlap is None else overlap
            _check(window, shared)
            nats_N = _in_windows(model, text_N, tokenizer.specials, window, shared, progress)
            how = f"windows of {window} tokens|{shared} of them shared"
        nats_L = np.add.reduceat(nats_N, lengths.cumsum() - lengths)
    unknown = 0 if tokenizer.unknown is None else sum(line.count(tokenizer.unknown) for line in ids)
    bytes_L = np.array([len(line.encode()) + 1 for line in lines], dtype=np.float64)
    words_L = np.array([len(line.split()) + 1 for line in lines], dtype=np.float64)
    return Likelihood(nats_L, lengths.astype(np.float64), bytes_L, unknown, tokenizer.size, words_L, f"text|{how}")


def _check(window: int, overlap: int) -> None:
    if not 0 <= overlap < window:
        raise UsageError(
            f"evaluate: `overlap` must be from 0 to less than a window ({window} tokens), but is {overlap}. Take less."
        )


def read_before(text_N: Ids, specials: Specials) -> Ids:
    """What stands before each token of a text that runs on: <start> in front of a line, as in training."""
    before_N = np.concatenate([[specials.end], text_N[:-1]])
    return np.where(before_N == specials.end, specials.start, before_N)


def _by_lines(
    model: SequenceModel[Any], ids: Sequence[list[int]], specials: Specials, hear: Counting | None
) -> Numbers:
    nats = np.zeros(len(ids))
    done, halves = 0, Halves()

    def judge(places: Sequence[int]) -> list[float]:
        read = Tokens.padded([[specials.start, *ids[place]] for place in places], specials.padding)
        labels_BT = Tokens.padded([[*ids[place], specials.end] for place in places], IGNORED).ids_BT
        return losses(model, Batch(None, read, labels_BT)).sum(axis=1).tolist()

    def no_room(place: int) -> NoRoomError:
        return NoRoomError(f"evaluate: line {place + 1:,}", f"{len(ids[place]):,} tokens")

    for places in in_batches([len(line) + 1 for line in ids], SLOTS):
        nats[places] = halves.each(places, judge, no_room)
        done += len(places)
        if hear is not None:
            hear("lines", done)
    return nats


def _carried(model: ContinuingModel[Any], text_N: Ids, specials: Specials, hear: Counting | None) -> Numbers:
    device = next(model.parameters()).device
    before_N = read_before(text_N, specials)
    found, carried, halves = [], Carried(), Halves()
    for first in range(0, len(text_N), SLOTS):
        last = min(first + SLOTS, len(text_N))

        def judge(part: slice, first: int = first) -> Numbers:
            nonlocal carried
            some = slice(first + part.start, first + part.stop)
            batch = _rows(before_N[None, some], text_N[None, some]).to(device)
            features_BTD, after = model.read_on(batch, carried)
            nats_N: Numbers = CRITERION(model.logits, features_BTD, batch.labels_BT)[0].double().cpu().numpy()
            carried = after  # not before all of it is done: it may have to be done again
            return nats_N

        def no_room(place: int, first: int = first) -> NoRoomError:
            return NoRoomError(f"evaluate: token {first + place + 1:,}", "1 token at a time")

        found += halves.in_parts(last - first, judge, no_room)
        if hear is not None:
            hear("tokens", last)
    return np.concatenate(found)


def _in_windows(
    model: SequenceModel[Any], text_N: Ids, specials: Specials, window: int, overlap: int, hear: Counting | None
) -> Numbers:
    before_N = read_before(text_N, specials)
    nats_N, judged = np.zeros(len(text_N)), 0
    begins_W, rows, halves = list(_begins(len(text_N), window, overlap)), max(1, SLOTS // window), Halves()

    def judge(begins: Sequence[int]) -> Numbers:
        place_BT = np.array(begins)[:, None] + np.arange(min(window, len(text_N)))
        return losses(model, _rows(before_N[place_BT], text_N[place_BT]))

    def no_room(begin: int) -> NoRoomError:
        return NoRoomError(f"evaluate: the window from token {begin + 1:,} on", f"{window:,} tokens")

    for first in range(0, len(begins_W), rows):
        begins = begins_W[first : first + rows]
        for begin, losses_T in zip(begins, halves.each(begins, judge, no_room), strict=True):
            end = begin + len(losses_T)
            nats_N[judged:end] = losses_T[judged - begin :]
            judged = end
        if hear is not None:
            hear("tokens", judged)
    return nats_N


def _begins(length: int, window: int, overlap: int) -> Iterator[int]:
    """Where windows begin; the last one ends with the text, however much it shares."""
    stride = window - overlap
    begin = 0
    while begin + window < length:
        yield begin
        begin += stride
    yield max(0, length - window)


def _rows(read_BT: Ids, labels_BT: Ids) -> Batch:
    return Batch(None, Tokens.whole(torch.from_numpy(read_BT)), torch.from_numpy(labels_BT))


def losses(model: SequenceModel[Any], batch: Batch) -> Numbers:
    """The loss of every label in nats, [B, T]."""
    batch = batch.to(next(model.parameters()).device)
    losses_BT = CRITERION(model.logits, model.features(batch), batch.labels_BT)
    found: Numbers = losses_BT.double().cpu().numpy()
    return found
