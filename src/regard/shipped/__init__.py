"""Models that come with Regard, to translate, write and look at something before anything is trained.

Each is a model folder (see `regard.folder`) inside this package: the translators have 8 bits a weight, the writer 16. A
copy of Regard may come without any of them. Wherever a model folder is asked for, a shipped model can be called by its
name.
"""

from __future__ import annotations

from pathlib import Path

from regard.files import MANIFEST

PLACE = Path(__file__).parent
ORDER = ("everyday-en-de", "everyday-de-en", "writer")
"""All there may be. The first that can answer is asked, so the one most people try stands first."""


def names() -> list[str]:
    """The names of the models that are here."""
    return [name for name in ORDER if (path(name) / MANIFEST).is_file()]


def path(name: str) -> Path:
    """The folder of a shipped model."""
    return PLACE / name


def called(place: Path) -> str:
    """What a model folder is called on a command line: a shipped one by its name, any other by its place."""
    return next((name for name in names() if place == path(name)), str(place))


def resolve(place: str | Path) -> Path:
    """The folder that is meant by `place`: itself, or a shipped model's where there is nothing of this name."""
    place = Path(place)
    return path(str(place)) if str(place) in names() and not place.exists() else place
