"""How fast vocabularies are learned and text is encoded, and how much memory learning takes.

    python -m benchmarks.tokenizer           a text of made-up words, as frequent as words are
    python -m benchmarks.tokenizer FILE      a text of your own, one sentence a line

A CPU second counts the time of all threads, and is what can be compared on a busy machine. Memory is that of a process
that does nothing else, beyond what it had before it read the text.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from regard.text.cutters import cut_in_order, free_cores
from regard.text.dropout import MergeDropout, encode_each
from regard.text.learning import MERGING, Kind
from regard.text.ragged import Ragged
from regard.text.tokenizer import Tokenizer, TokenizerSettings

KINDS: tuple[Kind, ...] = ("bpe", "bpe-end", "bytes", "words", "characters")
VOCABULARY = 8_000
LINES = 6_000  # lines that are encoded
CUTS, CHUNKS = 4, 40  # of BPE-dropout: cuts of each line, and how often all lines are cut by processes


class Lines:
    """The lines of a file, or made-up ones, as often as they are asked for."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def __iter__(self) -> Iterator[str]:
        if self._file is not None:
            with self._file.open(encoding="utf-8", newline="\n") as stream:
                yield from (line.removesuffix("\n") for line in stream)
            return
        draw = random.Random(1)
        words = ["".join(draw.choices("etaoinshrdlucmfwypvbgk", k=draw.randint(1, 11))) for _ in range(30_000)]
        # Zipf's law: the n-th word is about 1/n as frequent as the first.
        weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
        for _ in range(LINES):
            yield " ".join(draw.choices(words, cum_weights=weights, k=20))


def measure(kind: Kind, file: Path | None) -> None:
    lines = Lines(file)
    before, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    tokenizer = Tokenizer.learn(lines, TokenizerSettings(kind, VOCABULARY))
    learned = time.process_time() - cpu
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"  {kind}: {tokenizer.size:,} tokens learned in {learned:.1f} CPU s and {memory:,.0f} MiB")
    texts = [line for line, _ in zip(lines, range(LINES), strict=False)]
    encode("by the library", lambda texts: Ragged.of(tokenizer.encode_all(texts)), texts)
    encode("by words, none of them met before", tokenizer.encode_flat, texts)
    encode("by words, all of them met before", tokenizer.encode_flat, texts)
    if kind in MERGING:
        cuts = tokenizer.training_cuts(TokenizerSettings(kind, dropout=0.1, dropout_cuts=CUTS), seed=1)
        dropouts = [cut for cut in cuts if isinstance(cut, MergeDropout)]
        merges, draws = dropouts[0].merges, [cut.draws for cut in dropouts]
        dropouts[0].encode_flat(texts)
        encode(
            f"with dropout, {CUTS} cuts, all words met before",
            lambda texts: Ragged.joined(encode_each(merges, draws, texts)),
            texts,
        )
        for processes in sorted({1, 2, free_cores()}):
            cut(texts, dropouts, processes)


def encode(name: str, function: Callable[[list[str]], Ragged], texts: list[str]) -> None:
    clock, cpu = time.perf_counter(), time.process_time()
    tokens = len(function(texts).ids)
    seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    print(f"    {name}: {tokens / cpu / 1e6:.2f} million tokens a CPU second, {tokens / seconds / 1e6:.2f} a second")


def cut(texts: list[str], cuts: list[MergeDropout], processes: int) -> None:
    """Lines a second, each counted once for each of its cuts; with what it takes to start the processes."""
    clock = time.perf_counter()
    for _ in cut_in_order([[texts]] * CHUNKS, cuts, processes):
        pass
    lines, seconds = len(texts) * CHUNKS * len(cuts), time.perf_counter() - clock
    print(f"    cut by {processes} process(es): {lines / seconds:,.0f} lines a second", flush=True)


def main() -> None:
    file = Path(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else None
    for kind in KINDS:
        # A process of its own: peak memory never goes down again.
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(kind, file))
        child.start()
        child.join()


if __name__ == "__main__":
    main()
