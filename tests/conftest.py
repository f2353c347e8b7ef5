"""What holds for all tests: one thread each, and the same drawn examples on every run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# What a shell starts in the background ignores Ctrl-C, and with `nohup` SIGHUP; so would the processes of tests.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# Several test processes share the machine: more threads a process only make them wait for each other.
torch.set_num_threads(1)

# "same" can be relied on; "search" looks for examples nobody has seen: HYPOTHESIS_PROFILE=search pytest -n0
settings.register_profile("same", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("search", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def words_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that knows the words of `tests.tiny` by heart. Do not write into it; copy it first."""
    # Imported here, so that tests of the lower layers need nothing from above.
    from regard import experiment
    from tests.tiny import word_recipe

    place = tmp_path_factory.mktemp("words")
    with torch.random.fork_rng():
        experiment.train(word_recipe(place), place / "model")
    return place / "model"


@pytest.fixture(scope="session")
def babbling_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model of bytes that has learned nothing. Do not write into it; copy it first."""
    from tests.tiny import language_model

    return language_model(tmp_path_factory.mktemp("babble") / "model")


@pytest.fixture
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans take every machine for one of `tests.machines.SPEED`, instead of measuring this one."""
    from tests.machines import SPEED, run_at

    run_at(monkeypatch, SPEED)
