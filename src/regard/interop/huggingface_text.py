"""The vocabularies of Hugging Face folders, in and out.

In: `tokenizer.json`, `vocab.json` with `merges.txt`, or Marian's `source.spm`, `target.spm` and `vocab.json`.
Out: `tokenizer.json`, which AutoTokenizer loads; it adds what a model of ours is given: the end behind a source, the
start before a text to go on from. Where source and target have each their own, the target's is in the folder `target`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from regard.errors import DataError, MissingError
from regard.files import write_file
from regard.interop import sentencepieces
from regard.interop.huggingface import Described
from regard.interop.tensors import read_json
from regard.text import gpt2
from regard.text.imported import cast
from regard.text.learning import END, PADDING, START, UNKNOWN, target_tag
from regard.text.tokenizer import END_OF_TEXT, Tokenizer

WHOLE, VOCABULARY, TARGET_VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "target_vocab.json", "merges.txt"
SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
CONFIG, TARGET = "tokenizer_config.json", "target"
LANGUAGE = re.compile(">>(.+)<<")


# ---- in


def read(folder: Path, described: Described) -> Tokenizer:
    """The vocabulary of a folder, of as many tokens as its model has."""
    if (folder / SOURCE_PIECES).is_file():
        return _from_pieces(folder, described)
    if (folder / WHOLE).is_file():
        target = folder / TARGET / WHOLE
        own = _from_library(target if target.is_file() else folder / WHOLE, described, described.vocabulary)
        if not target.is_file():
            return own
        return Tokenizer(own.rules, _from_library(folder / WHOLE, described, described.source_vocabulary))
    if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
        return _fitted(gpt2.read(folder / VOCABULARY, folder / MERGES), described, described.vocabulary, folder)
    raise MissingError(
        f"{folder}: must hold a vocabulary ({WHOLE}; {VOCABULARY} and {MERGES}; or {SOURCE_PIECES}), but has none. "
        "Copy it from where the model is published."
    )


def _from_library(file: Path, described: Described, size: int) -> Tokenizer:
    try:
        inner = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{file}: must be a tokenizer, but cannot be read ({error}). Copy it again.") from error
    inner.no_padding()
    inner.no_truncation()
    return _fitted(inner, described, size, file)


def _fitted(inner: tokenizers.Tokenizer, described: Described, size: int, place: Path) -> Tokenizer:
    """With exactly `size` tokens, and with every part played."""
    _check_size(place, inner.get_vocab_size(), size)
    if sorted(inner.get_vocab().values()) != list(range(inner.get_vocab_size())):
        raise DataError(f"{place}: must number its tokens from 0, each once, but does not. Copy it again.")
    # Models are made with round numbers of tokens. As special ones, no text becomes them.
    inner.add_special_tokens([f"<unused-{number}>" for number in range(inner.get_vocab_size(), size)])
    inner.post_processor = None
    parts = {PADDING: described.padding, START: described.start, END: described.end}
    special = {token.content: number for number, token in inner.get_added_tokens_decoder().items() if token.special}
    named = {name: special.get(name) for name in parts}
    if PADDING not in special and set(parts.values()) == {special.get(END_OF_TEXT)}:
        return Tokenizer(inner)
    if named != parts:
        cast(inner, parts)
    return Tokenizer(inner)


def _check_size(place: Path, found: int, size: int) -> None:
    if found > size:
        raise DataError(
            f"{place}: must have at most {size:,} tokens, as many as the model, but has {found:,}. Are they of one "
            "model?"
        )


def _from_pieces(folder: Path, described: Described) -> Tokenizer:
    sides = []
    separate = (folder / TARGET_VOCABULARY).is_file()
    for pieces, numbers, size in (
        (TARGET_PIECES, TARGET_VOCABULARY if separate else VOCABULARY, described.vocabulary),
        (SOURCE_PIECES, VOCABULARY, described.source_vocabulary),
    ):
        vocabulary = _numbers(folder / numbers, size)
        inner = sentencepieces.tokenizer(sentencepieces.read(folder / pieces), vocabulary, UNKNOWN)
        parts = {PADDING: described.padding, START: described.start, END: described.end}
        if pieces == SOURCE_PIECES:
            tags = ((LANGUAGE.fullmatch(token), number) for token, number in vocabulary.items())
            parts |= {target_tag(tag[1]): number for tag, number in tags if tag is not None}
        cast(inner, parts)
        sides.append((inner, size if inner.get_vocab_size() > size else None))
    (target, target_size), (source, source_size) = sides
    return Tokenizer(target, Tokenizer(source, size=source_size), target_size)


def _numbers(file: Path, size: int) -> dict[str, int]:
    """The numbers of all pieces, up to the model's last."""
    found = read_json(file)
    numbers = [number for number in found.values() if isinstance(number, int) and not isinstance(number, bool)]
    if sorted(numbers) != list(range(len(found))) or UNKNOWN not in found:
        raise DataError(f"{file}: must number its pieces from 0 on, {UNKNOWN} among them, but does not. Copy it again.")
    _check_size(file, len(found), size)
    return found | {f"<unused-{number}>": number for number in range(len(found), size)}


# ---- out


def write(tokenizer: Tokenizer, folder: Path, limit: int, translates: bool) -> None:
    """The vocabulary as AutoTokenizer reads it."""
    if tokenizer.source is not tokenizer:
        (folder / TARGET).mkdir()
        _write(tokenizer, folder / TARGET, limit, translates)
    _write(tokenizer.source, folder, limit, translates)


def _write(tokenizer: Tokenizer, folder: Path, limit: int, translates: bool) -> None:
    inner, specials = tokenizer.rules, tokenizer.specials
    parts = {"pad_token": specials.padding, "bos_token": specials.start, "eos_token": specials.end}
    names = {part: inner.id_to_token(number) or "" for part, number in parts.items()}
    tree = _whole_model(json.loads(inner.to_str()), tokenizer.size)
    tree["added_tokens"] = _added(tree["added_tokens"], {names[part]: number for part, number in parts.items()})
    added = names["eos_token" if translates else "bos_token"]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    special = {"SpecialToken": {"id": added, "type_id": 0}}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [text, special] if translates else [special, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}, special],
        "special_tokens": {added: {"id": added, "ids": [inner.token_to_id(added)], "tokens": [added]}},
    }
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast", **names, "model_max_length": limit,
        "clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"],
        # What a user writes is text, even if it reads "<eos>".
        "split_special_tokens": True,
        # Prompts of a batch end together, where they go on.
        "padding_side": "right" if translates else "left",
    }  # fmt: skip
    write_file(folder / WHOLE, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
    write_file(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _added(tokens: list[dict[str, Any]], parts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The special tokens, without <unk>: what is unknown stays visible in decoded text, as here."""
    kept = [token for token in tokens if token["content"] != UNKNOWN]
    there = {token["id"] for token in kept}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    kept += [{"id": number, "content": name} | plain for name, number in parts.items() if number not in there]
    return sorted({token["id"]: token for token in kept}.values(), key=lambda token: token["id"])


def _whole_model(tree: dict[str, Any], size: int) -> dict[str, Any]:
    """Without the pieces that the model has no number for, where there are such."""
    if tree["model"]["type"] == "Unigram":
        tree["model"]["vocab"] = tree["model"]["vocab"][:size]
    return tree


def leaves_pieces_out(tokenizer: Tokenizer) -> bool:
    """Whether some pieces cannot go out: text that holds them is then cut into smaller ones."""
    sides = (tokenizer, tokenizer.source)
    return any(
        isinstance(side.rules.model, models.Unigram) and side.rules.get_vocab_size() > side.size for side in sides
    )
