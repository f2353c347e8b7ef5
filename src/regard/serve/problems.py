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
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from regard.errors import DataError, MissingError, RegardError, UsageError
from regard.memory import ran_out

Kind = Literal["usage", "data", "missing", "limit", "busy", "internal"]

LIBRETRANSLATE = ("/translate", "/languages", "/detect", "/translate_file", "/frontend", "/download_file", "/suggest")

PARTS = ("body", "query", "path")
TYPE = re.compile(r"(?:str|int|float|bool|none|constrained-\w+|(?:list|literal|nullable|function)\b.*)", re.DOTALL)
MOST_SHOWN = 10**12
LONGEST_WORD = 30
RULES = {
    "string_type": "a text",
    "string_too_long": "a text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number that is not infinite",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object with the fields of this route",
    "model_attributes_type": "an object with the fields of this route",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "literal_error": "one of {expected}",
}


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
    field = "model" if str(error).startswith("model: ") else None
    if isinstance(error, UsageError):
        return Problem(400, "usage", str(error), field)
    if isinstance(error, DataError):
        return Problem(400, "data", str(error))
    if isinstance(error, MissingError):
        return Problem(404, "missing", str(error), field)
    if isinstance(error, RegardError):
        return Problem(500, "internal", str(error))
    if ran_out(error):
        message = "memory: an answer must fit into the memory of the device, but does not. Ask for less, or later."
        return Problem(503, "busy", message, headers={"retry-after": "5"})
    return Problem(500, "internal", f"the server broke a promise ({type(error).__name__}); please report it.")


def broken_rule(errors: Sequence[Any], status: int, body: object = None) -> Problem:
    """What is wrong with the first field that is: its rule, and what kind of value it has.

    `errors` are pydantic's, about this body. A field that may be several things has one for each, and its rule is all
    of theirs.
    """
    places = [_place(error) for error in errors]
    field = ".".join(places[0])[:100] or None
    same = [error for error, place in zip(errors, places, strict=True) if place == places[0]]
    found = same[0]
    name = field or "body"
    match found["type"]:
        case "json_invalid":
            return no_json(str(body), found["loc"][-1])
        case "missing":
            return Problem(status, "usage", f"{name}: must be given, but is missing. Add it.", field)
        case "extra_forbidden":
            return Problem(
                status, "usage", f"{name}: must be a field of this route, but is not. See /openapi.json.", field
            )
        case "value_error":
            return Problem(status, "usage", f"{name}: {found['ctx']['error']}. Write it anew.", field)
    rules = " or ".join(dict.fromkeys(_rule(error) for error in same))
    choice = any(error["type"] == "literal_error" for error in same)
    value = _named(found["input"]) if choice else _kind(found["input"])
    return Problem(status, "usage", f"{name}: must be {rules}, but is {value}. See /openapi.json.", field)


def no_json(body: str, place: int) -> Problem:
    """What is no JSON, from the character at this place on."""
    line, column = body.count("\n", 0, place) + 1, place - body.rfind("\n", 0, place)
    return Problem(
        400, "data", f"body: must be JSON, but is not at line {line:,}, column {column:,}. Send an object with the "
        "fields of this route.",
    )  # fmt: skip


def wrong_method(method: str, headers: Mapping[str, str] | None) -> Problem:
    """A method that a route does not take; the header names those it takes."""
    able = " or ".join(sorted(re.findall(r"\w+", (headers or {}).get("Allow", "")))) or "one that this route takes"
    return Problem(
        405, "usage", f"method: must be {able}, but is {method[:LONGEST_WORD]}. See /openapi.json for what there is.",
        headers=headers,
    )  # fmt: skip


def wrong_type(content_type: str | None, address: str) -> Problem:
    """JSON that is not said to be JSON, as `curl -d` sends it unless told otherwise."""
    kind = (content_type or "").partition(";")[0].strip()
    given = f"'{kind}'" if re.fullmatch(r"[\w.+-]{1,50}/[\w.+-]{1,50}", kind) else "another" if kind else "missing"
    return Problem(
        400, "usage", f"content-type: must be 'application/json', but is {given}. Send it as a header: "
        f"curl {address} -H 'content-type: application/json' -d '{{...}}'",
    )  # fmt: skip


def _place(error: Any) -> list[str]:
    """Where a value stands; without the part of the request, and the names of types that pydantic puts between."""
    first, *others = [part for part in error["loc"] if part not in PARTS] or [""]
    return [str(part) for part in (first, *others) if part != "" and (part is first or not TYPE.fullmatch(str(part)))]


def _rule(error: Any) -> str:
    words, limits = RULES.get(error["type"]), error.get("ctx", {})
    if words is None:
        return "what its description says"
    return words.format(**{name: f"{value:,}" if isinstance(value, int) else value for name, value in limits.items()})


def _named(value: object) -> str:
    """As `_kind`, for one of a few words: another one is repeated if it is as short as they are."""
    short = isinstance(value, str) and len(value) <= LONGEST_WORD and value.isprintable()
    return f"'{value}'" if short else _kind(value)


def _kind(value: object) -> str:
    """What a value is; only numbers are repeated, because a text may be anything."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (int, float)):
        return f"{value:,}" if abs(value) < MOST_SHOWN else "a number that is far off"
    kinds = {"str": "a text", "list": "a list", "dict": "an object"}
    return kinds.get(type(value).__name__, "something else")


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
