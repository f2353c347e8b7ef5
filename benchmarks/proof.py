"""The runs of docs/results.md on one GPU, side by side where they may be; a second call goes on where this was stopped.

    python -m benchmarks.proof --list
    python -m benchmarks.proof --data FOLDER --out DIR --only 'table3-*,averaging' [--minutes 30]

FOLDER is the folder of all corpora, as docs/reproduce.md has it. The rows of a study share the GPU, faster with CUDA's
multi-process service (`nvidia-cuda-mps-control -d`), where one that fails can take all others with it; what is told
with its time has the GPU to itself. Figures go to DIR/results.jsonl, the result of a study's row to DIR/STUDY-ROW.json,
curves and cards beside them. Ctrl-C and SIGTERM stop all runs, which save first.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from benchmarks.beyond import tang
from benchmarks.runs import Bench, Job, options, run_asked
from benchmarks.sentences import table
from regard.bands.measuring import band_of_runs
from regard.reproduce.ladder import MULTI30K
from regard.reproduce.outcome import RESULT
from regard.reproduce.studies import STUDIES
from regard.reproduce.study import Row, Study
from regard.reproduce.table3 import EUROPARL

KEPT = Path(__file__).parent.parent / "docs/studies"
DEEP_LSTMS = ("deep-att", "deep-att-2", "gnmt", "gnmt-2", "moe")  # two of them took 45 GB of a GPU each
HEAVY = (*DEEP_LSTMS, "big", "c-d1024")  # rows that go first, since they take longest
AVERAGED = (5, 3, 1)  # checkpoints whose mean is the model
# A rate that falls to nothing leaves nothing to average: this one stays high, as the paper's did.
STEADY = (
    "training={by_clock = false, minutes = 60, steps = 2400, save_every = 100, validate_every = 800, keep = 5}",
    "training.optimiser.schedule=inverse-sqrt",
)
# What may let `five-minutes` learn more, each for the same short course and a rate that falls to nothing with it.
SHORT = (
    "training={by_clock = false, minutes = 60, steps = 1000, validate_every = 500, save_every = 1000}",
    "training.optimiser.warmup=200",
)
NORMED = "model.qk_norm=true"
TRIES = {
    "plain": (),
    "qk-norm": (NORMED,),
    "rate-8": ("training.optimiser.rate=8e-3",),
    **{f"qk-norm-rate-{rate}": (NORMED, f"training.optimiser.rate={rate}e-3") for rate in (8, 12, 16)},
    "decay": ("training.optimiser.weight_decay=0.1",),
    "qk-norm-decay": (NORMED, "training.optimiser.weight_decay=0.1"),
    "own-output": ("model.tie=embeddings",),
    "half-batches": ("batch.tokens=12_800", "training.steps=2000", "training.optimiser.warmup=400"),
}
R_DROP, SIMCUT = ((12_000, 6.0), (20_000, 10.0)), (12_000, 6.0)  # steps, and minutes they took
# Recipes whose usual course (docs/training.md) is asked for here, and the files of their corpora.
USUAL = {
    "lm-tang": {},
    "music-jsb-quarter": {"music": "music-jsb/jsb-chorales-quarter.json.xz"},
    **{
        f"summary-{name}": {
            f"{split}source": f"summ-{name}/{file}.jsonl.bz2"
            for split, file in (("", "train"), ("valid_", "dev"), ("test_", "test"))
        }
        for name in ("aeslc", "scitldr")
    },
}
WIDE = ("--beam", "12", "--alpha", "0.8")


def corpus(bench: Bench, files: Mapping[str, str]) -> list[str]:
    """The settings of a study's corpus, without its test set."""
    learned = {key: bench.data / file for key, file in files.items() if not key.startswith("test_")}
    return ["data.kind=files", *(f"data.{key}={file}" for key, file in learned.items())]


def pair(bench: Bench, stem: str, ending: str, language: str = "de") -> tuple[str, str]:
    """Two files to evaluate with, English and another language."""
    return str(bench.data / f"{stem}.en.{ending}"), str(bench.data / f"{stem}.{language}.{ending}")


def evaluated(bench: Bench, folder: Path, files: tuple[str, str], *more: str) -> dict[str, float]:
    """The scores of a model on them; in bf16 where there is a GPU."""
    precision = ("--precision", "bf16") if torch.cuda.is_available() else ()
    return bench.evaluate(folder, *files, "--examples", "0", *precision, *more)


def multi30k(bench: Bench, name: str, overrides: Sequence[str], language: str = "de") -> None:
    """From English, lower-cased, on the three test sets."""
    files = {key: file.replace(".de.", f".{language}.") for key, file in MULTI30K.items()}
    folder = bench.train(name, "multi30k", *corpus(bench, files), *overrides)
    bench.note(name, folder)
    for test in ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        pair_of_files = pair(bench, f"multi30k/task1/{test}", "gz", language)
        scores = bench.evaluate(folder, *pair_of_files, "--lowercase", "--examples", "0")
        for what in ("BLEU tokenised", "BLEU", "chrF"):
            bench.result(name, f"{test} {what}", scores[what])


def by_the_clock(bench: Bench, name: str) -> None:
    """A translator of Europarl in so many minutes, with the beam of its recipe and with a wider one."""
    folder = bench.train(name, name, *corpus(bench, EUROPARL))
    bench.note(name, folder)
    tests = {
        "test": pair(bench, "europarl-ende/test", "bz2"),
        "news": pair(bench, "wmt14-newstest2014-ende/newstest2014", "gz"),
    }
    asked = [(test, how, beam) for test in tests for how, beam in (("", ()), (" beam 12", WIDE))]
    with ThreadPoolExecutor() as side_by_side:
        found = side_by_side.map(lambda each: evaluated(bench, folder, tests[each[0]], *each[2]), asked)
        for (test, how, _), scores in zip(asked, found, strict=True):
            bench.result(name, f"{test}{how} BLEU", scores["BLEU"])


def short_course(bench: Bench, name: str, overrides: Sequence[str]) -> None:
    """A short course of `five-minutes` with other settings; its validation loss tells what they are worth."""
    bench.note(name, bench.train(name, "five-minutes", *corpus(bench, EUROPARL), *SHORT, *overrides))


def usual_run(bench: Bench, name: str, recipe: str, seed: int) -> None:
    """A recipe as it is, on the corpus that it names."""
    if recipe == "lm-tang":
        tang(bench, name, f"seed={seed}")
        return
    files = (f"data.{key}={bench.data / file}" for key, file in USUAL[recipe].items())
    bench.note(name, bench.train(name, recipe, *files, f"seed={seed}"))


def usual_course(bench: Bench, recipe: str, runs: Sequence[str]) -> None:
    """What `regard train` compares with, of runs that differ in their seeds."""
    bench.write(f"band-{recipe}.toml", band_of_runs([bench.work / name for name in runs]).to_toml())


def averaging(bench: Bench, name: str, recipe: str, overrides: Sequence[str]) -> None:
    """One run that ends with the mean of its last checkpoints, with that of fewer, and with the last alone."""
    folder = bench.train(name, recipe, *corpus(bench, EUROPARL), *overrides, f"training.average={AVERAGED[0]}")
    for count in AVERAGED:
        ended = bench.work / f"{name}-{count}"
        if not ended.exists():
            bench.regard("train", "--resume", "--out", str(folder), f"training.average={count}")
            copy = bench.work / f".{name}-{count}"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("checkpoints"))
            copy.rename(ended)
        bench.note(f"{name}-{count}", ended)
        for split in ("dev", "test"):
            scores = evaluated(bench, ended, pair(bench, f"europarl-ende/{split}", "bz2"))
            for what in ("BLEU", "perplexity per token"):
                bench.result(name, f"{split} {what}, mean of {count}", scores[what])


def study_row(bench: Bench, study: Study, row: Row) -> None:
    """Train and measure one row."""
    out = bench.work / study.name
    bench.regard("reproduce", study.name, "--data", str(bench.data), "--rows", row.name, "--out", str(out),
                 *bench.settings)  # fmt: skip
    bench.write(f"{study.name}-{row.name}.json", (out / row.name / RESULT).read_text())
    metrics = out / row.name / "metrics.jsonl"
    if metrics.is_file():  # an ensemble has none
        bench.write(f"{study.name}-{row.name}-metrics.jsonl", metrics.read_text())


def jobs() -> list[Job]:
    """All runs; those that need the GPU to themselves first."""
    alone = [
        Job(name, 1.0, partial(by_the_clock, name=name), minutes=minutes)
        for name, minutes in (("five-minutes", 7.5), ("twenty-five-minutes", 28))
    ]
    seeds = {f"multi30k-{seed}": (f"seed={seed}",) for seed in (1, 2, 3)}
    alone += [Job(name, 1.0, partial(multi30k, name=name, overrides=seed), minutes=2) for name, seed in seeds.items()]
    french = {name.replace("-", "-fr-"): seed for name, seed in seeds.items()}
    shared = [
        *(_read_twice(f"multi30k-r-drop-{steps}", "training.r_drop=5", steps, minutes) for steps, minutes in R_DROP),
        _read_twice("multi30k-simcut", "training.simcut=3", *SIMCUT),
        *(
            Job(name, 0.2, partial(multi30k, name=name, overrides=seed, language="fr"), minutes=2)
            for name, seed in french.items()
        ),
        *(
            Job(f"try-{name}", 0.25, partial(short_course, name=f"try-{name}", overrides=more))
            for name, more in TRIES.items()
        ),
        Job(
            "averaging", 0.3, partial(averaging, name="averaging", recipe="five-minutes", overrides=STEADY), minutes=10
        ),
    ]
    for recipe in USUAL:
        runs = {f"usual-{recipe}-{seed}": seed for seed in (1, 2, 3)}
        shared += [
            Job(name, 0.15, partial(usual_run, name=name, recipe=recipe, seed=seed)) for name, seed in runs.items()
        ]
        shared.append(Job(f"usual-{recipe}", 0.0, partial(usual_course, recipe=recipe, runs=[*runs]), tuple(runs)))
    rows = [(study, row) for study in STUDIES.values() for row in study.rows]
    rows.sort(key=lambda each: each[1].name not in HEAVY)  # the others stay in the order of their table
    for study, row in rows:
        needs = tuple(f"{study.name}-{member}" for member in row.members)
        work = partial(study_row, study=study, row=row)
        share = 0.35 if row.name in DEEP_LSTMS else 0.2
        shared.append(Job(f"{study.name}-{row.name}", share, work, needs, minutes=_minutes(study, row)))
    return [*alone, *shared]


def _read_twice(name: str, how: str, steps: int, minutes: float) -> Job:
    """Multi30k where each row is read twice, which takes longer and more steps."""
    overrides = (how, f"training.steps={steps}")
    return Job(name, 0.2, partial(multi30k, name=name, overrides=overrides), minutes=minutes)


def _minutes(study: Study, row: Row) -> float:
    """How long the steps of a row took, by the result that is kept; 0 where there is none."""
    kept = KEPT / study.name / row.name / RESULT
    return round(json.loads(kept.read_text())["seconds"] / 60, 1) if kept.is_file() else 0.0


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: hours of a GPU; python -m benchmarks.proof --help")
        return
    run_asked(options("proof", __doc__, minutes=math.inf).parse_args(arguments), jobs(), table, spare=30)


if __name__ == "__main__":
    main(sys.argv[1:])
