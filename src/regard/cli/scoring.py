"""`regard evaluate`, `compare`, `score` and `align`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard import shipped
from regard.cli.common import (
    Alpha,
    AsJson,
    Beam,
    Coverage,
    ExtraLength,
    ModelFolder,
    Penalty,
    Precision,
    Progress,
    TargetLanguage,
    load_model,
    must_have_a_reader,
    naming_lines,
    naming_options,
    search_settings,
)
from regard.cli.keeping import must_not_be_read
from regard.cli.labelling import evaluate_labels
from regard.counts import so_many
from regard.errors import DataError, MissingError, UsageError
from regard.status import StatusLine

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.search import SearchSettings
    from regard.evaluation.alignment import Gold, Link
    from regard.evaluation.catalogue import Scoring
    from regard.evaluation.likelihood import Likelihood
    from regard.evaluation.metrics import Lines
    from regard.evaluation.metrics import Progress as Counting
    from regard.evaluation.report import Report, TestSet
    from regard.evaluation.significance import Difference

ALIGNED_AT_A_TIME = 1_000  # pairs; the first so many decide which attention to align with
SCORED_AT_A_TIME = 2_000  # lines

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenize", help="How BLEU cuts text: 13a, intl, char, zh or none.", show_default="by the script"),
]
Lowercase = Annotated[
    bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF; TER always does, exact match never.")
]
Language = Annotated[
    str | None,
    typer.Option(help="The target's language, as de.", show_default="by the reference's name or the recipe"),
]
Rouge = Annotated[bool, typer.Option("--rouge", help="Also compute ROUGE-1, -2 and -L, for summaries.")]
References = Annotated[
    list[Path] | None,
    typer.Argument(metavar="REFERENCE", help="What the lines should become; several files are several references."),
]


def evaluate(
    model: ModelFolder,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="Sentences to translate.", show_default="the recipe's test set"),
    ] = None,
    reference: References = None,
    beam: Beam = None,
    alpha: Alpha = None,
    penalty: Penalty = None,
    coverage: Coverage = None,
    extra_length: ExtraLength = None,
    tokenize: Tokenizer = None,
    lowercase: Lowercase = False,
    language: Language = None,
    rouge: Rouge = False,
    examples: Annotated[int, typer.Option(min=0, help="How many of the best and worst lines to show.")] = 3,
    out: Annotated[Path | None, typer.Option(help="A file for the translations.", show_default="none")] = None,
    overlap: Annotated[
        int | None,
        typer.Option(min=0, help="For a language model: tokens that windows share.", show_default="half of a window"),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="For labels: an SVG file to draw which was taken for which into.", show_default="none"),
    ] = None,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Translate a test set and score it, or tell how probable a language model finds a text (SOURCE alone) or a model
    of music the pieces it was not trained on, or how often labels are right (SOURCE has texts and labels).

    Every score comes with its signature and its uncertainty.
    """
    from regard.evaluation.metrics import Lines
    from regard.evaluation.report import TestSet
    from regard.files import destination

    must_have_a_reader()  # a mistake is found now, not after an hour of translating
    if out is not None:
        destination(out)
    loaded = load_model(model, precision)
    changes = {"beam": beam, "alpha": alpha, "penalty": penalty, "coverage": coverage, "extra_length": extra_length}
    _check_options(loaded, {**changes, "tokenize": tokenize, "lowercase": lowercase, "language": language,
                            "rouge": rouge, "out": out}, overlap)  # fmt: skip
    if loaded.task in ("classify", "tag"):
        evaluate_labels(loaded, model, source, reference or [], examples, confusion, as_json)
        return
    if confusion is not None:
        raise UsageError(f"evaluate: --confusion is for models that give labels, but `{loaded.recipe.name}` does not.")
    if loaded.recipe.tokenizer.kind == "music":
        _evaluate_music(loaded, source, reference or [], overlap, as_json)
        return
    if not loaded.network.reads_source:
        _evaluate_text(loaded, model, source, reference or [], overlap, as_json)
        return
    if (source is None) == bool(reference):
        raise UsageError("evaluate: SOURCE and REFERENCE must be given together, but one is missing. Give both.")
    sources, references = _test_set(loaded, model, source, reference or [], out)
    scoring = _scoring(tokenize, lowercase, language or _language(loaded, reference or []), rouge)
    search = search_settings(loaded.recipe.search, {**changes, "nbest": 1})
    lines = Lines(_translated(loaded, sources, search, out), references)
    names: list[Path | None] = [*reference] if reference else [None]
    files = [TestSet.of("source", source, sources)]
    files += [TestSet.of("reference", *one) for one in zip(names, references, strict=True)]
    result = _judged(loaded, sources, lines, scoring, files, examples)
    print(json.dumps(result.to_json(), ensure_ascii=False) if as_json else result.to_text())


def compare(
    a: Annotated[Path, typer.Argument(metavar="HYP_A", help="Translations by one system.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="HYP_B", help="Translations by another.", show_default=False)],
    reference: Annotated[
        list[Path], typer.Argument(metavar="REFERENCE", help="What they should be; one file or several.")
    ],
    tokenize: Tokenizer = None,
    lowercase: Lowercase = False,
    rouge: Rouge = False,
    as_json: AsJson = False,
) -> None:
    """Say whether one of two sets of translations is better, or whether the difference could be chance."""
    from regard.evaluation.catalogue import headline
    from regard.evaluation.metrics import Lines
    from regard.evaluation.significance import SAMPLES, SEED, SWAPS, verdict
    from regard.evaluation.significance import compare as test

    must_have_a_reader()
    texts = _equally_long([a, b, *reference])
    scoring = _scoring(tokenize, lowercase, None, rouge)
    with _counting() as counting:
        tallies = [headline(Lines(system, texts[2:]), scoring, counting) for system in texts[:2]]
        differences = test(tallies[0], tallies[1], progress=counting)
    words = "A and B are the same, line by line." if texts[0] == texts[1] else verdict(differences)
    if as_json:
        tests = {"samples": SAMPLES, "swaps": SWAPS, "seed": SEED, "level": 0.05}
        found = [{**vars(one), "difference": one.size, "better": one.better} for one in differences]
        print(json.dumps({"lines": len(texts[0]), "differences": found, "tests": tests, "verdict": words}))
        return
    print(f"A  {a}\nB  {b}\n{so_many(len(texts[0]), 'line')}\n")
    for difference in differences:
        print(_in_words(difference))
    print(f"\n{words}")


def score(
    model: ModelFolder,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Sentences, one a line; for a language model, the texts.")
    ],
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="Their translations, line by line.", show_default="none")
    ] = None,
    to: TargetLanguage = None,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Print how likely the model finds given translations, or texts: log-probability of each line, and a token."""
    from regard.data.corpus import read_lines

    loaded = load_model(model, precision)
    if loaded.network.reads_source != (target is not None):
        rule, fix = (
            ("a model that translates needs SOURCE and TARGET", "Give both files")
            if loaded.network.reads_source
            else ("a language model needs one file, of texts", "Give that one alone")
        )
        raise UsageError(f"score: {rule}, but there {'is one file' if target is None else 'are two'}. {fix}.")
    sources, texts = (None, read_lines(source)) if target is None else _equally_long([source, target])
    end = loaded.tokenizer.labels([loaded.tokenizer.specials.end])
    with Progress() as progress:
        for first in range(0, len(texts), SCORED_AT_A_TIME):
            some = slice(first, first + SCORED_AT_A_TIME)
            with naming_lines(str(target or source), first):
                found = loaded.score(texts[some], None if sources is None else sources[some], to)
            results = []
            for scored in found:
                total, each = scored.log_probability, scored.log_probabilities
                tokens = [*loaded.tokenizer.labels(scored.tokens), *end]
                whole = {"log_probability": total, "tokens": tokens, "log_probabilities": each}
                results.append(
                    json.dumps(whole, ensure_ascii=False) if as_json else f"{total:.4f}\t{total / len(each):.4f}"
                )
            progress.tell(results)
            progress.add(len(found), sum(len(scored.log_probabilities) for scored in found))


def align(
    model: ModelFolder,
    source: Annotated[Path, typer.Argument(help="Sentences, one a line.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.", show_default=False)],
    head: Annotated[
        str | None, typer.Option(help="The attention to use, as LAYER.HEAD or LAYER.mean.", show_default="the best")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Links that people made for these lines, to choose and to judge by.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print which words belong together, as `0-0 1-2` (source-target, from 0), by the attention of the model."""
    from regard.data.corpus import read_pairs
    from regard.evaluation.alignment import choose, quality, to_pharaoh, word_attention

    loaded = load_model(model)
    loaded.must_translate("align")
    pairs = read_pairs(source, target)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    wanted = None if gold is None else _gold(gold, source, sources, targets)
    kept = []
    with Progress() as progress:
        for first in range(0, len(pairs), ALIGNED_AT_A_TIME):
            some = slice(first, first + ALIGNED_AT_A_TIME)
            attention = word_attention(loaded.network, loaded.tokenizer, sources[some], targets[some])
            if head is None:
                chosen = choose(attention, sources[some], targets[some], wanted and wanted[some])
                head = chosen.name
                print(f"Aligned by attention {head}, {chosen.reason}.", file=sys.stderr)
            links = [pair.links(head) for pair in attention]
            kept += links if wanted is not None else []
            progress.tell(_as_triples(found) if as_json else to_pharaoh(found) for found in links)
            progress.add(len(links))
    if wanted is not None:
        measured = quality(kept, wanted)
        print(
            f"Attention {head}: alignment error rate {measured.error_rate:.3f}, precision {measured.precision:.3f}, "
            f"recall {measured.recall:.3f} on {so_many(len(kept), 'line')}.",
            file=sys.stderr,
        )


def _as_triples(links: Sequence[Link]) -> str:
    return json.dumps({"alignment": [[link.source, link.target, link.weight] for link in links]})


def _check_options(loaded: Model, translating: Mapping[str, object], overlap: int | None) -> None:
    """An option that a model has no use for was meant to do something."""
    given = [f"--{name.replace('_', '-')}" for name, value in translating.items() if value not in (None, False)]
    if given and loaded.task != "translate":
        raise UsageError(
            f"evaluate: {given[0]} is for models that translate, but `{loaded.recipe.name}` does not. Leave it out."
        )
    if overlap is not None and loaded.task != "generate":
        raise UsageError(
            f"evaluate: --overlap is for language models, but `{loaded.recipe.name}` is not one. Leave it out."
        )


def _evaluate_text(
    loaded: Model, folder: Path, text: Path | None, others: Sequence[Path], overlap: int | None, as_json: bool
) -> None:
    """The perplexities of a language model."""
    from regard.data.corpus import open_corpus, read_lines
    from regard.evaluation.report import TestSet

    if others:
        raise UsageError(
            f"evaluate: a language model is given one text, but `{loaded.recipe.name}` got {1 + len(others)} files. "
            "Give one."
        )
    lines = read_lines(text) if text is not None else [pair.target for pair in open_corpus(loaded.recipe.data).test()]
    if not lines:
        place, fix = (
            (text, "Is it the right file?")
            if text
            else (shipped.called(folder), "Give one: regard evaluate MODEL FILE")
        )
        raise DataError(f"{place}: there must be text to evaluate on, but there is none. {fix}")
    with _counting() as counting:
        report = loaded.evaluate_text(lines, overlap, [TestSet.of("text", text, lines)], counting)
    print(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())


def _evaluate_music(
    loaded: Model, words: Path | None, others: Sequence[Path], overlap: int | None, as_json: bool
) -> None:
    """Nats a word and a step, on the recipe's own pieces, or on a file of pieces as words, one a line."""
    from dataclasses import replace

    from regard.data.corpus import open_corpus, read_lines
    from regard.evaluation.report import TestSet

    if others or overlap is not None:
        found = f"there are {1 + len(others)} files" if others else "--overlap is given"
        raise UsageError(f"evaluate: pieces of music are in one file, and each is read by itself, but {found}.")
    if words is not None:
        pieces = {"pieces": read_lines(words)}
        files = [TestSet.of("pieces", words, pieces["pieces"])]
    else:
        corpus = open_corpus(loaded.recipe.data)
        both = {"valid": corpus.valid(), "test": corpus.test()}
        pieces = {split: [pair.target for pair in pairs] for split, pairs in both.items() if pairs}
        files = [
            replace(TestSet.of(split, None, lines), name=f"the recipe's {split} pieces")
            for split, lines in pieces.items()
        ]
    with _counting() as counting:
        report = loaded.evaluate_music(pieces, files, counting)
    print(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())


def _test_set(
    loaded: Model, folder: Path, source: Path | None, reference: Sequence[Path], out: Path | None
) -> tuple[list[str], list[list[str]]]:
    """The sources, and each set of references: from files, or the recipe's own, which `out` must not be."""
    from regard.data.corpus import open_corpus

    if source is not None:
        sources, *references = _equally_long([source, *reference])
        return sources, references
    try:
        corpus = open_corpus(loaded.recipe.data)
        if out is not None:
            must_not_be_read("--out", out, corpus.other_files("test"))
        pairs = corpus.test()
    except MissingError as error:
        name = shipped.called(folder)
        if name not in shipped.names():
            raise
        raise MissingError(
            f"{error} The model {name} comes with Regard, but its test set does not: “How they were made” in "
            f"docs/shipped.md says how to get it. Or give one of your own: regard evaluate {name} SOURCE REFERENCE"
        ) from error
    if not pairs:
        raise DataError(f"{folder}: its recipe names no test set. Give one: regard evaluate MODEL SOURCE REFERENCE")
    return [pair.source for pair in pairs], [[pair.target for pair in pairs]]


def _equally_long(files: Sequence[Path]) -> list[list[str]]:
    """The lines of files that belong together line by line."""
    from regard.data.corpus import read_pairs

    # Each with the last, which is a reference: an error then says where the two seem to part.
    pairs = [read_pairs(file, files[-1]) for file in files[:-1]]
    return [*([pair.source for pair in some] for some in pairs), [pair.target for pair in pairs[0]]]


def _translated(loaded: Model, sources: Sequence[str], search: SearchSettings, out: Path | None) -> list[str]:
    """The best translation of each source, on one line; also in a file, if one is given."""
    from regard.files import write_file
    from regard.translation.result import one_line

    with naming_options(), Progress() as progress:
        found = loaded.translations(sources, search, progress.add)
    texts = [one_line(best.text) for best, *_ in found]  # what is scored is what stands in the file
    if out is not None:
        write_file(out, "".join(f"{text}\n" for text in texts))
    return texts


def _judged(
    loaded: Model, sources: Sequence[str], lines: Lines, scoring: Scoring, files: list[TestSet], examples: int
) -> Report:
    """The report on translations: their scores, and how probable the first references are."""
    from regard.evaluation.report import evaluate

    with _counting() as counting:
        probable, problem = _likelihood(loaded, sources, lines.references[0], counting)
        report = evaluate(sources, lines, scoring, probable, files, examples, counting)
    report.notes.extend(problem)
    return report


def _scoring(tokenize: str | None, lowercase: bool, language: str | None, rouge: bool) -> Scoring:
    from typing import cast

    from regard.evaluation.catalogue import Scoring, Tokenize

    with naming_options():
        return Scoring(cast("Tokenize | None", tokenize), lowercase, language, rouge)


def _language(loaded: Model, reference: Sequence[Path]) -> str | None:
    """The target's language, as far as names tell: a reference's own, else what the recipe's corpus says."""
    from regard.evaluation.catalogue import language_of, target_language

    named = next(map(language_of, reference), None)
    return named or target_language(loaded.recipe.data)


def _likelihood(
    loaded: Model, sources: Sequence[str], references: Sequence[str], counting: Counting
) -> tuple[Likelihood | None, list[str]]:
    """How probable the references are; where the model cannot read them, why not."""
    from regard.evaluation.likelihood import likelihood
    from regard.memory import NoRoomError

    try:
        return likelihood(loaded.network, loaded.tokenizer, sources, references, counting), []
    except (UsageError, NoRoomError) as error:
        return None, [f"there is no perplexity: {error}"]


def _gold(file: Path, source: Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    from regard.data.corpus import read_lines
    from regard.evaluation.alignment import read_pharaoh

    lines = read_lines(file)
    if len(lines) != len(sources):
        raise DataError(
            f"{file} and {source}: both must have the same number of lines, but have {len(lines):,} and "
            f"{len(sources):,}. An empty line is a pair without links."
        )
    gold = [read_pharaoh(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]
    for number, (found, *texts) in enumerate(zip(gold, sources, targets, strict=True), 1):
        read, written = (len(text.split()) for text in texts)
        for i, j in sorted(found.possible):
            if i >= read or j >= written:
                raise DataError(
                    f"{file}, line {number}: links must be between words that are there, counted from 0, but {i}-{j} "
                    f"is not: it has {so_many(read, 'word')} on the source side and {written} on the target side."
                )
    return gold


def _in_words(difference: Difference) -> str:
    sign = f"{difference.size:+.2f}"
    return (
        f"{difference.name}  A {difference.a:.2f}  B {difference.b:.2f}  difference {sign}  "
        f"95 % interval {difference.low:+.2f} … {difference.high:+.2f}\n"
        f"  p = {difference.bootstrap_p:.4f} by paired bootstrap, {difference.randomisation_p:.4f} by approximate "
        f"randomisation\n  {difference.signature}"
    )


@contextmanager
def _counting() -> Iterator[Counting]:
    """Shows on the status line what is being counted, and how far it has come."""
    status = StatusLine()

    def show(what: str, done: int) -> None:
        status.show(lambda: f"{what}: {done:,}")

    try:
        yield show
    finally:
        status.close()
