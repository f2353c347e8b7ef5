"""Codes of languages, as people and programs write them: `en`, `EN-us`, `pt_BR`."""

from __future__ import annotations


def same_language(one: str, other: str) -> bool:
    """Whether two codes mean one language: `en` and `EN-us` do, `pt-BR` and `pt-PT` do not."""
    return all(ours == theirs for ours, theirs in zip(_parts(one), _parts(other), strict=False))


def _parts(code: str) -> list[str]:
    return code.lower().replace("_", "-").split("-")
