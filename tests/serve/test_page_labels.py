"""The Labels view in a real browser: a text is labelled as it is typed, or its words are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import Browser, Page, Route, expect

from regard.serve.limits import Limits
from tests.serve.running import Running, running
from tests.serve.test_own_labels import places  # noqa: F401
from tests.serve.test_page import AXE, CHROMIUM, ask, browser  # noqa: F401

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
CLASSIFIER, TAGGER = "classify-table", "tag-restoring-convolution"


@pytest.fixture(scope="module")
def labelling(places: dict[str, Path]) -> Iterator[Running]:  # noqa: F811
    with running(places, Limits(text=200)) as server:
        yield server


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, labelling: Running) -> Iterator[Visit]:  # noqa: F811
    """Opens the page for a model; at the end it has complained of nothing."""
    contexts, found = [], []

    def open_page(model: str, view: str = "", locale: str = "en", **settings: object) -> Page:
        context = browser.new_context(locale=locale, **settings)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda message: found.append(message.text))
        page.on("pageerror", lambda error: found.append(str(error)))
        page.add_init_script(f"sessionStorage.setItem('regard.model', '{model}')")
        page.goto(f"{labelling.address}/{view}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert found == []


def test_a_text_gets_bars(visit: Visit, labelling: Running) -> None:
    page = visit(CLASSIFIER)
    expect(page.locator("nav#nav a")).to_have_text(["Labels", "Inside"])
    page.get_by_label("Text", exact=True).fill("zwölf")
    wanted = ask(labelling, "classify", model=CLASSIFIER, text="zwölf")["probabilities"]
    expect(page.locator(".bars bdi")).to_have_text(list(wanted))
    expect(page.locator(".bars .bar").first).to_have_css("--share", f"{max(wanted.values()):.4f}")
    expect(page.locator("pre")).to_contain_text("/api/classify")
    page.get_by_label("Text", exact=True).fill(" ")
    expect(page.locator(".panel .empty")).to_be_visible()


def test_many_labels_and_labels_that_are_numbers(visit: Visit) -> None:
    page = visit(CLASSIFIER)
    numbers = {str(number): (number + 1) / 210 for number in range(20)}

    def answer(route: Route) -> None:
        route.fulfill(json={"label": "19", "probability": numbers["19"], "probabilities": numbers})

    page.route("**/api/classify", answer)
    page.route("**/api/models", lambda route: route.fulfill(json=with_labels(route, list(numbers))))
    page.reload()
    expect(page.locator(".bars bdi")).to_have_text([str(number) for number in range(19, 7, -1)])
    expect(page.locator(".panel .hint")).to_have_text("and 8 more with 17% together")


def with_labels(route: Route, labels: list[str]) -> object:
    found = route.fetch().json()
    for model in found["models"]:
        model["labels"] = labels
    return found


def test_words_get_colours_and_a_legend(visit: Visit, labelling: Running) -> None:
    page = visit(TAGGER)
    page.get_by_label("Text", exact=True).fill("speak you all")
    found = ask(labelling, "tag", model=TAGGER, text="speak you all")
    words = page.locator(".tagged button")
    expect(words.locator("span")).to_have_text(["speak", "you", "all"])
    expect(words.locator("small")).to_have_text([word["label"] for word in found["words"]])
    expect(page.locator(".restored")).to_contain_text(found["restored"])
    shown = {text.split(" · ")[0]: int(text.split(" · ")[1]) for text in page.locator(".heads .chip").all_inner_texts()}
    labels = [word["label"] for word in found["words"]]
    assert shown == {label: labels.count(label) for label in labels}
    words.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(words.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".chances .quoted")).to_have_text("you")
    expect(page.locator(".chances bdi:not(.quoted)")).to_have_text(list(found["words"][1]["probabilities"]))
    page.get_by_label("Text", exact=True).fill("… —")
    expect(page.locator(".panel")).to_have_text("There are no words in this text.")


def test_colours_come_in_the_order_of_the_text_and_repeat_after_eight(visit: Visit) -> None:
    page = visit(TAGGER)
    labels = ["L19", "L3", "L19", *(f"L{number}" for number in range(4, 11))]  # nine of them

    def answer(route: Route) -> None:
        words = [{"word": "x", "label": label, "probability": 1, "probabilities": {label: 1}} for label in labels]
        route.fulfill(json={"words": words, "restored": None})

    page.route("**/api/tag", answer)
    page.get_by_label("Text", exact=True).fill("anything")
    words = page.locator(".tagged button")
    expect(words).to_have_count(len(labels))
    shown = [words.nth(place).get_attribute("class") for place in range(len(labels))]
    assert shown == [f"head-{number}" for number in (0, 1, 0, 2, 3, 4, 5, 6, 7, 0)]
    expect(page.locator(".chip").first).to_have_class("chip head-0")


def test_a_long_word_stays_on_a_small_phone(visit: Visit) -> None:
    page = visit(TAGGER, viewport={"width": 375, "height": 667}, has_touch=True, is_mobile=True)
    page.locator("textarea").fill(f"{'w' * 60} speak you")  # the first is chosen, and its name stands above its bars
    expect(page.locator(".tagged button")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert (
        page.evaluate(
            "Math.max(...[...document.querySelectorAll('.tagged *')].map((e) => e.getBoundingClientRect().right))"
        )
        <= 375
    )


def test_words_stand_in_the_direction_of_the_text(visit: Visit) -> None:
    page = visit(TAGGER)
    words = page.locator(".tagged button")
    for text, leftward in (("speak you", False), ("שלום you", True)):
        page.get_by_label("Text", exact=True).fill(text)
        expect(words.first).to_contain_text(text.split()[0])
        first, second = (words.nth(place).bounding_box() or {} for place in (0, 1))
        assert (first["x"] > second["x"]) == leftward


def test_text_stays_text(visit: Visit) -> None:
    page = visit(TAGGER)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.get_by_label("Text", exact=True).fill("<img src=x onerror=alert(1)> speak")
    expect(page.locator(".tagged button").last).to_contain_text("speak")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(("locale", "title"), [("de", "Labels"), ("zh", "标签")])
@pytest.mark.parametrize("model", [CLASSIFIER, TAGGER])
def test_on_a_phone_and_in_other_languages(visit: Visit, model: str, locale: str, title: str) -> None:
    page = visit(model, locale=locale, **PHONE)
    expect(page.locator("h1")).to_have_text(title)
    page.locator("textarea").fill("speak " * 30)
    expect(page.locator(".bars li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("model", [CLASSIFIER, TAGGER])
def test_inside_asks_for_nothing_that_there_is_not(visit: Visit, model: str) -> None:
    page = visit(model, "#inside")
    expect(page.locator(".big-facts dd").first).to_be_visible()
    expect(page.locator(".panel h2")).to_have_text(["Matrices", "Wiring", "Learning curves"])
    expect(page.locator(".failed")).to_have_count(0)


@pytest.mark.skipif(not AXE, reason="needs axe-core, named by REGARD_AXE")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("model", [CLASSIFIER, TAGGER])
def test_nothing_keeps_anybody_out(visit: Visit, model: str, scheme: str) -> None:
    page = visit(model, color_scheme=scheme)
    expect(page.locator(".bars li").first).to_be_visible()
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["impact"]) for one in found if one["impact"] in ("serious", "critical")] == []
