"""What heads look at: rules on texts, figures on weights made by hand, and the whole command at toy size."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from benchmarks import heads
from benchmarks.heads_drawing import PAPER
from benchmarks.heads_measures import FEWEST, Averages, Followers, called, habits
from benchmarks.heads_pronouns import BECAUSE, RIDDLES, Solved, movers, sign_test
from benchmarks.heads_rules import Line, Link, copied_links, read_links, written_links
from regard import experiment
from regard.recipe import build_recipe
from regard.reproduce.published import published
from regard.settings.tree import text_of
from regard.viewing.figures import AttentionMap
from tests.tiny import write_lines


def words(text: str) -> Line:
    """A line whose tokens are its words and marks, one each."""
    spans, begin = [], 0
    for part in text.split(" "):
        spans.append((begin, begin + len(part)))
        begin += len(part) + 1
    return Line(text, tuple(spans))


def told(line: Line, links: list[Link]) -> set[tuple[str, str, str]]:
    names = line.text.split(" ")
    return {(link.rule, names[link.row], " ".join(names[key] for key in sorted(link.keys))) for link in links}


@pytest.mark.parametrize(
    ("text", "rule", "one", "other"),
    [
        ("we heard the long speech of a man", "article, noun", "the", "speech"),
        ("it has not yet been said", "auxiliary, participle", None, None),  # "yet" is not in the list
        ("it has also been said", "auxiliary, participle", "has", "said"),
        ("we must not only agree", "modal, verb", "must", "agree"),
        ("to make the whole law clear", "make … adjective", "make", "clear"),
        ("not only our two peoples but others", "coupled words", "not", "but"),
        ("the law ( of last year ) is old", "brackets", "(", ")"),
    ],
)
def test_rules_of_the_source(text: str, rule: str, one: str | None, other: str | None) -> None:
    line = words(text)
    found = {link[1:] for link in told(line, read_links(line)) if link[0].startswith(rule)}
    assert found == (set() if one is None else {(one, other), (other, one)})


def test_pieces_of_a_word_look_at_each_other() -> None:
    line = Line("an unheard ofx", ((0, 2), (3, 5), (5, 10), (11, 14)))
    assert read_links(line) == [
        Link("another piece of the word", 1, frozenset({2})),
        Link("another piece of the word", 2, frozenset({1})),
    ]


def test_the_ends_of_a_long_word_look_for_each_other() -> None:
    line = Line("unheardof", ((0, 2), (2, 7), (7, 9)))
    assert {(link.row, *link.keys) for link in read_links(line) if link.rule.startswith("pieces")} == {(2, 0), (0, 2)}


def test_rules_of_what_is_written_look_back_past_the_start() -> None:
    line = words("wir haben das alte Gesetz gestern gelesen.")
    found = {(link.rule, link.row, tuple(link.keys)) for link in written_links(line)}
    assert found == {("article, noun: ←", 4, (3,)), ("auxiliary, participle: ←", 6, (2,))}


def test_copied_words_stand_once_on_both_sides() -> None:
    source, target = words("Mr Prodi met Prodi and Barnier in 1999"), words("Prodi traf 1999 Herrn Barnier")
    assert {(link.row, tuple(link.keys)) for link in copied_links(source, target)} == {(4, (5,)), (2, (7,))}


# ---- figures


def attention(kind: str, weights: list[list[float]]) -> AttentionMap:
    labels = tuple("abc!")[: len(weights[0])]
    return AttentionMap(kind, 0, labels[: len(weights)], labels, np.array([weights]), (len(labels) - 1,))


BEFORE = [[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_a_head_that_follows_position() -> None:
    found = habits(attention("encoder", BEFORE))
    assert found["offset -1"] == 1
    assert found["offset +1"] == 0
    assert found["offset +0"] == 0.25
    assert found["mark"] == found["entropy"] == found["punctuation"] == 0
    assert called("encoder", {name: float(value[0]) for name, value in found.items()}) == "offset -1"


@pytest.mark.parametrize(
    ("kind", "weights", "name"),
    [
        ("encoder", [[0.0, 0, 0, 1]] * 4, "end mark"),
        ("encoder", [[0.25] * 4] * 4, "broad"),
        ("decoder", [[1.0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], "start mark"),
        ("cross", [[0.9, 0, 0, 0.1], [0, 0.9, 0, 0.1], [0, 0, 0.9, 0.1]], "diagonal"),
        ("cross", [[0, 0, 0.9, 0.1], [0, 0.9, 0, 0.1], [0.9, 0, 0, 0.1]], ""),
    ],
)
def test_heads_are_named(kind: str, weights: list[list[float]], name: str) -> None:
    averages = Averages()
    averages.add([attention(kind, weights)])
    figures = {figure: float(values[0, 0]) for figure, values in averages.found()[kind].items()}
    assert called(kind, figures) == name


def test_the_best_follower_is_measured_on_links_it_was_not_chosen_on() -> None:
    followers = Followers()
    right, wrong = np.eye(4)[[1, 1, 1, 1]], np.eye(4)[[0, 0, 0, 0]]
    for number in range(FEWEST):
        # Head 1 is right on every link it is chosen by, and on no other.
        both = np.stack([wrong, right if number % 2 == 0 else wrong])
        maps = [AttentionMap("encoder", 0, tuple("abcd"), tuple("abcd"), both)]
        followers.add(maps, "encoder", [Link("rule", 2, frozenset({1}))], ("a" * (40 - number), "b"))
    (found,) = followers.found()
    assert (found.layer, found.head, found.links, found.share) == (0, 1, FEWEST, 0)
    assert (found.offset, found.baseline) == (-1, 1)
    assert followers.example(found) == ("a" * (40 - FEWEST + 2), "b")


def test_rare_rules_are_not_scored() -> None:
    followers = Followers()
    followers.add([attention("encoder", BEFORE)], "encoder", [Link("rule", 2, frozenset({1}))], ("", ""))
    assert followers.found() == []


def test_movers_are_counted_and_weighed_against_chance() -> None:
    leans = np.array([[[0.3, 0.1]], [[-0.2, 0.2]]])  # two sentences, one layer, two heads
    solved = [Solved(RIDDLES[0], ("", ""), ("es", "es"), leans, np.array([[0.9, 0.4]]), None)] * 8
    first, last = movers(solved)
    assert (first.head, first.up, last.head, last.up) == (0, 8, 1, 0)
    assert first.move == pytest.approx(0.5)
    assert first.chance == pytest.approx(2 * 2 / 2**8)  # two heads, two sides
    assert solved[0].right == (True, False)
    assert (first.agrees, last.agrees, first.spoken) == (8, 16, 16)
    assert sign_test(4, 8) == 1


def test_riddles_have_two_genders_and_pronouns_are_found() -> None:
    assert all(riddle.first_pronoun != riddle.second_pronoun for riddle in RIDDLES)
    match = BECAUSE.search("Das Tier überquerte die Straße nicht, weil sie zu breit war.")
    assert match is not None
    assert match["pronoun"] == "sie"


# ---- the command


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], babbling_model: Path) -> None:
    lines = write_lines(tmp_path / "a.en", ["one"])
    for model, source, code, said in (
        ("everyday-en-de", tmp_path / "no.en", 66, "no.en: there is no such file"),
        (tmp_path / "no", lines, 66, "no: must be a model folder"),
        (babbling_model, lines, 2, "needs a model that translates"),
    ):
        with pytest.raises(SystemExit) as stop:
            heads.main(["--model", str(model), "--source", str(source), "--out", str(tmp_path / "out")])
        assert stop.value.code == code
        assert capsys.readouterr().err.startswith("heads: ")
        assert said in str(stop.value.__cause__)


def test_the_page_names_the_model_it_speaks_of() -> None:
    page = (Path(__file__).parents[2] / "docs/heads.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"^The model is one of .*?\), `(.*?)`", page, re.MULTILINE)
    trained = published().commands(name)["train"]
    assert f"--model {trained.partition('--out ')[2]} " in page


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "RIDDLES", RIDDLES[:3])
    # The sentences that are drawn, so that the toy's vocabulary can write them.
    english = [riddle.sentence(riddle.of_first) for riddle in RIDDLES]
    english += [sentence for _, _, sentence in PAPER] + ["the end of the speech", "I would like to thank you."]
    sides = (
        write_lines(tmp_path / "a.en", english),
        write_lines(tmp_path / "a.de", ["Das Tier, weil es müde ist."] * len(english)),
    )
    source, target = (text_of(str(side)) for side in sides)
    data = ", ".join(f"{part}source = {source}, {part}target = {target}" for part in ("", "valid_"))
    settings = [
        f'data={{kind = "files", {data}}}',
        "tokenizer.vocabulary=200",
        "model={encoder_layers=2, decoder_layers=1, d_model=16, d_ff=16, heads=2, dropout=0.0}",
        "training={steps=2, validate_every=2, save_every=2, average=1}",
        "search={beam=1, extra_length=2}",
        "log.tensorboard=false",
    ]
    experiment.train(build_recipe({}, settings, "toy"), tmp_path / "model")
    sizes = ["--lines", "12", "--translated", "3"]
    arguments = ["--model", str(tmp_path / "model"), "--source", str(sides[0]), "--out", str(tmp_path / "out"), *sizes]
    heads.main(arguments)
    table = capsys.readouterr().out
    assert table.strip() == (tmp_path / "out/table.md").read_text().strip()
    assert "| encoder 2.2 |" in table
    found = json.loads((tmp_path / "out/heads.json").read_text())
    assert len(found["riddles"]) == 3
    assert len(found["movers"]) == 4
    for kind, layers in (("encoder", 2), ("decoder", 1), ("cross", 1)):
        shape = np.array(found["averages"][kind]["entropy"]).shape
        assert shape == (layers, 2)
    for name in ("heads-position", "heads-seed", "heads-moved", "heads-paper"):
        ET.parse(tmp_path / f"out/{name}.svg")
