"""`regard evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import Alpha, AsJson, Beam, ModelFolder, Progress, load_model, search_settings
from regard.errors import DataError, UsageError


def evaluate(
    model: ModelFolder,
    source: Annotated[
        Path | None, typer.Argument(help="Sentences to translate.", show_default="the recipe's test set")
    ] = None,
    reference: Annotated[Path | None, typer.Argument(help="What they should become.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    as_json: AsJson = False,
) -> None:
    """Translate a test set and score it; every score comes with its signature."""
    from regard.data.corpus import open_corpus, read_pairs
    from regard.evaluation.metrics import score

    if (source is None) != (reference is None):
        raise UsageError("evaluate: SOURCE and REFERENCE must be given together, but one is missing. Give both.")
    loaded = load_model(model)
    pairs = (
        open_corpus(loaded.recipe.data).test() if source is None or reference is None else read_pairs(source, reference)
    )
    if not pairs:
        raise DataError(f"{model}: its recipe names no test set. Give one: regard evaluate MODEL SOURCE REFERENCE")
    search = search_settings(loaded.recipe.search, beam, alpha, nbest=1)
    with Progress() as progress:
        found = loaded.translations([pair.source for pair in pairs], search, progress.add)
    scores = score([translations[0].text for translations in found], [pair.target for pair in pairs])
    if as_json:
        print(json.dumps({"lines": len(pairs), "scores": [vars(score) for score in scores]}))
    else:
        print(*scores, sep="\n")
