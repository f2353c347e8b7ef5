"""The READMEs cannot drift: the map is the territory, and both languages say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from regard.cli import app

from .pages import DOCS, ROOT, blocks, prose

READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
ENGLISH, CHINESE = READMES
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
SOURCE = ROOT / "src/regard"
MAPPED = {".py", ".html", ".css", ".js", ".toml"}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ENTRY = re.compile(r"^- \[`([^`]+)`\]\((src/regard/[^)]+)\)[:：] ?(\S.*)$", re.MULTILINE)


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose(page), flags=re.MULTILINE)


def mapped(page: Path) -> list[str]:
    """The files of the map, in its order."""
    return [target for _, target, _ in ENTRY.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_map_lists_every_file_once_and_no_other(page: Path) -> None:
    # What a shipped model's folder holds is described in docs/model-folder.md.
    files = {str(file.relative_to(ROOT)) for file in SOURCE.rglob("*") if file.suffix in MAPPED
             and SOURCE / "shipped" not in file.parents[1:]}  # fmt: skip
    found = mapped(page)
    assert files - set(found) == set(), "write a line for each of these in the map of both READMEs"
    assert set(found) - files == set(), "these are no longer there; remove them from the map of both READMEs"
    assert len(found) == len(files)


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_an_entry_is_named_as_its_file(page: Path) -> None:
    for name, target, _ in ENTRY.findall(page.read_text(encoding="utf-8")):
        # A package's line stands for its __init__.py.
        path = target.removeprefix("src/regard/")
        assert name == (path.removesuffix("__init__.py") if "/" in path and path.endswith("__init__.py") else path)


def test_the_map_goes_upwards() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    ranks = {name.strip(): rank for rank, line in enumerate(reversed(contract)) for name in line.split("|")}
    places = [Path(target).relative_to("src/regard").parts[0].removesuffix(".py") for target in mapped(ENGLISH)]
    order = [ranks[name] for name in places if name in ranks]
    assert order == sorted(order)


def test_both_languages_show_the_same_commands_files_and_headings() -> None:
    shown = [[(block.language, block.text) for block in blocks(page, "sh", "python")] for page in READMES]
    assert shown[0] == shown[1]
    assert mapped(ENGLISH) == mapped(CHINESE)
    assert headings(ENGLISH) == headings(CHINESE)
    assert "README.zh-CN.md" in LINK.findall(prose(ENGLISH))
    assert "README.md" in LINK.findall(prose(CHINESE))


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_a_reader_finds_what_came_of_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    today, more = text.split("\n## ")[4], text.split("\n## ")[-1]
    assert {"docs/results.md", "docs/reproduce.md", "docs/heads.md"} <= set(LINK.findall(today)) & set(
        LINK.findall(more)
    )


def test_both_languages_link_the_same_pages() -> None:
    assert set(LINK.findall(prose(ENGLISH))) ^ set(LINK.findall(prose(CHINESE))) == {"README.md", "README.zh-CN.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if not link.startswith(("https://", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_recipes_with_a_usual_course_are_counted(page: Path) -> None:
    bands = sorted((SOURCE / "recipes/bands").glob("*.toml"))
    single = [band for band in bands if len(tomllib.loads(band.read_text(encoding="utf-8"))["seeds"]) == 1]
    counts = {"recipes": len(list((SOURCE / "recipes").glob("*.toml"))), "bands": len(bands), "single": len(single)}
    said = {
        ENGLISH: "{bands} of the {recipes} recipes have a [usual course](docs/training.md#the-usual-course) to be held "
        "against, {single} of these from one run.",
        CHINESE: "{recipes} 个配方中有 {bands} 个带有可供对照的[通常进程](docs/training.md#the-usual-course)（英文），"
        "其中 {single} 个只来自一次训练。",
    }
    assert said[page].format(**counts) in " ".join(page.read_text(encoding="utf-8").split())


def test_the_changelog_names_every_command() -> None:
    (line,) = re.findall(r"^- The commands ((?:.|\n  )+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == set(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_commands_that_are_spoken_of_exist(page: Path) -> None:
    spoken = set(re.findall(r"`regard (\w+)", prose(page)))
    assert {"serve", "generate", "classify", "verify"} <= spoken
    assert spoken <= set(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    lines = [line for page in (ENGLISH, ROOT / "CONTRIBUTING.md") for block in blocks(page, "sh")
             for line in block.text.strip().split("\n")]  # fmt: skip
    assert lines
    for line in lines:
        program, name, *rest = line.rpartition(" | ")[2].split()
        if program == "make":
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), line
            continue
        assert program == "regard"
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, line
