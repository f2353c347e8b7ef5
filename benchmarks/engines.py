"""A trained model in every engine, side by side: speed and BLEU on real text.

    python -m benchmarks.engines --model FOLDER --source test.en --reference test.de
    python -m benchmarks.engines --model FOLDER                       the test lines of the model's own corpus

The model is exported for each engine. Then all translate the same lines by the recipe's search, one line at a time and
32 at a time; they take turns, each in a process of its own. Regard's engines run as `regard translate` runs them, with
the patience that the proof of an export has. Beside them stand CTranslate2 as one would call it without Regard, with
the same tokenizer, but its own penalty and its own time to stop; and transformers' `generate`. The last column counts
lines that the first engine translates in the same way.

Speeds are target tokens a second, cutting and joining text included: the best of several turns for each batch, summed.
Look at the load first; on a busy machine `--cpu` counts processor time instead, which is right for one thread only.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU

import regard
from benchmarks.apart import Apart
from regard import folder
from regard.batch import Tokens
from regard.data.corpus import open_corpus, read_lines
from regard.decoding.search import SearchSettings
from regard.interop import ctranslate2, huggingface, onnx
from regard.interop.export import write_huggingface

Translate = Callable[[Sequence[str]], list[str]]
Engine = Apart[[Sequence[str]], list[str]]
BATCHES = (1, 32)


def engines(place: Path, work: Path, threads: int, search: SearchSettings, only: Sequence[str]) -> dict[str, Engine]:
    """Everybody who can translate with this model, by name; the first is what others are compared with."""
    loaded = folder.load_folder(place, torch.device("cpu"))
    found: dict[str, Engine] = {}

    def add(
        name: str, make: Callable[..., Translate], path: Path, write: Callable[[Path], object] | None = None
    ) -> None:
        """One engine, if it is asked for; its files are written first, where they are not there yet."""
        if only and not any(each in name for each in only):
            return
        if write is not None and not path.exists():
            path.mkdir()
            write(path)
        found[name] = Apart(make, path, place, threads, search)

    add("torch fp32", _any, place)
    add("torch int8", _int8, place)
    for numbers in ("float32", "int8"):
        if not ctranslate2.lacking(loaded.recipe.model):
            export: Callable[[Path], object] = partial(ctranslate2.write, loaded, numbers=numbers)  # type: ignore[arg-type]
            add(f"ctranslate2 {numbers}", _any, work / f"ct2-{numbers}", export)
            add(f"(CTranslate2 {numbers})", _direct, work / f"ct2-{numbers}", export)
        if not onnx.lacking(loaded.recipe.model):
            export = partial(onnx.write, loaded, numbers=numbers)  # type: ignore[arg-type]
            add(f"onnx {numbers}", _any, work / f"onnx-{numbers}", export)
    if importlib.util.find_spec("transformers") is not None and not huggingface.lacking(loaded.recipe.model):
        add("(transformers)", _transformers, work / "hf", partial(write_huggingface, loaded))
    return found


# ---- each of these runs in a process of its own, and gets: its files, the model, threads, the search


def _any(path: Path, _: Path, threads: int, search: SearchSettings) -> Translate:
    """Regard, with the engine that the files are for."""
    torch.set_num_threads(threads)
    model = regard.load(path)
    return lambda lines: model.translate(lines, search)


def _int8(path: Path, _: Path, threads: int, search: SearchSettings) -> Translate:
    torch.set_num_threads(threads)
    model = regard.load(path, precision="int8")
    return lambda lines: model.translate(lines, search)


def _direct(path: Path, place: Path, threads: int, search: SearchSettings) -> Translate:
    """CTranslate2 without Regard around it; the tokenizer is the same."""
    import ctranslate2 as library

    translator = library.Translator(str(path), inter_threads=1, intra_threads=threads)
    tokenizer = folder.Tokenizer.load(place / folder.TOKENIZER)
    numbers = {word: number for number, word in enumerate(tokenizer.tokens)}

    def translate(lines: Sequence[str]) -> list[str]:
        cut = [[tokenizer.source.tokens[token] for token in ids] for ids in tokenizer.source.encode_all(lines)]
        longest = max(map(len, cut)) + 1 + search.extra_length
        found = translator.translate_batch(
            cut, beam_size=search.beam, length_penalty=search.alpha, max_decoding_length=longest, max_input_length=0
        )
        return [tokenizer.decode([numbers[word] for word in each.hypotheses[0]]) for each in found]

    return translate


def _transformers(path: Path, place: Path, threads: int, search: SearchSettings) -> Translate:
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = folder.Tokenizer.load(place / folder.TOKENIZER)
    specials = tokenizer.specials

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[str]:
        ids = [[*some, specials.end] for some in tokenizer.source.encode_all(lines)]
        source = Tokens.padded(ids, specials.padding)
        found = model.generate(
            input_ids=source.ids_BT, attention_mask=source.places.segments_or_ones(), num_beams=search.beam,
            do_sample=False, length_penalty=search.alpha, max_new_tokens=max(map(len, ids)) + search.extra_length,
            forced_eos_token_id=None,
        )  # fmt: skip
        return [tokenizer.decode(_until(row[1:], specials.end)) for row in found.tolist()]

    return translate


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


def measure(
    translators: dict[str, Engine], lines: Sequence[str], size: int, turns: int, cpu: bool
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Seconds of each over all lines, `size` at a time, and what it wrote."""
    seconds = dict.fromkeys(translators, 0.0)
    texts: dict[str, list[str]] = {name: [] for name in translators}
    batches = [lines[first : first + size] for first in range(0, len(lines), size)]
    for translate in translators.values():
        translate(batches[0])
    for batch in batches:
        best: dict[str, float] = {}
        for turn in range(turns):
            for name, translate in translators.items():
                *clocks, found = translate(batch)
                took = clocks[cpu]
                best[name] = min(took, best.get(name, took))
                if not turn:
                    texts[name] += found
        for name, took in best.items():
            seconds[name] += took
    return seconds, texts


def quality(place: Path, sources: Sequence[str], references: Sequence[str], names: Sequence[str]) -> None:
    """BLEU of some of the engines, and how far it is from the first one's."""
    with tempfile.TemporaryDirectory() as work:
        search = folder.read_recipe(place).search
        translators = engines(place, Path(work), torch.get_num_threads(), search, names)
        scores = {name: _bleu(translate(sources)[-1], references) for name, translate in translators.items()}
        for one in translators.values():
            one.close()
    first = next(iter(scores.values()))
    for name, score in scores.items():
        print(f"{name:22} BLEU {score:6.2f}  ({score - first:+.2f})")


def _bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    return BLEU().corpus_score(list(texts), [list(references)]).score


def lines_of(place: Path, source: Path | None, reference: Path | None) -> tuple[list[str], list[str]]:
    """The lines to translate, and their references: of these files, or of the model's own test set."""
    if (source is None) != (reference is None):
        raise SystemExit("needs --source and --reference, or neither of them")
    if source is not None and reference is not None:
        return list(read_lines(source)), list(read_lines(reference))
    pairs = open_corpus(folder.read_recipe(place).data).test()
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--count", type=int, default=128, help="lines to translate, spread over the file")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of engines")
    parser.add_argument("--cpu", action="store_true", help="count processor time; use with --threads 1")
    chosen = parser.parse_args() if __name__ == "__main__" else parser.parse_args([])
    if chosen.model is None:
        print("  skipped: needs a trained model; python -m benchmarks.engines --help")
        return
    torch.set_num_threads(chosen.threads)
    sources, references = lines_of(chosen.model, chosen.source, chosen.reference)
    step = max(1, len(sources) // chosen.count)
    sources, references = sources[::step][: chosen.count], references[::step][: chosen.count]
    search = replace(folder.read_recipe(chosen.model).search, beam=chosen.beam)
    tokenizer = folder.Tokenizer.load(chosen.model / folder.TOKENIZER)
    print(f"{len(sources)} lines, beam {search.beam}, {chosen.threads} threads, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory() as work:
        translators = engines(chosen.model, Path(work), chosen.threads, search, chosen.only)
        measured = [measure(translators, sources, size, chosen.turns, chosen.cpu) for size in BATCHES]
        for one in translators.values():
            one.close()
    print(
        f"{'tokens a second':24}"
        + "".join(f"{f'{size} at a time':>16}" for size in BATCHES)
        + f"{'BLEU':>9}{'':>8}{'same':>8}"
    )
    first, texts_of_first = None, next(iter(measured[-1][1].values()), [])
    for name in translators:
        line = f"{name:24}"
        for seconds, texts in measured:
            tokens = sum(len(ids) + 1 for ids in tokenizer.encode_all(texts[name]))
            line += f"{tokens / max(seconds[name], 1e-9):>16,.0f}"
        score = _bleu(measured[-1][1][name], references)
        first = score if first is None else first
        same = sum(one == other for one, other in zip(texts_of_first, measured[-1][1][name], strict=True))
        print(f"{line}{score:>9.2f}{score - first:>+8.2f}{same:>8,}")


if __name__ == "__main__":
    main()
