"""`regard evaluate`, `compare` and `align`: figures that can be checked, and mistakes that are named."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.api import load
from regard.cli import scoring
from regard.files import seal
from tests.evaluation.texts import references, spoilt
from tests.tiny import ENGLISH, GERMAN, failed, regard, write_lines


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_lines(tmp_path / "s.en", ["one", "two", ""]), write_lines(tmp_path / "r.de", ["eins", "falsch", ""])


# Evaluate


def test_evaluate_without_files_takes_the_recipes_test_set(words_model: Path) -> None:
    ran = regard("evaluate", words_model)
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.split("\n")
    assert lines[0].startswith("source     the recipe's test set  13 lines  sha256 ")
    assert "exact match           100.00  100.00 … 100.00  percent of 13 lines, to the letter" in lines
    assert any(line.startswith("perplexity per byte ") for line in lines)


def test_evaluate_says_what_it_has_read_and_found(words_model: Path, pair: tuple[Path, Path]) -> None:
    found = json.loads(regard("evaluate", words_model, *pair, "--json", "--examples", 1).out)
    assert set(found) == {"lines", "files", "scores", "lengths", "worst", "best", "bootstrap", "notes"}
    assert found["lines"] == 3
    for file, place, role in zip(found["files"], pair, ("source", "reference"), strict=True):
        digest = hashlib.sha256(place.read_bytes()).hexdigest()
        assert file == {"role": role, "name": str(place), "lines": 3, "sha256": digest}
    scores = {score["name"]: score for score in found["scores"]}
    assert scores["exact match"]["value"] == pytest.approx(200 / 3)
    assert "tok:like-moses-de" in scores["BLEU tokenised"]["signature"]
    assert {"perplexity per token", "perplexity per byte"} <= set(scores)
    assert found["worst"][0] == {
        "line": 2, "chrf": pytest.approx(0.0), "source": "two", "reference": "falsch", "translation": "zwei",
    }  # fmt: skip
    assert found["notes"] == ["1 of 3 translations is empty."]


def test_what_is_there_once_is_not_told_as_several(words_model: Path, tmp_path: Path) -> None:
    source, expected = write_lines(tmp_path / "s.en", ["one"]), write_lines(tmp_path / "r.de", ["eins"])
    gold = write_lines(tmp_path / "gold", ["0-0"])
    told = regard("evaluate", words_model, source, expected, "--rouge").out
    told += regard("compare", expected, expected, expected).out
    told += regard("align", words_model, source, expected, "--gold", gold).err
    several = [
        found[0]
        for found in re.finditer(r"(?<![\d.,:-])1 (\w+)", told)
        if found[1].endswith("s") and found[1] not in ("is", "has", "was")
    ]
    assert "1 line" in told
    assert several == []


def test_evaluate_prints_what_the_sacrebleu_command_prints_of_the_same_files(words_model: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s.en", ENGLISH * 2)
    expected = write_lines(tmp_path / "r.de", [*GERMAN, *reversed(GERMAN)])
    second, out = write_lines(tmp_path / "other.de", GERMAN * 2), tmp_path / "found.de"
    ran = regard("evaluate", words_model, source, expected, second, "--lowercase", "--out", out, "--json")
    ours = {score["name"]: score for score in json.loads(ran.out)["scores"]}
    assert out.read_text(encoding="utf-8") == "".join(f"{word}\n" for word in GERMAN * 2)
    line = f"{expected} {second} -i {out} -m bleu chrf ter -lc --chrf-lowercase --format json -w 6"
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *line.split()], capture_output=True, text=True, check=True
    )
    for theirs in json.loads(done.stdout):
        found = ours[{"chrF2": "chrF"}.get(theirs["name"], theirs["name"])]
        assert found["value"] == pytest.approx(theirs["score"], abs=1e-6)
        assert found["signature"] == theirs["signature"]


def test_evaluate_names_mistakes(words_model: Path, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, expected = pair
    failed(regard("evaluate", words_model, source), 2, "SOURCE and REFERENCE must be given together")
    short = write_lines(tmp_path / "t", ["x"])
    failed(regard("evaluate", words_model, source, short), 65, source, short, "have 3 and 1")
    failed(regard("evaluate", words_model, source, short, expected), 65, short, expected, "have 1 and 3")
    failed(regard("evaluate", words_model, source, tmp_path / "no"), 66, "no: there is no such file")
    failed(regard("evaluate", words_model, *pair, "--tokenize", "moses"), 2, "must be one of 13a", "`moses`")
    failed(regard("evaluate", words_model, *pair, "--beam", 0), 2, "--beam must be at least 1")
    failed(regard("evaluate", words_model, *pair, "--out", tmp_path / "no" / "out"), 66, "in a folder that is there")
    failed(regard("evaluate", words_model, *pair, "--out", ""), 2, "must be a file to write, but is a folder")
    failed(regard("evaluate", words_model, *pair, "--language", "German"), 2, "--language must be a code", "`German`")
    failed(regard("evaluate", words_model, *pair, "--penalty", "wu"), 2, "--penalty must be one of: gnmt")


def test_evaluate_searches_as_it_is_told(words_model: Path, pair: tuple[Path, Path], tmp_path: Path) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    link.symlink_to(real)
    line = ("evaluate", words_model, *pair, "--extra-length", 0, "--penalty", "length", "--coverage", 0.1)
    assert regard(*line, "--out", link).code == 0
    assert (link.is_symlink(), real.read_text(encoding="utf-8").count("\n")) == (True, 3)


# Score


def test_given_translations_are_scored_line_by_line(words_model: Path, pair: tuple[Path, Path]) -> None:
    ran = regard("score", words_model, *pair)
    assert (ran.code, ran.err) == (0, "")
    right, wrong, _ = [[float(number) for number in line.split("\t")] for line in ran.out.strip().split("\n")]
    assert wrong[0] < right[0] < 0
    found = [json.loads(line) for line in regard("score", words_model, *pair, "--json").out.strip().split("\n")]
    expected = load(words_model).score(["eins", "falsch", ""], ["one", "two", ""])
    for one, other in zip(found, expected, strict=True):
        assert set(one) == {"log_probability", "tokens", "log_probabilities"}
        assert one["log_probability"] == pytest.approx(other.log_probability)
        assert one["log_probabilities"] == pytest.approx(other.log_probabilities)
        assert len(one["tokens"]) == len(one["log_probabilities"])
    assert len(found[2]["tokens"]) == 1  # the end
    assert right == pytest.approx(
        [found[0]["log_probability"], found[0]["log_probability"] / len(found[0]["tokens"])], abs=1e-4
    )


def test_score_names_mistakes(words_model: Path, pair: tuple[Path, Path], tmp_path: Path) -> None:
    failed(regard("score", words_model, pair[0]), 2, "needs SOURCE and TARGET, but there is one file")
    short = write_lines(tmp_path / "t", ["x"])
    failed(regard("score", words_model, pair[0], short), 65, "have 3 and 1")
    failed(regard("score", words_model, *pair, "--to", "de"), 2, "language: must be left out")


def test_a_model_without_a_test_set_says_so(words_model: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(words_model, tmp_path / "model"))
    recipe = model / "recipe.toml"
    recipe.write_text("\n".join(line for line in recipe.read_text().split("\n") if not line.startswith("test_")))
    seal(model, ["recipe.toml", "tokenizer.json", "model.safetensors"])
    failed(regard("evaluate", model), 65, "its recipe names no test set", "regard evaluate MODEL SOURCE REFERENCE")


# Compare


def test_compare_gives_a_verdict_in_words_and_in_json(tmp_path: Path) -> None:
    expected = references(60)
    files = [write_lines(tmp_path / name, texts) for name, texts in
             {"a": spoilt(expected, 0.3, 1), "b": spoilt(expected, 0.05, 2), "r": expected}.items()]  # fmt: skip
    ran = regard("compare", *files)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"A  {files[0]}\nB  {files[1]}\n60 lines\n\nBLEU  A ")
    assert "by paired bootstrap" in ran.out
    assert ran.out.split("\n")[-2].startswith("B is better: the difference of ")
    found = json.loads(regard("compare", *files, "--json").out)
    assert set(found) == {"lines", "differences", "tests", "verdict"}
    assert found["verdict"] == ran.out.split("\n")[-2]
    bleu, chrf = found["differences"]
    assert (bleu["name"], chrf["name"], bleu["better"]) == ("BLEU", "chrF", "B")
    assert bleu["difference"] == pytest.approx(bleu["b"] - bleu["a"])
    assert bleu["low"] < bleu["difference"] < bleu["high"]
    assert found["tests"] == {"samples": 1000, "swaps": 10000, "seed": 12345, "level": 0.05}


def test_compare_claims_nothing_of_the_same_text(tmp_path: Path) -> None:
    same = write_lines(tmp_path / "a", ["eins", ""])
    ran = regard("compare", same, same, write_lines(tmp_path / "r", ["zwei", ""]))
    assert ran.out.endswith("\nA and B are the same, line by line.\n")


def test_compare_names_files_that_do_not_fit(tmp_path: Path) -> None:
    one, two = write_lines(tmp_path / "one", ["a"]), write_lines(tmp_path / "two", ["a", "b"])
    failed(regard("compare", one, two, two), 65, one, two, "have 1 and 2")
    failed(regard("compare", two, tmp_path / "no", two), 66, "there is no such file")
    failed(regard("compare", one, two), 2, "Missing argument", "REFERENCE")


# Align


def test_align_prints_a_line_for_every_pair(words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "ALIGNED_AT_A_TIME", 4)
    source = write_lines(tmp_path / "s", [*ENGLISH, "", "one two"])
    target = write_lines(tmp_path / "t", [*GERMAN, "eins", ""])
    ran = regard("align", words_model, source, target)  # in its first lines no word comes twice
    assert ran.code == 0
    assert ran.out.count("\n") == 15
    assert set(ran.out.split("\n")[:13]) <= {"0-0", ""}
    assert ran.out.split("\n")[13:] == ["", "", ""]
    assert "the usual one: 4 lines cannot tell which of 3 attentions aligns best. Give more lines, " in ran.err
    chosen = ran.err.split("attention ")[1].split(",")[0]
    again = regard("align", words_model, source, target, "--head", chosen, "--json")
    assert again.err == ""
    for line, text in zip(again.out.split("\n")[:-1], ran.out.split("\n"), strict=False):
        assert " ".join(f"{i}-{j}" for i, j, _ in json.loads(line)["alignment"]) == text


def test_align_chooses_by_what_is_gained(words_model: Path, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", ENGLISH * 3), write_lines(tmp_path / "t", GERMAN * 3)
    ran = regard("align", words_model, source, target)
    assert re.search(
        r"^Aligned by attention 1\.\w+, which has the highest prediction gain of 3 attentions: \d", ran.err
    )


def test_align_chooses_and_judges_by_gold(words_model: Path, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", ENGLISH), write_lines(tmp_path / "t", GERMAN)
    ran = regard("align", words_model, source, target, "--gold", write_lines(tmp_path / "g", ["0-0"] * 13))
    chosen, judged = ran.err.strip().split("\n")
    assert "which has the lowest alignment error rate of 3" in chosen
    right = ran.out.split("\n").count("0-0")
    assert f"precision {1.0:.3f}, recall {right / 13:.3f} on 13 lines." in judged


def test_align_names_mistakes(words_model: Path, tmp_path: Path) -> None:
    one, two = write_lines(tmp_path / "one", ["a"]), write_lines(tmp_path / "two", ["a", "b"])
    failed(regard("align", words_model, one, two), 65, "have 1 and 2")
    failed(regard("align", words_model, one, one, "--head", "9.9"), 2, "must be one of 1.1, 1.2, 1.mean, but is `9.9`")
    failed(regard("align", words_model, one, one, "--gold", two), 65, two, one, "have 2 and 1")
    failed(regard("align", words_model, one, one, "--gold", one), 65, f"{one}, line 1: must hold links", "`a`")
    for wrong in ("50-50", "0-1", "1?0"):
        gold = write_lines(tmp_path / "gold", ["0-0", f"0-0 {wrong}"])
        failed(regard("align", words_model, two, two, "--gold", gold), 65, f"{gold}, line 2: links must be between")
