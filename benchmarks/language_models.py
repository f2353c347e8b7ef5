"""Language models side by side on tiny Shakespeare, and how fast the smallest is trained beside transformers.

    REGARD_DATA=../shared/data python -m benchmarks.language_models --out DIR [--threads 2] [--only speed,lstm,…]

The table has one row for each kind of model, all with about 0.8 million parameters and as much text a step, trained on
one thread of a CPU by the project's own recipes: perplexity per character against parameters and time, and
`lm-family.svg` shows how each got there. `speed` takes turns with a plain loop of transformers' GPT-2 of the same
sizes: the same batches, AdamW, clipped gradients, fp32.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.runs import DONE, Bench, Stopped, parameters
from regard.viewing.curves import Axis, Curve, Plot, plots_svg
from regard.viewing.training_curves import read_metrics

KINDS = {
    "rnn": "RNN",
    "gru": "GRU",
    "lstm": "LSTM",
    "wavenet": "gated convolutions",
    "small": "Transformer",
}
CHARACTERS = 768  # a step
ROUNDS, STEPS = 6, 25
VALIDATE_EVERY = 250  # often enough for a curve; what is learned does not depend on it


@dataclass(frozen=True)
class Course:
    """How a finished run went: its size, its speed, and (step, validation loss) from first to last."""

    parameters: int
    characters_per_second: float
    losses: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, folder: Path, characters_per_second: float) -> Course:
        """Read a model folder."""
        events = read_metrics(folder / "metrics.jsonl")
        losses = tuple(
            (event["step"], event["nll"])
            for event in events
            if event["event"] == "validation" and event["nll"] is not None
        )
        return cls(parameters(folder), characters_per_second, losses)

    def minutes(self, step: int) -> float:
        """Of training until after this step, validation left out."""
        return step * CHARACTERS / self.characters_per_second / 60

    def row(self, title: str) -> str:
        """A row of the table."""
        steps, best = self.losses[-1][0], min(loss for _, loss in self.losses)
        return (
            f"| {title} | {self.parameters:,} | {steps:,} | {best:.3f} | {math.exp(best):.2f} | "
            f"{self.minutes(steps):.1f} | {self.characters_per_second:,.0f} |"
        )


def picture(courses: Mapping[str, Course]) -> str:
    """Validation losses of all against steps and against minutes, as SVG."""
    loss = Axis("validation loss in nats a character")
    by_steps = tuple(Curve(title, course.losses) for title, course in courses.items())
    by_time = tuple(
        Curve(title, tuple((course.minutes(step), nats) for step, nats in course.losses))
        for title, course in courses.items()
    )
    plots = [
        Plot(by_steps, Axis("step", zero=True), loss),
        Plot(by_time, Axis("minutes", zero=True), loss),
    ]
    return plots_svg(plots, "Language models of one size on tiny Shakespeare")


def table(bench: Bench, only: tuple[str, ...] = tuple(KINDS)) -> None:
    """Train what is asked for, two at a time on a thread each, and write the table and the picture."""
    bench = replace(bench, environment={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    corpus = bench.data / "lm-small/tinyshakespeare.txt.gz"
    changes = [f"data.text={corpus}", "device=cpu", f"training.validate_every={VALIDATE_EVERY}"]

    def train(kind: str) -> Path:
        return bench.train(f"lm-shakespeare-{kind}", f"lm-shakespeare-{kind}", *changes)

    kinds = [kind for kind in KINDS if kind in only]
    with ThreadPoolExecutor(2) as pool:
        folders = dict(zip(kinds, pool.map(train, kinds), strict=True))
    paces = paces_of(kinds, corpus)
    courses = {KINDS[kind]: Course.of(folder, paces[kind]) for kind, folder in folders.items()}
    lines = [
        "| model | parameters | steps | best validation loss | perplexity per character | minutes | characters/s |",
        "|---|---|---|---|---|---|---|",
        *(course.row(title) for title, course in courses.items()),
    ]
    bench.write("language-models.md", "\n".join(lines) + "\n")
    bench.write("lm-family.svg", picture(courses))


def paces_of(kinds: Sequence[str], corpus: Path, rounds: int = ROUNDS, steps: int = 10) -> dict[str, float]:
    """Characters that each kind learns from in a second of one thread, by turns: the best round of each.

    The clock is that of the processor's time for this process, so that others on the same machine count little.
    """
    import torch

    torch.set_num_threads(1)
    contenders = {kind: ours(corpus, kind)[0] for kind in kinds}
    best = dict.fromkeys(kinds, 0.0)
    for _ in range(rounds):
        for kind, advance in contenders.items():
            advance()
            began = time.process_time()
            for _ in range(steps):
                advance()
            best[kind] = max(best[kind], steps * CHARACTERS / (time.process_time() - began))
    return best


def ours(corpus: Path, kind: str = "small") -> tuple[Callable[[], None], int]:
    """One training step of a recipe, and its tokens."""
    from regard.assembly import new_trainer
    from regard.data.dataset import read_dataset
    from regard.recipe import load_recipe
    from regard.training.team import ALONE

    recipe = load_recipe(f"lm-shakespeare-{kind}", [f"data.text={corpus}", "device=cpu"])
    data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
    return new_trainer(recipe, data, ALONE).advance, recipe.batch.tokens


def theirs(corpus: Path) -> tuple[Callable[[], None], int]:
    """The same step as one would write it with transformers, and its tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from regard.data.batching import Batches
    from regard.data.dataset import read_dataset
    from regard.recipe import load_recipe

    recipe = load_recipe("lm-shakespeare-small", [f"data.text={corpus}"])
    data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
    batches = Batches(data.train, data.tokenizer.specials, recipe.batch, recipe.seed)
    config = GPT2Config(
        vocab_size=data.tokenizer.size, n_positions=64, n_embd=128, n_layer=4, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.99), weight_decay=0.1)
    step = iter(range(10**9))

    def advance() -> None:
        batch = batches[next(step)]
        optimiser.zero_grad()
        logits = model(batch.target.ids_BT).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels_BT.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        loss.item()

    return advance, recipe.batch.tokens


def speed(corpus: Path, threads: int, rounds: int = ROUNDS, steps: int = STEPS) -> str:
    """Tokens a second of both, by turns: the best round of each."""
    import torch

    torch.set_num_threads(threads)
    best = {}
    contenders = {"Regard": ours(corpus), "transformers": theirs(corpus)}
    for _ in range(rounds):
        for name, (advance, tokens) in contenders.items():
            advance()
            began = time.perf_counter()
            for _ in range(steps):
                advance()
            best[name] = max(best.get(name, 0.0), steps * tokens / (time.perf_counter() - began))
    return "\n".join(
        [
            f"4 layers, 4 heads, 128 wide, 64 characters a row, 12 rows, {threads} threads, torch {torch.__version__}",
            *(f"{name:12} {rate:10,.0f} tokens/s" for name, rate in best.items()),
            f"Regard / transformers: {best['Regard'] / best['transformers']:.2f}",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/language-models"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", "../shared/data")))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="speed" if arguments is None else ",".join(["speed", *KINDS]))
    asked = parser.parse_args(arguments or [])
    corpus = asked.data / "lm-small/tinyshakespeare.txt.gz"
    if not corpus.is_file():
        print(f"  skipped: {corpus} is not there")
        return
    wanted = tuple(asked.only.split(","))
    if "speed" in wanted:
        print(speed(corpus, asked.threads), flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.out.resolve(), asked.out.resolve(), asked.data.resolve(), time.monotonic() + 60 * asked.minutes)
    if set(wanted) & set(KINDS):
        ending = DONE
        try:
            with bench.heeding():
                table(bench, wanted)
            print((asked.out / "language-models.md").read_text())
        except Stopped as stopped:
            ending = f"stopped: {stopped}"
            print(f"{ending}; call it again to go on")
        bench.leave({"table": ending})


if __name__ == "__main__":
    main(sys.argv[1:])
