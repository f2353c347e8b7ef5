"""Texts with labels: the settings of such corpora, and from their files to pairs of a text and its labels.

    labelled    a table: a text, a tab, its label
    classes     files of plain text, one or several for each label
    tagged      a word and its tag on each line, and an empty line after each sentence
    restoring   plain text, from which capitals and punctuation are taken, to be told by tags

In a pair the text is the source and the label the target; of several, one for each word, with spaces between them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Literal

from regard.data.formats import (
    BLOCK,
    Block,
    Repairs,
    Split,
    alone,
    find_files,
    format_by_name,
    table_blocks,
    text_blocks,
)
from regard.data.spreadsheets import csv_blocks
from regard.errors import DataError
from regard.settings import check_words
from regard.settings.bounds import check_at_least
from regard.text.restoring import TAGS, bare

LONGEST = 2_000  # words of a tagged sentence
DOCUMENT = "-DOCSTART-"  # begins the line between two documents in CoNLL's files
Answers = Literal["text", "words"]
"""What has a label: a whole text, or each of its words."""


# ---- settings


@dataclass(frozen=True)
class Labelled:
    """Texts with one label each, in tables: by default the text, a tab, and the label."""

    table: str
    """A file, a folder or a pattern with `*`."""
    kind: Literal["labelled"] = "labelled"
    valid: str | None = None
    test: str | None = None
    columns: tuple[int, int] = (1, 2)
    """Of the text and of the label, counted from 1."""

    def __post_init__(self) -> None:
        check_words(self)
        _check_columns(self.columns)


@dataclass(frozen=True)
class Class:
    """Texts that have one label, one on each line."""

    label: str
    text: str
    """A file, a folder or a pattern with `*`."""
    column: int | None = None
    """In which column of a table with tabs they are, counted from 1; unless given, lines are texts."""
    most: int | None = None
    """Take at most so many, chosen by their text."""

    def __post_init__(self) -> None:
        check_at_least(1, self, "column", "most")
        if not self.label.strip() or "\t" in self.label or "\n" in self.label:
            raise ValueError(f"`label` must be a word or some, but is {self.label!r}")


@dataclass(frozen=True)
class Classes:
    """Files of plain text, each of one label. A text that occurs twice under a label counts once."""

    classes: tuple[Class, ...]
    kind: Literal["classes"] = "classes"
    held_out: int = 1_000
    """So many texts of each label are for validation, and as many for test; of few texts a tenth."""

    def __post_init__(self) -> None:
        check_words(self)
        if len({one.label for one in self.classes}) < 2:
            raise ValueError("`classes` must have at least 2 labels, but have fewer; add [[data.classes]]")
        check_at_least(1, self, "held_out")


@dataclass(frozen=True)
class Tagged:
    """Words with a tag each: on every line the word first and the tag last, and an empty line after each sentence."""

    words: str
    """A file, a folder or a pattern with `*`."""
    kind: Literal["tagged"] = "tagged"
    valid: str | None = None
    test: str | None = None
    columns: tuple[int, int] | None = None
    """Of the word and of the tag, counted from 1, with tabs between them, as in CoNLL-U, where they are [2, 4]."""

    def __post_init__(self) -> None:
        check_words(self)
        if self.columns is not None:
            _check_columns(self.columns)


@dataclass(frozen=True)
class Restoring:
    """Plain text, one sentence a line, of which capitals and punctuation are to be told."""

    text: str
    """A file, a folder or a pattern with `*`."""
    kind: Literal["restoring"] = "restoring"
    valid: str | None = None
    test: str | None = None
    most: int | None = None
    """Train on so many lines of each file, from its beginning."""

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "most")


LabelSources = Labelled | Classes | Tagged | Restoring


def _check_columns(columns: tuple[int, int]) -> None:
    if min(columns) < 1 or columns[0] == columns[1]:
        raise ValueError(f"`columns` must be two different ones, counted from 1, but are {list(columns)}")


def answers_of(settings: object) -> Answers | None:
    """What has a label in a corpus of these settings; None where nothing has."""
    if isinstance(settings, Labelled | Classes):
        return "text"
    return "words" if isinstance(settings, Tagged | Restoring) else None


def place_of(settings: LabelSources) -> str:
    """Where the training examples are, to name the corpus."""
    match settings:
        case Labelled():
            return settings.table
        case Classes():
            return " + ".join(dict.fromkeys(one.text for one in settings.classes))
        case Tagged():
            return settings.words
        case Restoring():
            return settings.text


def expected_labels(settings: object) -> int:
    """How many labels a corpus has, before it is read; where its files have to say it, the fewest there can be."""
    if isinstance(settings, Classes):
        return len({one.label for one in settings.classes})
    return len(TAGS) if isinstance(settings, Restoring) else 2


# ---- reading


def splits(settings: LabelSources) -> dict[str, Split]:
    """The splits there are: `train`, and `valid` and `test` where they are named or held out."""
    if isinstance(settings, Classes):
        sorted_out = cache(partial(_sort_out, settings))
        return {
            "train": Split(partial(_kept, sorted_out, "train"), alone(partial(_files_of_classes, settings))),
            "valid": Split(partial(_kept, sorted_out, "valid")),
            "test": Split(partial(_kept, sorted_out, "test")),
        }
    train = place_of(settings)
    places = {"train": train, "valid": settings.valid, "test": settings.test}
    return {
        split: Split(partial(read_labels, settings, place, split == "train"), alone(partial(find_files, place)))
        for split, place in places.items()
        if place is not None
    }


def read_labels(settings: LabelSources, place: str, training: bool, repairs: Repairs) -> Iterator[Block]:
    """The examples of a place that is as the training files are; for classes, a table."""
    for file in find_files(place):
        match settings:
            case Labelled():
                yield from map(_whole, _table(file, settings.columns, repairs))
            case Classes():
                yield from map(_whole, _table(file, (1, 2), repairs))
            case Tagged():
                yield from _tagged_blocks(file, settings.columns, repairs)
            case Restoring():
                yield from _restoring_blocks(file, settings.most if training else None, repairs)


def _table(file: str, columns: tuple[int, int], repairs: Repairs) -> Iterator[Block]:
    """Two columns of a table, as a spreadsheet program writes it if its name says so, or else with plain tabs."""
    return (csv_blocks if format_by_name(file) == "csv" else table_blocks)(file, columns, repairs)


def _whole(block: Block) -> Block:
    """Without empty lines; a text without a label is a mistake."""
    texts, labels = [], []
    for number, (text, label) in enumerate(zip(block.sources, block.targets, strict=True), block.first):
        label = label.strip()
        if bool(text.strip()) != bool(label):
            missing = "text" if label else "label"
            raise DataError(
                f"{block.file}, line {number:,}: must have a text and a label, but has no {missing}. Mend the line."
            )
        if label:
            texts.append(text)
            labels.append(label)
    return Block(block.file, block.first, texts, labels)


def _word_and_tag(line: str, columns: tuple[int, int] | None, place: str) -> tuple[str, str] | None:
    """What a line has; None for one without words."""
    if columns is None:
        parts = line.split()
        if not parts or parts[0] == DOCUMENT:
            return None
        if parts[0] == "#" and "=" in parts:
            raise DataError(
                f"{place}: must be a word and its tag, but is a comment of CoNLL-U. Say which columns to read, as "
                "data.columns=[2,4]."
            )
        if len(parts) == 1:
            raise DataError(f"{place}: must be a word and its tag, or empty, but is only {parts[0]!r}. Mend the line.")
        return parts[0], parts[-1]
    parts = line.split("\t")
    # Comments, words that are two (“1-2”), and words that nobody wrote (“1.1”).
    if not line.strip() or (line.startswith("#") and len(parts) == 1) or re.fullmatch(r"\d+[-.]\d+", parts[0]):
        return None
    if len(parts) < max(columns):
        raise DataError(
            f"{place}: must have at least {max(columns)} columns with tabs between them, but has {len(parts)}. Mend "
            "the line, or choose other `columns`."
        )
    # Words are kept with spaces between them, so that one must not have any: in CoNLL-U a number may, as “10 000”.
    word, tag = ("_".join(parts[column - 1].split()) for column in columns)
    if not word or not tag:
        raise DataError(f"{place}: must have a word and a tag, but has no {'tag' if word else 'word'}. Mend the line.")
    return word, tag


def _tagged_blocks(file: str, columns: tuple[int, int] | None, repairs: Repairs) -> Iterator[Block]:
    sentences: list[tuple[str, str]] = []
    words: list[str] = []
    tags: list[str] = []
    first, number = 1, 0
    for block in text_blocks(file, repairs):
        for number, line in enumerate(block.targets, block.first):
            found = _word_and_tag(line, columns, f"{file}, line {number:,}")
            if found is not None:
                words.append(found[0])
                tags.append(found[1])
                if len(words) > LONGEST:
                    raise DataError(
                        f"{file}, line {number:,}: a sentence must have at most {LONGEST:,} words, but this one has "
                        "more. Put an empty line after each sentence."
                    )
            elif words and not line.strip():
                sentences.append((" ".join(words), " ".join(tags)))
                words, tags = [], []
        if sentences:
            yield Block(file, first, [text for text, _ in sentences], [found for _, found in sentences])
            sentences, first = [], number + 1
    if words:
        yield Block(file, first, [" ".join(words)], [" ".join(tags)])


def _restoring_blocks(file: str, most: int | None, repairs: Repairs) -> Iterator[Block]:
    left = most
    for block in text_blocks(file, repairs):
        lines = block.targets if left is None else block.targets[:left]
        found = [(words, tags) for words, tags in map(bare, lines) if words]
        yield Block(file, block.first, [" ".join(words) for words, _ in found], [" ".join(tags) for _, tags in found])
        if left is not None:
            left -= len(lines)
            if left <= 0:
                return


# ---- classes


def _files_of_classes(settings: Classes) -> list[str]:
    return list(dict.fromkeys(file for one in settings.classes for file in find_files(one.text)))


def _sort_out(settings: Classes) -> Mapping[str, list[tuple[str, str]]]:
    """Every text and its label, by split: of each label those with the smallest keys are for test, then validation."""
    labels: dict[str, dict[str, bytes]] = {}
    for one in settings.classes:
        ranked = sorted(_keys(one).items(), key=lambda entry: entry[1])
        labels.setdefault(one.label, {}).update(islice(ranked, one.most))
    found: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for label, keys in labels.items():
        texts = sorted(keys, key=lambda text: keys[text])
        if len(texts) < 3:
            raise DataError(
                f"data.classes: there must be at least 3 different texts of each label, to train, to validate and to "
                f"test, but of {label!r} there are {len(texts)}. Give more."
            )
        held = min(settings.held_out, max(1, len(texts) // 10))
        found["test"] += [(text, label) for text in texts[:held]]
        found["valid"] += [(text, label) for text in texts[held : 2 * held]]
        found["train"] += [(text, label) for text in texts[2 * held :]]
    return found


def _keys(one: Class) -> dict[str, bytes]:
    """The different texts of a class, and a hash of each."""
    texts: dict[str, bytes] = {}
    for file in find_files(one.text):
        if one.column is None:
            lines = (line for block in text_blocks(file, Repairs()) for line in block.targets)
        else:
            both = one.column, one.column
            lines = (line for block in _table(file, both, Repairs()) for line in block.sources)
        for line in lines:
            if line not in texts and line.strip():
                texts[line] = hashlib.blake2b(line.encode(errors="surrogatepass"), digest_size=8).digest()
    return texts


def _kept(
    sorted_out: Callable[[], Mapping[str, list[tuple[str, str]]]], split: str, repairs: Repairs
) -> Iterator[Block]:
    examples = sorted_out()[split]
    for first in range(0, len(examples), BLOCK):
        some = examples[first : first + BLOCK]
        yield Block(split, first + 1, [text for text, _ in some], [label for _, label in some])
