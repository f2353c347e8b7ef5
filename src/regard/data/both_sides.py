"""Files that hold both sides of their pairs, each read by what knows its form."""

from __future__ import annotations

from collections.abc import Iterator

from regard.data.formats import Block, Repairs, json_blocks, table_blocks
from regard.data.memories import memory_blocks
from regard.data.sources import Files
from regard.data.spreadsheets import csv_blocks


def both_sides(file: str, settings: Files, repairs: Repairs) -> Iterator[Block]:
    """The pairs of a file in the form that settings, or else its name, say."""
    match settings.format_of(file):
        case "jsonl":
            return json_blocks(file, settings.keys, repairs)
        case "csv":
            return csv_blocks(file, settings.columns, repairs, settings.keys)
        case "tmx":
            return memory_blocks(file, settings.source_language, settings.target_language)
        case "tsv" | None:
            return table_blocks(file, settings.columns, repairs)
