"""Hugging Face folders in and out: the same scores, the same texts, and the same numbers on the way back."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import regard
from regard import folder
from regard.batch import Batch, Tokens
from regard.errors import DataError, UsageError
from regard.folder import Loaded
from regard.interop import huggingface, reading
from regard.interop.export import export, write_huggingface, write_new
from regard.interop.importing import import_model
from regard.interop.proof import prove
from regard.interop.sides import ModelSide, TransformersSide, inputs_for
from regard.models.build import build
from regard.models.gpt import GPTSettings
from regard.models.transformer import TransformerSettings
from regard.recipe import build_recipe
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.interop import foreign
from tests.tiny import ENGLISH, GERMAN

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses", "ignore::FutureWarning")
GPT2_FILES = Path(os.environ.get("REGARD_DATA", Path(__file__).parents[2] / "../shared/data")) / "gpt2-bpe"


@pytest.fixture(autouse=True)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random models never end a text; a few tokens show as much as many."""
    if "slow" not in request.keywords:
        monkeypatch.setattr("regard.interop.sides.EXTRA", 6)


def proved(loaded: Loaded, place: Path, count: int = 12) -> None:
    theirs = TransformersSide(place, loaded.model.reads_source)
    found = prove(ModelSide("regard", loaded.model), theirs, inputs_for(loaded, None, count))
    assert found.passed, found.to_text()
    assert found.difference is not None
    assert found.places > count


# ---- in


@pytest.mark.parametrize("stored", ["safetensors", "pickled", "shards"])
def test_gpt2_comes_in(stored: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    foreign.gpt2(tmp_path, pickled=stored == "pickled", shards=stored == "shards")
    assert (tmp_path / "model.safetensors.index.json").exists() == (stored == "shards")
    loaded = reading.read(tmp_path)
    if stored == "pickled":  # transformers wants a newer torch than ours to read these
        foreign_model = foreign.gpt2(tmp_path / "again")
        foreign_model.load_state_dict(torch.load(tmp_path / "pytorch_model.bin", weights_only=True))
        foreign_model.save_pretrained(tmp_path / "again")
        proved(loaded, tmp_path / "again")
        return
    proved(loaded, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "relu", "n_inner": 31},
        {"activation_function": "silu", "layer_norm_epsilon": 1e-3},
        {"tie_word_embeddings": False},
    ],
)
def test_gpt2_with_other_choices(changes: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(2)
    foreign.gpt2(tmp_path, changes=changes)
    proved(reading.read(tmp_path), tmp_path)


def test_a_tokenizer_json_gives_the_same_ids(tmp_path: Path) -> None:
    foreign.gpt2(tmp_path)
    by_merges = reading.read(tmp_path).tokenizer
    foreign.library_tokenizer().save(str(tmp_path / "tokenizer.json"))
    by_json = reading.read(tmp_path).tokenizer
    assert by_json.specials == by_merges.specials
    assert by_json.encode_all(foreign.TEXTS) == by_merges.encode_all(foreign.TEXTS)


@pytest.mark.skipif(not (GPT2_FILES / "encoder.json.gz").is_file(), reason="needs gpt2-bpe of REGARD_DATA")
def test_the_published_vocabulary_gives_the_ids_of_transformers(tmp_path: Path) -> None:
    import gzip

    for name, there in (("vocab.json", "encoder.json.gz"), ("merges.txt", "vocab.bpe.gz")):
        (tmp_path / name).write_bytes(gzip.decompress((GPT2_FILES / there).read_bytes()))
    theirs: Any = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    ours = Tokenizer.from_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")
    texts = [*foreign.TEXTS, "Hello  world!\n\n I'm 42 — naïve 漢字 🙂", "\t\ttabs", " x"]
    assert ours.encode_all(texts) == [theirs(text).input_ids for text in texts]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 3},
        {"share_encoder_decoder_embeddings": False, "activation_function": "gelu"},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    ],
)
def test_marian_comes_in(changes: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    foreign.marian(tmp_path, changes)
    loaded = reading.read(tmp_path)
    assert isinstance(loaded.recipe.model, TransformerSettings)
    assert loaded.recipe.model.output_bias
    proved(loaded, tmp_path)


def test_marian_cuts_text_as_transformers_does(tmp_path: Path) -> None:
    foreign.marian(tmp_path)
    ours = reading.read(tmp_path).tokenizer
    theirs: Any = transformers.AutoTokenizer.from_pretrained(tmp_path)
    odd = ["größe ß üß", "a▁b", "漢字 one", "<pad> </s>", "ＯＮＥ ½", "and or", "x\ty", "🙂", "the cats und oder"]
    for text in [*foreign.TEXTS, *odd]:
        # What a user writes is text here; there it is the special token.
        if "<pad>" not in text:
            assert [*ours.source.encode(text), 0] == theirs(text).input_ids, text
            assert [*ours.encode(text), 0] == theirs(text_target=text).input_ids, text
    assert ours.source.languages == {"fr": theirs.get_vocab()[">>fr<<"]}
    assert ours.specials.padding not in ours.encode("<pad>")
    written = list(range(2, ours.size - 2))
    assert ours.decode(written) == theirs.decode(written)


def test_an_imported_folder_is_complete(tmp_path: Path) -> None:
    torch.manual_seed(4)
    foreign.marian(tmp_path / "theirs")
    found = import_model(str(tmp_path / "theirs"), tmp_path / "ours", count=4)
    assert found.proof is not None
    assert found.proof.passed
    direct = regard.load(tmp_path / "theirs", device="cpu")
    shutil.rmtree(tmp_path / "theirs")
    again = regard.load(tmp_path / "ours", device="cpu")
    texts = ["one two", "twelve"]
    assert again.translate(texts, language="fr") == direct.translate(texts, language="fr")
    assert again.recipe.search.beam == 2


# ---- out, and the way back


def random_model(model: str, shared: bool = True) -> Loaded:
    recipe = build_recipe({}, [f"model={model}", f"tokenizer={{vocabulary=90, shared={str(shared).lower()}}}"], "t")
    assert isinstance(recipe.tokenizer, TokenizerSettings)
    pairs = [_Pair(*pair) for pair in zip(ENGLISH, GERMAN, strict=True)]
    lines = [*ENGLISH, *GERMAN]
    translates = isinstance(recipe.model, TransformerSettings)
    tokenizer = (
        Tokenizer.learn_pair(pairs, recipe.tokenizer) if translates else Tokenizer.learn(lines, recipe.tokenizer)
    )
    torch.manual_seed(5)
    network = build(recipe.model, tokenizer.size, tokenizer.source.size).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return Loaded(recipe, tokenizer, network)


class _Pair:
    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target


SIZES = "encoder_layers=2, decoder_layers=1, d_model=22, d_ff=28, heads=2"
TRANSLATORS = {
    "marian": f"{{{SIZES}}}",
    "odd width": "{encoder_layers=1, decoder_layers=1, d_model=21, d_ff=28, heads=3}",
    "marian, target": f'{{{SIZES}, tie="target", output_bias=true}}',
    "marian, none": f'{{{SIZES}, tie="none", output_bias=true, activation="swish"}}',
    "marian, embeddings": f'{{{SIZES}, tie="embeddings", activation="gelu"}}',
    "pre-norm": f'{{{SIZES}, norm="pre"}}',
    "pre-norm, learned": f'{{{SIZES}, norm="pre", positions="learned", max_positions=80, tie="target"}}',
    "pre-norm, none": f'{{{SIZES}, norm="pre", tie="none", activation="gelu-tanh"}}',
}
GPTS = {
    "gpt": "{kind='gpt', layers=2, d_model=20, d_ff=28, heads=2, max_positions=64}",
    "gpt, untied": "{kind='gpt', layers=1, d_model=20, d_ff=28, heads=2, max_positions=64, tied=false}",
}


@pytest.mark.parametrize("kind", [*TRANSLATORS, *GPTS])
def test_the_way_there_and_back(kind: str, tmp_path: Path) -> None:
    loaded = random_model((TRANSLATORS | GPTS)[kind])
    found = export(loaded, tmp_path / "out", "huggingface", count=6)
    assert found.proof is not None
    assert found.proof.passed, found.proof.to_text()
    back = reading.read(tmp_path / "out")
    mine, again = loaded.model.state_dict(), back.model.state_dict()
    assert mine.keys() == again.keys()
    for name, weight in mine.items():
        assert torch.equal(weight, again[name]), name
    assert back.tokenizer.encode_all(ENGLISH) == loaded.tokenizer.encode_all(ENGLISH)


@pytest.mark.parametrize("kind", ["marian", "pre-norm", "gpt"])
def test_transformers_cuts_and_joins_text_as_we_do(kind: str, tmp_path: Path) -> None:
    loaded = random_model((TRANSLATORS | GPTS)[kind])
    write_new(tmp_path / "out", lambda place: write_huggingface(loaded, place))
    theirs: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours, specials = loaded.tokenizer, loaded.tokenizer.specials
    for text in [*ENGLISH, "two  three", "<eos> is text", "<unk> too", "漢字", "zwölf elf"]:
        wanted = ours.encode(text)
        wanted = [*wanted, specials.end] if kind != "gpt" else [specials.start, *wanted]
        assert theirs(text).input_ids == wanted, text
        assert theirs.decode(wanted, skip_special_tokens=True) == ours.decode(wanted), text
    assert theirs.pad_token_id == specials.padding
    assert theirs.eos_token_id == specials.end


def test_two_vocabularies_go_out_in_two_folders(tmp_path: Path) -> None:
    loaded = random_model(f'{{{SIZES}, tie="target"}}', shared=False)
    assert loaded.tokenizer.size != loaded.tokenizer.source.size
    found = export(loaded, tmp_path / "out", "huggingface", count=4)
    assert found.proof is not None
    assert found.proof.passed
    source: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    target: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" / "target")
    assert source("twelve").input_ids[:-1] == loaded.tokenizer.source.encode("twelve")
    ids = loaded.tokenizer.encode("zwölf")
    assert target.decode(ids) == loaded.tokenizer.decode(ids)
    assert reading.read(tmp_path / "out").tokenizer.source.encode("nine") == loaded.tokenizer.source.encode("nine")


def test_a_trained_model_translates_the_same_there(words_model: Path, tmp_path: Path) -> None:
    loaded = folder.load_folder(words_model, CPU)
    found = export(loaded, tmp_path / "out", "huggingface", texts=[*ENGLISH, *GERMAN[:7]], count=20)
    assert found.proof is not None
    assert found.proof.same == {"greedy": (20, 20), "beam 4": (20, 20)}
    # As anybody would use it: nothing is told but the text.
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    asked = tokenizer(ENGLISH, return_tensors="pt", padding=True)
    texts = tokenizer.batch_decode(model.generate(**asked), skip_special_tokens=True)
    assert texts == regard.load(words_model, device="cpu").translate(ENGLISH)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_two_hundred_sentences_of_a_trained_model(norm: str, tmp_path: Path) -> None:
    changes = [f"model.norm={norm}", "training.steps=500", "training.validate_every=500", "device=cpu"]
    regard.train("demo", tmp_path / "model", changes)
    loaded = folder.load_folder(tmp_path / "model", CPU)
    found = export(loaded, tmp_path / "out", "huggingface", count=200)
    assert found.proof is not None
    assert found.proof.same == {"greedy": (200, 200), "beam 4": (200, 200)}, found.proof.to_text()


@pytest.mark.slow
def test_two_hundred_prompts_of_a_trained_language_model(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    lines = [f"{one} and {two} and {three}" for one in ENGLISH for two in ENGLISH for three in ENGLISH]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    changes = [f"data={{kind='text', text='{text}'}}", "tokenizer={kind='characters', vocabulary=60}",
               "model={kind='gpt', layers=2, d_model=48, d_ff=96, heads=2, max_positions=96, dropout=0.0}",
               "batch.tokens=1024", "training={steps=200, validate_every=200, save_every=200, average=1}",
               "training.optimiser.warmup=50"]  # fmt: skip
    recipe = build_recipe({}, changes, "letters")
    regard.train(recipe, tmp_path / "model")
    loaded = folder.load_folder(tmp_path / "model", CPU)
    found = export(loaded, tmp_path / "out", "huggingface", texts=lines[::10], count=200)
    assert found.proof is not None
    assert found.proof.texts == 200 or found.proof.texts == len(lines[::10])
    assert all(same == of for same, of in found.proof.same.values()), found.proof.to_text()


# ---- what is refused


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (f'{{{SIZES}, positions="alibi"}}', 'model.positions = "alibi"'),
        (f"{{{SIZES}, window=4}}", "model.window = 4"),
        (f"{{{SIZES}, qk_norm=true}}", "model.qk_norm = true"),
        ("{kind='gpt', layers=1, d_model=20, d_ff=28, heads=2, qk_norm=true}", "model.qk_norm = true"),
        (f"{{{SIZES}, d_k=3}}", "model.d_k = 3"),
        (f'{{{SIZES}, activation="swiglu"}}', 'model.activation = "swiglu"'),
        (f"{{{SIZES}, final_norm=true}}", "model.final_norm = true"),
        (f"{{{SIZES}, norm_epsilon=1e-6}}", "model.norm_epsilon = 1e-06"),
        (f"{{{SIZES}, reads_end=false}}", "model.reads_end = false"),
        ("{kind='gpt', layers=1, d_model=20, d_ff=28, heads=2, positions='sinusoidal'}", "GPT-2 has learned ones"),
        ("{kind='gpt', layers=1, d_model=20, d_ff=28, heads=2, norm='post'}", "GPT-2 has pre-norm"),
    ],
)
def test_what_cannot_go_out_is_named(model: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        export(random_model(model), tmp_path / "out", "huggingface")
    assert named in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_and_unused_tensors_are_all_listed(tmp_path: Path) -> None:
    foreign.gpt2(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["transformer.h.0.ln_1.bias"], weights["transformer.h.1.mlp.c_fc.weight"]
    weights |= {"extra.one": torch.zeros(2), "extra.two": torch.zeros(2)}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(DataError) as caught:
        reading.read(tmp_path)
    for name in (
        "2 missing",
        "h.0.ln_1.bias [24]",
        "h.1.mlp.c_fc.weight [24, 96]",
        "2 unused",
        "extra.one",
        "extra.two",
    ):
        assert name in str(caught.value)


def test_a_tied_matrix_that_is_not_the_same_is_an_error(tmp_path: Path) -> None:
    foreign.gpt2(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["transformer.wte.weight"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"lm_head.weight must be the same as transformer.wte.weight"):
        reading.read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("scale_attn_by_inverse_layer_idx", True), ("activation_function", "tanh"), ("model_type", "bert")],
)
def test_what_cannot_come_in_is_named(key: str, value: object, tmp_path: Path) -> None:
    foreign.gpt2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(UsageError, match=key):
        reading.read(tmp_path)


def test_generation_settings_say_how_we_search() -> None:
    loaded = random_model(TRANSLATORS["marian"])
    settings, specials = loaded.recipe.model, loaded.tokenizer.specials
    assert isinstance(settings, TransformerSettings)
    search = replace(loaded.recipe.search, beam=6, penalty="length", alpha=0.8)
    found = huggingface.generation_out(settings, specials, search)
    assert (found["num_beams"], found["length_penalty"], found["early_stopping"]) == (6, 0.8, "never")
    assert found["suppress_tokens"] == [specials.padding, specials.start]
    assert "num_beams" not in huggingface.generation_out(GPTSettings(), specials, search)


@pytest.mark.parametrize(("kind", "most"), [("pre-norm, learned", 79), ("gpt", 32)])
def test_whoever_loads_and_generates_is_not_warned(
    kind: str, most: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """Neither by the plain call nor by the one that says how much to write."""
    write_huggingface(random_model((TRANSLATORS | GPTS)[kind]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    writes = kind in GPTS
    assert [key for key, value in config.items() if value is None] == ([] if writes else ["forced_eos_token_id"])
    auto: Any = transformers.AutoModelForCausalLM if writes else transformers.AutoModelForSeq2SeqLM
    log = logging.getLogger("transformers")
    log.addHandler(caplog.handler)
    try:
        theirs = auto.from_pretrained(tmp_path)
        ids = torch.tensor([[5, 6, 7]])
        theirs.generation_config.eos_token_id = None  # so that the limit alone ends a text
        asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        lengths = [theirs.generate(**asked, **more).shape[1] for more in ({}, {"max_new_tokens": 2})]
    finally:
        log.removeHandler(caplog.handler)
    assert [length - (3 if writes else 1) for length in lengths] == [most, 2]
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [str(each.message) for each in recwarn]


def test_scores_agree_in_padded_rows(tmp_path: Path) -> None:
    torch.manual_seed(6)
    theirs = foreign.marian(tmp_path)
    ours = reading.read(tmp_path).model
    source = Tokens.padded([[5, 6, 7, 8, 0], [10, 0]], theirs.config.pad_token_id)
    target = torch.randint(1, 40, (2, 7))
    with torch.inference_mode():
        wanted = theirs(input_ids=source.ids_BT, attention_mask=source.places.segments_BT, decoder_input_ids=target)
        found = ours(Batch(source, Tokens.whole(target), target))
    torch.testing.assert_close(found, wanted.logits, atol=1e-4, rtol=0)
