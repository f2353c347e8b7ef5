"""How fast a model is trained, beside transformers on the same GPU in the same run.

    python -m benchmarks.training FOLDER [--only base,gpt2,marian,…] [--steps 60] [--profile]
    python -m benchmarks.training FOLDER --device cpu

FOLDER is a corpus that Regard has prepared (pairs, 32,000 tokens). Tokens are real ones, of both sides: padding does
not count. Each contender makes the same kind of step: bf16 with fp32 weights, dropout 0.1, label smoothing 0.1, fused
Adam. transformers cannot put several sentences into a row, so it gets the same sentences in buckets of similar
length, and, as an upper bound, rows of equal length without any padding. `-exact` can be repeated to the bit
(`training.deterministic`, the default of recipes); transformers is not asked to. On a CPU a small model is trained in
fp32, without a compiler on either side, and the two take turns.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.prefetch import real_tokens
from regard.data.store import TokenStore
from regard.models.build import build
from regard.models.gpt import GPTSettings
from regard.models.interface import SequenceModel
from regard.models.transformer import TransformerSettings
from regard.training.optim import OptimiserSettings
from regard.training.trainer import Trainer, TrainingSettings

SPECIALS = Specials(padding=0, start=1, end=2)
VOCABULARY, GPT2_VOCABULARY = 32_000, 50_257
WARM_UP = 8


def timed(step: Callable[[int], int], steps: int) -> tuple[float, float]:
    """(real tokens a second, milliseconds a step) of `step(number) -> its real tokens`, warmed up."""
    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    tokens = sum(step(WARM_UP + number) for number in range(steps))
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    return tokens / took, 1e3 * took / steps


def ours(
    model: SequenceModel, batches: Batches, steps: int, profile: str | None, exact: bool = False
) -> tuple[float, float]:
    settings = TrainingSettings(steps=10_000, deterministic=exact, optimiser=OptimiserSettings(clip=1.0))
    trainer = Trainer(model.cuda(), batches, settings)
    counted = 0

    def step(_: int) -> int:
        nonlocal counted
        trainer.advance()
        if trainer.step % 10 == 0:
            counted = trainer.report().tokens
        return 0

    for number in range(WARM_UP + 2):
        step(number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    tokens = 0
    for number in range(steps):
        step(number)
        if trainer.step % 10 == 0:
            tokens += counted
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    if profile is not None:
        kernels(step, profile)
    trainer.close()
    return tokens / took, 1e3 * took / steps


def kernels(step: Callable[[int], int], name: str) -> None:
    """Where the GPU's time goes, by kind of kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for number in range(5):
            step(number)
        torch.cuda.synchronize()
    kinds: dict[str, float] = {}
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)
    for row in rows:
        low = row.key.lower()
        if any(word in low for word in ("gemm", "nvjet", "cutlass", "matmul", "xmma")) and "fmha" not in low:
            kind = "matmul"
        elif any(word in low for word in ("fmha", "flash", "attention", "sdpa", "cudnn_generated")):
            kind = "attention"
        elif "_row" in low:
            kind = "loss"
        elif "adam" in low or "multi_tensor" in low:
            kind = "optimiser, norm"
        elif low.startswith("triton"):
            kind = "fused by the compiler"
        else:
            kind = "other"
        kinds[kind] = kinds.get(kind, 0.0) + row.self_device_time_total / 5e3
    print(f"{name}, ms a step: " + " · ".join(f"{kind} {value:.2f}" for kind, value in kinds.items()))
    for row in rows[:28]:
        print(f"    {row.self_device_time_total / 5e3:7.3f} ms  {row.count / 5:6.1f}×  {row.key[:110]}")


def base(store: TokenStore, tokens: int) -> tuple[SequenceModel, Batches]:
    batches = Batches(store, SPECIALS, BatchSettings(tokens=tokens, layout="packed", row=128), seed=1)
    return build(TransformerSettings(), VOCABULARY), batches


def gpt2(store: TokenStore) -> tuple[SequenceModel, Batches]:
    batches = Batches(TokenStore(store.target), SPECIALS, BatchSettings(tokens=32 * 1024, layout="blocks", row=1024), 1)
    return build(GPTSettings(max_positions=1024), GPT2_VOCABULARY), batches


def marian(layers: int = 6, d_model: int = 512, heads: int = 8, d_ff: int = 2048) -> torch.nn.Module:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=d_model, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=d_ff,
        decoder_ffn_dim=d_ff, encoder_attention_heads=heads, decoder_attention_heads=heads, activation_function="relu",
        dropout=0.1, scale_embedding=True, pad_token_id=0, decoder_start_token_id=1, eos_token_id=2,
        max_position_embeddings=512,
    )  # fmt: skip
    return MarianMTModel(config).train()


def theirs(model: torch.nn.Module) -> tuple[Callable[..., torch.Tensor], torch.optim.Optimizer]:
    def loss_of(labels: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
        return F.cross_entropy(logits.float(), labels.flatten(), ignore_index=IGNORED, label_smoothing=0.1)

    return torch.compile(loss_of, dynamic=False), torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )


def update(model: torch.nn.Module, loss_of: Callable[..., torch.Tensor], optimiser: torch.optim.Optimizer,
           inputs: dict[str, torch.Tensor]) -> None:  # fmt: skip
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(**inputs)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def marian_inputs(batch: Batch, device: str) -> tuple[int, dict[str, torch.Tensor]]:
    """How many real tokens a batch has, and the batch as Marian reads it."""
    assert batch.source is not None
    inputs = {
        "input_ids": batch.source.ids_BT, "attention_mask": batch.source.places.segments_or_ones(),
        "decoder_input_ids": batch.target.ids_BT, "labels": batch.labels_BT,
    }  # fmt: skip
    real = real_tokens(batch.source) + real_tokens(batch.target)
    return real, {name: value.to(device) for name, value in inputs.items()}


def marian_buckets(store: TokenStore, steps: int, shapes: int, tokens: int) -> tuple[float, float]:
    model = marian().cuda()
    torch._dynamo.config.recompile_limit = 4 * shapes
    loss_of, optimiser = theirs(model)
    batches = Batches(store, SPECIALS, BatchSettings(tokens=tokens, layout="buckets", shapes=shapes), seed=1)
    ready = [marian_inputs(batches[number], "cuda") for number in range(min(24, batches.per_epoch))]
    for _, inputs in ready:
        update(model, loss_of, optimiser, inputs)

    def step(number: int) -> int:
        real, inputs = ready[number % len(ready)]
        update(model, loss_of, optimiser, inputs)
        return real

    print(f"Marian buckets: {len(batches.shapes)} shapes, {100 * batches.padding_share:.1f} % padding", flush=True)
    return timed(step, steps)


def marian_even(steps: int, tokens: int) -> tuple[float, float]:
    model = marian().cuda()
    loss_of, optimiser = theirs(model)
    ids = torch.randint(3, VOCABULARY, (tokens // 32, 32), device="cuda")
    inputs = {"input_ids": ids, "decoder_input_ids": ids, "labels": ids}

    def step(_: int) -> int:
        update(model, loss_of, optimiser, inputs)
        return 2 * ids.numel()

    return timed(step, steps)


def their_gpt2(steps: int) -> tuple[float, float]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().train()
    loss_of, optimiser = theirs(model)
    ids = torch.randint(3, GPT2_VOCABULARY, (32, 1024), device="cuda")

    def step(_: int) -> int:
        update(model, loss_of, optimiser, {"input_ids": ids, "labels": ids})
        return ids.numel()

    return timed(step, steps)


def ceiling() -> float:
    """TFLOP/s of a large bf16 product."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - began) / 1e12


def small_on_cpu(store: TokenStore, tokens: int, turns: int) -> None:
    """A small Transformer, turn by turn ours and transformers' Marian of the same sizes, on the same sentences."""
    sizes = {"d_model": 256, "heads": 4, "d_ff": 1024}
    settings = TransformerSettings(encoder_layers=3, decoder_layers=3, **sizes)  # type: ignore[arg-type]
    packed = Batches(store, SPECIALS, BatchSettings(tokens=tokens, layout="packed", row=128), seed=1)
    trainer = Trainer(build(settings, VOCABULARY), packed, TrainingSettings(optimiser=OptimiserSettings(clip=1.0)))
    model = marian(layers=3, **sizes)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    buckets = Batches(store, SPECIALS, BatchSettings(tokens=tokens, layout="buckets", shapes=64), seed=1)
    print(f"padding: ours {100 * packed.padding_share:.1f} %, theirs {100 * buckets.padding_share:.1f} %")

    def our_turn(_: int) -> int:
        trainer.advance()
        return trainer.report().tokens

    def their_turn(number: int) -> int:
        real, inputs = marian_inputs(buckets[number], "cpu")
        labels = inputs.pop("labels")
        optimiser.zero_grad(set_to_none=True)
        logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
        F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, label_smoothing=0.1).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return real

    took = {our_turn: [0.0, 0.0, 0], their_turn: [0.0, 0.0, 0]}
    for number in range(turns + 1):
        for turn, sums in took.items():
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = turn(number)
            if number:  # the first of each warms up
                sums[0] += time.perf_counter() - wall
                sums[1] += time.process_time() - cpu
                sums[2] += tokens
    trainer.close()
    (wall, cpu, read), (their_wall, their_cpu, their_read) = took.values()
    print(f"threads {torch.get_num_threads()}, {turns} turns, real tokens a second (a CPU second)")
    print(f"regard        {read / wall:8,.0f} ({read / cpu:,.0f})")
    print(f"transformers  {their_read / their_wall:8,.0f} ({their_read / their_cpu:,.0f})")
    print(f"ratio         {read / wall / (their_read / their_wall):8.2f} ({read / cpu / (their_read / their_cpu):.2f})")


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: needs a prepared corpus and a GPU; python -m benchmarks.training --help")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="base,base-exact,marian-even,marian,gpt2,gpt2-exact,their-gpt2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=25_600)
    parser.add_argument("--shapes", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product, for the exact runs
    store = TokenStore.open(options.folder)
    if options.device == "cpu":
        small_on_cpu(store, tokens=2_048, turns=options.steps // 3)
        return
    profiled = lambda name: name if options.profile else None
    runs: dict[str, Callable[[], tuple[float, float]]] = {
        "base": lambda: ours(*base(store, options.tokens), options.steps, profiled("base")),
        "base-exact": lambda: ours(*base(store, options.tokens), options.steps, None, exact=True),
        "marian-even": lambda: marian_even(options.steps, options.tokens),
        "marian": lambda: marian_buckets(store, options.steps, options.shapes, options.tokens),
        "gpt2": lambda: ours(*gpt2(store), options.steps, profiled("gpt2")),
        "gpt2-exact": lambda: ours(*gpt2(store), options.steps, None, exact=True),
        "their-gpt2": lambda: their_gpt2(options.steps),
    }
    # Forward and backward products of one token (source and target mean), without attention's own.
    flops = {name: 743e6 if "gpt2" in name else 181e6 for name in runs}
    most = ceiling()
    lines = [f"matmul ceiling {most:.0f} TFLOP/s on {torch.cuda.get_device_name()}, torch {torch.__version__}"]
    for name in options.only.split(","):
        torch.use_deterministic_algorithms(False)  # whatever the one before has asked for
        began = time.perf_counter()
        speed, milliseconds = runs[name]()
        rate = speed * flops[name] / 1e12
        lines.append(
            f"{name:12} {speed / 1e3:8,.0f} k tokens/s  {milliseconds:7.2f} ms/step  {rate:5.0f} TFLOP/s "
            f"({100 * rate / most:.0f} %)  {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB  "
            f"({time.perf_counter() - began:.0f} s in all)"
        )
        print(lines[-1], flush=True)
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
