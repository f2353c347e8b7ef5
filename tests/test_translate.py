"""`regard translate`: lines in, lines out, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard import windows
from regard.api import Model, Translation
from regard.cli import common, translating
from regard.errors import UsageError
from regard.translation import result, translator
from tests.tiny import ENGLISH, GERMAN, Ran, failed, regard, write_lines

KEYS = {"text", "score", "tokens", "source_tokens", "alternatives", "alignment", "flags"}


# Lines


def test_lines_in_are_lines_out(words_model: Path, tmp_path: Path) -> None:
    text = "one\n\ntwo\n \nunknown 日本 ж\nthree"
    ran = regard("translate", words_model, stdin=text.encode())
    assert ran.code == 0
    lines = ran.out.split("\n")
    assert (lines[:4], lines[5:]) == (["eins", "", "zwei", ""], ["drei", ""])
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    assert regard("translate", words_model, file).out == ran.out
    assert regard("translate", words_model, "-", stdin=text.encode()).out == ran.out
    assert regard("translate", words_model, stdin=b"") == Ran(0, "", "")
    assert regard("translate", words_model, stdin=b"\n\n") == Ran(0, "\n\n", "")


def test_lines_with_what_the_model_does_not_know_are_told_of_once(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    file = write_lines(tmp_path / "text.en", ["one", "two", "one 日本 日", "", "two", "\x9b"])
    ran = regard("translate", words_model, file)
    assert ran.code == 0
    means = "It reads each of them as the same unknown sign, so the translation may be of something else.\n"
    assert ran.err == (
        f"warning: {file}: 2 lines have characters that the model does not know, first line 3 (日 本). {means}"
    )
    ran = regard("translate", words_model, "--out", tmp_path / "text.de", stdin="\x9b≡≡".encode())
    assert ran.err == (
        f"warning: stdin: 1 line has characters that the model does not know, first line 1 (\\x9b ≡). {means}"
    )
    assert regard("translate", words_model, file, "--json").err == ""  # which flags each line
    assert regard("translate", words_model, stdin=b"one\n\ntwo\n").err == ""


def test_translations_that_look_odd_are_told_of_once(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    monkeypatch.setattr("regard.translation.translator.is_loop", lambda source, target: len(source) > 0)
    monkeypatch.setattr("regard.translation.translator.is_copy", lambda source, target: source == "two")
    loops = "have a translation that repeats itself"
    ran = regard("translate", words_model, stdin=b"one\n\nthree\ntwo\n")
    assert ran.err == (
        f"warning: stdin: 3 lines {loops}, first line 1; 1 line has a translation that is the source, or nearly so, "
        "first line 4. Check what came out.\n"
    )
    assert regard("translate", words_model, "--json", stdin=b"two\n").err == ""  # which flags each line
    file = tmp_path / "a.html"
    file.write_text("<p>one</p><p>two</p><p>one</p>")
    ran = regard("translate", words_model, file, "--out", tmp_path / "b.html")
    assert ran.err == (
        f"warning: {file}: 2 sentences {loops}, first 'one'; 1 sentence has a translation that is the source, or "
        "nearly so, first 'two'. Check what came out.\n"
    )


def test_empty_translations_are_told_of_first(capsys: pytest.CaptureFixture[str]) -> None:
    with common.Odd("a") as odd:
        odd.see("line 3", ("copy", "split"))
        odd.see("line 4", ("empty",))
    said = "warning: a: 1 line has an empty translation, first line 4; 1 line has a translation that is the source"
    assert said in capsys.readouterr().err
    odd = common.Odd("a")
    odd.see("line 3", ("empty",))
    odd.__exit__(UsageError)  # that alone is to be told
    assert capsys.readouterr().err == ""


def test_numbers_can_be_chosen(words_model: Path) -> None:
    ran = regard("translate", words_model, "--precision", "fp32", stdin=b"one")
    assert (ran.code, ran.out) == (0, "eins\n")
    ran = regard("translate", words_model, "--precision", "fp8", stdin=b"one")
    failed(ran, 2, "must be one of: auto, fp32, bf16, int8", "`fp8`")


def test_odd_characters_do_not_make_more_lines(words_model: Path) -> None:
    odd = "one\u2028two\x0bthree\x85four\x0c\r\n"
    ran = regard("translate", words_model, stdin=odd.encode() * 3)
    assert ran.code == 0
    assert ran.out.count("\n") == 3


def test_more_lines_than_fit_at_once_stay_in_order(words_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW", 5)
    ran = regard("translate", words_model, stdin="\n".join(ENGLISH).encode())
    assert ran.out.split("\n") == [*GERMAN, ""]


def test_nbest_prints_as_many_lines_for_every_line(words_model: Path) -> None:
    ran = regard("translate", words_model, "--nbest", 3, stdin=b"one\n\ntwo\n")
    lines = ran.out.split("\n")
    assert len(lines) == 10
    assert (lines[0], lines[3:6], lines[6]) == ("eins", ["", "", ""], "zwei")


def test_a_line_end_in_a_translation_does_not_make_a_line() -> None:
    # A model of bytes can write any of them.
    found = [Translation("a\nb\n", -1.0, -1.0, cut=False)]
    assert translating._as_lines(found, 1) == "a b "
    assert translating._as_lines(found, 3) == "a b \n\n"
    assert "\n" not in translating._as_json(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--beam", "0"], "--beam must be at least 1, but is 0"),
        (
            ["--beam", "9999"],
            "--beam must be at most 1,000, but is 9999; 4 are usual, and many rarely find better texts",
        ),
        (["--beam", "-3"], "--beam must be at least 1, but is -3"),
        (["--alpha", "-1"], "--alpha must be from 0 (no penalty) to 10"),
        (["--nbest", "0"], "--nbest must be between 1 and --beam (4), but is 0"),
        (["--nbest", "9"], "--nbest must be between 1 and --beam (4), but is 9"),
        (["--diverse", "3"], "--diverse must divide --beam (4), but is 3"),
        (["--no-repeat", "-1"], "--no-repeat must be at least 0"),
        (["--extra-length", "-1"], "--extra-length must be at least 0"),
        (["--coverage", "11"], "--coverage must be from 0"),
        (["--penalty", "wu"], "--penalty must be one of: gnmt, length, none; but is `wu`"),
        (["--longest", "1"], "--longest must be at least 2 tokens"),
        (["--require", "eins", "--diverse", "2"], "required phrases need --diverse = 1, but it is 2"),
        (["--require", "eins", "--ban", "eins"], "must not hold a banned one, but `eins` holds `eins`"),
        (["--prefix", "日本"], "must be in the model's vocabulary, but `日本` is not"),
        (["--mbr", "8", "--no-repeat", "2"], "--no-repeat must be left out with --mbr, but is 2"),
        (["--mbr", "8", "--min-length", "2"], "--min-length must be left out with --mbr"),
        (["--mbr", "8", "--diverse", "2"], "--diverse must be left out with --mbr"),
        (["--mbr", "8", "--beam", "1"], "--beam must be left out with --mbr"),
        (["--mbr", "8", "--ban", "x"], "--prefix, --ban and --require must be left out with --mbr"),
        (["--mbr", "8", "--nbest", "9"], "--nbest must be between 1 and --mbr (8), but is 9"),
        (["--mbr", "-1"], "--mbr must be at least 0"),
    ],
)
def test_searches_that_cannot_be_are_refused_in_a_sentence(words_model: Path, options: list[str], words: str) -> None:
    failed(regard("translate", words_model, *options, stdin=b"one\n"), 2, words)


def test_bad_input_is_named_and_what_was_good_is_not_lost(words_model: Path, tmp_path: Path) -> None:
    failed(regard("translate", words_model, stdin=b"one\ntw\xff\n"), 65, "stdin, line 2", "byte 3", "0xff")
    failed(regard("translate", words_model, tmp_path / "no.txt"), 66, tmp_path / "no.txt", "no such file")
    failed(regard("translate", words_model, tmp_path), 65, "is a folder")
    broken = tmp_path / "text.gz"
    broken.write_bytes(b"not compressed\n")
    failed(regard("translate", words_model, broken), 65, "text.gz: must be readable to its end")


def test_broken_models_are_named(words_model: Path, tmp_path: Path) -> None:
    failed(regard("translate", tmp_path / "nowhere"), 66, "nowhere: must be a model folder, but is not there")
    failed(regard("translate", tmp_path), 66, "must be a model folder, but has no manifest.json")
    model = Path(shutil.copytree(words_model, tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    failed(regard("translate", model, stdin=b"one\n"), 65, f"{weights}: must be", "bytes long", "but is 1,000")
    (model / "manifest.json").unlink()
    failed(regard("evaluate", model), 65, f"Go on with: regard train --resume --out {model}")


def test_compressed_files_are_read(words_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert regard("translate", words_model, file).out == "eins\nzwei\n"


def test_wishes_are_kept(words_model: Path) -> None:
    def text(*options: object) -> str:
        return regard("translate", words_model, *options, stdin=b"one\n").out.strip()

    assert text() == "eins"
    assert "eins" not in text("--ban", "eins", "--ban", "zwei")
    assert text("--prefix", "drei").startswith("drei")
    assert {"vier", "sechs"} <= set(text("--require", "vier", "--require", "sechs").split())
    longer = json.loads(regard("translate", words_model, "--min-length", 9, "--json", stdin=b"one").out)
    assert len(longer["tokens"]) >= 9
    several = regard("translate", words_model, "--diverse", 4, "--nbest", 4, stdin=b"one\n").out.split("\n")[:-1]
    assert (several[0], len(several)) == ("eins", 4)


def test_what_cannot_be_wished_for_names_its_line(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    file = write_lines(tmp_path / "text.en", ["one", "", "two", "one two three. four five six. seven eight nine."])
    wishes = ("--require", "eins", "--longest", 6, "--out", tmp_path / "out")
    failed(regard("translate", words_model, file, *wishes), 2, f"{file}, line 4: ", "has to be split, after 'one two")
    # The windows that were done before are counted, too.
    failed(regard("translate", words_model, file, *wishes, "--resume"), 2, f"{file}, line 4: ")
    ran = regard("translate", words_model, "--require", "eins eins", "--no-repeat", 1, stdin=b"\n\n\none")
    assert (ran.code, "stdin, line 4: some translation of 'one' must keep" in ran.err) == (2, True)
    assert "Ask for less: --prefix, --ban and --require, --no-repeat, --min-length." in ran.err


def test_every_penalty_can_be_asked_for(words_model: Path) -> None:
    def score(*options: object, text: bytes = b"one") -> float:
        return float(json.loads(regard("translate", words_model, "--json", *options, stdin=text).out)["score"])

    plain = score("--penalty", "none")
    tokens = len(json.loads(regard("translate", words_model, "--json", stdin=b"one\n").out)["tokens"]) + 1
    assert score("--penalty", "length", "--alpha", 1) == pytest.approx(plain / tokens)
    assert score("--penalty", "gnmt", "--alpha", 1) == pytest.approx(plain / ((5 + tokens) / 6))
    greedy, long = ("--penalty", "none", "--beam", 1), b"one two three four"
    assert score(*greedy, "--coverage", 1, text=long) < score(*greedy, text=long)
    short = regard("translate", words_model, "--extra-length", 0, "--min-length", 99, "--json", stdin=b"one\n")
    assert len(json.loads(short.out)["tokens"]) == len(json.loads(short.out)["source_tokens"]) + 1
    apart = [regard("translate", words_model, "--diverse", 4, "--nbest", 4, "--diversity", strength, stdin=b"one\n")
             for strength in (0, 5)]  # fmt: skip
    assert apart[0].out != apart[1].out


# JSON


def test_json_is_one_object_a_line(words_model: Path) -> None:
    ran = regard("translate", words_model, "--json", "--nbest", 2, stdin=b"one\n\nf\xc3\xbcnf \xe2\x80\xa8\n")
    first, empty, third = [json.loads(line) for line in ran.out.split("\n")[:-1]]
    for each in (first, empty, third):
        assert set(each) == KEYS
        assert isinstance(each["score"], float)
        for i, j, weight in each["alignment"]:
            assert each["source_tokens"][i]
            assert each["tokens"][j]
            assert 0 <= weight <= 1
    assert (first["text"], len(first["alternatives"])) == ("eins", 1)
    assert "".join(first["tokens"]).replace("▁", " ").strip() == "eins"
    assert "".join(first["source_tokens"]).replace("▁", " ").strip() == "one"
    assert set(first["alternatives"][0]) == {"text", "score"}
    assert {j for _, j, _ in first["alignment"]} == set(range(len(first["tokens"])))
    assert first["flags"] == []
    nothing = {**{key: [] for key in KEYS}, "text": "", "score": 0.0}
    assert empty == nothing


def test_what_looks_odd_is_flagged(words_model: Path) -> None:
    lines = ["one ж日", "x" * 3]
    ran = regard(
        "translate", words_model, "--json", "--longest", 4, stdin="\n".join([*lines, "one. two. three."]).encode()
    )
    unknown, _, split = [json.loads(line) for line in ran.out.split("\n")[:-1]]
    assert "unknown" in unknown["flags"]
    assert "split" in split["flags"]
    assert {flag for each in (unknown, split) for flag in each["flags"]} <= set(result.FLAGS)


def test_a_long_line_is_split_not_cut(words_model: Path) -> None:
    whole = " ".join(f"{word}" for word in ENGLISH * 60)
    found = json.loads(regard("translate", words_model, "--json", stdin=whole.encode()).out)
    assert len(found["source_tokens"]) > translator.LONGEST
    assert "split" in found["flags"]
    assert len(found["alignment"]) >= len(found["tokens"])
    failed(regard("translate", words_model, "--longest", 1, stdin=b"one\n"), 2, "--longest must be at least 2 tokens")


# A file, whole or not there


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(windows, "WINDOW", 5)
    return write_lines(tmp_path / "words.en", ENGLISH)


def test_a_sentence_in_the_place_of_a_file_is_shown_its_way(words_model: Path) -> None:
    for text in ("What's ten and two?", "seven", "seven " * 100):
        ran = regard("translate", words_model, text)
        failed(ran, 66, f"{text}: there is no such file", "To translate a text, write: echo ")
        typed = shlex.split(ran.err.rpartition("write: ")[2])
        assert typed == ["echo", text, "|", "regard", "translate", str(words_model)]
    assert regard("translate", "everyday-en-de", "Good morning.").err.endswith("| regard translate everyday-en-de\n")
    ran = regard("translate", words_model, "talks/day.en")
    failed(ran, 66, "talks/day.en: there is no such file. Check the path; it is relative to")
    assert "echo" not in ran.err


def test_a_model_of_another_kind_says_so_with_nothing_to_read(words_model: Path, babbling_model: Path) -> None:
    for command, model in (("translate", babbling_model), ("generate", words_model), ("fill", words_model),
                           ("classify", words_model), ("tag", babbling_model)):  # fmt: skip
        failed(regard(command, model), 2, "need", "but `")


def break_off(monkeypatch: pytest.MonkeyPatch, after: int) -> list[Sequence[str]]:
    """Let the power fail after so many windows; gives the windows that were translated."""
    seen: list[Sequence[str]] = []
    real = Model.translations

    def failing(self: Model, texts: Sequence[str], *rest: object, **named: object) -> object:
        if len(seen) == after:
            raise KeyboardInterrupt
        seen.append(texts)
        return real(self, texts, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Model, "translations", failing)
    return seen


def test_out_is_written_whole(words_model: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "words.de"
    assert regard("translate", words_model, text, "--out", out) == Ran(0, "", "")
    assert out.read_text(encoding="utf-8").split("\n") == [*GERMAN, ""]
    assert sorted(file.name for file in tmp_path.iterdir()) == [".words.de.done", "words.de", "words.en"]
    again = regard("translate", words_model, text, "--out", out, "--resume")
    assert (again.code, "words.de: is whole already" in again.err) == (0, True)
    assert regard("translate", words_model, "--out", out, stdin=b"") == Ran(0, "", "")
    assert out.read_bytes() == b""


def test_a_broken_run_goes_on_where_it_was(
    words_model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "words.de"
    with monkeypatch.context() as patch:
        break_off(patch, after=2)
        stopped = regard("translate", words_model, text, "--out", out)
    failed(stopped, 130, "Go on with the same command and --resume")
    assert stopped.err.count("topped") == 1  # said once
    assert not out.exists()
    failed(regard("translate", words_model, text, "--out", out), 2, "left 2 parts of it", "--resume")
    with monkeypatch.context() as patch:
        seen = break_off(patch, after=9)
        assert regard("translate", words_model, text, "--out", out, "--resume").code == 0
        assert seen == [ENGLISH[10:]]
    assert out.read_text(encoding="utf-8").split("\n") == [*GERMAN, ""]
    assert sorted(file.name for file in tmp_path.iterdir()) == [".words.de.done", "words.de", "words.en"]


def test_a_run_that_kept_nothing_says_so(
    words_model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(monkeypatch, after=0)
    for out in (tmp_path / "words.de", Path("/dev/null")):
        failed(regard("translate", words_model, text, "--out", out), 130, "Stopped before anything was done that could")
    assert [file.name for file in tmp_path.iterdir()] == ["words.en"]


def test_a_run_goes_on_only_with_what_it_began_with(
    words_model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "words.de"
    with monkeypatch.context() as patch:
        break_off(patch, after=1)
        regard("translate", words_model, text, "--out", out)
    again = ("translate", words_model, text, "--out", out, "--resume")
    failed(regard(*again, "--beam", 1), 2, "must go on with the model and settings it began with")
    failed(regard(*again, "--json"), 2, "must go on with the model and settings it began with")
    write_lines(text, ["other", *ENGLISH])
    failed(regard(*again), 2, "must go on with the lines of text it began with")
    shutil.rmtree(tmp_path / ".words.de.parts")
    assert regard(*again).code == 0
    assert out.read_text(encoding="utf-8").count("\n") == 14


def test_what_cannot_be_written_or_shared_is_refused(
    words_model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(regard("translate", words_model, text, "--resume"), 2, "--out must name it, but is not given")
    failed(regard("translate", words_model, text, "--out", tmp_path), 2, "must be a file to write, but is a folder")
    failed(
        regard("translate", words_model, text, "--out", tmp_path / "no" / "x"), 66, "must be in a folder that is there"
    )
    failed(regard("translate", words_model, text, "--out", ""), 2, "must be a file to write, but is a folder")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    failed(regard("translate", words_model, text, "--out", tmp_path / "x"), 2, "in MASTER_ADDR and MASTER_PORT")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["words.en"]
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29400")
    failed(regard("translate", words_model, text), 2, "2 processes write one file", "--out")
    failed(regard("translate", words_model, "--out", tmp_path / "x"), 2, "but it is stdin")
    monkeypatch.setenv("RANK", "2")
    failed(regard("translate", words_model, text, "--out", tmp_path / "x"), 2, "RANK must be a number below WORLD_SIZE")


# Several models, many draws


def test_an_ensemble_of_a_model_with_itself_is_the_model(words_model: Path) -> None:
    text = "\n".join(ENGLISH).encode()
    for average in ("log", "probability"):
        ran = regard("translate", words_model, "--with", words_model, "--ensemble", average, stdin=text)
        assert ran.out.split("\n") == [*GERMAN, ""]
    failed(regard("translate", words_model, "--ensemble", "best", stdin=b"one"), 2, "must be one of: log, probability")


def test_the_draw_most_like_the_others(words_model: Path) -> None:
    ran = regard("translate", words_model, "--mbr", 8, "--json", stdin=b"one\n")
    found = json.loads(ran.out)
    assert found["text"] == "eins"
    assert found["score"] > 90  # chrF
    several = regard("translate", words_model, "--mbr", 8, "--nbest", 6, stdin=b"one\n")
    assert (several.code, several.out.count("\n")) == (0, 6)


def test_a_language_must_be_known(words_model: Path) -> None:
    failed(regard("translate", words_model, "--to", "de", stdin=b"one"), 2, "language: must be left out")


# Progress


def test_progress_says_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(common.time, "monotonic", lambda: now)
    progress = common.Progress(size=400)
    progress.skip(["x" * 99])  # a quarter was done before
    progress.window(["x" * 49] * 4)
    now = 110.0
    progress.add(2, tokens=500)
    assert progress._words() == "2 lines  0.2 lines/s  50 tokens/s  50%  0:20 left"
    progress.add(2)
    progress.window(["x" * 99])
    assert progress._words() == "4 lines  0.4 lines/s  50 tokens/s  75%  0:05 left"
    long = common.Progress(size=400)
    long.window(["x" * 399])
    now = 120.0
    long.add(0, tokens=500)
    assert long._words() == "0 lines  0.0 lines/s  500 tokens  50 tokens/s  0%"
    unknown = common.Progress()
    unknown.add(1)
    assert unknown._words().startswith("1 line  ")
    unknown.add(2)
    assert unknown._words().startswith("3 lines  ")
    assert "left" not in unknown._words()
