"""Random numbers that follow from a seed, a step and a token, and from nothing else.

Shapes: B rows, S steps, K tokens, V vocabulary.

A generator with a state gives a row other numbers when its neighbours change. These numbers are computed from names
instead: the seed's Philox stream gives each step two keys of 32 bits, and a mixing function turns a token's number and
the keys into 32 random bits. All of it is exact integer arithmetic, the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.errors import UsageError

LOW_BITS = 0xFFFFFFFF
FIRST_RESERVE = 256


class Noise:
    """One stream of Gumbel noise a row, by the row's seed."""

    def __init__(self, seeds: Sequence[int], vocabulary: int, device: torch.device) -> None:
        for seed in seeds:
            if not 0 <= seed < 2**63:
                raise UsageError(f"sampling: a seed must be from 0 to 2^63 - 1, but is {seed}; choose another")
        self.streams = [np.random.Philox(key=seed) for seed in seeds]
        self.keys_BS2 = torch.empty(len(seeds), 0, 2, dtype=torch.long, device=device)
        self.mixed_V = _mix(torch.arange(vocabulary, device=device))

    def gumbel(self, steps_B: Tensor, reach: int, tokens_BK: Tensor | None = None) -> Tensor:
        """-log(-log(u)), u uniform, for these tokens of each row or for all, [B, K]; fp32.

        `steps_B` says how many tokens each row has drawn before, `reach` how many at most.
        """
        self._reserve(reach + 1)
        keys_B12 = self.keys_BS2.gather(1, steps_B[:, None, None].expand(-1, 1, 2))
        mixed = self.mixed_V if tokens_BK is None else self.mixed_V[tokens_BK]
        bits_BK = _mix(mixed ^ keys_B12[:, :, 0]) ^ keys_B12[:, :, 1]
        # The largest noise comes from the smallest u, where floating point has many digits; u = 1 would be -inf.
        uniform_BK = ((bits_BK.float() + 0.5) * 2.0**-32).clamp(max=1 - 2.0**-24)
        return -(-torch.log1p(-uniform_BK)).log()

    def select(self, rows: Sequence[int]) -> None:
        """Keep the streams of these rows."""
        self.streams = [self.streams[row] for row in rows]
        self.keys_BS2 = self.keys_BS2[torch.tensor(rows, device=self.keys_BS2.device)]

    def _reserve(self, steps: int) -> None:
        """Draw the keys of the next steps, twice as many each time."""
        have = self.keys_BS2.shape[1]
        if steps <= have:
            return
        more = max(FIRST_RESERVE, have, steps - have)
        raw = np.stack([stream.random_raw(more) for stream in self.streams])
        halves = np.stack([raw >> np.uint64(32), raw & np.uint64(LOW_BITS)], axis=-1).astype(np.int64)
        self.keys_BS2 = torch.cat([self.keys_BS2, torch.from_numpy(halves).to(self.keys_BS2.device)], dim=1)


def _mix(x: Tensor) -> Tensor:
    """32 bits to 32 bits, one to one, so that close numbers end up far apart.

    The factors have 31 bits: a product fits into 63, and nothing overflows.
    """
    x = (x ^ (x >> 16)) * 0x21F0AAAD & LOW_BITS
    x = (x ^ (x >> 15)) * 0x735A2D97 & LOW_BITS
    return x ^ (x >> 15)
