"""Labels at full size: which language, which corpus, and capitals and punctuation by three kinds of bodies.

    REGARD_DATA=../shared/data python -m benchmarks.labels --out DIR [--work runs/labels] [--minutes 9] [--only NAMES]

Every run is one of the project's own commands; several share the GPU. Models stay under --work: a second call finds
what is done, and goes on with what was stopped. Results go to DIR: results.jsonl, table.md, a confusion matrix of each
model as SVG, what `regard evaluate` says, and some restored sentences. `--cpu --set training.steps=20` makes it a trial
without a GPU.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from benchmarks.runs import Bench, Job, options, results, run_asked
from regard.data.corpus import open_text
from regard.files import write_file

LINES = 400_000  # of Europarl, to restore
SHOWN = 8  # restored sentences


def classes(*entries: tuple[str, Path, int | None, int]) -> str:
    """The setting that names the texts of each label: (label, place, column, most)."""
    tables = []
    for label, place, column, most in entries:
        where = "" if column is None else f", column = {column}"
        tables.append(f"{{label = {json.dumps(label)}, text = {json.dumps(str(place))}{where}, most = {most}}}")
    return f"data.classes=[{', '.join(tables)}]"


def language(bench: Bench) -> None:
    place = bench.data / "tatoeba"
    found = classes(
        ("en", place / "manythings-2018.en-de.tsv.bz2", 1, 25_000),
        ("de", place / "manythings-2018.en-de.tsv.bz2", 2, 25_000),
        ("fr", place / "manythings-2017.en-fr.tsv.bz2", 2, 25_000),
        ("zh", place / "manythings.en-zh.tsv.bz2", 2, 25_000),
    )
    measure(bench, "classify-language", found)


def corpus(bench: Bench) -> None:
    docs = bench.data / "softdocs"
    found = classes(
        ("parliament", bench.data / "europarl-ende/train.en.bz2", None, 25_000),
        ("everyday", bench.data / "tatoeba/manythings-2018.en-de.tsv.bz2", 1, 25_000),
        ("software", docs / "gnome-user-docs.en-de.tsv.bz2", 1, 12_500),
        ("software", docs / "libreoffice.en-de.tsv.bz2", 1, 12_500),
        ("bible", bench.data / "bible-ende/web-luther1912.en-de.tsv.bz2", 1, 25_000),
    )
    measure(bench, "classify-corpus", found)


def restoring(bench: Bench, name: str) -> None:
    place = bench.data / "europarl-ende"
    splits = {"text": "train", "valid": "dev", "test": "test"}
    files = [f"data.{key}={place}/{split}.en.bz2" for key, split in splits.items()]
    folder = measure(bench, name, *files, f"data.most={LINES}")
    with open_text(place / "test.en.bz2") as stream:
        lines = stream.read(100_000).decode(errors="ignore").split("\n")[:SHOWN]
    asked = bench.work / "restore.txt"
    write_file(asked, "".join(f"{line}\n" for line in lines))
    given = bench.regard("tag", str(folder), str(asked), "--restore").split("\n")
    bench.write(
        f"{name}.txt", "".join(f"right  {one}\nfound  {two}\n\n" for one, two in zip(lines, given, strict=False))
    )


def measure(bench: Bench, name: str, *changes: str) -> Path:
    """Train, then evaluate on the recipe's test set and draw its confusion matrix."""
    folder = bench.train(name, name, *changes)
    bench.note(name, folder)
    drawn = folder / "confusion.svg"
    report = bench.report(folder, "--confusion", str(drawn))
    scores = {score["name"]: score["value"] for score in report["scores"]}
    bench.write(f"{name}-confusion.svg", drawn.read_text())
    bench.write(f"{name}.json", json.dumps(report, ensure_ascii=False, indent=1))
    for what in ("accuracy", "macro F1", "capitals", "punctuation F1"):
        if what in scores:
            bench.result(name, what, scores[what])
    bench.result(name, "answers", report["answers"])
    return folder


def jobs() -> list[Job]:
    """In the order of importance."""
    return [
        Job("classify-language", 0.2, language, minutes=1.5),
        Job("classify-corpus", 0.2, corpus, minutes=2),
        Job("tag-restoring", 0.2, partial(restoring, name="tag-restoring"), minutes=6),
        Job("tag-restoring-lstm", 0.2, partial(restoring, name="tag-restoring-lstm"), minutes=6),
        Job("tag-restoring-convolution", 0.2, partial(restoring, name="tag-restoring-convolution"), minutes=6),
    ]


def table(out: Path, endings: dict[str, str]) -> str:
    """One row for each model."""
    found: dict[str, dict[str, object]] = {}
    for result in results(out):
        found.setdefault(result["job"], {})[result["what"]] = result["value"]
    columns = ["parameters", "steps", "minutes", "tokens_per_second", "answers", "accuracy", "macro F1"]
    columns += ["capitals", "punctuation F1"]
    rows = [f"| model | {' | '.join(columns)} | |", "|---" * (len(columns) + 2) + "|"]
    for name, ending in endings.items():
        cells = [_cell(found.get(name, {}).get(column)) for column in columns]
        rows.append(f"| `{name}` | {' | '.join(cells)} | {ending} |")
    return "\n".join(rows)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else ""


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: ten minutes of a GPU; python -m benchmarks.labels --help")
        return
    asked = options("labels", __doc__, minutes=9.0).parse_args(arguments)
    # Time to evaluate is kept: a run that is out of time ends with a model, where one that is stopped has none.
    limit = f"training.minutes={max(0.2, asked.minutes - 3):.2f}"
    run_asked(asked, jobs(), table, spare=20, settings=(limit,))


if __name__ == "__main__":
    main(sys.argv[1:])
