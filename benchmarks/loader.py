"""How fast batches are made from a prepared corpus, how much of them is padding, and how many shapes they have.

    python -m benchmarks.loader             a corpus of random tokens whose lengths are drawn like those of a real one
    python -m benchmarks.loader FOLDER      a corpus that Regard has prepared

Tokens are real ones, without padding, of both sides. `a CPU second` counts the time of all threads, and is what can be
compared on a busy machine; `a second` is by the clock.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from regard.batch import Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.prefetch import Prefetch
from regard.data.store import StoreWriter, TokenStore
from regard.text.ragged import Ragged

SPECIALS = Specials(padding=0, start=1, end=2)
PAIRS = 100_000
SECONDS = 2.0


def random_corpus(folder: Path) -> None:
    """Log-normal lengths with a mean of about 28, and targets about as long as their sources."""
    draw = np.random.default_rng(1)
    source = draw.lognormal(3.15, 0.6, PAIRS).astype(int)
    target = (source * draw.lognormal(0.0, 0.2, PAIRS)).astype(int)
    with StoreWriter(folder, ("source", "target"), 32_000, SPECIALS.end) as writer:
        for first in range(0, PAIRS, 10_000):
            lengths = {"source": source[first : first + 10_000], "target": target[first : first + 10_000]}
            writer.append({side: Ragged(draw.integers(4, 32_000, sum(n)), n) for side, n in lengths.items()})
        writer.finish({})


def measure(name: str, store: TokenStore, settings: BatchSettings) -> None:
    cpu = time.process_time()
    batches = Batches(store, SPECIALS, settings, seed=1)
    rows = time.process_time() - cpu
    cpu = time.process_time()
    batches[0]
    epoch = time.process_time() - cpu
    print(f"  {name}: {batches.summary()}; rows found in {rows:.2f} CPU s, an epoch ordered in {epoch:.2f}")
    tokens, made = 0, 0
    with Prefetch(batches, 0, "cpu") as prefetch:
        clock, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() < clock + SECONDS:
            tokens += next(prefetch).tokens
            made += 1
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    speeds = f"{tokens / cpu / 1e6:.1f} million tokens a CPU second, {tokens / seconds / 1e6:.1f} a second"
    print(f"    {made:,} batches: {speeds}")


def main(folder: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as place:
        if folder is None:
            folder = Path(place)
            random_corpus(folder)
        store = TokenStore.open(folder)
        print(f"  {len(store):,} examples, {store.tokens:,} tokens")
        if store.source is not None:
            measure("buckets of 25,000", store, BatchSettings())
            measure("packed rows of 128", store, BatchSettings(layout="packed"))
        measure("blocks of 1,024", TokenStore(store.target), BatchSettings(layout="blocks", row=1_024))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
