"""Text in, text out: what Python users call, and what the command line is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard import experiment, folder
from regard.batch import Tokens
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.errors import UsageError
from regard.evaluation.metrics import Score, score
from regard.models.build import build
from regard.recipe import Recipe, load_recipe, presets
from regard.text.tokenizer import Tokenizer
from regard.viewing.capture import attention_maps
from regard.viewing.figures import AttentionMap, attention_html
from regard.viewing.inspection import Inspection, look
from regard.viewing.parameters import anatomy

SLOTS_PER_BATCH = 16_384  # beams × source tokens searched at a time: enough to keep a device busy


@dataclass(frozen=True)
class Translation:
    """One translation. `score` is the length-normalised log-probability; compare it within one sentence only."""

    text: str
    score: float
    log_probability: float
    cut: bool


@dataclass(frozen=True)
class Picture:
    """A sentence, its translation, and every attention that made it."""

    model: str
    source: str
    translation: str
    maps: list[AttentionMap]

    def to_html(self) -> str:
        """One self-contained page."""
        return attention_html(
            self.maps, title=f"What {self.model} looks at", source=self.source, target=self.translation
        )


class Model:
    """A trained model, ready to use."""

    def __init__(self, loaded: folder.Loaded) -> None:
        self.recipe, self.tokenizer, self.network = loaded.recipe, loaded.tokenizer, loaded.model
        self.device = next(loaded.model.parameters()).device

    def translate(self, texts: Sequence[str], search: SearchSettings | None = None) -> list[str]:
        """The best translation of each text, in order. An empty text stays empty."""
        return [found[0].text for found in self.translations(texts, search)]

    def translations(
        self,
        texts: Sequence[str],
        search: SearchSettings | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Translation]]:
        """The `search.nbest` best translations of each text, best first.

        `progress` is called with the number of texts done since the last call.
        """
        if isinstance(texts, str):
            raise UsageError(f"translate: `texts` must be a list of texts, but is one, {texts[:40]!r}. Write [text].")
        search = search or self.recipe.search
        results: list[list[Translation]] = [[Translation("", 0.0, 0.0, cut=False)] for _ in texts]
        sources = {
            place: ids for place, text, ids in zip(range(len(texts)), texts, self._encode(texts), strict=True)
            if text.strip()
        }  # fmt: skip
        for places in _batches(sources, search.beam):
            tokens = Tokens.padded([sources[place] for place in places], self.tokenizer.specials.padding)
            found = beam_search(self.network, tokens.to(self.device), self.tokenizer.specials, search)
            for place, hypotheses in zip(places, found, strict=True):
                results[place] = [self._translation(hypothesis) for hypothesis in hypotheses]
            if progress is not None:
                progress(len(places))
        return results

    def evaluate(self, sources: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Translate `sources` and score the result against `references`."""
        return score(self.translate(sources), references)

    def look(self, text: str, search: SearchSettings | None = None) -> Picture:
        """Translate `text` and take a picture of every attention."""
        if not text.strip():
            raise UsageError("look: the text must hold at least one word to look at, but is empty. Give a sentence.")
        source = self._encode([text])[0]
        tokens = Tokens.padded([source], self.tokenizer.specials.padding).to(self.device)
        best = beam_search(self.network, tokens, self.tokenizer.specials, search or self.recipe.search)[0][0]
        maps = attention_maps(self.network, self.tokenizer, source[:-1], best.tokens)
        return Picture(self.recipe.name, text, self.tokenizer.decode(best.tokens), maps)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, self.tokenizer.specials.end] for ids in self.tokenizer.source.encode_all(texts)]

    def _translation(self, found: Hypothesis) -> Translation:
        return Translation(self.tokenizer.decode(found.tokens), found.score, found.log_probability, found.cut)


def load(path: str | Path, device: str = "auto") -> Model:
    """The model in a folder that `regard train` wrote."""
    return Model(folder.load_folder(Path(path), experiment.choose_device(device)))


def train(recipe: Recipe | str, out: str | Path, overrides: Sequence[str] = ()) -> Model:
    """Train by a recipe (a `Recipe`, a file or a preset's name) into the folder `out`, and load the result."""
    if isinstance(recipe, str):
        recipe = load_recipe(recipe, overrides)
    experiment.train(recipe, Path(out))
    return load(out, recipe.device)


def inspect(
    name: str, overrides: Sequence[str] = (), vocabulary: int | None = None, length: int | None = None
) -> Inspection:
    """The parts and the costs of a model folder, a recipe file or a preset; no weights are loaded or made.

    `vocabulary` takes the place of the model's own, `length` is the tokens of a row (unless given, a usual length).
    """
    for option, value in (("vocabulary", vocabulary), ("length", length)):
        if value is not None and value < 1:
            raise UsageError(f"inspect: `{option}` must be at least 1, but is {value}. Give a larger one.")
    # `regard demo` leaves a folder `demo` that is no model: a preset's name means the preset then.
    if (Path(name) / folder.RECIPE).is_file() or (Path(name).is_dir() and name not in presets()):
        recipe = folder.read_recipe(Path(name), overrides)
        tokenizer = Tokenizer.load(Path(name) / folder.TOKENIZER)
        source_vocabulary = vocabulary or tokenizer.source.size
        vocabulary = vocabulary or tokenizer.size
    else:
        recipe = load_recipe(name, overrides)
        vocabulary = source_vocabulary = vocabulary or recipe.tokenizer.vocabulary
    with torch.device("meta"):
        model = build(recipe.model, vocabulary, source_vocabulary)
    parts = anatomy(model, recipe.name, recipe.model.kind, vocabulary)
    return look(model, parts, length, recipe.batch.tokens, recipe.search.beam)


def _batches(sources: dict[int, list[int]], beam: int) -> list[list[int]]:
    """Places of texts of similar length together, the longest first, so that memory runs out at once or never."""
    batches: list[list[int]] = []
    longest = 0
    for place in sorted(sources, key=lambda place: len(sources[place]), reverse=True):
        if not batches or (len(batches[-1]) + 1) * longest * beam > SLOTS_PER_BATCH:
            batches.append([])
            longest = len(sources[place])
        batches[-1].append(place)
    return batches
