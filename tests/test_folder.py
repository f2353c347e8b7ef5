"""The model folder: whole, movable, without pickle; and every way in which it can be broken, in a sentence."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from regard import folder
from regard.errors import DataError, MissingError, RegardError
from regard.files import MANIFEST, read_manifest, seal
from regard.folder import CARD, DATA, METRICS, RECIPE, TOKENIZER, WEIGHTS, load_folder, read_recipe
from regard.viewing.training_curves import CURVES

CPU = torch.device("cpu")
FILES = (RECIPE, TOKENIZER, WEIGHTS, CARD, METRICS, DATA, CURVES)


@pytest.fixture
def model(words_model: Path, tmp_path: Path) -> Path:
    """A copy that may be broken."""
    return Path(shutil.copytree(words_model, tmp_path / "model"))


def test_a_folder_has_its_files_and_nothing_hidden(words_model: Path) -> None:
    assert {file.name for file in words_model.iterdir()} == {*FILES, MANIFEST, "checkpoints", "tensorboard"}
    assert set(read_manifest(words_model)) == set(FILES)


def test_what_was_written_is_what_is_loaded(words_model: Path) -> None:
    loaded = load_folder(words_model, CPU)
    weights = load_file(words_model / WEIGHTS)
    assert loaded.model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in loaded.model.state_dict().items())
    assert loaded.recipe == read_recipe(words_model)
    assert loaded.tokenizer.to_json() == (words_model / TOKENIZER).read_text(encoding="utf-8")
    assert not loaded.model.training


def test_a_folder_works_wherever_it_is_moved_and_without_checkpoints(model: Path) -> None:
    shutil.rmtree(model / "checkpoints")
    moved = model.rename(model.with_name("mövëd to ☃"))
    assert load_folder(moved, CPU).recipe.name == "words"


def test_the_card_speaks_of_the_model(words_model: Path) -> None:
    card = (words_model / CARD).read_text(encoding="utf-8")
    parameters = sum(weight.numel() for weight in load_folder(words_model, CPU).model.parameters())
    for words in ("# words", f"{parameters:,} parameters", "40 steps", "perplexity", "regard.load"):
        assert words in card


def test_a_full_disk_at_the_end_names_the_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes the weights says it in words alone."""
    full = SafetensorError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")
    monkeypatch.setattr(folder, "save_file", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left on device") as raised:
        folder.write_end(model, {}, "")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(model / WEIGHTS))
    assert not list(model.glob(".*writing"))


def truncate(name: str) -> Callable[[Path], None]:
    def break_it(model: Path) -> None:
        (model / name).write_bytes((model / name).read_bytes()[:-10])

    return break_it


def flip(name: str) -> Callable[[Path], None]:
    def break_it(model: Path) -> None:
        content = bytearray((model / name).read_bytes())
        content[len(content) // 2] ^= 1
        (model / name).write_bytes(content)

    return break_it


def remove(name: str) -> Callable[[Path], None]:
    return lambda model: (model / name).unlink()


@pytest.mark.parametrize("name", FILES)
def test_a_cut_changed_or_missing_file_is_named(model: Path, name: str) -> None:
    flip(name)(model)
    with pytest.raises(DataError, match=f"{name}: its SHA-256 must be .* copy the folder again"):
        load_folder(model, CPU)
    truncate(name)(model)
    with pytest.raises(DataError, match=f"{name}: must be [0-9,]+ bytes long .* copy the folder again"):
        load_folder(model, CPU)
    remove(name)(model)
    with pytest.raises(MissingError, match=f"{name}: the manifest .* names this file, but it is not there"):
        load_folder(model, CPU)


def reseal(model: Path, names: tuple[str, ...] = FILES) -> None:
    seal(model, list(names))


def garbage_weights(model: Path) -> None:
    (model / WEIGHTS).write_bytes(b"no weights at all")
    reseal(model)


def other_weights(model: Path) -> None:
    save_file({"something": torch.zeros(3)}, model / WEIGHTS)
    reseal(model)


def infinite_weights(model: Path) -> None:
    weights = load_file(model / WEIGHTS)
    next(iter(weights.values())).view(-1)[3] = torch.inf
    save_file(weights, model / WEIGHTS)
    reseal(model)


def garbage_tokenizer(model: Path) -> None:
    (model / TOKENIZER).write_text("{}")
    reseal(model)


def no_weights(model: Path) -> None:
    (model / WEIGHTS).unlink()
    reseal(model, (RECIPE, TOKENIZER))


def empty_manifest(model: Path) -> None:
    (model / MANIFEST).write_text(json.dumps({"format_version": 1, "files": {}}, indent=2) + "\n")


def newer_version(model: Path) -> None:
    manifest = json.loads((model / MANIFEST).read_text())
    (model / MANIFEST).write_text(json.dumps(manifest | {"format_version": 3}))


@pytest.mark.parametrize(
    ("break_it", "kind", "words"),
    [
        (garbage_weights, DataError, f"{WEIGHTS}: must hold the weights {RECIPE} describes, but does not"),
        (other_weights, DataError, f"{WEIGHTS}: must hold the weights {RECIPE} describes, but does not"),
        (infinite_weights, DataError, f"{WEIGHTS}: every weight must be a finite number"),
        (garbage_tokenizer, DataError, f"{TOKENIZER}: must be a tokenizer"),
        (no_weights, DataError, f"{MANIFEST}: must name every file of the model, but leaves out {WEIGHTS}"),
        (empty_manifest, DataError, f"leaves out {WEIGHTS}, {RECIPE}, {TOKENIZER}"),
        (newer_version, DataError, "format_version must be 1 or 2 for this Regard, but is 3"),
        (remove(MANIFEST), DataError, "its training did not end. Go on with: regard train --resume --out"),
        (shutil.rmtree, MissingError, "must be a model folder, but is not there"),
    ],
)
def test_a_folder_that_proves_itself_but_makes_no_sense_is_named(
    model: Path, break_it: Callable[[Path], None], kind: type[RegardError], words: str
) -> None:
    break_it(model)
    with pytest.raises(kind) as caught:
        load_folder(model, CPU)
    assert words in str(caught.value)
    assert str(model) in str(caught.value)


def test_something_else_than_a_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"has no manifest\.json\. Is the path right"):
        load_folder(tmp_path, CPU)
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="file: must be a model folder, but is a file"):
        load_folder(tmp_path / "file", CPU)


def test_a_model_in_training_is_not_taken_for_a_finished_one(model: Path) -> None:
    loaded = load_folder(model, CPU)
    folder.write_beginning(model, loaded.recipe, loaded.tokenizer)
    with pytest.raises(DataError, match="its training did not end"):
        load_folder(model, CPU)
    folder.write_end(model, load_file(model / WEIGHTS), "# again\n")
    assert (load_folder(model, CPU).recipe, (model / CARD).read_text()) == (loaded.recipe, "# again\n")


def test_a_recipe_in_a_folder_can_be_changed_on_the_way_out(words_model: Path) -> None:
    assert read_recipe(words_model, ["training.steps=50"]).training.steps == 50
    assert read_recipe(words_model).training.steps == 40
