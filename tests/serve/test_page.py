"""The page in a real browser, with a real server behind it: every view, by pointer and by keyboard."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree

import pytest

from regard import shipped
from regard.api import load
from regard.serve.limits import Limits
from tests.serve.running import Running, running

pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = os.environ.get("REGARD_AXE", "")
VIEWS = {"words": ["translate", "attention", "beam", "walk", "inside"], "babble": ["explore", "attention", "walk"]}
FILES = {entry.name: entry for entry in resources.files("regard.serve").joinpath("page").iterdir()}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Opener(Protocol):
    """Opens a view of a model."""

    def __call__(self, view: str, model: str = "words", **settings: Any) -> Page: ...


@pytest.fixture
def faults() -> list[str]:
    """What a test expects the browser to complain about; each fault must match one of these."""
    return []


@pytest.fixture
def visit(browser: Browser, server: Running, faults: list[str]) -> Iterator[Opener]:
    """Whatever a test does, the page writes no error to the console and asks no other machine for anything."""
    contexts: list[BrowserContext] = []
    found: list[str] = []

    def open_view(view: str, model: str = "words", **settings: Any) -> Page:
        address = settings.pop("address", server.address)
        context = browser.new_context(viewport=settings.pop("viewport", {"width": 1280, "height": 900}), **settings)
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and found.append(message.text))
        page.on("pageerror", lambda error: found.append(str(error)))
        page.on("request", lambda request: request.url.startswith((address, "blob:")) or found.append(request.url))
        page.add_init_script(f"sessionStorage.setItem('regard.model', '{model}')")
        page.goto(f"{address}/#{view}")
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert [fault for fault in found if not any(re.search(known, fault) for known in faults)] == []


@pytest.fixture(scope="module")
def shipped_server() -> Iterator[Running]:
    """The models that come with the package."""
    with running({name: shipped.path(name) for name in shipped.names()}) as found:
        yield found


def walk_through(page: Page, text: str) -> None:
    """Type a text, and wait until it is what is walked through: answers to what stood there before draw, too."""
    with page.expect_response(lambda found: "/api/walk" in found.url and text in found.request.post_data_json["text"]):
        labelled(page, "Text").fill(text)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def labelled(page: Page, name: str) -> Locator:
    return page.get_by_label(name, exact=True)


def ask(server: Running, route: str, **body: object) -> Any:
    """What the page is told, too."""
    with server.client() as client:
        return client.post(f"/api/{route}", json=body).raise_for_status().json()


def written(number: float) -> str:
    """As the page writes numbers: two digits, a true minus sign, and none before a zero."""
    return f"{round(number, 2) + 0.0:.2f}".replace("-", "−")


# ---- the files


def test_the_page_is_small_and_complete_in_itself() -> None:
    assert sum(len(file.read_bytes()) for file in FILES.values()) <= 216_000
    for name, file in FILES.items():
        text = file.read_text(encoding="utf-8")
        addresses = re.findall(r"(?:https?:)?//[a-z][\w.-]+", re.sub(r"http://www\.w3\.org/\S*", "", text))
        assert addresses == [], name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
            text.replace("no innerHTML", ""),
        ), name
    page = FILES["index.html"].read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\bsrc=)", page)


def test_there_are_words_for_everything_in_every_language() -> None:
    table = FILES["words-table.js"].read_text(encoding="utf-8")
    known: set[str] = set()
    for group, rows in re.findall(r"^export const (\w+) = \{\n(.*?)^\};", table, re.MULTILINE | re.DOTALL):
        for name, cells in re.findall(r'^  "?([\w.]+)"?: \[(.*?)\],$', rows, re.MULTILINE):
            said = re.findall(r'null|"(?:[^"\\]|\\.)*"', cells)
            assert len(said) == 3, name
            assert "null" not in said[1:], name
            places = [set(re.findall(r"\{\w+\}", each)) for each in said if each != "null"]
            assert all(each == places[0] for each in places), name
            known.add(name if group == "page" else f"{group}.{name}")
    code = "".join(file.read_text(encoding="utf-8") for name, file in FILES.items() if name.endswith(".js"))
    used = set(re.findall(r'\bt\("([a-z][\w.]+)"', code))
    assert len(used) > 100
    # What several views say stands once, under no view.
    assert {name for name in used if name not in known and name.partition(".")[2] not in known} == set()


def test_tokens_are_not_told_as_words() -> None:
    """What looks and is looked at are tokens, which may be pieces of words; only of a pair are they put together."""
    table = FILES["words-table.js"].read_text(encoding="utf-8")
    for group, spared in (("attention", "pair"), ("walk", "none")):
        rows = re.findall(rf"^export const {group} = \{{\n(.*?)^\}};", table, re.MULTILINE | re.DOTALL)[0]
        for name, cells in re.findall(r'^  "?([\w.]+)"?: \[(.*?)\],$', rows, re.MULTILINE):
            # Once it is said what a token is.
            said = re.sub(r"a word or a piece of one|ein Wort oder ein Stück davon|词或词的一部分", "", cells)
            if not name.startswith(spared):
                assert re.findall(r"\b[Ww]ords?\b|\bW[oö]rt(?:er)?n?\b|词(?!元)", said) == [], name


def test_what_is_said_holds_on_a_phone_too() -> None:
    """There the panes stand one above the other."""
    table = FILES["words-table.js"].read_text(encoding="utf-8")
    (lead,) = re.findall(r"^export const translate = .*?^  lead: (.*?)$", table, re.MULTILINE | re.DOTALL)
    assert not re.search("left|right|links|rechts|左|右", lead, re.IGNORECASE)


# ---- translate


def test_typing_translates_once_it_pauses(visit: Opener, server: Running) -> None:
    page = visit("translate")
    asked: list[str] = []
    page.on("request", lambda request: request.url.endswith("/api/translate") and asked.append(request.post_data or ""))
    labelled(page, "Text to translate").press_sequentially("seven", delay=20)
    expect(page.locator(".output")).to_have_text("sieben")
    assert len(asked) == 1  # and not one a letter
    expect(page.locator(".others li")).to_have_count(4)
    best = ask(server, "translate", model="words", text="seven", beam=4, alpha=0.6)["translations"][0]
    expect(page.locator(".pane .facts b")).to_have_text(written(best["score"]))
    page.get_by_label("Text to translate").fill("")
    expect(page.locator(".output")).to_have_text("The translation appears here.")


def test_another_word_is_chosen_by_keyboard_and_taken_back(visit: Opener) -> None:
    page = visit("translate")
    labelled(page, "Text to translate").fill("seven")
    word = page.locator(".output .word")
    expect(word).to_have_text("sieben")
    word.press("Enter")
    offered = page.locator(".alternatives button")
    expect(offered.first).to_be_focused()
    assert offered.count() > 1
    page.keyboard.press("Escape")
    expect(word).to_be_focused()
    word.click()
    expect(offered.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(offered.nth(1)).to_be_focused()
    other = offered.nth(1).get_attribute("title")
    page.keyboard.press("Enter")
    expect(page.locator(".output")).to_have_text(str(other))
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".output")).to_have_text("sieben")


def test_a_word_too_long_for_the_menu_is_cut_there(visit: Opener) -> None:
    page = visit("translate")
    told = {"text": "zwei" * 40, "probability": 0.25, "translation": "zwei" * 40}
    page.route("**/api/alternatives", lambda route: route.fulfill(json={"alternatives": [told]}))
    page.locator("textarea").fill("two")
    page.locator(".output .word").first.click()
    menu, offered = page.locator(".alternatives"), page.locator(".alternatives button")
    expect(offered).to_contain_text("25%")
    around, inside = menu.bounding_box(), offered.locator(".figure").bounding_box()
    assert around is not None
    assert inside is not None
    assert inside["x"] + inside["width"] < around["x"] + around["width"]


def test_a_lower_translation_can_be_taken_copied_and_asked_for_by_curl(visit: Opener) -> None:
    page = visit("translate", permissions=["clipboard-read", "clipboard-write"])
    labelled(page, "Text to translate").fill("it's seven")
    second = page.locator(".others li").nth(1)
    second.click()
    expect(second.get_by_role("button")).to_have_attribute("aria-pressed", "true")
    chosen = page.locator(".output").inner_text()
    assert chosen == second.locator(".text").inner_text()
    page.locator(".pane").get_by_role("button", name="Copy").click()
    expect(page.locator(".pane").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == chosen
    page.get_by_text("Show the API call").click()
    expect(page.locator("pre").first).to_contain_text("/api/translate")
    expect(page.locator("pre").first).to_contain_text("it'\\''s seven")


def test_several_lines_are_translated_whole_and_steered_sentence_by_sentence(visit: Opener, server: Running) -> None:
    page = visit("translate")
    lines = "seven\n\neight nine\nseven"
    labelled(page, "Text to translate").fill(lines)
    output = page.locator(".output")
    whole = ask(server, "translate", model="words", text=lines, beam=4, alpha=0.6, nbest=4)["translations"][0]["text"]
    expect(output).to_have_text(whole, use_inner_text=True)
    assert whole.count("\n") == 3
    assert whole.startswith("sieben\n\n")
    with page.expect_request("**/api/alternatives") as asked:
        output.locator(".word").last.click()
    assert asked.value.post_data_json["text"] == "seven"
    assert asked.value.post_data_json["prefix"] == ""
    other = page.locator(".alternatives button").nth(1)
    instead = other.get_attribute("title")
    other.click()
    expect(output).to_have_text(whole[: whole.rindex("sieben")] + str(instead), use_inner_text=True)
    expect(page.locator(".facts b")).to_have_count(0)  # one sentence's score is not that of all
    page.get_by_role("button", name="Undo").click()
    expect(output).to_have_text(whole, use_inner_text=True)
    page.locator(".others li").nth(1).click()
    expect(output.locator(".word")).to_have_count(0)
    page.get_by_role("link", name="Beam").click()
    expect(labelled(page, "Text to translate")).to_have_value("seven")


def test_a_long_text_scrolls_in_its_pane(visit: Opener) -> None:
    page = visit("translate")
    labelled(page, "Text to translate").fill("seven\n" * 300)
    page.locator(".output .word").nth(299).wait_for()
    for pane in ("textarea", ".output"):
        assert page.evaluate(f"document.querySelector('{pane}').clientHeight") < 600
        assert page.evaluate(f"(({{ scrollHeight, clientHeight }}) => scrollHeight > clientHeight)"
                             f"(document.querySelector('{pane}'))")  # fmt: skip
    page.locator("input[type=file]").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"seven"})
    expect(page.locator(".file")).to_be_in_viewport()


def test_a_file_is_translated_and_saved(visit: Opener) -> None:
    page = visit("translate")
    page.locator("input[type=file]").set_input_files(
        {"name": "talk.srt", "mimeType": "text/plain", "buffer": b"1\n00:00:01,000 --> 00:00:02,000\nseven\n"}
    )
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("^Save ")).click()
    assert download.value.suggested_filename.endswith(".srt")
    assert Path(download.value.path()).read_text() == "1\n00:00:01,000 --> 00:00:02,000\nsieben\n"


def test_unknown_characters_are_told_of_texts_of_files_and_of_what_is_gone_on_from(
    visit: Opener, shipped_server: Running
) -> None:
    page = visit("translate", "everyday-en-de", address=shipped_server.address)
    files = page.locator("input[type=file]")
    for text, number in (("Two cats.", 0), ("Two 猫.", 1)):
        files.set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": text.encode()})
        row = page.locator(".file").last
        expect(row.get_by_role("button")).to_be_visible()
        expect(row.get_by_text("has unknown characters")).to_have_count(number)
        labelled(page, "Text to translate").fill(text)
        expect(page.locator(".pane .flag")).to_have_text(["has unknown characters"] * number)
    labelled(page, "Text to translate").fill("<b>Two 猫.</b>")
    page.get_by_role("button", name="This text has tags").click()
    expect(page.locator(".output")).to_contain_text("<b>")
    expect(page.locator(".pane .flag")).to_have_text("has unknown characters")
    page = visit("explore", "writer", address=shipped_server.address)
    labelled(page, "The text so far").fill("The 王 is")
    expect(page.locator(".so-far .flag")).to_have_text("has unknown characters")
    labelled(page, "The text so far").fill("The king is")
    expect(page.locator(".so-far .flag")).to_have_count(0)
    labelled(page, "The text so far").fill("The king is dead. " * 20)
    expect(page.locator(".so-far .flag")).to_have_text("only its end was read")


def test_a_dropped_file_that_cannot_be_read_is_refused_in_words(visit: Opener, faults: list[str]) -> None:
    faults.append("status of 4")
    page = visit("translate")
    page.locator(".panes").wait_for()
    page.evaluate("""() => {
      const carried = new DataTransfer();
      carried.items.add(new File([new Uint8Array([0xff, 0xfe, 0xfd])], "picture.png"));
      const view = document.querySelector(".view");
      view.dispatchEvent(new DragEvent("dragover", { dataTransfer: carried, bubbles: true, cancelable: true }));
      view.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
    }""")
    expect(page.locator(".file.failed")).to_have_text(re.compile(r"^picture\.png: (?!.*picture\.png)"))


def test_text_stays_text(visit: Opener) -> None:
    page = visit("translate")
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    labelled(page, "Text to translate").fill(hostile)
    page.locator(".output .word").first.wait_for()
    for view in ("attention", "beam", "walk"):
        page.goto(re.sub("#.*", f"#{view}", page.url))
        page.locator("h1").wait_for()
        expect(page.locator("main textarea")).to_have_value(hostile)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert page.locator("main script, main img[src=x]").count() == 0


# ---- attention


def head(page: Page, layer: int, number: int) -> Locator:
    return page.locator(".atlas tbody tr").nth(layer).locator("td").nth(number)


def test_attention_shows_the_weights_of_the_chosen_head(visit: Opener, server: Running) -> None:
    page = visit("attention")
    labelled(page, "Text").fill("seven")
    expect(page.locator(".written bdi")).to_have_text("sieben")
    page.locator("label", has_text="Encoder").click()
    head(page, 0, 1).click()
    expect(page.locator(".detail h2")).to_have_text("Encoder attention, layer 1, head 2")
    about = {"model": "words", "text": "seven", "target": "sieben", "name": "encoder", "layer": 0, "head": 1}
    weights = ask(server, "attention/head", **about)["weights"]
    page.locator(".words.left div").nth(1).hover()
    expect(page.locator(".readout b").first).to_have_text(written(max(weights[1])))
    page.locator("label", has_text="Matrix").click()
    page.locator(".column-labels span").first.hover()
    expect(page.locator(".readout b").first).to_have_text(written(max(row[0] for row in weights)))
    page.mouse.move(0, 0)
    expect(page.locator(".readout")).to_contain_text("Point at a token")


def test_the_mean_of_heads_has_the_entropy_of_what_is_drawn(visit: Opener, server: Running) -> None:
    page = visit("attention")
    labelled(page, "Text").fill("seven")
    expect(page.locator(".written bdi")).to_have_text("sieben")
    expect(page.locator(".detail h2")).to_have_text(re.compile("Cross attention.*mean of heads"))
    (last,) = ask(server, "attention", model="words", text="seven")["maps"][-1:]
    values = ask(server, "attention/head", model="words", text="seven", name="cross", layer=last["layer"])["weights"]
    entropy = sum(-weight * math.log(weight) for row in values for weight in row if weight) / len(values)
    assert last["mean_entropy"] == pytest.approx(entropy, abs=0.01)
    expect(page.locator(".facts b").first).to_have_text(written(last["mean_entropy"]))


def test_of_several_sentences_the_first_is_shown_where_each_is_translated_by_itself(
    visit: Opener, shipped_server: Running
) -> None:
    text = "Good morning. Where is the train station? I am tired."
    for view, shown in (("attention", ".written bdi"), ("beam", ".results .text"), ("walk", ".word-chip")):
        page = visit(view, "everyday-en-de", address=shipped_server.address)
        page.locator("textarea").first.fill(text)
        note = page.locator("p.written", has_text="Each sentence is translated by itself")
        expect(note.locator("bdi").first).to_have_text("Good morning.")
        if view == "walk":
            expect(page.locator(shown).last).to_have_text("‹end›")
            assert "".join(page.locator(shown).all_inner_texts()[:-1]) == "Goodmorning."
        else:
            expect(page.locator(shown).filter(has_text="Guten").first).to_have_text("Guten Morgen.")
        page.locator("textarea").first.fill("Good morning.")
        expect(note).to_have_count(0)
        page.context.close()


def test_what_was_translated_before_is_the_first_of_several_sentences_and_says_so(
    visit: Opener, shipped_server: Running
) -> None:
    page = visit("translate", "everyday-en-de", address=shipped_server.address)
    for text, told in (("Good morning. I am tired.", 1), ("Good morning.", 0)):
        labelled(page, "Text to translate").fill(text)
        written = r"Guten Morgen\..*müde" if told else r"^Guten Morgen\.$"
        expect(page.locator(".output")).to_have_text(re.compile(written))
        for view in ("Attention", "Beam", "Walk through"):
            page.locator("nav a", has_text=view).click()
            settled(page)
            expect(page.locator("textarea").first).to_have_value("Good morning.")
            expect(page.locator("p.written", has_text="Each sentence is translated by itself")).to_have_count(told)
        page.locator("nav a", has_text="Translate").click()
    page.context.close()


def test_attention_by_keyboard(visit: Opener) -> None:
    page = visit("attention")
    labelled(page, "Text").fill("seven")
    expect(page.locator(".written bdi")).to_have_text("sieben")
    page.locator("td[aria-selected=true]").focus()
    before = page.locator(".detail h2").inner_text()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".detail h2")).not_to_have_text(before)
    expect(page.locator("td:focus")).to_have_attribute("aria-selected", "true")
    page.locator("label", has_text="Matrix").click()
    cells = page.locator(".detail .cells")
    cells.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("looks at")
    page.keyboard.press("Enter")
    page.mouse.move(0, 0)
    expect(page.locator(".readout")).to_contain_text("looks at")
    page.keyboard.press("Escape")
    expect(page.locator(".readout")).to_contain_text("Point at a token")


def test_pictures_are_saved_and_an_example_the_model_cannot_read_is_not_explained(visit: Opener) -> None:
    page = visit("attention")
    page.get_by_role("button", name="it → animal / street").click()
    expect(page.locator(".pair")).to_contain_text("words does not know all characters of this example")
    expect(page.locator(".pair-row")).to_have_count(0)
    for kind, begin in (("SVG", "<svg"), ("HTML", "<!doctype html")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {kind}").click()
        assert Path(download.value.path()).read_text(encoding="utf-8").lower().lstrip().startswith(begin)


PIECES = "The ani|mal did|n|'|t cross the street because i|t was too {}|."


def test_the_pair_is_seen_side_by_side_in_whole_words(visit: Opener) -> None:
    """Both halves of “it” look at both halves of “animal”; in the second sentence at “street”."""
    page = visit("attention")
    page.locator(".detail h2").wait_for()

    def tokens(text: str) -> list[str]:
        return [*PIECES.format("wide" if "wide" in text else "tired").replace("|", " ").split(), "‹end›"]

    def summary(route: Route) -> None:
        text = route.request.post_data_json["text"]
        named = {"name": "encoder", "layer": 0, "heads": 1, "queries": tokens(text), "keys": tokens(text)}
        numbers = {"entropy": [1.0], "distance": [1.0], "separators": [0.0]}
        route.fulfill(json={"source": text, "target": "", "maps": [{**named, **numbers}]})

    def weights(route: Route) -> None:
        names = tokens(route.request.post_data_json["text"])
        looked = {"street": 0.75} if "wide" in names else {"ani": 0.5, "mal": 0.25}
        row = [looked.get(name, 0.0) for name in names]
        route.fulfill(json={"weights": [row if name in ("i", "t") else [0.0] * len(names) for name in names]})

    page.route("**/api/attention", summary)
    page.route("**/api/attention/head", weights)
    page.get_by_role("button", name="it → animal / street").click()
    rows = page.locator(".pair-row")
    expect(rows).to_have_count(2)
    expect(rows.first.locator("> .muted")).to_have_text("it → animal 0.75")
    expect(rows.nth(1).locator("> .muted")).to_have_text("it → street 0.75")
    assert rows.first.locator(".shaded").all_inner_texts()[:4] == ["The", "animal", "didn't", "cross"]
    rows.nth(1).click()
    expect(rows.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(labelled(page, "Text")).to_have_value(re.compile("wide"))


@pytest.mark.parametrize(
    ("looks", "opened"),
    [
        # By layer and head, what “it” looks at in each sentence: in one head it looks harder, in another it moves.
        ({(0, 1): ({"animal": 0.9}, {"animal": 0.9}), (1, 0): ({"animal": 0.4}, {"street": 0.3})}, "layer 2, head 1"),
        ({(0, 1): ({"street": 0.9}, {"street": 0.9}), (1, 0): ({"animal": 0.4}, {"animal": 0.335})}, "layer 1, head 2"),
    ],
)
def test_the_pair_opens_where_it_shows_most(
    visit: Opener, looks: dict[tuple[int, int], tuple[dict[str, float], dict[str, float]]], opened: str
) -> None:
    page = visit("attention")
    page.locator(".detail h2").wait_for()

    def summary(route: Route) -> None:
        text = route.request.post_data_json["text"]
        map_ = {"name": "encoder", "heads": 2, "queries": text.split(), "keys": text.split(), "mean_entropy": 1.0}
        numbers = {"entropy": [1.0, 1.0], "distance": [1.0, 1.0], "separators": [0.0, 0.0]}
        maps = [{**map_, **numbers, "layer": layer} for layer in (0, 1, 2)]
        route.fulfill(json={"source": text, "target": "", "maps": maps})

    def weights(route: Route) -> None:
        asked = route.request.post_data_json
        words = asked["text"].split()
        looked = looks.get((asked["layer"], asked["head"]), ({}, {}))["wide." in words]
        row = [looked.get(word, 0.0) for word in words]
        route.fulfill(json={"weights": [row if word == "it" else [0.0] * len(words) for word in words]})

    page.route("**/api/attention", summary)
    page.route("**/api/attention/head", weights)
    page.get_by_role("button", name="it → animal / street").click()
    expect(page.locator(".pair-row")).to_have_count(2)
    expect(page.locator(".detail h2")).to_have_text(f"Encoder attention, {opened}")
    # 0.065 is not more than 0.07, which is what a reader is told; of what does move nothing is said.
    still = [re.compile("Hardly anything moves: .* on animal / street change by more than 0.07")]
    expect(page.locator(".pair .hint")).to_have_text([] if opened == "layer 2, head 1" else still)


def test_the_pair_of_a_shipped_model_shows_a_noun(visit: Opener, shipped_server: Running) -> None:
    page = visit("attention", "everyday-en-de", address=shipped_server.address)
    page.get_by_role("button", name="it → animal / street").click()
    expect(page.locator(".pair-row > .muted").first).to_contain_text("it → animal 0.96")
    expect(page.locator(".pair .hint")).to_contain_text("Hardly anything moves")
    # Where each token looks across, nothing is said of it.
    page.locator("label", has_text="Cross").click()
    expect(page.locator(".detail h2")).to_contain_text("Cross attention")
    expect(page.locator(".pair .hint")).to_have_count(0)
    page.context.close()


def test_the_pair_is_in_the_language_that_the_model_reads(visit: Opener, shipped_server: Running) -> None:
    page = visit("attention", "everyday-de-en", address=shipped_server.address)
    page.get_by_role("button", name="er → Koffer / Schrank").click()
    expect(page.locator(".pair-row")).to_have_count(2)
    expect(page.locator(".pair-words").nth(1)).to_contain_text("klein")
    served, text = shipped_server, labelled(page, "Text").input_value()
    # “Koffer” ends in a piece that is spelled as “er” is; what is followed is the word.
    tokens = served.desk.find("everyday-de-en").model.attention(text).layers[0].queries
    places = [place for place, token in enumerate(tokens) if token == "er"]
    assert len(places) == 2
    expect(page.locator(".words.left .on")).to_have_attribute("data-place", str(places[1]))
    page.context.close()


def test_a_language_without_a_pair_has_none(visit: Opener, server: Running) -> None:
    page = visit("translate")
    told = page.request.get(f"{server.address}/api/models").json()
    told["models"][0]["languages"] = {"source": "fr", "target": ["de"]}
    page.route("**/api/models", lambda route: route.fulfill(json=told))
    page.reload()
    page.locator("nav a", has_text="Attention").click()
    page.locator(".detail h2").wait_for()
    expect(page.locator(".examples")).to_have_count(0)


# ---- beam


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_boxes_that_were_given_up_can_be_seen(visit: Opener, scheme: str) -> None:
    page = visit("beam", color_scheme=scheme)
    style = page.locator(".node.dropped").first.evaluate(
        "(node) => { const { borderTopColor, backgroundColor, color } = getComputedStyle(node);"
        " return [borderTopColor, color, backgroundColor] }"
    )
    border, text, ground = (luminance(each) for each in style)
    for front, least in ((border, 3), (text, 4.5)):
        assert (max(front, ground) + 0.05) / (min(front, ground) + 0.05) >= least


def luminance(colour: str) -> float:
    """By WCAG, of `rgb(…)`."""
    shares = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_beam_is_drawn_and_its_sliders_run_it_again(visit: Opener) -> None:
    page = visit("beam")
    labelled(page, "Text to translate").fill("seven")
    expect(page.locator(".results .text").first).to_have_text("sieben")
    winning = page.locator(".node.winning")
    assert "".join(winning.locator("bdi").all_inner_texts()).replace("␣", " ").replace("■", "").strip() == "sieben"
    labelled(page, "Beam width").fill("2")
    expect(page.locator(".results li")).to_have_count(2)
    page.locator(".node").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("score")
    assert page.locator(".node.traced").count() == 2
    rounds = page.locator(".growth input")
    rounds.fill("1")
    assert page.locator(".node:not(.later)").count() < page.locator(".node").count()
    with page.expect_download() as download, page.expect_request("**/api/picture") as asked:
        page.get_by_role("button", name="Save as SVG").click()
    assert (asked.value.post_data_json["what"], asked.value.post_data_json["beam"]) == ("beam", 2)
    drawn = ElementTree.fromstring(Path(download.value.path()).read_text(encoding="utf-8"))
    assert drawn.tag.endswith("svg")
    pieces = {text.strip() for text in drawn.itertext()}
    assert {piece.strip("␣") for piece in winning.locator("bdi").all_inner_texts()} - {"■"} <= pieces


# ---- explore


def test_exploring_appends_and_goes_back(visit: Opener) -> None:
    page = visit("explore", "babble")
    text = labelled(page, "The text so far")
    text.fill("seven")
    bars = page.locator(".bars.next button:enabled")
    expect(page.locator(".bars.next li")).to_have_count(10)
    expect(page.get_by_role("button", name="Back")).to_be_disabled()
    bars.first.click()
    expect(text).not_to_have_value("seven")
    page.get_by_role("button", name="Back").click()
    expect(text).to_have_value("seven")
    labelled(page, "Top-k").fill("3")
    expect(page.locator(".bars.next .out")).to_have_count(7)
    expect(page.locator(".summary")).to_contain_text("Tokens that can be drawn: 3")


def test_generating_streams_and_follows_the_seed(visit: Opener) -> None:
    page = visit("explore", "babble")
    text = labelled(page, "The text so far")
    text.fill("seven")
    labelled(page, "Tokens").fill("12")
    labelled(page, "Seed").fill("7")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".generating [role=status]")).to_have_text(re.compile("tokens is written|ended the text"))
    first = text.input_value()
    assert first.startswith("seven")
    assert len(first) > 5
    page.get_by_role("button", name="Back").click()
    expect(text).to_have_value("seven")
    page.get_by_role("button", name="Generate").click()
    expect(text).to_have_value(first)


def test_numbers_out_of_bounds_are_not_used_while_others_are_shown(visit: Opener, server: Running) -> None:
    page = visit("explore", "babble")
    tokens, seed = labelled(page, "Tokens"), labelled(page, "Seed")
    most = server.desk.limits.tokens
    for field, typed, kept in ((seed, "-5", "0"), (tokens, "100000", str(most)), (tokens, "", str(most))):
        field.fill(typed)
        field.blur()
        expect(field).to_have_value(kept)
    seed.fill("7.4")
    with page.expect_request("**/api/generate") as asked:
        page.get_by_role("button", name="Generate").click()
    assert asked.value.post_data_json["seed"] == 7
    assert asked.value.post_data_json["max_tokens"] == most
    expect(seed).to_have_value("7")


def test_running_text_has_lines(visit: Opener, shipped_server: Running) -> None:
    page = visit("explore", "writer", address=shipped_server.address)
    text = labelled(page, "The text so far")
    text.fill("ROMEO:")
    line_end = page.locator(".bars.next button").first
    expect(line_end).to_have_text(re.compile("⏎"))
    line_end.click()
    expect(text).to_have_value("ROMEO:\n")
    labelled(page, "Tokens").fill("150")
    page.get_by_role("button", name="Generate").click()
    # More than one line: only the number of tokens ends it.
    expect(page.locator(".generating [role=status]")).to_have_text("The asked number of tokens is written.")
    assert text.input_value().count("\n") > 2
    page.get_by_role("checkbox", name="Show how surprised the model was").check()
    page.locator(".token").first.wait_for()
    assert "".join(page.locator(".token").all_text_contents()).replace("⏎", "\n") == text.input_value()
    page.context.close()


def test_surprise_is_shown_for_each_token(visit: Opener, server: Running) -> None:
    page = visit("explore", "babble")
    labelled(page, "The text so far").fill("seven eight")
    page.get_by_role("checkbox", name="Show how surprised the model was").check()
    tokens = page.locator(".token")
    tokens.first.wait_for()
    assert "".join(tokens.all_text_contents()) == "seven eight"
    tokens.nth(1).hover()
    rank = ask(server, "tokens", model="babble", text="seven eight")["tokens"][1]["rank"]
    expect(page.locator(".surprise .readout")).to_contain_text(f"rank {rank} ")


def test_surprise_follows_a_text_longer_than_the_model_reads(visit: Opener, shipped_server: Running) -> None:
    page = visit("explore", "writer", address=shipped_server.address)
    page.get_by_role("checkbox", name="Show how surprised the model was").check()
    tokens, note = page.locator(".token"), page.locator(".surprise .hint")
    for text in ("The king is dead. " * 30, "Who is there? " * 40):
        labelled(page, "The text so far").fill(text)
        expect(note).to_have_text(re.compile("^The last 256 tokens"))
        expect(page.locator(".strip")).to_contain_text(text[-20:].strip())
        assert "".join(tokens.all_text_contents()) == text[-256:]
    labelled(page, "The text so far").fill("The king")
    expect(note).to_be_hidden()
    expect(tokens).to_have_count(8)


def test_a_double_click_writes_instead_of_stopping_at_once(visit: Opener) -> None:
    page = visit("explore", "babble")
    labelled(page, "The text so far").fill("seven")
    labelled(page, "Tokens").fill("12")
    waiting: list[Route] = []
    page.route("**/api/generate", lambda route: waiting.append(route))
    with page.expect_request("**/api/generate"):
        page.get_by_role("button", name="Generate").dblclick()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    waiting[0].continue_()
    expect(page.locator(".generating [role=status]")).to_have_text(re.compile("tokens is written|ended the text"))
    assert len(waiting) == 1


def test_a_double_click_on_stop_does_not_write_again(visit: Opener) -> None:
    page = visit("explore", "babble")
    waiting: list[Route] = []
    page.route("**/api/generate", lambda route: waiting.append(route))
    with page.expect_request("**/api/generate"):
        page.get_by_role("button", name="Generate").press("Enter")
    page.get_by_role("button", name="Stop").dblclick()
    expect(page.locator(".generating [role=status]")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Generate")).to_be_visible()
    assert len(waiting) == 1


def test_nothing_else_changes_the_text_while_the_model_writes(visit: Opener) -> None:
    page = visit("explore", "babble")
    text = labelled(page, "The text so far")
    text.fill("seven")
    waiting: list[Route] = []
    page.route("**/api/generate", lambda route: waiting.append(route))
    back, clear = (page.get_by_role("button", name=name) for name in ("Back", "Clear"))
    expect(clear).to_be_enabled()
    with page.expect_request("**/api/generate"):
        page.get_by_role("button", name="Generate").click()
    labelled(page, "Temperature").fill("0.5")  # asks for the next token, but not before the text is there
    page.wait_for_timeout(400)
    for button in (back, clear):
        expect(button).to_be_disabled()
    waiting[0].continue_()
    expect(page.locator(".generating [role=status]")).to_have_text(re.compile("tokens is written|ended the text"))
    for button in (clear, back):
        expect(button).to_be_enabled()
    back.click()
    expect(text).to_have_value("seven")


def test_writing_ends_where_the_text_is_full(visit: Opener, babbling_model: Path) -> None:
    with running({"babble": babbling_model}, Limits(text=30)) as small:
        page = visit("explore", "babble", address=small.address)
        text, count = labelled(page, "The text so far"), page.locator(".count")
        ending, bars = page.locator(".generating [role=status]"), page.locator(".bars.next button")
        for begun in ("seven", "seven seven seven seven seven "):
            text.fill(begun)
            labelled(page, "Tokens").fill("60")
            labelled(page, "Top-k").fill("1")  # always the likeliest token, which is never the end
            page.get_by_role("button", name="Generate").click()
            expect(ending).to_have_text("No more fits in.")
            written = text.input_value()
            assert written.startswith(begun)
            assert len(begun) <= len(written) <= 30
            expect(count).to_have_text(re.compile(f"^{len(written)} / 30"))
            expect(page.locator(".status.failed")).to_have_count(0)
        expect(count).to_have_text("30 / 30 · full, more is left out")
        expect(page.locator(".bars.next button:enabled")).to_have_count(0)
        expect(bars.first).to_have_attribute("title", re.compile("No more fits in"))
        page.get_by_role("button", name="Back").click()
        expect(text).to_have_value("seven")  # where nothing was written, nothing is gone back
        page.context.close()


# From outside, on a busy machine, a thousand tokens are written before the next look.
ONCE_IT_WRITES = """async (click) => {
  const button = (name) => [...document.querySelectorAll("button")].find((each) => each.textContent === name);
  const area = document.querySelector("textarea"), before = area.value;
  button("Generate").click();
  while (area.value === before) await new Promise(requestAnimationFrame);
  const seen = [document.querySelector(".count").textContent, !button("Stop").hidden];
  if (click) button(click).click();
  return seen;
}"""
"""Generates; gives the counter, and whether the model still writes, once something is written; then clicks a button."""


def test_the_counter_follows_while_the_model_writes(visit: Opener, babbling_model: Path) -> None:
    with running({"babble": babbling_model}, Limits(tokens=1_000)) as patient:
        page = visit("explore", "babble", address=patient.address)
        labelled(page, "The text so far").fill("seven")
        labelled(page, "Tokens").fill("1000")
        labelled(page, "Top-k").fill("1")
        expect(page.locator(".count")).to_have_text("5 / 5,000")
        count, still_writes = page.evaluate(ONCE_IT_WRITES)
        assert still_writes
        assert int(count.partition(" / ")[0]) > 5
        page.context.close()


def test_stop_ends_a_stream_and_frees_the_model(visit: Opener, babbling_model: Path) -> None:
    with running({"babble": babbling_model}, Limits(tokens=1_000)) as patient:
        page = visit("explore", "babble", address=patient.address)
        labelled(page, "The text so far").fill("seven")
        labelled(page, "Tokens").fill("1000")
        labelled(page, "Top-k").fill("1")  # always the likeliest token, which is never the end
        page.evaluate(ONCE_IT_WRITES, "Stop")
        expect(page.locator(".generating [role=status]")).to_have_text("Stopped.")
        expect(page.get_by_role("button", name="Generate")).to_be_focused()
        assert ask(patient, "next", model="babble", text="seven")["tokens"]
        page.context.close()


def test_the_end_of_a_text_is_neither_appended_nor_in_the_way(visit: Opener) -> None:
    page = visit("explore", "babble")
    page.locator(".bars.next li").first.wait_for()
    token = {"id": 1, "text": "a", "probability": 0.25, "chance": 0.25, "end": False}
    end = {**token, "id": 0, "text": "‹end›", "probability": 0.5, "chance": 0.5, "end": True}
    page.route(
        "**/api/next",
        lambda route: route.fulfill(json={"text_tokens": [], "tokens": [end, token], "kept": 2, "entropy": 1.0}),
    )
    labelled(page, "The text so far").fill("seven")
    bars = page.locator(".bars.next button")
    expect(bars).to_have_count(2)
    expect(bars.first).to_have_attribute("title", re.compile("Here the text would end"))
    expect(bars.first).to_have_attribute("tabindex", "-1")
    expect(bars.nth(1)).to_have_attribute("title", re.compile("Add it to the text"))
    expect(bars.nth(1)).to_have_attribute("tabindex", "0")


# ---- walk through


def test_walking_by_arrow_keys_and_following_a_word(visit: Opener) -> None:
    page = visit("walk")
    walk_through(page, "seven eight")
    steps = page.locator(".steps button")
    expect(page.locator(".word-chip")).not_to_have_count(0)
    expect(page.locator(".step h2")).to_have_text("Embedding")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(steps.nth(1)).to_have_attribute("aria-current", "step")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".step h2")).to_have_text("Embedding")
    steps.filter(has_text="Softmax").first.click()
    page.locator(".word-chip").nth(1).click()
    expect(page.locator(".word-chip").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".step h2")).to_have_text("Softmax")
    expect(page.locator(".walk-body")).to_have_attribute("aria-busy", "false")  # an answer on its way draws anew
    numbers = page.locator(".numbers").inner_text().replace("−", "-").split()[1:]
    assert sum(map(float, numbers)) == pytest.approx(1, abs=0.01)
    page.locator(".step .cells").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".step .readout b")).to_have_text(re.compile(r"^[\d.e−]+$"))
    expect(page.locator(".step h2")).to_have_text("Softmax")  # keys inside a table stay there


def test_a_gpt_shows_what_it_kept_and_what_it_computed(visit: Opener) -> None:
    page = visit("walk", "babble")
    walk_through(page, "seven")
    page.locator(".steps button").filter(has_text="Query").click()
    count = page.locator(".cache-words span").count()
    expect(page.locator(".cache-words .kept")).to_have_count(count - 1)
    expect(page.locator(".cache-words .computed")).to_have_count(1)
    expect(page.locator(".cache .legend span")).to_have_text(["kept from before", "computed now"])
    page.locator(".steps button").last.click()
    expect(page.locator(".step h2")).to_have_text("Next token")


def test_every_language_tells_the_numbers_of_the_walk(visit: Opener, server: Running) -> None:
    page = visit("walk", "babble")
    walk_through(page, "seven")
    for language, scaled in (("en", "Divided by"), ("de", "Geteilt durch"), ("zh", "除以")):
        page.locator("#settings select").nth(1).select_option(language)
        labelled(page, {"en": "Text", "de": "Text", "zh": "文字"}[language]).fill("seven")
        steps = ask(server, "walk", model="babble", text="seven", tongue=language)["steps"]
        assert sum(step["title"].startswith(f"{scaled} √") for step in steps) == 1
        expect(page.locator(".steps button > span:not(.rank)")).to_have_text([step["title"] for step in steps])
        for place, step in enumerate(steps):
            page.locator(".steps button").nth(place).click()
            expect(page.locator(".step h2")).to_have_text(step["title"])
            expect(page.locator(".sentence")).to_have_text(step["sentence"])
            assert "{" not in step["sentence"], step["id"]


def test_the_last_label_of_a_table_has_room(visit: Opener) -> None:
    page = visit("walk")
    walk_through(page, "seven eight nine " * 6)
    page.locator(".steps button").filter(has_text="Softmax").click()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    right = "(place) => [...document.querySelectorAll(place)].at(-1).getBoundingClientRect().right"
    assert page.evaluate(right, ".column-labels span") <= page.evaluate(right, ".step .scroller")


# ---- inside


def test_inside_counts_every_parameter(visit: Opener, words_model: Path) -> None:
    page = visit("inside")
    whole = sum(each.numel() for each in load(words_model).network.parameters())
    expect(page.locator(".big-facts dd").first).to_have_text(f"{whole:,}")
    parts = [
        int(text.replace(",", "")) for text in page.locator(".parts summary .figure:not(.share)").all_inner_texts()
    ]
    assert sum(parts) == whole
    page.locator(".parts summary").first.click()
    expect(page.locator(".matrix-table tbody tr").first).to_be_visible()
    expect(page.locator(".places .cells")).to_have_count(2)
    assert page.evaluate("[...document.querySelectorAll('.drawing')].every((each) => each.naturalWidth > 0)")
    expect(page.locator(".neighbours li")).to_have_count(12)  # there is something to see before a word is typed
    expect(labelled(page, "A word or token")).to_have_value("three")  # which the vocabulary knows
    with page.expect_request(lambda asked: "neighbours" in asked.url and asked.post_data_json["text"] == "seven"):
        labelled(page, "A word or token").fill("seven")
    page.get_by_text("Recipe", exact=True).click()
    expect(page.locator(".more pre").last).to_contain_text("d_model = 64")


def test_inside_speaks_the_language_of_the_page(visit: Opener) -> None:
    page = visit("inside", locale="de")
    with page.expect_request(re.compile(r"/inside\?")) as asked:
        page.reload()
    expect(page.locator(".big-facts dt", has_text="Schichten × Köpfe").first).to_contain_text("Encoder")
    assert "decoder" not in " ".join(page.locator(".big-facts dt").all_inner_texts())
    expect(page.locator(".wiring .drawing")).to_be_visible()
    drawn = page.request.get(asked.value.url).json()["wiring"]
    assert ">Quer-Attention<" in drawn
    assert not re.search("wired|attention to|>source<|>norm<", drawn)
    about = page.request.get(asked.value.url).json()
    for curves in (about["curves"], about["tall_curves"]):
        assert ">Verlust in nats je Token" in curves
        assert not re.search("learned|>validation|>training|>loss|learning rate|>step<", curves)


def test_inside_can_be_read_on_a_phone(visit: Opener, shipped_server: Running) -> None:
    page = visit(
        "inside", "everyday-en-de", address=shipped_server.address, viewport={"width": 375, "height": 844}, locale="de"
    )
    for part in (".wiring", ".curves"):
        drawing = page.locator(f"{part} .drawing")
        drawing.wait_for()
        page.wait_for_function(f"document.querySelector('{part} .drawing').naturalWidth > 0")
        wide, letters = drawing.evaluate("(each) => [each.clientWidth, each.clientWidth / each.naturalWidth]")
        assert 300 <= wide <= 375  # all of it is in sight
        assert letters > 0.7  # of 13 pixels, and can be read
    expect(page.locator(".curves")).to_contain_text("so kann das Training darüber liegen")
    expect(page.locator(".positions")).to_contain_text("dreht seine Anfrage und seinen Schlüssel")  # it is rotary
    expect(page.locator(".positions")).to_contain_text("wird nichts addiert")
    page.get_by_text("Modellkarte", exact=True).click()
    card = page.locator(".card")
    # What model hubs read, in front of it, is not for readers.
    expect(card.locator("h3").first).to_have_text("everyday-en-de")
    expect(card).to_contain_text("It learned from:")
    assert card.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    share = page.locator(".parts .share", has_text="<").first
    # Text that does not fit its column sticks out at its start or its end.
    assert share.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    page.context.close()


CARD = """---
license: mit
---

# A *card*

One line
and **another**, [a link](https://example.org/a_b), [no link](javascript:print), <https://example.org>.
![a picture](https://example.org/spy.png)

| score | `a\\|b` |
| --- | --- |
| one \\| two | <img src=x onerror=alert(2)> |

- first `x * y * z`
- second,
  on two lines
1. third

```sh
# no heading
| no | table |
```
"""


def test_a_card_is_set_from_its_own_marks_and_no_others(visit: Opener) -> None:
    page = visit("translate")
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))

    def about(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "card": CARD})

    page.route(re.compile("/inside"), about)
    page.goto(re.sub("#.*", "#inside", page.url))
    page.get_by_text("Model card", exact=True).click()
    card = page.locator(".card")
    expect(card.locator("> *")).to_have_count(6)
    expect(card.locator("h3")).to_have_text("A card")
    expect(card.locator("p")).to_have_text("One line and another, a link, no link, https://example.org. ")
    expect(card.locator("p strong")).to_have_text("another")
    expect(card.locator("a")).to_have_text(["a link", "https://example.org"])
    expect(card.locator("a").first).to_have_attribute("href", "https://example.org/a_b")
    expect(card.locator("th")).to_have_text(["score", "a|b"])
    expect(card.locator("td")).to_have_text(["one | two", "<img src=x onerror=alert(2)>"])
    expect(card.locator("li")).to_have_text(["first x * y * z", "second, on two lines", "third"])
    expect(card.locator("li code")).to_have_text("x * y * z")
    expect(card.locator("pre")).to_have_text("# no heading\n| no | table |")
    expect(card.locator("img, script")).to_have_count(0)
    expect(card).not_to_contain_text("license")


@pytest.mark.parametrize("piece", ["[", "`", "*", "<https:", "![", "| ", "- ", "\\", "[a](", "**a", "_a ", "|\n-"])
def test_no_card_takes_long(visit: Opener, piece: str) -> None:
    page = visit("inside")
    page.locator(".big-facts").wait_for()
    took = page.evaluate(
        """async (piece) => {
      const { drawCard } = await import("./page/card.js"), begin = performance.now();
      drawCard(piece.repeat(100_000 / piece.length));
      return performance.now() - begin;
    }""",
        piece,
    )
    assert took < 5_000


# ---- what holds for all views


def test_a_view_that_does_not_suit_the_model_says_so_and_offers_one_that_does(visit: Opener) -> None:
    page = visit("explore")
    page.get_by_role("button", name="Use babble").click()
    expect(page.locator(".bars.next li")).to_have_count(10)
    page = visit("explore")
    expect(page.locator(".unsuited-note")).to_contain_text("has nothing to show here")
    page.get_by_role("button", name="Translate").click()
    expect(page).to_have_url(re.compile("#translate$"))
    expect(page.locator(".panes")).to_be_visible()


def test_another_model_is_met_in_a_view_that_suits_it(visit: Opener) -> None:
    page = visit("inside")
    menu = labelled(page, "Model")
    menu.select_option("babble")
    expect(page).to_have_url(re.compile("#inside$"))
    page.goto(re.sub("#.*", "#explore", page.url))
    menu.select_option("words")
    expect(page).to_have_url(re.compile("#translate$"))
    expect(page.locator(".panes")).to_be_visible()
    expect(page.locator("nav#nav [aria-current]")).to_have_text("Translate")
    menu.select_option("babble")
    expect(page).to_have_url(re.compile("#explore$"))  # and not in one that only looks at it


def test_models_of_one_recipe_can_be_told_apart(visit: Opener) -> None:
    page = visit("inside")

    def models(route: Route) -> None:
        found = route.fetch().json()
        found["models"].append({**found["models"][0], "id": "again"})
        route.fulfill(json=found)

    expect(labelled(page, "Model").locator("option")).to_have_text(["words", "babble"])
    page.route("**/api/models", models)
    page.reload()
    expect(labelled(page, "Model").locator("option")).to_have_text(["words (words)", "babble", "words (again)"])
    expect(page.locator("footer")).to_contain_text("words (words) · transformer")
    expect(page).to_have_title("Inside · words (words) · Regard")
    page.goto(re.sub("#.*", "#explore", page.url))
    expect(page.locator(".unsuited-note")).to_contain_text("words (words)")


def test_the_menu_has_what_the_model_can_show(visit: Opener) -> None:
    page = visit("translate")
    menu = page.locator("nav#nav a")
    expect(menu).to_have_text(["Translate", "Attention", "Beam", "Walk through", "Inside"])
    page.goto(re.sub("#.*", "#inside", page.url))
    labelled(page, "Model").select_option("babble")
    expect(menu).to_have_text(["Explore", "Attention", "Walk through", "Inside"])


def test_the_language_and_the_colours_are_kept(visit: Opener) -> None:
    page = visit("translate", color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    labelled(page, "Language of this page").select_option("de")
    expect(page.locator("h1")).to_have_text("Übersetzen")
    expect(page.locator("#settings select").nth(1)).to_be_focused()
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Farben")).click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.locator("h1")).to_have_text("Übersetzen")
    assert page.evaluate("document.documentElement.lang") == "de"
    assert page.evaluate(background) == dark
    labelled(page, "Sprache dieser Seite").select_option("zh")
    expect(page.locator("h1")).to_have_text("翻译")


def test_everything_can_be_reached_by_tab(visit: Opener) -> None:
    page = visit("translate")
    field = labelled(page, "Text to translate")
    field.wait_for()
    reached: list[str] = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("(({ textContent, tagName }) => textContent || tagName)(document.activeElement)"))
        if reached[-1] == "TEXTAREA" and not field.input_value():
            page.keyboard.type("seven")
            page.locator(".output .word").wait_for()
    assert reached[0] == "Skip to the content"
    for name in ("Translate", "Inside", "TEXTAREA", "Clear", "sieben", "Copy", "Search settings", "Show the API call"):
        assert name in reached, name


def test_right_to_left_text_and_layout(visit: Opener) -> None:
    page = visit("translate")
    labelled(page, "Text to translate").fill("שלום עולם")
    assert page.evaluate("getComputedStyle(document.querySelector('textarea')).direction") == "rtl"
    page.evaluate("document.documentElement.dir = 'rtl'")
    source, target = (page.locator(f".pane.{side}").bounding_box() for side in ("source", "target"))
    assert source is not None
    assert target is not None
    assert source["x"] > target["x"]
    for view in VIEWS["words"]:
        page.goto(re.sub("#.*", f"#{view}", page.url))
        page.locator("h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def settled(page: Page) -> None:
    """The view is there, and waits for nothing."""
    expect(page.locator("nav [aria-current=page]")).to_have_attribute("href", re.sub(".*#", "#", page.url))
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


@pytest.mark.parametrize("width", [375, 420, 600, 1280])
def test_the_name_of_the_model_is_read_at_any_width(visit: Opener, shipped_server: Running, width: int) -> None:
    page = visit("beam", "everyday-en-de", address=shipped_server.address, viewport={"width": width, "height": 844})
    page.locator("#settings select").first.wait_for()
    room, needed = page.locator("#settings select").first.evaluate("""(each) => {
      const style = getComputedStyle(each), pen = document.createElement("canvas").getContext("2d");
      pen.font = style.font;
      const room = each.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      return [room, pen.measureText(each.selectedOptions[0].text).width];
    }""")
    assert room >= needed
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_every_view_is_in_sight_on_a_phone(visit: Opener, language: str) -> None:
    page = visit("translate", viewport={"width": 375, "height": 812}, locale=language)
    links = page.locator("nav#nav a")
    expect(links).to_have_count(5)
    for link in links.all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_every_head_has_room_in_every_language(visit: Opener, shipped_server: Running, language: str) -> None:
    page = visit("attention", "everyday-en-de", address=shipped_server.address, locale=language)
    page.locator(".atlas td").first.wait_for()
    frame = page.locator(".atlas-frame")
    assert frame.evaluate("({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth")
    # The mark of the chosen head is drawn around it.
    right = "(each) => each.getBoundingClientRect().right"
    assert page.locator(".atlas td canvas").last.evaluate(right) + 3 <= frame.evaluate(right)
    page.context.close()


@pytest.mark.parametrize("model", VIEWS)
def test_nothing_sticks_out_on_a_phone(visit: Opener, model: str) -> None:
    page = visit("inside", model, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for view in VIEWS[model]:
        page.goto(re.sub("#.*", f"#{view}", page.url))
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


@pytest.mark.skipif(not Path(AXE).is_file(), reason="needs axe-core: REGARD_AXE=…/axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("model", VIEWS)
def test_axe_finds_nothing_serious(visit: Opener, model: str, scheme: str) -> None:
    page = visit("inside", model, color_scheme=scheme)
    settled(page)
    page.evaluate(Path(AXE).read_text(encoding="utf-8") + "; undefined")
    for view in VIEWS[model]:
        page.goto(re.sub("#.*", f"#{view}", page.url))
        settled(page)
        if view == "translate":
            labelled(page, "Text to translate").fill("seven")
            page.locator(".output .word").click()
            page.locator(".alternatives li").first.wait_for()
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        serious = {
            each["id"]: [node["html"] for node in each["nodes"]]
            for each in found
            if each["impact"] in ("serious", "critical")
        }
        assert serious == {}, view


# ---- when things go wrong


def test_a_key_is_asked_for_once(visit: Opener, words_model: Path, faults: list[str]) -> None:
    faults.append("status of 401")
    with running({"words": words_model}, key="open sesame") as locked:
        page = visit("translate", address=locked.address)
        labelled(page, "API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("That key was refused")).to_be_visible()
        labelled(page, "API key").fill("open sesame")
        page.get_by_role("button", name="Go on").click()
        labelled(page, "Text to translate").fill("seven")
        expect(page.locator(".output")).to_have_text("sieben")
        page.reload()
        expect(page.locator(".panes")).to_be_visible()
        page.context.close()


def answering(status: int, headers: dict[str, str], message: str) -> Callable[[Route], None]:
    body = f'{{"error": {{"type": "busy", "message": "{message}", "field": null}}}}'
    return lambda route: route.fulfill(status=status, headers=headers, content_type="application/json", body=body)


def test_a_busy_server_is_asked_again_after_the_time_it_names(visit: Opener, faults: list[str]) -> None:
    faults.append("status of 429")
    page = visit("translate")
    page.locator(".panes").wait_for()
    page.route("**/api/translate", answering(429, {"Retry-After": "1"}, "too many"), times=1)
    labelled(page, "Text to translate").fill("seven")
    expect(page.locator(".status.busy")).to_contain_text("1 s")
    expect(page.locator(".output")).to_have_text("sieben")


def test_an_error_is_shown_in_the_servers_words_and_can_be_tried_again(visit: Opener, faults: list[str]) -> None:
    faults.append("status of 503")
    page = visit("translate")
    page.locator(".panes").wait_for()
    page.route("**/api/translate", answering(503, {}, "translate: no model was free <b>in time</b>"), times=1)
    labelled(page, "Text to translate").fill("seven")
    expect(page.locator(".status.failed")).to_contain_text("no model was free <b>in time</b>")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".output")).to_have_text("sieben")


def test_a_text_that_is_too_long_cannot_be_typed(visit: Opener, words_model: Path) -> None:
    with running({"words": words_model}, Limits(text=10)) as small:
        page = visit("translate", address=small.address)
        labelled(page, "Text to translate").press_sequentially("seven seven seven")
        expect(labelled(page, "Text to translate")).to_have_value("seven seve")
        expect(page.locator(".count")).to_have_text("10 / 10 · full, more is left out")
        page.context.close()


def test_a_server_that_is_gone_is_told_from_one_that_refuses(visit: Opener, faults: list[str]) -> None:
    faults.append("ERR_FAILED")
    page = visit("translate")
    page.locator(".panes").wait_for()
    page.route("**/api/translate", lambda route: route.abort())
    labelled(page, "Text to translate").fill("seven")
    expect(page.locator(".status.failed")).to_contain_text("does not answer")


def test_an_answer_that_breaks_off_is_told_and_what_is_seen_turns_grey(visit: Opener) -> None:
    page = visit("translate")
    field, output = labelled(page, "Text to translate"), page.locator(".output")
    field.fill("seven")
    expect(output).to_have_text("sieben")
    page.route(
        "**/api/translate", lambda route: route.fulfill(body='{"translations": [', content_type="application/json")
    )
    field.fill("eight")
    expect(page.locator(".status.failed")).to_contain_text("does not answer")
    expect(output).to_have_css("opacity", "0.55")  # it is of another text
    page.unroute("**/api/translate")
    page.get_by_role("button", name="Try again").click()
    expect(output).to_have_text("acht")
    expect(output).to_have_css("opacity", "1")


def test_a_text_that_breaks_off_while_it_is_written_is_told(visit: Opener) -> None:
    page = visit("explore", "babble")
    text = labelled(page, "The text so far")
    text.fill("seven")
    part = 'data: {"text": " eight"}\n\n'
    page.route("**/api/generate", lambda route: route.fulfill(body=part, content_type="text/event-stream"))
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".generating [role=status]")).to_contain_text("does not answer")
    expect(text).to_have_value("seven eight")
    expect(text).to_be_editable()


@pytest.mark.parametrize("name", ["everyday-en-de", "everyday-de-en"])
def test_the_shipped_models_begin_with_sentences_they_translate_well(visit: Opener, name: str) -> None:
    good = {
        "If it rains tomorrow, we will stay at home.": "Wenn es morgen regnet, bleiben wir zu Hause.",
        "Where is the train station?": "Wo ist der Bahnhof?",
        "She has been living in Berlin for three years.": "Sie lebt seit drei Jahren in Berlin.",
        "Wenn es morgen regnet, bleiben wir zu Hause.": "If it rains tomorrow, we'll stay home.",
        "Wo ist der Bahnhof?": "Where is the train station?",
        "Ich hätte gern ein Zimmer für zwei Nächte.": "I'd like a room for two nights.",
    }
    with running({name: shipped.path(name)}) as served:
        page = visit("translate", model=name, address=served.address)
        expect(page.locator(".examples button")).to_have_count(3)
        texts = page.locator(".examples button").all_inner_texts()
        assert texts == [text for text in good if text in texts]
        assert served.desk.find(name).model.translate(texts) == [good[text] for text in texts]
        page.locator(".examples button").first.click()
        expect(page.locator(".output")).to_contain_text(good[texts[0]])
        # The other views begin in the language that the model reads, too.
        for view in ("attention", "beam", "walk"):
            fresh = visit(view, model=name, address=served.address)
            expect(fresh.locator("textarea").first).to_have_value(texts[0])
            fresh.context.close()  # what it still asks for must not find the server gone
        page.context.close()
