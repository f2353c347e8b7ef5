"""The command line as a new user meets it, and as a hostile one does: a sentence, an exit code, no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import cli, shipped
from tests.tiny import ENGLISH, GERMAN, Ran, failed, regard, write_lines

COMMANDS = [command.name or getattr(command.callback, "__name__", "") for command in cli.app.registered_commands]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_lines(tmp_path / "a.en", ENGLISH * 4), write_lines(tmp_path / "a.de", GERMAN * 4)


# Help


def test_help_needs_no_torch_and_no_patience() -> None:
    script = (
        "import sys\nfrom regard.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'tokenizers', 'babel') if name in sys.modules], file=sys.stderr)"
    )
    for arguments in ([], *([command] for command in COMMANDS)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = [sys.executable, "-c", script, *arguments, "--help"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "Usage:" in done.stdout
        assert done.stderr == "[]\n"
        # Its own work, not the clock: others share this machine's cores.
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3.0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    ran = regard(command, "-h")
    assert (ran.code, ran.err) == (0, "")
    assert f"Usage: regard {command}" in ran.out
    assert command in regard("--help").out


def test_the_commands_of_the_readme_are_there() -> None:
    assert {"demo", "train", "translate", "evaluate", "view", "inspect", "schema"} <= set(COMMANDS)


def test_version_and_nothing_at_all() -> None:
    assert regard("--version") == Ran(0, "regard 0.1.0\n", "")
    ran = regard()
    assert ran.code == 2
    assert "Usage: regard" in ran.out
    assert "internal error" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["translate"], "Missing argument 'MODEL'"),
        (["translate", "m", "--bogus"], "No such option: --bogus"),
        (["translate", "m", "--beam", "many"], "--beam"),
        (["inspect"], "MODEL|PRESET"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], words: str) -> None:
    failed(regard(*arguments), 2, words)


# Train


def test_a_misspelt_key_is_a_usage_error_with_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "small"\n[training]\nstep = 5\n')
    out = tmp_path / "out"
    failed(regard("train", file, "--out", out), 2, file, "training.step", "did you mean `steps`?")
    failed(regard("train", "demo", "modle.d_model=8", "--out", out), 2, "modle", "did you mean `model`?")
    failed(regard("train", "demo", "model.d_model=9", "--out", out), 2, "`d_model` must be a multiple of `heads` (4)")
    assert not out.exists()


def test_what_train_needs_is_said(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    failed(regard("train"), 2, "needs a recipe or --source and --target")
    failed(regard("train", "--source", pair[0]), 2, "--source and --target must be given together")
    failed(regard("train", "base", "big"), 2, "takes one recipe, but got 2: base, big")
    failed(regard("train", "--resume"), 2, "needs --out and no recipe")
    failed(regard("train", "base", "--resume", "--out", tmp_path), 2, "needs --out and no recipe")
    failed(regard("train", "--resume", "--out", tmp_path / "x"), 66, f"{tmp_path / 'x'}: must hold a run to go on with")
    failed(regard("train", "bse"), 66, "bse: there is neither such a file nor such a preset", "Did you mean `base`?")
    failed(regard("train", tmp_path / "no.toml"), 66, "no.toml")
    failed(regard("train", "demo", "--out", tmp_path), 2, f"{tmp_path}: must be new or empty, but is in use")


def test_mistakes_in_the_corpus_are_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    def train(source: Path, target: Path) -> Ran:
        return regard("train", "--source", source, "--target", target, "--out", tmp_path / "out")

    source, target = pair
    failed(train(tmp_path / "no.en", target), 66, tmp_path / "no.en", "there is no such file")
    failed(train(write_lines(tmp_path / "empty.en", []), target), 65, "empty.en: must hold at least one line")
    longer = write_lines(tmp_path / "longer.en", [*ENGLISH * 4, "one line too many"])
    failed(train(longer, target), 65, longer, target, "have 53 and 52", "look at line 53 of")
    bad = tmp_path / "bad.de"
    bad.write_bytes(b"gut\nf\xfcnf\n")
    failed(train(source, bad), 65, f"{bad}, line 2: must be UTF-8, but byte 2 of the line is 0xfc")
    failed(train(write_lines(tmp_path / "x.en", ["x"]), write_lines(tmp_path / "x.de", ["y"])), 65, "data.valid_source")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["plain.en", "with space.en", "quo'te\".en", "back\\slash.en", "emoji 😀 ü.en"])
def test_files_may_have_any_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    source = write_lines(tmp_path / "deep" / name, ["x"])
    target = tmp_path / "nothing.de"
    # The source was found, whatever its name: the complaint is about the target.
    failed(regard("train", "--source", source, "--target", target, "--out", tmp_path / "out"), 66, target)


# The other commands


def test_view_writes_a_page_and_prints_the_translation(words_model: Path, tmp_path: Path) -> None:
    page = tmp_path / "picture.html"
    ran = regard("view", words_model, "seven", "--out", page)
    assert (ran.code, ran.out) == (0, "sieben\n")
    assert str(page) in ran.err
    assert "sieben" in page.read_text(encoding="utf-8")
    nasty = regard("view", words_model, "<script>alert(1)</script>", "--out", page)
    assert nasty.code == 0
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")
    several = regard("view", shipped.path("everyday-en-de"), "Thank you. Good morning. I am tired.", "--out", page)
    assert (several.code, several.out) == (0, "Vielen Dank.\n")
    assert "translates each sentence by itself; the picture shows the first: Thank you.\n" in several.err
    assert '<dd lang="" dir="auto">Thank you.</dd>' in page.read_text(encoding="utf-8")
    failed(regard("view", words_model, ""), 2, "at least one word")
    failed(regard("view", words_model, "so\udcff"), 65, "must be Unicode", "U+DCFF")
    failed(regard("view", words_model, "one", "--out", tmp_path / "no" / "p.html"), 66, "must be in a folder that is")
    (tmp_path / "folder.html").mkdir()
    folder = tmp_path / "folder.html"
    failed(regard("view", words_model, "one", "--out", folder), 2, "must be a file to write, but is a folder")
    nameless = regard("view", words_model, "one", "--what", "heads", "--out", "/dev/stdout")
    failed(nameless, 2, "one of .html, .svg and .png, but has no such ending. Name it as --out heads.svg.\n")
    failed(regard("view", words_model, "one", "--out", tmp_path / "p.svg"), 2, "must end in .html, but ends in `.svg`")


def test_view_draws_what_is_asked_for(words_model: Path, babbling_model: Path, tmp_path: Path) -> None:
    arcs = tmp_path / "arcs.svg"
    ran = regard(
        "view", words_model, "seven", "--what", "arcs", "--name", "encoder", "--layer", 1, "--head", 2, "--out", arcs
    )
    assert (ran.code, ran.out) == (0, "sieben\n")
    assert 'aria-label="Encoder attention, layer 1, head 2"' in arcs.read_text(encoding="utf-8")
    text = regard("view", babbling_model, "seven", "--what", "next", "--out", tmp_path / "next.html")
    assert (text.code, text.out) == (0, "")
    assert "what comes next" in (tmp_path / "next.html").read_text(encoding="utf-8")
    failed(regard("view", words_model, "one", "--what", "mood"), 2, "--what must be one of: page, matrix", "`mood`")
    failed(
        regard("view", words_model, "one", "--what", "beam", "--out", tmp_path / "b.gif"), 2, ".svg and .png", ".gif"
    )
    failed(regard("view", words_model, "one", "--what", "arcs", "--head", 0), 2, "--head counts from 1, but is 0")
    for option in (("--layer", 9), ("--head", 9), ("--name", "mind")):
        failed(regard("view", words_model, "one", *option, "--out", tmp_path / "p.html"), 2, "attention:", "Choose")
    failed(regard("view", words_model, "one", "--what", "heads", "--layer", 1), 2, "--layer is for --what page, matrix")
    failed(regard("view", words_model, "--what", "curves", "--name", "cross"), 2, "--name is for", "Leave --name out")
    failed(regard("view", babbling_model, "one", "--what", "beam", "--out", arcs), 2, "needs a model that translates")
    asked = ("view", words_model, "one", "--what", "arcs", "--out", arcs)
    failed(regard(*asked, "--layer", 9), 2, "cross 1", "but is cross 9 (8, counted from 0)")
    failed(regard(*asked, "--head", 9), 2, "but head 9 (8, counted from 0)")


def test_view_tells_of_characters_that_the_model_does_not_know(tmp_path: Path) -> None:
    shipped_model, page = shipped.path("everyday-en-de"), tmp_path / "p.html"
    warning = "warning: view: 1 {} has characters that the model does not know, first {} ({}). It reads each of them"
    ran = regard("view", shipped_model, "Hello 你好", "--out", page)
    assert ran.code == 0
    assert warning.format("text", "'Hello 你好'", "你 好") in ran.err
    assert ran.err.endswith("so the picture may be of something else.\n")
    other = regard("view", shipped_model, "Hello", "--target", "Hallo ζ", "--out", page)
    assert warning.format("translation", "'Hallo ζ'", "ζ") in other.err
    assert other.err.count("warning") == 1
    # The second sentence is not in the picture.
    for known in (("Hello. 你好",), ("Hello",), ("你好", "--what", "positions")):
        assert "warning" not in regard("view", shipped_model, *known, "--out", page).err


def test_inspect_lists_every_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")  # a narrow window must not cut names off
    found = json.loads(regard("inspect", "base", "--json").out)
    assert (found["name"], found["kind"], found["parameters"]) == ("base", "transformer", 63_082_496)
    assert sum(matrix["parameters"] for matrix in found["matrices"]) == 63_082_496
    table = regard("inspect", "base").out.split("\n")
    for matrix in found["matrices"]:
        name = re.sub(r"\.\d+\.", ".*.", matrix["name"])  # the layers of a stack share a row
        (row,) = [line for line in table if line.startswith(f"{name} ")]
        assert " × ".join(map(str, matrix["shape"])) in row
    assert any(line.split() == ["total", str(len(found["matrices"])), "63,082,496"] for line in table)
    failed(regard("inspect", "nothing"), 66, "neither such a file nor such a preset")


@pytest.mark.parametrize("how", ["at the end", "on the way", "in the help", "of both streams"])
def test_a_reader_who_leaves_ends_it_quietly_with_the_code_of_sigpipe(how: str, words_model: Path) -> None:
    arguments, text = {
        "at the end": (["schema"], ""),  # all of it waits in Python's own memory until then
        "on the way": (["translate", str(words_model), "--beam", "1"], "one two\n" * 3_000),
        "in the help": (["--help"], ""),
        "of both streams": (["translate", str(words_model), "nowhere.txt"], ""),
    }[how]
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if how == "of both streams" else subprocess.PIPE
    try:
        ended = subprocess.run([sys.executable, "-m", "regard", *arguments], input=text, text=True, stdout=writing,
                               stderr=errors, check=False)  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr or "") == (141, "")


def test_schema_is_json_and_names_every_section() -> None:
    found = json.loads(regard("schema").out)
    sections = {"name", "seed", "device", "data", "tokenizer", "model", "batch", "training", "search"}
    assert sections | {"extends"} <= set(found["properties"])


# What nobody expects


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "secret"), 66, "secret: Permission denied"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 66, "the output: No space left on device. Make room"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.html"), 66, "a.html: No space left on device. Make room"),
        (KeyboardInterrupt(), 130, "regard inspect: stopped by SIGINT before its end.\n"),
    ],
)
def test_the_machines_refusals_are_passed_on(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise error

    monkeypatch.setattr("regard.api.inspect", refuse)
    failed(regard("inspect", "base"), code, words)


def test_ctrl_c_before_there_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.app", interrupted)  # while Typer makes its commands
    failed(regard("inspect", "base"), 130, "regard: stopped by SIGINT before its end.\n")


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, RuntimeError, MemoryError])
def test_memory_that_runs_out_is_not_our_mistake(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise kind("CUDA out of memory. Tried to allocate 2.00 GiB. Including non-PyTorch memory, this process has …")

    monkeypatch.setattr("regard.api.inspect", full)
    monkeypatch.delenv("REGARD_DEBUG", raising=False)
    words = ("must fit into the memory of the device", "Tried to allocate 2.00 GiB.)", "--precision bf16", "--resume")
    failed(regard("inspect", "base"), 65, "regard: memory: ", *words)


def test_our_own_mistakes_say_so_and_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("regard.api.inspect", broken)
    monkeypatch.delenv("REGARD_DEBUG", raising=False)
    ran = regard("inspect", "base")
    assert (ran.code, ran.out) == (70, "")
    assert "internal error (ZeroDivisionError: oh). Set REGARD_DEBUG=1" in ran.err
    monkeypatch.setenv("REGARD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        regard("inspect", "base")
