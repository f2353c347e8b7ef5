"""The tree a beam search grows, round by round, watched while it searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from regard.decoding.beams import Candidates
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.errors import UsageError
from regard.exploring.bundle import (
    Bundle,
    as_row,
    must_be_one,
    must_hold_words,
    must_translate,
    read_as_one,
    source_ids,
)
from regard.viewing.labels import pieces, readable

DIGITS = 5


@dataclass(frozen=True)
class Node:
    """One continuation that was considered: a token after its parent's text.

    `score` is the log-probability of the text up to here divided by the length penalty of that many tokens. `kept`:
    search went on from it. `ended`: it is a finished text.
    """

    id: int
    parent: int | None
    token: str
    log_probability: float
    score: float
    kept: bool
    ended: bool


@dataclass(frozen=True)
class Result:
    """A finished text, and the nodes that lead to it, the last of them its end."""

    text: str
    score: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class BeamTree:
    """All rounds of a search, and the texts that ended, best first: at most one a beam, and none twice; the first is
    the answer."""

    source: str
    """What was read: of several sentences the first, where the model translates each by itself."""
    rounds: tuple[tuple[Node, ...], ...]
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "source": self.source,
            "rounds": [[asdict(node) for node in nodes] for nodes in self.rounds],
            "results": [{**asdict(each), "nodes": list(each.nodes)} for each in self.results],
        }


def grow(
    bundle: Bundle,
    text: str,
    beam: int | None = None,
    alpha: float | None = None,
    language: str | None = None,
) -> BeamTree:
    """Translate `text` by beam search and keep all that was considered: the 2 · beam best of every round.

    What the recipe says of search holds; `beam` and `alpha` take the place of its own.
    """
    must_hold_words("beam", text)
    must_translate(bundle, "beam")
    must_be_one(bundle, "beam")
    text, settings = read_as_one(bundle, text), _settings(bundle.recipe.search, beam, alpha)
    growing = _Growing(bundle, settings)
    source = as_row(bundle, source_ids(bundle, text, language))
    (found,) = beam_search(bundle.network, source, bundle.tokenizer.specials, settings, watch=growing.round)
    return BeamTree(text, tuple(growing.rounds), growing.results(found))


def _settings(given: SearchSettings, beam: int | None, alpha: float | None) -> SearchSettings:
    beam = given.beam if beam is None else beam
    # Groups search side by side, so there would be a tree for each; all else stays as it is.
    try:
        alpha = given.alpha if alpha is None else alpha
        return replace(given, beam=beam, nbest=min(given.nbest, beam), alpha=alpha, groups=1)
    except ValueError as error:
        raise UsageError(f"beam: {error}.") from error


class _Growing:
    """The tree so far: which node each beam stands on, and the tokens on the way there."""

    def __init__(self, bundle: Bundle, settings: SearchSettings) -> None:
        self.tokenizer, self.settings = bundle.tokenizer, settings
        self.rounds: list[tuple[Node, ...]] = []
        self.beams: list[tuple[int | None, tuple[int, ...]]] = [(None, ())]
        self.ends: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        self.paths: dict[int | None, tuple[int, ...]] = {None: ()}
        self.count = 0

    def round(self, candidates: Candidates) -> None:
        """Take down what one sentence chooses from."""
        end, length = self.tokenizer.specials.end, len(self.rounds) + 1
        divisor = float(self.settings.divisor(torch.tensor([length]))[0])
        columns = zip(*(part[0].tolist() for part in vars(candidates).values()), strict=True)
        nodes: list[Node] = []
        going_on: list[tuple[int | None, tuple[int, ...]]] = []
        for place, (log_probability, beam, token) in enumerate(columns):
            if not math.isfinite(log_probability):
                continue
            parent, written = self.beams[beam]
            ended = token == end and place < self.settings.beam
            kept = token != end and len(going_on) < self.settings.beam
            self.paths[self.count] = (*self.paths[parent], self.count)
            if kept:
                going_on.append((self.count, (*written, token)))
            if ended:
                self.ends[written] = (log_probability / divisor, self.paths[self.count])
            label = pieces(self.tokenizer, [token], written)[0] or readable(self.tokenizer, [token])[0]
            score = log_probability / divisor
            nodes.append(
                Node(self.count, parent, label, round(log_probability, DIGITS), round(score, DIGITS), kept, ended)
            )
            self.count += 1
        self.rounds.append(tuple(nodes))
        self.beams = going_on

    def results(self, found: Sequence[Hypothesis]) -> tuple[Result, ...]:
        """What search answers, followed by what else ended, each with its way through the tree.

        A text may be spelled with other pieces, too; then the best way to it is shown, as a text is found once.
        """
        answers = {each.tokens: each.score for each in found}
        others = sorted((tokens for tokens in self.ends if tokens not in answers), key=lambda each: -self.ends[each][0])
        scored = [*answers.items(), *((tokens, self.ends[tokens][0]) for tokens in others)]
        results: dict[str, Result] = {}
        for tokens, score in scored:
            text = self.tokenizer.decode(tokens)
            results.setdefault(text, Result(text, round(score, DIGITS), self.ends[tokens][1]))
        return tuple(results.values())[: self.settings.beam]
