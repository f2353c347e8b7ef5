"""Machines to plan for, as fast as a test says: how fast this one is would change from run to run."""

from __future__ import annotations

import pytest

from regard import planning
from regard.machine import Machine

CPU = Machine("cpu", "a CPU", 2, 16 * 10**9)
GPU = Machine("cuda", "a GPU", 2, 80 * 10**9)
SPEED = 1e9


def run_at(patch: pytest.MonkeyPatch, speed: float) -> None:
    """Let every machine compute so many FLOP a second."""
    patch.setattr(planning, "matmul_speed", lambda *_: speed)
