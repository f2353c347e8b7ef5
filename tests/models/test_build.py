"""From settings to a model: what cannot be built is named."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from regard.errors import UsageError
from regard.models import build as module
from regard.models.build import build
from regard.models.transformer import TransformerSettings

# No machine has so many addresses; a size that some machine might have would be tried there.
ENDLESS = 10**15
SMALL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2)


def test_a_model_that_does_not_fit_names_its_largest_matrix() -> None:
    settings = TransformerSettings(d_model=8, heads=2, positions="learned", max_positions=ENDLESS)
    with pytest.raises(UsageError, match=rf"take 32,000,\d+ GB; the largest is .*positions.*, {ENDLESS} × 8"):
        build(settings, vocabulary=5)


@pytest.mark.parametrize("shortage", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_memory_that_ran_out_is_known_by_any_of_its_names(shortage: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module._build
    monkeypatch.setattr(module, "_build", mock.Mock(side_effect=[shortage, real(SMALL, 5, None)]))
    with pytest.raises(UsageError, match="model: its weights must fit into memory"):
        build(SMALL, vocabulary=5)
