"""Which engine a folder is for, and how it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import tokenizers
from tokenizers import models, pre_tokenizers

from regard import folder as folders
from regard.data.sources import Elsewhere
from regard.engines.ctranslate2 import CTranslate2LanguageModel, CTranslate2Model
from regard.engines.onnx import DECODER, ENCODER, OnnxModel
from regard.errors import DataError, MissingError, UsageError
from regard.files import MANIFEST, read_manifest
from regard.models.gpt import GPTSettings
from regard.models.transformer import StackSettings, TransformerSettings
from regard.recipe import Recipe
from regard.text.imported import Imported
from regard.text.learning import END, PADDING, START, UNKNOWN
from regard.text.tokenizer import Tokenizer

Engine = Literal["torch", "ctranslate2", "onnx"]
WEIGHTS, CONFIG = "model.bin", "config.json"
LIMIT = "regard_positions"  # in an exported config: how many positions are written out; rotary ones are not
NUMBERS = {"auto": "default", "fp32": "float32", "int8": "int8"}
"""What CTranslate2 calls our precisions; "default" computes as the weights are stored."""
MOST_BYTES = 2**28  # of a vocabulary or a config: more is not one


def engine_of(folder: Path) -> Engine:
    """The engine that this folder is for; torch, unless it holds another's files and none of torch's."""
    if (folder / folders.WEIGHTS).is_file():
        return "torch"
    if (folder / WEIGHTS).is_file() and (folder / CONFIG).is_file():
        return "ctranslate2"
    return "onnx" if (folder / DECODER).is_file() else "torch"


def choose(folder: Path, engine: str) -> Engine:
    """The engine to read this folder with: the one it is for, if "auto" or that one is asked for."""
    if engine not in (known := ("auto", *get_args(Engine))):
        raise UsageError(f"engine: must be one of: {', '.join(known)}; but is `{engine}`.")
    found = engine_of(folder)
    if engine in ("auto", found):
        return found
    if found == "torch" and folder.is_dir() and not (folder / MANIFEST).is_file():
        raise UsageError(
            f"{folder}: the engine {engine} needs a model that Regard exported for it, but this one is another "
            f"toolkit's. Import it, then export it: regard import {folder} MODEL; regard export MODEL DIR --to {engine}"
        )
    if found == "torch" and folder.is_dir():
        raise UsageError(
            f"{folder}: the engine {engine} needs an exported model, but this one is Regard's own. "
            f"Export it: regard export {folder} DIR --to {engine}"
        )
    raise UsageError(
        f"{folder}: must be a model for the engine {engine}, but is one for {found}. Use --engine {found}."
    )


def fingerprint(folder: Path) -> list[str]:
    """What tells the model in a folder from others: the SHA-256 of each file that makes its answers."""
    if engine_of(folder) == "torch":
        seals = read_manifest(folder)
        return [seals[name].sha256 for name in (folders.WEIGHTS, folders.TOKENIZER)]
    found = []
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        with file.open("rb") as stream:
            found.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return found


def load_exported(folder: Path, engine: Literal["ctranslate2", "onnx"], precision: str = "auto") -> folders.Loaded:
    """Read a model that another engine runs."""
    _installed(engine)
    if engine == "onnx":
        return _onnx(folder, precision)
    if precision not in NUMBERS:
        raise UsageError(f"precision: ctranslate2 computes in {', '.join(NUMBERS)}, but `{precision}` is asked for.")
    if not (folder / folders.RECIPE).is_file():
        return _bare(folder, precision)
    recipe, tokenizer = folders.read_recipe(folder), Tokenizer.load(folder / folders.TOKENIZER)
    rotary = isinstance(recipe.model, StackSettings) and recipe.model.positions == "rotary"
    context = None if rotary else _limit(folder)
    if isinstance(recipe.model, GPTSettings):
        language_model = CTranslate2LanguageModel(folder, tokenizer.size, context, NUMBERS[precision])
        return folders.Loaded(recipe, tokenizer, language_model.eval())
    model = CTranslate2Model(folder, tokenizer.tokens, tokenizer.source.tokens, context, NUMBERS[precision])
    return folders.Loaded(recipe, tokenizer, model.eval())


def _limit(folder: Path) -> int:
    limit = _config(folder).get(LIMIT)
    if type(limit) is not int or limit < 1:
        raise DataError(
            f"{folder / CONFIG}: `{LIMIT}` must be a whole number above 0, but is {limit!r}. Export the model again."
        )
    return limit


def _onnx(folder: Path, precision: str) -> folders.Loaded:
    if precision not in ("auto", "fp32"):
        raise UsageError(f"precision: onnx computes in fp32, but `{precision}` is asked for. Leave it out.")
    recipe, tokenizer = folders.read_recipe(folder), Tokenizer.load(folder / folders.TOKENIZER)
    if not isinstance(recipe.model, TransformerSettings | GPTSettings):
        raise DataError(
            f"{folder / folders.RECIPE}: must be of a model that is exported, but is `{recipe.model.kind}`."
        )
    if isinstance(recipe.model, TransformerSettings) and not (folder / ENCODER).is_file():
        raise MissingError(f"{folder / ENCODER}: must be there beside {DECODER}, but is not. Export the model again.")
    return folders.Loaded(recipe, tokenizer, OnnxModel(folder, recipe.model, tokenizer.size).eval())


def _bare(folder: Path, precision: str) -> folders.Loaded:
    """A folder that some converter of CTranslate2 wrote: nothing says how text is cut, so spaces do."""
    shared, sides = folder / "shared_vocabulary", [folder / f"{side}_vocabulary" for side in ("source", "target")]
    read = [_words(shared)] if _file(shared) else [_words(side) for side in sides]
    config = _config(folder)
    tokenizers_ = [_by_spaces(words, config) for words in read]
    source, target = tokenizers_[0], tokenizers_[-1]
    tokenizer = Tokenizer(target, None if len(read) == 1 else Tokenizer(source))
    adds_end = bool(config.get("add_source_eos", False))
    model = CTranslate2Model(folder, read[-1], read[0], None, NUMBERS[precision], adds_end)
    model.described = False
    recipe = Recipe(name=folder.resolve().name, data=Elsewhere(str(folder)), tokenizer=Imported(tokenizer.size))
    return folders.Loaded(recipe, tokenizer, model.eval())


def _by_spaces(words: list[str], config: dict[str, Any]) -> tokenizers.Tokenizer:
    """A tokenizer of these words, between spaces. Its special tokens are Regard's: the end stands where theirs does,
    padding and start, which CTranslate2 adds itself, behind all others."""
    end, unknown = str(config.get("eos_token", "</s>")), str(config.get("unk_token", "<unk>"))
    if end not in words:
        raise DataError(f"the vocabulary must hold the end token {end}, but does not. Convert the model again.")
    spelled = {end: END, unknown: UNKNOWN}
    vocabulary = {spelled.get(word, word): number for number, word in enumerate(words)}
    for token in (UNKNOWN, PADDING, START):
        vocabulary.setdefault(token, len(vocabulary))
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([PADDING, START, END, UNKNOWN])
    return inner


def _file(stem: Path) -> Path | None:
    found = (stem.with_suffix(suffix) for suffix in (".json", ".txt"))
    return next((file for file in found if file.is_file()), None)


def _words(stem: Path) -> list[str]:
    file = _file(stem)
    if file is None:
        raise MissingError(f"{stem}.json: a model of CTranslate2 must hold its vocabulary, but this is not there.")
    words = _json(file) if file.suffix == ".json" else file.read_text(encoding="utf-8").split("\n")
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{file}: must be a list of words, but is not. Convert the model again.")
    return [word for word in words if word or file.suffix == ".json"]


def _config(folder: Path) -> dict[str, Any]:
    found = _json(folder / CONFIG)
    if not isinstance(found, dict):
        raise DataError(
            f"{folder / CONFIG}: must be a JSON object, but is a {type(found).__name__}. Convert the model again."
        )
    return found


def _json(file: Path) -> Any:
    if file.stat().st_size > MOST_BYTES:
        raise DataError(f"{file}: must be a small file of JSON, but has {file.stat().st_size:,} bytes.")
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: must be JSON, but cannot be read ({error}). Convert the model again.") from error


def _installed(engine: str) -> None:
    try:
        if engine == "ctranslate2":
            import ctranslate2  # noqa: F401
        else:
            import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UsageError(f"engine: {engine} is not installed. Install it: pip install 'regard[export]'") from error
