"""The page of results: what is published stands in its own row, means follow from their seeds, and cards agree."""

from __future__ import annotations

import json
import math
from statistics import fmean, stdev
from typing import Any

import pytest

from regard import folder, shipped
from regard.evaluation.metrics import Lines, chrf
from regard.planning import training_flops
from regard.recipe import Recipe, load_recipe
from regard.reproduce import rendering
from regard.reproduce.outcome import read_row
from regard.reproduce.published import Figure, published
from regard.reproduce.studies import STUDIES
from regard.reproduce.study import Row
from regard.text.labels import FIRST
from regard.text.restoring import TAGS
from regard.text.tokenizer import Tokenizer

from .pages import DOCS, table_rows

Table = dict[str, dict[str, str]]
"""Rows by their first cell, and the cells of each by their heading."""

PAGE = (DOCS / "results.md").read_text(encoding="utf-8")
OPENING = PAGE.partition("\n## ")[0]
MULTI30K, FIVE_MINUTES = "Multi30k, English to German and to French", "Five minutes of Europarl"
LONGER = "Twenty-five minutes of Europarl"
FRENCH, SHIPPED, BEYOND = "French to English", "The models that come with Regard", "Beyond translation"
CHINESE = "Chinese to English"
SEEDS = "BLEU tokenised, lower-cased: seeds 1, 2, 3"
OF_SEEDS, READ_TWICE = ("multi30k", "multi30k-fr"), ("multi30k-r-drop", "multi30k-simcut")  # as their tables stand
ROWS = {
    "five-minutes": "the recipe as it is, beam 4",
    "five-minutes-sinusoidal": "*base*, 8,450 steps, compiled before, beam 4",
    "twenty-five-minutes": "the recipe as it is, beam 4",
    "shakespeare": "the last tenth of the plays",
    "war-and-peace": "the last tenth of the novel",
}
COLUMNS = {"europarl": "Europarl test", "newstest2014": "newstest2014"}
TRANSLATORS = ("everyday-en-de", "everyday-de-en")
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
FIGURES = [(name, figure) for name, model in published().models.items() for figure in model.figures]


def section(heading: str) -> str:
    """What stands between a heading and the next of its rank."""
    _, found, after = PAGE.partition(f"\n## {heading}\n\n")
    assert found, heading
    return after.partition("\n## ")[0]


def tables(text: str) -> list[Table]:
    """The tables of a text, in order."""
    blocks = [part for part in text.split("\n\n") if part.startswith("|")]
    found = []
    for block in blocks:
        headings = [cell.strip() for cell in block.split("\n")[0].split("|")[1:-1]]
        rows = [row for row in table_rows(block) if row != headings]
        found.append({row[0]: dict(zip(headings, row, strict=True)) for row in rows})
    return found


def of_seeds(model: str) -> Table:
    """The table of three seeds of a model of Multi30k."""
    return tables(section(MULTI30K))[OF_SEEDS.index(model)]


def first(cell: str) -> str:
    """The number that a cell begins with, as it is written."""
    return cell.strip("*").split()[0]


def said(text: str, words: str) -> str:
    """The number after some words of running text."""
    found = " ".join(text.split()).partition(f"{words} ")
    assert found[1], words
    return first(found[2]).strip(".,;")


def place_of(model: str, figure: Figure) -> tuple[str, str]:
    """Where a published figure has to stand, as it is written there; and the part of the page that says how it was
    computed. The figures of the writer and of translation without an encoder are on pages of their own."""
    if model in OF_SEEDS:
        part, column = section(MULTI30K), {
            "BLEU tokenised": "mean", "BLEU": "sacreBLEU, lower-cased", "chrF": "chrF"
        }[figure.metric]  # fmt: skip
        return first(of_seeds(model)[figure.set.removesuffix("-fr")][column]), f"{part}\n{OPENING}"
    if model == "multi30k-pre":
        part = section(MULTI30K)
        return said(part, "(`model.norm=pre training.optimiser.clip=1.0`, one run) it was"), part
    if model in READ_TWICE:
        part, kind = section(MULTI30K), figure.metric.replace("BLEU", "sacreBLEU")
        column = f"{kind.replace('sacreBLEU tokenised', 'BLEU tokenised')}, lower-cased"
        table = tables(part)[READ_TWICE.index(model) + len(OF_SEEDS)]
        cell = table[figure.set]["chrF" if figure.metric == "chrF" else column]
        return first(cell), f"{part}\n{OPENING}"
    if model in ROWS and figure.metric == "chrF":
        row = {"five-minutes": "five minutes, beam 4"}.get(model, ROWS[model])
        column = {"europarl": "chrF", "newstest2014": "chrF, newstest2014"}[figure.set]
        return first(tables(section(LONGER))[0][row][column]), OPENING
    if model in ROWS:
        part = section(LONGER if model == "twenty-five-minutes" else FIVE_MINUTES)
        return first(tables(part)[0][ROWS[model]][COLUMNS[figure.set]]), part
    if model == "fr-en":
        part = section(FRENCH)
        words = {"BLEU": "On Europarl's test set, 3,000 lines: BLEU", "chrF": "BLEU 33.04, chrF"}[figure.metric]
        return said(part, words), f"{part}\n{OPENING}"
    if model == "zh-en":
        part = section(CHINESE)
        words = {"BLEU": "neither side of which occurs in training: BLEU", "chrF": "BLEU 31.74, chrF"}[figure.metric]
        return said(part, words), f"{part}\n{OPENING}"
    if model == "decoder-only-multi30k":
        part = (DOCS / "decoder-only.md").read_text(encoding="utf-8")
        row = {"BLEU tokenised": "mean", "BLEU": "sacreBLEU, lower-cased", "chrF": "chrF"}[figure.metric]
        return first(tables(part)[0][row]["decoder only"]), part
    page = (DOCS / "shipped.md").read_text(encoding="utf-8")
    if model == "writer":
        (table,) = [table for table in tables(page) if ROWS[figure.set] in table]
        return first(table[ROWS[figure.set]][figure.metric]), card(model)
    return first(tables(section(SHIPPED))[0][f"`{model}`"][figure.metric]), page


def card(name: str) -> str:
    """The card of a shipped model; a bar inside a cell is written as it is."""
    return (shipped.path(name) / folder.CARD).read_text(encoding="utf-8").replace("\\|", "|")


@pytest.mark.parametrize(("model", "figure"), FIGURES, ids=lambda value: str(value))
def test_a_published_figure_stands_in_its_own_place(model: str, figure: Figure) -> None:
    found, part = place_of(model, figure)
    assert found == f"{figure.value:.{len(found.partition('.')[2])}f}"
    assert float(found) == figure.value  # and no digit is missing
    signature = published().signatures[figure.signature]
    if "like-moses-fr" in signature:  # told as a variant of the German one
        assert "(French: `like-moses-fr`)" in part
        signature = signature.replace("like-moses-fr", "like-moses-de")
    if (
        figure.metric == "chrF" and "case:lc" in signature and f"`{signature}`" not in part
    ):  # told as a variant of the cased one
        assert "but `case:lc` on Multi30k" in part
        signature = signature.replace("case:lc", "case:mixed")
    assert f"`{signature}`" in part


@pytest.mark.parametrize("model", OF_SEEDS)
def test_means_and_deviations_follow_from_the_seeds(model: str) -> None:
    table = of_seeds(model)
    assert list(table) == ["test2016", "test2017", "mscoco"]
    for name, row in table.items():
        seeds = [float(seed) for seed in row[SEEDS].split(", ")]
        mean, deviation = (float(number) for number in row["mean"].strip("*").split(" ± "))
        # What is printed of a seed is rounded, and so is what is printed of them all.
        assert mean == pytest.approx(fmean(seeds), abs=0.01), name
        assert deviation == pytest.approx(stdev(seeds), abs=0.0051), name
        assert len(seeds) == published().models[model].seeds


def test_the_tolerance_of_a_mean_holds_nineteen_of_twenty_other_seeds() -> None:
    """Student's interval for one more run, as if the three sets had one deviation, of which each tells two degrees."""
    # The last has one set, and deviates as much as the first.
    for name, like in (*zip(OF_SEEDS, OF_SEEDS, strict=True), ("decoder-only-multi30k", "multi30k")):
        rows = of_seeds(like).values()
        deviations = {
            "BLEU": [stdev(float(seed) for seed in row[SEEDS].split(", ")) for row in rows],
            "chrF": [float(row["chrF"].split(" ± ")[1]) for row in rows],
        }
        for figure in published().models[name].figures:
            deviation = math.sqrt(fmean(each**2 for each in deviations[figure.metric.split()[0]]))
            wanted = 2.447 * math.sqrt(1 + 1 / 3) * deviation
            assert figure.tolerance == pytest.approx(wanted, abs=0.005)


def test_means_without_an_encoder_follow_from_their_seeds_too() -> None:
    table = tables((DOCS / "decoder-only.md").read_text(encoding="utf-8"))[0]
    rows = {name: row["decoder only"].strip("*") for name, row in table.items()}
    seeds = [float(seed) for seed in rows["BLEU tokenised, lower-cased, seeds 1, 2, 3"].split(", ")]
    mean, deviation = (float(number) for number in rows["mean"].split(" ± "))
    assert mean == pytest.approx(fmean(seeds), abs=0.01)
    assert deviation == pytest.approx(stdev(seeds), abs=0.0051)
    assert len(seeds) == published().models["decoder-only-multi30k"].seeds


def test_the_page_says_what_its_chrf_is() -> None:
    """Once for all: of text as it is, and of Multi30k, which is lower-cased."""
    cased, lowered = (chrf(Lines(["a"], [["a"]]), 0, lowercase=case).signature for case in (False, True))
    assert f"chrF is `{cased}` on this page, but `case:lc` on Multi30k" in OPENING
    assert cased.replace("case:mixed", "case:lc") == lowered
    assert f"`{lowered}`" in (DOCS / "decoder-only.md").read_text(encoding="utf-8")


def test_what_is_told_twice_is_told_alike() -> None:
    mean = tables(section(MULTI30K))[0]["test2016"]["mean"].strip("*")
    row = tables(section(BEYOND))[0]["translation without an encoder, Multi30k"]["figure"]
    without, _, with_one = row.partition("; with one ")
    assert with_one == mean
    assert f"it is {without}: [Without an encoder]" in section(MULTI30K)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_rows_of_shipped_models_are_those_of_their_cards(name: str) -> None:
    row = tables(section(SHIPPED))[0][f"`{name}`"]
    for score in ("BLEU", "chrF"):
        assert f"\n| {score} | {row[score]} | " in card(name)
        # Once more, for programs.
        entry = card(name).partition(f'name: "{score} (')[2].partition("value: ")[2].partition("\n")[0]
        assert entry == row[score]
    size = sum(file.stat().st_size for file in shipped.path(name).iterdir())
    assert row["size"] == f"{size / 1e6:.1f} MB"
    assert "On the test set: 1,506 lines of Tatoeba" in card(name)
    steps = [event for event in events(name) if event["event"] == "step"]
    assert row["training"] == f"{steps[-1]['step']:,} steps, {sum(step['took'] for step in steps):.0f} s"


def test_the_test_set_of_shipped_translators() -> None:
    assert [row["test set"] for row in tables(section(SHIPPED))[0].values()] == ["Tatoeba, 1,506 lines", "the same"]


def test_the_nats_of_the_writer_are_those_of_its_card() -> None:
    perplexity = said(card("writer"), 'name: "perplexity per token" value:')
    assert said(section(SHIPPED), "The writer reached") == f"{math.log(float(perplexity)):.3f}"


def test_the_long_run_stands_beside_the_short_one() -> None:
    """Figures that both tables have are the same, and the cost is what a card would say of so many steps and tokens."""
    short, long = table_rows(section(FIVE_MINUTES)), tables(section(LONGER))[0]
    place = [row[0] for row in short].index(ROWS["five-minutes"])
    for here, (_, *there) in zip(
        ("five minutes, beam 4", "five minutes, beam 12, α = 0.8"), short[place:], strict=False
    ):
        assert [first(long[here][column]) for column in COLUMNS.values()] == [first(cell) for cell in there[:2]]
    flops = training_flops(load_recipe("twenty-five-minutes"), 32_000, 1_940_000_000, 38_600)
    assert f"at {written(flops, 1)} FLOPs" in " ".join(section(LONGER).split())


def test_the_curves_of_a_shipped_model_are_those_beside_it() -> None:
    drawn = (DOCS / "pictures/everyday-en-de.svg").read_bytes()
    assert drawn == (shipped.path("everyday-en-de") / "curves.svg").read_bytes()


def test_every_file_has_its_checksum() -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in table_rows(section("The files")) if len(row) == 2}
    assert {file: found for file, found in rows.items() if file != "file"} == dict(published().files)


@pytest.mark.parametrize("name", shipped.ORDER)
def test_the_cost_of_shipped_models_is_what_a_card_would_say(name: str) -> None:
    """They were trained before cards told the cost; it is counted as a card counts it, from what is in the folder."""
    place = shipped.path(name)
    vocabulary = Tokenizer.load(place / folder.TOKENIZER).size
    tokens = sum(event["tokens"] for event in events(name) if event["event"] == "step")
    words = "the writer for" if name == "writer" else "a translator for"
    assert f"{words} {cost(folder.read_recipe(place), vocabulary, tokens)}" in " ".join(section(SHIPPED).split())


@pytest.mark.parametrize("study", ["ladder-multi30k", "ladder-europarl"])
def test_the_pictures_of_a_ladder_are_what_its_results_draw(study: str) -> None:
    drawn = rendering.Table.read(STUDIES[study], DOCS / "studies" / study).pictures()
    assert list(drawn) == ["", "-learning"]
    for ending, picture in drawn.items():
        assert (DOCS / "pictures" / f"{study}{ending}.svg").read_text(encoding="utf-8") == picture


@pytest.mark.parametrize(
    ("row", "preset", "vocabulary"),
    [
        ("Penn Treebank, medium LSTM", "lm-ptb-lstm", 10_003),
        ("Penn Treebank, Transformer", "lm-ptb-transformer", 10_003),
        ("tiny Shakespeare, 10.8 million parameters", "lm-shakespeare", 68),
        ("Bach's chorales", "music-jsb", 520),
        ("piano performances", "music-piano", 392),
    ],
)
def test_the_cost_of_runs_whose_batches_are_full(row: str, preset: str, vocabulary: int) -> None:
    recipe = load_recipe(preset)
    found = cost(recipe, vocabulary, recipe.training.steps * recipe.batch.tokens)
    assert tables(section(BEYOND))[0][row]["FLOPs"] == found


def test_the_cost_of_labels() -> None:
    """The page about them says how many tokens were read; which they are follows from the corpus and the seed alone."""
    page = (DOCS / "classify.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    beyond, tagged = tables(section(BEYOND))[0], next(table for table in tables(page) if "`tag-restoring`" in table)
    classified = {
        name: cost(load_recipe(name), FIRST + 4, number(said(words, before)), 8_000)
        for name, before in (("classify-language", "the same seed, hold"), ("classify-corpus", "14,817,888 and"))
    }
    assert beyond["which language, which corpus"]["FLOPs"] == ", ".join(classified.values())
    assert f"That makes {' and '.join(classified.values())} FLOPs" in words
    for name, row in tagged.items():
        recipe, tokens = load_recipe(name.strip("`")), number(said(words, "a card counts them, for the"))
        assert row["FLOPs"] == cost(recipe, FIRST + len(TAGS), tokens, 8_000)
    assert beyond["capitals and punctuation"]["FLOPs"] == tagged["`tag-restoring`"]["FLOPs"]


def number(text: str) -> int:
    """A number that is written with commas."""
    return int(text.replace(",", ""))


def cost(recipe: Recipe, vocabulary: int, tokens: int, source_vocabulary: int | None = None) -> str:
    """The FLOPs of a run of all its steps, as the page writes them."""
    return written(training_flops(recipe, vocabulary, tokens, recipe.training.steps, source_vocabulary), 1)


def written(flops: float, digits: int) -> str:
    """A large number as the page writes it."""
    number, power = f"{flops:.{digits}e}".split("e+")
    return f"{number} · 10{power.translate(RAISED)}"


def events(name: str) -> list[dict[str, Any]]:
    """How a shipped model learned."""
    lines = (shipped.path(name) / folder.METRICS).read_text(encoding="utf-8").strip().split("\n")
    return [json.loads(line) for line in lines]


def test_table_3_is_that_of_its_rows() -> None:
    found = rendering.Table.read(STUDIES["table3"], DOCS / "studies" / "table3")
    assert not found.missing
    rows, correlations = tables(section("Table 3"))
    assert list(rows) == [f"`{name}`" for name in found.outcomes]
    for row in STUDIES["table3"].rows:
        outcome = found.outcomes[row.name]
        assert list(rows[f"`{row.name}`"].values())[1:3] == [row.what, f"{outcome.parameters / 1e6:.1f}"]
    assert list(correlations) == ["all rows", *STUDIES["table3"].groups]
    for each in found.correlations():
        row = correlations[each.among]
        assert (row["rows"], row[each.measure]) == (str(each.rows), f"{each.value:.2f}")
    for ending, picture in found.pictures().items():
        assert (DOCS / "pictures" / f"table3{ending}.svg").read_text(encoding="utf-8") == picture
        assert f"](pictures/table3{ending}.svg)" in section("Table 3")


@pytest.mark.parametrize("row", STUDIES["table3"].rows, ids=lambda row: row.name)
def test_a_row_of_table_3_is_what_was_measured(row: Row) -> None:
    (line,) = [line for line in section("Table 3").split("\n") if line.startswith(f"| `{row.name}` |")]
    found = read_row(DOCS / "studies" / "table3" / row.name, "table3", row.name)
    assert found is not None
    assert [cell.strip() for cell in line.split("|")[4:-1]] == [
        f"{found.dev.perplexity:.3f}",
        f"{row.paper['dev perplexity']:.2f}",
        f"{found.dev.bleu:.2f}",
        f"{row.paper['dev BLEU']:.1f}",
        f"{found.test.bleu:.2f}",
        f"{found.flops / 1e15:.1f}",
    ]


def test_the_gain_of_averaging_follows_from_its_table() -> None:
    (table,) = tables(section("The mean of the last checkpoints"))
    for column in ("dev BLEU", "test BLEU"):
        one, _, five = (float(first(row[column])) for row in table.values())
        assert f"worth {five - one:.1f} BLEU" in section("The mean of the last checkpoints")


def test_what_is_there_of_table_2_is_what_the_ladder_has() -> None:
    rows = [row for row in table_rows(section("Table 2")) if row[0]]
    assert len(rows) == 3
    rungs = {"bytenet": "bytenet", "convs2s": "convs2s", "base": "transformer"}
    for shown, (name, rung) in zip(rows, rungs.items(), strict=True):
        (row,) = STUDIES["table2"].chosen(name)
        found = read_row(DOCS / "studies/ladder-europarl" / rung, "ladder-europarl", rung)
        assert found is not None
        flops = row.paper.get("training FLOPs")
        printed = "" if flops is None else written(flops, 1)
        assert shown == [
            row.what,
            f"{found.test.bleu:.2f}",
            f"{row.paper['test BLEU']:g}",
            written(found.flops, 2),
            printed,
        ]


@pytest.mark.parametrize("name", ["ladder-multi30k", "ladder-europarl"])
def test_the_tables_of_the_ladders_are_those_of_their_rows(name: str) -> None:
    corpus = name.removeprefix("ladder-").capitalize()
    part = section("The ladder").partition(f"### {corpus}\n\n")[2].partition("\n### ")[0]
    table, lengths, *_ = tables(part)
    outcomes = [read_row(DOCS / "studies" / name / row.name, name, row.name) for row in STUDIES[name].rows]
    done = [found for found in outcomes if found is not None]
    assert list(table) == list(lengths) == [found.what for found in done]
    for found in done:
        assert list(table[found.what].values())[1:] == [
            f"{found.parameters / 1e6:.1f}",
            f"{found.dev.perplexity:.3f}",
            f"{found.dev.bleu:.2f}",
            f"{found.test.bleu:.2f}",
            written(found.flops, 2),
            f"{found.seconds:.0f}",
            f"{found.speed:,.0f}",
            f"{found.decoded / found.decoding_seconds:,.0f}",
        ]
        assert list(lengths[found.what].values())[1:] == [f"{stretch.bleu:.2f}" for stretch in found.lengths]
        assert f"{found.steps:,} steps; seed {found.seed}; {found.search}; dev has {found.dev.lines:,} lines" in part
