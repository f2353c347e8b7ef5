"""Checkpoints: everything a run needs to go on exactly where it was, without pickle.

checkpoints/00001000/
    model.safetensors       weights
    optimiser.safetensors   Adam's moments and step counts, by parameter name
    state.json              step, from which the order of the data follows
    random.safetensors      the state of the random generators
    manifest.json           size and SHA-256 of each
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import DataError, MissingError, RegardError
from regard.files import check_folder, write_folder

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: a run is a function of these and its recipe."""

    step: int
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    random: dict[str, Tensor]


def save(folder: Path, snapshot: Snapshot, keep: int) -> Path:
    """Write a checkpoint under `folder`, then drop all but the newest `keep`."""
    place = folder / f"{snapshot.step:08d}"

    def fill(beside: Path) -> None:
        save_file(snapshot.weights, beside / WEIGHTS)
        save_file(snapshot.optimiser, beside / "optimiser.safetensors")
        save_file(snapshot.random, beside / "random.safetensors")
        (beside / "state.json").write_text(json.dumps({"step": snapshot.step}) + "\n")

    write_folder(place, fill)
    for old in found(folder)[:-keep]:
        shutil.rmtree(old)
    return place


def load(place: Path) -> Snapshot:
    """Read a checkpoint after proving it whole."""
    check_folder(place)
    try:
        state = json.loads((place / "state.json").read_text())
        parts = (load_file(place / name) for name in (WEIGHTS, "optimiser.safetensors", "random.safetensors"))
        return Snapshot(int(state["step"]), *parts)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(f"{place}: must be a checkpoint Regard wrote, but cannot be read as one ({error}).") from error


def found(folder: Path) -> list[Path]:
    """The checkpoints under `folder`, oldest first."""
    return sorted(place for place in folder.glob("[0-9]*") if place.is_dir() and place.name.isdecimal())


def newest(folder: Path) -> tuple[Snapshot, list[str]]:
    """The newest whole checkpoint, and a line for each newer one that turned out damaged."""
    damaged: list[str] = []
    for place in reversed(found(folder)):
        try:
            return load(place), damaged
        except RegardError as error:
            damaged.append(f"{error} Using the checkpoint before it.")
    if damaged:
        raise DataError(f"{folder}: no checkpoint here is whole. " + " ".join(damaged))
    raise MissingError(
        f"{folder}: there must be a checkpoint to resume from, but there is none. Train anew, into another folder."
    )


def set_aside(folder: Path, after: int) -> None:
    """Rename the checkpoints beyond step `after`, so that nobody counts or averages them; nothing is deleted."""
    for place in found(folder):
        if int(place.name) > after:
            aside = place.with_name(f"damaged-{place.name}")
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)


def averaged(places: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (Attention Is All You Need, section 6.1)."""
    mean: dict[str, Tensor] = {}
    for place in places:
        check_folder(place)
        for name, weight in load_file(place / WEIGHTS).items():
            share = weight.double() / len(places)
            mean[name] = mean[name] + share if name in mean else share
    return {name: weight.float() for name, weight in mean.items()}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's weights on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}


def optimiser_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's state, flat: `parameter name/exp_avg` → tensor."""
    flat = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            flat[f"{name}/{key}"] = value.detach().cpu().clone()
    return flat


def restore_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Put back what `optimiser_state` took."""
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for path, value in flat.items():
        name, key = path.rsplit("/", 1)
        parameter = parameters[name]
        optimiser.state[parameter][key] = value.to(parameter.device)


def random_state() -> dict[str, Tensor]:
    """The state of torch's generators (dropout draws from them)."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, Tensor]) -> None:
    """Put back what `random_state` took."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
