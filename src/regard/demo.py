"""`regard demo`: a model that comes with Regard at work; then the whole journey in two minutes, from a corpus to a
picture of attention."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from shlex import quote

from regard import api, experiment, folder, shipped
from regard.counts import so_many
from regard.data.corpus import load_corpus
from regard.evaluation.metrics import score
from regard.files import write_file
from regard.recipe import load_recipe

DEMO = "demo"
MODEL = "model"
SENTENCES_SHOWN = 5
LOOKED_AT = "The train leaves on Saturday at 3:04 PM."
SHIPPED = "everyday-en-de"
EVERYDAY = (
    "Good morning.",
    "Where is the train station?",
    "I would like a cup of coffee, please.",
    "She has been living in Berlin for three years.",
    "If it rains tomorrow, we will stay at home.",
)


def run(out: Path) -> str | None:
    """The tour; the name of the signal if it was stopped."""
    started = time.monotonic()
    if SHIPPED in shipped.names():
        _show_shipped(out)
    recipe = load_recipe(DEMO)
    model_folder = out / MODEL
    print("Regard trains a Transformer from nothing to write English numbers and dates in German.\n")
    outcome = experiment.train(recipe, _fresh(model_folder))
    if outcome.signal is not None:
        return outcome.signal

    model = api.load(model_folder)
    test = load_corpus(recipe.data).test
    translations = model.translate([pair.source for pair in test])
    print(f"\nOn {so_many(len(test), 'line')} it has never seen:")
    for figure in score(translations, [pair.target for pair in test]):
        print(f"  {figure}")
    print("\nFor example:")
    for pair, translation in list(zip(test, translations, strict=True))[:SENTENCES_SHOWN]:
        mark = "✓" if translation == pair.target else f"✗ (should be {pair.target})"
        print(f"  {pair.source}\n    {translation}  {mark}")

    print(_draw(model, LOOKED_AT, out / "attention.html"))
    # After `make demo` the command is in the project's own environment, where no shell looks for it.
    regard, model_path = "regard" if shutil.which("regard") else ".venv/bin/regard", quote(str(model_folder))
    print("Next:")
    print(f'  echo "one hundred one" | {regard} translate {model_path}')
    print(f'  {regard} view {model_path} "Saturday, March 14, 2015" --out picture.html')
    print(f"  {regard} inspect {model_path}")
    print(f"  {regard} train --source your.en --target your.de")
    if names := shipped.names():
        print(f"  {regard} serve    # a page in the browser, with {', '.join(names)}")
    print(f"({time.monotonic() - started:.0f} s in all)", file=sys.stderr)
    return None


def _show_shipped(out: Path) -> None:
    """A model that somebody else trained, before this machine trains its own."""
    model = api.load(shipped.path(SHIPPED))
    print(f"The model {SHIPPED} comes with Regard. It translates everyday sentences from English to German:\n")
    for sentence, translation in zip(EVERYDAY, model.translate(EVERYDAY), strict=True):
        print(f"  {sentence}\n    {translation}")
    out.mkdir(parents=True, exist_ok=True)
    print(_draw(model, EVERYDAY[-1], out / "everyday.html"))


def _draw(model: api.Model, text: str, page: Path) -> str:
    """Write a page of what `model` looks at while it translates `text`; what to print about it."""
    picture = model.look(text)
    write_file(page, picture.to_html())
    return f"\nWhat it looks at while it writes “{picture.translation}”:\n  {page.resolve().as_uri()}\n"


def _fresh(model_folder: Path) -> Path:
    """Make way for a new demo model; nothing but an earlier demo's is ever removed."""
    if (model_folder / folder.RECIPE).is_file() and folder.read_recipe(model_folder).name == DEMO:
        shutil.rmtree(model_folder)
    return model_folder
