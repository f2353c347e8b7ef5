"""The settings of a corpus: which files it is in, and how they are to be read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.data.filters import Filters
from regard.data.formats import KEYS, STDIN, Format, format_by_name
from regard.data.generated import Generated
from regard.data.guesses import language_of
from regard.data.labelled import Classes, Labelled, Restoring, Tagged
from regard.music import chorale
from regard.music.encoding import Encoding
from regard.settings import check_words

LANGUAGE = re.compile("[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")


@dataclass(frozen=True)
class Files:
    """A corpus in files: line n of `target` translates line n of `source`, or one file holds both.

    A place is a file, a folder, a pattern with `*`, or `-` for the standard input. Without a validation pair of its
    own, some training sentences are held out, chosen by their source text.
    """

    source: str
    target: str | None = None
    kind: Literal["files"] = "files"
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    format: Format | None = None
    columns: tuple[int, int] = (1, 2)
    keys: tuple[str, str] = KEYS
    source_language: str | None = None
    target_language: str | None = None
    filters: Filters = Filters()

    def __post_init__(self) -> None:
        for split in ("", "valid_", "test_"):
            source, target = getattr(self, f"{split}source"), getattr(self, f"{split}target")
            if (source is None) != (target is None) and not (source and self.format_of(source)):
                raise ValueError(
                    f"`{split}source` and `{split}target` must be given together, but one is missing; a file that "
                    "holds both sides is named *.tsv, *.csv, *.jsonl or *.tmx, or `format` says which it is"
                )
        if self.format is not None and self._all_in_two_files():
            raise ValueError(
                f'`format` is for a file that holds both sides, but is "{self.format}" while `target` names a file for '
                "the other side; leave one of them out"
            )
        if self.source == self.target == STDIN:
            raise ValueError(f"`source` and `target` must not both be `{STDIN}`; use one file with both sides")
        if min(self.columns) < 1:
            raise ValueError(f"`columns` must be counted from 1, but are {list(self.columns)}")
        for name in ("source_language", "target_language"):
            _check_language(name, getattr(self, name))

    @property
    def by_name(self) -> tuple[str | None, str | None]:
        """The languages that the files' names end in, as in a.en and a.fr, where they differ and settings name none."""
        if self.target is None or self.source_language or self.target_language:
            return None, None
        source, target = (language_of(Path(place)) for place in (self.source, self.target))
        return (source, target) if source and target and source != target else (None, None)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """Those of source and target, as settings name them, or as the files' names end."""
        return self.by_name if any(self.by_name) else (self.source_language, self.target_language)

    def format_of(self, place: str) -> Format | None:
        """How a file holds both sides; None where nothing says."""
        return self.format or format_by_name(place)

    def _all_in_two_files(self) -> bool:
        """Whether every split that is given has a file for each side."""
        splits = [(self.source, self.target), (self.valid_source, self.valid_target)]
        splits.append((self.test_source, self.test_target))
        return all(target is not None for source, target in splits if source is not None)


@dataclass(frozen=True)
class Mixture:
    """Several corpora, of one pair of languages or of many, each with its share of every epoch.

    A corpus of n pairs has a share in proportion to its weight times n^(1/temperature): at 1 by size, at a large
    temperature alike. The shares come about by repetition; every pair occurs at least once.
    """

    corpora: tuple[Files, ...]
    kind: Literal["mixture"] = "mixture"
    temperature: float = 1.0
    weights: tuple[float, ...] = ()
    tag_target: bool = False

    def __post_init__(self) -> None:
        if not self.corpora:
            raise ValueError("`corpora` must hold at least one corpus, but is empty; add [[data.corpora]]")
        if not 1 <= self.temperature < math.inf:
            raise ValueError(f"`temperature` must be at least 1, but is {self.temperature}")
        if self.weights and (len(self.weights) != len(self.corpora) or not all(0 < w < math.inf for w in self.weights)):
            raise ValueError(
                f"`weights` must be {len(self.corpora)} numbers above 0, one a corpus, but are {list(self.weights)}"
            )
        for number, corpus in enumerate(self.corpora):
            if STDIN in (corpus.source, corpus.target):
                raise ValueError(f"`corpora[{number}]` must be in files, which can be read again, but is `{STDIN}`")
            if self.tag_target and corpus.target_language is None:
                raise ValueError(f"`corpora[{number}].target_language` must be set for `tag_target`, but is missing")


@dataclass(frozen=True)
class Text:
    """Plain text for a language model, line by line; a place is as for `files`. Only damaged lines are dropped.

    Without validation text of its own, the last lines are held out.
    """

    text: str
    kind: Literal["text"] = "text"
    valid: str | None = None
    test: str | None = None
    language: str | None = None
    held_out: float | None = None
    """The share of the text that is held out, from its end; unless given, some lines."""

    def __post_init__(self) -> None:
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise ValueError(f"`held_out` must be above 0 and below 1, but is {self.held_out}")
        if self.held_out is not None and self.valid is not None:
            raise ValueError(f"`held_out` must be left out where `valid` is given, but is {self.held_out}")
        _check_language("language", self.language)


@dataclass(frozen=True)
class Elsewhere:
    """What an imported model was trained on: not known here. There is nothing to read."""

    origin: str
    """Where the model was imported from."""
    kind: Literal["elsewhere"] = "elsewhere"


@dataclass(frozen=True)
class Music:
    """Music for a language model, piece by piece: MIDI files, or chorales as JSON.

    A place is a MIDI file, a folder of them (with the folders inside it), a `.tar` of them, or a `.json` of chorales,
    compressed or not. A JSON file may hold its own validation and test pieces. Of MIDI files some folders are held
    out if there are no such files, so that all performances of a piece stand on one side.
    """

    music: str
    kind: Literal["music"] = "music"
    encoding: Encoding = "performance"
    grid: int = chorale.STEPS
    """Of chorales, how many steps there are in a quarter note: 4 are sixteenths."""
    valid: str | None = None
    test: str | None = None
    transpose: int = 0
    """Each training piece is there in its own key, and in those up to so many semitones higher and lower."""

    def __post_init__(self) -> None:
        check_words(self)
        chorale.check_grid(self.grid)
        if not 0 <= self.transpose <= 12:
            raise ValueError(f"`transpose` must be from 0 to 12 semitones, but is {self.transpose}")


CorpusSettings = Generated | Files | Mixture | Text | Music | Labelled | Classes | Tagged | Restoring | Elsewhere


def _check_language(name: str, language: str | None) -> None:
    if language is not None and not LANGUAGE.fullmatch(language):
        raise ValueError(f"`{name}` must be a code such as `de` or `zh-Hans`, but is `{language}`")
