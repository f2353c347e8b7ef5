"""Dataclasses into TOML, and their classes into a JSON schema."""

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from regard.settings.shape import check_tree, fields_of, join
from regard.settings.tree import text_of

if TYPE_CHECKING:
    from pydantic_core import core_schema


def to_toml(settings: object) -> str:
    """The settings as a TOML file that `build` reads back to an equal object; what is None is left out."""
    check_tree(type(settings))
    return "\n".join(_section(settings, "")).strip("\n") + "\n"


def _section(settings: Any, path: str) -> Iterator[str]:
    tables: list[tuple[str, str, Any]] = []
    cls: type = type(settings)
    for name in fields_of(cls):
        value, key = getattr(settings, name), join(path, name)
        if dataclasses.is_dataclass(value):
            tables.append((f"[{key}]", key, value))
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            tables.extend((f"[[{key}]]", key, row) for row in value)
        elif value is not None:
            yield from _line(name, value)
    for header, key, inner in tables:
        lines = list(_section(inner, key))
        # A table that holds nothing but tables is implied by their headers; a row of a list never is.
        if header.startswith("[[") or lines[:1] != [""]:
            yield from ("", header)
        yield from lines


def _line(name: str, value: Any) -> Iterator[str]:
    line = f"{name} = {text_of(value)}"
    if isinstance(value, tuple) and len(line) > 100:
        yield from (f"{name} = [", *(f"  {text_of(item)}," for item in value), "]")
    else:
        yield line


def schema(cls: type) -> dict[str, Any]:
    """The JSON schema of a file of such settings, for editors: docstrings of classes and fields explain it."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

    class FileSchema(GenerateJsonSchema):
        def field_is_required(self, field: Any, total: bool) -> bool:
            return False  # what a file leaves out may come from the one it extends

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False  # "D Model" would say nothing that `d_model` does not

        def nullable_schema(self, schema: "core_schema.NullableSchema") -> JsonSchemaValue:
            return self.generate_inner(schema["schema"])  # TOML has no null

        def default_schema(self, schema: "core_schema.WithDefaultSchema") -> JsonSchemaValue:
            found = super().default_schema(schema)
            # A default of None is the key left out, and JSON has no infinity.
            if found.get("default") is None or not _is_json(found["default"]):
                found.pop("default", None)
            return found

        def dataclass_schema(self, schema: "core_schema.DataclassSchema") -> JsonSchemaValue:
            return super().dataclass_schema(schema) | {"additionalProperties": False}

    check_tree(cls)
    # Pydantic takes no config beside a dataclass, which could have its own; beside an optional one it does.
    hint: Any = cls | None
    adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(use_attribute_docstrings=True))
    found = adapter.json_schema(schema_generator=FileSchema)
    extends = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "The file or preset, or a list of them, that this file is merged on top of.",
    }
    return found | {"$schema": FileSchema.schema_dialect, "properties": {"extends": extends} | found["properties"]}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
