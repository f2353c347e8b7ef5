"""Two real processes train as one does, read each other's checkpoints, and stop together when one of them fails."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
from torch import Tensor

from regard.batch import Batch, Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.store import Example
from regard.errors import RegardError, UsageError
from regard.models.build import build
from regard.models.transformer import TransformerSettings
from regard.training import checkpoint
from regard.training import team as team_module
from regard.training.checkpoint import Snapshot
from regard.training.optim import OptimiserSettings
from regard.training.saving import Saver
from regard.training.team import ALONE, Parallel, Processes, Team, join, own_device
from regard.training.trainer import Trainer, TrainingSettings

SPECIALS = Specials(padding=0, start=1, end=2)
MODEL = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, heads=2, dropout=0.3)
EXAMPLES: list[Example] = [
    ([4 + (number * step) % 16 for step in range(1, 2 + number % 4)], [4 + number % 16, 5, 6][: 1 + number % 3])
    for number in range(40)
]
# A key's bias changes nothing, so that its gradient is rounding alone. With the usual ε, Adam would blow that up.
ADAM = OptimiserSettings(warmup=5, clip=1.0, epsilon=1e-4)
MUON = replace(ADAM, kind="muon")
SETTINGS = TrainingSettings(steps=20, parts=2, ema=0.9, optimiser=ADAM)
BATCHES = Batches(EXAMPLES, SPECIALS, BatchSettings(tokens=24, shapes=4), seed=3)
NORMED = replace(MODEL, qk_norm=True)
HALF, ALL = 3, 6
VALID = [BATCHES[step] for step in range(100, 105)]


def trainer(team: Team = ALONE, parallel: Parallel = "auto", **settings: Any) -> Trainer:
    torch.manual_seed(5)
    model = build(settings.pop("model", MODEL), 20).to(settings.pop("device", "cpu"))
    return Trainer(model, BATCHES, replace(SETTINGS, parallel=parallel, **settings), seed=7, team=team)


def losses_of(run: Trainer, until: int) -> list[float]:
    losses = []
    while run.step < until:
        run.advance()
        losses.append(run.report().loss)
    run.close()
    return losses


# ---- what a member does, in a process of its own


def equal_member(out: Path, team: Team) -> None:
    """Train with DDP and with FSDP, from the beginning and from the checkpoint of one process alone; keep all of it."""
    done = out / "done.txt"

    def work() -> list[int]:
        before = json.loads(done.read_text()) if done.exists() else []
        done.write_text(json.dumps([*before, team.rank]))
        return [*before, team.rank]

    seen: dict[str, object] = {"first": team.first(work), "any": team.any(team.rank == 1)}
    seen["agreed"] = team.agree(0.1 + team.rank)
    for parallel in get_args(Parallel)[1:]:
        run = trainer(team, parallel)
        seen[f"{parallel} losses"] = losses_of(run, ALL)
        seen[f"{parallel} validation"] = run.validate(VALID).nll
        with Saver(out / parallel, team) as saver:
            saver.save(run.snapshot(), keep=2)
        means = run.moving_weights()
        run.load_weights(means if team.leads else {})
        seen[f"{parallel} means"] = run.validate(VALID).nll
        again = trainer(team, parallel)
        again.restore(checkpoint.newest(out / "alone", team)[0])
        seen[f"{parallel} rest"] = losses_of(again, ALL)
        seen[f"{parallel} normed"] = losses_of(trainer(team, parallel, model=NORMED), HALF)
    seen["muon losses"] = losses_of(trainer(team, "ddp", optimiser=MUON), ALL)
    timed = trainer(team, "ddp", minutes=1.0, by_clock=True, optimiser=replace(ADAM, schedule="linear", warmup=0))
    timed.stopwatch.go_on_from(30.0 + 20 * team.rank, 0.0)
    losses_of(timed, 1)
    seen["rate by the clock"] = timed.optimiser.param_groups[0]["lr"]
    try:
        trainer(team, "fsdp", optimiser=MUON)
    except UsageError as error:
        seen["muon refused"] = str(error)
    (out / f"seen-{team.rank}.json").write_text(json.dumps(seen))


def failing_member(how: str, team: Team) -> None:
    """Half of the steps go well; then rank 1 ends as it is told, and rank 0 waits for it."""
    run = trainer(team, "ddp")
    losses_of(run, HALF)
    if team.rank == 1:
        match how:
            case "raises":
                raise ValueError("the sky fell")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "memory":
                run.objective.forward = no_room  # type: ignore[method-assign]
    losses_of(run, ALL)


def no_room(batch: Batch) -> Tensor:
    raise torch.OutOfMemoryError("no room for 3 GiB.")


ROLES = ("equal", "raises", "killed", "memory")


def member(role: str, rank: int, port: int, out: Path) -> int:
    """What one process of a pair does; the code it ends with."""
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ.update(place, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with (out / f"{role}-{rank}.log").open("w") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        with join(torch.device("cpu")) as team:
            if role == "equal":
                equal_member(out, team)
            else:
                failing_member(role, team)
        return 0
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return error.exit_code


def gpu_member() -> None:
    """One process that believes it is a team: there is one GPU, but all that a team does with it is done."""
    device, settings = torch.device("cuda", 0), {"device": "cuda", "precision": "fp32", "compile": "no"}
    expected = losses_of(trainer(**settings), ALL)
    with Processes(0, 1, device) as team:
        for parallel, compiles in (("ddp", "no"), ("fsdp", "no"), ("fsdp", "yes")):
            run = trainer(team, cast(Parallel, parallel), **settings | {"compile": compiles})
            found = losses_of(run, ALL)
            worst = max(abs(one / other - 1) for one, other in zip(found, expected, strict=True))
            nll = run.validate(VALID).nll
            print(f"{parallel}, compile={compiles}: losses differ by at most {worst:.1e}; nll {nll:.5f}")
            assert worst < 1e-3
            assert len(run.snapshot().optimiser) == 3 * len(run.snapshot().weights)


def main() -> None:
    """All pairs at once, forked from here: what of torch is imported only when needed is imported once."""
    for module in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"):
        importlib.import_module(module)
    out = Path(sys.argv[1])
    began, children = time.monotonic(), {}
    for role in ROLES:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank in range(2):
            child = os.fork()
            if child == 0:
                os._exit(member(role, rank, port, out))
            children[child] = f"{role}-{rank}"
    ended = {}
    for _ in range(len(children)):
        child, status = os.wait()
        ended[children[child]] = (os.waitstatus_to_exitcode(status), time.monotonic() - began)
    (out / "ended.json").write_text(json.dumps(ended))


# ---- the tests


@dataclass(frozen=True)
class Pairs:
    """What the pairs of processes left behind, and what one process alone did."""

    out: Path
    losses: list[float]
    end: Snapshot
    nll: float
    nll_of_means: float

    def ended(self, role: str) -> tuple[list[int], list[str]]:
        """How both processes ended, and what they said."""
        codes = json.loads((self.out / "ended.json").read_text())
        names = [f"{role}-{rank}" for rank in range(2)]
        return [codes[name][0] for name in names], [(self.out / f"{name}.log").read_text() for name in names]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    out = tmp_path_factory.mktemp("pairs")
    with torch.random.fork_rng():
        alone = trainer()
        losses = losses_of(alone, HALF)
        checkpoint.save(out / "alone", alone.snapshot(), keep=1)
        losses += losses_of(alone, ALL)
        nll, end = alone.validate(VALID).nll, alone.snapshot()
        alone.load_weights(alone.moving_weights())
        found = Pairs(out, losses, end, nll, alone.validate(VALID).nll)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(out)], env=environment, timeout=300, check=True)
    return found


def near(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Apart by rounding; a bias of keys has no gradient but that, and Adam makes it large."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.allclose(one[name], other[name], rtol=1e-4, atol=5e-5), name


def test_two_processes_agree_with_each_other(pairs: Pairs) -> None:
    codes, said = pairs.ended("equal")
    assert codes == [0, 0], said
    seen = [json.loads((pairs.out / f"seen-{rank}.json").read_text()) for rank in range(2)]
    assert [each.pop("first") for each in seen] == [[0], [0, 1]]
    assert seen[0] == seen[1]
    assert (seen[0]["any"], seen[0]["agreed"]) == (True, 0.1)
    assert seen[0]["rate by the clock"] == pytest.approx(0.5 * ADAM.rate)  # half of the leader's minute is over


@pytest.mark.parametrize(("parallel", "files"), [("ddp", 1), ("fsdp", 2)])
def test_two_processes_train_as_one_does(pairs: Pairs, parallel: str, files: int) -> None:
    seen = json.loads((pairs.out / "seen-0.json").read_text())
    assert seen[f"{parallel} losses"] == pytest.approx(pairs.losses, rel=1e-5)
    assert seen[f"{parallel} validation"] == pytest.approx(pairs.nll, rel=1e-5)
    assert seen[f"{parallel} means"] == pytest.approx(pairs.nll_of_means, rel=1e-5)
    (place,) = checkpoint.found(pairs.out / parallel)
    assert len(list(place.glob("model*.safetensors"))) == files
    snapshot = checkpoint.load(place)
    assert (snapshot.step, snapshot.cursor) == (ALL, ALL)
    near(snapshot.weights, pairs.end.weights)
    near(snapshot.optimiser, pairs.end.optimiser)
    near(snapshot.moving, pairs.end.moving)
    near(checkpoint.averaged([place]), pairs.end.weights)


def test_two_processes_train_by_muon_as_one_does_if_each_has_whole_matrices(pairs: Pairs) -> None:
    seen = json.loads((pairs.out / "seen-0.json").read_text())
    with torch.random.fork_rng():
        assert seen["muon losses"] == pytest.approx(losses_of(trainer(optimiser=MUON), ALL), rel=1e-4)
    assert "`muon` needs whole matrices" in seen["muon refused"]


def test_norms_of_the_sources_keys_are_whole_when_the_source_is_read(pairs: Pairs) -> None:
    """That is before their layer is computed, which is when its other weights come together."""
    seen = json.loads((pairs.out / "seen-0.json").read_text())
    with torch.random.fork_rng():
        alone = losses_of(trainer(model=NORMED), HALF)
    for parallel in ("ddp", "fsdp"):
        assert seen[f"{parallel} normed"] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_checkpoint_is_for_any_number_of_processes(pairs: Pairs, parallel: str) -> None:
    # Two went on from one process' checkpoint, and one goes on from theirs.
    seen = json.loads((pairs.out / "seen-0.json").read_text())
    assert seen[f"{parallel} rest"] == pytest.approx(pairs.losses[HALF:], rel=1e-5)
    with torch.random.fork_rng():
        runs = trainer(), trainer()
    runs[0].restore(checkpoint.load(checkpoint.found(pairs.out / parallel)[0]))
    runs[1].restore(pairs.end)
    assert losses_of(runs[0], ALL + 2) == pytest.approx(losses_of(runs[1], ALL + 2), rel=1e-5)


def test_a_member_that_raises_stops_the_other_and_both_name_its_rank_step_and_batch(pairs: Pairs) -> None:
    codes, said = pairs.ended("raises")
    assert codes == [70, 70]
    for words in said:
        assert re.search(
            rf"^regard: rank 1 of 2 on \S+, step {HALF}, batch {HALF - 1}: ValueError: the sky fell$", words, re.M
        )


def test_a_member_out_of_memory_stops_the_other_and_both_say_what_to_do(pairs: Pairs) -> None:
    codes, said = pairs.ended("memory")
    assert codes[1] == 65
    assert codes[0] != 0
    place = rf"rank 1 of 2 on \S+, step {HALF + 1}, batch {HALF}"
    for words in said:
        assert re.search(rf"^regard: {place}: a batch must fit into memory, but does not: no room", words, re.MULTILINE)
        assert "Set `training.parts` to 4 or lower `batch.tokens`" in words


def test_a_member_that_is_killed_stops_the_other_which_names_it(pairs: Pairs) -> None:
    codes, said = pairs.ended("killed")
    assert codes == [70, -signal.SIGKILL]
    assert re.search(
        rf"^regard: rank 1 of 2, step {HALF + 1}, batch {HALF}: ended without a word", said[0], re.MULTILINE
    )
    # Long before anybody's patience is at its end.
    assert json.loads((pairs.out / "ended.json").read_text())["killed-0"][1] < 60


@pytest.mark.gpu
def test_one_gpu_trains_the_same_alone_with_ddp_and_with_fsdp() -> None:
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    subprocess.run([sys.executable, __file__, "gpu"], env={**os.environ, **place}, timeout=500, check=True)


def test_members_meet_those_of_their_own_attempt_whatever_earlier_ones_left(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = torch.distributed.HashStore()
    monkeypatch.setattr(team_module, "rendezvous", lambda *_, **__: iter([(kept, 0, 0)]))
    with ThreadPoolExecutor(3) as members:
        for attempt in (1, 2, 3):
            # The last to come is each time another one.
            ranks = [(attempt + number) % 3 for number in range(3)]
            meetings = []
            for rank in ranks:
                meetings.append(members.submit(team_module._meet, rank, 3))
                time.sleep(0.05)
            found = [meeting.result(timeout=20) for meeting in meetings]
            assert [number for _, number in found] == [attempt] * 3
            found[0][0].set("key", str(attempt))
            assert [store.get("key") for store, _ in found] == [str(attempt).encode()] * 3


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: must be a whole number where several processes train, but is 'two'"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE: must be at least 1, but is 0"),
        ({"WORLD_SIZE": "2"}, "RANK: must be a whole number where several processes train, but is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, r"RANK: must be from 0 to 1 \(WORLD_SIZE is 2\), but is 2"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, "MASTER_PORT: must be a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": "1"}, "MASTER_ADDR: must be set because WORLD_SIZE is 2"),
    ],
)
def test_an_environment_that_tells_of_half_a_team_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        join(torch.device("cpu"))


def test_a_process_alone_is_a_team_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    with join(torch.device("cpu")) as team:
        assert (team, team.leads, team.restarted) == (ALONE, True, False)
        assert (team.any(False), team.agree(3.0), team.first(lambda: 4)) == (False, 3.0, 4)
    assert own_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_run_knows_that_it_was_started_again(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0")
    assert not ALONE.restarted
    monkeypatch.setenv(name, "2")
    assert ALONE.restarted


if __name__ == "__main__":
    gpu_member() if sys.argv[1] == "gpu" else main()
