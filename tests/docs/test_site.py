"""The documentation builds without a warning, holds every page, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import DOCS, ROOT

pytest.importorskip("mkdocs", reason="the docs extra is not installed")

# What a browser fetches by itself: scripts, pictures, style sheets, icons, imports; not links a reader may click.
FETCHED = re.compile(r"""(?:\bsrc=|<link[^>]*\bhref=|url\(|@import\s+)["']?(?:https?:)?//[^"')\s>]*""")


def test_the_site(tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    build(config)  # `strict` makes a warning an error, and mkdocs.yml makes a page outside the menu a warning
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / page.relative_to(DOCS)).with_suffix(".html").is_file()
    for file in tmp_path.rglob("*"):
        if file.suffix in {".html", ".css"}:
            fetched = FETCHED.findall(file.read_text(encoding="utf-8"))
            assert fetched == [], f"{file.relative_to(tmp_path)} fetches {fetched}"


def test_the_first_page_leads_to_what_people_look_for() -> None:
    table = (DOCS / "index.md").read_text(encoding="utf-8").partition("## Where to go")[2]
    wanted = ("tutorial", "shipped", "translate", "generate", "view", "serve", "page", "results", "reproduce")
    assert [name for name in wanted if f"]({name}.md)" not in table] == []
