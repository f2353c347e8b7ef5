"""`regard demo`: a model that comes with Regard at work; then the whole journey in two minutes, from a corpus to a
picture of attention."""

from __future__ import annotations

import fcntl
import re
import shutil
import sys
import time
from pathlib import Path
from shlex import quote

from regard import api, experiment, folder, shipped
from regard.counts import so_many
from regard.data.corpus import load_corpus
from regard.errors import MissingError, RegardError, UsageError
from regard.evaluation.metrics import score
from regard.files import MANIFEST, WRITING, check_folder, remove_folder, write_file
from regard.machine import threads_of
from regard.recipe import Recipe, load_recipe
from regard.training import checkpoint
from regard.training.adapters import EVENTS
from regard.viewing.training_curves import CURVES

DEMO = "demo"
MODEL = "model"
PAGES = ("everyday.html", "attention.html")  # of the shipped model, and of the new one
LOCK = ".demo.lock"  # held by the demo that is at work
SENTENCES_SHOWN = 5
LOOKED_AT = "The train leaves on Saturday at 3:04 PM."
SHIPPED = "everyday-en-de"
# Of the CPU: two, waiting for each other, gain a third on a quiet machine, and lose all but a hundredth on a busy one.
THREADS = 1
WRITTEN = {
    folder.RECIPE, folder.TOKENIZER, folder.WEIGHTS, folder.CARD, folder.METRICS, folder.DATA, CURVES, MANIFEST,
    folder.CHECKPOINTS, EVENTS,
}  # fmt: skip
"""What there is in a model folder."""
EVERYDAY = (
    "Good morning.",
    "Where is the train station?",
    "I left my umbrella on the bus yesterday.",
    "She has been living in Berlin for three years.",
    "If it rains tomorrow, we will stay at home.",
)


def run(out: Path) -> str | None:
    """The tour; the name of the signal if it was stopped. Where nothing can be written, its first part is shown."""
    try:
        _check_place(out)
        (out / LOCK).touch()
    except OSError as error:
        if SHIPPED in shipped.names():
            _show_shipped()
        raise MissingError(
            f"{out}: must be a folder in which the demo can write the model that it trains and its pictures, but is "
            f"not ({error.strerror}). Go to a folder of your own, or name one: {command()} demo --out DIR"
        ) from error
    with (out / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{out}: another demo is at work here. Wait for it, or choose another --out.") from error
        with threads_of(THREADS):
            return _tour(out)


def _tour(out: Path) -> str | None:
    started = time.monotonic()
    recipe, model_folder = load_recipe(DEMO), out / MODEL
    goes_on = _goes_on(out, recipe)
    if SHIPPED in shipped.names():
        print(_draw(_show_shipped(), EVERYDAY[-1], out / PAGES[0]))
    print("Regard trains a Transformer from nothing to write English numbers and dates in German.\n", flush=True)
    if goes_on:
        print(f"{model_folder}: an earlier demo stopped in its training, which goes on here.", file=sys.stderr)
    elif model_folder.exists() and any(model_folder.iterdir()):
        print(f"{model_folder}: the model of an earlier demo makes way for a new one.", file=sys.stderr)
        remove_folder(model_folder)
    outcome = experiment.train(recipe, model_folder, goes_on)
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

    print(_draw(model, LOOKED_AT, out / PAGES[1]))
    regard, model_path = command(), quote(str(model_folder))
    print("Next:")
    print(f'  echo "one hundred one" | {regard} translate {model_path}')
    print(f'  {regard} view {model_path} "Saturday, March 14, 2015" --out picture.html')
    print(f"  {regard} inspect {model_path}")
    print(f"  {regard} train --source your.en --target your.de")
    if names := shipped.names():
        print(f"  {regard} serve    # a page in the browser, with {', '.join(names)}")
    print(f"({time.monotonic() - started:.0f} s in all)", file=sys.stderr)
    return None


def _show_shipped() -> api.Model:
    """A model that somebody else trained, before this machine trains its own."""
    model = api.load(shipped.path(SHIPPED))
    print(f"The model {SHIPPED} comes with Regard. It translates everyday sentences from English to German:\n")
    for sentence, translation in zip(EVERYDAY, model.translate(EVERYDAY), strict=True):
        print(f"  {sentence}\n    {translation}")
    return model


def _draw(model: api.Model, text: str, page: Path) -> str:
    """Write a page of what `model` looks at while it translates `text`; what to print about it."""
    picture = model.look(text)
    write_file(page, picture.to_html())
    return f"\nWhat it looks at while it writes “{picture.translation}”:\n  {page.resolve().as_uri()}\n"


def command() -> str:
    """How to call this Regard from a shell: after `make demo` it is in an environment where no shell looks for it."""
    found, beside = shutil.which("regard"), Path(sys.executable).with_name("regard")
    if found is not None and (not beside.exists() or beside.samefile(found)):
        return "regard"
    if not beside.exists():
        return f"{quote(sys.executable)} -m regard"
    here = Path.cwd()
    nearby = here in beside.parents[1:]
    return quote(str(beside.relative_to(here) if nearby else beside))


def _check_place(out: Path) -> None:
    """Raise unless it is a folder, made where there is none, in which the demo writes over nothing of others."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{out}: must be a folder, or new, but it or what should hold it is a file. Choose another --out, or move "
            "the file away."
        ) from error
    if any((out / name).exists() for name in (LOCK, MODEL)):
        return  # a demo was here, so the pages are a demo's
    if page := next((out / name for name in PAGES if (out / name).exists()), None):
        raise UsageError(
            f"{page}: must not be there yet, but is, and the demo would write over it. Choose another --out, or move "
            "it away."
        )


def _goes_on(out: Path, recipe: Recipe) -> bool:
    """Whether the training of an earlier demo goes on; raises unless there is room for the tour."""
    place = out / MODEL
    if not place.is_symlink() and not place.exists():
        return False
    if _unfinished(place) and folder.read_recipe(place) == recipe:
        return True
    if (why := _not_a_demos(place, recipe)) is not None:
        raise UsageError(
            f"{place}: must be new, empty or the model of an earlier demo as that left it, but {why}. Choose another "
            "--out, or move it away."
        )
    return False


def _unfinished(place: Path) -> bool:
    """Whether there is a run that can go on."""
    begun = (place / folder.RECIPE).is_file() and bool(checkpoint.found(place / folder.CHECKPOINTS))
    return begun and not (place / MANIFEST).exists()


def _not_a_demos(place: Path, recipe: Recipe) -> str | None:
    """What stands against removing a model folder; None where a demo of this recipe wrote all that is in it."""
    if place.is_symlink() or not place.is_dir():
        return "is a link" if place.is_symlink() else "is a file"
    if strange := next((file for file in sorted(place.rglob("*")) if not _a_runs(file.relative_to(place))), None):
        return f"holds {strange.relative_to(place)}"
    if not (place / folder.RECIPE).is_file():
        return f"has no {folder.RECIPE}" if any(place.iterdir()) else None
    if folder.read_recipe(place) != recipe:
        return "its settings are not the demo's"
    try:
        if (place / MANIFEST).is_file():
            check_folder(place)
    except RegardError:
        return f"it is not what its {MANIFEST} describes"
    return None


def _a_runs(file: Path) -> bool:
    """Whether a run writes what has this name in its folder, be it only for a moment."""
    first, *rest = file.parts
    if first == folder.CHECKPOINTS and rest:
        return re.fullmatch(r"(damaged-)?\d{8}|\.\d{8}\.[a-z]+", rest[0]) is not None
    if first == EVENTS and rest:
        return rest[0].startswith("events.out.tfevents.")
    return not rest and first in {*WRITTEN, *(f".{name}.{WRITING}" for name in WRITTEN)}
