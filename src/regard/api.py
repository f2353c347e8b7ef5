"""Text in, text out: what Python users call, and what the command line is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from regard import experiment, folder, verification
from regard.batch import Tokens
from regard.data.labelled import Restoring, expected_labels
from regard.decoding.ensemble import Average, Ensemble
from regard.decoding.fast import OwnSearch
from regard.decoding.sampling import SamplingSettings
from regard.decoding.scoring import Scored, score_texts
from regard.decoding.search import SearchSettings
from regard.documents.document import Document, translated
from regard.documents.placing import Links
from regard.documents.reading import read_file
from regard.engines.loading import Engine, load_exported
from regard.engines.loading import choose as choose_engine
from regard.errors import UsageError
from regard.evaluation.alignment import Link, choose, word_attention
from regard.evaluation.catalogue import Scoring
from regard.evaluation.labels import LabelReport, evaluate_labels, restoring_tallies
from regard.evaluation.likelihood import likelihood
from regard.evaluation.metrics import Lines
from regard.evaluation.music import evaluate_music, music_likelihood
from regard.evaluation.report import Report, TestSet, evaluate_text
from regard.evaluation.report import evaluate as report
from regard.evaluation.running import text_likelihood
from regard.exploring import attention, beam, composing, following, inside, pictures, vectors, walk
from regard.files import destination, write_file
from regard.generation import Generation, Generator
from regard.interop.reading import read as read_foreign
from regard.interop.reading import recognise
from regard.labelling import Choice, Counting, Labeller, TaggedText
from regard.models.build import build_any
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.models.precision import Precision, convert
from regard.music.chorale import VOICES
from regard.recipe import LABELLING, Recipe, load_recipe, presets
from regard.text.labels import FIRST
from regard.text.restoring import restored
from regard.text.tokenizer import Tokenizer
from regard.translation.alignment import aligning_attention
from regard.translation.translator import (
    Options,
    Progress,
    TextError,
    Translation,
    Translator,
    Wishes,
    batches,
    one_line,
)
from regard.verification import Check
from regard.viewing.figures import AttentionMap, attention_html
from regard.viewing.inspection import Inspection, Listing, look
from regard.viewing.parameters import anatomy

__all__ = [
    "Choice", "Generation", "Model", "Options", "Picture", "TaggedText", "Translation", "Wishes",
    "inspect", "load", "train",
]  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A text, its translation (None by a language model), and every attention that made it."""

    model: str
    source: str
    translation: str | None
    maps: list[AttentionMap]

    def to_html(self) -> str:
        """One self-contained page."""
        return attention_html(
            self.maps, title=f"What {self.model} looks at", source=self.source, target=self.translation
        )


class Model:
    """A trained model, ready to use: a translator, a language model, or one that gives labels."""

    def __init__(self, loaded: folder.Loaded) -> None:
        self.recipe, self.tokenizer, self._loaded = loaded.recipe, loaded.tokenizer, loaded
        self.device, self.place = next(loaded.network.parameters()).device, loaded.place
        self.labels: tuple[str, ...] = ()
        """Those that it gives, if it does."""
        if isinstance(loaded.network, LabelModel):
            self.labels = self.labeller.labels
            return
        limit = loaded.model.context
        if isinstance(self.network, OwnSearch):
            limit = self.network.context  # positions are written out for it, and so there are only so many
        self._translator = Translator(self.network, self.tokenizer, limit)

    @property
    def network(self) -> SequenceModel[Any]:
        """Its weights, where it writes text; a model that gives labels is refused, with what it is for."""
        return self._loaded.model

    @property
    def task(self) -> inside.Task:
        """What it is for."""
        return inside.task_of(self._loaded.network)

    @cached_property
    def labeller(self) -> Labeller:
        """What gives labels, of a model that does."""
        network = self._loaded.network
        if not isinstance(network, LabelModel):
            does, use = ("translates", "translate") if network.reads_source else ("continues text", "generate")
            raise UsageError(
                f"labels: need a `classifier` or a `tagger`, but `{self.recipe.name}` {does}; its kind is "
                f"`{self.recipe.model.kind}`. Use `{use}`."
            )
        return Labeller(network, self.tokenizer, isinstance(self.recipe.data, Restoring))

    def classify(self, texts: Sequence[str], progress: Counting | None = None) -> list[Choice]:
        """The label of each text, with the chances of all labels.

        `progress` is called with the number of texts done since the last call.
        """
        self._must_label("classify")
        _must_be_texts("classify", texts)
        return self.labeller.classify(texts, progress)

    def tag(self, texts: Sequence[str], progress: Counting | None = None) -> list[TaggedText]:
        """The label of each word of each text, with the chances of all labels; words stand between spaces.

        A model that restores capitals and punctuation gets the words without them, whatever stands in the text.
        """
        self._must_label("tag")
        _must_be_texts("tag", texts)
        return self.labeller.tag(texts, progress)

    def restore(self, texts: Sequence[str]) -> list[str]:
        """Texts with capitals and punctuation, by a model that was trained to tell them (`data.kind = "restoring"`)."""
        self._must_label("tag")
        if not self.labeller.restores:
            raise UsageError(
                f"restore: needs a model of `data.kind` = `restoring`, but that of `{self.recipe.name}` is "
                f"`{self.recipe.data.kind}`. Ask for its tags instead."
            )
        return [restored(found.words, found.tags) for found in self.tag(texts)]

    def evaluate_labels(
        self, texts: Sequence[str], labels: Sequence[str], files: Sequence[TestSet] = (), examples: int = 10
    ) -> LabelReport:
        """Label `texts` and compare with the right `labels`: one of each text, or those of its words between spaces."""
        _must_be_pairs("evaluate", texts, labels)
        labeller = self.labeller
        if labeller.answers == "text":
            given = [[found.label] for found in labeller.classify(texts)]
            right = [[label] for label in labels]
        else:
            given = [list(found.tags) for found in labeller.tag(texts)]
            right = [label.split() for label in labels]
            for number, (one, other) in enumerate(zip(right, given, strict=True), 1):
                if len(one) != len(other):
                    raise UsageError(
                        f"evaluate: there must be a tag for each word, but text {number:,} has {len(other):,} words "
                        f"and {len(one):,} tags."
                    )
        more = restoring_tallies(right, given) if labeller.restores else ()
        return evaluate_labels(texts, right, given, labeller.labels, files, examples, more)

    def _must_label(self, task: Literal["classify", "tag"]) -> None:
        found = self.labeller.network.task
        if found != task:
            gives = "one label to each text" if found == "classify" else "a label to each word"
            raise UsageError(
                f"{task}: needs a `{'classifier' if task == 'classify' else 'tagger'}`, but `{self.recipe.name}` is a "
                f"`{self.recipe.model.kind}`, which gives {gives}. Use `{found}`."
            )

    def together(self, others: Sequence[Model], average: Average = "log") -> Model:
        """An ensemble of this model and others, which need its target vocabulary and nothing else in common.

        `log` averages their log-probabilities, so that a token must please every model; `probability` their
        probabilities, so that it is enough to please one.
        """
        everyone = [self, *others]
        words = self.tokenizer.labels(range(self.tokenizer.size))
        for other in others:
            if other.tokenizer.labels(range(other.tokenizer.size)) != words:
                raise UsageError(
                    f"ensemble: all models must share a target vocabulary, but `{other.recipe.name}` has another than "
                    f"`{self.recipe.name}`. Choose models that were trained with one tokenizer."
                )
        network = Ensemble([model.network for model in everyone], average).eval()
        joined = Model(folder.Loaded(self.recipe, self.tokenizer, network))
        limits = [model._translator.limit for model in everyone if model._translator.limit is not None]
        readers = [model.tokenizer for model in everyone]
        joined._translator = Translator(network, self.tokenizer, min(limits, default=None), readers)
        return joined

    def translate(
        self, texts: Sequence[str], search: SearchSettings | None = None, language: str | None = None
    ) -> list[str]:
        """The best translation of each text, in order; a model that knows several languages needs the target's.

        An empty text stays empty.
        """
        return [found[0].text for found in self.translations(texts, search, options=Options(language=language))]

    def translations(
        self,
        texts: Sequence[str],
        search: SearchSettings | None = None,
        progress: Progress | None = None,
        options: Options | None = None,
    ) -> list[list[Translation]]:
        """The `search.nbest` best translations of each text, best first.

        A text of more than 512 tokens, or of more than `options` or the model allow, is cut at sentence ends, and its
        translation joined from theirs. `progress` is called with the numbers of texts and of target tokens done
        since the last call.
        """
        self.must_translate("translate")
        _must_be_texts("translate", texts)
        if search is None:
            search = self.recipe.search
            if options is not None and options.samples:  # what is drawn has a length, and nothing else of a search
                search = SearchSettings(extra_length=search.extra_length)
        return self._translator.translations(texts, search, options, progress)

    def translate_document(
        self,
        file: str | Path,
        out: str | Path,
        search: SearchSettings | None = None,
        options: Options | None = None,
        form: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Translate a document (.txt, .srt, .html, .docx, .tmx) into the file `out`, in the same form."""
        self.must_translate("translate")
        destination(Path(out))  # before the work, not after it
        document = self.read_document(file, form, options)

        if document.form == "tmx" and options is not None and not self.tokenizer.source.languages:
            options = replace(options, language=None)  # it names the language in the file; the model knows only one

        def translate(texts: list[str]) -> list[str]:
            return [found[0].text for found in self.translations(texts, search, progress, options)]

        write_file(Path(out), translated(document, translate, self.word_links))

    def read_document(self, file: str | Path, form: str | None = None, options: Options | None = None) -> Document:
        """A document to translate, by its name's ending or in the form that is given."""
        known = inside.languages(self).target
        asked = None if options is None else options.language
        return read_file(Path(file), form, asked or (known[0] if len(known) == 1 else None))

    def word_links(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links | None] | None:
        """Which words of texts and their translations belong together, (source, target); None where it cannot say.

        By the mean over the heads of the last decoder layer but one, so that a text's links do not depend on others.
        """
        limit = self._translator.limit or math.inf
        lengths = zip(self.tokenizer.source.encode_all(sources), self.tokenizer.encode_all(targets), strict=True)
        short = [place for place, (ours, theirs) in enumerate(lengths) if max(len(ours), len(theirs)) < limit]
        if not short or aligning_attention(self.network) is None or self.tokenizer.source.languages:
            return None
        some = [sources[place] for place in short], [targets[place] for place in short]
        found = word_attention(self.network, self.tokenizer, *some)
        layer = max(1, max(int(name.partition(".")[0]) for name in found[0].names) - 1)
        name = f"{layer}.mean" if f"{layer}.mean" in found[0].names else f"{layer}.1"
        links = {place: [(link.source, link.target) for link in each.links(name)]
                 for place, each in zip(short, found, strict=True)}  # fmt: skip
        return [links.get(place) for place in range(len(sources))]

    def generate(self, prompts: Sequence[str], sampling: SamplingSettings | None = None, seed: int = 1) -> list[str]:
        """What the model writes after each prompt, without it; after nothing, if the prompt is empty.

        The same seed gives the same text, whatever the other prompts.
        """
        return [found[0].text for found in self.generations(prompts, sampling, seed)]

    def generations(
        self, prompts: Sequence[str], sampling: SamplingSettings | None = None, seed: int = 1, count: int = 1
    ) -> list[list[Generation]]:
        """`count` texts after each prompt, drawn by `seed`, `seed + 1`, …, with all that is known of their tokens."""
        _must_be_texts("generate", prompts)
        if count < 1:
            raise UsageError(f"generate: `count` must be at least 1, but is {count}. Ask for more.")
        return self._generator.generations(prompts, sampling or SamplingSettings(), seed, count)

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

    def note_attention(self, composition: composing.Composition, layer: int = -1) -> composing.NoteAttention:
        """Which notes one layer looked at when it wrote each note of a composition."""
        return composing.note_attention(self, composition, layer)

    def score(
        self, texts: Sequence[str], sources: Sequence[str] | None = None, language: str | None = None
    ) -> list[Scored]:
        """How likely the model finds each text, token by token; a model that translates needs their sources."""
        _must_be_texts("score", texts)
        if sources is not None:
            _must_be_texts("score", sources)
        if self.network.reads_source != (sources is not None) or (sources is not None and len(sources) != len(texts)):
            rule = "one source a text" if self.network.reads_source else "no sources, for a language model"
            given = "none" if sources is None else f"{len(sources):,}"
            raise UsageError(f"score: needs {rule}, but there are {len(texts):,} texts and {given} of them.")
        encoded = self.tokenizer.encode_all(texts)
        read = None if sources is None else self._translator.encode(sources, language)
        self._must_be_short("score", encoded)
        self._must_be_short("score", [ids[:-1] for ids in read or []])
        results: list[Scored] = [Scored((), ())] * len(texts)
        for batch in batches([len(ids) + len(read[n] if read else ()) for n, ids in enumerate(encoded)], beam=1):
            source = None
            if sources is not None and read is not None:
                texts_read = [sources[number] for number in batch]
                source = self._translator.read(texts_read, [read[number] for number in batch], language)
            some = [encoded[number] for number in batch]
            found = score_texts(self.network, source, some, self.tokenizer.specials)
            for number, scored in zip(batch, found, strict=True):
                results[number] = scored
        return results

    def verify(
        self,
        texts: Sequence[str] | None = None,
        count: int = 24,
        tolerance: float | None = None,
        language: str | None = None,
    ) -> Iterator[Check]:
        """Check, one by one, that answers do not depend on neighbours, order, padding, batch size or cache.

        Asks about `texts`, where one that is too long counts as its sentences, or about `count` texts of random tokens.
        Scores may differ by `tolerance`; unless given, by what rounding explains.
        """
        network, specials = self._loaded.network, self.tokenizer.specials
        if isinstance(network, LabelModel):
            return self._verify_labels(network, texts, count, tolerance)
        self._must_read_alike("verify")
        asked = self._random_texts(count) if texts is None else self._texts_to_verify(texts, language)
        if len(asked) < 2:
            raise UsageError(f"verify: needs at least 2 texts, so that there are neighbours, but has {len(asked)}.")
        allowed = verification.tolerance(self.network) if tolerance is None else tolerance
        if self.network.reads_source:
            sources = [[*ids, specials.end] for ids in asked]
            return verification.verify_translator(self.network, specials, self.recipe.search, sources, allowed)
        return verification.verify_generator(self.network, specials, asked, allowed)

    def _verify_labels(
        self, network: LabelModel, texts: Sequence[str] | None, count: int, tolerance: float | None
    ) -> Iterator[Check]:
        specials, reader = self.tokenizer.specials, self.tokenizer.source
        if texts is None:
            half = None if network.context is None else network.context // 2
            asked = verification.random_texts(reader.size, specials, count, half, self.recipe.seed)
        else:
            _must_be_texts("verify", texts)
            asked = reader.encode_all(texts)
        if len(asked) < 2:
            raise UsageError(f"verify: needs at least 2 texts, so that there are neighbours, but has {len(asked)}.")
        allowed = verification.tolerance(network) if tolerance is None else tolerance
        return verification.verify_labels(network, specials, asked, allowed)

    def _random_texts(self, count: int) -> list[list[int]]:
        reader = self.tokenizer.source if self.network.reads_source else self.tokenizer
        half = None if self._translator.limit is None else self._translator.limit // 2
        return verification.random_texts(reader.size, self.tokenizer.specials, count, half, self.recipe.seed)

    def _texts_to_verify(self, texts: Sequence[str], language: str | None) -> list[list[int]]:
        _must_be_texts("verify", texts)
        if not self.network.reads_source:
            return self.tokenizer.encode_all(texts)
        units = self._translator.units(texts, self.recipe.search, Options(language=language))
        return [unit.ids[:-1] for unit in units]

    def evaluate(
        self, sources: Sequence[str], references: Sequence[str], scoring: Scoring | None = None, examples: int = 3
    ) -> Report:
        """Translate `sources` and compare the result with `references`: figures, lengths, best and worst lines."""
        _must_be_pairs("evaluate", sources, references)
        # What is scored is what would stand in a file.
        lines = Lines([one_line(text) for text in self.translate(sources)], [references])
        probable = likelihood(self.network, self.tokenizer, sources, references, read=self._read)
        return report(sources, lines, scoring or Scoring(), probable, examples=examples)

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
        _must_be_texts("evaluate", lines)
        window = self.recipe.batch.row if self.recipe.batch.layout in ("blocks", "stream") else None
        probable = text_likelihood(self.network, self.tokenizer, lines, window, overlap, progress)
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
            _must_be_texts("evaluate", some)
            found[name] = music_likelihood(self.network, self.tokenizer, some, progress)
        return evaluate_music(found, voices, files, progress)

    def _read(self, sources: Sequence[str]) -> Tokens:
        return self._translator.read(sources, self._translator.encode(sources))

    def align(self, sources: Sequence[str], targets: Sequence[str], head: str | None = None) -> list[list[Link]]:
        """Which word of each target belongs to which of its source, by one attention (LAYER.HEAD) or the best."""
        self.must_translate("align")
        self._must_read_alike("align")
        _must_be_pairs("align", sources, targets)
        attention = word_attention(self.network, self.tokenizer, sources, targets)
        name = head or choose(attention, sources, targets).name
        return [pair.links(name) for pair in attention]

    def look(self, text: str, search: SearchSettings | None = None, language: str | None = None) -> Picture:
        """Translate `text`, or read it with a language model, and take a picture of every attention."""
        looked = self.attention(text, None, language, search)
        translation = looked.target if self.network.reads_source else None
        return Picture(self.recipe.name, text, translation, looked.maps())

    # ---- what the model thinks, as plain values: each is described where it is made, in `regard.exploring`

    def attention(
        self,
        text: str,
        target: str | None = None,
        language: str | None = None,
        search: SearchSettings | None = None,
    ) -> attention.Looked:
        """What every head looked at while it read `text` and wrote `target`, or its own translation."""
        return attention.look(self, text, target, language, search)

    def beam_tree(
        self, text: str, beams: int | None = None, alpha: float | None = None, language: str | None = None
    ) -> beam.BeamTree:
        """The tree that a beam search for a translation of `text` grows."""
        return beam.grow(self, text, beams, alpha, language)

    def next_tokens(
        self, text: str, sampling: SamplingSettings | None = None, count: int = following.MOST
    ) -> following.NextTokens:
        """The likeliest tokens after `text`, for a language model."""
        return following.next_tokens(self, text, sampling, count)

    def along(self, text: str, target: str | None = None, language: str | None = None) -> following.AlongText:
        """How likely each token is where it stands: of `text`, or of a translation of it."""
        return following.along(self, text, target, language)

    def alternatives(
        self,
        text: str,
        prefix: str = "",
        count: int = following.MOST,
        language: str | None = None,
        search: SearchSettings | None = None,
    ) -> following.Alternatives:
        """Words that could follow `prefix`, the beginning of a translation of `text`."""
        return following.alternatives(self, text, prefix, count, language, search)

    def walk(
        self,
        text: str,
        target: str | None = None,
        stack: walk.Stack | None = None,
        layer: int = 0,
        head: int = 0,
        position: int | None = None,
        language: str | None = None,
    ) -> walk.Walk:
        """`text` through one layer, step by step, with its real numbers."""
        return walk.walk(self, text, target, stack, layer, head, position, language)

    def positions(self, length: int = 64, dimensions: int = 64) -> vectors.Positions:
        """How the model tells positions apart."""
        return vectors.positions(self, length, dimensions)

    def neighbours(self, text: str, count: int = 12) -> vectors.Neighbours:
        """The tokens whose vectors are most like a word's."""
        return vectors.neighbours(self, text, count)

    def draw(self, what: pictures.What, asked: pictures.Asked) -> pictures.Shown:
        """A picture of it: attention, search, chances, positions, words, or how it learned."""
        return pictures.draw(self, what, asked, self.place)

    def summary(self, identifier: str) -> inside.Summary:
        """What a list of models says of this one."""
        if isinstance(self._loaded.network, LabelModel):
            return inside.label_summary(self._loaded, identifier, self.labels)
        return inside.summary(self, identifier)

    def inside(self) -> inside.Inside:
        """Its matrices, costs, wiring, curves, card and recipe."""
        return inside.inside(self, self.place)

    @cached_property
    def _generator(self) -> Generator:
        if self.network.reads_source:
            raise UsageError(
                f"generate: needs a language model, but `{self.recipe.name}` translates; its kind is "
                f"`{self.recipe.model.kind}`. Use `translate`."
            )
        return Generator(self.network, self.tokenizer)

    def must_translate(self, what: str) -> None:
        """Raise UsageError for a language model, in the name of what was asked of it."""
        if not self.network.reads_source:
            raise UsageError(
                f"{what}: needs a model that translates, but `{self.recipe.name}` is a language model of kind "
                f"`{self.recipe.model.kind}`. Use `generate`."
            )

    def _must_be_short(self, what: str, encoded: Sequence[Sequence[int]]) -> None:
        """Texts that are read as one need room for themselves and their start or end."""
        limit = self._translator.limit
        for place, ids in enumerate(encoded):
            if limit is not None and len(ids) >= limit:
                reason = (
                    f"must have less than {limit:,} tokens, which the model can read, but has {len(ids):,}. Split it."
                )
                raise TextError(place, reason, what)

    def _must_read_alike(self, what: str) -> None:
        cuts = [reader.source.to_json() for reader in self._translator.readers]
        if any(cut != cuts[0] for cut in cuts):
            raise UsageError(
                f"{what}: the models of an ensemble must cut sources alike, but these have different source "
                "vocabularies. Ask each of them by itself."
            )


def _must_be_texts(what: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise UsageError(f"{what}: needs a list of texts, but has one, {texts[:40]!r}. Write [text].")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UsageError(f"{what}: needs a list of texts, but number {number} is a {type(text).__name__}.")


def _must_be_pairs(what: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    _must_be_texts(what, sources)
    _must_be_texts(what, targets)
    if len(sources) != len(targets):
        raise UsageError(
            f"{what}: needs one text on the other side for each source, but there are {len(sources):,} sources and "
            f"{len(targets):,} others. Give two lists of one length."
        )


def load(
    path: str | Path,
    device: str = "auto",
    precision: Precision | Literal["auto"] = "auto",
    engine: Engine | Literal["auto"] = "auto",
) -> Model:
    """The model in a folder that `regard train` wrote, that `regard export` wrote for CTranslate2 or ONNX, or that
    another toolkit wrote and `regard import` can read, such as one of Hugging Face.

    `precision` says in which numbers it computes: "fp32" as it was trained, "bf16" on a GPU, "int8" on a CPU. "auto"
    is fp32 everywhere: answers then do not depend on the batch, which rounding to fewer bits cannot promise. An
    exported model computes in the numbers it was exported in. `engine` says who computes: "auto" is the engine that
    the folder is for.
    """
    if precision not in (known := ("auto", *get_args(Precision))):
        raise UsageError(f"precision: must be one of: {', '.join(known)}; but is `{precision}`.")
    chosen = choose_engine(Path(path), engine)
    if chosen != "torch":
        return Model(load_exported(Path(path), chosen, precision))
    where = experiment.choose_device(device)
    if Path(path).exists() and recognise(Path(path), own="regard") != "regard":
        loaded = read_foreign(Path(path))
        loaded.network.to(where)
    else:
        loaded = folder.load_folder(Path(path), where)
    convert(loaded.network, "fp32" if precision == "auto" else precision)
    return Model(loaded)


def train(recipe: Recipe | str, out: str | Path, overrides: Sequence[str] = ()) -> Model:
    """Train by a recipe (a `Recipe`, a file or a preset's name) into the folder `out`, and load the result."""
    if isinstance(recipe, str):
        recipe = load_recipe(recipe, overrides)
    experiment.train(recipe, Path(out))
    return load(out, recipe.device)


def inspect(
    name: str, overrides: Sequence[str] = (), vocabulary: int | None = None, length: int | None = None
) -> Inspection | Listing:
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
        # Of a model that gives labels, `vocabulary` is that of the texts.
        vocabulary = tokenizer.size if recipe.model.kind in LABELLING else vocabulary or tokenizer.size
    else:
        recipe = load_recipe(name, overrides)
        vocabulary = source_vocabulary = vocabulary or recipe.tokenizer.vocabulary
        if recipe.model.kind in LABELLING:
            vocabulary = FIRST + expected_labels(recipe.data)
    with torch.device("meta"):
        model = build_any(recipe.model, vocabulary, source_vocabulary)
    if isinstance(model, LabelModel):
        listed = anatomy(model, recipe.name, recipe.model.kind, model.vocabulary)
        return Listing(**vars(listed), labels=model.labels)
    parts = anatomy(model, recipe.name, recipe.model.kind, vocabulary)
    return look(model, parts, length, recipe.batch.tokens, recipe.search.beam)
