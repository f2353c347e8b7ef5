"""The card says what is true, and what a model hub can read."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import folder
from regard.card import START, Result, model_card, start_facts
from regard.data.corpus import Files, Mixture, Text
from regard.evaluation.metrics import Score
from regard.recipe import Recipe, load_recipe
from regard.training.validation import Validation
from tests.docs.pages import table_rows
from tests.tiny import word_recipe

RESULT = Result(1_234_567, 8_000, 900, "All 900 steps done.", Validation(nll=1.0, tokens=5_000, bytes=20_000), 8.4e16)
BLEU = Score("BLEU", 31.416, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0")


def write_metrics(place: Path, *events: dict[str, Any]) -> None:
    (place / folder.METRICS).write_text("".join(json.dumps(event) + "\n" for event in events))


def start(step: int, machine: str, command: str | None) -> dict[str, Any]:
    return {
        "event": START, "step": step, "command": command, "machine": machine, "processes": 2, "torch": "2.11.0",
        "python": "3.12.1", "seconds": 0.0,
    }  # fmt: skip


def write_report(place: Path, **values: Any) -> None:
    dropped = {"empty": {"count": 3, "examples": []}, "too long": {"count": 0, "examples": []}}
    corpus = {"name": "a.en + a.de", "read": 1_003, "kept": 1_000, "dropped": dropped}
    guesses = {"train source": {"language": "en"}, "train target": {"language": "fr"}}
    report = {
        "corpora": [corpus], "train": 980, "valid": 20, "held_out": True, "warnings": ["only 980 pairs"],
        "languages": guesses, **values,
    }  # fmt: skip
    (place / folder.DATA).write_text(json.dumps(report))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "my model"
    made.mkdir()
    return made


def front_matter(card: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    begin, text, _ = card.split("---\n", 2)
    assert begin == ""
    return dict(yaml.safe_load(text))


def test_hubs_can_read_its_beginning(place: Path) -> None:
    recipe = replace(load_recipe("demo"), licence="cc-by-4.0", name='odd: "name" #1')
    found = front_matter(model_card(place, recipe, replace(RESULT, scores=[BLEU])))
    assert (found["license"], found["pipeline_tag"], found["library_name"]) == ("cc-by-4.0", "translation", "regard")
    assert found["language"] == ["en", "de"]
    assert found["tags"] == ["regard", "transformer"]
    (entry,) = found["model-index"]
    assert entry["name"] == 'odd: "name" #1'
    (result,) = entry["results"]
    assert result["task"] == {"type": "translation"}
    assert result["dataset"]["split"] == "validation"
    perplexity, bleu = result["metrics"]
    assert (perplexity["type"], perplexity["value"]) == ("perplexity", pytest.approx(2.71828, abs=1e-4))
    assert (bleu["type"], bleu["value"]) == ("bleu", 31.416)
    assert BLEU.signature in bleu["name"]


def test_scores_come_with_their_definitions(place: Path) -> None:
    write_report(place)
    card = model_card(place, load_recipe("demo"), replace(RESULT, scores=[BLEU]))
    assert "On the validation set: 20 lines held out of the corpus, 5,000 tokens." in card
    rows = {row[0]: row[1:] for row in table_rows(card)}
    assert rows["perplexity per token"][0] == "2.718"
    assert rows["perplexity per byte"][0] == "1.2840"  # exp(1/4): four bytes a token
    assert rows["BLEU"] == ["31.42", f"`{BLEU.signature}`".replace("|", "\\|")]
    assert "per byte" not in model_card(place, load_recipe("demo"), replace(RESULT, validation=Validation(1.0, 5)))


def test_the_corpus_is_named_counted_and_checked(place: Path, tmp_path: Path) -> None:
    write_report(place)
    recipe = word_recipe(tmp_path)
    card = model_card(place, recipe, RESULT)
    rows = {row[0]: row[1:] for row in table_rows(card)}
    assert rows["a.en + a.de"] == ["1,003", "1,000", "3 empty"]
    for name in ("words.en", "words.de"):
        data = (tmp_path / name).read_bytes()
        assert rows[name] == [str(len(data)), f"`{hashlib.sha256(data).hexdigest()}`"]
    assert "words.en + words.de." in card
    assert "Trained on 980 of them" in card
    assert "- only 980 pairs" in card
    assert "translates from `en` to `de`" in card  # as the names of the files end, where nobody named them
    (tmp_path / "words.en").unlink()
    assert "words.de" in model_card(place, recipe, RESULT)


def test_the_languages_are_named_by_settings_then_by_files_then_by_a_guess(place: Path) -> None:
    write_report(place)  # its guess is en → fr
    for source, target, named, told in [
        ("a.fr.gz", "a.zh.xz", {}, "from `fr` to `zh`"),
        ("a.fr", "a.zh", {"source_language": "de", "target_language": "it"}, "from `de` to `it`"),
        ("a.txt", "a.zh", {}, "from `en` to `fr`"),
        ("one/a.zh", "other/a.zh", {}, "from `en` to `fr`"),
    ]:
        recipe = replace(load_recipe("demo"), data=Files(source, target, **named))
        assert f"translates {told}" in model_card(place, recipe, RESULT), (source, target, named)


def test_the_languages_of_a_mixture_are_those_its_corpora_agree_on(place: Path) -> None:
    def card(*corpora: Files) -> str:
        return model_card(place, replace(load_recipe("demo"), data=Mixture(corpora)), RESULT)

    french, unnamed = Files("a.en", "a.fr"), Files("c.tsv")
    named = Files("b.tsv", source_language="en", target_language="fr")
    for corpora in [(french, Files("b.en.gz", "b.fr.gz")), (french, named), (french, unnamed), (named, named)]:
        made = card(*corpora)
        assert front_matter(made)["language"] == ["en", "fr"], corpora
        assert "translates from `en` to `fr`, over" in made
        assert "It reads `en` and writes `fr`, and not the other way round." in made
    back = Files("b.tsv", source_language="fr", target_language="en")
    others = [(french, Files("b.en", "b.de")), (french, Files("b.fr", "b.en")), (named, back), (unnamed, unnamed)]
    for corpora in others:
        made = card(*corpora)
        assert "language" not in front_matter(made), corpora
        assert "that translates, over" in made
        assert "the other way round" not in made
    # Who names several languages has a model of several.
    german = Files("d.tsv", source_language="en", target_language="de")
    assert "translates (`en`, `fr`, `de`), over" in card(named, german)


def test_the_run_is_told(place: Path) -> None:
    command = "regard train demo --out 'my model'"
    write_metrics(
        place,
        start(0, "2 × H200, 150 GB", command),
        {"event": "step", "step": 1, "seconds": 100.0},
        start(1, "2 × H200, 150 GB", "regard train --resume --out 'my model'"),
        {"event": "step", "step": 2, "seconds": 50.0},
        start(2, "a laptop", None),
        {"event": "step", "step": 900, "seconds": 7_000.0},
    )
    card = model_card(place, load_recipe("demo"), RESULT)
    rows = table_rows(card)
    assert ["time", "1:59:10 (h:mm:ss)"] in rows
    machines = [row[1] for row in rows if row[0] == "machine"]
    assert machines == [
        f"{name}, 2 processes; torch 2.11.0, Python 3.12.1" for name in ("2 × H200, 150 GB", "a laptop")
    ]
    assert ["steps", "900 of 900. All 900 steps done."] in rows
    assert ["model", "2 + 2 layers, d_model 96, d_ff 384, 4 heads, dropout 0.0, pre-norm"] in rows
    assert f"```sh\n{command}\nregard train --resume --out 'my model'\n```" in card
    assert "curves.svg" not in card
    (place / "curves.svg").touch()
    assert "(curves.svg)" in model_card(place, load_recipe("demo"), RESULT)


def test_what_trains_it_again_is_found_from_anywhere_if_it_is_a_preset(place: Path) -> None:
    """The folder may be moved or lie in a package; a preset is known by its name."""
    preset = load_recipe("demo")
    assert "```sh\nregard train demo --out again\n```" in model_card(place, preset, RESULT)
    for changed in (replace(preset, seed=7), replace(preset, name="mine"), replace(preset, init="first")):
        assert "```sh\nregard train 'my model'/recipe.toml --out again\n```" in model_card(place, changed, RESULT)


def test_the_cost_is_told(place: Path) -> None:
    card = model_card(place, load_recipe("demo"), RESULT)
    assert ["cost", "about 8.4e+16 FLOPs of matrix products"] in table_rows(card)


def test_it_says_how_to_load_the_model(place: Path) -> None:
    card = model_card(place, load_recipe("demo"), RESULT)
    assert "regard translate 'my model' lines.txt" in card
    assert 'regard.load("my model")' in card
    compile(card.split("```python\n")[1].split("```")[0], "card", "exec")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (Files("x/a.tsv", source_language="de", target_language="en"), "a.tsv"),
        (Mixture((Files("a.tsv", source_language="de"), Files("b.tsv", source_language="fr"))), "a mixture of 2"),
        (Text("book.txt", language="en"), "book.txt"),
    ],
)
def test_every_kind_of_corpus_and_of_model_has_a_card(data: Any, name: str, place: Path) -> None:
    for model in ("gpt2", "base"):
        card = model_card(place, replace(load_recipe(model), data=data), RESULT)
        assert name in card
        assert ("text-generation" in card) == isinstance(data, Text)
        assert ("model.generate(" in card) == isinstance(data, Text) == ("regard generate " in card)


def test_a_summary_is_no_translation(place: Path) -> None:
    english = {"train source": {"language": "en"}, "train target": {"language": "en"}}
    write_report(place, languages=english)
    recipe = load_recipe("summary-aeslc")
    card = model_card(place, recipe, RESULT)
    assert "that writes a text for a text, such as its summary (`en`), over" in card
    assert "translates" not in card
    assert front_matter(card)["pipeline_tag"] == "text2text-generation"
    same = Files("a.tsv", source_language="en", target_language="en")
    for data in (same, Mixture((same,))):
        assert "translates" not in model_card(place, replace(recipe, data=data), RESULT)
    # Whoever takes the limit off translations still gets a translator.
    other = replace(recipe.data, source_language="en", target_language="de")  # type: ignore[type-var]
    assert "translates from `en` to `de`" in model_card(place, replace(recipe, data=other), RESULT)
    write_report(place)
    assert "translates from `en` to `fr`" in model_card(place, recipe, RESULT)


def test_a_model_that_went_on_from_another_says_so(place: Path) -> None:
    assert "Trained from nothing with Regard" in model_card(place, Recipe(), RESULT)
    assert "Trained from `first` with Regard" in model_card(place, Recipe(init="some/where/first"), RESULT)


def test_what_is_repeated_is_not_counted_as_read(place: Path) -> None:
    corpus = {"name": "a.tsv", "read": 10, "kept": 10, "dropped": {}}
    write_report(place, corpora=[corpus | {"copies": 4.0}, corpus | {"copies": 1.0}], train=50)
    card = model_card(place, Recipe(), RESULT)
    assert "Trained on 50 pairs an epoch, of which some occur several times;" in card
    write_report(place, corpora=[corpus], train=9)
    assert "Trained on 9 of them;" in model_card(place, Recipe(), RESULT)
    assert "| corpus | lines read |" in model_card(place, replace(Recipe(), data=Text("book.txt")), RESULT)


def test_a_licence_is_stated_or_said_to_be_missing(place: Path) -> None:
    assert "## Licence\n\nNot stated." in model_card(place, Recipe(), RESULT)
    assert 'license: "unknown"' in model_card(place, Recipe(), RESULT)
    assert model_card(place, Recipe(licence="mit"), RESULT).endswith("## Licence\n\nmit\n")


def test_whose_data_it_learned_from_stands_beside_the_licence(place: Path) -> None:
    card = model_card(place, Recipe(licence="mit", attribution=("Songs, by Ann.", "Tales, by Bob.")), RESULT)
    assert card.endswith("## Licence\n\nmit\n\nIt learned from:\n\n- Songs, by Ann.\n- Tales, by Bob.\n")


def test_a_start_notes_command_machine_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/regard", "train", "--out", "a b"])
    found = start_facts(7, torch.device("cpu"), processes=4)
    assert (found["step"], found["processes"], found["torch"]) == (7, 4, str(torch.__version__))
    assert found["command"] == "regard train --out 'a b'"
    assert json.loads(json.dumps(found)) == found
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "-x"])
    assert start_facts(7, torch.device("cpu"))["command"] is None
