"""CTranslate2 as a model that brings its own search.

It searches as `regard.decoding.search` does: the same candidates, an end only among the first `beam` of them. What
differs, and what is made of it:

    stop       ours goes on until nothing can overtake the best. By itself it stops when `beam` texts have ended, and
               `beam` bad ones may end before the good one does. Asked for no penalty it waits until the likeliest of
               all has ended, too; so it is asked for none, and for `PATIENCE` times as many texts. Where the best was
               the last to end, a better one may have been about to: such a sentence is searched again, for more.
    limit      a text that reaches its limit is not asked how likely its end is, and pushes out texts that ended. Such
               a sentence is searched again, alone, up to its limit, and the end is asked for afterwards.
    forbidden  while it searches, what may not be written (`banned`, `no_repeat`, `min_length`) leaves the sum of
               probabilities, and a wished beginning does not count. The texts it gives back are then scored again, so
               that scores are the model's own, as ours are.
    penalty    the texts it gives back are ranked by the penalty that was asked for, the paper's among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Never

import numpy as np
import torch
from torch import Tensor, nn

from regard.batch import PADDING_SEGMENT, Batch, Specials, Tokens
from regard.decoding.constraints import Constraints
from regard.decoding.fast import OwnSearch
from regard.decoding.search import Hypothesis, SearchSettings
from regard.errors import DataError, UsageError
from regard.models.interface import SequenceModel

PATIENCE = 2
"""So many times `beam` texts are waited for; and so many times as many in a second search."""
TOGETHER = 16  # sentences that share a batch on one thread


@dataclass(frozen=True)
class Asked:
    """What is asked for one sentence."""

    source: list[str]
    prefix: list[str]
    limit: int  # tokens before the end


@dataclass(frozen=True)
class Again:
    """Rows to search again."""

    unsure: list[int] = field(default_factory=list)
    """The best was the last to end: a better one may have been about to."""
    at_limit: list[int] = field(default_factory=list)
    """Some text reached the limit of the row, or of the longest that shared its batch."""
    odd: list[int] = field(default_factory=list)
    """Some text holds a token that is never written."""


class CTranslate2Model(SequenceModel[Any], OwnSearch):
    """A folder of CTranslate2, for translation.

    `words` and `source_words` are the vocabularies by id, `context` how many positions there are. `numbers` are
    CTranslate2's: "default" computes as the weights are stored.
    """

    def __init__(
        self,
        folder: Path,
        words: Sequence[str],
        source_words: Sequence[str],
        context: int | None = None,
        numbers: str = "default",
        adds_end: bool = True,
    ) -> None:
        super().__init__()
        self.folder, self.numbers, self.adds_end = folder, numbers, adds_end
        self.patience = PATIENCE
        """It waits for `patience` · `beam` texts; with fewer, it finds less of what ours finds."""
        self.described = True
        """Whether a recipe says how it is built; CTranslate2's own files do not."""
        self.words, self.source_words = list(words), list(source_words)
        self.vocabulary, self.width, self.context = len(words), len(words), context
        self.ids = {word: number for number, word in enumerate(words)}
        # Whoever asks a model where and in which numbers it computes asks its parameters; this one has none in torch.
        kind = torch.float32 if self._alone.compute_type == "float32" else torch.int8
        self.nowhere = nn.Parameter(torch.empty(0, dtype=kind), requires_grad=False)

    @cached_property
    def _alone(self) -> Any:
        """All threads on one batch: for a few sentences."""
        return self._translator(1, torch.get_num_threads())

    @cached_property
    def _beside(self) -> Any:
        """A batch on each thread: for many sentences, since no thread waits for another."""
        threads = torch.get_num_threads()
        return self._alone if threads == 1 else self._translator(threads, 1)

    def _translator(self, batches: int, threads: int) -> Any:
        import ctranslate2

        try:
            return ctranslate2.Translator(
                str(self.folder), compute_type=self.numbers, inter_threads=batches, intra_threads=threads
            )
        except (RuntimeError, ValueError) as error:
            raise DataError(f"{self.folder}: must be a model CTranslate2 can read, but is not: {error}") from error

    @torch.inference_mode()
    def search(
        self,
        source: Tokens,
        specials: Specials,
        settings: SearchSettings,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """For each source row its `nbest` best hypotheses, best first."""
        self._check(settings, constraints or ())
        asked = self._asked(source, settings, constraints)
        found: list[list[Hypothesis]] = [[] for _ in asked]
        never = [[self.words[token]] for token in specials.unwritten]
        for banned in dict.fromkeys(each.banned for each in constraints or [Constraints()]):
            rows = [row for row in range(len(asked)) if constraints is None or constraints[row].banned == banned]
            forbidden = [[self.words[token] for token in phrase] for phrase in banned]
            again = self._fill(found, asked, rows, specials, settings, forbidden, self.patience)
            more = PATIENCE * self.patience
            at_limit, odd = again.at_limit, again.odd
            if again.unsure:
                second = self._fill(found, asked, again.unsure, specials, settings, forbidden, more)
                at_limit, odd = at_limit + second.at_limit, odd + second.odd
            for row in at_limit:
                odd += self._fill(found, asked, [row], specials, settings, forbidden, more).odd
            # Padding and start are never written, but a trained model does not want to; so they are forbidden only
            # where it did, and elsewhere nothing has to be blotted out in every step.
            for row in odd:
                self._fill(found, asked, [row], specials, settings, [*forbidden, *never], more)
        return found

    def _fill(
        self,
        found: list[list[Hypothesis]],
        asked: list[Asked],
        rows: list[int],
        specials: Specials,
        settings: SearchSettings,
        forbidden: list[list[str]],
        patience: int,
    ) -> Again:
        """Search these rows together; says which of them have to be searched again, and why."""
        again = Again()
        results = self._translate([asked[row] for row in rows], settings, forbidden, patience)
        end = self.words[specials.end]
        everything = self._log_probabilities([asked[row] for row in rows], results, settings, forbidden, end)
        for row, result, log_probabilities in zip(rows, results, everything, strict=True):
            texts = [[self.ids[word] for word in text] for text in result.hypotheses]
            hypotheses = _hypotheses(texts, log_probabilities, asked[row].limit, specials.end, settings)
            best = sorted(hypotheses, key=lambda each: -each.score)
            # Rows that share a batch share the limit of the longest. With enough texts that ended within its own, a row
            # stopped where it would have stopped alone. At the limit, texts without an end push out those with one.
            at_limit = any(len(text) > asked[row].limit + 1 or text[-1:] != [end] for text in result.hypotheses)
            if any(specials.unwritten & set(each.tokens) for each in hypotheses):
                again.odd.append(row)
            elif at_limit:
                again.at_limit.append(row)
            elif settings.beam > 1 and len(best[0].tokens) == max(len(each.tokens) for each in best):
                again.unsure.append(row)
            found[row] = best[: settings.nbest]
        return again

    def _translate(
        self, asked: list[Asked], settings: SearchSettings, forbidden: list[list[str]], patience: int
    ) -> list[Any]:
        many = len(asked) >= 2 * torch.get_num_threads()
        results: list[Any] = (self._beside if many else self._alone).translate_batch(
            [each.source for each in asked],
            [each.prefix for each in asked] if any(each.prefix for each in asked) else None,
            max_batch_size=TOGETHER if many else 0,
            beam_size=settings.beam,
            num_hypotheses=settings.beam * (patience if settings.beam > 1 else 1),
            patience=patience,
            length_penalty=0,
            no_repeat_ngram_size=settings.no_repeat,
            suppress_sequences=forbidden or None,
            max_input_length=0,
            # No room for an end: with it, what comes back of the beams at the limit depends on what else may follow.
            max_decoding_length=max(1, *(each.limit for each in asked)),
            min_decoding_length=settings.min_length,
            return_scores=True,
            return_end_token=True,
        )
        return results

    def _log_probabilities(
        self, asked: list[Asked], results: list[Any], settings: SearchSettings, forbidden: list[list[str]], end: str
    ) -> list[list[float]]:
        """log P of each text that was found, the end among its tokens."""
        totals = [list(found.scores) for found in results]
        all_again = bool(forbidden or settings.no_repeat or settings.min_length)
        places = [
            (row, number)
            for row, (each, found) in enumerate(zip(asked, results, strict=True))
            for number, text in enumerate(found.hypotheses)
            if all_again or each.prefix or text[-1:] != [end]  # at the limit no end was asked for
        ]
        if places:
            sources = [asked[row].source for row, _ in places]
            texts = [results[row].hypotheses[number] for row, number in places]
            texts = [text[:-1] if text[-1:] == [end] else text[: asked[row].limit]
                     for (row, _), text in zip(places, texts, strict=True)]  # fmt: skip
            scored = self._alone.score_batch(sources, texts, max_batch_size=TOGETHER, max_input_length=0)
            for (row, number), found in zip(places, scored, strict=True):
                totals[row][number] = sum(found.log_probs)
        return totals

    def _asked(
        self, source: Tokens, settings: SearchSettings, constraints: Sequence[Constraints] | None
    ) -> list[Asked]:
        asked = []
        for row, ids in enumerate(_texts(source)):
            prefix = constraints[row].prefix if constraints else ()
            limit = max(len(ids), len(prefix)) + settings.extra_length
            if self.context is not None:
                limit = min(limit, self.context - 1)
            asked.append(Asked(self._read(ids), [self.words[token] for token in prefix], limit))
        return asked

    @staticmethod
    def _check(settings: SearchSettings, constraints: Sequence[Constraints]) -> None:
        for name, neutral in (("coverage", 0.0), ("groups", 1)):
            if getattr(settings, name) != neutral:
                raise lacks(f"`{name}`", f"set it to {neutral:g}")
        if any(each.wanted for each in constraints):
            raise lacks("required words", "leave them out")

    @torch.inference_mode()
    def features(self, batch: Batch) -> Tensor:
        """The scores at every target position, [B, T, V]: what it says while it is made to write the target."""
        source = self.needed(batch.source, len(batch.target.ids_BT))
        targets = _texts(batch.target)
        results = self._forced(_texts(source), [text[1:] for text in targets], return_logits_vocab=True)
        scores_BTV = torch.zeros(*batch.target.ids_BT.shape, self.vocabulary)
        for scores_TV, text, result in zip(scores_BTV, targets, results, strict=True):
            for place, scores_V in enumerate(result.logits[0][: len(text)]):
                scores_TV[place] = torch.from_numpy(np.array(scores_V))[: self.vocabulary]
        return scores_BTV

    def logits(self, features_BTD: Tensor) -> Tensor:
        """As they are: scores are all the features CTranslate2 shows."""
        return features_BTD

    def attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor]:
        """For each target, [T, S], how much each of its tokens looked at each of the source but its end."""
        results = self._forced(sources, targets, return_attention=True)
        return [
            torch.tensor([row[: len(read) - 1] for row in result.attention[0][: len(text)]]).view(-1, len(read) - 1)
            for result, text, read in zip(results, targets, sources, strict=True)
        ]

    def _forced(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], **wanted: bool) -> list[Any]:
        """Make it write these targets, and one token more."""
        results: list[Any] = self._alone.translate_batch(
            [self._read(ids) for ids in sources],
            [[self.words[token] for token in text] for text in targets],
            beam_size=1, max_input_length=0, max_decoding_length=max(map(len, targets)) + 1, min_decoding_length=0,
            return_end_token=True, **wanted,
        )  # fmt: skip
        return results

    def _read(self, ids: Sequence[int]) -> list[str]:
        """A source with its end as CTranslate2 wants it, which may add the end itself."""
        return [self.source_words[token] for token in (ids[:-1] if self.adds_end else ids)]

    def start(self, source: Tokens | None, rows: int) -> Never:
        """Not to be had: CTranslate2 does not stop between two tokens."""
        raise lacks("stepping, which sampling (`samples`) and ensembles need")

    def step(self, tokens_BT: Tensor, state: Any) -> Never:
        """Not to be had: CTranslate2 does not stop between two tokens."""
        raise lacks("stepping, which sampling (`samples`) and ensembles need")


@dataclass(frozen=True)
class TextState:
    """All that was read so far."""

    ids_RT: Tensor

    def select(self, rows: Tensor) -> TextState:
        """The given rows, in the given order."""
        return TextState(self.ids_RT.index_select(0, rows))


class CTranslate2LanguageModel(SequenceModel[TextState]):
    """A folder of CTranslate2 that holds a language model.

    It gives the scores of whole texts and keeps nothing between two calls. So a step reads all of its text again:
    right, and good for checking an export, but slow for long texts.
    """

    reads_source = False

    def __init__(self, folder: Path, vocabulary: int, context: int | None, numbers: str = "default") -> None:
        super().__init__()
        import ctranslate2

        self.vocabulary, self.width, self.context = vocabulary, vocabulary, context
        self.nowhere = nn.Parameter(torch.empty(0), requires_grad=False)
        try:
            self.generator = ctranslate2.Generator(
                str(folder), compute_type=numbers, inter_threads=1, intra_threads=torch.get_num_threads()
            )
        except (RuntimeError, ValueError) as error:
            raise DataError(f"{folder}: must be a model CTranslate2 can read, but is not: {error}") from error

    @torch.inference_mode()
    def features(self, batch: Batch) -> Tensor:
        """The scores at every position, [B, T, V]."""
        self.refuse(batch.source)
        found = self.generator.forward_batch([text or [0] for text in _texts(batch.target)])
        scores_BTV = torch.zeros(*batch.target.ids_BT.shape, self.vocabulary)
        scores_BTV[:, : found.shape[1]] = torch.from_numpy(np.array(found))
        return scores_BTV

    def logits(self, features_BTD: Tensor) -> Tensor:
        """As they are: scores are all the features CTranslate2 shows."""
        return features_BTD

    def start(self, source: Tokens | None, rows: int) -> TextState:
        """Nothing read yet; a language model has no source."""
        self.refuse(source)
        return TextState(torch.zeros(rows, 0, dtype=torch.long))

    def step(self, tokens_BT: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        text = Tokens.whole(torch.cat([state.ids_RT, tokens_BT], dim=1))
        scores_BTV = self.features(Batch(None, text, text.ids_BT))
        return scores_BTV[:, -1], TextState(text.ids_BT)


def _hypotheses(
    texts: list[list[int]], log_probabilities: list[float], limit: int, end: int, settings: SearchSettings
) -> list[Hypothesis]:
    """Texts of one sentence, scored by the penalty that was asked for."""
    kept = [tuple(text[:-1] if text[-1:] == [end] else text[:limit]) for text in texts]
    divisors = settings.divisor(torch.tensor([len(tokens) + 1 for tokens in kept])).tolist()
    return [
        Hypothesis(tokens, log_probability, log_probability / divisor, cut=len(tokens) == limit)
        for tokens, log_probability, divisor in zip(kept, log_probabilities, divisors, strict=True)
    ]


def _texts(tokens: Tokens) -> list[list[int]]:
    """The ids of each row, without padding."""
    lengths = (tokens.places.segments_or_ones() != PADDING_SEGMENT).sum(dim=1).tolist()
    return [ids[:length] for ids, length in zip(tokens.ids_BT.tolist(), lengths, strict=True)]


def lacks(what: str, otherwise: str = "") -> UsageError:
    """What to raise for something that CTranslate2 cannot do."""
    return UsageError(
        f"engine: ctranslate2 cannot do what is asked for: {what}. "
        f"{otherwise[:1].upper()}{otherwise[1:]}{', or use' if otherwise else 'Use'} --engine torch or onnx."
    )
