"""Tables are made of the results that are there, and say what is not."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.reproduce.ladder import LADDER_EUROPARL, LADDER_MULTI30K
from regard.reproduce.outcome import Judged, Outcome, Stretch
from regard.reproduce.rendering import Table, markdown_table, render
from regard.reproduce.study import Study
from regard.reproduce.table2 import TABLE2
from regard.reproduce.table3 import TABLE3

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def outcome(
    study: Study, row: str, perplexity: float, bleu: float, beside: int = 0, changes: Sequence[str] = ()
) -> Outcome:
    judged = Judged(3_000, {"source": "a" * 64}, bleu, 50.0, perplexity, {"BLEU": SIGNATURE})
    tested = replace(judged, sha256={"source": "c" * 64, "reference": "d" * 64})
    what = {each.name: each.what for each in study.rows}[row]
    stretches = [Stretch(100, 5.0, bleu), Stretch(50, 14.5, bleu / 2)] if study.lengths else []
    return Outcome(
        study.name, row, what, 63_082_496, 2_000, 97_500_000, 3.6e16, 57.4, 1_750_000.0, beside, judged, tested,
        90_000, 3.0, stretches, "one H200", "2.11.0", "0.1.0", 1, "beam 4", {"train.en.bz2": "b" * 64}, list(changes),
    )  # fmt: skip


def filled(study: Study, out: Path, figures: dict[str, tuple[float, float]]) -> Table:
    for row, (perplexity, bleu) in figures.items():
        (out / row).mkdir()
        outcome(study, row, perplexity, bleu).write(out / row)
    return render(study, out)


def test_the_paper_stands_beside_ours_and_the_orders_are_compared(tmp_path: Path) -> None:
    # The paper's order of these by perplexity is c-d1024, base, b-dk32, b-dk16, c-n2; by BLEU as well.
    ours = {"base": (6.1, 24.0), "b-dk16": (6.4, 23.9), "b-dk32": (6.2, 23.8), "c-n2": (7.5, 24.1), "c-d1024": (6, 25)}
    table = filled(TABLE3, tmp_path, ours)
    compared = {(each.among, each.measure): (each.rows, each.value) for each in table.correlations()}
    assert list(compared) == [
        (among, measure)
        for among in ("these rows", "(B) and base")  # some of the other groups are not done
        for measure in ("dev perplexity", "dev BLEU")
    ]
    assert compared["these rows", "dev perplexity"] == (5, pytest.approx(1.0))
    assert compared["these rows", "dev BLEU"] == (5, pytest.approx(0.3))
    assert compared["(B) and base", "dev BLEU"] == (3, pytest.approx(0.5))
    page = (tmp_path / "table3.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| `base` .*$", page, re.MULTILINE)
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    assert cells[1:10] == ["63.1", "65", "6.100", "4.92", "24.00", "25.8", "24.00", "97.5", "3.60e+16"]
    assert cells[10:] == ["57", "1,750,000", "30,000"]
    assert "| `c-n2` | (C) N = 2 | 63.1 | 36 | 7.500 | 6.11 | 24.10 | 23.7 |" in page
    heading = page.split("\n")[page.split("\n").index(line) - 2]
    assert len(heading.split("|")) == len(line.split("|"))
    assert "| Spearman's rank correlation of ours with the paper's | rows | dev perplexity | dev BLEU |\n" in page
    assert "| these rows | 5 | 1.00 | 0.30 |\n" in page
    assert "| (B) and base | 3 | 1.00 | 0.50 |\n" in page
    assert "(C) and base" not in page  # of which most are not there
    assert "train.en.bz2 (bbbbbbbbbbbb)" in page
    assert "The test set, with that of its lines: source (cccccccccccc), reference (dddddddddddd)." in page
    assert SIGNATURE in page
    assert "Not done: a-h1, a-h4, a-h16" in page
    assert not (tmp_path / "table3.svg").exists()
    assert "![The paper's order of the rows beside ours](table3-order.svg)" in page
    order = "".join(ET.fromstring((tmp_path / "table3-order.svg").read_bytes()).itertext())
    assert "c-d1024: 1 → 1" in order
    assert "c-n2  6.11" in order
    assert "7.500  c-n2" in order
    plain = json.loads((tmp_path / "table3.json").read_text())
    assert plain["rows"]["base"]["paper"] == {"dev perplexity": 4.92, "dev BLEU": 25.8, "parameters": 65e6}
    assert plain["rows"]["base"]["dev"]["bleu"] == 24.0
    assert "big" in plain["missing"]


def test_bleu_against_length_is_drawn_and_listed(tmp_path: Path) -> None:
    filled(LADDER_MULTI30K, tmp_path, {"rnn": (9.0, 20.0), "transformer": (5.0, 40.0)})
    page = (tmp_path / "ladder-multi30k.md").read_text(encoding="utf-8")
    assert "](ladder-multi30k.svg)" in page
    assert "| BLEU of sources of about | 5 words (100 lines) | 14 words (50 lines) |" in page
    assert "| GRU, one fixed context | 20.00 | 10.00 |" in page
    assert "Spearman" not in page  # no paper trained these
    picture = (tmp_path / "ladder-multi30k.svg").read_text(encoding="utf-8")
    assert "GRU, one fixed context: 14.5, 10" in picture
    assert "Transformer, post-norm: 5, 40" in picture


def test_rows_of_different_test_sets_have_tables_of_lengths_of_their_own(tmp_path: Path) -> None:
    filled(LADDER_MULTI30K, tmp_path, {"rnn": (9.0, 20.0), "transformer": (5.0, 40.0)})
    other = replace(outcome(LADDER_MULTI30K, "dot", 8.0, 30.0), lengths=[Stretch(7, 30.0, 12.0)])
    (tmp_path / "dot").mkdir()
    other.write(tmp_path / "dot")
    page = render(LADDER_MULTI30K, tmp_path).to_markdown()
    assert (
        "| BLEU of sources of about | 5 words (100 lines) | 14 words (50 lines) |\n|---|---|---|\n"
        "| GRU, one fixed context | 20.00 | 10.00 |\n| Transformer, post-norm | 40.00 | 20.00 |\n\n"
        "| BLEU of sources of about | 30 words (7 lines) |\n|---|---|\n| GRU, dot-product attention | 12.00 |\n"
    ) in page


def test_a_row_looks_the_same_whichever_others_are_there(tmp_path: Path) -> None:
    found = []
    for rows in (["rnn", "additive", "dot", "windowed"], ["dot", "windowed"]):
        out = tmp_path / str(len(rows))
        out.mkdir()
        filled(LADDER_MULTI30K, out, dict.fromkeys(rows, (9.0, 20.0)))
        picture = ET.fromstring((out / "ladder-multi30k.svg").read_bytes())
        named = {each.text: each.get("class") for each in picture.iter("{http://www.w3.org/2000/svg}text")}
        found.append([named["GRU, dot-product attention"], named["Transformer, window 5"]])
    assert found == [["c2", "c6"]] * 2  # the colours of the third and of the seventh


def test_the_loss_against_the_tokens_read_is_drawn_for_rows_that_are_done(tmp_path: Path) -> None:
    learning = [(place / 10, 60 / place) for place in range(1, 61)]
    for row, points in (("rnn", learning), ("transformer", [])):  # the second is from before this was kept
        (tmp_path / row).mkdir()
        replace(outcome(LADDER_MULTI30K, row, 9.0, 20.0), learning=points).write(tmp_path / row)
    page = render(LADDER_MULTI30K, tmp_path).to_markdown()
    assert "![Training loss against the tokens read](ladder-multi30k-learning.svg)" in page
    picture = ET.fromstring((tmp_path / "ladder-multi30k-learning.svg").read_bytes())
    (curve,) = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "curve c0"]
    assert str(curve.get("d")).count("L") == 59
    said = "".join(picture.itertext())
    assert "GRU, one fixed context" in said
    assert "Transformer, post" not in said


def test_a_picture_of_rows_that_are_gone_goes_too(tmp_path: Path) -> None:
    filled(TABLE3, tmp_path, {"base": (6.1, 24.0), "a-h1": (6.4, 23.9), "c-n2": (7.5, 24.1)})
    assert (tmp_path / "table3-order.svg").is_file()
    (tmp_path / "c-n2" / "result.json").unlink()
    render(TABLE3, tmp_path)
    assert not (tmp_path / "table3-order.svg").exists()


def test_of_many_rows_the_curves_are_drawn_in_groups() -> None:
    learning = [(place / 10, 60 / place) for place in range(1, 61)]
    rows = {
        name: replace(outcome(TABLE3, name, 6.0, 24.0), learning=learning) for name in ("base", "a-h1", "c-n2", "big")
    }
    picture = ET.fromstring(Table(TABLE3, TABLE3.rows, rows).pictures()["-learning"])
    said = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    groups = ["(A) and base", "(C) and base", "(E), big and base"]  # one of (B) and of (D) would be alone
    assert [text for text in said if text in TABLE3.groups] == groups
    assert [text for text in said if text in rows] == ["base", "a-h1", "base", "c-n2", "base", "big"]
    curves = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "curve c0"]
    assert [str(curve.get("d")).count("L") for curve in curves] == [52, 52, 52]  # without the first eighth
    assert Table(TABLE3, TABLE3.rows, {"base": rows["base"]}).pictures() == {}


def test_nothing_done_is_a_sentence(tmp_path: Path) -> None:
    table = render(LADDER_MULTI30K, tmp_path)
    assert table.to_markdown() == "ladder-multi30k: nothing is done yet.\n"
    assert len(table.to_json()["missing"]) == len(LADDER_MULTI30K.rows)
    assert list(tmp_path.iterdir()) == []
    some = Table.read(LADDER_MULTI30K, tmp_path, LADDER_MULTI30K.chosen("rnn,dot"))
    assert some.to_markdown() == "ladder-multi30k: nothing is done yet of rnn, dot.\n"


def test_rows_that_shared_the_machine_are_named(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    outcome(TABLE3, "base", 6.0, 24.0, beside=2).write(tmp_path / "base")
    said = "When base began or ended, other rows were being made on the same machine, so seconds are more"
    assert said in render(TABLE3, tmp_path).to_markdown()


def test_rows_of_other_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    outcome(TABLE3, "base", 6.0, 24.0, changes=["--steps 9", "seed=2"]).write(tmp_path / "base")
    page = render(TABLE3, tmp_path).to_markdown()
    assert "Made with other settings than the study's: base with `--steps 9 seed=2`." in page
    assert "```text\nregard reproduce table3 --rows base --data FOLDER --steps 9 seed=2\n```" in page


@pytest.mark.parametrize(
    ("changes", "untrue"),
    [
        (["--steps 20", "model.d_model=32", "data.kind=generated", "model.d_ff=64"], "model.d_model=32 model.d_ff=64"),
        (["training={label_smoothing = 0.2, steps = 9}"], "training={label_smoothing = 0.2, steps = 9}"),
        (["tokenizer.vocabulary=300"], "tokenizer.vocabulary=300"),
        (["--steps 20", "seed=2", "training={steps = 9}", "search.beam=1", "data={kind = 'generated'}"], None),
    ],
)
def test_labels_that_are_not_true_are_named_beside_the_table(
    changes: list[str], untrue: str | None, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    outcome(TABLE3, "base", 6.0, 24.0, changes=changes).write(tmp_path / "base")
    (before, *_) = render(TABLE3, tmp_path).to_markdown().split("\n\n| row |")
    assert f"base with `{' '.join(changes)}`." in before
    said = f"With `{untrue}` these are other models than their labels say, and than those that the paper's figures"
    assert (said in before) == (untrue is not None)
    assert ("labels" in before) == (untrue is not None)


def test_a_seed_is_told_where_a_row_is_called_by_it(tmp_path: Path) -> None:
    for row in ("gnmt", "gnmt-2"):
        (tmp_path / row).mkdir()
        outcome(TABLE2, row, 6.0, 24.0, changes=["seed=3"] if row == "gnmt-2" else []).write(tmp_path / row)
    said = (
        "gnmt-2 with `seed=3`. With `seed=3` these are other models than their labels say.\n"  # no figure of the paper
    )
    assert said in render(TABLE2, tmp_path).to_markdown()
    outcome(TABLE2, "gnmt", 6.0, 24.0, changes=["seed=3"]).write(tmp_path / "gnmt")
    (tmp_path / "gnmt-2/result.json").unlink()
    assert "other models" not in render(TABLE2, tmp_path).to_markdown()


def test_the_commands_are_those_that_make_the_rows(tmp_path: Path) -> None:
    generated = "data={kind = 'generated', pairs = 60}"
    for row in TABLE3.rows:
        (tmp_path / row.name).mkdir()
        outcome(TABLE3, row.name, 6.0, 24.0, changes=[generated] if row.name == "big" else []).write(
            tmp_path / row.name
        )
    page = render(TABLE3, tmp_path).to_markdown()
    names = ",".join(row.name for row in TABLE3.rows[:-1])
    quoted = shlex.quote(generated)
    lines = [f"regard reproduce table3 --rows {names} --data FOLDER", f"regard reproduce table3 --rows big {quoted}"]
    assert "```text\n" + "\n".join(lines) + "\n```" in page
    # What is said of Europarl is not said of another corpus.
    assert page.startswith(f"## {TABLE3.sentence} (but another corpus: big)\n")
    assert "Europarl's dev set" not in page
    outcome(TABLE3, "big", 6.0, 24.0).write(tmp_path / "big")
    page = render(TABLE3, tmp_path).to_markdown()
    assert "```text\nregard reproduce table3 --data FOLDER\n```" in page
    assert "Europarl's dev set" in page


@pytest.mark.parametrize("rows", [["base"], ["base", "c-n2"]])
def test_one_row_or_two_have_no_order_to_compare(tmp_path: Path, rows: list[str]) -> None:
    table = filled(TABLE3, tmp_path, {row: (6.1 + place, 24.0 - place) for place, row in enumerate(rows)})
    assert {each.value for each in table.correlations()} == {None}
    page = table.to_markdown()
    assert "cannot be compared with the paper's: they are too few, or all alike." in page
    assert "Spearman" not in page
    assert "order.svg" not in page
    assert not (tmp_path / "table3-order.svg").exists()


def test_nothing_is_said_of_a_corpus_that_was_not_used(tmp_path: Path) -> None:
    for row in ("rnn", "transformer"):
        (tmp_path / row).mkdir()
        outcome(LADDER_MULTI30K, row, 9.0, 20.0, changes=["data.kind=generated"]).write(tmp_path / row)
    page = render(LADDER_MULTI30K, tmp_path).to_markdown()
    picture = (tmp_path / "ladder-multi30k.svg").read_text(encoding="utf-8")
    assert page.startswith("## From one fixed context to the Transformer, on another corpus\n")
    assert ">From one fixed context to the Transformer, on another corpus</text>" in picture
    assert "Multi30k" not in page + picture
    outcome(LADDER_MULTI30K, "rnn", 9.0, 20.0).write(tmp_path / "rnn")
    render(LADDER_MULTI30K, tmp_path)
    picture = (tmp_path / "ladder-multi30k.svg").read_text(encoding="utf-8")
    assert f">{LADDER_MULTI30K.sentence} (but another corpus: transformer)</text>" in picture


def test_some_rows_alone(tmp_path: Path) -> None:
    filled(TABLE3, tmp_path, {"base": (6.1, 24.0), "big": (6.0, 25.0)})
    table = Table.read(TABLE3, tmp_path, TABLE3.chosen("big,a-h1"))
    assert (list(table.outcomes), table.missing) == (["big"], ["a-h1"])
    assert "`base`" not in table.to_markdown()


def test_another_studys_figures_are_refused(tmp_path: Path) -> None:
    filled(LADDER_MULTI30K, tmp_path, {"rnn": (9.0, 20.0)})
    with pytest.raises(DataError, match=r"must be of `rnn` of ladder-europarl, but is of `rnn` of ladder-multi30k\."):
        render(LADDER_EUROPARL, tmp_path)
    (tmp_path / "rnn").rename(tmp_path / "dot")
    with pytest.raises(DataError, match="must be of `dot` of ladder-multi30k, but is of `rnn`"):
        render(LADDER_MULTI30K, tmp_path)
    assert not (tmp_path / "ladder-europarl.md").exists()


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown_table([["a"], ["b|c"]]) == "| a |\n|---|\n| b\\|c |"
