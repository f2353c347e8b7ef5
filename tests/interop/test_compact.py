"""A model folder to be given away says the same in half the bytes, or nearly the same in a quarter of them."""

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

from regard import folder, shipped
from regard.api import load
from regard.errors import DataError
from regard.files import FORMAT_VERSION, INT8_VERSION, MANIFEST, check_folder, seal
from regard.interop import compact
from regard.layers.quantised import Int8Linear, can_quantise
from regard.models.build import build_any
from regard.recipe import LABELLING, build_recipe
from regard.text.labels import with_labels
from regard.text.tokenizer import Tokenizer
from tests.contracts.zoo import ZOO
from tests.tiny import ENGLISH, GERMAN, failed, regard


def test_half_the_bytes_and_nothing_that_only_training_needs(words_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    ran = regard("export", words_model, out, "--to", "regard", "--numbers", "float16", "--count", 13, "--json")
    assert ran.code == 0, ran.err
    proof = json.loads(ran.out)["proof"]
    assert proof["same"]["greedy"] == {"same": 13, "of": 13}
    assert proof["bytes"]["in float16"] < 0.55 * proof["bytes"]["regard"]
    before, after = load_file(words_model / folder.WEIGHTS), load_file(out / folder.WEIGHTS)
    assert before.keys() == after.keys()
    for name, weight in after.items():
        assert weight.dtype == torch.float16
        torch.testing.assert_close(weight.float(), before[name], rtol=2**-11, atol=1e-7)
    assert not (out / folder.CHECKPOINTS).exists()
    assert compact.NOTES["float16"] in (out / folder.CARD).read_text(encoding="utf-8")
    model = load(out)
    assert next(model.network.parameters()).dtype == torch.float32
    assert model.translate(["seven"]) == ["sieben"]


def test_a_licence_goes_with_its_model(words_model: Path, tmp_path: Path) -> None:
    ran = regard("export", "everyday-en-de", tmp_path / "copy", "--to", "regard", "--count", 1)
    assert ran.code == 0, ran.err
    assert (tmp_path / "copy" / "LICENSE").read_bytes() == (shipped.path("everyday-en-de") / "LICENSE").read_bytes()
    check_folder(tmp_path / "copy")
    (tmp_path / "none").mkdir()
    compact.write(words_model, tmp_path / "none")
    assert not (tmp_path / "none" / "LICENSE").exists()


def test_all_bits_are_kept_where_nothing_else_is_asked(words_model: Path, tmp_path: Path) -> None:
    ran = regard("export", words_model, tmp_path / "copy", "--to", "regard", "--count", 5)
    assert ran.code == 0, ran.err
    assert "differ by at most 0.0e+00" in ran.out
    assert "passed" in ran.out
    weights = folder.WEIGHTS
    assert (tmp_path / "copy" / weights).read_bytes() == (words_model / weights).read_bytes()


def test_a_folder_of_16_bits_can_be_written_again_with_as_many_or_more(words_model: Path, tmp_path: Path) -> None:
    half, again, full = (tmp_path / name for name in ("half", "again", "full"))
    half.mkdir()
    compact.write(words_model, half, "float16")
    for out, more in ((again, ("--numbers", "float16")), (full, ())):
        ran = regard("export", half, out, "--to", "regard", "--count", 5, *more)
        assert ran.code == 0, ran.err
    for name in (folder.CARD, folder.WEIGHTS):
        assert (again / name).read_bytes() == (half / name).read_bytes()
    assert {weight.dtype for weight in load_file(full / folder.WEIGHTS).values()} == {torch.float32}
    before = (words_model / folder.CARD).read_text(encoding="utf-8").rstrip()
    said = "## Weights\n\nRounded to 16 bits (float16) before, which more bits do not undo."
    assert (full / folder.CARD).read_text(encoding="utf-8") == f"{before}\n\n{said}\n"
    for name, weight in load_file(half / folder.WEIGHTS).items():
        torch.testing.assert_close(load_file(full / folder.WEIGHTS)[name], weight.float(), rtol=0, atol=0)


def test_a_weight_that_16_bits_cannot_hold_is_named(words_model: Path, tmp_path: Path) -> None:
    place = tmp_path / "large"
    shutil.copytree(words_model, place)
    weights = load_file(place / folder.WEIGHTS)
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = 70_000.0
    save_file(weights, place / folder.WEIGHTS)
    seal(place, [folder.RECIPE, folder.TOKENIZER, folder.WEIGHTS, folder.CARD, folder.METRICS])
    ran = regard("export", place, tmp_path / "small", "--to", "regard", "--numbers", "float16")
    failed(ran, 65, "below 65,504", name, "--numbers float32")
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("shutil.copyfile", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the file that is read")),
        ("save_file", SafetensorError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")),
    ],
)
def test_a_full_disk_is_that_of_the_folder_to_write(
    writer: str, error: Exception, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"regard.interop.compact.{writer}", mock.Mock(side_effect=error))
    ran = regard("export", words_model, tmp_path / "small", "--to", "regard")
    failed(ran, 66, f"regard: {tmp_path / 'small'}: No space left on device.")
    assert not any(tmp_path.iterdir())


def test_numbers_that_are_not_ours_are_refused(words_model: Path, tmp_path: Path) -> None:
    ran = regard("export", words_model, tmp_path / "small", "--to", "regard", "--numbers", "int16")
    failed(ran, 2, "--numbers must be one of: float32, float16, int8 for regard")


@pytest.mark.parametrize("numbers", ["float16", "int8"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_computes_in_any_precision(
    precision: str, numbers: compact.Numbers, words_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    compact.write(words_model, tmp_path / "small", numbers)
    ran = regard("translate", tmp_path / "small", "--precision", precision, stdin=b"nine\n")
    assert ran.out == "neun\n", ran.err


# ---- 8 bits

CPU = torch.device("cpu")


@pytest.fixture
def quarter(words_model: Path, tmp_path: Path) -> Path:
    """The words in 8 bits a weight."""
    return compacted(words_model, tmp_path / "quarter", "int8")


def compacted(place: Path, out: Path, numbers: compact.Numbers) -> Path:
    out.mkdir()
    compact.write(place, out, numbers)
    return out


def version(place: Path) -> int:
    return int(json.loads((place / MANIFEST).read_text())["format_version"])


def test_a_quarter_of_the_bytes(words_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    ran = regard("export", words_model, out, "--to", "regard", "--numbers", "int8", "--count", 13, "--json")
    assert ran.code == 0, ran.err
    proof = json.loads(ran.out)["proof"]
    assert not proof["judged"]
    assert proof["same"]["greedy"]["same"] >= 12
    assert proof["quality"]["in int8"]["chrF"] > 90
    assert proof["bytes"]["in int8"] < 0.35 * proof["bytes"]["regard"]
    assert not (out / folder.CHECKPOINTS).exists()
    assert compact.NOTES["int8"] in (out / folder.CARD).read_text(encoding="utf-8")
    model = load(out)
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    assert model.translate(["seven"]) == ["sieben"]


def test_each_matrix_has_its_scales_beside_it(words_model: Path, quarter: Path) -> None:
    before, stored = load_file(words_model / folder.WEIGHTS), load_file(quarter / folder.WEIGHTS)
    for name, weight in before.items():
        if weight.ndim == 1:
            assert torch.equal(stored.pop(name), weight)
            continue
        levels, scale = stored.pop(name), stored.pop(f"{name}.scale")
        assert (levels.dtype, scale.dtype) == (torch.int8, torch.float32)
        torch.testing.assert_close(scale, weight.abs().amax(dim=1) / 127, rtol=0, atol=0)
        assert (levels.float().abs().amax(dim=1) == 127).all()
        assert ((levels * scale[:, None] - weight).abs() <= 0.501 * scale[:, None]).all()
    assert stored == {}


KINDS = {
    "tied": "kind='transformer', encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, tie='all'",
    "untied": "kind='transformer', encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, tie='none'",
    "experts": "kind='transformer', encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, experts=3",
    "gpt": "kind='gpt', layers=1, d_model=16, d_ff=24, heads=2, max_positions=16",
    "recurrent": "kind='recurrent', encoder_layers=1, decoder_layers=1, d_model=32",
    "hard": "kind='recurrent', encoder_layers=1, decoder_layers=1, d_model=32, attention='dot', hard=true",
    "recurrent-lm": "kind='recurrent-lm', d_model=16",
    "convs2s": "kind='convs2s', encoder=[[1, 16, 3]], decoder=[[1, 16, 3]], embedding=16",
    "bytenet": "kind='bytenet', channels=16, dilations=[1], repeats=1",
    "wavenet": "kind='wavenet', channels=16, skip_channels=16, dilations=[1], repeats=1",
    "transformer-xl": "kind='transformer-xl', layers=1, d_model=32, d_ff=24, heads=2, memory=3",
    "xlnet": "kind='xlnet', layers=1, d_model=32, d_ff=24, heads=2",
    "bert": "kind='bert', layers=1, d_model=16, d_ff=24, heads=2",
    "classifier": "kind='classifier', body={layers=1, d_model=16, d_ff=24, heads=2}",
    "tagger": "kind='tagger', body={kind='convolution', layers=1, d_model=16, kernel=3}",
}


def fresh(place: Path, settings: str) -> Path:
    """A folder with a model that has learned nothing; among its weights is a row of zeros."""
    files = {"classifier": "{kind='labelled', table='t.tsv'}", "tagger": "{kind='tagged', words='w.txt'}"}
    data = [f"data={files[kind]}" for kind in files if kind in settings]
    recipe = build_recipe({}, [f"model={{{settings}}}", "tokenizer.vocabulary=120", *data], "fresh")
    tokenizer = Tokenizer.learn(ENGLISH + GERMAN, recipe.tokenizer)
    if recipe.model.kind in LABELLING:
        tokenizer = with_labels(tokenizer, ["en", "de"], recipe.model.kind == "tagger")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_any(recipe.model, tokenizer.size, tokenizer.source.size)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    next(weight for weight in weights.values() if weight.ndim > 1 and weight.shape[-1] >= 16)[0].zero_()
    folder.write_beginning(place, recipe, tokenizer)
    (place / folder.METRICS).touch()
    folder.write_end(place, weights, "# fresh\n")
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_read_back_and_written_again_as_it_was(kind: str, tmp_path: Path) -> None:
    place = fresh(tmp_path / "place", KINDS[kind])
    quarter = compacted(place, tmp_path / "quarter", "int8")
    assert torch.int8 in {tensor.dtype for tensor in load_file(quarter / folder.WEIGHTS).values()}
    before, after = (folder.load_folder(each, CPU).network.state_dict() for each in (place, quarter))
    for name, weight in after.items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0.504 / 127 * float(before[name].abs().max()))
    full = compacted(quarter, tmp_path / "full", "float32")
    read = load_file(full / folder.WEIGHTS)
    assert all(torch.equal(read[name], weight) for name, weight in after.items())
    for again in (compacted(each, tmp_path / f"from-{each.name}", "int8") for each in (quarter, full)):
        for name in (folder.CARD, folder.WEIGHTS):
            assert (again / name).read_bytes() == (quarter / name).read_bytes()


@pytest.mark.parametrize("largest", [0.0, 1e-45, 1e-38, 3e-7, 1.0, 7e4, 3e38])
def test_rows_of_any_size(largest: float) -> None:
    """Each row is as good as its own largest weight allows, and what is read gives the same again."""
    rows = torch.randn(200, 16, generator=torch.Generator().manual_seed(3))
    rows = rows / rows.abs().amax(dim=1, keepdim=True) * largest
    stored = compact._in_8_bits({"w": rows})
    assert (stored["w.scale"] > 0).all()  # nothing is divided by 0
    read = stored["w"].float() * stored["w.scale"][:, None]
    torch.testing.assert_close(read, rows, rtol=0, atol=largest * 0.504 / 127 + 1e-38)
    again = compact._in_8_bits({"w": read})
    assert all(torch.equal(again[name], tensor) for name, tensor in stored.items())


def test_every_largest_weight_gives_its_scale_again() -> None:
    """Rounding could give another, and another file. These are all floats from 1 to 2; others differ in exponent."""
    rows = (torch.arange(2**23, dtype=torch.int32) + 0x3F800000).view(torch.float)[:, None]
    levels, scale = compact._rounded(rows)
    again = compact._rounded(levels * scale[:, None])
    assert torch.equal(again[0], levels)
    assert torch.equal(again[1], scale)


def test_short_rows_stay_as_they_are() -> None:
    weights = {"short": torch.ones(9, 15), "vector": torch.ones(99), "number": torch.tensor(2.0)}
    assert compact._in_8_bits(weights) == weights


@pytest.mark.parametrize("name", ZOO)
def test_no_weight_can_be_called_as_the_scales_of_another(name: str) -> None:
    names = ZOO[name].build(20).state_dict().keys()
    assert not names & {f"{each}{folder.SCALE}" for each in names}


def test_the_card_says_what_the_weights_are_and_were(words_model: Path, tmp_path: Path) -> None:
    """What was lost once is not won back, however many bits there are later."""
    place, whole = words_model, (words_model / folder.CARD).read_text(encoding="utf-8").rstrip()
    rounded = "Rounded to {} before, which more bits do not undo."
    half, quarter = (rounded.format(bits) for bits in ("16 bits (float16)", "8 bits (int8)"))
    notes: list[tuple[compact.Numbers, list[str]]] = [
        ("float32", []),
        ("float16", [compact.NOTES["float16"]]),
        ("float16", [compact.NOTES["float16"]]),
        ("float32", [half]),
        ("float32", [half]),
        ("int8", [compact.NOTES["int8"]]),
        ("float16", [compact.NOTES["float16"], quarter]),
        ("float32", [quarter]),
        ("int8", [compact.NOTES["int8"]]),
        ("float32", [quarter]),
    ]
    for number, (numbers, said) in enumerate(notes):
        place = compacted(place, tmp_path / str(number), numbers)
        card = (place / folder.CARD).read_text(encoding="utf-8")
        assert card == f"{whole}\n" + (f"\n## Weights\n\n{' '.join(said)}\n" if said else ""), number
        # An older Regard says that it does not know this version, instead of wondering at the names of tensors.
        assert version(place) == (INT8_VERSION if numbers == "int8" else FORMAT_VERSION)
        check_folder(place)


def test_others_files_say_what_the_weights_were(quarter: Path, tmp_path: Path) -> None:
    ran = regard("export", quarter, tmp_path / "out", "--to", "onnx", "--count", 4)
    assert ran.code == 0, ran.err
    card = (tmp_path / "out" / folder.CARD).read_text(encoding="utf-8")
    assert card.endswith("## Weights\n\nRounded to 8 bits (int8) before, which more bits do not undo.\n")


def test_8_bits_are_not_rounded_twice(quarter: Path) -> None:
    """What computes in int8 finds the very levels that are stored."""
    if not can_quantise():
        pytest.skip("no 8-bit products here")
    stored = load_file(quarter / folder.WEIGHTS)
    name = "decoder.0.feedforward.inner.weight"
    linear = Int8Linear(folder.read_weights(quarter)[name], None)
    x_RI = torch.eye(64)
    torch.testing.assert_close(linear(x_RI).T, stored[name] * stored[f"{name}.scale"][:, None], rtol=1e-5, atol=1e-7)


def test_all_commands_read_it(quarter: Path, words_model: Path, tmp_path: Path) -> None:
    for command in (
        ("verify", quarter, "--texts", 4),
        ("evaluate", quarter),
        ("inspect", quarter),
        ("view", quarter, "seven", "--out", tmp_path / "seven.html"),
        ("export", quarter, tmp_path / "out", "--to", "onnx", "--count", 4),
    ):
        ran = regard(*command)
        assert ran.code == 0, ran.err
    ran = regard("translate", quarter, "--with", words_model, stdin=b"nine\n")
    assert (ran.code, ran.out) == (0, "neun\n"), ran.err


def test_training_begins_with_it(quarter: Path, words_model: Path, tmp_path: Path) -> None:
    few = "training={steps=1, validate_every=1, save_every=1, average=1, optimiser={schedule='constant', rate=1e-9}}"
    sides = ("--source", words_model.parent / "words.en", "--target", words_model.parent / "words.de")
    ran = regard("train", f"init={quarter}", "batch.tokens=512", few, *sides, "--out", tmp_path / "on")
    assert ran.code == 0, ran.err
    assert version(tmp_path / "on") == FORMAT_VERSION
    before, after = folder.read_weights(quarter), load_file(tmp_path / "on" / folder.WEIGHTS)
    assert before.keys() == after.keys()
    assert max(float((before[name] - after[name]).abs().max()) for name in before) < 1e-6


Weights = dict[str, torch.Tensor]
NAME = "decoder.0.feedforward.inner.weight"


def lose(weights: Weights) -> None:
    del weights[f"{NAME}.scale"]


def cut(weights: Weights) -> None:
    weights[f"{NAME}.scale"] = weights[f"{NAME}.scale"][1:].clone()


def halve(weights: Weights) -> None:
    weights[f"{NAME}.scale"] = weights[f"{NAME}.scale"].half()


def strand(weights: Weights) -> None:
    del weights[NAME]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lose,
            f"`{NAME}` is int8 [128, 64], so `{NAME}.scale` must hold a float32 for each of its rows, but is not there",
        ),
        (cut, "but is float32 [127]. Copy the folder again, or export the model again."),
        (halve, "but is float16 [128]."),
        (strand, f'Unexpected key(s) in state_dict: "{NAME}.scale"'),
    ],
)
def test_scales_that_are_not_right_are_named(damage: Callable[[Weights], None], words: str, quarter: Path) -> None:
    weights = load_file(quarter / folder.WEIGHTS)
    damage(weights)
    save_file(weights, quarter / folder.WEIGHTS)
    seal(quarter, [folder.RECIPE, folder.TOKENIZER, folder.WEIGHTS, folder.CARD, folder.METRICS])
    with pytest.raises(DataError) as caught:
        folder.load_folder(quarter, CPU)
    assert f"{quarter / folder.WEIGHTS}: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["bert", "classifier", "tagger"])
def test_what_writes_no_texts_is_written_and_not_compared(kind: str, tmp_path: Path) -> None:
    place = fresh(tmp_path / "place", KINDS[kind])
    ran = regard("export", place, tmp_path / "quarter", "--to", "regard", "--numbers", "int8")
    assert (ran.code, ran.out) == (0, "the model writes no texts, so nothing was compared\n"), ran.err
    assert folder.load_folder(tmp_path / "quarter", CPU).recipe.model.kind == kind
