"""Checkpoints: everything comes back to the bit, damage is noticed, the average is the mean."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from regard.errors import DataError, MissingError
from regard.files import MANIFEST, seal
from regard.training import checkpoint
from regard.training.checkpoint import Snapshot
from regard.training.optim import OptimiserSettings, optimiser


def snapshot(step: int, value: float = 0.0) -> Snapshot:
    weights = {"a.weight": torch.full((2, 3), value), "a.bias": torch.tensor([value, -value, 1 / 3])}
    return Snapshot(step, weights, {"a.weight/step": torch.tensor(float(step))}, checkpoint.random_state())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def names(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    saved = snapshot(7, 0.1)
    place = checkpoint.save(tmp_path, saved, keep=1)
    loaded = checkpoint.load(place)
    assert loaded.step == 7
    assert same(loaded.weights, saved.weights)
    assert same(loaded.optimiser, saved.optimiser)
    assert same(loaded.random, saved.random)
    assert names(place) == [MANIFEST, "model.safetensors", "optimiser.safetensors", "random.safetensors", "state.json"]
    assert json.loads((place / "state.json").read_text()) == {
        "step": 7, "cursor": 0, "batch_parts": 1, "seconds": 0.0, "warm": 0.0, "validations": []
    }  # fmt: skip


def test_what_is_kept_only_if_there_is_any_comes_back_too(tmp_path: Path) -> None:
    saved = replace(
        snapshot(7),
        cursor=9,
        batch_parts=4,
        seconds=2.5,
        warm=0.5,
        moving={"a.bias": torch.ones(3)},
        validations=((5, -1.5), (6, -1.25)),
    )
    loaded = checkpoint.load(checkpoint.save(tmp_path, saved, keep=1))
    assert (loaded.cursor, loaded.batch_parts, loaded.validations) == (9, 4, saved.validations)
    assert (loaded.seconds, loaded.warm) == (2.5, 0.5)
    assert same(loaded.moving, saved.moving)


def test_the_best_are_spared(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        checkpoint.save(tmp_path, snapshot(step), keep=1, spare=[5, 15])
    assert names(tmp_path) == ["00000005", "00000015", "00000020"]


def test_parts_make_a_whole(tmp_path: Path) -> None:
    tensors = {f"w{number}": torch.full((number + 1,), float(number)) for number in range(7)}
    shares = [checkpoint.share_of(tensors.items(), part, 3) for part in range(3)]
    assert sum(len(share) for share in shares) == 7
    parts = [
        Snapshot(4, share, share, checkpoint.random_state(), 6, share, ((4, 0.5),), part=part, parts=3)
        for part, share in enumerate(shares)
    ]
    checkpoint.begin(tmp_path, 4)
    for part in (2, 1, 0):  # the first waits for the others
        checkpoint.save(tmp_path, parts[part], keep=1)
    assert names(tmp_path) == ["00000004"]
    loaded = checkpoint.load(tmp_path / "00000004")
    assert (loaded.step, loaded.cursor, loaded.validations, loaded.parts) == (4, 6, ((4, 0.5),), 1)
    for group in (loaded.weights, loaded.optimiser, loaded.moving, checkpoint.averaged([tmp_path / "00000004"])):
        assert same({name: group[name] for name in tensors}, tensors)
    (tmp_path / "00000004" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(MissingError, match="model-00002-of-00003"):
        checkpoint.load(tmp_path / "00000004")


def test_a_member_that_keeps_nothing_writes_nothing(tmp_path: Path) -> None:
    assert checkpoint.share_of({"w": torch.ones(2)}.items(), part=1, parts=1) == {}
    checkpoint.save(tmp_path, replace(snapshot(1), part=1, parts=1), keep=1)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: Disk quota (os error 122)")]
)
def test_a_full_disk_is_named_and_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    checkpoint.save(tmp_path, snapshot(10), keep=1)

    def full(tensors: dict[str, Tensor], file: Path) -> None:
        file.write_bytes(b"a part of it")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(
        MissingError, match=r"disk must have room for a checkpoint \(.*The one of step 10 is whole: make"
    ):
        checkpoint.save(tmp_path, snapshot(20), keep=1)
    assert names(tmp_path) == ["00000010"]
    assert checkpoint.newest(tmp_path)[0].step == 10


def test_another_error_of_the_disk_is_given_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(MissingError, match=r"a checkpoint must be written here, but cannot be \(.*none before it"):
        checkpoint.save(tmp_path / "checkpoints", snapshot(20), keep=1)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 100, 1_000):
        checkpoint.save(tmp_path, snapshot(step), keep=2)
    assert names(tmp_path) == ["00000100", "00001000"]
    assert [place.name for place in checkpoint.found(tmp_path)] == ["00000100", "00001000"]


def test_nothing_but_checkpoints_is_found_or_removed(tmp_path: Path) -> None:
    (tmp_path / "12 notes").mkdir()
    (tmp_path / "00000001").write_text("a file")
    (tmp_path / ".00000003.writing").mkdir()
    for step in (1_000, 2_000):
        checkpoint.save(tmp_path, snapshot(step), keep=1)
    assert names(tmp_path) == [".00000003.writing", "00000001", "00002000", "12 notes"]


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def test_a_damaged_newest_checkpoint_gives_the_one_before_and_a_line_about_it(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, snapshot(step, float(step)), keep=3)
    damage(tmp_path / "00000030" / "model.safetensors")
    (tmp_path / "00000020" / "optimiser.safetensors").unlink()
    loaded, lines = checkpoint.newest(tmp_path)
    assert loaded.step == 10
    assert len(lines) == 2
    assert "00000030/model.safetensors: its SHA-256 must be" in lines[0]
    assert "00000020/optimiser.safetensors" in lines[1]
    assert all(line.endswith("Using the checkpoint before it.") for line in lines)


def test_a_checkpoint_whose_manifest_agrees_but_whose_content_is_nonsense_is_damaged(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        checkpoint.save(tmp_path, snapshot(step), keep=4)
    for step, name, content in ((2, "state.json", "{}"), (3, "model.safetensors", "?"), (4, "state.json", "[")):
        place = tmp_path / f"0000000{step}"
        (place / name).write_text(content)
        seal(place, sorted(file.name for file in place.iterdir() if file.name != MANIFEST))
    seal(tmp_path / "00000004", [])
    (tmp_path / "00000004" / "random.safetensors").unlink()
    loaded, lines = checkpoint.newest(tmp_path)
    assert (loaded.step, len(lines)) == (1, 3)


def test_nothing_to_resume_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"there must be a checkpoint to resume from, but there is none\. Train"):
        checkpoint.newest(tmp_path / "checkpoints")
    damage(checkpoint.save(tmp_path, snapshot(1), keep=1) / "state.json")
    with pytest.raises(DataError, match=r"no checkpoint here is whole.*state\.json"):
        checkpoint.newest(tmp_path)


def test_checkpoints_set_aside_are_kept_but_count_no_more(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, snapshot(step), keep=3)
    checkpoint.set_aside(tmp_path, after=10)
    assert names(tmp_path) == ["00000010", "damaged-00000020", "damaged-00000030"]
    checkpoint.save(tmp_path, snapshot(20), keep=3)
    checkpoint.set_aside(tmp_path, after=10)
    assert [place.name for place in checkpoint.found(tmp_path)] == ["00000010"]


def test_the_average_is_the_arithmetic_mean(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    weights = [{"w": torch.randn(50, 3, generator=draw), "b": torch.randn(2, generator=draw)} for _ in range(5)]
    places = [
        checkpoint.save(tmp_path, Snapshot(step, each, {}, checkpoint.random_state()), keep=9)
        for step, each in enumerate(weights)
    ]
    mean = checkpoint.averaged(places)
    for name in ("w", "b"):
        expected = torch.stack([each[name].double() for each in weights]).mean(0).float()
        assert torch.equal(mean[name], expected)
        assert mean[name].dtype == torch.float32
    assert same(checkpoint.averaged(places[:1]), weights[0])


def test_a_damaged_checkpoint_is_never_averaged_in(tmp_path: Path) -> None:
    places = [checkpoint.save(tmp_path, snapshot(step), keep=2) for step in (1, 2)]
    damage(places[0] / "model.safetensors")
    with pytest.raises(DataError, match=r"00000001/model\.safetensors"):
        checkpoint.averaged(places)


def test_weights_of_other_names_or_shapes_are_not_averaged(tmp_path: Path) -> None:
    one = snapshot(1)
    checkpoint.save(tmp_path, one, keep=9)
    wide = {**one.weights, "a.bias": torch.zeros(2, 3)}  # which (3,) could be spread over
    for step, weights in ((2, {"a.weight": torch.zeros(2, 3)}), (3, wide), (4, {**one.weights, "b": torch.ones(1)})):
        checkpoint.save(tmp_path, replace(one, step=step, weights=weights), keep=9)

    def averaged(*steps: int) -> None:
        checkpoint.averaged([checkpoint.place_of(tmp_path, step) for step in steps])

    with pytest.raises(DataError, match=r"00000002: .* `a\.bias` is missing here, and has shape \(3,\) in .*00000001"):
        averaged(1, 2)
    with pytest.raises(DataError, match=r"`a\.bias` has shape \(2, 3\) here, and has shape \(3,\) in"):
        averaged(1, 3)
    with pytest.raises(DataError, match=r"`b` has shape .* and is missing in .*00000001\. Average those of one run"):
        averaged(1, 4)


def test_a_step_of_more_digits_is_newer(tmp_path: Path) -> None:
    for step in (99_999_000, 100_000_000, 5):
        checkpoint.save(tmp_path, snapshot(step), keep=9)
    assert [int(place.name) for place in checkpoint.found(tmp_path)] == [5, 99_999_000, 100_000_000]
    assert checkpoint.newest(tmp_path)[0].step == 100_000_000


def test_saved_weights_are_a_copy(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    before = checkpoint.weights_of(model)
    with torch.no_grad():
        model.weight.add_(1)
    assert not torch.equal(before["weight"], model.weight)


def test_the_optimisers_state_travels_by_name_and_replaces_what_was_there() -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimisers = [optimiser(model, OptimiserSettings()) for model in models]
    models[0].weight.grad, models[0].bias.grad = torch.ones(2, 2), torch.ones(2)
    optimisers[0].step()

    def state(number: int) -> dict[str, Tensor]:
        return checkpoint.share_of(checkpoint.optimiser_tensors(models[number], optimisers[number]))

    flat = state(0)
    assert set(flat) == {f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")}
    checkpoint.restore_optimiser(models[1], optimisers[1], flat)
    assert same(state(1), flat)
    optimisers[1].state[models[1].weight]["exp_avg"].add_(1)
    assert same(state(0), flat)
    checkpoint.restore_optimiser(models[1], optimisers[1], {})
    assert state(1) == {}


def test_the_random_state_comes_back() -> None:
    with torch.random.fork_rng():
        state = checkpoint.random_state()
        first = torch.rand(3)
        checkpoint.restore_random(state)
        assert torch.equal(torch.rand(3), first)
