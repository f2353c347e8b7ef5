"""The page in a real browser; needs playwright and a Chromium, and skips where either is absent."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.viewing.figures import AttentionMap, attention_html

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

NASTY = "<img src=x onerror=document.title='pwned'>"
READ, WRITTEN = ("one", "two", NASTY), ("eins", "zwei")


def gaze(name: str, layer: int, queries: tuple[str, ...], keys: tuple[str, ...]) -> AttentionMap:
    scores = np.random.default_rng(layer).normal(0, 2, (2, len(queries), len(keys)))
    return AttentionMap(name, layer, queries, keys, np.exp(scores) / np.exp(scores).sum(-1, keepdims=True))


MAPS = [
    gaze(name, layer, queries, READ)
    for name, queries in {"encoder": READ, "cross": WRITTEN}.items()
    for layer in (0, 1)
]


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    file, opened_first = tmp_path / "picture.html", getattr(request, "param", None)
    written = attention_html(MAPS, title="A title", source=NASTY, target="eins zwei", opened=opened_first)
    file.write_text(written, encoding="utf-8")
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1200, "height": 900})
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("request", lambda asked: None if asked.url == file.as_uri() else complaints.append(asked.url))
        opened.goto(file.as_uri())
        opened.wait_for_selector("#rows span")
        yield opened
        assert opened.title() == "A title"
        browser.close()
    # The empty icon is the one address in the page, and it is inside the page.
    assert [text for text in complaints if text != "data:,"] == []


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        (("encoder", 0, 1), "Encoder attention, layer 1, head 2"),
        (("cross", 0, "mean"), "Cross attention, layer 1, mean of heads"),
    ],
    indirect=["page"],
)
def test_it_begins_with_the_head_that_is_asked_for(page: Any, heading: str) -> None:
    assert page.locator("h2").inner_text().replace("\xa0", " ") == heading
    playwright.expect(page.locator("[role=gridcell][aria-selected=true]")).to_have_count(1)
    playwright.expect(page.locator("#kinds input:checked")).to_have_count(1)


def test_keys_pointer_and_readout(page: Any) -> None:
    heading, readout = page.locator("h2"), page.locator("#readout")
    assert heading.inner_text().replace("\xa0", " ") == "Cross attention, layer 2, mean of heads"
    page.keyboard.press("ArrowLeft")
    playwright.expect(heading).to_contain_text("head\u00a02")
    page.locator("[role=gridcell][aria-selected=true]").focus()
    page.keyboard.press("ArrowUp")
    playwright.expect(heading).to_contain_text("layer\u00a01")

    shown = MAPS[2].weights[1]
    page.locator("#cells").hover(position={"x": 5, "y": 5})
    assert readout.inner_text() == f"«eins» looks at «one» {shown[0, 0]:.2f}"
    page.locator("#cells").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert readout.inner_text() == f"«zwei» looks at «{NASTY}» {shown[1, 2]:.2f}"

    page.locator("#kinds input[value=encoder]").check()
    playwright.expect(heading).to_contain_text("Encoder")
    page.locator("summary").click()
    playwright.expect(page.locator("#sentences-in-words tr")).to_have_count(len(READ))
