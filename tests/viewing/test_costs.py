"""Costs are counted by running a model; here they are worked out by hand and must come out the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
import torch

from regard.batch import Tokens
from regard.models.bert import BertSettings
from regard.models.build import ModelSettings, build, build_any
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.decoder_only import DecoderOnlySettings
from regard.models.encoder import TransformerBodySettings
from regard.models.gpt import GPTSettings
from regard.models.interface import SequenceModel
from regard.models.labelling import ClassifierSettings, TaggerSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.recurrent_lm import RecurrentLMSettings
from regard.models.transformer import TransformerSettings
from regard.models.transformer_xl import TransformerXLSettings
from regard.models.wavenet import WaveNetSettings
from regard.models.xlnet import XLNetSettings
from regard.text.labels import FIRST
from regard.viewing.costs import SENTENCE, Flops, Memory, _Alive, count, tensors_of, usual_length

V = 1000
TRANSFORMER = TransformerSettings(encoder_layers=1, decoder_layers=2, d_model=64, d_ff=256, heads=4)
GPT = GPTSettings(layers=1, d_model=64, d_ff=256, heads=4, max_positions=32)
LSTM = RecurrentLMSettings(layers=2, d_model=20)
SMALL: dict[type[Any], ModelSettings] = {
    TransformerSettings: TRANSFORMER,
    GPTSettings: GPT,
    RecurrentSettings: RecurrentSettings(d_model=8),
    RecurrentLMSettings: LSTM,
    ByteNetSettings: ByteNetSettings(channels=8, dilations=(1, 2), repeats=1),
    ConvS2SSettings: ConvS2SSettings(encoder=((1, 8, 3),), decoder=((1, 8, 3),), embedding=8),
    DecoderOnlySettings: DecoderOnlySettings(layers=1, d_model=8, d_ff=8, heads=2, max_positions=32),
    TransformerXLSettings: TransformerXLSettings(layers=1, d_model=8, d_ff=8, heads=2, memory=32),
    XLNetSettings: XLNetSettings(layers=1, d_model=8, d_ff=8, heads=2),
    WaveNetSettings: WaveNetSettings(channels=8, skip_channels=8, dilations=(1, 2), repeats=1),
}
BODY = TransformerBodySettings(layers=1, d_model=64, d_ff=256, heads=4)
READERS: dict[type[Any], ModelSettings] = {
    ClassifierSettings: ClassifierSettings(body=BODY),
    TaggerSettings: TaggerSettings(body=BODY),
    BertSettings: BertSettings(layers=1, d_model=64, d_ff=256, heads=4, max_positions=32),
}


def test_every_model_is_among_them() -> None:
    assert SMALL.keys() | READERS.keys() == set(get_args(ModelSettings))


def meta(settings: ModelSettings, vocabulary: int = V) -> SequenceModel[Any]:
    with torch.device("meta"):
        return build(settings, vocabulary)


@cache  # many tests ask about the same model
def costs(settings: ModelSettings, length: int = 10, tokens: int = 40) -> tuple[Flops, Memory]:
    return count(meta(settings), length, tokens, beams=4)


def test_training_flops_of_a_transformer() -> None:
    d, f, n = 64, 256, 10
    # A matrix is met once forward and twice backward (for its input and for itself); attention, which is made of two
    # products, makes its weights anew on the way back, and so meets its two 1 + 2.5 times.
    attention, attend, feedforward = 4 * d * d, 2 * n * d, 2 * d * f
    matrices = (attention + feedforward) + 2 * (2 * attention + feedforward) + d * V
    attends = attend + 2 * 2 * attend
    assert costs(TRANSFORMER)[0].training_token == 2 * (3 * matrices) + int(2 * 3.5 * attends)


def test_decoding_flops_of_a_transformer() -> None:
    d, f, n = 64, 256, 10
    flops = costs(TRANSFORMER)[0]
    encoder = n * (4 * d * d + 2 * d * f + 2 * n * d)
    memory = n * 2 * 2 * d * d
    assert flops.decoding_source == 2 * (encoder + memory)
    # Keys and values of the source are made already: cross-attention has two of its four matrices left.
    layer = (4 + 2) * d * d + 2 * d * f + 2 * n * d + 2 * n * d
    assert flops.decoding_token == 2 * (2 * layer + d * V)
    assert (flops.source_length, flops.target_length) == (n, n)


def test_a_language_model_takes_six_flops_a_parameter_and_token() -> None:
    model = meta(GPTSettings(layers=2, max_positions=32))
    flops, _ = count(model, length=16, tokens=16, beams=1)
    # Position embeddings are looked up, not multiplied; biases are added; attention to 16 tokens is little.
    parameters = sum(weight.numel() for weight in model.parameters()) - 32 * 768
    assert flops.training_token / 6 == pytest.approx(parameters, rel=0.01)
    assert flops.decoding_token / 2 == pytest.approx(parameters, rel=0.01)
    assert (flops.source_length, flops.decoding_source) == (None, 0)


def test_experts_that_nobody_asks_cost_memory_and_no_flops() -> None:
    d, f, layers = 64, 256, 3
    (plain, _), (asked, memory) = costs(TRANSFORMER), costs(replace(TRANSFORMER, experts=4))
    (many, more_memory) = costs(replace(TRANSFORMER, experts=8))
    # In each layer a second expert, the gate and its noise, and the biases: they are matrix products here, with a
    # matrix that says who asks whom and learns nothing.
    four_more = layers * (6 * 2 * 4 * d + 4 * 2 * 4 * (f + d))
    assert asked.training_token - plain.training_token == 6 * layers * 2 * d * f + four_more
    assert many.training_token - asked.training_token == four_more
    assert more_memory.weights - memory.weights == 4 * layers * 4 * (2 * d * f + f + d + 2 * d)


def test_flops_of_an_lstm() -> None:
    d, n = 20, 3
    matrices = 2 * 8 * d * d + d * V
    flops, _ = costs(LSTM, length=n, tokens=6)
    assert flops.decoding_token == 2 * matrices
    # Nobody asks for the gradient of the zero state that each of the two layers starts in.
    assert flops.training_token == (2 * 3 * matrices * n - 2 * 2 * 4 * d * d) // n


@pytest.mark.parametrize("kind", SMALL)
def test_every_kind_of_model_can_be_counted(kind: type[Any]) -> None:
    flops, memory = costs(SMALL[kind], length=3, tokens=6)
    assert flops.training_token > flops.decoding_token > 0
    assert (memory.rows, memory.beams) == (2, 4)
    assert memory.activations > 0 < memory.cache
    assert memory.training > memory.weights + memory.moments + memory.activations
    assert memory.decoding == memory.weights + 4 * memory.cache


def test_what_writes_nothing_reads_a_text_and_keeps_nothing() -> None:
    d, f, n, labels = 64, 256, 10, 7
    layer, attend = 4 * d * d + 2 * d * f, 2 * n * d
    # A tagger answers at each token, a classifier once, after a product that takes the mean; BERT has a matrix more.
    once = {ClassifierSettings: d * n + d * labels, TaggerSettings: n * d * labels, BertSettings: n * (d * d + d * V)}
    for kind, settings in READERS.items():
        with torch.device("meta"):
            model = build_any(settings, V if kind is BertSettings else FIRST + labels, V)
        flops, memory = count(model, n, 4 * n, beams=4)
        assert flops.decoding_source == 2 * (n * (layer + attend) + once[kind])
        assert flops.training_token > 2 * flops.decoding_source / n
        assert (flops.source_length, flops.target_length, flops.decoding_token) == (None, n, 0)
        assert (memory.rows, memory.beams, memory.cache, memory.decoding) == (4, 0, 0, memory.weights)
        assert memory.training > memory.weights + memory.moments + memory.activations
        assert usual_length(model) == (32 if kind is BertSettings else SENTENCE)


def test_labels_are_given_to_sentences_however_many_positions_there_are() -> None:
    with torch.device("meta"):
        models = [
            build_any(TaggerSettings(body=replace(BODY, positions="learned", max_positions=most)), FIRST + 2, V)
            for most in (7, 512)
        ]
    assert [usual_length(model) for model in models] == [7, SENTENCE]


def test_hard_attention_can_be_counted() -> None:
    assert costs(RecurrentSettings(d_model=8, hard=True), length=3)[0].training_token > 0


def test_memory_of_weights_and_what_training_adds() -> None:
    weights = sum(weight.numel() for weight in meta(TRANSFORMER).parameters())
    memory = costs(TRANSFORMER)[1]
    assert (memory.weights, memory.gradients, memory.moments) == (4 * weights, 4 * weights, 8 * weights)


def test_memory_of_the_cache() -> None:
    n, keys_and_values, position = 10, 2 * 64 * 4, 8
    assert costs(TRANSFORMER)[1].cache == (n + n) * (2 * keys_and_values + position)
    # An LSTM keeps an output and a cell in each layer, however long the text.
    assert costs(LSTM, length=3, tokens=6)[1].cache == costs(LSTM, length=1)[1].cache == 2 * 2 * 20 * 4


def test_keys_that_are_values_are_kept_once() -> None:
    dot = RecurrentSettings(d_model=16, attention="dot")
    general = RecurrentSettings(d_model=16, attention="general")
    assert costs(general, length=2)[1].cache - costs(dot, length=2)[1].cache == 2 * 16 * 4


def test_activations_are_those_of_all_rows_and_none_of_the_weights() -> None:
    one, two, four = (costs(TRANSFORMER, tokens=10 * rows)[1].activations for rows in (1, 2, 4))
    # What does not depend on the rows (positions, scalars) is the same, however many there are.
    assert four - two == 2 * (two - one)
    assert one - (two - one) < 0.02 * one


def test_what_comes_and_goes_is_alive_in_between() -> None:
    with _Alive() as alive:
        one = torch.zeros(10)
        view = one[2:]
        two = one + 1
        assert (alive.now, alive.most) == (80, 80)
        del one, two
        assert (alive.now, alive.most) == (40, 80)  # the view keeps what it looks at
        del view
        torch.zeros(5)
    assert (alive.now, alive.most) == (0, 80)


def test_at_most_the_logits_their_gradient_and_one_more_are_alive() -> None:
    # With next to no model, training is all vocabulary: log-probabilities, their gradient, that of the logits.
    settings = GPTSettings(layers=1, d_model=1, d_ff=1, heads=1, max_positions=4, dropout=0.0)
    model = meta(settings, vocabulary=100_000)
    _, memory = count(model, length=4, tokens=400, beams=1)
    logits = 400 * 100_000 * 4
    assert memory.activations == pytest.approx(logits, rel=0.02)
    assert memory.training == pytest.approx(3 * logits, rel=0.02)


def test_attention_weights_are_not_kept() -> None:
    short, long = (costs(TRANSFORMER, length=length, tokens=400)[1].activations for length in (10, 400))
    # The same tokens in one long row; the weights of five attentions and four heads would be 13 MB more.
    assert long == pytest.approx(short, rel=0.01)
    assert long < 13e6


def test_activations_are_at_least_what_the_layers_hand_on() -> None:
    # Each feed-forward network keeps its inner layer; the loss keeps a log-probability of each token.
    assert costs(TRANSFORMER)[1].activations > 4 * 40 * (3 * 256 + V)


def test_lengths() -> None:
    assert usual_length(meta(TRANSFORMER)) == SENTENCE
    assert usual_length(meta(LSTM)) == SENTENCE
    assert usual_length(meta(GPT)) == 32
    learned = TransformerSettings(d_model=8, heads=1, d_ff=8, positions="learned", max_positions=7)
    assert usual_length(meta(learned)) == 7
    one = costs(GPT, length=1, tokens=0)
    assert one[0].decoding_token < costs(GPT, length=3, tokens=6)[0].decoding_token
    assert one[1].rows == 1


def test_who_reads_a_source() -> None:
    found = {kind for kind, settings in SMALL.items() if meta(settings).reads_source}
    assert found == {TransformerSettings, DecoderOnlySettings, RecurrentSettings, ByteNetSettings, ConvS2SSettings}


def test_the_model_is_left_without_gradients() -> None:
    model = meta(GPT)
    count(model, length=3, tokens=6, beams=1)
    assert all(weight.grad is None for weight in model.parameters())


def test_tensors_of_a_state_are_found_at_any_depth() -> None:
    model = build(TransformerSettings(encoder_layers=1, decoder_layers=2, d_model=8, d_ff=8, heads=1), 9)
    state = model.eval().start(Tokens.whole(torch.zeros(1, 3, dtype=torch.long)), 1)
    _, state = model.step(torch.zeros(1, 1, dtype=torch.long), state)
    # Two layers of two pairs of keys and values, and the positions of source and target.
    assert len(list(tensors_of(state))) == 2 * 2 * 2 + 2
