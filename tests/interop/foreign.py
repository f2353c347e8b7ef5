"""Other toolkits' folders, made here: by transformers itself, or by writers of our own where a toolkit is not there."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from tests.tiny import ENGLISH, GERMAN

TEXTS = ["one two three", "twelve and four", "nine", "", "seven  eight ", "null fünf", "zwölf!"]


def shaken(model: Any) -> Any:
    """With biases that are not zero: zero would hide one that is read from the wrong place."""
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model.eval()


def byte_vocabulary() -> dict[str, int]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {token: number for number, token in enumerate([*letters, "on", "Ġt", "<|endoftext|>"])}


MERGES = [("o", "n"), ("Ġ", "t")]


def gpt2(folder: Path, pickled: bool = False, shards: bool = False, changes: dict[str, Any] | None = None) -> Any:
    """A GPT-2 of random weights, saved by transformers; gives the model."""
    vocabulary = byte_vocabulary()
    end = vocabulary["<|endoftext|>"]
    options = {"n_layer": 2, "n_embd": 24, "n_head": 3, "n_positions": 64, "vocab_size": len(vocabulary)}
    config = transformers.GPT2Config(**options, bos_token_id=end, eos_token_id=end, **(changes or {}))
    model = shaken(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder, **({"max_shard_size": "20KB"} if shards else {}))
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    return model


def library_tokenizer() -> Library:
    """The same vocabulary as one `tokenizer.json`."""
    inner = Library(models.BPE(byte_vocabulary(), MERGES))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>"])
    return inner


def pieces(file: Path, lines: list[str], size: int) -> list[str]:
    """A model of SentencePiece; gives its pieces."""
    import sentencepiece

    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=trained, vocab_size=size, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, character_coverage=0.999,
    )  # fmt: skip
    file.write_bytes(trained.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]


def marian_vocabulary(folder: Path) -> dict[str, int]:
    """source.spm, target.spm and vocab.json, with a few pieces that only one of them has."""
    english = [f"{one} {two} {three}." for one in ENGLISH for two in ENGLISH for three in ("and", "or", "the cats")]
    german = [f"{one} {two} {three}!" for one in GERMAN for two in GERMAN for three in ("und", "oder", "größer")]
    found = [*pieces(folder / "source.spm", english, 60), *pieces(folder / "target.spm", german, 60)]
    known = [piece for piece in dict.fromkeys(found) if piece not in ("and", "▁o", "er")]
    words = ["</s>", "<unk>", *known, ">>fr<<", "<pad>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return vocabulary


def marian(folder: Path, changes: dict[str, Any] | None = None) -> Any:
    """A Marian of random weights, saved by transformers; gives the model."""
    folder.mkdir(exist_ok=True)
    vocabulary = marian_vocabulary(folder)
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 2), ("ffn_dim", 40), ("attention_heads", 3))}  # fmt: skip
    options: dict[str, Any] = {
        "vocab_size": len(vocabulary), "d_model": 24, "activation_function": "swish", "scale_embedding": True,
        "max_position_embeddings": 64, "pad_token_id": vocabulary["<pad>"], "eos_token_id": 0,
        "decoder_start_token_id": vocabulary["<pad>"], "forced_eos_token_id": 0,
    }  # fmt: skip
    model = shaken(transformers.MarianMTModel(transformers.MarianConfig(**options | sides | (changes or {}))))
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(10)  # so that one token is clearly likelier than another
    model.generation_config.num_beams = 2
    model.save_pretrained(folder)
    return model
