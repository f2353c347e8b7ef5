"""Keys and values with room behind them: a new token is written there, and what was kept is not copied for it.

Shapes: B rows, H heads, K keys, E head size.

Still a value: who has the old one sees what it saw, since nothing it sees is ever written again. If two go on from the
same one, the first takes the room, and the second moves to memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from regard.layers.attention import KeyValue, infers, side_by_side

SPARE = 4  # memory that is full moves to one that is larger by a 4th, so that a text is copied a few times at most


class Room:
    """Memory for more keys and values than there are yet; the first `filled` of them are written."""

    def __init__(self, kept: KeyValue, size: int) -> None:
        self.keys_BHKE, self.values_BHKE = (
            part.new_empty(*part.shape[:2], size, part.shape[3]) for part in (kept.keys_BHKE, kept.values_BHKE)
        )
        self.filled = 0
        self.write(kept.keys_BHKE, kept.values_BHKE)

    def write(self, keys_BHKE: Tensor, values_BHKE: Tensor) -> None:
        """Fill the next places."""
        after = self.filled + keys_BHKE.shape[2]
        self.keys_BHKE[:, :, self.filled : after] = keys_BHKE
        self.values_BHKE[:, :, self.filled : after] = values_BHKE
        self.filled = after


@dataclass(frozen=True)
class GrowingKeyValue(KeyValue):
    """The keys and values at the beginning of a room, or, before the first step, by themselves."""

    room: Room | None = field(default=None, compare=False)

    def extend(self, new: KeyValue) -> GrowingKeyValue:
        """What was kept, followed by `new`, written into the room if nobody was there first."""
        if not infers():  # gradients need everything as it was
            plain = super().extend(new)
            return GrowingKeyValue(plain.keys_BHKE, plain.values_BHKE)
        rows, _, before, _ = self.keys_BHKE.shape
        keys_BHKE, values_BHKE = side_by_side(new.keys_BHKE, rows), side_by_side(new.values_BHKE, rows)
        room, after = self.room, before + keys_BHKE.shape[2]
        if room is None or room.filled != before or room.keys_BHKE.shape[2] < after:
            room = Room(self, after + after // SPARE)
        room.write(keys_BHKE, values_BHKE)
        return GrowingKeyValue(room.keys_BHKE[:, :, :after], room.values_BHKE[:, :, :after], room)

    def select(self, rows: Tensor) -> GrowingKeyValue:
        """The given rows, in the given order; a row may be named twice."""
        chosen = super().select(rows)
        return GrowingKeyValue(chosen.keys_BHKE, chosen.values_BHKE)
