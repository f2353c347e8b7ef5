"""Figures that were published, and whether a model folder still reaches them: `regard reproduce NAME --check FOLDER`.

They stand in `figures.toml` beside this file: test sets with the SHA-256 of their files, and for each model the metric,
its signature, the value, and how far from it a new evaluation may be: of the same weights, or of a model of any seed
where the value is a mean over seeds.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard import shipped
from regard.data.formats import Repairs, partner_blocks, read_lines, table_blocks
from regard.errors import DataError, MissingError, UsageError, proposal
from regard.evaluation import catalogue
from regard.evaluation.catalogue import Scoring
from regard.evaluation.metrics import Score
from regard.folder import Loaded, load_folder
from regard.machine import choose_device
from regard.models.bert import Bert
from regard.models.labelling import LabelModel
from regard.recipe import load_recipe
from regard.reproduce.judging import Judge
from regard.reproduce.sameness import Made, Wanted
from regard.reproduce.study import folder_of_data
from regard.text.events import MusicEvents

FIGURES = Path(__file__).parent / "figures.toml"
PUBLIC = "docs/reproduce.md says what has to be in that folder"
MADE = 'docs/shipped.md, "How they were made", has the commands that make this file'

NAMED = 5  # at most so many differences, where a model was not made as the published one


@dataclass(frozen=True)
class TestFiles:
    """A test set: pairs in two files or in two columns of one; or, for a language model, a text."""

    __test__ = False  # not for pytest

    source: str
    reference: str | None = None
    columns: tuple[int, int] | None = None
    """Where sources and references stand in one file with tabs, counted from 1."""
    language: str | None = None
    """Of the references, where the name of their file does not tell."""
    lowercase: bool = False

    @property
    def has_pairs(self) -> bool:
        """Whether there is something to translate."""
        return self.reference is not None or self.columns is not None

    @property
    def names(self) -> list[str]:
        """Its files, inside the folder of all corpora."""
        return [self.source, *([] if self.reference is None else [self.reference])]


@dataclass(frozen=True)
class Figure:
    """One published value."""

    set: str
    metric: str
    """The name that `regard evaluate` gives it."""
    signature: str
    """The name of its definition in the table of signatures."""
    value: float
    tolerance: float

    def __str__(self) -> str:
        return f"{self.set}: {self.metric} {_shown(self.value, self.metric)}, within {self.tolerance:g}"


@dataclass(frozen=True)
class Publication:
    """A model and its published figures."""

    what: str
    recipe: str
    figures: tuple[Figure, ...]
    corpus: str | None = None
    """The name of what it was trained on in the table of corpora; None where the recipe itself names its files, which
    are in the folder `data`."""
    overrides: tuple[str, ...] = ()
    seeds: int = 1
    """Where the values are means over models that differ by their seeds: over how many."""

    @property
    def reminder(self) -> str:
        """What to think of a model that misses a figure."""
        if self.seeds > 1:
            return (
                f"They are means over {self.seeds} seeds, and 19 of 20 other seeds would be within the tolerance: "
                "a model of another seed can miss one by chance."
            )
        return "They are those of the published weights: a model trained anew differs by its seed and its machine."


@dataclass(frozen=True)
class Publications:
    """The content of `figures.toml`."""

    files: Mapping[str, str]
    """The SHA-256 of each file."""
    corpora: Mapping[str, Mapping[str, str]]
    """Settings of `data`, by their keys, to files."""
    sets: Mapping[str, TestFiles]
    signatures: Mapping[str, str]
    models: Mapping[str, Publication]

    @classmethod
    def read(cls, file: Path) -> Publications:
        """What a file of figures holds, if everything that one part of it names stands in another."""
        try:
            found = TypeAdapter(cls).validate_python(tomllib.loads(file.read_text(encoding="utf-8")))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(f"{file}: `{where}` must be as the other figures have it, but: {first['msg']}.") from error
        except ValueError as error:
            raise DataError(f"{file}: must be TOML, but is not ({error}). Correct it.") from error
        for what, name, part in found._named():
            if name not in getattr(found, part):
                raise DataError(f"{file}: {what} must name one of [{part}], but names `{name}`. Add it there.")
        return found

    def _named(self) -> Iterator[tuple[str, str, str]]:
        """Who names what, and in which part that has to stand."""
        for name, corpus in self.corpora.items():
            yield from ((f"corpora.{name}", file, "files") for file in corpus.values())
        for name, found in self.sets.items():
            yield from ((f"sets.{name}", file, "files") for file in found.names)
        for name, model in self.models.items():
            if model.corpus is not None:
                yield f"models.{name}", model.corpus, "corpora"
            for figure in model.figures:
                yield f"models.{name}", figure.set, "sets"
                yield f"models.{name}", figure.signature, "signatures"

    def wanted(self, name: str) -> Wanted:
        """How a model must have been made to be held against a published one."""
        model = self.models[name]
        learned = {} if model.corpus is None else self.corpora[model.corpus]
        files = {key: (file, self.files[file]) for key, file in learned.items() if key in ("source", "target")}
        recipe = load_recipe(model.recipe, [*self._corpus(model, "FOLDER"), *model.overrides])
        return Wanted(recipe, files, any(self.sets[figure.set].has_pairs for figure in model.figures))

    def commands(self, name: str) -> dict[str, str]:
        """What trains a model like a published one, and what checks it, and the published one if that is here."""
        model, out = self.models[name], f"runs/{name}"
        place = "data" if model.corpus is None else "FOLDER"
        train = ["regard train", model.recipe, *self._corpus(model, place), *model.overrides, "--out", out]
        check = f"regard reproduce {name} --check {{}} --data {place}"
        found = {"train": " ".join(train), "check": check.format(out)}
        return {**found, "check_shipped": check.format(name)} if name in shipped.names() else found

    def _corpus(self, model: Publication, place: str) -> list[str]:
        """The settings of its corpus, if that lies in a folder; none where the recipe has them."""
        if model.corpus is None:
            return []
        return ["data.kind=files", *(f"data.{key}={place}/{file}" for key, file in self.corpora[model.corpus].items())]

    def about(self, name: str) -> str:
        """What was published of a model, and the commands that train and check one like it."""
        model, how = self.models[name], self.commands(name)
        figures = [f"  {each}  ({self.signatures[each.signature]})" for each in model.figures]
        lines = [
            f"{name}: {model.what}",
            *figures,
            "",
            f"To train one: {how['train']}",
            f"To check one: {how['check']}",
        ]
        if "check_shipped" in how:
            lines.append(f"To check the one that comes with Regard: {how['check_shipped']}")
        return "\n".join(lines)

    def to_json(self, name: str) -> dict[str, Any]:
        """The same as plain values."""
        model = self.models[name]
        figures = [{**vars(each), "signature": self.signatures[each.signature]} for each in model.figures]
        return {
            "name": name, "what": model.what, "seeds": model.seeds, "figures": figures, "commands": self.commands(name)
        }  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A published figure beside what was found."""

    set: str
    metric: str
    published: float
    found: float | None
    """None where it cannot be computed of this model."""
    tolerance: float
    signature: str
    other_signature: str | None = None
    """How the found one was computed, where that is another way; then nothing is proved."""

    @property
    def holds(self) -> bool:
        """Whether the two agree."""
        if self.found is None:
            return False
        near = math.isclose(self.found, self.published, rel_tol=0.0, abs_tol=self.tolerance + 1e-9)
        return near and self.other_signature is None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "holds": self.holds}

    def __str__(self) -> str:
        published = _shown(self.published, self.metric)
        if self.found is None:
            return f"FAILED  {self.set}: {self.metric} cannot be computed of this model, published {published}"
        both = f"{self.set}: {self.metric} is {_shown(self.found, self.metric)}, published {published}"
        if self.other_signature is not None:
            return f"FAILED  {both}, but computed in another way: {self.other_signature}, not {self.signature}"
        rule = f"within {self.tolerance:g}" if self.holds else f"more than {self.tolerance:g} apart"
        return f"{'ok    ' if self.holds else 'FAILED'}  {both}, {rule}"


def _shown(value: float, metric: str) -> str:
    """A value as it was published; a perplexity is never far from 1, so it has another digit."""
    return f"{value:.{3 if metric.startswith('perplexity') else 2}f}"


@cache
def published() -> Publications:
    """All that come with Regard."""
    return Publications.read(FIGURES)


def check(name: str, folder: Path, data: Path | None, known: Publications | None = None) -> list[Verdict]:
    """Translate the test sets of a published model anew and compare with what was published.

    `folder` holds the model to be checked, or is the name of one that comes with Regard.
    """
    known = known or published()
    if name not in known.models:
        raise UsageError(
            f"reproduce --check: NAME must be one of: {', '.join(known.models)}; but is `{name}`. "
            + proposal(name, known.models, "Choose one that was published.")
        )
    model, place = known.models[name], folder_of_data(data, name)
    wanted = {figure.set: known.sets[figure.set] for figure in model.figures}
    loaded = load_folder(shipped.resolve(folder), choose_device("auto"))
    asked = f"{folder}: to be checked against {name}"
    _must_fit(loaded, asked, next(iter(wanted.values())))
    _must_be_one(Made.read(shipped.resolve(folder), loaded.recipe), asked, name, known)
    where = MADE if name in shipped.names() else PUBLIC
    for files in wanted.values():
        for file in files.names:
            _check_file(place / file, known.files[file], where)
    judge = Judge(loaded)
    found = {set_name: _judge(judge, files, place) for set_name, files in wanted.items()}
    return [_verdict(figure, known.signatures[figure.signature], found[figure.set]) for figure in model.figures]


def _must_fit(loaded: Loaded, place: str, files: TestFiles) -> None:
    """Raise UsageError where a model does something else than the published one."""
    network = loaded.network
    if isinstance(network, LabelModel):
        does = "gives labels"
    elif isinstance(network, Bert):
        does = "fills gaps"
    elif isinstance(loaded.recipe.tokenizer, MusicEvents):
        does = "writes music"
    else:
        does = "translates" if network.reads_source else "continues text"
    needed = "translates" if files.has_pairs else "continues text"
    if does != needed:
        raise UsageError(
            f"{place} it must hold a model that {needed}, but holds one of kind `{loaded.recipe.model.kind}`, which "
            f"{does}. Name another folder, or another of the published models."
        )


def _must_be_one(made: Made, place: str, name: str, known: Publications) -> None:
    """Raise UsageError where a model was not made as the published one: translating a test set takes long.

    Its name does not count, since a run may be given any.
    """
    if not (departures := known.wanted(name).departures(made)):
        return
    recipe, model = made.recipe.name, known.models[name]
    whose = "" if recipe in (name, model.recipe) else f"holds one of `{recipe}`: "
    fitting = [f"`{other}`" for other in known.models if not known.wanted(other).departures(made)]
    to_do = f"Train one with the command that `regard reproduce {name}` prints"
    if fitting:
        to_do = f"Check it against {' or '.join(fitting)}, since it was made as that"
    more = [f"{len(departures) - NAMED:,} more"] if len(departures) > NAMED else []
    raise UsageError(
        f"{place} it must hold a model that was made as that one, but {whose}"
        f"{'; '.join([*departures[:NAMED], *more])}. {to_do}, or "
        "name another folder; `regard evaluate` scores any model."
    )


def _judge(judge: Judge, files: TestFiles, place: Path) -> dict[str, Score]:
    if not files.has_pairs:
        return judge.text(read_lines(place / files.source)).scores
    pairs = list(_pairs(files, place))
    language = files.language or catalogue.language_of(Path(files.names[-1]))
    scoring = Scoring(lowercase=files.lowercase, language=language)
    return judge.pairs([source for source, _ in pairs], [target for _, target in pairs], scoring).scores


def _pairs(files: TestFiles, place: Path) -> Iterator[tuple[str, str]]:
    first = str(place / files.source)
    if files.columns is not None:
        blocks = table_blocks(first, files.columns, Repairs())
    else:
        blocks = partner_blocks(first, str(place / files.names[-1]), Repairs())
    for block in blocks:
        yield from zip(block.sources, block.targets, strict=True)


def _verdict(figure: Figure, signature: str, scores: Mapping[str, Score]) -> Verdict:
    found = scores.get(figure.metric)
    if found is None:
        return Verdict(figure.set, figure.metric, figure.value, None, figure.tolerance, signature)
    other = None if _definition(found.signature) == _definition(signature) else found.signature
    return Verdict(figure.set, figure.metric, figure.value, found.value, figure.tolerance, signature, other)


def _definition(signature: str) -> list[str]:
    """A signature without the version of the library, which computes the same under another number."""
    return [part for part in signature.split("|") if not part.startswith("version:")]


def _check_file(file: Path, sha256: str, where: str = PUBLIC) -> None:
    """Raise where a file is missing or another one; `where` says how to get it."""
    if not file.is_file():
        raise MissingError(f"{file}: the published figure is of this file, but it is not there. Check --data; {where}.")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise DataError(
            f"{file}: its SHA-256 must be {sha256[:12]}… as that of the file the figure is of, but is {found[:12]}…. "
            f"Figures of other files cannot be compared; {where}."
        )
