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
from regard.files import write_file

SHARES = (100, 10, 1)  # percent of the summaries to fine-tune on
STEPS = {100: 4_000, 10: 1_000, 1: 400}
SEEDS = (1, 2, 3)
TEXTS = {"aeslc": ("e-mails", "Subjects of e-mails"), "scitldr": ("abstracts", "Sentences for abstracts")}
# As many parameters as the decoder alone has, in three layers on each side.
ENCODER_DECODER = (
    'model={kind = "transformer", encoder_layers = 3, decoder_layers = 3, d_model = 512, d_ff = 1_536, heads = 8, '
    'norm = "pre", positions = "rotary", activation = "gelu", dropout = 0.2}'
)


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


def poems(bench: Bench) -> Path:
    """The poems of the Tang dynasty, one a line."""
    place = bench.work / "tang.txt"
    if not place.is_file():
        rows = (line.split("\t") for line in lines_of(bench.data / "chinese-poetry/tang.tsv.bz2"))
        write_file(place, "".join(f"{row[2]}\n" for row in rows if len(row) > 2 and row[2]))
    return place


def tang(bench: Bench, name: str = "lm-tang", *changes: str) -> None:
    folder = bench.train(name, "lm-tang", f"data.text={poems(bench)}", *changes)
    bench.note(name, folder)
    drawn = bench.regard("generate", str(folder), "", "--count", "5", "--top-p", "0.95", "--temperature", "0.8")
    bench.write(f"{name}.txt", drawn)


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
    write_file(
        reference, "".join(f"{line}\n" for line in lines_of(bench.data / "multi30k/task1/test_2016_flickr.de.gz"))
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
        write_file(place, "".join(f"{line}\n" for line in lines[: max(20, len(lines) * percent // 100)]))
    return place


def summaries(bench: Bench, corpus: str, percent: int, kind: str) -> None:
    """`kind` is `fine-tuned`, `scratch` or `encoder-decoder`, which begins with nothing, too."""
    recipe, place = f"summary-{corpus}", bench.data / f"summ-{corpus}"
    name = f"{recipe}-{percent}-{kind}"
    changes = [
        f"data.source={some(bench, place.name, percent)}",
        f"data.valid_source={place}/dev.jsonl.bz2",
        f"data.test_source={place}/test.jsonl.bz2",
    ]
    if corpus == "aeslc":
        changes.append(f"training.steps={STEPS[percent]}")
    if percent < 100:
        changes += ["training.validate_every=50", "training.save_every=50", "training.optimiser.warmup=50"]
    if kind == "fine-tuned":
        changes.append(f"init={bench.work / 'lm-bytes'}")
    if kind == "encoder-decoder":
        changes.append(ENCODER_DECODER)
    folder = bench.train(name, recipe, *changes)
    bench.note(name, folder)
    scores = written(bench, name)
    for what in ("ROUGE-1", "ROUGE-2", "ROUGE-L", "perplexity per byte"):
        bench.result(name, what, scores[what])


def written(bench: Bench, name: str) -> dict[str, float]:
    """The scores of a model's summaries of the test set, which are in `test.txt` beside it."""
    folder = bench.work / name
    return bench.evaluate(folder, "--rouge", "--out", str(folder / "test.txt"))


def sample_efficiency(bench: Bench, corpus: str) -> None:
    """The curve: ROUGE-L against the share of the summaries that was trained on; and whether it is chance."""
    from regard.viewing.curves import Axis, Curve, curves_svg

    texts, title = TEXTS[corpus]
    curves = []
    for kind, label in (("fine-tuned", "pre-trained"), ("scratch", "from scratch")):
        points = [(float(percent), written(bench, f"summary-{corpus}-{percent}-{kind}")["ROUGE-L"])
                  for percent in sorted(SHARES)]  # fmt: skip
        curves.append(Curve(label, tuple(points)))
    x = Axis(f"share of the {texts} trained on, in percent", "log", tuple(map(float, sorted(SHARES))))
    bench.write(f"fine-tuning-{corpus}.svg", curves_svg(curves, title, x, Axis("ROUGE-L", zero=True)))
    for percent in SHARES:
        compared(bench, corpus, "pre-trained against from scratch", percent, "fine-tuned", "scratch")


def compared(bench: Bench, corpus: str, what: str, percent: int, one: str, other: str) -> None:
    """What `regard compare` says of the summaries of two models."""
    rows = [json.loads(line) for line in lines_of(bench.data / f"summ-{corpus}/test.jsonl.bz2")]
    right = (row["subject"] if corpus == "aeslc" else row["target"][0] for row in rows)
    reference = bench.work / f"{corpus}.txt"
    write_file(reference, "".join(f"{' '.join(text.split())}\n" for text in right))
    sides = [str(bench.work / f"summary-{corpus}-{percent}-{kind}/test.txt") for kind in (one, other)]
    found = json.loads(bench.regard("compare", *sides, str(reference), "--rouge", "--json"))
    bench.result(f"{corpus}: {what}", f"{percent} %", found["verdict"])


def with_encoder(bench: Bench, corpus: str) -> None:
    compared(bench, corpus, "decoder-only against encoder-decoder", 100, "scratch", "encoder-decoder")


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
    for corpus in TEXTS:
        tuned = []
        for percent in SHARES:
            for kind in ("fine-tuned", "scratch"):
                run = partial(summaries, corpus=corpus, percent=percent, kind=kind)
                tuned.append(f"{corpus}-{percent}-{kind}")
                needs = ("pretrain",) if kind == "fine-tuned" else ()
                found.append(Job(tuned[-1], 0.33, run, needs, minutes=3))
        found.append(Job(f"{corpus}-sample-efficiency", 0.0, partial(sample_efficiency, corpus=corpus), tuple(tuned)))
        name = f"{corpus}-100-encoder-decoder"
        run = partial(summaries, corpus=corpus, percent=100, kind="encoder-decoder")
        found.append(Job(name, 0.33, run, minutes=3))
        both = (name, f"{corpus}-100-scratch")
        found.append(Job(f"{corpus}-compared", 0.0, partial(with_encoder, corpus=corpus), both))
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
