"""The contracts hold for every setting, not only for those in the zoo: hypothesis draws sizes and kinds of parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regard.models.build import ModelSettings, build
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.decoder_only import DecoderOnlySettings
from regard.models.gpt import GPTSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.recurrent_lm import RecurrentLMSettings
from regard.models.transformer import TransformerSettings
from regard.models.transformer_xl import TransformerXLSettings
from regard.models.wavenet import WaveNetSettings
from regard.models.xlnet import XLNetSettings

from . import contracts
from .cases import cases
from .contracts import Contract
from .zoo import LEARNED, Entry

CONTRACTS: list[Contract] = [
    contracts.step_by_step_is_all_at_once,
    contracts.a_prefix_is_its_steps,
    contracts.the_future_never_leaks,
    contracts.padding_is_invisible,
    contracts.padding_is_invisible_to_steps,
    contracts.select_takes_rows,
    contracts.a_state_is_a_value,
]

few = st.integers(1, 3)
width = st.integers(5, 12)
dilations = st.lists(few, min_size=1, max_size=3).map(tuple)
stack = st.lists(st.tuples(st.integers(1, 2), st.integers(2, 8), st.sampled_from([1, 3, 5])), min_size=1, max_size=2)
layer: dict[str, Any] = {
    "d_model": width,
    "d_ff": st.integers(1, 9),
    "heads": few,
    "d_k": st.sampled_from([2, 4]),
    "d_v": few,
    "norm": st.sampled_from(["post", "pre"]),
    "activation": st.sampled_from(["relu", "relu2", "gelu", "gelu-tanh", "swiglu"]),
    "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "relative", "alibi"]),
    "max_positions": st.just(LEARNED),
    "reach": few,
    "qk_norm": st.booleans(),
    "window": st.none() | st.integers(1, 4),
}
tie = st.sampled_from(["all", "target", "embeddings", "none"])
cell = st.sampled_from(["rnn", "gru", "lstm"])
links = st.sampled_from(["plain", "residual", "fast-forward"])


@st.composite
def recurrent(draw: st.DrawFn) -> RecurrentSettings:
    """Settings go together or are refused; what is refused is drawn again.

    Hard attention is left to the zoo: where two positions score alike, rounding decides which of them it takes.
    """
    try:
        return RecurrentSettings(
            cell=draw(cell),
            links=draw(links),
            encoder_layers=draw(few),
            decoder_layers=draw(few),
            d_model=draw(width),
            bidirectional=draw(st.booleans()),
            context=draw(st.sampled_from(["last", "projected", "mean"])),
            attention=draw(st.sampled_from(["additive", "general", "dot", "scaled", "none"])),
            attend=draw(st.sampled_from([None, "before", "after"])),
            input_feeding=draw(st.booleans()),
            feed_context=draw(st.booleans()),
            tied=draw(st.booleans()),
        )
    except ValueError:
        assume(False)
        raise


KINDS: dict[str, st.SearchStrategy[ModelSettings]] = {
    "transformer": st.builds(TransformerSettings, encoder_layers=few, decoder_layers=few, tie=tie, **layer),
    "gpt": st.builds(GPTSettings, layers=few, tied=st.booleans(), **layer),
    "decoder-only": st.builds(DecoderOnlySettings, layers=few, tied=st.booleans(), **layer),
    "recurrent": recurrent(),
    "recurrent-lm": st.builds(
        RecurrentLMSettings, cell=cell, links=links, layers=few, d_model=width, tied=st.booleans()
    ),
    "bytenet": st.builds(
        ByteNetSettings,
        channels=st.integers(3, 6),
        encoder_kernel=st.sampled_from([1, 3, 5]),
        decoder_kernel=few,
        dilations=dilations,
        repeats=st.integers(1, 2),
        stretch=st.sampled_from([1.0, 1.2, 1.33, 2.0]),
        extra_columns=st.integers(0, 2),
    ),
    "convs2s": st.builds(
        ConvS2SSettings,
        encoder=stack.map(tuple),
        decoder=stack.map(tuple),
        embedding=st.integers(3, 9),
        max_positions=st.sampled_from([2, 1024]),
        tied=st.booleans(),
    ),
    "transformer-xl": st.builds(
        TransformerXLSettings,
        **{**layer, "positions": st.sampled_from(["relative", "alibi", "relative-waves"]), "window": st.none()},
        layers=few,
        tied=st.booleans(),
        memory=st.integers(1, 6),
    ),
    "xlnet": st.builds(
        XLNetSettings,
        **{
            **layer,
            "positions": st.sampled_from(["rotary", "relative", "alibi", "relative-waves"]),
            "window": st.none(),
        },
        layers=few,
    ),
    "wavenet": st.builds(
        WaveNetSettings,
        channels=st.integers(2, 6),
        skip_channels=st.integers(2, 6),
        kernel=few,
        dilations=dilations,
        repeats=st.integers(1, 2),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 2)
@given(st.data())
def test_any_size_keeps(kind: str, data: st.DataObject) -> None:
    chosen = data.draw(KINDS[kind])
    model = Entry(lambda vocabulary: build(chosen, vocabulary)).model(vocabulary=8, seed=0)
    case = data.draw(cases(model.reads_source, words=(5,), longest=5))
    checked = [*CONTRACTS, *([contracts.packed_is_alone] if model.packs_sentences else [])]
    if any(hasattr(module, "watcher") for module in model.modules()):
        checked.append(contracts.watched_is_fused)
    for contract in checked:
        contract(model, case)


def test_the_kinds_are_all_kinds() -> None:
    kinds = {settings.__dataclass_fields__["kind"].default for settings in ModelSettings.__args__}
    assert kinds - {"bert", "classifier", "tagger"} == KINDS.keys()  # these have contracts of their own
