"""How fast texts are written: against transformers, and against CTranslate2 where it is installed.

    python -m benchmarks.decoding                     on the CPU, all cores
    python -m benchmarks.decoding --device cuda       on a GPU, in bf16; before that, whether recorded steps are right
    python -m benchmarks.decoding --model FOLDER [--source FILE --reference FILE]      what 8 bits cost in BLEU, too

One run, the same random weights, the same inputs. Every text is written to the length of its source: the end token has
almost no chance, so that all do equal work. On a CPU, lengths are spread as in newstest2014: single sentences of 6 to
60 tokens, 27 in the mean, and batches of 32 sentences of one length each. On a GPU they are 25.

`same` says how many of the texts are the same as ours, token for token; of a beam, all of its texts together. Speeds
are in target tokens a second, the best of several turns, and the competitors take turns, on a CPU each in a process of
its own: on a busy machine look at the ratios, on a quiet one at the speeds. For real text and every engine, see
`benchmarks.engines`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import engines
from benchmarks.apart import Apart
from regard.batch import Specials, Tokens
from regard.decoding.fast import search
from regard.decoding.likeliest import likeliest
from regard.decoding.search import SearchSettings, beam_search
from regard.decoding.stepping import recorded
from regard.interop.tensors import Tensors
from regard.interop.weights import alternating, bart_layers_in, gpt2_in
from regard.models.gpt import GPT, GPTSettings
from regard.models.precision import convert
from regard.models.transformer import Transformer, TransformerSettings

VOCABULARY, LENGTH = 32_000, 25
SPREAD, BATCHED = (6, 12, 18, 24, 30, 39, 60), (12, 27, 42)  # lengths of single sentences, and of batches of 32
PADDING, END = VOCABULARY - 1, 0
SPECIALS = Specials(padding=PADDING, start=PADDING, end=END)
PROMPT, WRITTEN, TOP = 128, 128, 40


# ---- the same weights for all


def translators() -> tuple[Transformer, Any]:
    """The paper's base model, ours and as transformers' MarianMT."""
    import transformers

    torch.manual_seed(1)
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 6), ("ffn_dim", 2048), ("attention_heads", 8))}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=512, **sides, activation_function="relu", scale_embedding=True,
        max_position_embeddings=512, dropout=0.0, pad_token_id=PADDING, eos_token_id=END,
        decoder_start_token_id=PADDING, forced_eos_token_id=None, init_std=0.04,
    )  # fmt: skip
    theirs = transformers.MarianMTModel(config).eval()
    theirs.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        theirs.model.shared.weight.normal_(std=512**-0.5)
        # Random signs in the last norm: otherwise a token's likeliest successor is itself, and texts do not vary. Its
        # bias points away from the end token, so that no text ends before its time.
        last = theirs.model.decoder.layers[-1].final_layer_norm
        last.weight.copy_(2 * torch.randn(512).sign())
        away = torch.nn.functional.normalize(torch.randn(512), dim=0)
        last.bias.copy_(6 * away)
        theirs.model.shared.weight[END] = -10 * away
        theirs.model.shared.weight[PADDING] = 0.0  # as CTranslate2 starts
    ours = Transformer(TransformerSettings(dropout=0.0), VOCABULARY).eval()
    state = bart_layers_in(Tensors(theirs.state_dict(), Path("transformers")), ours.settings)
    state["embedding.table.weight"] = theirs.model.shared.weight
    ours.load_state_dict(alternating(state, ours.settings.d_model))
    return ours, theirs


def language_models() -> tuple[GPT, Any]:
    """GPT-2's smallest, ours and transformers'."""
    import transformers

    torch.manual_seed(1)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0)).eval()
    ours = GPT(GPTSettings(dropout=0.0), 50_257).eval()
    ours.load_state_dict(gpt2_in(Tensors(theirs.state_dict(), Path("transformers")), ours.settings, 50_257))
    return ours, theirs


# ---- who writes


Texts = list[list[list[int]]]  # of each sentence the texts of its beam, best first
Writer = Callable[[Tensor, int], Texts]
TimedWriter = Callable[[Tensor, int], tuple[float, Texts]]


def our_search(model: Transformer, plain: bool = False) -> Writer:
    def write(source_BS: Tensor, beam: int) -> Texts:
        settings = SearchSettings(beam=beam, nbest=beam, penalty="none", extra_length=0)
        found = (beam_search if plain else search)(model, Tokens.whole(source_BS), SPECIALS, settings)
        return [[list(each.tokens) for each in texts] for texts in found]

    return write


def their_generate(model: Any) -> Writer:
    def write(source_BS: Tensor, beam: int) -> Texts:
        found = model.generate(
            input_ids=source_BS, attention_mask=torch.ones_like(source_BS), num_beams=beam, do_sample=False,
            num_return_sequences=beam, max_new_tokens=source_BS.shape[1], min_new_tokens=None, length_penalty=0.0,
            early_stopping=False,
        )  # fmt: skip
        return found[:, 1:].view(len(source_BS), beam, -1).tolist()

    return write


def ctranslate2_search(folder: str, precision: str, threads: int) -> Writer:
    """CTranslate2 with transformers' weights; words are their numbers."""
    import ctranslate2

    translator = ctranslate2.Translator(folder, compute_type=precision, inter_threads=1, intra_threads=threads)

    def write(source_BS: Tensor, beam: int) -> Texts:
        found = translator.translate_batch(
            [[f"t{token}" for token in row] for row in source_BS.tolist()], beam_size=beam, num_hypotheses=beam,
            length_penalty=0, max_decoding_length=source_BS.shape[1], min_decoding_length=source_BS.shape[1],
            max_batch_size=0,
        )  # fmt: skip
        return [[[int(word[1:]) for word in text] for text in each.hypotheses] for each in found]

    return write


def to_ctranslate2(theirs: Any, folder: str) -> None:
    """Write the weights the way CTranslate2 reads them."""
    from ctranslate2.converters.transformers import MarianMTLoader

    loader = MarianMTLoader()
    spec = loader.get_model_spec(theirs)
    words = [f"t{number}" for number in range(VOCABULARY - 1)]  # padding is not a word there
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = spec.config.bos_token = spec.config.eos_token = f"t{END}"
    spec.config.unk_token = "t1"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(folder)


# ---- measuring


@dataclass
class Row:
    name: str
    speeds: dict[str, float] = field(default_factory=dict)
    same: dict[str, float] = field(default_factory=dict)


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long the GPU works on something."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    found = work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, found


def on_clock(write: Writer) -> TimedWriter:
    return lambda source_BS, beam: clock(lambda: write(source_BS, beam))


def translate(
    writers: Mapping[str, TimedWriter],
    device: str,
    rows: int,
    beam: int,
    seconds: float,
    lengths: tuple[int, ...] = (LENGTH,),
) -> Row:
    """Each in turn, until the time is over; each writes at least twice after one for warming up."""
    draw = torch.Generator().manual_seed(rows)
    sources = [torch.randint(1, PADDING, (rows, length), generator=draw).to(device) for length in lengths]
    best: dict[tuple[str, int], float] = {}
    texts: dict[str, list[Texts]] = {name: [[] for _ in sources] for name in writers}
    for write in writers.values():
        write(sources[0], beam)
        if device == "cuda":
            write(sources[0], beam)  # recordings are made on the second use
    begin = time.perf_counter()
    turns = 0
    while time.perf_counter() - begin < seconds or turns < 2:
        turns += 1
        for number, source_BS in enumerate(sources):
            for name, write in writers.items():
                took, texts[name][number] = write(source_BS, beam)
                best[name, number] = min(took, best.get((name, number), took))
    spent = {name: sum(best[name, number] for number in range(len(sources))) for name in writers}
    row = Row(f"{rows} × beam {beam}", {name: rows * sum(lengths) / took for name, took in spent.items()})
    first = [each for found in next(iter(texts.values())) for each in found]
    for name, found in texts.items():
        written = [each for some in found for each in some]
        row.same[name] = sum(sorted(one) == sorted(other) for one, other in zip(written, first, strict=True)) / len(
            first
        )
    return row


def sample(model: Any, prompt_RT: Tensor, tokens: int) -> Tensor:
    """Top-k sampling through `start` and `step`."""
    logits_RV, state = model.step(prompt_RT, model.start(None, len(prompt_RT)))
    written = []
    for _ in range(tokens):
        values_RC, tokens_RC, _ = likeliest(logits_RV, TOP)
        chosen_R1 = tokens_RC.gather(1, values_RC.softmax(dim=-1).multinomial(1))
        written.append(chosen_R1)
        logits_RV, state = model.step(chosen_R1, state)
    return torch.cat(written, dim=1)


def generate(ours: Any, theirs: Any, device: str, rows: int, turns: int) -> Row:
    prompt_RT = torch.randint(50_256, (rows, PROMPT), generator=torch.Generator().manual_seed(1)).to(device)
    options = {"max_new_tokens": WRITTEN, "min_new_tokens": WRITTEN, "do_sample": True, "top_k": TOP, "pad_token_id": 0}
    writers = {
        "regard": lambda tokens: sample(ours, prompt_RT, tokens),
        "transformers": lambda tokens: theirs.generate(
            prompt_RT, attention_mask=torch.ones_like(prompt_RT), **options | {"max_new_tokens": tokens}
        ),
    }
    row = Row(f"GPT-2, {rows} × {PROMPT} → {WRITTEN}, top {TOP}")
    for name, write in writers.items():
        for _ in range(2 if name == "regard" else 1):
            write(WRITTEN)
        best = min(clock(lambda write=write: write(WRITTEN))[0] for _ in range(turns))  # type: ignore[misc]
        row.speeds[name] = rows * WRITTEN / best
    return row


def show(rows: list[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.speeds))
    print(f"\n{'tokens a second':34}" + "".join(f"{name:>21}" for name in names))
    for row in rows:
        line = f"{row.name:34}"
        for name in names:
            if name not in row.speeds:
                line += f"{'':>21}"
                continue
            ratio = row.speeds[names[0]] / row.speeds[name]
            line += f"{row.speeds[name]:>12,.0f} ({ratio:5.2f}×)"
        print(line)
        if row.same:
            print(f"{'':4}{'same texts':30}" + "".join(f"{row.same.get(name, 0):>20.0%} " for name in names))
    print(f"(…×): how many times as fast {names[0]} is")


@torch.inference_mode()
def check_recordings() -> None:
    """On the GPU: recorded search and steps against unrecorded ones, in fp32, over many small random cases."""
    torch.backends.cuda.matmul.allow_tf32 = False
    draw = torch.Generator().manual_seed(1)
    small = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=96, heads=4, dropout=0.0)
    specials, equal, cases, furthest = Specials(0, 1, 2), 0, 0, 0.0
    for seed, rows in enumerate((1, 3, 40, 70)):
        torch.manual_seed(seed)
        model = Transformer(small, 5000 if seed % 2 else 60).eval()
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.cuda()
        for beam, penalty in ((1, "gnmt"), (4, "gnmt"), (4, "length"), (5, "none")):
            for _ in range(3):  # plain, recorded, replayed
                sizes = torch.randint(1, 30, (rows,), generator=draw).tolist()
                sources = [torch.randint(3, 60, (size,), generator=draw).tolist() for size in sizes]
                source = Tokens.padded(sources, 0).to(torch.device("cuda"))
                settings = SearchSettings(beam=beam, penalty=penalty, nbest=beam)  # type: ignore[arg-type]
                found, wanted = (way(model, source, specials, settings) for way in (search, beam_search))
                for one, other in zip(found, wanted, strict=True):
                    cases += 1
                    equal += [each.tokens for each in one] == [each.tokens for each in other]
                    furthest = max(furthest, *(abs(a.score - b.score) for a, b in zip(one, other, strict=False)), 0)
    print(f"recorded search: {equal} of {cases} sentences as the plain search, scores within {furthest:.1e}")
    model_lm = GPT(GPTSettings(layers=3, d_model=64, d_ff=96, heads=4, max_positions=400), 97).eval().cuda()
    fast, furthest = recorded(model_lm), 0.0
    for rows in (1, 5, 5):
        prompt = torch.randint(97, (rows, 60), generator=draw).cuda()
        (_, state), (_, plain) = (
            fast.step(prompt, fast.start(None, rows)),
            model_lm.step(prompt, model_lm.start(None, rows)),
        )
        for place in range(300):
            tokens = torch.randint(97, (rows, 1), generator=draw).cuda()
            (one, state), (other, plain) = fast.step(tokens, state), model_lm.step(tokens, plain)
            furthest = max(furthest, float((one - other).abs().max()))
            if place == 100 and rows > 1:
                kept = torch.tensor([3, 0, 0], device="cuda")
                state, plain, rows = state.select(kept), plain.select(kept), 3
    print(f"recorded steps: scores within {furthest:.1e} of plain ones, over 900 steps", flush=True)


@torch.inference_mode()
def on_gpu(seconds: float) -> None:
    check_recordings()
    rows: list[Row] = []
    ours, theirs = translators()
    exact = translate(
        {
            "regard fp32": on_clock(our_search(ours.cuda())),
            "transformers fp32": on_clock(their_generate(theirs.cuda())),
        },
        "cuda", 4, 4, 0.0,
    )  # fmt: skip
    print(f"in fp32, {exact.name}: same texts {exact.same['transformers fp32']:.0%}", flush=True)
    convert(ours, "bf16")
    theirs.to(torch.bfloat16)
    writers = {
        "regard": on_clock(our_search(ours)), "regard, plain": on_clock(our_search(ours, plain=True)),
        "transformers": on_clock(their_generate(theirs)),
    }  # fmt: skip
    for sentences, beam in ((1, 1), (1, 4), (64, 4), (256, 4)):
        rows.append(translate(writers, "cuda", sentences, beam, seconds))
        show(rows[-1:])
    del ours, theirs, writers
    torch.cuda.empty_cache()
    gpt, their_gpt = language_models()
    gpt.cuda()
    convert(gpt, "bf16")
    their_gpt.to("cuda", torch.bfloat16)
    fast = recorded(gpt)
    for batch in (1, 64, 256):
        rows.append(generate(fast, their_gpt, "cuda", batch, 2))
    show(rows)


WRITERS = ("regard fp32", "regard int8", "transformers", "CTranslate2 float32", "CTranslate2 int8")


def writer(name: str, threads: int, folder: str) -> Writer:
    """One of the `WRITERS`, in a process of its own."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    who, _, precision = name.partition(" ")
    if who == "CTranslate2":
        return ctranslate2_search(folder, precision, threads)
    ours, theirs = translators()
    if who == "transformers":
        return their_generate(theirs)
    convert(ours, precision)  # type: ignore[arg-type]
    return our_search(ours)


def on_cpu(seconds: float, threads: int) -> None:
    print(f"  {threads} threads; load {os.getloadavg()[0]:.1f} before the start")
    names = [name for name in WRITERS if importlib.util.find_spec(name.split()[0].lower())]
    with tempfile.TemporaryDirectory() as folder:
        if any("CTranslate2" in name for name in names):
            to_ctranslate2(translators()[1], folder)
        apart = {name: Apart(writer, name, threads, folder) for name in names}
        timed = {name: lambda *work, one=one: one(*work)[::2] for name, one in apart.items()}  # type: ignore[misc]
        sizes = ((1, 1, SPREAD), (1, 4, SPREAD), (32, 4, BATCHED))
        rows = [translate(timed, "cpu", count, beam, seconds, lengths) for count, beam, lengths in sizes]
        for one in apart.values():
            one.close()
    show(rows)
    for row in rows:
        if "CTranslate2 int8" in row.speeds:
            print(f"{row.name}: int8 {row.speeds['regard int8'] / row.speeds['CTranslate2 int8']:.2f} × CTranslate2's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=5.0, help="for each row of the table")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", type=Path, help="a trained model, to see what 8 bits cost in BLEU")
    parser.add_argument("--source", type=Path, help="text for it; its own test lines, unless given")
    parser.add_argument("--reference", type=Path)
    chosen = parser.parse_args() if __name__ == "__main__" else parser.parse_args([])
    if chosen.device == "cuda":
        on_gpu(chosen.seconds)
    else:
        on_cpu(chosen.seconds, chosen.threads)
        if chosen.model is not None:
            texts = engines.lines_of(chosen.model, chosen.source, chosen.reference)
            engines.quality(chosen.model, *texts, ("torch",))


if __name__ == "__main__":
    main()
