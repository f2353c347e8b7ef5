"""Questions that nobody would think of, made from the description: no answer is a 5xx, and each is as described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regard.serve.limits import Limits
from tests.serve.running import running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SLOW_EACH = 100  # for each of more than twenty operations


@pytest.fixture(scope="session")
def described(words_model: Path, babbling_model: Path) -> Iterator[Any]:
    """The description of a server that allows little, so that whatever is asked takes no time."""
    limits = Limits(text=200, look=40, tokens=8, beam=4, nbest=4, deadline=60)
    with running({"words": words_model, "babble": babbling_model}, limits) as server:
        yield schemathesis.openapi.from_url(f"{server.address}/openapi.json")


def ask(described: Any, each: int) -> int:
    """Ask so many questions of each operation; gives how many were asked."""
    asked = 0
    wrong: dict[str, str] = {}
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=each, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy())
        def question(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=CHECKS, timeout=60)

        try:
            question()
        except (Exception, BaseExceptionGroup) as error:  # so that all operations are asked
            wrong[operation.label] = str(error)[:1500]
    assert not wrong, "\n\n".join(f"{label}\n{what}" for label, what in wrong.items())
    return asked  # fmt: skip


def test_no_question_breaks_it(described: Any) -> None:
    assert ask(described, 5) >= 100


@pytest.mark.slow
def test_no_question_breaks_it_in_thousands(described: Any) -> None:
    assert ask(described, SLOW_EACH) >= 2000
