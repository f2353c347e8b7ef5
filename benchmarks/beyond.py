"""The full-size runs beyond translation: language models, decoder-only models, and what pre-training is worth.

    REGARD_DATA=../shared/data python -m benchmarks.beyond --out DIR [--work runs/beyond] [--minutes 25] [--only NAMES]

Every run is one of the project's own commands. Models stay under --work: a second call finds what is done, and goes on
with what was stopped. Results go to DIR: results.jsonl, table.md, pictures and texts. Several runs share the GPU, so
the minutes of each are longer than they would be alone; `shakespeare` comes first and alone. `--list` names the runs.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.runs import Bench, Job, options, results, run_asked
from regard.data.corpus import open_text

SHARES = (100, 10, 1)  # percent of the summaries to fine-tune on
STEPS = {100: 4_000, 10: 1_000, 1: 400}
SEEDS = (1, 2, 3)


def lines_of(file: Path) -> Iterator[str]:
    with open_text(file) as stream:
        yield from stream.read().decode().rstrip("\n").split("\n")


# ---- language models


def shakespeare(bench: Bench, name: str = "lm-shakespeare", *changes: str) -> None:
    corpus = bench.data / "lm-small/tinyshakespeare.txt.gz"
    folder = bench.train(name, "lm-shakespeare", f"data.text={corpus}", *changes)
    bench.note(name, folder)
    bench.write(f"{name}.txt", bench.regard("generate", str(folder), "ROMEO:", "--lines", "24", "--max-tokens", "800"))


def ptb(bench: Bench, name: str) -> None:
    place = bench.data / "ptb"
    sides = {"text": "train", "valid": "valid", "test": "test"}
    folder = bench.train(name, name, *(f"data.{key}={place}/ptb.{side}.txt.gz" for key, side in sides.items()))
    bench.note(name, folder)
    for side in ("valid", "test"):
        scores = bench.evaluate(folder, str(place / f"ptb.{side}.txt.gz"))
        bench.result(name, f"{side} perplexity per word", scores["perplexity per word"])


def tang(bench: Bench) -> None:
    poems = bench.work / "tang.txt"
    if not poems.is_file():
        rows = (line.split("\t") for line in lines_of(bench.data / "chinese-poetry/tang.tsv.bz2"))
        poems.write_text("".join(f"{row[2]}\n" for row in rows if len(row) > 2 and row[2]))
    folder = bench.train("lm-tang", "lm-tang", f"data.text={poems}")
    bench.note("lm-tang", folder)
    drawn = bench.regard("generate", str(folder), "", "--count", "5", "--top-p", "0.95", "--temperature", "0.8")
    bench.write("lm-tang.txt", drawn)


def family(bench: Bench) -> None:
    """The small models side by side, on a thread of the CPU each."""
    from benchmarks import language_models

    language_models.table(bench)


# ---- decoder-only


def multi30k(bench: Bench, recipe: str, seed: int) -> None:
    place = bench.data / "multi30k/task1"
    splits = {"": "train", "valid_": "val", "test_": "test_2016_flickr"}
    files = [
        f"data.{split}{side}={place}/{name}.{language}.gz"
        for split, name in splits.items()
        for side, language in (("source", "en"), ("target", "de"))
    ]
    name = f"{recipe}-{seed}"
    folder = bench.train(name, recipe, "data.kind=files", *files, f"seed={seed}")
    bench.note(name, folder)
    scores = bench.evaluate(folder, "--out", str(folder / "test.txt"), "--lowercase")
    for what in ("BLEU", "BLEU tokenised", "chrF"):
        bench.result(name, what, scores[what])


def multi30k_compared(bench: Bench) -> None:
    reference = bench.work / "multi30k.de"
    reference.write_text(
        "".join(f"{line}\n" for line in lines_of(bench.data / "multi30k/task1/test_2016_flickr.de.gz"))
    )
    for seed in SEEDS:
        sides = [str(bench.work / f"{recipe}-{seed}" / "test.txt") for recipe in ("decoder-only-multi30k", "multi30k")]
        found = json.loads(bench.regard("compare", *sides, str(reference), "--lowercase", "--json"))
        bench.result("decoder-only against encoder-decoder", f"seed {seed}", found["verdict"])
        for one in found["differences"]:
            bench.result("decoder-only against encoder-decoder", f"seed {seed}, {one['name']}", one)


# ---- pre-train, then fine-tune


def pretrain(bench: Bench) -> None:
    corpus = bench.data / "europarl-ende"
    folder = bench.train("lm-bytes", "lm-bytes", f"data.text={corpus}/train.en.bz2", f"data.valid={corpus}/dev.en.bz2")
    bench.note("lm-bytes", folder)


def some(bench: Bench, corpus: str, percent: int) -> Path:
    """A part of a corpus: the same lines on every run, and those of a smaller part in each larger one."""
    place = bench.work / f"{corpus}-{percent}.jsonl"
    if not place.is_file():
        lines = list(lines_of(bench.data / corpus / "train.jsonl.bz2"))
        random.Random(1).shuffle(lines)
        place.write_text("".join(f"{line}\n" for line in lines[: max(20, len(lines) * percent // 100)]))
    return place


def summaries(bench: Bench, corpus: str, percent: int, pretrained: bool) -> None:
    recipe, place = corpus.replace("summ-", "summary-"), bench.data / corpus
    name = f"{recipe}-{percent}-{'fine-tuned' if pretrained else 'scratch'}"
    changes = [
        f"data.source={some(bench, corpus, percent)}",
        f"data.valid_source={place}/dev.jsonl.bz2",
        f"data.test_source={place}/test.jsonl.bz2",
    ]
    if corpus == "summ-aeslc":
        changes.append(f"training.steps={STEPS[percent]}")
    if percent < 100:
        changes += ["training.validate_every=50", "training.save_every=50", "training.optimiser.warmup=50"]
    if pretrained:
        changes.append(f"init={bench.work / 'lm-bytes'}")
    folder = bench.train(name, recipe, *changes)
    bench.note(name, folder)
    scores = bench.evaluate(folder, "--rouge", "--out", str(folder / "test.txt"))
    for what in ("ROUGE-1", "ROUGE-2", "ROUGE-L", "perplexity per token"):
        bench.result(name, what, scores[what])


def sample_efficiency(bench: Bench) -> None:
    """The curve: ROUGE-L against the share of the summaries that was trained on; and whether it is chance."""
    from regard.viewing.curves import Axis, Curve, curves_svg

    curves = []
    for kind, title in (("fine-tuned", "pre-trained"), ("scratch", "from scratch")):
        points = []
        for percent in sorted(SHARES):
            folder = bench.work / f"summary-aeslc-{percent}-{kind}"
            scores = bench.evaluate(folder, "--rouge", "--out", str(folder / "test.txt"))  # as in `summaries`: kept
            points.append((float(percent), scores["ROUGE-L"]))
        curves.append(Curve(title, tuple(points)))
    x = Axis("share of the e-mails trained on, in percent", "log", tuple(map(float, sorted(SHARES))))
    bench.write("fine-tuning.svg", curves_svg(curves, "Subjects of e-mails", x, Axis("ROUGE-L", zero=True)))
    rows = [json.loads(line) for line in lines_of(bench.data / "summ-aeslc/test.jsonl.bz2")]
    reference = bench.work / "aeslc.txt"
    reference.write_text("".join(f"{' '.join(row['subject'].split())}\n" for row in rows))
    for percent in SHARES:
        sides = [str(bench.work / f"summary-aeslc-{percent}-{kind}/test.txt") for kind in ("fine-tuned", "scratch")]
        found = json.loads(bench.regard("compare", *sides, str(reference), "--rouge", "--json"))
        bench.result("pre-trained against from scratch", f"{percent} %", found["verdict"])


# ---- all of them


def jobs() -> list[Job]:
    """In the order of importance."""
    found = [
        Job("shakespeare", 1.0, shakespeare, minutes=3),
        Job("ptb-lstm", 0.2, partial(ptb, name="lm-ptb-lstm"), minutes=7),
        Job("ptb-lstm-tied", 0.2, partial(ptb, name="lm-ptb-lstm-tied"), minutes=7),
        Job("pretrain", 0.6, pretrain, minutes=7),
    ]
    for seed in SEEDS:
        for recipe in ("decoder-only-multi30k", "multi30k"):
            run = partial(multi30k, recipe=recipe, seed=seed)
            found.append(Job(f"{recipe}-{seed}", 0.2, run, minutes=2.5))
    pairs = tuple(f"{recipe}-{seed}" for seed in SEEDS for recipe in ("decoder-only-multi30k", "multi30k"))
    found.append(Job("multi30k-compared", 0.0, multi30k_compared, pairs))
    tuned = []
    for percent in SHARES:
        for kind in ("fine-tuned", "scratch"):
            run = partial(summaries, corpus="summ-aeslc", percent=percent, pretrained=kind == "fine-tuned")
            tuned.append(f"aeslc-{percent}-{kind}")
            found.append(Job(tuned[-1], 0.33, run, ("pretrain",) if kind == "fine-tuned" else (), minutes=4))
    found.append(Job("sample-efficiency", 0.0, sample_efficiency, tuple(tuned)))
    for kind in ("fine-tuned", "scratch"):
        run = partial(summaries, corpus="summ-scitldr", percent=100, pretrained=kind == "fine-tuned")
        found.append(Job(f"scitldr-{kind}", 0.33, run, ("pretrain",) if kind == "fine-tuned" else (), minutes=2))
    return [
        *found,
        Job("ptb-transformer", 0.3, partial(ptb, name="lm-ptb-transformer"), minutes=3),
        Job("family", 0.0, family, minutes=8),
        Job("tang", 0.6, tang, minutes=4),
        Job("shakespeare-more-dropout", 0.4, more_dropout, minutes=3),
    ]


def more_dropout(bench: Bench) -> None:
    shakespeare(bench, "lm-shakespeare-dropout", "model.dropout=0.3")


def table(out: Path, endings: dict[str, str]) -> str:
    lines = ["| run | what | value |", "|---|---|---|"]
    for row in results(out):
        value = row["value"]
        if isinstance(value, dict):
            value = f"{value['a']:.2f} against {value['b']:.2f}, p = {value['bootstrap_p']:.4f}"
        lines.append(f"| {row['job']} | {row['what']} | {f'{value:,.4f}' if isinstance(value, float) else value} |")
    lines += ["", *(f"{name}: {ending}" for name, ending in endings.items())]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: an hour of a GPU; python -m benchmarks.beyond --help")
        return
    asked = options("beyond", __doc__, minutes=25.0).parse_args(arguments)
    run_asked(asked, jobs(), table, spare=75)  # a run that is stopped writes a checkpoint first


if __name__ == "__main__":
    main(sys.argv[1:])
