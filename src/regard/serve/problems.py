"""What goes wrong while serving, as HTTP tells it.

    Problem                 an answer that is no result: status, type, message, field
    ├── LimitError   (413)  more than this server allows
    ├── BusyError    (429)  too many wait; says when to come again
    └── LateError    (503, 504)  the deadline passed, before or while the model worked

Every other exception becomes one of them in `problem_of`. Each family of routes has its own shape of errors, the one
its clients know: `body_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from regard.errors import DataError, MissingError, RegardError, UsageError

Kind = Literal["usage", "data", "missing", "limit", "busy", "internal"]

LIBRETRANSLATE = ("/translate", "/languages", "/detect", "/translate_file", "/frontend", "/download_file", "/suggest")


class Problem(Exception):  # noqa: N818
    """An answer that is no result."""

    def __init__(
        self, status: int, kind: Kind, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.field = status, kind, message, field
        self.headers = dict(headers or {})


class LimitError(Problem):
    """More than this server allows."""

    def __init__(self, message: str, field: str | None = None, close: bool = False) -> None:
        super().__init__(413, "limit", message, field, {"connection": "close"} if close else None)


class BusyError(Problem):
    """Too many wait already."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(429, "busy", message, headers={"retry-after": str(max(1, math.ceil(seconds)))})


class LateError(Problem):
    """The deadline passed: 503 if no model had begun, so that asking again may help, 504 if one had."""

    def __init__(self, seconds: float, began: bool) -> None:
        state = "it was not done" if began else "no model was free"
        message = f"deadline: an answer must be there within {seconds:g} seconds, but {state}. Ask for less, or later."
        super().__init__(504 if began else 503, "busy", message, headers={} if began else {"retry-after": "5"})


def problem_of(error: Exception) -> Problem:
    """An exception as an answer. What nobody foresaw is told without its message, which may hold anything."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UsageError):
        return Problem(400, "usage", str(error))
    if isinstance(error, DataError):
        return Problem(400, "data", str(error))
    if isinstance(error, MissingError):
        return Problem(404, "missing", str(error))
    if isinstance(error, RegardError):
        return Problem(500, "internal", str(error))
    return Problem(500, "internal", f"the server broke a promise ({type(error).__name__}); please report it.")


def body_of(problem: Problem, path: str) -> dict[str, object]:
    """The JSON of an error, in the shape that clients of this path know."""
    if path.startswith("/v1/"):
        types = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = types.get(problem.status, "invalid_request_error" if problem.status < 500 else "server_error")
        codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
        code = codes.get(problem.status)
        return {"error": {"message": problem.message, "type": kind, "param": problem.field, "code": code}}
    if any(path == each or path.startswith(f"{each}/") for each in LIBRETRANSLATE):
        return {"error": problem.message}
    return {"error": {"type": problem.kind, "message": problem.message, "field": problem.field}}
