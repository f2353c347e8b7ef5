"""One server for all tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.running import Running, running


@pytest.fixture(scope="session")
def server(words_model: Path, babbling_model: Path) -> Iterator[Running]:
    """`words` translates thirteen numbers, `babble` writes nonsense."""
    with running({"words": words_model, "babble": babbling_model}) as found:
        yield found
