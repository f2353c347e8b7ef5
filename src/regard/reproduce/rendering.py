"""The table of a study, from the results that are there: Markdown to paste, JSON for programs, and pictures.

OUT/table3.md          ours beside the paper's, rank correlations, and how it was made
OUT/table3.json        the same as plain values
OUT/NAME.svg           BLEU against the length of the source, for a study that looks at it
OUT/NAME-learning.svg  the training loss against the tokens read, for the same studies and those with groups of rows
OUT/NAME-order.svg     the order of our rows beside the paper's, for a study of its figures
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.bands.decisive import within
from regard.counts import so_many
from regard.files import write_file
from regard.reproduce.outcome import MEASURES, TITLES, Outcome, read_row
from regard.reproduce.ranks import spearman
from regard.reproduce.study import Row, Study, changes_corpus, replaces_corpus
from regard.settings import override
from regard.viewing.curves import Axis, Curve, Plot, curves_svg, plots_svg
from regard.viewing.orders import Placed, orders_svg

SHOWN_OF_CHECKSUM = 12
LEARNING, ORDER = "-learning", "-order"  # how the names of further pictures end
ALTS = {
    "": "BLEU against the length of the source",
    LEARNING: "Training loss against the tokens read",
    ORDER: "The paper's order of the rows beside ours",
}
MARKERS = 8  # of a curve, about
READ, LOSS = Axis("tokens read, millions", zero=True), "training loss in nats a token"
BEGINNING = 8  # of a plot of a group, an eighth of the steps is left out: the first
TOLD_APART = 10  # a group of more rows than this is not plotted
RANKED = ("dev perplexity", "dev BLEU", "test BLEU")
LABELLED = ("model", "tokenizer", "training.label_smoothing")  # what labels and numbers of parameters are of
LEAST = 3  # rows in an order: of two, it is the same or the reverse, whatever they are


@dataclass(frozen=True)
class Correlation:
    """How well the order of our rows agrees with the paper's, by one measure."""

    measure: str
    among: str
    """Which rows are compared."""
    rows: int
    value: float | None
    """Spearman's; None where there is no order to compare: too few rows, or all alike."""


@dataclass(frozen=True)
class Table:
    """A study and what is known of its rows."""

    study: Study
    rows: tuple[Row, ...]
    """Those it is about."""
    outcomes: dict[str, Outcome]
    """By the name of a row."""

    @classmethod
    def read(cls, study: Study, out: Path, rows: Sequence[Row] | None = None) -> Table:
        """What the folder of a study holds, of all rows or of these."""
        rows = tuple(study.rows if rows is None else rows)
        found = {row.name: read_row(out / row.name, study.name, row.name) for row in rows}
        done = {name: outcome for name, outcome in found.items() if outcome is not None}
        return cls(study, rows, done)

    @property
    def missing(self) -> list[str]:
        """The rows that are not done."""
        return [row.name for row in self.rows if row.name not in self.outcomes]

    def correlations(self) -> list[Correlation]:
        """The order of our figures beside that of the paper's, where it printed any: of all rows, and in groups."""
        done = {row.name for row in self._done()}
        whole = {among: names for among, names in self.study.groups.items() if done.issuperset(names)}
        groups = {"all rows" if len(done) == len(self.study.rows) else "these rows": tuple(done), **whole}
        found = []
        for among, names in groups.items():
            for measure in self._ranked():
                pairs = [pair for name, pair in self._pairs(measure).items() if name in names]
                theirs, ours = [paper for paper, _ in pairs], [own for _, own in pairs]
                value = spearman(theirs, ours) if len(pairs) >= LEAST else None
                found.append(Correlation(measure, among, len(pairs), value))
        return found

    @property
    def title(self) -> str:
        """What the study is about; it names the study's corpus only where that was used."""
        elsewhere = self._elsewhere()
        if elsewhere and len(elsewhere) == len(self.outcomes):
            return f"{self.study.sentence.removesuffix(self.study.corpus)}, on another corpus"
        return self.study.sentence + (f" (but another corpus: {', '.join(elsewhere)})" if elsewhere else "")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "study": self.study.name,
            "sentence": self.title,
            "rows": {row.name: {"paper": dict(row.paper), **self.outcomes[row.name].to_json()} for row in self._done()},
            "missing": self.missing,
            "correlations": [vars(each) for each in self.correlations()],
        }

    def to_markdown(self) -> str:
        """A section of a page; a sentence where there is nothing to fill one."""
        if not self.outcomes:
            some = "" if self.rows == self.study.rows else f" of {', '.join(self.missing)}"
            return f"{self.study.name}: nothing is done yet{some}.\n"
        parts = [f"## {self.title}", "\n".join(["```text", *self._commands(), "```"])]
        parts += [self._changed(), self._table(), self._correlated()]
        if self.rows == self.study.rows:  # the pictures beside the table are of all
            parts += [f"![{ALTS[ending]}]({self.study.name}{ending}.svg)" for ending in self.pictures()]
        parts += [self._lengths(), _how(list(self.outcomes.values()))]
        parts += [*self.study.notes, *(() if self._elsewhere() else self.study.corpus_notes)]
        if self.missing:
            parts.append(f"Not done: {', '.join(self.missing)}.")
        return "\n\n".join(part for part in parts if part) + "\n"

    def pictures(self) -> dict[str, str]:
        """By the ending of its name, each picture there is something for."""
        return {**self._curves(), **self._orders(), **self._curves_by_group()}

    def _curves(self) -> dict[str, str]:
        """Those of studies that look at lengths; others have too many rows to be told apart."""
        if not self.study.lengths:
            return {}
        drawn = {
            "": (
                {name: tuple((each.words, each.bleu) for each in found.lengths)
                 for name, found in self.outcomes.items()},
                Axis("words of the source"), Axis("BLEU", zero=True),
            ),
            LEARNING: (
                {name: tuple(found.learning) for name, found in self.outcomes.items()},
                READ, Axis(LOSS, "log"),
            ),
        }  # fmt: skip
        found = {}
        for ending, (points, x, y) in drawn.items():
            # By the place in the study: a row looks the same in every picture, whichever others are there.
            curves = [
                Curve(row.what, kept, max(1, len(kept) // MARKERS), look)
                for look, row in enumerate(self.study.rows)
                if row in self._done() and (kept := points.get(row.name, ()))
            ]
            if curves:
                found[ending] = curves_svg(curves, self.title, x, y)
        return found

    def _curves_by_group(self) -> dict[str, str]:
        """How the rows of each group learned, after the first steps, in which all losses fall from the same height."""
        plots = []
        for among, names in self.study.groups.items():
            curves = []
            for row in self._done():
                learning = self.outcomes[row.name].learning
                if row.name in names and (kept := tuple(learning[len(learning) // BEGINNING :])):
                    curves.append(Curve(row.name, kept))
            if len(curves) > 1 and len(names) <= TOLD_APART:
                plots.append(Plot(tuple(curves), READ, Axis(among, "log")))
        return {LEARNING: plots_svg(plots, f"{self.study.name}: {LOSS}")} if plots else {}

    def _orders(self) -> dict[str, str]:
        """The picture of both orders, by the first measure that the paper printed, where there are any to compare."""
        for name in self._ranked():
            measure, pairs = MEASURES[name], self._pairs(name)
            things = [
                Placed(row, *pair, measure.paper_text(pair[0]), measure.text(pair[1])) for row, pair in pairs.items()
            ]
            if len(things) >= LEAST:
                title = f"{self.study.name}: {name}, the best on top"
                return {ORDER: orders_svg(things, title, "the paper's", "ours", "perplexity" in name)}
        return {}

    def _ranked(self) -> list[str]:
        """The measures that the paper printed figures of, for some of these rows, and that put rows in an order."""
        return [name for name in RANKED if any(name in row.paper for row in self.rows)]

    def _pairs(self, measure: str) -> dict[str, tuple[float, float]]:
        """The paper's figure and ours, by the name of a row, of those rows that have both."""
        return {
            row.name: (row.paper[measure], ours)
            for row in self._done()
            if measure in row.paper and (ours := MEASURES[measure].of(self.outcomes[row.name])) is not None
        }

    def _elsewhere(self) -> list[str]:
        """The rows that were made on another corpus than the study's."""
        return [name for name, found in self.outcomes.items() if changes_corpus(found.changes)]

    def _done(self) -> list[Row]:
        return [row for row in self.rows if row.name in self.outcomes]

    def _commands(self) -> list[str]:
        """What makes these rows again; one for each set of changes that some of them were made with."""
        commands = []
        for changes, names in self._alike().items():
            rows = [] if len(names) == len(self.study.rows) else ["--rows", ",".join(names)]
            data = [] if replaces_corpus(changes) else ["--data", "FOLDER"]
            # An option and its value are one change, but two words.
            asked = [word for each in changes for word in (each.split() if each.startswith("--") else [each])]
            commands.append(shlex.join(["regard", "reproduce", self.study.name, *rows, *data, *asked]))
        return commands

    def _changed(self) -> str:
        """Which rows have other settings than the study's, and which of these make their labels untrue."""
        sentences = []
        for changes, names in self._alike().items():
            if changes:
                sentences.append(
                    f"Made with other settings than the study's: {', '.join(names)} with `{' '.join(changes)}`."
                )
            own = [each for row in self._done() if row.name in names for each in row.overrides]
            if untrue := [each for each in changes if _changes_label(each, own)]:
                beside = any(row.paper for row in self._done() if row.name in names)
                paper = ", and than those that the paper's figures are of" if beside else ""
                sentences.append(f"With `{' '.join(untrue)}` these are other models than their labels say{paper}.")
        return " ".join(sentences)

    def _alike(self) -> dict[tuple[str, ...], list[str]]:
        """By what was changed of the study's settings, the rows that were made so."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, found in self.outcomes.items():
            alike.setdefault(tuple(found.changes), []).append(name)
        return alike

    def _table(self) -> str:
        """A line for each row; beside a measure that the paper prints stands the paper's."""
        rows, shown = self._done(), list(MEASURES.values())
        printed = {name for row in self.rows for name in row.paper}
        titles = ["row", "what"]
        for measure in shown:
            titles += [TITLES.get(measure.name, measure.name), *(["paper"] if measure.name in printed else [])]
        lines = [titles]
        for row in rows:
            cells = [f"`{row.name}`", row.what]
            for measure in shown:
                cells.append(measure.text(measure.of(self.outcomes[row.name])))
                if measure.name in printed:
                    cells.append(measure.paper_text(row.paper.get(measure.name)))
            lines.append(cells)
        return markdown_table(lines)

    def _correlated(self) -> str:
        """The correlations as a table: a line for each group, a column for each measure."""
        lines: dict[str, list[str]] = {}
        found = self.correlations()
        if found and all(each.value is None for each in found):
            return "The order of these rows cannot be compared with the paper's: they are too few, or all alike."
        for each in found:
            line = lines.setdefault(each.among, [each.among, str(each.rows)])
            line.append("" if each.value is None else f"{each.value:.2f}")
        if not lines:
            return ""
        titles = ["Spearman's rank correlation of ours with the paper's", "rows", *self._ranked()]
        return markdown_table([titles, *lines.values()])

    def _lengths(self) -> str:
        """BLEU by the length of the source, as a table; one for each test set, where rows have several."""
        tables: dict[tuple[str, ...], list[list[str]]] = {}
        for row in self._done():
            if found := self.outcomes[row.name].lengths:
                titles = tuple(f"{each.words:.0f} words ({so_many(each.lines, 'line')})" for each in found)
                tables.setdefault(titles, []).append([row.what, *(f"{each.bleu:.2f}" for each in found)])
        return "\n\n".join(
            markdown_table([["BLEU of sources of about", *titles], *lines]) for titles, lines in tables.items()
        )


def render(study: Study, out: Path) -> Table:
    """Write the table of a study beside its rows, from the results that are there; none where there are none."""
    table = Table.read(study, out)
    if not table.outcomes:
        return table
    write_file(out / f"{study.name}.md", table.to_markdown())
    write_file(out / f"{study.name}.json", json.dumps(table.to_json(), indent=2, ensure_ascii=False) + "\n")
    drawn = table.pictures()
    for ending in ALTS:
        place = out / f"{study.name}{ending}.svg"
        if ending in drawn:
            write_file(place, drawn[ending])
        else:
            place.unlink(missing_ok=True)  # of rows that are no longer there
    return table


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table, the first line being its heading."""
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(lines[0]), *rows[1:]])


def _changes_label(change: str, own: Sequence[str]) -> bool:
    """Whether a change is of what labels tell: the model, what it is trained to do, and a seed if a row has its own."""
    if change.startswith("--"):
        return False
    tells = [*LABELLED, *(["seed"] if any(each.startswith("seed=") for each in own) else [])]
    return any(within(key, tells) for key in _keys(override({}, [change])))


def _keys(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The dotted keys of a tree of settings."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _how(done: Sequence[Outcome]) -> str:
    """How the figures were made, in sentences; where rows differ, each way is named."""
    machines = "; ".join(sorted({f"{each.machine}, torch {each.torch}" for each in done}))
    searches, seeds = _several({each.search for each in done}), _several({str(each.seed) for each in done})
    sets = _several({f"dev has {so_many(each.dev.lines, 'line')} and test {each.test.lines:,}" for each in done})
    steps = _several({so_many(each.steps, "step") for each in done})
    bleu = _several({f"`{each.test.signatures['BLEU']}`" for each in done})
    sentences = [f"{steps}; seed {seeds}; {searches}; {sets}. BLEU is {bleu}. Trained on {machines}."]
    files = {f"{name} ({sha256[:SHOWN_OF_CHECKSUM]})" for each in done for name, sha256 in each.data.items()}
    if files:
        sentences.append(f"Files, with the beginning of their SHA-256: {_several(files)}.")
    # The files of the test set are read by whoever translates it; what is known of them are the lines that were.
    lines = {
        f"{side} ({sha256[:SHOWN_OF_CHECKSUM]})": None for each in done for side, sha256 in each.test.sha256.items()
    }
    if lines:
        sentences.append(f"The test set, with that of its lines: {', '.join(lines)}.")
    shared = [each.row for each in done if each.beside]
    if shared:
        which = "each of these rows" if 1 < len(shared) == len(done) else ", ".join(shared)
        sentences.append(
            f"When {which} began or ended, other rows were being made on the same machine, so seconds are "
            "more and speeds less than alone."
        )
    return " ".join(sentences)


def _several(found: set[str]) -> str:
    return ", ".join(sorted(found))
