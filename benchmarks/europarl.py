"""From compressed text to token ids in files: time and memory, with a joint vocabulary learned on the way.

    python -m benchmarks.europarl                        Europarl English-German, if it is in ../shared/data
    python -m benchmarks.europarl SOURCE TARGET          two files of your own
    python -m benchmarks.europarl SOURCE TARGET 8000     with another size of the vocabulary than 32,000

A CPU second counts the time of all threads, and is what can be compared on a busy machine. Memory is the peak of the
whole process, with all that Python and torch take. At the end, batches are made from the result.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import loader
from regard.data.batching import BatchSettings
from regard.data.corpus import Files, open_corpus
from regard.data.dataset import learn_tokenizer
from regard.data.prepare import prepare
from regard.data.reread import TrainingPairs
from regard.text.tokenizer import TokenizerSettings

EUROPARL = Path(__file__).parents[2] / "shared/data/europarl-ende"
VOCABULARY = 32_000
MINUTES, GIBIBYTES = 6, 3  # what it may take on two cores


@contextmanager
def timed(name: str) -> Iterator[None]:
    clock, cpu = time.perf_counter(), time.process_time()
    yield
    print(
        f"  {name}: {time.process_time() - cpu:.0f} CPU s, {time.perf_counter() - clock:.0f} s; "
        f"peak {peak():.2f} GiB, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(source: str, target: str, vocabulary: int) -> None:
    corpus = open_corpus(Files(source, target))
    with tempfile.TemporaryDirectory() as place, TrainingPairs(corpus, Path(place)) as pairs:
        clock, cpu = time.perf_counter(), time.process_time()
        with timed("read, filter and copy"):
            count = sum(1 for _ in pairs)
        with timed(f"learn {vocabulary:,} tokens"):
            tokenizer = learn_tokenizer(pairs, TokenizerSettings(vocabulary=vocabulary))
        with timed("encode and write"):
            store = prepare(Path(place), corpus.origin(), corpus.texts(pairs), tokenizer)
        seconds = time.perf_counter() - clock
        fast = seconds <= 60 * MINUTES and peak() <= GIBIBYTES
        print(f"  {count:,} pairs, {store.tokens:,} tokens with a vocabulary of {tokenizer.size:,}")
        print(
            f"  all: {time.process_time() - cpu:.0f} CPU s, {seconds:.0f} s, peak {peak():.2f} GiB, load "
            f"{os.getloadavg()[0]:.1f}: {'within' if fast else 'NOT within'} {MINUTES} minutes and {GIBIBYTES} GiB",
            flush=True,
        )
        loader.measure("buckets of 25,000", store, BatchSettings())
        loader.measure("packed rows of 128", store, BatchSettings(layout="packed"))


def main(source: str | None = None, target: str | None = None, vocabulary: str = str(VOCABULARY)) -> None:
    if source is None or target is None:
        source, target = (str(EUROPARL / name) for name in ("train.en.bz2", "train.de.xz"))
        if not EUROPARL.is_dir():
            print(f"  skipped: {EUROPARL} is not there")
            return
    # A process of its own: peak memory never goes down again.
    child = multiprocessing.get_context("spawn").Process(target=measure, args=(source, target, int(vocabulary)))
    child.start()
    child.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
