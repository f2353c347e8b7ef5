"""Models that come with Regard: called by name, served and shown without arguments, and small enough to give away."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard import demo, folder, shipped
from regard.api import inspect, load
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.documents.document import translated
from regard.documents.reading import read
from regard.errors import MissingError, UsageError
from regard.interop import compact
from regard.models.build import build_any
from regard.planning import training_flops
from regard.recipe import load_recipe
from regard.text.tokenizer import Tokenizer
from regard.translation.translator import Options
from regard.translation.wishes import Wishes
from regard.viewing.training_curves import CURVES, read_metrics, training_svg
from tests.tiny import failed, regard

ROOT = Path(__file__).parents[1]
MOST = {"everyday-en-de": 16_000_000, "everyday-de-en": 16_000_000, "writer": 8_000_000}
BITS = {"everyday-en-de": 8, "everyday-de-en": 8, "writer": 16}
BESIDE = 1_000_000  # bytes for vocabulary, curves and card


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words_model: Path, babbling_model: Path) -> Path:
    """A package with two toy models in it, and a working folder without any."""
    place = tmp_path / "package"
    for name, model in (("writer", babbling_model), ("everyday-en-de", words_model)):
        (place / name).mkdir(parents=True)
        compact.write(model, place / name, "float16")
    monkeypatch.setattr(shipped, "PLACE", place)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return place


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "PLACE", tmp_path)


def test_names_in_their_order_and_only_whole_folders(shelf: Path) -> None:
    (shelf / "everyday-de-en").mkdir()
    assert shipped.names() == ["everyday-en-de", "writer"]
    assert shipped.path("writer") == shelf / "writer"


def test_a_folder_of_ones_own_comes_first(shelf: Path) -> None:
    assert shipped.resolve("writer") == shelf / "writer"
    assert shipped.resolve("./elsewhere/writer") == Path("elsewhere/writer")
    Path("writer").mkdir()
    assert shipped.resolve("writer") == Path("writer")


def test_commands_and_python_take_the_name(shelf: Path) -> None:
    ran = regard("translate", "everyday-en-de", "--with", "everyday-en-de", stdin=b"seven\n")
    assert (ran.code, ran.out) == (0, "sieben\n"), ran.err
    assert load("everyday-en-de").translate(["eight"]) == ["acht"]
    assert regard("verify", "writer", "--texts", 4).code == 0
    assert "transformer, " in inspect("everyday-en-de").to_text()
    # With the vocabulary it has, which the preset of this name cannot know.
    assert inspect("writer").to_text().startswith("babble: gpt")


def test_training_can_begin_with_one(shelf: Path, words_model: Path) -> None:
    sides = (words_model.parent / "words.en", words_model.parent / "words.de")
    few = ("training.steps=2", "training.validate_every=2", "training.save_every=2", "training.average=1")
    sources = ("--source", sides[0], "--target", sides[1])
    ran = regard("train", "init=everyday-en-de", "batch.tokens=512", *few, *sources, "--out", "further")
    assert ran.code == 0, ran.err
    assert folder.read_recipe(Path("further")).init == "everyday-en-de"


def test_a_missing_folder_names_those_there_are(shelf: Path) -> None:
    failed(regard("translate", "everyday"), 66, "everyday: must be a model folder", "everyday-en-de, writer")


def test_without_any_nothing_is_offered(bare: None) -> None:
    assert shipped.names() == []
    with pytest.raises(MissingError, match=r"regard train --help$"):
        load("everyday-en-de")
    failed(regard("serve"), 2, "needs at least one MODEL", "regard demo")


def test_the_server_serves_all_of_them_unless_told_which(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[list[str]] = []

    def serve(app: object, desk: Any, listening: object, ready: Callable[[], None]) -> None:
        ready()
        served.append(list(desk.models))

    monkeypatch.setattr("regard.serve.running.serve", serve)
    for models in ((), ("writer",)):
        ran = regard("serve", *models, "--port", 0)
        assert ran.code == 0, ran.err
    assert served == [["everyday-en-de", "writer"], ["writer"]]
    # Nobody asked for a folder here that happens to have such a name.
    Path("writer").mkdir()
    assert regard("serve", "--port", 0).code == 0
    assert served[2] == ["everyday-en-de", "writer"]


def test_a_folder_that_hides_a_shipped_model_says_so(shelf: Path) -> None:
    Path("writer").mkdir()
    hides = "It hides the model `writer` that comes with Regard: rename it, or work in another folder."
    for command in ("serve", "generate"):
        failed(regard(command, "writer"), 66, "writer: must be a model folder, but has no manifest.json", hides)
    Path("other").mkdir()
    assert "hides" not in regard("generate", "other").err


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tour ends where its own training would begin."""
    monkeypatch.setattr("regard.demo.experiment.train", lambda *_: SimpleNamespace(signal="SIGINT"))


def test_the_tour_begins_with_a_shipped_model(shelf: Path, stopped: None) -> None:
    ran = regard("demo", "--out", "tour")
    page = Path("tour/everyday.html")
    for words in ("comes with Regard", *demo.EVERYDAY, page.resolve().as_uri(), "trains a Transformer from nothing"):
        assert words in ran.out
    assert demo.EVERYDAY[-1] in page.read_text(encoding="utf-8")


def test_without_any_the_tour_begins_with_training(bare: None, stopped: None, tmp_path: Path) -> None:
    ran = regard("demo", "--out", tmp_path / "tour")
    assert ran.out.startswith("Regard trains a Transformer from nothing")
    assert [file.name for file in (tmp_path / "tour").iterdir()] == [demo.LOCK]


@pytest.mark.parametrize("name", shipped.ORDER)
def test_the_recipes_are_small_enough(name: str) -> None:
    recipe = load_recipe(name)
    vocabulary = 128 if name == "writer" else recipe.tokenizer.vocabulary
    with torch.device("meta"):
        weights = build_any(recipe.model, vocabulary).state_dict()
    assert BITS[name] * sum(weight.numel() for weight in weights.values()) // 8 + BESIDE < MOST[name]
    assert recipe.licence is not None
    assert recipe.attribution


def test_the_wheel_takes_the_whole_package() -> None:
    """Hatch packs every file of a package that git does not ignore."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built == {"packages": ["src/regard"]}
    ignored = (ROOT / ".gitignore").read_text().split()
    assert not [line for line in ignored if line.endswith((".safetensors", ".toml", ".json", ".md", "shipped/"))]


def test_the_commands_of_the_page_stay_where_they_begin() -> None:
    """Each block goes on where the one before it stopped: who goes into a folder does so in a shell of its own."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/shipped.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 4
    assert not [line for block in blocks for line in block.splitlines() if line.startswith("cd ")]


# ---- what is really there

PLACES = re.compile(r"/(?:tmp|home|root|work|Users)/")
SAID = {
    "everyday-en-de": {"Good morning.": "Guten Morgen.", "Where is the train station?": "Wo ist der Bahnhof?"},
    "everyday-de-en": {"Guten Morgen.": "Good morning.", "Ich habe Hunger.": "I'm hungry."},
}


def test_all_of_them_are_here() -> None:
    assert tuple(shipped.names()) == shipped.ORDER


@pytest.mark.parametrize("name", shipped.ORDER)
def test_a_shipped_model_keeps_its_promises(name: str, tmp_path: Path) -> None:
    place = shipped.path(name)
    assert sum(file.stat().st_size for file in place.rglob("*")) <= MOST[name]
    assert not (place / folder.CHECKPOINTS).exists()
    assert folder.read_recipe(place).name == name
    assert folder.read_recipe(place).model == load_recipe(name).model
    model = load(shutil.copytree(place, tmp_path / name))
    checks = list(model.verify(count=6))
    assert checks
    assert [str(check) for check in checks if not check.passed] == []


@pytest.mark.parametrize("name", shipped.ORDER)
def test_a_list_counts_all_its_parameters(name: str) -> None:
    """Weights are laid out anew when a model is loaded, and some are then no parameters of torch's any more."""
    card = (shipped.path(name) / folder.CARD).read_text(encoding="utf-8")
    assert f"{load(shipped.path(name)).summary(name).parameters:,} parameters" in card


@pytest.mark.parametrize("name", shipped.ORDER)
def test_its_card_says_whose_it_is_and_what_it_scores(name: str) -> None:
    place = shipped.path(name)
    recipe, card = folder.read_recipe(place), (place / folder.CARD).read_text(encoding="utf-8")
    assert f'license: "{recipe.licence}"' in card
    for source in load_recipe(name).attribution:
        assert source in card
    figures = ("perplexity per byte",) if name == "writer" else ("exact match", "BLEU", "chrF", "TER")
    for figure in figures:
        assert re.search(rf"^\| {figure} \| [\d.]+ \| [\d.]+ … [\d.]+ \| `", card, re.MULTILINE), figure


@pytest.mark.parametrize("name", shipped.ORDER)
def test_its_licence_stands_beside_its_weights(name: str) -> None:
    recipe, licence = load_recipe(name), (shipped.path(name) / "LICENSE").read_text(encoding="utf-8")
    assert f"SPDX-License-Identifier: {str(recipe.licence).upper()}\n" in licence
    for source in recipe.attribution:
        assert f"- {source}\n" in licence


def test_the_wheel_names_the_licences_of_all_that_is_in_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    models = {str(load_recipe(name).licence).upper() for name in shipped.ORDER}
    assert project["license"].split(" AND ") == ["Apache-2.0", *sorted(models)]
    files = {file for pattern in project["license-files"] for file in ROOT.glob(pattern)}
    assert files == {ROOT / "LICENSE", *(ROOT / f"src/regard/shipped/{name}/LICENSE" for name in shipped.ORDER)}


@pytest.mark.parametrize("name", shipped.ORDER)
def test_its_card_and_its_curves_tell_how_it_was_trained(name: str) -> None:
    place = shipped.path(name)
    recipe, events = folder.read_recipe(place), read_metrics(place / folder.METRICS)
    tokens = sum(event["tokens"] for event in events if event["event"] == "step")
    vocabulary = Tokenizer.load(place / folder.TOKENIZER).size
    flops = training_flops(recipe, vocabulary, tokens, recipe.training.steps)
    card = (place / folder.CARD).read_text(encoding="utf-8")
    assert f"| cost | about {flops:.1e} FLOPs of matrix products |" in card
    assert (place / CURVES).read_text(encoding="utf-8") == training_svg(events, name)


@pytest.mark.parametrize("name", shipped.ORDER)
def test_the_commands_of_its_card_name_what_is_there(name: str) -> None:
    """Whoever has it has no folder of this name: recipes and models are called by their names."""
    card = (shipped.path(name) / folder.CARD).read_text(encoding="utf-8")
    typed = [line.split() for block in re.findall(r"```sh\n(.*?)```", card, re.DOTALL) for line in block.splitlines()]
    assert [(line[0], line[2]) for line in typed] == [("regard", name)] * 3
    assert [line[1] for line in typed][1:] == ["train", "train"]
    assert load_recipe(name) == folder.read_recipe(shipped.path(name))
    asked = [*re.findall(r"`regard evaluate (\S+?)[ `]", card), *re.findall(r'regard\.load\("(.+)"\)', card)]
    assert len(asked) > 1
    assert set(asked) == {name}


@pytest.mark.parametrize("name", shipped.ORDER)
def test_it_names_no_place_on_the_machine_that_made_it(name: str) -> None:
    for file in shipped.path(name).iterdir():
        assert not PLACES.search(file.read_bytes().decode("utf-8", "ignore")), file


@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_it_translates_what_everybody_says(name: str, said: dict[str, str]) -> None:
    assert load(shipped.path(name)).translate(list(said)) == list(said.values())


def test_the_writer_writes_words() -> None:
    """Its books are by characters, so that words have to be learned: most of what it writes are some."""
    sampling = SamplingSettings(temperature=0.7, max_tokens=300, lines=8)
    (text,) = load(shipped.path("writer")).generate(["The prince "], sampling)
    written = re.findall(r"[a-z]+", text.lower())
    common = {"the", "and", "to", "of", "a", "in", "he", "his", "that", "was", "with", "had", "not", "it", "i", "you"}
    assert len(written) > 30
    assert sum(word in common for word in written) > 0.15 * len(written)


def test_a_mixture_tells_the_rules_of_its_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe is a mixture, and its test set one file for both sides: no file's name tells the language."""
    monkeypatch.chdir(tmp_path)
    test = Path("data/everyday/tatoeba-test.tsv")
    test.parent.mkdir(parents=True)
    test.write_text("Good morning.\tGuten Morgen.\nWe've won!\tWir haben gewonnen!\n", encoding="utf-8")
    ran = regard("evaluate", "everyday-en-de")
    assert ran.code == 0, ran.err
    assert "tok:like-moses-de|" in ran.out


def test_without_its_test_set_it_says_where_that_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = regard("evaluate", "everyday-en-de")
    failed(ran, 66, "data/everyday/tatoeba-test.tsv: there is no such file", "“How they were made” in docs/shipped.md",
           "regard evaluate everyday-en-de SOURCE REFERENCE")  # fmt: skip
    assert "## How they were made" in (ROOT / "docs/shipped.md").read_text(encoding="utf-8")
    failed(regard("evaluate", "writer"), 65, "regard: writer: there must be text to evaluate on")
    # A model of one's own has one's own data, of which that page knows nothing.
    own = shutil.copytree(shipped.path("everyday-en-de"), tmp_path / "own")
    assert "shipped.md" not in regard("evaluate", own).err


def test_a_banned_word_is_banned_at_the_end_of_a_sentence_too() -> None:
    model = load("everyday-en-de")
    assert "Katze" in model.translate(["I have a cat."])[0]
    banned = model.translations(["I have a cat."], options=Options(wishes=Wishes(banned=("Katze",))))
    assert "Katze." not in banned[0][0].text


def test_an_ensemble_has_one_direction() -> None:
    with pytest.raises(UsageError, match="must translate into one language, but `everyday-en-de` writes `de`"):
        load("everyday-en-de").together([load("everyday-de-en")])


def test_what_nobody_sees_is_not_translated() -> None:
    assert load("everyday-en-de").translate(["\u200b", "\u00ad", " "]) == ["", "", ""]


def test_what_nobody_sees_changes_no_word(tmp_path: Path) -> None:
    model, plain = load("everyday-en-de"), "The railway station is closed."
    hidden = "\ufeffThe rail\u00adway sta\u200btion\x02 is \u202aclosed\u202c."
    (expected,), (found,) = model.translations([plain, hidden], options=Options(alignment=True))
    assert found == expected
    assert [each.log_probability for each in model.score([expected.text], [hidden])] == [
        each.log_probability for each in model.score([expected.text], [plain])
    ]
    assert model.attention(hidden).layers[0].queries == model.attention(plain).layers[0].queries
    both = model.together([model])
    assert both.translate([hidden]) == [expected.text]
    (tmp_path / "a.html").write_text("<p>The rail&shy;way sta&shy;tion is <b>clo&shy;sed</b>.</p>")
    ran = regard("translate", "everyday-en-de", tmp_path / "a.html", "--out", tmp_path / "b.html")
    assert (ran.code, ran.err) == (0, "")
    assert (
        tmp_path / "b.html"
    ).read_text() == f"<p>{expected.text[:-1].replace('geschlossen', '<b>geschlossen</b>')}.</p>"
    told = regard("translate", "everyday-en-de", "--json", stdin=f"{hidden}\n".encode()).out
    assert '"flags": []' in told


def test_a_required_word_is_there_at_the_end_of_a_sentence_already() -> None:
    """Before a full stop the word is cut in another way than before a space; it is the same word."""
    model = load("everyday-en-de")
    (free,), (required,) = (
        model.translations(["I have a cat."], options=Options(wishes=wishes))
        for wishes in (None, Wishes(required=("Katze",)))
    )
    assert free[0].tokens[-3:] == ("▁K", "atz", "e.")
    assert (required[0].tokens, required[0].score) == (free[0].tokens, pytest.approx(free[0].score, abs=1e-4))


def test_translations_of_one_text_read_differently() -> None:
    """The fifth best is the best once more, cut into other tokens."""
    search = SearchSettings(beam=16, nbest=5)
    (found,) = load("everyday-en-de").translations(["I have a cat."], search)
    assert len({each.text for each in found}) == 5
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('Last year we went to <a href="x">Italy</a> with our three children.', '<a href="x">Italien</a>'),
        ("Last year we went to Italy with our <b>three</b> children.", "<b>drei</b>"),
        ("My brother bought a <b>red</b> car yesterday.", "<b>rotes</b> Auto"),
        ("If it rains <b>tomorrow</b>, we will <i>stay</i> at home.", "<b>morgen</b>"),
        ("If it rains <b>tomorrow</b>, we will <i>stay</i> at home.", "<i>bleiben</i>"),
    ],
)
def test_marks_go_where_their_words_go(page: str, found: str) -> None:
    """Of two layers the last aligns: by the first, a link to Italy stood around our three children."""
    model = load("everyday-en-de")
    assert found in translated(read("a.html", page.encode()), model.translate, model.word_links).decode()


def test_a_page_says_its_new_language(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<html lang='en'><title>My house</title><p>info@example.com</p>")
    load("everyday-en-de").translate_document(tmp_path / "a.html", tmp_path / "b.html")
    found = (tmp_path / "b.html").read_text()
    assert found == "<html lang='de'><title>Mein Haus</title><p>info@example.com</p>"
