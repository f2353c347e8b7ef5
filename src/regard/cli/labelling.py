"""`regard classify` and `regard tag`, and `regard evaluate` of models that give labels."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import STDIN, AsJson, ModelFolder, Precision, Progress, load_model, must_be_there
from regard.cli.reading import opened
from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api import Model

File = Annotated[str, typer.Argument(metavar="FILE", help="Texts, one a line; - is stdin.")]


def classify(
    model: ModelFolder,
    file: File = STDIN,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Give each line a label: as many lines come out as went in. With --json, the chances of all labels."""
    if file != STDIN:
        must_be_there("classify", model, file)
    loaded = load_model(model, precision)
    loaded.classify([])  # a model of another kind says so before anything is read

    def answer(lines: Sequence[str], hear: Callable[[int], None]) -> list[str]:
        found = loaded.classify(lines, hear)
        return [_json(choice.to_json()) if as_json else choice.label for choice in found]

    _work_through(file, answer)


def tag(
    model: ModelFolder,
    file: File = STDIN,
    restore: Annotated[
        bool, typer.Option("--restore", help="Write the text with capitals and punctuation, where these are the tags.")
    ] = False,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Give each word a label: a line of tags for each line of words. With --json, the chances of all labels."""
    if restore and as_json:
        raise UsageError("tag: --restore writes text, but --json is given. Leave one of them out.")
    if file != STDIN:
        must_be_there("tag", model, file)
    loaded = load_model(model, precision)
    loaded.restore([]) if restore else loaded.tag([])

    def answer(lines: Sequence[str], hear: Callable[[int], None]) -> list[str]:
        if restore:
            return loaded.restore(lines, hear)
        found = loaded.tag(lines, hear)
        return [_json(text.to_json()) if as_json else " ".join(text.tags) for text in found]

    _work_through(file, answer)


def evaluate_labels(
    loaded: Model, place: Path, file: Path | None, others: Sequence[Path], examples: int, confusion: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Label a test set and compare; `confusion` is a file for the picture of which label was taken for which."""
    from regard.data.corpus import open_corpus
    from regard.data.formats import Repairs
    from regard.data.labelled import answers_of, read_labels
    from regard.evaluation.report import TestSet
    from regard.files import destination, write_file
    from regard.viewing.confusion import confusion_svg

    if others:
        raise UsageError(
            f"evaluate: a model that gives labels is given one file with texts and labels, but `{loaded.recipe.name}` "
            f"got {1 + len(others)}. Give one, in the form of its training data."
        )
    if confusion is not None:
        if confusion.suffix != ".svg":
            raise UsageError(f"{confusion}: the picture is SVG, so its name must end in .svg.")
        destination(confusion)
    data = loaded.recipe.data
    if file is None:
        pairs = [(pair.source, pair.target) for pair in open_corpus(data).test()]
    else:
        assert answers_of(data) is not None, "a model that gives labels was trained on some"
        blocks = read_labels(data, str(file), False, Repairs())  # type: ignore[arg-type]
        pairs = [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]
    if not pairs:
        found, fix = (file, "Is it the right file?") if file else (place, "Give one: regard evaluate MODEL FILE")
        raise DataError(f"{found}: there must be texts with labels to evaluate on, but there are none. {fix}")
    texts, labels = [text for text, _ in pairs], [label for _, label in pairs]
    files = [TestSet.of("texts and labels", file, [f"{text}\t{label}" for text, label in pairs])]
    with Progress() as progress:
        report = loaded.evaluate_labels(texts, labels, files, examples, progress.add)
    if confusion is not None:
        names = [one.label for one in report.labels]
        title = f"{loaded.recipe.name}: accuracy {report.scores[0].value:.2f} %"
        write_file(confusion, confusion_svg(names, report.confusion, title))
        print(f"The picture is in {confusion}; open it in a browser.", file=sys.stderr)
    print(_json(report.to_json()) if as_json else report.to_text())


def _work_through(file: str, answer: Callable[[Sequence[str], Callable[[int], None]], list[str]]) -> None:
    with opened(file) as (windows, size), Progress(size) as progress:
        for some in windows:
            progress.window(some)
            progress.tell(answer(some, progress.add))


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)
