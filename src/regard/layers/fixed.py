"""Keys and values that stay where they are: memory of a fixed size, written into step by step.

Shapes: B sentences, N beams, R = B·N rows, L positions, T tokens, H heads, Q queries, K keys, E head size.

A CUDA graph replays the very same kernels on the very same memory, so nothing may grow, and nothing may move. Beams do
move: after each step a beam goes on from what another one wrote. Instead of copying keys and values after it, all N
beams of a sentence share their memory and a table remembers who wrote what:

    slot l·N + n        holds the key that beam n wrote at position l
    ancestor[b, n, l]   is the beam that wrote position l of the text that beam n continues; -1: not written yet
    beam n sees slot l·N + m   exactly if   ancestor[b, n, l] = m

So a step reads each key once for all beams of its sentence, and following a beam changes a small table of numbers.

Unlike every other state, this one is not a value: a step changes it. Who makes it is its only owner.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import Places
from regard.layers.attention import KeyValue, side_by_side
from regard.layers.mask import Mask, Visible


@dataclass(frozen=True)
class Slots:
    """Which slots are written next, and which of them each beam sees."""

    position_1: Tensor
    """The position that the next step writes; on the device, so that no step has to wait for it."""
    next_N: Tensor
    """The slots of that position, one a beam."""
    ancestor_BNL: Tensor

    @classmethod
    def empty(cls, sentences: int, beams: int, capacity: int, device: torch.device) -> Slots:
        """Room for `capacity` positions, nothing written."""
        ancestor_BNL = torch.full((sentences, beams, capacity), -1, dtype=torch.long, device=device)
        next_N = torch.arange(beams, device=device)
        return cls(torch.zeros(1, dtype=torch.long, device=device), next_N, ancestor_BNL)

    @property
    def beams(self) -> int:
        """N."""
        return self.ancestor_BNL.shape[1]

    def first(self, length: int) -> Slots:
        """The same slots up to `length` positions; what is written into one is written into the other."""
        return Slots(self.position_1, self.next_N, self.ancestor_BNL[:, :, :length])

    def load(self, seen: Places | Slots, rows_B: Tensor) -> None:
        """Go on from where the given rows stand. What was read before there were beams, beam 0 has written for all."""
        if isinstance(seen, Slots):
            length = min(seen.ancestor_BNL.shape[2], self.ancestor_BNL.shape[2])
            ancestor_BNL = seen.ancestor_BNL[:, :, :length].index_select(0, rows_B)  # read first: it may be my own
            self.position_1.copy_(seen.position_1)
        else:
            written = seen.positions_BT.shape[1]
            ancestor_BNL = self.ancestor_BNL.new_zeros(*self.ancestor_BNL.shape[:2], written)
            self.position_1.fill_(written)
        self.next_N.copy_(self.position_1 * self.beams + torch.arange(self.beams, device=self.next_N.device))
        self.ancestor_BNL.fill_(-1)
        self.ancestor_BNL[:, :, : ancestor_BNL.shape[2]] = ancestor_BNL

    def follow(self, beam_BN: Tensor) -> None:
        """After a step: beam n continues what `beam_BN[b, n]` has written, and the next position begins."""
        index_BNL = beam_BN[:, :, None].expand_as(self.ancestor_BNL)
        self.ancestor_BNL.copy_(self.ancestor_BNL.gather(1, index_BNL))
        self.position_1.add_(1)
        self.next_N.add_(self.beams)

    def places(self, tokens_RT: Tensor) -> Places:
        """Where one new token a row stands."""
        return Places(self.position_1.expand(tokens_RT.shape))

    def visible(self, mask: Mask) -> Visible:
        """What each beam sees of its sentence's slots, its own newest included: [B, N, L·N]."""
        sentences, beams, length = self.ancestor_BNL.shape
        beam_N = torch.arange(beams, device=self.ancestor_BNL.device)
        self.ancestor_BNL.index_copy_(2, self.position_1, beam_N[:, None].expand(sentences, beams, 1))
        allowed_BNK = (self.ancestor_BNL[..., None] == beam_N).flatten(2)
        positions_L = torch.arange(length, device=beam_N.device)
        keys = Places(positions_L[:, None].expand(-1, beams).flatten().expand(sentences, -1))
        visible = Visible(allowed_BNK, places=(Places(self.position_1.expand(sentences, beams)), keys))
        if mask.window is None:
            return visible
        # Nothing later is written, so the past needs no mask; only how far it reaches does.
        near_BNK = visible.ahead() > -mask.window
        return Visible(allowed_BNK & near_BNK, places=visible.places)


@dataclass(frozen=True)
class FixedKeyValue(KeyValue):
    """Keys and values in memory that stays: [B, H, L·N, E]."""

    slots: Slots

    @classmethod
    def empty(cls, slots: Slots, heads: int, d_k: int, d_v: int, like: Tensor) -> FixedKeyValue:
        """Zeros of the type of `like`: a slot nobody has written is never seen, but must be a number."""
        sentences, beams, length = slots.ancestor_BNL.shape
        keys, values = (like.new_zeros(sentences, heads, length * beams, size) for size in (d_k, d_v))
        return cls(keys, values, slots)

    def extend(self, new: KeyValue) -> FixedKeyValue:
        """Write the keys and values of one new token a row, in place."""
        slots_N, rows = self.slots.next_N, self.keys_BHKE.shape[0]
        self.keys_BHKE.index_copy_(2, slots_N, side_by_side(new.keys_BHKE, rows))
        self.values_BHKE.index_copy_(2, slots_N, side_by_side(new.values_BHKE, rows))
        return self

    def first(self, slots: Slots) -> FixedKeyValue:
        """The part that `slots`, the first of mine, speak of."""
        size = slots.ancestor_BNL.shape[2] * slots.beams
        return FixedKeyValue(self.keys_BHKE[:, :, :size], self.values_BHKE[:, :, :size], slots)

    def load(self, past: KeyValue, rows_B: Tensor) -> None:
        """Take over what the given rows of `past` hold; without beams so far, beam 0 wrote it."""
        fixed, beams = isinstance(past, FixedKeyValue), self.slots.beams
        size = min(past.keys_BHKE.shape[2], self.keys_BHKE.shape[2]) if fixed else past.keys_BHKE.shape[2]
        slots = slice(0, size) if fixed else slice(0, size * beams, beams)
        self.keys_BHKE[:, :, slots] = past.keys_BHKE[:, :, :size].index_select(0, rows_B)
        self.values_BHKE[:, :, slots] = past.values_BHKE[:, :, :size].index_select(0, rows_B)


def step_places(seen: Places | Slots, tokens_BT: Tensor) -> Places:
    """Where the next tokens stand, after those `seen`."""
    if isinstance(seen, Slots):
        return seen.places(tokens_BT)
    return Places.whole(tokens_BT, first=seen.positions_BT.shape[1])


def written_slots(seen: Places | Slots) -> Slots:
    """The slots of a state that has fixed memory."""
    if not isinstance(seen, Slots):
        raise TypeError("slots: only a state of fixed memory has any; make one with the model's `fixed`")
    return seen


def fixed(kv: KeyValue | None) -> FixedKeyValue:
    """The keys and values of a state that has fixed memory."""
    if not isinstance(kv, FixedKeyValue):
        raise TypeError("keys and values: only those of fixed memory stay in place; make some with the model's `fixed`")
    return kv
