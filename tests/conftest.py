"""What holds for all tests: one thread each, and the same drawn examples on every run."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

# Several test processes share the machine: more threads a process only make them wait for each other.
torch.set_num_threads(1)

# "same" can be relied on; "search" looks for examples nobody has seen: HYPOTHESIS_PROFILE=search pytest -n0
settings.register_profile("same", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("search", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
