"""The Music view in a real browser: a piece is written, played, walked through and saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs playwright")
pytest.importorskip("symusic", reason="needs symusic")

from playwright.sync_api import Browser, Page, expect

from regard.music.midi import read_midi
from regard.serve.limits import Limits
from tests.exploring.test_composing import music_model
from tests.music.scores import SCALE
from tests.serve.running import Running, running
from tests.serve.test_page import AXE, CHROMIUM, browser  # noqa: F401

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.fixture(scope="module")
def bach(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running({"bach": music_model(tmp_path_factory.mktemp("bach"), "chorale")}, Limits(tokens=80)) as server:
        yield server


@pytest.fixture
def page(browser: Browser, bach: Running) -> Iterator[Page]:  # noqa: F811
    """The page as it opens for a model of music; at the end it has complained of nothing."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en")
    context.set_default_timeout(10_000)
    page, found = context.new_page(), []
    page.on("console", lambda message: found.append(message.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda request: request.url.startswith((bach.address, "blob:")) or found.append(request.url))
    page.goto(bach.address)
    yield page
    context.close()
    # A browser also tells of what a server refuses.
    assert [fault for fault in found if "status of 400" not in fault] == []


def write(page: Page) -> None:
    page.get_by_role("button", name="Write a piece").click()
    expect(page.locator(".roll .note").first).to_be_visible()


def test_a_piece_is_written_played_and_saved(page: Page, tmp_path: Path) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("Music")
    expect(page.locator("nav#nav a")).to_have_text(["Music", "Explore", "Attention", "Walk through", "Inside"])
    expect(page.locator(".readout")).to_have_text("Write a piece to hear and see it.")
    write(page)
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("slider", name="Time")).not_to_have_value("0")
    page.get_by_role("button", name="Pause").click()
    place = page.locator(".playhead").get_attribute("x1")
    page.wait_for_timeout(200)
    assert page.locator(".playhead").get_attribute("x1") == place
    with page.expect_download() as download:
        page.get_by_role("button", name="Save MIDI").click()
    download.value.save_as(tmp_path / "out.mid")
    assert len(read_midi((tmp_path / "out.mid").read_bytes()).notes) == page.locator(".roll .note").count()


def test_lines_of_a_note_by_keyboard_and_without_a_head(page: Page, tmp_path: Path) -> None:
    (tmp_path / "in.mid").write_bytes(SCALE)
    page.get_by_label("Go on from a MIDI file").set_input_files(tmp_path / "in.mid")
    expect(page.get_by_text("in.mid")).to_be_visible()
    # Browsers write the name of the file themselves; it is enough to read it once.
    assert page.locator("input[type=file]").evaluate("({ value, clientWidth }) => value === '' && clientWidth <= 1")
    write(page)
    assert page.locator(".roll .primed").count() == 4
    page.locator(".roll").focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("F4, 2.3 s")
    frame = page.locator(".roll .frame")
    expect(frame).to_have_count(1)
    colours = {line.evaluate("line => getComputedStyle(line).stroke") for line in page.locator(".look").all()}
    assert frame.evaluate("note => getComputedStyle(note).stroke") not in colours
    assert frame.evaluate("frame => frame.nextElementSibling.matches('.chosen:has(+ .looks)')")  # above the neighbours
    drawn = page.locator(".look").count()
    # Two heads with two lines each, to three notes: some look at the same one, and are seen nevertheless.
    assert drawn == len({line.get_attribute("d") for line in page.locator(".look").all()}) == 4
    page.get_by_role("button", name="Head 1").click()
    assert page.locator(".look.head-0").count() == 0
    assert page.locator(".look").count() < drawn


def test_a_bad_primer_is_told(page: Page, tmp_path: Path) -> None:
    (tmp_path / "in.mid").write_bytes(b"nothing")
    page.get_by_label("Go on from a MIDI file").set_input_files(tmp_path / "in.mid")
    page.get_by_role("button", name="Write a piece").click()
    expect(page.get_by_role("status").filter(has_text="must be a MIDI file")).to_be_visible()


def test_no_view_begins_with_words_that_mean_nothing_to_it(page: Page) -> None:
    for view, said in (("attention", ".written"), ("walk", ".walk-words")):
        page.goto(f"{page.url.partition('#')[0]}#{view}")
        expect(page.locator(said)).to_have_text("Write a sentence above.")
        expect(page.locator("textarea")).to_have_value("")
    page.goto(f"{page.url.partition('#')[0]}#explore")
    expect(page.locator(".bars.next li")).to_have_count(10)  # what a piece may begin with


@pytest.mark.skipif(not AXE, reason="needs axe-core, named by REGARD_AXE")
def test_nothing_keeps_anybody_out(page: Page) -> None:
    write(page)
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["impact"]) for one in found if one["impact"] in ("serious", "critical")] == []
