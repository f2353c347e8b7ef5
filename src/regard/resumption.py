"""Whether a run that stops and goes on is the run that does not stop: `regard verify --resume`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from regard import folder
from regard.assembly import new_trainer
from regard.counts import so_many
from regard.data.dataset import read_dataset
from regard.text.tokenizer import Tokenizer
from regard.training import checkpoint
from regard.training.team import Team


@dataclass(frozen=True)
class ResumeCheck:
    """Whether a run that stops and goes on is the run that does not stop, to the bit."""

    step: int
    steps: int
    different: list[str]
    """The tensors that came out differently; none if all is well."""

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.different

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {"name": "resume", "passed": self.passed, **vars(self)}

    def __str__(self) -> str:
        stretch = f"steps {self.step + 1:,} to {self.step + self.steps:,}"
        if not self.different:
            return f"ok      resume      {stretch}, with a stop in the middle and without: the same to the bit"
        found = so_many(len(self.different), "tensor differs", "tensors differ")
        return f"FAILED  resume      {stretch}: {found}, the first is {self.different[0]}"


def verify_resume(out: Path, steps: int = 4) -> ResumeCheck:
    """Train on from the newest checkpoint of a run, once without a stop and once with one, and compare; writes nothing
    into the folder."""
    recipe = folder.read_recipe(out)
    tokenizer = Tokenizer.load(out / folder.TOKENIZER)
    data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed, tokenizer)
    start, _ = checkpoint.newest(out / folder.CHECKPOINTS)

    def go(snapshot: checkpoint.Snapshot, count: int) -> checkpoint.Snapshot:
        trainer = new_trainer(recipe, data, Team())
        trainer.restore(snapshot)
        for _ in range(count):
            trainer.advance()
        trainer.close()
        return trainer.snapshot()

    unbroken = go(start, steps)
    with tempfile.TemporaryDirectory() as place:
        halfway = checkpoint.save(Path(place), go(start, steps // 2), keep=1)
        broken = go(checkpoint.load(halfway), steps - steps // 2)
    different = [
        f"{group}/{name}"
        for group in ("weights", "optimiser", "moving", "carried")
        for name, value in getattr(unbroken, group).items()
        if not torch.equal(value, getattr(broken, group)[name])
    ]
    return ResumeCheck(start.step, steps, different)
