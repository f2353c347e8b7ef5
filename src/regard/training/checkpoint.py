"""Checkpoints: everything a run needs to go on exactly where it was, without pickle.

checkpoints/00001000/
    model.safetensors       weights
    optimiser.safetensors   the optimiser's moments and step counts, by parameter name
    moving.safetensors      moving means of the weights, if the recipe asks for them
    carried.safetensors     what each row of the next batch goes on from, if rows do (batch.layout = "stream")
    state.json              step, next batch, seconds so far, and how good each validation was
    random.safetensors      the state of the random generators
    manifest.json           size and SHA-256 of each

Where the weights are divided among processes (FSDP), each process writes some of the tensors, every one of them whole:
model-00001-of-00004.safetensors, and so on. No process ever holds all of them, and any number of processes can read
them again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import DataError, MissingError, RegardError
from regard.files import FULL, begin_folder, check_folder, read_manifest, remove_folder, write_folder, write_part
from regard.training import sharding
from regard.training.team import ALONE, Team

STATE = "state.json"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: a run is a function of these and its recipe."""

    step: int
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    random: dict[str, Tensor]
    cursor: int = 0
    """The next batch."""
    moving: dict[str, Tensor] = field(default_factory=dict)
    """The moving means of the weights, if such are kept."""
    validations: tuple[tuple[int, float], ...] = ()
    """(step, how good: higher is better) of each validation so far."""
    batch_parts: int = 1
    """In how many parts a batch is read."""
    seconds: float = 0.0
    """How long the run has taken so far."""
    warm: float = 0.0
    """How much of that its warm-up took."""
    carried: dict[str, Tensor] = field(default_factory=dict)
    """What each row of the next batch goes on from, if rows do."""
    part: int = 0
    parts: int = 1
    """Of how many parts this is part 0, 1, …: the tensors above are only some of the run's. A `part` that is not among
    the `parts` is empty."""

    @property
    def bytes(self) -> int:
        """How much there is to write."""
        groups = (self.weights, self.optimiser, self.random, self.moving, self.carried)
        return sum(tensor.nbytes for group in groups for tensor in group.values())


def place_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"{step:08d}"


def begin(folder: Path, step: int) -> None:
    """Make room for a checkpoint in several parts; one process does, before any of them saves."""
    try:
        begin_folder(place_of(folder, step))
    except OSError as error:
        raise _not_written(place_of(folder, step), error, 0) from error


def save(folder: Path, snapshot: Snapshot, keep: int, spare: Collection[int] = ()) -> Path:
    """Write a checkpoint under `folder`, then drop all but the newest `keep` and those of the steps in `spare`.

    Of a snapshot in several parts every process writes its own, after `begin`; the first one does the rest.
    """
    place = place_of(folder, snapshot.step)
    if snapshot.part >= snapshot.parts:
        return place
    try:
        if snapshot.parts == 1:
            write_folder(place, lambda beside: _write(beside, snapshot))
        else:
            write_part(place, lambda beside: _write(beside, snapshot), snapshot.part, snapshot.parts)
    except (OSError, SafetensorError) as error:
        raise _not_written(place, error, snapshot.bytes) from error
    if snapshot.part == 0:
        for old in found(folder)[:-keep]:
            if int(old.name) not in spare:
                remove_folder(old)
    return place


def _write(beside: Path, snapshot: Snapshot) -> list[str]:
    """Write the files of a snapshot; gives their names."""
    groups = {"model": snapshot.weights, "optimiser": snapshot.optimiser}
    if snapshot.moving:
        groups["moving"] = snapshot.moving
    if snapshot.carried:
        groups["carried"] = snapshot.carried
    if snapshot.part == 0:
        groups["random"] = snapshot.random
    end = "" if snapshot.parts == 1 else f"-{snapshot.part + 1:05d}-of-{snapshot.parts:05d}"
    names = []
    for group, tensors in groups.items():
        names.append(f"{group}.safetensors" if group == "random" else f"{group}{end}.safetensors")
        save_file(tensors, beside / names[-1])
    if snapshot.part == 0:
        state = {
            "step": snapshot.step, "cursor": snapshot.cursor, "batch_parts": snapshot.batch_parts,
            "seconds": snapshot.seconds, "warm": snapshot.warm, "validations": snapshot.validations,
        }  # fmt: skip
        (beside / STATE).write_text(json.dumps(state) + "\n")
        names.append(STATE)
    return names


def full_disk(error: BaseException) -> int | None:
    """The system's number for why there was no room to write; None where something else went wrong."""
    # safetensors says it in words alone.
    said = re.findall(r"os error (\d+)", str(error)) if isinstance(error, SafetensorError) else []
    number = error.errno if isinstance(error, OSError) else int((said or [0])[0])
    return number if number in FULL else None


def _not_written(place: Path, error: Exception, size: int) -> RegardError:
    """The sentence for a checkpoint that could not be written; the ones before it are untouched."""
    kept = found(place.parent)
    before = f"The one of step {int(kept[-1].name):,} is whole" if kept else "There is none before it"
    if full_disk(error) is None:
        return MissingError(f"{place}: a checkpoint must be written here, but cannot be ({error}). {before}.")
    try:
        free = f"{shutil.disk_usage(place.parent).free / 1e6:,.1f} MB are free"
    except OSError:
        free = "it is full"
    return MissingError(
        f"{place}: the disk must have room for a checkpoint ({size / 1e6:,.1f} MB), but {free} ({error}). {before}: "
        "make room, then go on with --resume."
    )


# ---- reading


def load(place: Path, checked: bool = False) -> Snapshot:
    """Read a checkpoint after proving it whole, unless somebody has `checked` it already."""
    if not checked:
        check_folder(place)
    try:
        state = json.loads((place / STATE).read_text())
        validations = tuple((int(step), float(value)) for step, value in state["validations"])
        weights, optimiser, random, moving, carried = (
            _group(place, name) for name in ("model", "optimiser", "random", "moving", "carried")
        )
        if not weights or not random:
            raise ValueError("it holds no weights" if not weights else "it holds no random state")
        cursor, batch_parts = int(state["cursor"]), int(state["batch_parts"])
        seconds, warm = (float(state.get(name, 0.0)) for name in ("seconds", "warm"))  # older ones do not say
        return Snapshot(
            int(state["step"]), weights, optimiser, random, cursor, moving, validations, batch_parts, seconds, warm,
            carried,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(f"{place}: must be a checkpoint Regard wrote, but cannot be read as one ({error}).") from error


def _group(place: Path, group: str) -> dict[str, Tensor]:
    """All tensors of one kind, from one file or from several."""
    pattern = re.compile(rf"{group}(-\d+-of-\d+)?\.safetensors")
    tensors: dict[str, Tensor] = {}
    for name in sorted(read_manifest(place)):
        if pattern.fullmatch(name):
            tensors |= load_file(place / name)
    return tensors


def found(folder: Path) -> list[Path]:
    """The checkpoints under `folder`, oldest first."""
    places = [place for place in folder.glob("[0-9]*") if place.is_dir() and place.name.isdecimal()]
    return sorted(places, key=lambda place: int(place.name))  # as text, step 100,000,000 comes before 99,999,000


def newest(folder: Path, team: Team = ALONE) -> tuple[Snapshot, list[str]]:
    """The newest whole checkpoint, and a line for each newer one that turned out damaged; in a team for all members."""
    if not team.leads:
        # The leader has proved it, and its files are the same for all.
        return load(place_of(folder, int(team.agree(0))), checked=True), []
    damaged: list[str] = []
    for place in reversed(found(folder)):
        try:
            snapshot = load(place)
        except RegardError as error:
            damaged.append(f"{error} Using the checkpoint before it.")
        else:
            team.agree(snapshot.step)
            return snapshot, damaged
    if damaged:
        raise DataError(f"{folder}: no checkpoint here is whole. " + " ".join(damaged))
    raise MissingError(
        f"{folder}: there must be a checkpoint to resume from, but there is none. Train anew, into another folder."
    )


def set_aside(folder: Path, after: int) -> None:
    """Rename the checkpoints beyond step `after`, so that nobody counts or averages them; nothing is deleted."""
    for place in found(folder):
        if int(place.name) > after:
            _set_aside(place)


def set_damaged_aside(folder: Path) -> list[str]:
    """The same for those that are not whole; a line for each."""
    damaged = []
    for place in found(folder):
        try:
            check_folder(place)
        except RegardError as error:
            damaged.append(f"{error} It is left out.")
            _set_aside(place)
    return damaged


def _set_aside(place: Path) -> None:
    aside = place.with_name(f"damaged-{place.name}")
    shutil.rmtree(aside, ignore_errors=True)
    place.rename(aside)


def averaged(places: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (Attention Is All You Need, section 6.1)."""
    mean: dict[str, Tensor] = {}
    for place in places:
        check_folder(place)
        weights = _group(place, "model")
        if mean:
            _check_alike(place, weights, places[0], mean)
        for name, weight in weights.items():
            share = weight.double() / len(places)
            mean[name] = mean[name] + share if name in mean else share
    return {name: weight.float() for name, weight in mean.items()}


def _check_alike(place: Path, weights: dict[str, Tensor], first: Path, others: dict[str, Tensor]) -> None:
    """Refuse weights of other names or shapes: what one lacks would be too small, and what fits would be spread."""

    def shape(tensors: dict[str, Tensor], name: str) -> str:
        return f"has shape {tuple(tensors[name].shape)}" if name in tensors else "is missing"

    for name in sorted(weights.keys() | others.keys()):
        here, there = shape(weights, name), shape(others, name)
        if here != there:
            raise DataError(
                f"{place}: checkpoints that are averaged must have weights of the same names and shapes, but `{name}` "
                f"{here} here, and {there} in {first}. Average those of one run."
            )


# ---- from the training and back


def share_of(tensors: Iterable[tuple[str, Tensor]], part: int = 0, parts: int = 1) -> dict[str, Tensor]:
    """Copies on the CPU of those tensors that process `part` of `parts` keeps, by name.

    Tensors divided among processes come together one by one: all processes must ask for the same.
    """
    kept, on_gpu = {}, False
    for number, (name, tensor) in enumerate(tensors):
        tensor = sharding.whole(tensor.detach())
        if number % parts == part:
            on_gpu |= tensor.is_cuda
            # Into pinned memory, a GPU copies at full speed.
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            kept[name] = copy.copy_(tensor, non_blocking=True)
    if on_gpu:
        torch.cuda.synchronize()
    return kept


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's weights on the CPU."""
    return share_of(model.state_dict().items())


def restore_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put weights back, divided as the model's are; RuntimeError if they are not this model's."""
    own = model.state_dict()
    model.load_state_dict(
        {name: sharding.divided_like(value, own[name]) if name in own else value for name, value in weights.items()}
    )


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The optimiser's state, flat: `parameter name/exp_avg` and the tensor."""
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            yield f"{name}/{key}", value


def restore_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Put back what was taken from `optimiser_tensors`."""
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for path, value in flat.items():
        name, key = path.rsplit("/", 1)
        like = parameters[name].detach()
        # A count of steps is one number, which nobody can divide.
        own = value.to(like.device) if value.ndim == 0 else sharding.divided_like(value, like)
        optimiser.state[parameters[name]][key] = own.clone()


def seed_random(seed: int, device: torch.device = CPU) -> None:
    """Seed the generators that a training on `device` draws from, and no others."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def random_state(device: torch.device = CPU) -> dict[str, Tensor]:
    """The state of these generators."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random(states: dict[str, Tensor], device: torch.device = CPU) -> None:
    """Put back what `random_state` took."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def own_random(device: torch.device = CPU) -> Iterator[None]:
    """Whatever is seeded and drawn in here, afterwards the generators are as they were before."""
    states = random_state(device)
    try:
        yield
    finally:
        restore_random(states, device)
