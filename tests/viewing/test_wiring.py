"""The drawing shows what a model really calls, in the order in which it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from regard.models.bert import Bert, BertSettings
from regard.models.build import ModelSettings, build, build_any
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.labelling import ClassifierSettings, LabelModel, TaggerSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.recurrent_lm import RecurrentLMSettings
from regard.models.transformer import TransformerSettings
from regard.models.transformer_xl import TransformerXLSettings
from regard.models.wavenet import WaveNetSettings
from regard.models.xlnet import XLNetSettings
from regard.viewing.wiring import SUMS, Box, Part, draw, wiring

TRANSFORMER = TransformerSettings(encoder_layers=2, decoder_layers=3, d_model=8, d_ff=12, heads=2)
TINY_GPT = GPTSettings(layers=2, d_model=8, d_ff=12, heads=2, max_positions=5)


def meta(settings: ModelSettings) -> SequenceModel[Any]:
    with torch.device("meta"):
        return build(settings, 9)


def names(box: Box) -> list[str]:
    return [part.name for part in box.parts]


def test_the_transformer_of_the_paper() -> None:
    source, target = wiring(meta(TRANSFORMER))
    around = Part("add, norm")
    attention, feedforward = Part("self-attention", "2 × 4"), Part("feed-forward", "8 → 12 → 8")
    embedding = Box((Part("embedding", "9 → 8"), Part("sinusoids")))
    cross = Part("cross-attention", "2 × 4")
    assert source == [embedding, Box((attention, around, feedforward, around), times=2)]
    assert target == [
        embedding,
        Box((attention, around, cross, around, feedforward, around), times=3),
        Box((Part("output, tied", "8 → 9"), Part("softmax"))),
    ]


def test_where_the_norms_are() -> None:
    source, target = wiring(meta(replace(TRANSFORMER, norm="pre")))
    attend, feed = ["norm", "self-attention", "add"], ["norm", "feed-forward", "add"]
    assert names(source[1]) == attend + feed
    assert names(target[1]) == [*attend, "norm", "cross-attention", "add", *feed]
    assert names(source[2]) == names(target[2]) == ["norm"]


@pytest.mark.parametrize(
    ("tie", "embedding", "output"),
    [
        ("all", "embedding", "output, tied"),
        ("target", "embedding", "output, tied"),
        ("embeddings", "embedding", "output"),
        ("none", "embedding", "output"),
    ],
)
def test_what_is_tied(tie: Any, embedding: str, output: str) -> None:
    source, target = wiring(meta(replace(TRANSFORMER, tie=tie)))
    assert (names(source[0])[0], names(target[-1])[0]) == (embedding, output)


@pytest.mark.parametrize(
    ("positions", "note"),
    [("rotary", "rotary positions"), ("relative", "relative positions, reach 7"), ("alibi", "alibi")],
)
def test_positions_inside_attention_and_windows_are_noted(positions: Any, note: str) -> None:
    model = meta(replace(TRANSFORMER, positions=positions, reach=7, window=3))
    for side in wiring(model):
        assert side[1].parts[0] == Part("self-attention", "2 × 4", notes=(note, "window of 3"))
    assert wiring(model)[1][1].parts[2] == Part("cross-attention", "2 × 4")
    drawing = draw(model)
    assert drawing.count(note) == drawing.count("window of 3") == 2
    right = [line.rstrip() for line in drawing.split("\n") if line.count("│") >= 2 and note in line]
    assert len({len(line) for line in right}) == 1


def test_norms_of_queries_and_keys_are_noted_and_have_no_line_of_their_own() -> None:
    _, target = wiring(meta(replace(TRANSFORMER, qk_norm=True, positions="rotary")))
    plain = wiring(meta(replace(TRANSFORMER, positions="rotary")))[1]
    assert [part.name for part in target[1].parts] == [part.name for part in plain[1].parts]
    assert target[1].parts[0].notes == ("queries and keys normed", "rotary positions")
    assert target[1].parts[2].notes == ("queries and keys normed",)


def test_a_gated_feed_forward_says_that_it_makes_two() -> None:
    parts = wiring(meta(replace(TINY_GPT, activation="swiglu")))[1][1].parts
    assert Part("feed-forward", "8 → 2 × 12 → 8") in parts


def test_experts_are_counted() -> None:
    parts = wiring(meta(replace(TINY_GPT, experts=5)))[1][1].parts
    assert Part("feed-forward", "8 → 12 → 8", notes=("2 of 5 experts",)) in parts


def test_gnmt_and_deep_att_are_drawn_layer_by_layer() -> None:
    gnmt = RecurrentSettings(
        cell="lstm", encoder_layers=3, decoder_layers=3, d_model=8, bidirectional="first", links="residual",
        asks="bottom", feed_all=True,
    )  # fmt: skip
    source, target = wiring(meta(gnmt))
    read = [(part.name, part.sizes, box.times) for box in source for part in box.parts]
    assert ("LSTM, left to right", "8 → 4", 1) in read
    assert ("LSTM, right to left", "8 → 4", 1) in read
    assert ("LSTM, left to right", "8 → 8", 2) in read
    # Residual links go around all layers but the lowest, and all of the decoder read what was looked at.
    assert [(names(box), box.times) for box in source[1:3]] == [
        (["LSTM, left to right", "LSTM, right to left"], 1),
        (["LSTM, left to right", "add"], 2),
    ]
    layer = Part("LSTM", "16 → 8", notes=("reads what attention found, too",))
    assert target[2:4] == [Box((layer,)), Box((layer, Part("add")), times=2)]
    deep_att = replace(gnmt, bidirectional="alternating", links="fast-forward", feed_all=False)
    source, _ = wiring(meta(deep_att))
    columns = source[1]
    assert columns.times == 2
    assert [part.sizes for part in columns.parts if part.name == "LSTM"] == ["8 → 4", "4 → 4", "4 → 4"]


def test_a_bert_reads_a_text_and_has_an_output_of_its_own() -> None:
    settings = BertSettings(layers=3, d_model=8, d_ff=12, heads=2, max_positions=5)
    with torch.device("meta"):
        source, target = wiring(Bert(settings, 9))
    assert source == []
    around, sides = Part("add, norm"), ("sees both sides",)
    hides = Part("embedding", "10 → 8", notes=("one of them hides others",))
    assert target[0] == Box((hides, Part("positions", "5 → 8"), Part("norm")))
    attend, feed = Part("self-attention", "2 × 4", notes=sides), Part("feed-forward", "8 → 12 → 8")
    assert target[1] == Box((attend, around, feed, around), times=3)
    assert [names(box) for box in target[2:]] == [["transform"], ["norm"], ["output, tied", "softmax"]]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_xlnet_has_two_streams(norm: Any) -> None:
    """Each goes through every layer once; the query asks the content, and has the last word."""
    model = meta(XLNetSettings(layers=3, d_model=8, d_ff=12, heads=2, norm=norm))
    content, query = wiring(model)
    assert names(query[-1]) == ["output, tied", "softmax"]
    assert [names(content[0]), names(query[0])] == [["embedding"], ["query"]]
    assert content[1].times == query[1].times == 3
    asked = [name.replace("self-attention", "attention to content") for name in names(content[1])]
    assert names(query[1]) == asked
    assert asked.count("attention to content") == asked.count("feed-forward") == 1
    assert len([name for name in asked if name in SUMS]) == 2
    lines = draw(model).split("\n")
    assert lines[0].split() == ["content", "query"]
    assert any("─▶ │ attention to content" in line for line in lines)


def test_the_memory_of_a_transformer_xl_is_noted() -> None:
    settings = TransformerXLSettings(layers=1, d_model=8, d_ff=12, heads=2, memory=7)
    notes = [part.notes for part in wiring(meta(settings))[1][1].parts if part.name == "self-attention"]
    assert notes == [("relative positions, waves", "and 7 tokens before the row")]


def test_hard_attention_and_input_feeding_are_noted() -> None:
    settings = RecurrentSettings(d_model=8, attention="dot", hard=True, input_feeding=True)
    source, target = wiring(meta(settings))
    notes = {part.name: part.notes for box in target for part in box.parts}
    assert notes["attention to source"] == ("looks at one state (hard)",)
    assert notes["combine"] == ("read by the next step, too",)
    assert names(source[-1]) == ["summary", "start of the decoder"]
    _, plain = wiring(meta(replace(settings, hard=False, input_feeding=False)))
    assert [part.notes for box in plain for part in box.parts if part.notes] == [("looks at all states",)]


def test_matrices_tied_by_hand_are_seen() -> None:
    settings = ConvS2SSettings(encoder=((1, 8, 3),), decoder=((1, 8, 3),), embedding=8, tied=True)
    assert names(wiring(meta(settings))[1][-1]) == ["output, tied", "softmax"]


def test_a_language_model_has_one_side() -> None:
    model = meta(TINY_GPT)
    source, target = wiring(model)
    assert source == []
    assert target[0] == Box((Part("embedding", "9 → 8"), Part("positions", "5 → 8")))
    assert target[1].times == 2
    assert draw(model).startswith("  tokens\n")


def test_attention_stands_before_or_after_the_cell() -> None:
    bahdanau = RecurrentSettings(d_model=8)
    luong = replace(bahdanau, attention="general", bidirectional=False)
    before, after = (
        [names(box)[0] for box in wiring(meta(settings))[1]][1:4] for settings in (bahdanau, luong)
    )  # fmt: skip
    assert before == ["attention to source", "GRU", "combine"]
    assert after == ["GRU", "attention to source", "combine"]
    assert names(wiring(meta(bahdanau))[0][1]) == ["GRU, left to right", "GRU, right to left"]


def test_links_belong_to_their_layers() -> None:
    settings = RecurrentLMSettings(layers=3, d_model=8, links="fast-forward")
    assert wiring(meta(settings))[1][1] == Box((Part("LSTM", "8 → 8"), Part("join", "16 → 8")), times=3)


def test_dilations_are_listed_in_one_box() -> None:
    model = meta(ByteNetSettings(channels=8, dilations=(1, 2, 4), repeats=2))
    source, target = wiring(model)
    convolutions = [part for box in (source[1], target[1]) for part in box.parts if "convolution" in part.name]
    assert [part.name for part in convolutions] == ["convolution", "causal convolution"]
    assert {part.dilations for part in convolutions} == {(1, 2, 4, 1, 2, 4)}
    assert draw(model).count("dilation 1, 2, 4 ") == 2
    many = draw(meta(WaveNetSettings(channels=8, dilations=tuple(2**n for n in range(8)), repeats=1)))
    assert "dilation 1, 2, 4 … 64" in many


def test_layers_of_other_sizes_get_other_boxes() -> None:
    settings = ConvS2SSettings(encoder=((1, 8, 3),), decoder=((2, 8, 3), (1, 12, 1)), embedding=8)
    model = meta(settings)
    boxes = [box for box in wiring(model)[1] if "causal convolution" in names(box)]
    assert [(box.times, box.parts[0].sizes) for box in boxes] == [(2, "3 × 8 → 16"), (1, "1 × 8 → 24")]
    assert draw(model).count("─▶") == 2


def test_where_nothing_attends_the_source_enters_the_first_layer() -> None:
    settings = RecurrentSettings(d_model=8, attention="none", context="last", bidirectional=False)
    arrow = next(line for line in draw(meta(settings)).split("\n") if "─▶" in line)
    assert arrow.partition("─▶")[2].startswith(" │ GRU ")


def test_a_part_without_a_name_shows_its_own_parts() -> None:
    class Strange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 3), nn.Linear(3, 8)

        def forward(self, x_BTD: Tensor) -> Tensor:
            return self.second(self.first(x_BTD))

    model = meta(TINY_GPT)
    assert isinstance(model, GPT)
    for layer in model.layers:
        layer.feedforward = Strange().to("meta")
    parts = wiring(model)[1][1].parts
    assert parts[3:] == (Part("norm"), Part("first", "8 → 3"), Part("second", "3 → 8"), Part("add"))


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(ModelSettings) if kind not in (ClassifierSettings, TaggerSettings)]
)
def test_every_kind_of_model_can_be_drawn(kind: type[Any]) -> None:
    with torch.device("meta"):
        model = build_any(kind(), 50_000)
    assert not isinstance(model, LabelModel)
    drawing = draw(model)
    lines = drawing.split("\n")
    assert max(map(len, lines)) <= 100
    # Whatever opens is closed below it, in the same columns.
    for top, bottom in (("┌───┴", "└───┬"), ("┐", "┘")):
        assert drawing.count(top) - drawing.count(bottom) in (-1, 0, 1)
    sides = [[place for place, sign in enumerate(line) if sign in "│┐┘"] for line in lines]
    edges = {max(places) for places in sides if len(places) >= 2}
    assert len(edges) <= 2
    assert "softmax" in lines[-3]
    assert lines[-1].endswith("▼")
