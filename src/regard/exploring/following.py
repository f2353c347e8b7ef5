"""What comes next: after a text, at each place of a text, and instead of a word of a translation.

Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.batch import IGNORED, Batch, Tokens
from regard.decoding.constraints import Constraints
from regard.decoding.sampling import SamplingSettings, narrow
from regard.decoding.scoring import score_texts
from regard.decoding.search import NothingFoundError, SearchSettings, beam_search
from regard.errors import UsageError
from regard.exploring.bundle import (
    Bundle,
    as_row,
    best,
    device_of,
    must_fit,
    must_hold_words,
    must_translate,
    read_as_one,
    read_ids,
    source_ids,
)
from regard.viewing.labels import END_LABEL, pieces, readable

MOST = 10
DIGITS = 6


# ---- after a text


@dataclass(frozen=True)
class NextToken:
    """A token that may follow: what it would add to the text, its probability by the model alone, and the chance
    that it is drawn after temperature and filters."""

    id: int
    text: str
    probability: float
    chance: float
    end: bool
    """Whether it ends the text; its `text` is then a name for that."""


@dataclass(frozen=True)
class NextTokens:
    """The likeliest next tokens of a text."""

    text_tokens: tuple[str, ...]
    """The text piece by piece; joined, they are the text."""
    tokens: tuple[NextToken, ...]
    kept: int
    """How many tokens of the whole vocabulary can be drawn."""
    entropy: float
    """Of the model's probabilities, in nats."""
    flags: tuple[str, ...] = ()
    """What is odd about how the text was read: `unknown`, the vocabulary lacks something of it; `tail`, it is too long,
    and only the last tokens that fit were read."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        lists = {name: list(getattr(self, name)) for name in ("text_tokens", "flags")}
        return {**asdict(self), **lists, "tokens": [asdict(each) for each in self.tokens]}


@torch.inference_mode()
def next_tokens(bundle: Bundle, text: str, sampling: SamplingSettings | None = None, count: int = MOST) -> NextTokens:
    """The `count` likeliest tokens after `text`, which may be empty. `sampling` acts on their chances alone.

    Of a text longer than the model's context the last tokens that fit are read, as in generating.
    """
    _must_write("next", bundle)
    if count < 1:
        raise UsageError(f"next: `count` must be at least 1, but is {count}. Ask for more.")
    tokenizer, network, sampling = bundle.tokenizer, bundle.network, sampling or SamplingSettings()
    ids, running = read_ids(bundle, text), bundle.recipe.running
    read = [tokenizer.specials.start, *ids][-(network.context or len(ids) + 1) :]
    logits_BV, _ = network.step(torch.tensor([read], device=device_of(bundle)), network.start(None, 1))
    scores_V = logits_BV[0].float().cpu()
    log_probabilities_V = scores_V.log_softmax(dim=-1)
    chances_V = _chances(scores_V, bundle, sampling)
    order = log_probabilities_V.topk(min(count, len(scores_V))).indices.tolist()
    shown = tuple(
        NextToken(
            token,
            pieces(tokenizer, [token], ids, running)[0] or readable(tokenizer, [token])[0],
            round(math.exp(float(log_probabilities_V[token])), DIGITS),
            round(float(chances_V[token]), DIGITS),
            token == tokenizer.specials.end and not running,
        )
        for token in order
    )
    entropy = float(-(log_probabilities_V.exp() * log_probabilities_V).nansum())
    kept = int((chances_V > 0).sum())
    odd = {"unknown": tokenizer.unknown in ids, "tail": len(read) < len(ids)}
    flags = tuple(flag for flag, holds in odd.items() if holds)
    return NextTokens(tuple(_texts(bundle, ids)), shown, kept, round(entropy, DIGITS), flags)


def _texts(bundle: Bundle, ids: Sequence[int]) -> list[str]:
    """What each token of a text that was read adds to it. In running text, the start of a line ends the one before."""
    specials, running = bundle.tokenizer.specials, bundle.recipe.running
    if running:
        ids = [specials.end if token == specials.start else token for token in ids]
    return pieces(bundle.tokenizer, ids, (), running)


def _chances(scores_V: Tensor, bundle: Bundle, sampling: SamplingSettings) -> Tensor:
    """How likely each token is drawn by `regard.decoding.sampling`, [V]."""
    specials = bundle.tokenizer.specials
    scores_V = scores_V.clone()
    scores_V[list(specials.unwritten)] = -torch.inf
    chances_V = torch.zeros_like(scores_V)
    if sampling.temperature == 0:
        chances_V[scores_V.argmax()] = 1.0
        return chances_V
    # The best token has 0 then, so that no temperature, however small, makes what no float can hold.
    tempered_V = (scores_V - scores_V.max()) / max(sampling.temperature, torch.finfo(torch.float).tiny)
    scores_BK, tokens_BK = narrow(tempered_V[None], sampling)
    left_K = scores_BK[0].softmax(dim=-1)
    return left_K if tokens_BK is None else chances_V.scatter(0, tokens_BK[0], left_K)


def _must_write(what: str, bundle: Bundle) -> None:
    if bundle.network.reads_source:
        raise UsageError(
            f"{what}: needs a language model, but `{bundle.recipe.name}` translates; its kind is "
            f"`{bundle.recipe.model.kind}`. Ask for the alternatives in a translation."
        )


# ---- at each place of a text


@dataclass(frozen=True)
class TokenChance:
    """A token of a text: its probability after those before it, its rank, and the likeliest ones at its place."""

    text: str
    probability: float
    rank: int
    """1 is the likeliest of the vocabulary."""
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class AlongText:
    """A text, token by token; a translation ends with its end, and `source` is what was read for it.

    `skipped` tokens before them were not read.
    """

    source: str | None
    text: str
    tokens: tuple[TokenChance, ...]
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"source": self.source, "tokens": [asdict(each) for each in self.tokens], "skipped": self.skipped}


@torch.inference_mode()
def along(
    bundle: Bundle, text: str, target: str | None = None, language: str | None = None, most: int | None = None
) -> AlongText:
    """How likely each token is where it stands: of `text` for a language model, of `target` as a translation of it,
    or, if not given, of the model's own translation.

    With `most`, a text for a language model may have any length: its last tokens are read, at most so many, and no
    more than the model can.
    """
    must_hold_words("tokens", text)
    tokenizer, specials = bundle.tokenizer, bundle.tokenizer.specials
    source: Tokens | None = None
    if bundle.network.reads_source:
        text = read_as_one(bundle, text, target)
        read = source_ids(bundle, text, language)
        source = as_row(bundle, read)
        ids = list(best(bundle, read).tokens) if target is None else tokenizer.encode(target)
        answers = [*ids, specials.end]
    else:
        ids = read_ids(bundle, text)
        # What begins a line is read where its end is to be foreseen.
        answers = [specials.end if token == specials.start else token for token in ids]
    skipped = 0
    if source is None and most is not None:
        skipped = max(0, len(answers) - min(most, bundle.network.context or most))
    else:
        must_fit("tokens", bundle, ids)
    fed = torch.tensor([[specials.start, *ids][skipped : len(answers)]], device=device_of(bundle))
    batch = Batch(source, Tokens.whole(fed), torch.full_like(fed, IGNORED))
    features_TD = bundle.network.features(batch)[0]
    found: list[TokenChance] = []
    said, answers = _texts(bundle, answers)[skipped:], answers[skipped:]
    texts = [piece or label for piece, label in zip(said, readable(tokenizer, answers), strict=True)]
    for place, (token, features_D) in enumerate(zip(answers, features_TD, strict=True)):
        # One place at a time: all of a long text times a large vocabulary would be hundreds of megabytes.
        log_probabilities_V = bundle.network.logits(features_D[None, None])[0, 0].float().log_softmax(dim=-1)
        found.append(_chance(bundle, log_probabilities_V, token, texts[place]))
    if source is None:
        return AlongText(None, "".join(said), tuple(found), skipped)
    return AlongText(text, tokenizer.decode(ids), tuple(found))


def _chance(bundle: Bundle, log_probabilities_V: Tensor, token: int, text: str) -> TokenChance:
    mine = log_probabilities_V[token]
    values, tokens = log_probabilities_V.topk(min(MOST, len(log_probabilities_V)))
    line_end = bundle.tokenizer.specials.end if bundle.recipe.running else None
    labels = zip(tokens.tolist(), readable(bundle.tokenizer, tokens.tolist()), strict=True)
    top = zip(("⏎" if one == line_end else label for one, label in labels), values.exp().tolist(), strict=True)
    return TokenChance(
        text,
        round(math.exp(float(mine)), DIGITS),
        int((log_probabilities_V > mine).sum()) + 1,
        tuple((label, round(chance, DIGITS)) for label, chance in top),
    )


# ---- instead of a word


@dataclass(frozen=True)
class Alternative:
    """A word that could follow the beginning, the probability of its first piece, and how the translation would
    go on from there."""

    text: str
    probability: float
    translation: str
    score: float


@dataclass(frozen=True)
class Alternatives:
    """What could follow, the likeliest first; no word twice."""

    alternatives: tuple[Alternative, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"alternatives": [asdict(each) for each in self.alternatives]}


@torch.inference_mode()
def alternatives(
    bundle: Bundle,
    text: str,
    prefix: str = "",
    count: int = MOST,
    language: str | None = None,
    search: SearchSettings | None = None,
) -> Alternatives:
    """Words that could follow `prefix`, the beginning of a translation of `text`, at most `count` of them.

    The likeliest next tokens are each gone on from by beam search, and the word that a translation then has after the
    prefix is what is shown. A prefix that ends in a space asks for a new word, one that does not may go on inside its
    last word.
    """
    must_hold_words("alternatives", text)
    must_translate(bundle, "alternatives")
    if not 1 <= count <= MOST:
        raise UsageError(f"alternatives: `count` must be from 1 to {MOST}, but is {count}.")
    tokenizer, specials = bundle.tokenizer, bundle.tokenizer.specials
    read, begun = source_ids(bundle, text, language), tokenizer.encode(prefix)
    must_fit("alternatives", bundle, begun)
    state = bundle.network.start(as_row(bundle, read), 1)
    logits_BV, _ = bundle.network.step(torch.tensor([[specials.start, *begun]], device=device_of(bundle)), state)
    log_probabilities_V = logits_BV[0].float().log_softmax(dim=-1).cpu()
    log_probabilities_V[
        list({specials.padding, specials.start, *tokenizer.languages.values()} - {specials.end})
    ] = -torch.inf
    tokens = _first_tokens(bundle, log_probabilities_V, prefix, begun, 2 * count)
    settings = replace(search or bundle.recipe.search, nbest=1, groups=1)
    found: dict[str, Alternative] = {}
    for token, translation, score in _completed(bundle, read, begun, tokens, settings):
        word = _word_after(prefix, translation)
        if (word or not translation[len(prefix) :].strip()) and word not in found:
            chance = round(math.exp(float(log_probabilities_V[token])), DIGITS)
            found[word] = Alternative(word or END_LABEL, chance, translation, round(score, DIGITS))
    return Alternatives(tuple(list(found.values())[:count]))


def _first_tokens(bundle: Bundle, log_probabilities_V: Tensor, prefix: str, begun: list[int], most: int) -> list[int]:
    """The likeliest tokens after the prefix, best first; after a space only those that begin a word, or the end."""
    values, order = log_probabilities_V.topk(min(8 * most, len(log_probabilities_V)))
    likely = [token for token, value in zip(order.tolist(), values.tolist(), strict=True) if value > -math.inf]
    if not begun or not prefix[-1:].isspace():
        return likely[:most]
    # What a piece adds to the text begins with a space exactly if it begins a word. A vocabulary of bytes or
    # characters may have read the space already: there everything begins one.
    if bundle.tokenizer.decode(begun)[-1:].isspace():
        return likely[:most]
    end = bundle.tokenizer.specials.end
    new = [token for token in likely if token == end or pieces(bundle.tokenizer, [token], begun)[0][:1].isspace()]
    return new[:most]


def _completed(
    bundle: Bundle, read: Sequence[int], begun: list[int], tokens: list[int], settings: SearchSettings
) -> list[tuple[int, str, float]]:
    """Each token, the whole translation that goes on with it, and its score; the end needs no going on."""
    end = bundle.tokenizer.specials.end
    going_on = [token for token in tokens if token != end]
    found: dict[int, tuple[str, float]] = {}
    if going_on:
        asked = [Constraints(prefix=(*begun, token)) for token in going_on]
        try:
            results = beam_search(
                bundle.network, as_row(bundle, read, len(asked)), bundle.tokenizer.specials, settings, asked
            )
        except NothingFoundError as error:
            raise UsageError(f"alternatives: {error}") from error
        for token, (hypothesis, *_) in zip(going_on, results, strict=True):
            found[token] = (bundle.tokenizer.decode(hypothesis.tokens), hypothesis.score)
    if end in tokens:
        (scored,) = score_texts(bundle.network, as_row(bundle, read), [begun], bundle.tokenizer.specials)
        divisor = float(settings.divisor(torch.tensor([len(begun) + 1]))[0])
        found[end] = (bundle.tokenizer.decode(begun), scored.log_probability / divisor)
    return [(token, *found[token]) for token in tokens]


def _word_after(prefix: str, translation: str) -> str:
    """The first word, or the rest of one, that a translation has after a prefix; empty where it ends there."""
    rest = translation[len(prefix) :] if translation.startswith(prefix) else translation[len(prefix.rstrip()) :]
    return rest.split()[0] if rest.split() else ""
