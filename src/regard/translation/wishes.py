"""What translations must begin with, must not say and must say: in words, and in a model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from regard.decoding.constraints import Constraints
from regard.errors import UsageError
from regard.text.tokenizer import Tokenizer

MARKS = ".,;:!?)\"'”’“«»…"  # what may share a token with the end of a word


@dataclass(frozen=True)
class Wishes:
    """What translations have to keep to, in words.

    They begin with `prefix`, hold none of `banned` and all of `required`. A word counts as the tokenizer cuts it, alone
    or before a punctuation mark: spelled with other subwords, it is another one.
    """

    prefix: str = ""
    banned: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    def constraints(self, tokenizer: Tokenizer) -> Constraints:
        """The same in tokens; raises UsageError for what the vocabulary has no tokens for, and for contradictions."""
        for phrase in (*self.banned, *self.required):
            if not phrase.strip():
                raise UsageError("translate: a banned or required word must hold text, but one is empty. Leave it out.")
        for phrase in (self.prefix, *self.banned, *self.required):
            if tokenizer.unknown is not None and tokenizer.unknown in tokenizer.encode(phrase):
                raise UsageError(
                    f"translate: a word to begin with, to ban or to require must be in the model's vocabulary, but "
                    f"`{phrase.strip()}` is not. Leave it out, or write it in another way."
                )
        # Byte vocabularies tell a word with a space before it from one without; for others both are the same. Without,
        # a required word could be the end of another one.
        banned = {tokens: phrase for phrase in self.banned for tokens in _cuts(tokenizer, phrase, ("", " "))}
        required = {_cuts(tokenizer, phrase, (" ",)): phrase for phrase in self.required}
        for cuts, phrase in required.items():
            unwanted = [next((some for some in banned if _holds(tokens, some)), None) for tokens in cuts]
            if None not in unwanted:
                raise UsageError(
                    f"translate: a required word must not hold a banned one, but `{phrase}` holds "
                    f"`{banned[unwanted[0] or ()]}` in the model's tokens. Drop one of them."
                )
        return Constraints(tuple(tokenizer.encode(self.prefix)), tuple(banned), tuple(required))


def _cuts(tokenizer: Tokenizer, phrase: str, spaces: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The ways in which a word is cut: where a mark is not split off, the end of the word may share a token with it."""
    texts = [f"{space}{phrase.strip()}{mark}" for space, mark in product(spaces, ("", *MARKS))]
    known = {tuple(tokens): None for tokens in tokenizer.encode_all(texts) if tokenizer.unknown not in tokens}
    return tuple(one for one in known if not any(other != one and _holds(one, other) for other in known))


def _holds(phrase: Sequence[int], part: Sequence[int]) -> bool:
    return any(phrase[place : place + len(part)] == part for place in range(len(phrase)))
