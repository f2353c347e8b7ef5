"""`regard translate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import Alpha, AsJson, Beam, ModelFolder, Progress, load_model, search_settings

if TYPE_CHECKING:
    from regard.api import Translation

LINES_AT_A_TIME = 2_000


def translate(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text to translate; - is stdin.")] = "-",
    beam: Beam = None,
    alpha: Alpha = None,
    nbest: Annotated[int, typer.Option(help="Translations a line, each on a line of its own.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Translate line by line: as many lines come out as went in."""
    from regard.data.corpus import lines_of, open_text

    loaded = load_model(model)
    search = search_settings(loaded.recipe.search, beam, alpha, nbest)
    # At a terminal each line is answered at once; otherwise many lines share the work.
    size = 1 if file == "-" and sys.stdin.isatty() else LINES_AT_A_TIME
    with nullcontext(sys.stdin.buffer) if file == "-" else open_text(Path(file)) as stream, Progress() as progress:
        lines = lines_of(stream, "stdin" if file == "-" else file)
        while some := list(islice(lines, size)):
            for translations in loaded.translations(some, search, progress.add):
                print(_as_json(translations) if as_json else _as_lines(translations, nbest))
            sys.stdout.flush()


def _as_lines(translations: Sequence[Translation], count: int) -> str:
    """Exactly `count` lines, so that readers can count on it: a model of bytes may write a line end, an empty
    text has no second translation."""
    texts = [translation.text.replace("\n", " ") for translation in translations]
    return "\n".join(texts + [""] * (count - len(texts)))


def _as_json(translations: Sequence[Translation]) -> str:
    best, *others = [vars(translation) for translation in translations]
    return json.dumps({**best, "alternatives": others}, ensure_ascii=False)
