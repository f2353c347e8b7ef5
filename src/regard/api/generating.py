"""Texts and music: what a language model writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from regard.api.base import Base, must_be_texts
from regard.decoding.sampling import SamplingSettings
from regard.errors import UsageError
from regard.exploring import composing
from regard.generation import Generation, Generator


class Generating(Base):
    """What a language model can write."""

    def generate(self, prompts: Sequence[str], sampling: SamplingSettings | None = None, seed: int = 1) -> list[str]:
        """What the model writes after each prompt, without it; after nothing, if the prompt is empty.

        The same seed gives the same text, whatever the other prompts.
        """
        return [found[0].text for found in self.generations(prompts, sampling, seed)]

    def generations(
        self, prompts: Sequence[str], sampling: SamplingSettings | None = None, seed: int = 1, count: int = 1
    ) -> list[list[Generation]]:
        """`count` texts after each prompt, drawn by `seed`, `seed + 1`, …, with all that is known of their tokens."""
        _check(prompts, count)
        return self._generator.generations(prompts, sampling or SamplingSettings(), seed, count)

    def each_generation(
        self, prompts: Sequence[str], sampling: SamplingSettings | None = None, seed: int = 1, count: int = 1
    ) -> Iterator[Generation]:
        """The texts of `generations` one after another, as they are drawn: however many, a few are held at a time."""
        _check(prompts, count)
        return self._generator.each(prompts, sampling or SamplingSettings(), seed, count)

    def stream(self, prompt: str = "", sampling: SamplingSettings | None = None, seed: int = 1) -> Iterator[str]:
        """The text that `generate` gives, piece by piece as it is written; no piece ends inside a character."""
        if not isinstance(prompt, str):
            raise UsageError(f"stream: needs one text, but has a {type(prompt).__name__}. Write one stream a text.")
        return self._generator.stream(prompt, sampling or SamplingSettings(), seed)

    def compose(
        self,
        primer: bytes | None = None,
        sampling: SamplingSettings | None = None,
        seed: int = 1,
        count: int = 1,
        place: str = "primer",
    ) -> list[composing.Composition]:
        """Pieces of music by the seeds `seed`, `seed + 1`, …: what follows a MIDI file, or pieces of their own.

        `place` is named in errors about the primer.
        """
        composing.encoding_of(self, "compose")
        known = composing.primer_of(self, primer, place)
        (found,) = self.generations([known.text], sampling or SamplingSettings(max_tokens=1_024), seed, count)
        return [composing.composed(self, known, one, seed + number) for number, one in enumerate(found)]

    @cached_property
    def _generator(self) -> Generator:
        if self.network.reads_source:
            raise UsageError(
                f"generate: needs a language model, but `{self.recipe.name}` translates; its kind is "
                f"`{self.recipe.model.kind}`. Use `translate`."
            )
        return Generator(self.network, self.tokenizer, self.running)


def _check(prompts: Sequence[str], count: int) -> None:
    must_be_texts("generate", prompts)
    if count < 1:
        raise UsageError(f"generate: `count` must be at least 1, but is {count}. Ask for more.")
