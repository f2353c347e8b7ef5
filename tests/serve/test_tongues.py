"""Which languages a model has, where only its corpus tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from regard.serve import tongues


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("train.en", "en"),
        ("train.EN.gz", "en"),
        ("train.th.tsv.xz", "th"),
        ("a.tsv.xz", "und"),
        ("a.txt", "und"),
        ("corpus.no.dups", "und"),
    ],
)
def test_the_ending_of_a_file_tells_its_language_packed_or_not(file: str, code: str) -> None:
    data = SimpleNamespace(source=file)
    served = SimpleNamespace(model=SimpleNamespace(recipe=SimpleNamespace(data=data)))
    assert tongues._from_files(cast(Any, served), "source") == code
