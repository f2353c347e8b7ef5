"""Translate in a real browser: the other direction, texts that go along, and what a text may be instead."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import Page, Route, expect

from tests.serve.running import Running
from tests.serve.test_page import CHROMIUM, Opener, browser, faults, labelled, shipped_server, visit  # noqa: F401

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
ENGLISH, GERMAN = "Where is the train station?", "Wo ist der Bahnhof?"


@pytest.fixture
def page(visit: Opener, shipped_server: Running) -> Any:  # noqa: F811
    """Translate, from English, with a model for the other direction beside it."""
    page = visit("translate", "everyday-en-de", address=shipped_server.address)
    yield page
    page.context.close()


def test_what_is_no_longer_true_is_grey_until_the_answer_comes(page: Page) -> None:
    labelled(page, "Text to translate").fill(ENGLISH)
    expect(page.locator(".others li")).to_have_count(4)
    waiting: list[Route] = []
    page.route("**/api/translate", lambda route: waiting.append(route))
    with page.expect_request("**/api/translate"):
        labelled(page, "Text to translate").fill("Good morning.")
    old = (".output", ".pane .facts", ".others")
    for part in old:
        expect(page.locator(part)).to_have_attribute("aria-busy", "true")
        expect(page.locator(part)).to_have_css("opacity", "0.55")
    for route in waiting:
        route.continue_()
    expect(page.locator(".output")).to_have_text("Guten Morgen.")
    for part in old:
        expect(page.locator(part)).to_have_attribute("aria-busy", "false")
        expect(page.locator(part)).to_have_css("opacity", "1")
