"""Translate in a real browser: the other direction, texts that go along, and what a text may be instead."""

from __future__ import annotations

import re
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


def test_the_direction_is_turned_round_by_keyboard_and_the_translation_is_translated(page: Page) -> None:
    field = labelled(page, "Text to translate")
    field.fill(ENGLISH)
    expect(page.locator(".output")).to_have_text(GERMAN)
    page.get_by_role("button", name="Turn round: German → English").press("Enter")
    expect(labelled(page, "Model")).to_have_value("everyday-de-en")
    expect(field).to_have_value(GERMAN)
    expect(page.locator(".output")).to_have_text(ENGLISH)
    back = page.get_by_role("button", name="Turn round: English → German")
    expect(back).to_be_focused()
    field.fill("")
    expect(page.locator(".output")).to_have_text("The translation appears here.")
    back.click()  # with nothing to take along
    expect(labelled(page, "Model")).to_have_value("everyday-en-de")
    expect(field).to_have_value(ENGLISH)


def test_without_a_model_for_the_other_direction_there_is_no_button(visit: Opener) -> None:  # noqa: F811
    page = visit("translate")
    expect(page.locator(".panes")).to_be_visible()
    expect(page.locator(".turn")).to_be_hidden()


def test_a_typed_text_goes_along_to_a_model_that_does_the_same(page: Page) -> None:
    field, menu = labelled(page, "Text to translate"), labelled(page, "Model")
    field.fill(ENGLISH)
    expect(page.locator(".output")).to_have_text(GERMAN)
    menu.select_option("everyday-de-en")
    expect(field).to_have_value(ENGLISH)
    expect(page.locator(".output .word").first).to_be_visible()
    field.fill("Guten Morgen.")
    expect(page.locator(".output")).to_have_text("Good morning.")
    menu.select_option("everyday-en-de")
    expect(field).to_have_value("Guten Morgen.")
    expect(page.locator(".output .word").first).to_be_visible()
    expect(page.locator(".output")).not_to_have_text(GERMAN)  # which this model said of another text
    menu.select_option("writer")  # which does not translate
    expect(page.locator("main textarea")).to_be_visible()
    expect(page.locator("main textarea")).not_to_have_value("Guten Morgen.")


def test_a_text_in_the_language_to_write_is_noticed(page: Page) -> None:
    hint = page.get_by_role("button", name="This looks like German: use everyday-de-en")
    labelled(page, "Text to translate").fill(ENGLISH)
    expect(page.locator(".output")).to_have_text(GERMAN)
    expect(hint).to_have_count(0)
    with page.expect_response("**/detect"):
        labelled(page, "Text to translate").fill(GERMAN)
    hint.click()
    expect(labelled(page, "Model")).to_have_value("everyday-de-en")
    expect(labelled(page, "Text to translate")).to_have_value(GERMAN)
    expect(page.locator(".output")).to_have_text(ENGLISH)
    expect(page.locator(".hints button")).to_have_count(0)


def test_tags_are_noticed_and_kept_where_the_text_is_taken_as_html(page: Page) -> None:
    offer = page.get_by_role("button", name="This text has tags: translate it as HTML")
    labelled(page, "Text to translate").fill("Is 3 < 4 and 5 > 4?")
    expect(page.locator(".output .word").first).to_be_visible()
    expect(offer).to_have_count(0)
    labelled(page, "Text to translate").fill("Where is the <i>train station</i>?")
    offer.press("Enter")
    expect(page.locator(".output")).to_have_text("Wo ist der <i>Bahnhof</i>?")
    expect(page.locator(".output .word, .output i")).to_have_count(0)
    expect(offer).to_be_focused()
    expect(offer).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".more pre")).to_have_text(re.compile("/api/documents.*-F file=@text.html", re.DOTALL))
    offer.click()
    expect(page.locator(".output .word").first).to_be_visible()
    expect(page.locator(".more pre")).to_contain_text("/api/translate")


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
