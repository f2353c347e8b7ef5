"""From settings to a model: what cannot be built is named."""

from __future__ import annotations

import pytest

from regard.errors import UsageError
from regard.models.build import build
from regard.models.transformer import TransformerSettings

# No machine has so many addresses; a size that some machine might have would be tried there.
ENDLESS = 10**15


def test_a_model_that_does_not_fit_names_its_largest_matrix() -> None:
    settings = TransformerSettings(d_model=8, heads=2, positions="learned", max_positions=ENDLESS)
    with pytest.raises(UsageError, match=rf"take 32,000,\d+ GB; the largest is .*positions.*, {ENDLESS} × 8"):
        build(settings, vocabulary=5)
