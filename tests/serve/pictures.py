"""Takes the pictures of the page and of `regard view` that the docs show: `python -m tests.serve.pictures FOLDER`.

The folder is `docs/pictures` for those of the docs. The models that come with Regard are served, as `regard serve`
does, and a small tagger beside them, which is trained here in seconds. The picture of the tutorial is of the model that
`regard demo` trains, which is trained here, too, and takes a minute or two. Names of pictures behind the folder take
those alone, and train what they need: `translate`, `attention`, …, and `page` for that of the tutorial.

The fonts are Noto Sans and Noto Serif.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from regard import shipped
from regard.api import load, train
from regard.settings.tree import text_of
from tests.serve.running import running
from tests.tiny import write_lines

SENTENCE = "She has been living in Berlin for three years."
BEGINNING = "The king is d"
TAGGED = "she saw the old saw again"
TUTORIAL = "Tuesday, June 9, 1948"
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}


# ---- the models


def tagger(place: Path) -> Path:
    """A model that has learned a few words, one of which is a verb and a noun."""
    subjects = [["she PRON"], ["he PRON"], ["they PRON"], ["the DET", "cat NOUN"], ["a DET", "child NOUN"]]
    verbs = ["saw VERB", "took VERB", "found VERB", "wanted VERB"]
    objects = [
        [*article, *adjective, noun]
        for article, adjective, noun in product(
            [["the DET"], ["a DET"]], [[], ["old ADJ"], ["big ADJ"]], ["saw NOUN", "dog NOUN", "tree NOUN", "book NOUN"]
        )
    ]
    ends = [[], ["again ADV"], ["today ADV"]]
    sentences = [[*one, verb, *other, *end, ""] for one, verb, other, end in product(subjects, verbs, objects, ends)]
    taught = write_lines(place / "taught.txt", [line for each in sentences for line in each])
    asked = write_lines(place / "asked.txt", [line for each in sentences[::7] for line in each])
    files = {"words": taught, "valid": asked, "test": asked}
    data = ", ".join(f"{name}={text_of(str(file))}" for name, file in files.items())
    changes = [
        "name=parts-of-speech",
        f"data={{{data}}}",
        "tokenizer.vocabulary=200",
        "model.body={d_model=32}",
        "batch={tokens=512}",
        # It stops before it is sure of everything: a bar of 100 % shows nothing.
        "training={steps=50, validate_every=50, save_every=50}",
        "training.optimiser={warmup=10, rate=0.01}",
        "device=cpu",
    ]
    train("tag-columns", place / "parts-of-speech", changes)
    return place / "parts-of-speech"


def demo(place: Path) -> Path:
    """The model of the tutorial."""
    train("demo", place / "demo", ["device=cpu"])
    return place / "demo"


# ---- the views


def translate(page: Page) -> None:
    page.locator("textarea").fill(SENTENCE)
    page.locator(".output .word").filter(has_text="Berlin").wait_for()
    page.locator(".output .word").first.click()
    page.locator(".alternatives li").first.wait_for()


def labels(page: Page) -> None:
    page.locator("textarea").fill(TAGGED)
    page.locator(".tagged button").filter(has_text="again").wait_for()
    page.locator(".tagged button").filter(has_text="saw").last.click()


def attention(page: Page) -> None:
    page.locator("textarea").fill(SENTENCE)
    page.locator(".words.left div").first.wait_for()
    page.locator(".words.left div").nth(5).click()


def beam(page: Page) -> None:
    page.locator("textarea").fill(SENTENCE)
    page.locator(".node").first.wait_for()
    page.locator("textarea").blur()


def explore(page: Page) -> None:
    page.locator("textarea").fill(BEGINNING)
    page.locator("input[type=checkbox]").check()
    page.locator("input[type=range]").first.fill("0.7")
    page.locator("input[type=range]").nth(1).fill("6")
    page.locator(".token").first.wait_for()


def walk(page: Page) -> None:
    page.locator("textarea").fill(SENTENCE)
    page.locator(".steps button").filter(has_text="Softmax").click()


def inside(page: Page) -> None:
    page.locator(".big-facts").wait_for(timeout=60_000)


VIEWS: tuple[Callable[[Page], None], ...] = (translate, labels, attention, beam, explore, walk, inside)
MODELS = {labels: "parts-of-speech", explore: "writer"}


# ---- taking them


def keep(page: Page, file: Path) -> None:
    """In 256 colours, for a third of the bytes: the commonest as they are, others as the nearest of 128 spread ones."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    colours, of_pixels, counts = np.unique(
        np.array(shot).reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    spread = shot.quantize(128, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = np.concatenate([colours[counts.argsort()[::-1][:128]], np.reshape(spread, (-1, 3))]).astype(np.uint8)
    apart = np.abs(colours[:, None].astype(int) - palette[None]).sum(-1)
    small = Image.fromarray(apart.argmin(1)[of_pixels].astype(np.uint8).reshape(shot.height, shot.width))
    small.putpalette(palette.tobytes())
    small.save(file, optimize=True)
    print(f"{file}: {file.stat().st_size:,} bytes, no colour off by more than {apart.min(1).max()} of 765")


def take_views(browser: Browser, address: str, out: Path, views: Sequence[Callable[[Page], None]]) -> None:
    """Some views in all looks."""
    for look, settings in LOOKS.items():
        for view in views:
            page = browser.new_context(locale="en", **settings).new_page()  # type: ignore[arg-type]
            model = MODELS.get(view, "everyday-en-de")
            page.add_init_script(f"sessionStorage.setItem('regard.model', '{model}')")
            page.goto(f"{address}/#{view.__name__}")
            view(page)
            page.wait_for_load_state("networkidle")
            page.mouse.move(0, 0)  # it would point at something
            page.wait_for_timeout(1_000)
            page.evaluate("scrollTo(0, 0)")
            keep(page, out / f"page-{view.__name__}-{look}.png")
            page.context.close()


def take_tutorial(browser: Browser, place: Path, out: Path) -> None:
    """What `regard view` writes, as the tutorial has it."""
    file = place / "picture.html"
    file.write_text(load(demo(place)).look(TUTORIAL).to_html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 960}, color_scheme="light")
    page.goto(file.as_uri())
    page.wait_for_timeout(1_000)
    keep(page, out / "page.png")


def take(out: Path, names: Sequence[str]) -> None:
    """The pictures of these names, or all."""
    views = [view for view in VIEWS if not names or view.__name__ in names]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = Path(folder)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if views:
            models = {name: shipped.path(name) for name in shipped.names()}
            if labels in views:
                models["parts-of-speech"] = tagger(place)
            with running(models) as server:
                take_views(browser, server.address, out, views)
        if not names or "page" in names:
            take_tutorial(browser, place, out)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), sys.argv[2:])
