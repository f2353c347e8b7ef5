"""Takes the pictures of `docs/page.md`: `python -m tests.serve.pictures ADDRESS [VIEW …]`, with a translating model
called `demo`, a language model called `gpt-char` and a tagger called `parts` served there.

They are the recipes `demo`, `lm-shakespeare-small` and `tag-columns`, the last stopped before it is sure of everything.
The fonts are Noto Sans and Noto Serif.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

PLACE = Path(__file__).parents[2] / "docs" / "pictures"
SENTENCE = "The train arrives on Thursday at 6:33 PM."
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}


def translate(page: Page) -> None:
    page.locator("textarea").fill(SENTENCE)
    page.locator(".output .word").first.wait_for()
    page.locator(".output .word").nth(4).click()
    page.locator(".alternatives li").first.wait_for()


def labels(page: Page) -> None:
    page.locator("textarea").fill("the cat sees a dog")
    page.locator(".tagged button").filter(has_text="sees").click()


def attention(page: Page) -> None:
    page.locator(".words.left div").first.wait_for()
    page.locator(".words.left div").nth(5).click()


def beam(page: Page) -> None:
    page.locator(".node").first.wait_for()


def explore(page: Page) -> None:
    page.locator("textarea").fill("What light through yonder window")
    page.locator("input[type=checkbox]").check()
    page.locator("input[type=range]").first.fill("0.7")
    page.locator("input[type=range]").nth(1).fill("6")
    page.locator(".token").first.wait_for()


def walk(page: Page) -> None:
    page.locator(".steps button").filter(has_text="Softmax").click()


def inside(page: Page) -> None:
    page.locator(".big-facts").wait_for(timeout=60_000)


VIEWS = (translate, labels, attention, beam, explore, walk, inside)
MODELS = {labels: "parts", explore: "gpt-char"}


def take(address: str, names: Sequence[str]) -> None:
    """The pictures of some views, or of all, in all looks."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for look, settings in LOOKS.items():
            page = browser.new_context(**settings).new_page()  # type: ignore[arg-type]
            page.goto(address)
            for view in [each for each in VIEWS if not names or each.__name__ in names]:
                page.mouse.move(0, 0)  # it would point at something in the next view
                page.goto(re.sub("(#.*)?$", f"#{view.__name__}", page.url, count=1))
                page.locator("#settings select").first.select_option(MODELS.get(view, "demo"))
                view(page)
                if view is not attention:
                    page.mouse.move(0, 0)
                page.wait_for_timeout(1_500)
                page.evaluate("scrollTo(0, 0)")
                shot = Image.open(io.BytesIO(page.screenshot()))
                # 256 colours are enough for it, and half the bytes.
                shot.convert("RGB").quantize(256).save(PLACE / f"page-{view.__name__}-{look}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1], sys.argv[2:])
