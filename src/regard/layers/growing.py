"""Memory with room behind what is kept: what a new token brings is written there, and nothing is copied for it.

Shapes: B rows, H heads, K keys, E head size.
"""

from __future__ import annotations

from torch import Tensor

SPARE = 4  # memory that is full moves to one that is larger by a 4th, so that a text is copied a few times at most


class Room:
    """Memory for more keys and values than there are yet; the first `filled` of them are written, and stay."""

    def __init__(self, keys_BHKE: Tensor, values_BHKE: Tensor, filled: int) -> None:
        self._keys_BHKE, self._values_BHKE, self.filled = keys_BHKE, values_BHKE, filled

    @classmethod
    def around(cls, keys_BHKE: Tensor, values_BHKE: Tensor, more: int) -> Room:
        """Room that holds these, and has place for `more`, and for some behind them."""
        size = keys_BHKE.shape[2] + more
        size += size // SPARE
        keys, values = (part.new_empty(*part.shape[:2], size, part.shape[3]) for part in (keys_BHKE, values_BHKE))
        room = cls(keys, values, filled=0)
        room.write(keys_BHKE, values_BHKE)
        return room

    def takes(self, more: int) -> bool:
        """Whether there is place for so many."""
        return self.filled + more <= self._keys_BHKE.shape[2]

    def write(self, keys_BHKE: Tensor, values_BHKE: Tensor) -> None:
        """Fill the next places."""
        after = self.filled + keys_BHKE.shape[2]
        self._keys_BHKE[:, :, self.filled : after] = keys_BHKE
        self._values_BHKE[:, :, self.filled : after] = values_BHKE
        self.filled = after

    def written(self) -> tuple[Tensor, Tensor]:
        """All keys and values that there are."""
        return self._keys_BHKE[:, :, : self.filled], self._values_BHKE[:, :, : self.filled]

    def select(self, rows: Tensor, filled: int) -> Room:
        """A room of its own for the given rows; of what they hold, the first `filled` count."""
        # What is behind is copied with them: a beam's next token finds its place there.
        return Room(self._keys_BHKE.index_select(0, rows), self._values_BHKE.index_select(0, rows), filled)
