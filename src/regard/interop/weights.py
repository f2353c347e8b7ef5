"""The same matrices under two names: ours, and those of GPT-2 and of Marian (BART's, which Blenderbot and fairseq use).

Shapes: V vocabulary, D model, F feed-forward, N positions.

GPT-2 stores its matrices [in, out], with queries, keys and values in one. Marian has one matrix for each.

Marian's waves stand as [sines | cosines], ours alternate, as the paper writes them. Which coordinate of the model is
called the first makes no difference as long as all matrices agree on it: every vector that is added to the residual
stream, and every matrix that reads it, is put into the other order. Norms and products are sums over all coordinates,
so nothing changes but the order of summation; and the way back gives the very same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.folder import Loaded
from regard.interop.tensors import Tensors
from regard.layers.attention import Attention
from regard.layers.positions import SinusoidalPositions
from regard.models.gpt import GPT, GPTSettings
from regard.models.transformer import Transformer, TransformerSettings

State = dict[str, Tensor]
PARTS = ("weight", "bias")


def as_trained(loaded: Loaded) -> Transformer | GPT:
    """The model, if its weights are those it was trained with; a precision lays them out otherwise."""
    model = loaded.model
    assert isinstance(model, Transformer | GPT)
    if any(isinstance(module, Attention) and module.joint is not None for module in model.modules()):
        raise UsageError("export: needs a model as it was trained, but this one was converted to a precision.")
    return model


# ---- parts that look alike everywhere


def norm_in(theirs: Tensors, other: str, mine: str, width: int) -> State:
    """A norm under our name."""
    return {f"{mine}.{part}": theirs.take(f"{other}.{part}", width) for part in PARTS}


def linear_in(theirs: Tensors, other: str, mine: str, outputs: int, inputs: int) -> State:
    """A linear map under our name, where it is stored as ours: [out, in]."""
    return {
        f"{mine}.weight": theirs.take(f"{other}.weight", outputs, inputs),
        f"{mine}.bias": theirs.take(f"{other}.bias", outputs),
    }


# ---- GPT-2


def gpt2_in(theirs: Tensors, settings: GPTSettings, vocabulary: int) -> State:
    """GPT-2's tensors under our names; raises if there are others, or too few."""
    width, inner, root = settings.d_model, settings.d_ff, gpt2_root(theirs)
    state = {"embedding.table.weight": theirs.take(f"{root}wte.weight", vocabulary, width)}
    state["embedding.positions.table.weight"] = theirs.take(f"{root}wpe.weight", settings.max_positions, width)
    state |= norm_in(theirs, f"{root}ln_f", "norm", width)
    for number in range(settings.layers):
        block, ours = f"{root}h.{number}", f"layers.{number}"
        joint = {"weight": theirs.take(f"{block}.attn.c_attn.weight", width, 3 * width).T}
        joint["bias"] = theirs.take(f"{block}.attn.c_attn.bias", 3 * width)
        for part, value in joint.items():
            state[f"{ours}.attention.query.{part}"] = value[:width]
            state[f"{ours}.attention.key_value.{part}"] = value[width:]
        for name, other, sizes in (
            ("attention.output", "attn.c_proj", (width, width)),
            ("feedforward.inner", "mlp.c_fc", (width, inner)),
            ("feedforward.outer", "mlp.c_proj", (inner, width)),
        ):
            state[f"{ours}.{name}.weight"] = theirs.take(f"{block}.{other}.weight", *sizes).T
            state[f"{ours}.{name}.bias"] = theirs.take(f"{block}.{other}.bias", sizes[1])
        state |= norm_in(theirs, f"{block}.ln_1", f"{ours}.around_attention.norm", width)
        state |= norm_in(theirs, f"{block}.ln_2", f"{ours}.around_feedforward.norm", width)
        theirs.skip(f"{block}.attn.bias", f"{block}.attn.masked_bias")  # masks, stored by older versions
    if settings.tied:
        theirs.skip_copies(f"{root}wte.weight", "lm_head.weight")
    else:
        state["output.weight"] = theirs.take("lm_head.weight", vocabulary, width)
    theirs.finish()
    return state


def gpt2_root(theirs: Tensors) -> str:
    """What stands before every name: nothing, in the published files."""
    return "transformer." if any(name.startswith("transformer.") for name in theirs.names()) else ""


def gpt2_out(ours: Mapping[str, Tensor], settings: GPTSettings) -> State:
    """A GPT's state under GPT-2's names."""
    theirs = {"transformer.wte.weight": ours["embedding.table.weight"]}
    theirs["transformer.wpe.weight"] = ours["embedding.positions.table.weight"]
    theirs |= {f"transformer.ln_f.{part}": ours[f"norm.{part}"] for part in PARTS}
    for number in range(settings.layers):
        block, mine = f"transformer.h.{number}", f"layers.{number}"
        for part in PARTS:
            joint = torch.cat([ours[f"{mine}.attention.{name}.{part}"] for name in ("query", "key_value")])
            theirs[f"{block}.attn.c_attn.{part}"] = joint.T.contiguous() if part == "weight" else joint
            for other, name in (("ln_1", "around_attention"), ("ln_2", "around_feedforward")):
                theirs[f"{block}.{other}.{part}"] = ours[f"{mine}.{name}.norm.{part}"]
        for other, name in (
            ("attn.c_proj", "attention.output"),
            ("mlp.c_fc", "feedforward.inner"),
            ("mlp.c_proj", "feedforward.outer"),
        ):
            theirs[f"{block}.{other}.weight"] = ours[f"{mine}.{name}.weight"].T.contiguous()
            theirs[f"{block}.{other}.bias"] = ours[f"{mine}.{name}.bias"]
    if not settings.tied:
        theirs["lm_head.weight"] = ours["output.weight"]
    return theirs


# ---- the layers of Marian, Blenderbot and fairseq


def bart_layers_in(theirs: Tensors, settings: TransformerSettings, root: str = "model.") -> State:
    """All layers of both stacks, and the norms behind them where there are any, under our names."""
    state: State = {}
    width = settings.d_model
    for side, ours, layers in (
        ("encoder", "encoder.layers", settings.encoder_layers),
        ("decoder", "decoder", settings.decoder_layers),
    ):
        for number in range(layers):
            state |= _bart_layer_in(theirs, f"{root}{side}.layers.{number}", f"{ours}.{number}", settings)
    if settings.ends_in_norm:
        state |= norm_in(theirs, f"{root}encoder.layer_norm", "encoder.norm", width)
        state |= norm_in(theirs, f"{root}decoder.layer_norm", "decoder_norm", width)
    return state


def _bart_layer_in(theirs: Tensors, other: str, mine: str, settings: TransformerSettings) -> State:
    width, inner = settings.d_model, settings.d_ff
    state: State = {}
    for attention, name in _attentions(mine):
        for part, sizes in (("weight", (width, width)), ("bias", (width,))):
            query, key, value, output = (
                theirs.take(f"{other}.{attention}.{which}_proj.{part}", *sizes) for which in ("q", "k", "v", "out")
            )
            state[f"{mine}.{name}.query.{part}"] = query
            state[f"{mine}.{name}.key_value.{part}"] = torch.cat([key, value])
            state[f"{mine}.{name}.output.{part}"] = output
        state |= norm_in(theirs, f"{other}.{attention}_layer_norm", f"{mine}.around_{name}.norm", width)
    state |= linear_in(theirs, f"{other}.fc1", f"{mine}.feedforward.inner", inner, width)
    state |= linear_in(theirs, f"{other}.fc2", f"{mine}.feedforward.outer", width, inner)
    return state | norm_in(theirs, f"{other}.final_layer_norm", f"{mine}.around_feedforward.norm", width)


def bart_layers_out(ours: Mapping[str, Tensor], settings: TransformerSettings, root: str = "model.") -> State:
    """The way back: our layers under BART's names."""
    theirs: State = {}
    for side, stack, layers in (
        ("encoder", "encoder.layers", settings.encoder_layers),
        ("decoder", "decoder", settings.decoder_layers),
    ):
        for number in range(layers):
            other, mine = f"{root}{side}.layers.{number}", f"{stack}.{number}"
            for part in PARTS:
                for attention, name in _attentions(mine):
                    theirs[f"{other}.{attention}.q_proj.{part}"] = ours[f"{mine}.{name}.query.{part}"]
                    key, value = ours[f"{mine}.{name}.key_value.{part}"].chunk(2)
                    theirs[f"{other}.{attention}.k_proj.{part}"] = key.contiguous()
                    theirs[f"{other}.{attention}.v_proj.{part}"] = value.contiguous()
                    theirs[f"{other}.{attention}.out_proj.{part}"] = ours[f"{mine}.{name}.output.{part}"]
                    theirs[f"{other}.{attention}_layer_norm.{part}"] = ours[f"{mine}.around_{name}.norm.{part}"]
                theirs[f"{other}.fc1.{part}"] = ours[f"{mine}.feedforward.inner.{part}"]
                theirs[f"{other}.fc2.{part}"] = ours[f"{mine}.feedforward.outer.{part}"]
                theirs[f"{other}.final_layer_norm.{part}"] = ours[f"{mine}.around_feedforward.norm.{part}"]
    if settings.ends_in_norm:
        for other, mine in (("encoder.layer_norm", "encoder.norm"), ("decoder.layer_norm", "decoder_norm")):
            theirs |= {f"{root}{other}.{part}": ours[f"{mine}.{part}"] for part in PARTS}
    return theirs


def _attentions(mine: str) -> list[tuple[str, str]]:
    own = [("self_attn", "attention")]
    return own if mine.startswith("encoder") else [*own, ("encoder_attn", "cross_attention")]


# ---- the order of the model's coordinates


def halves_first(state: Mapping[str, Tensor], width: int) -> State:
    """Our state with the model's coordinates in the order of [sines | cosines]."""
    return _reorder(state, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))


def alternating(state: Mapping[str, Tensor], width: int) -> State:
    """The way back: a state whose coordinates are in the order of [sines | cosines], in ours."""
    return _reorder(state, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]).argsort())


def _reorder(state: Mapping[str, Tensor], order_D: Tensor) -> State:
    return {name: _reordered(name, tensor, order_D) for name, tensor in state.items()}


def _reordered(name: str, tensor: Tensor, order_D: Tensor) -> Tensor:
    writes = name.endswith(("attention.output.weight", "feedforward.outer.weight"))
    if tensor.ndim == 2 and not writes:
        return tensor[:, order_D].contiguous()  # reads the residual stream, or is an embedding
    of_stream = (".attention.output.bias", ".cross_attention.output.bias", ".feedforward.outer.bias")
    norm = name.endswith(("norm.weight", "norm.bias"))
    if writes or name.endswith(of_stream) or norm:
        return tensor[order_D].contiguous()
    return tensor  # biases of queries, keys, values, inner layers and scores


def waves(positions: int, width: int) -> Tensor:
    """The table of our waves, [N, D]."""
    found: Tensor = SinusoidalPositions(width)(torch.arange(positions)[None])[0]
    return found
