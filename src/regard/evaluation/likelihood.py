"""How probable the references are under the model: forced decoding, all positions at once.

Shapes: B rows, T target tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from regard.batch import IGNORED, Tokens
from regard.data.batching import collate
from regard.evaluation.metrics import Numbers, Tally
from regard.memory import Halves, NoRoomError
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer
from regard.training.loss import smoothed_cross_entropy

SLOTS = 2_048  # target tokens and padding scored at a time: their logits have to fit the memory


@dataclass(frozen=True)
class Likelihood:
    """−log P(target | source) of every line in nats, and the tokens, bytes and unknown tokens of the targets.

    A line's end counts, too: the end token as a token, the line end as a byte.
    """

    nats_L: Numbers
    tokens_L: Numbers
    bytes_L: Numbers
    unknown: int
    vocabulary: int
    words_L: Numbers | None = None
    """Words between spaces, and one for each line's end, as language models of words count (Mikolov et al. 2010)."""
    read: str = "first reference"
    """What was read, and how, for signatures."""

    def tallies(self) -> list[Tally]:
        """The perplexity per token, which depends on the vocabulary, and per word and byte, which do not."""
        sizes = {"token": (self.tokens_L, f"end tokens:yes|vocabulary:{self.vocabulary}"),
                 "word": (self.words_L, "between spaces|line ends:yes"),
                 "byte": (self.bytes_L, "UTF-8|line ends:yes")}  # fmt: skip
        return [
            Tally(f"perplexity per {unit}", f"{self.read}|{unit}s:{int(size_L.sum())}|{how}",
                  np.stack([self.nats_L, size_L], axis=1), perplexity)
            for unit, (size_L, how) in sizes.items() if size_L is not None
        ]  # fmt: skip


def perplexity(sums: Numbers) -> Numbers:
    """exp(nats / units)."""
    return np.asarray(np.exp(np.minimum(sums[..., 0] / sums[..., 1], 700.0)))


@torch.inference_mode()
def likelihood(
    model: SequenceModel[Any],
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    progress: Callable[[str, int], None] | None = None,
    read: Callable[[Sequence[str]], Tokens] | None = None,
) -> Likelihood:
    """How probable the model finds each target, given its source and, token by token, the target before.

    `read` makes a batch of some sources, for a model that does not read them as `tokenizer` cuts them: an ensemble.
    """
    ids = tokenizer.encode_all(targets)
    examples = list(zip(tokenizer.encode_sources(sources), ids, strict=True))
    criterion = smoothed_cross_entropy(0.0)
    device = next(model.parameters()).device
    model.eval()
    nats, tokens = np.zeros(len(examples)), np.zeros(len(examples))
    done, halves = 0, Halves()

    def judge(places: Sequence[int]) -> list[tuple[float, int]]:
        batch = collate([examples[place] for place in places], tokenizer.specials).to(device)
        if read is not None:
            batch = replace(batch, source=read([sources[place] for place in places]))
        losses_BT = criterion(model.logits, model.features(batch), batch.labels_BT)
        labels_B = (batch.labels_BT != IGNORED).sum(dim=1)
        return list(zip(losses_BT.double().sum(dim=1).tolist(), labels_B.tolist(), strict=True))

    def no_room(place: int) -> NoRoomError:
        source, target = examples[place]
        return NoRoomError(f"perplexity: pair {place + 1:,}", f"{len(source):,} and {len(target):,} tokens")

    # Sources are read with them, and those of summaries are much longer than their targets.
    for places in in_batches([len(source) + len(target) + 1 for source, target in examples], 2 * SLOTS):
        nats[places], tokens[places] = zip(*halves.each(places, judge, no_room), strict=True)
        done += len(places)
        if progress is not None:
            progress("perplexity", done)
    unknown = 0 if tokenizer.unknown is None else sum(target.count(tokenizer.unknown) for target in ids)
    sizes = np.array([len(target.encode()) + 1 for target in targets], dtype=np.float64)
    return Likelihood(nats, tokens, sizes, unknown, tokenizer.size)


def in_batches(lengths: Sequence[int], slots: int) -> Iterator[list[int]]:
    """The places of lines of similar length together, the longest first; at most so many slots, or one line."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > slots:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
