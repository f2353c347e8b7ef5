"""How likely a model finds texts, and how good its own are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from regard.api.base import must_be_pairs, must_be_texts
from regard.api.translating import Translating
from regard.batch import Tokens
from regard.counts import so_many
from regard.decoding.scoring import Scored, score_texts
from regard.errors import UsageError
from regard.evaluation.catalogue import Scoring
from regard.evaluation.likelihood import likelihood
from regard.evaluation.metrics import Lines
from regard.evaluation.music import evaluate_music, music_likelihood
from regard.evaluation.report import Report, TestSet, evaluate, evaluate_text
from regard.evaluation.running import text_likelihood
from regard.exploring import composing
from regard.memory import ADVICE, Halves
from regard.music.chorale import VOICES
from regard.translation.result import one_line
from regard.translation.translator import TextError
from regard.translation.units import batches


class Measuring(Translating):
    """What can be measured of a model that writes."""

    @cached_property
    def _halves(self) -> Halves:
        """How many texts can be scored at a time."""
        return Halves()

    def score(
        self, texts: Sequence[str], sources: Sequence[str] | None = None, language: str | None = None
    ) -> list[Scored]:
        """How likely the model finds each text, token by token; a model that translates needs their sources."""
        must_be_texts("score", texts)
        if sources is not None:
            must_be_texts("score", sources)
        if self.network.reads_source != (sources is not None) or (sources is not None and len(sources) != len(texts)):
            rule = "needs one source a text" if self.network.reads_source else "a language model needs no sources"
            given = "no sources" if sources is None else so_many(len(sources), "source")
            raise UsageError(f"score: {rule}, but got {so_many(len(texts), 'text')} and {given}.")
        encoded = self.tokenizer.encode_all(texts)
        read = None if sources is None else self._translator.encode(sources, language)
        self._must_be_short("score", encoded)
        self._must_be_short("score", [ids[:-1] for ids in read or []])
        results: list[Scored] = [Scored((), ())] * len(texts)

        def judge(batch: Sequence[int]) -> list[Scored]:
            source = None
            if sources is not None and read is not None:
                texts_read = [sources[number] for number in batch]
                source = self._translator.read(texts_read, [read[number] for number in batch], language)
            some = [encoded[number] for number in batch]
            return score_texts(self.network, source, some, self.tokenizer.specials)

        def no_room(number: int) -> TextError:
            size = f"{len(encoded[number]) + len(read[number] if read else ()):,} tokens"
            reason = f"must fit into the memory of the device, but does not, even alone ({size}). {ADVICE}"
            return TextError(number, reason, "score")

        for batch in batches([len(ids) + len(read[n] if read else ()) for n, ids in enumerate(encoded)], beam=1):
            for number, scored in zip(batch, self._halves.each(batch, judge, no_room), strict=True):
                results[number] = scored
        return results

    def evaluate(
        self, sources: Sequence[str], references: Sequence[str], scoring: Scoring | None = None, examples: int = 3
    ) -> Report:
        """Translate `sources` and compare the result with `references`: figures, lengths, best and worst lines."""
        must_be_pairs("evaluate", sources, references)
        # What is scored is what would stand in a file.
        lines = Lines([one_line(text) for text in self.translate(sources)], [references])
        probable = likelihood(self.network, self.tokenizer, sources, references, read=self._read)
        return evaluate(sources, lines, scoring or Scoring(), probable, examples=examples)

    def evaluate_text(
        self,
        lines: Sequence[str],
        overlap: int | None = None,
        files: Sequence[TestSet] = (),
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """How probable a language model finds a text: its perplexities per token, word and byte.

        A model that learned from running text reads it as such, in windows as long as its rows in training; they share
        `overlap` tokens, half of them unless given. Others read line by line.
        """
        if self.network.reads_source:
            raise UsageError(
                f"evaluate: needs a language model to evaluate on a text alone, but `{self.recipe.name}` translates. "
                "Use `evaluate` with sources and references."
            )
        must_be_texts("evaluate", lines)
        probable = text_likelihood(self.network, self.tokenizer, lines, self.recipe.batch.window, overlap, progress)
        return evaluate_text(probable, files, progress)

    def evaluate_music(
        self,
        pieces: Mapping[str, Sequence[str]],
        files: Sequence[TestSet] = (),
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """How probable a model of music finds pieces, by the name of their set: nats a word, of chorales also a step.

        A piece is a line of words, as docs/music.md has them. Each is read by itself; its end does not count.
        """
        voices = len(VOICES) if composing.encoding_of(self, "evaluate") == "chorale" else None
        found = {}
        for name, some in pieces.items():
            must_be_texts("evaluate", some)
            found[name] = music_likelihood(self.network, self.tokenizer, some, progress)
        return evaluate_music(found, voices, files, progress)

    def _read(self, sources: Sequence[str]) -> Tokens:
        return self._translator.read(sources, self._translator.encode(sources))
