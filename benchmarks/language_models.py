"""Language models side by side on tiny Shakespeare, and how fast the smallest is trained beside transformers.

    REGARD_DATA=../shared/data python -m benchmarks.language_models --out DIR [--threads 2] [--only speed,lstm,…]

The table has one row for each kind of model, all with about 0.8 million parameters and as much text a step, trained on
the CPU by the project's own recipes: perplexity per character against parameters and time. `speed` takes turns with a
plain loop of transformers' GPT-2 of the same sizes: the same batches, AdamW, clipped gradients, fp32.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.runs import Bench, Stopped, facts

KINDS = {
    "rnn": "RNN",
    "gru": "GRU",
    "lstm": "LSTM",
    "wavenet": "WaveNet (gated convolutions)",
    "small": "Transformer",
}
ROUNDS, STEPS = 6, 25


def table(bench: Bench, threads: int, only: tuple[str, ...] = tuple(KINDS)) -> None:
    """Train what is asked for, one after another, and write the table."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(threads)}
    bench = replace(bench, environment=environment)
    corpus = bench.data / "lm-small/tinyshakespeare.txt.gz"
    lines = [
        "| model | parameters | characters/s | minutes | validation loss | perplexity |",
        "|---|---|---|---|---|---|",
    ]
    try:
        for kind, title in KINDS.items():
            if kind not in only:
                continue
            name = f"lm-shakespeare-{kind}"
            folder = bench.train(name, name, f"data.text={corpus}", "device=cpu")
            found = facts(folder)
            bench.result(name, "facts", str(found))
            lines.append(
                f"| {title} | {found['parameters']:,} | {found['tokens_per_second']:,} | {found['minutes']:.1f} | "
                f"{found['loss']:.3f} | {math.exp(found['loss']):.2f} |"
            )
    finally:
        bench.write("language-models.md", "\n".join(lines) + "\n")


def ours(corpus: Path) -> tuple[Callable[[], None], int]:
    """One training step of `lm-shakespeare-small`, and its tokens."""
    from regard.assembly import new_trainer
    from regard.data.dataset import read_dataset
    from regard.recipe import load_recipe
    from regard.training.team import ALONE

    recipe = load_recipe("lm-shakespeare-small", [f"data.text={corpus}", "device=cpu"])
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
        try:
            table(bench, asked.threads, wanted)
        except Stopped:
            print("the time was up; call it again to go on")
        print((asked.out / "language-models.md").read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
