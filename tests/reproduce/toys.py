"""Every row of every study at a size that a core trains in a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.recipe import load_recipe
from regard.reproduce.running import Ran, run
from regard.reproduce.study import Asked, Row, Study

CORPUS = "data={kind = 'generated', pairs = 60, valid = 6, test = 40}"
OTHERS = (
    CORPUS,
    "tokenizer.vocabulary=150",
    "batch={tokens = 256, row = 64}",
    "search={beam = 1, extra_length = 3}",
    "training={validate_every = 4, save_every = 2, report_every = 1}",
    "log.tensorboard=false",
)
MODELS = {
    "transformer": "model={d_model = 16, d_ff = 16, heads = 4, encoder_layers = 1, decoder_layers = 1}",
    "recurrent": "model.d_model=16",
    "bytenet": "model={channels = 8, repeats = 1, dilations = [1, 2]}",
    "convs2s": "model={encoder = [[1, 16, 3]], decoder = [[1, 16, 3]], embedding = 16}",
}
# What a row is about has to stay in it: one head, or the size of a head.
KEPT = {
    "moe": "model={experts = 3, active_experts = 2, d_ff = 16}",
    "a-h1": "model.heads=1",
    "a-h16": "model.heads=16",
    "a-h32": "model={heads = 32, d_model = 32}",
}


def toy(study: Study, row: Row, steps: int = 4, *overrides: str) -> Asked:
    """Settings that make a row of a study tiny."""
    kind = load_recipe(row.preset, [*study.budget, *row.overrides]).model.kind
    own = [KEPT[row.name]] if row.name in KEPT else []
    return Asked(None, steps, (*OTHERS, MODELS[kind], *own, *overrides))


def run_toys(study: Study, rows: Sequence[Row], out: Path, steps: int = 4) -> list[Ran]:
    """Run rows one by one; rows of different kinds need different settings."""
    return [run(study, [row], out, toy(study, row, steps), lambda _: None) for row in rows]
