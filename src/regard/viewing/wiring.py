"""How a model is wired, drawn as boxes for a terminal.

The drawing is taken from a run: one sentence goes through the model's own `start` and `step`, and every part that is
called leaves a line. What `start` calls stands on the side of the source, what `step` calls on the side of the
target. Layers that do the same share a box with `× 6` on it. So a new model can be drawn before anybody describes it;
only a new kind of part wants a name, in `_describe`. Sums and activations that are not modules of their own are not
seen, except the sums around the sub-layers of a Transformer and around recurrent layers. One arrow stands for all that
`start` hands to `step`.

A BERT has neither: it reads a text. An XLNet sends two streams through the same layers, so its sides are these: the
content on the left, and on the right the query, which asks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from regard.batch import Tokens
from regard.counts import so_many
from regard.layers.attention import Attention
from regard.layers.block import Residual
from regard.layers.convolution import CausalConvolution, Convolution
from regard.layers.experts import MixtureOfExperts
from regard.layers.feedforward import FeedForward
from regard.layers.positions import (
    LinearBias,
    PositionScheme,
    RelativePositions,
    RelativeWaves,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.layers.recurrent import Link, RecurrentLayer, StateAttention
from regard.models.bert import Bert, BertSettings
from regard.models.convs2s import MultiStepAttention
from regard.models.interface import SequenceModel
from regard.models.transformer_xl import TransformerXLSettings
from regard.models.xlnet import XLNet

Drawn = SequenceModel[Any] | Bert
"""What can be drawn."""
SUMS = ("add", "add, norm")  # where what went around a sub-layer comes back
SOURCE_PARTS = ("cross-attention", "attention to source", "attention to content")
# Where the name of an attribute says too much, or too little, beside the others.
NAMES = {"own source embedding": "embedding", "context": "summary", "start": "start of the decoder"}


@dataclass(frozen=True)
class Part:
    """One line of a box: what it is, its sizes, and a dilation, which may differ between layers of one box.

    `notes` say what else is to be known; each gets a line below.
    """

    name: str
    sizes: str = ""
    dilations: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def below(self) -> list[str]:
        """The lines below this one."""
        return [*self.notes, *([_dilations(self.dilations)] if set(self.dilations) - {1} else [])]


@dataclass(frozen=True)
class Box:
    """Parts that follow one another, as often as `times` says."""

    parts: tuple[Part, ...]
    times: int = 1

    def kind(self) -> tuple[tuple[object, ...], ...]:
        """What two layers must have in common to share a box."""
        return tuple((part.name, part.sizes, part.notes) for part in self.parts)


def wiring(model: Drawn) -> tuple[list[Box], list[Box]]:
    """The boxes that the source goes through (none in a language model) and those of the target.

    The model must be on the meta device.
    """
    tokens = Tokens.whole(torch.zeros(1, 2, dtype=torch.long, device="meta"))
    with torch.no_grad():
        if isinstance(model, Bert):
            with _listening(model.eval()) as read:
                model.features(tokens)
            return [], [*_boxes(model, read), _output(model)]
        with _listening(model.eval()) as read:
            state = model.start(tokens if model.reads_source else None, rows=1)
        with _listening(model) as written:
            model.step(tokens.ids_BT[:, :1], state)
    if isinstance(model, XLNet):
        return _streams(model, written)
    return _boxes(model, read), [*_boxes(model, written), _output(model)]


# ---- from a run to boxes


@contextmanager
def _listening(model: nn.Module) -> Iterator[list[str]]:
    """The names of all modules in the order in which they are called inside the block."""
    called: list[str] = []

    def note(name: str, _module: nn.Module, _inputs: object) -> None:
        called.append(name)

    handles = [part.register_forward_pre_hook(partial(note, name)) for name, part in model.named_modules()]
    try:
        yield called
    finally:
        for handle in handles:
            handle.remove()


def _streams(model: XLNet, called: list[str]) -> tuple[list[Box], list[Box]]:
    """The two streams of an XLNet: what is called a second time is called for the query."""
    first = [name for place, name in enumerate(called) if name not in called[:place] and name != "norm"]
    again = [name for place, name in enumerate(called) if name in called[:place] or name == "norm"]
    begins = Box((Part("query", f"1 → {model.width}", notes=("one learned vector for all",)),))
    asks = [replace(box, parts=tuple(map(_asking, box.parts))) for box in _boxes(model, again)]
    return _boxes(model, first), [begins, *asks, _output(model)]


def _asking(part: Part) -> Part:
    """A part of the query stream, which has the weights of the content's."""
    if part.name != "self-attention":
        return part
    return replace(part, name="attention to content", notes=(*part.notes, "weights of the content's"))


def titles(model: Drawn) -> tuple[str, str]:
    """What stands above the two sides; where there is one, above that."""
    if isinstance(model, XLNet):
        return "content", "query"
    return "source", "target" if isinstance(model, SequenceModel) and model.reads_source else "tokens"


def _boxes(model: Drawn, called: list[str]) -> list[Box]:
    """The parts among the modules that were called, layer by layer."""
    modules = dict(model.named_modules())
    boxes: list[tuple[tuple[str, str], list[Part]]] = []
    owes_sum = False  # pre-norm: the sum comes after all of the sub-layer that follows the norm
    for name in called:
        part = _describe(name.split("."), modules[name])
        if part is None or name == "output" or _inside_another(name, modules):
            continue
        layer, around = _layer_of(name.split(".")), modules[name.rpartition(".")[0]]
        if owes_sum and (isinstance(around, Residual) or boxes[-1][0] != layer):
            boxes[-1][1].append(Part("add"))
            owes_sum = False
        if not boxes or boxes[-1][0] != layer:
            boxes.append((layer, []))
        if isinstance(around, Residual):
            owes_sum = around.pre
            part = part if around.pre else Part("add, norm")
        boxes[-1][1].append(_in_its_model(part, layer, model.settings))
    if owes_sum:
        boxes[-1][1].append(Part("add"))
    return _merged([Box(tuple(parts)) for _, parts in boxes])


def _in_its_model(part: Part, layer: tuple[str, str], settings: object) -> Part:
    """The part with what only the whole model knows of it: how far it may look, and who else reads it."""
    notes = []
    match part.name, settings:
        case "self-attention", BertSettings():
            notes.append("sees both sides")
        case "self-attention", TransformerXLSettings():
            notes.append(f"and {so_many(settings.memory, 'token')} before the row")
        case "embedding", BertSettings():
            notes.append("one of them hides others")
        case "transform", BertSettings():
            notes.append("then GELU")
    window = getattr(settings, "window", None)
    if part.name == "self-attention" and window is not None:
        notes.append(f"window of {window}")
    if part.name == "combine" and getattr(settings, "input_feeding", False):
        notes.append("read by the next step, too")
    if getattr(settings, "feed_all", False) and layer[0] == "decoder" and part.name not in SUMS:
        notes.append("reads what attention found, too")
    return replace(part, notes=(*part.notes, *notes))


def _layer_of(path: list[str]) -> tuple[str, str]:
    """Which layer of which stack a module belongs to: the third decoder layer, say; outside of stacks, its owner."""
    return path[0], next((word for word in path if word.isdecimal()), "")


def _inside_another(name: str, modules: dict[str, nn.Module]) -> bool:
    """Whether a module belongs to a part that has a line of its own."""
    above = name.split(".")[:-1]
    return any(_describe(above[:depth], modules[".".join(above[:depth])]) for depth in range(1, len(above) + 1))


def _merged(boxes: list[Box]) -> list[Box]:
    """Neighbours that do the same become one box."""
    merged: list[Box] = []
    for box in boxes:
        if merged and merged[-1].kind() == box.kind():
            pairs = zip(merged[-1].parts, box.parts, strict=True)
            parts = tuple(replace(one, dilations=one.dilations + other.dilations) for one, other in pairs)
            merged[-1] = Box(parts, merged[-1].times + 1)
        else:
            merged.append(box)
    return merged


# ---- the names of parts


def _describe(path: list[str], module: nn.Module) -> Part | None:
    """The line of a module; None for those without one, whose own parts may have some."""
    # Numbers count layers, and a table is called after its owner.
    name = next((word for word in reversed(path) if word != "table" and not word.isdecimal()), "").replace("_", " ")
    name = NAMES.get(name, name)
    match module:
        case SinusoidalPositions():
            return Part("sinusoids")
        case Attention():
            kind = "cross-attention" if "cross" in name else "self-attention"
            size = f"{module.d_k}" if module.d_k == module.d_v else f"{module.d_k} and {module.d_v}"
            normed = () if module.query_norm is None else ("queries and keys normed",)
            return Part(kind, f"{module.heads} × {size}", notes=normed + _scheme(module.positions))
        case MultiStepAttention():
            return Part("cross-attention", _sizes(module.query))
        case StateAttention():
            looks = "looks at one state (hard)" if module.hard else "looks at all states"
            return Part("attention to source", module.score, notes=(looks,))
        case FeedForward():
            gated = "2 × " if module.activation == "swiglu" else ""
            inner, outer = module.outer.in_features, module.outer.out_features
            return Part("feed-forward", f"{module.inner.in_features} → {gated}{inner} → {outer}")
        case MixtureOfExperts():
            experts, outer, inner = module.outer_EDF.shape
            gated = "2 × " if module.activation == "swiglu" else ""
            notes = (f"{module.active} of {experts} experts",)
            return Part("feed-forward", f"{outer} → {gated}{inner} → {outer}", notes=notes)
        case RecurrentLayer():
            way = f", {name}" if path[-1].startswith(("left", "right")) else ""
            return Part(module.cell.upper() + way, f"{module.kernel.input_size} → {module.kernel.hidden_size}")
        case Link() if module.adds:
            return Part("add")
        case Convolution():
            kind = "causal convolution" if isinstance(module, CausalConvolution) else "convolution"
            taps = module.taps
            sizes = f"{module.kernel} × {taps.in_features // module.kernel} → {taps.out_features}"
            return Part(kind, sizes, (module.dilation,))
        case nn.Linear() | nn.Embedding():
            return Part(name, _sizes(module))
        case nn.LayerNorm():
            return Part("norm")
    return None


def _scheme(positions: PositionScheme | None) -> tuple[str, ...]:
    """How an attention minds positions; one that does not says nothing."""
    match positions:
        case RotaryPositions():
            return ("rotary positions",)
        case RelativePositions():
            return (f"relative positions, reach {positions.reach}",)
        case RelativeWaves():
            return ("relative positions, waves",)
        case LinearBias():
            return ("alibi",)
    return ()


def _sizes(module: nn.Linear | nn.Embedding) -> str:
    before, after = (
        (module.in_features, module.out_features)
        if isinstance(module, nn.Linear)
        else (module.num_embeddings, module.embedding_dim)
    )
    return f"{before} → {after}"


def _output(model: Drawn) -> Box:
    """The last box. It is tied where one matrix serves as embedding and as output."""
    own = getattr(model, "output", None)
    shared = own is None or any(
        module.weight is own.weight for module in model.modules() if isinstance(module, nn.Embedding)
    )
    return Box((Part("output, tied" if shared else "output", f"{model.width} → {model.vocabulary}"), Part("softmax")))


# ---- boxes to text

GUTTER = 6  # columns between source and target
STEM = 4  # the column in which the line from box to box runs
_JUNCTIONS = {"ns": "│", "ew": "─", "nw": "┘", "sw": "┐", "nsw": "┤", "ne": "└", "se": "┌", "nse": "├", "nsew": "┼",
              "new": "┴", "sew": "┬"}  # fmt: skip


def draw(model: Drawn) -> str:
    """The wiring as text: the source on the left, the target on the right."""
    (source, target), (one_side, other_side) = wiring(model), titles(model)
    right, rows = _column(other_side, target)
    right.append(" " * STEM + "▼")
    if not source:
        return "\n".join(right)
    left, _ = _column(one_side, source)
    width, leaves = len(left[-1]), len(left)
    # Where nothing attends to the source, it enters the stack as a whole.
    arrives = [row for row, part in rows if part.name in SOURCE_PARTS] or [rows[len(target[0].parts)][0]]
    link = _link(leaves, arrives)
    lines = []
    for row in range(max(len(left), len(right), leaves + 1)):
        one = left[row] if row < len(left) else ""
        if row == leaves:
            one = " " * STEM + "└" + "─" * (width - STEM - 1)
        other = right[row] if row < len(right) else ""
        lines.append(f"{one:<{width}}{link.get(row, ' ' * GUTTER)}{other}".rstrip())
    return "\n".join(lines)


def _column(title: str, boxes: list[Box]) -> tuple[list[str], list[tuple[int, Part]]]:
    """The lines of boxes above one another, and the line that each part got."""
    names = max(len(part.name) for box in boxes for part in box.parts)
    sizes = max(len(part.sizes) for box in boxes for part in box.parts)
    below = max(len(line) for box in boxes for part in box.parts for line in ["", *part.below()])
    inner = max(names + sizes + 4, below + 4)
    lines, rows = [f"  {title}", " " * STEM + "│"], []
    for box in boxes:
        times = f" × {box.times} " if box.times > 1 else ""
        lines.append("┌" + "─" * (STEM - 1) + "┴" + f"{times:─>{inner - STEM}}" + "┐")
        for part in box.parts:
            rows.append((len(lines), part))
            lines.append(f"│ {f'{part.name:<{names}}  {part.sizes}':<{inner - 2}} │")
            lines += [f"│   {line:<{inner - 4}} │" for line in part.below()]
        lines.append("└" + "─" * (STEM - 1) + "┬" + "─" * (inner - STEM) + "┘")
    return lines, rows


def _dilations(values: tuple[int, ...]) -> str:
    distinct = list(dict.fromkeys(values))
    shown = [*distinct[:3], "…", distinct[-1]] if len(distinct) > 5 else distinct
    return f"dilation {', '.join(map(str, shown))}".replace(", …,", " …")


def _link(leaves: int, arrives: list[int]) -> dict[int, str]:
    """What stands between the columns, line by line: one line down from the source, and arrows to the right."""
    first, last = min(leaves, *arrives), max(leaves, *arrives)
    found = {}
    for row in range(first, last + 1):
        ways = "n" * (row > first) + "s" * (row < last) + "e" * (row in arrives) + "w" * (row == leaves)
        before, after = "──" if row == leaves else "  ", "─▶ " if row in arrives else "   "
        found[row] = before + _JUNCTIONS[ways] + after
    return found
