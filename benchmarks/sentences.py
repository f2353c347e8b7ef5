"""Sentences that papers and courses show, by models of ours: French and Chinese to English, with their alignments.

    REGARD_DATA=../shared/data python -m benchmarks.sentences --out DIR [--work runs/sentences] [--only NAMES]
    REGARD_DATA=../shared/data python -m benchmarks.sentences --pairs [--work runs/sentences]

Two models are trained by the recipes `fr-en` and `zh-en`, tested, and asked; both share the GPU. What they say goes to
DIR/NAME.txt, an alignment of each sentence to NAME-1.svg and so on. A second call goes on where the first was stopped.
With --pairs the files of `zh-en` are made alone, which takes seconds and no GPU.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from benchmarks.beyond import lines_of
from benchmarks.runs import Bench, Job, mistakes_told, options, results, run_asked
from regard.files import write_file

FRENCH = (
    "L'accord sur la zone économique européenne a été signé en août 1992.",  # Bahdanau et al. 2015, figure 3
    "Je suis étudiant.",
    "Je suis étudiant",
)
CHINESE = ("我爱机器学习", "机器学习很有趣")
HELD_OUT = 25  # of so many English sentences, one is for validation and one for the test
MANUALS = ("debian-ddtp", "debian-install-guide", "gimp-help", "gnome-user-docs", "libreoffice", "python-docs")


def french(bench: Bench) -> None:
    place = bench.data / "europarl-enfr"
    splits = {"": "train", "valid_": "dev", "test_": "test"}
    sides = {"source": "fr", "target": "en"}
    files = [f"data.{split}{side}={place}/{name}.{language}.bz2"
             for split, name in splits.items() for side, language in sides.items()]  # fmt: skip
    measure(bench, "fr-en", FRENCH, *files)


def chinese(bench: Bench) -> None:
    files = chinese_pairs(bench.data, bench.work)
    measure(bench, "zh-en", CHINESE, *(f"data.{split}source={file}" for split, file in files.items()))


def chinese_pairs(data: Path, work: Path) -> dict[str, Path]:
    """Everyday sentences in three parts, and manuals to train on. Tatoeba has many translations of one sentence: those
    of an English one stay together, and neither side of what is held out is trained on."""
    files = {split: work / f"zh-{split or 'train_'}pairs.tsv" for split in ("", "valid_", "test_")}
    if all(file.is_file() for file in files.values()):
        return files
    pairs: dict[str, list[str]] = {split: [] for split in files}
    for line in lines_of(data / "tatoeba/manythings.en-zh.tsv.bz2"):
        number = int(hashlib.sha256(line.partition("\t")[0].encode()).hexdigest(), 16) % HELD_OUT
        pairs[{0: "valid_", 1: "test_"}.get(number, "")].append(line)
    held_out = {side for split in ("valid_", "test_") for line in pairs[split] for side in line.split("\t")[:2]}
    more = [data / f"softdocs/{name}.en-zh.tsv.bz2" for name in MANUALS]
    for file in (data / "tatoeba/challenge-dev.en-zh.tsv.bz2", *more):
        pairs[""].extend(lines_of(file))
    pairs[""] = [line for line in pairs[""] if held_out.isdisjoint(line.split("\t")[:2])]
    for split, file in files.items():
        write_file(file, "".join(f"{line}\n" for line in pairs[split]))
    return files


def measure(bench: Bench, name: str, sentences: tuple[str, ...], *files: str) -> None:
    folder = bench.train(name, name, *files)
    bench.note(name, folder)
    scores = bench.evaluate(folder, "--examples", "0")
    for what in ("BLEU", "chrF", "perplexity per token"):
        bench.result(name, what, scores[what])
    asked = bench.work / f"{name}-asked.txt"
    write_file(asked, "".join(f"{sentence}\n" for sentence in sentences))
    found = bench.regard("translate", str(folder), str(asked)).splitlines()
    bench.write(
        f"{name}.txt", "".join(f"{sentence}\n    {text}\n" for sentence, text in zip(sentences, found, strict=True))
    )
    for number, sentence in enumerate(sentences, 1):
        drawn = bench.out / f"{name}-{number}.svg"
        bench.regard("view", str(folder), sentence, "--what", "alignment", "--out", str(drawn))


def jobs() -> list[Job]:
    return [Job("fr-en", 0.5, french, minutes=4), Job("zh-en", 0.3, chinese, minutes=3)]


def table(out: Path, endings: dict[str, str]) -> str:
    lines = ["| run | what | value |", "|---|---|---|"]
    for row in results(out):
        value = row["value"]
        lines.append(f"| {row['job']} | {row['what']} | {f'{value:,.3f}' if isinstance(value, float) else value} |")
    return "\n".join([*lines, "", *(f"{name}: {ending}" for name, ending in endings.items())])


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: some minutes of a GPU; python -m benchmarks.sentences --help")
        return
    parser = options("sentences", __doc__, minutes=9.0)
    parser.add_argument("--pairs", action="store_true", help="make the files of zh-en, and train nothing")
    asked = parser.parse_args(arguments)
    if asked.pairs:
        work = asked.work or Path("runs/sentences")
        work.mkdir(parents=True, exist_ok=True)
        with mistakes_told("sentences"):
            print(*chinese_pairs(asked.data, work).values(), sep="\n")
        return
    run_asked(asked, jobs(), table, spare=30)


if __name__ == "__main__":
    main(sys.argv[1:])
