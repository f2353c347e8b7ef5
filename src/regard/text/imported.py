"""A vocabulary that came with an imported model: it stands in the model's folder, and cannot be learned again.

Tokenizers of other toolkits call their special tokens differently, and let one token play several parts: Marian starts
a text with its padding, fairseq with its end. So an imported `tokenizer.json` says in its template which ids play the
parts of <pad>, <bos> and <eos>, and which token asks for which language:

    "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<pad>": {"ids": [58100], …}, …}, …}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import tokenizers
from tokenizers import processors

from regard.text.learning import END, START

HIDDEN = " "
"""Before a piece that no text may become: spaces are marked as ▁ before pieces are looked for, so none begins so."""


@dataclass(frozen=True)
class Imported:
    """The vocabulary of an imported model."""

    vocabulary: int
    """How many tokens it has."""
    kind: Literal["imported"] = "imported"
    dropout: ClassVar[float] = 0.0
    shared: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.vocabulary < 1:
            raise ValueError(f"`vocabulary` must be at least 1, but is {self.vocabulary}")


def cast(inner: tokenizers.Tokenizer, parts: Mapping[str, int]) -> None:
    """Say in a tokenizer which ids play the parts of <pad>, <bos>, <eos> and of the language tags."""
    inner.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=list(parts.items()))


def parts_of(inner: tokenizers.Tokenizer) -> dict[str, int]:
    """What `cast` has said; nothing, if a tokenizer was learned here."""
    if not isinstance(inner.post_processor, processors.TemplateProcessing):
        return {}
    template = json.loads(inner.post_processor.__getstate__())
    return {name: entry["ids"][0] for name, entry in template["special_tokens"].items()}
