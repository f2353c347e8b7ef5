"""One text through one layer of a Transformer or a GPT, step by step, with the layer's real numbers.

Shapes: B rows (one), T tokens, S source tokens, Q queries, K keys, D model, H heads, E head size, F feed-forward,
V vocabulary.

The model runs once. What enters the chosen layer is caught there; from it the layer's own parts make every step in
the open. `tests/exploring/test_walk.py` compares each step with what hooks see inside the real call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from regard.batch import Tokens
from regard.errors import UsageError
from regard.exploring.bundle import (
    Bundle,
    best,
    must_be_one,
    must_fit,
    must_hold_words,
    read_as_one,
    read_ids,
    source_ids,
)
from regard.exploring.layer import Sublayers, attended, fed_forward
from regard.exploring.sentences import Said, Tongue
from regard.exploring.steps import Step, Words, one_row, table
from regard.layers.block import DecoderLayer, DecoderMemory, EncoderLayer
from regard.layers.embedding import Embedding
from regard.layers.experts import MixtureOfExperts
from regard.layers.feedforward import FeedForward
from regard.layers.positions import LearnedPositions, RelativeWaves
from regard.models.gpt import CausalTransformer
from regard.models.interface import SequenceModel
from regard.models.transformer import Transformer
from regard.viewing.capture import Call
from regard.viewing.labels import readable

Stack = Literal["encoder", "decoder"]
LIKELIEST = 10


@dataclass(frozen=True)
class Walk:
    """The steps of one layer, seen by one head, following the word at `position`.

    `tokens` are those the stack reads; `target_tokens` those the decoder reads while it writes a translation, where
    `tokens` are the source's. `source` is what was read to be translated: of several sentences perhaps the first.
    """

    source: str | None
    tokens: tuple[str, ...]
    target_tokens: tuple[str, ...] | None
    stack: Stack
    layer: int
    head: int
    position: int
    steps: tuple[Step, ...]
    tongue: Tongue = "en"
    """The language in which the steps are told."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "source": self.source,
            "tokens": list(self.tokens),
            "target_tokens": None if self.target_tokens is None else list(self.target_tokens),
            "stack": self.stack,
            "layer": self.layer,
            "head": self.head,
            "position": self.position,
            "steps": [step.to_json(self.tongue) for step in self.steps],
        }


def can_walk(network: SequenceModel[Any]) -> bool:
    """Whether there are layers to walk through: in Transformers and GPTs of which a walk has words for all parts."""
    return isinstance(network, Transformer | CausalTransformer) and _obstacle(network) is None


def _obstacle(network: SequenceModel[Any]) -> str | None:
    """What a walk has no words for, if a network has any."""
    modules = list(network.modules())
    if any(isinstance(module, MixtureOfExperts) for module in modules):
        return "a layer must have one feed-forward network, not a choice of experts"
    if any(isinstance(module, RelativeWaves) for module in modules):
        return "a score must answer one question, but `relative-waves` ask for content and for distance"
    return None


@torch.inference_mode()
def walk(
    bundle: Bundle,
    text: str,
    target: str | None = None,
    stack: Stack | None = None,
    layer: int = 0,
    head: int = 0,
    position: int | None = None,
    language: str | None = None,
) -> Walk:
    """Every step of one layer while the model reads `text` and writes `target`, unless given its own translation.

    `stack` is the encoder's, unless the model is a GPT; `position` the last one's. All are counted from 0.
    """
    must_hold_words("walk", text)
    must_be_one(bundle, "walk")
    text = read_as_one(bundle, text, target)
    walker = _Walker(bundle, text, target, stack, language)
    return walker.walk(layer, head, position)


class _Walker:
    """A text on its way: what is read and written, and where the chosen stack finds its parts."""

    def __init__(
        self, bundle: Bundle, text: str, target: str | None, stack: Stack | None, language: str | None
    ) -> None:
        network, tokenizer = bundle.network, bundle.tokenizer
        if not isinstance(network, Transformer | CausalTransformer):
            raise UsageError(
                f"walk: needs a Transformer or a GPT, but `{bundle.recipe.name}` is a `{bundle.recipe.model.kind}`. "
                "Choose another model."
            )
        if not can_walk(network):
            raise UsageError(
                f"walk: {_obstacle(network)}, so `{bundle.recipe.name}` cannot be walked through. Choose another model."
            )
        self.network, self.tokenizer = network, tokenizer
        self.stack: Stack = stack or ("encoder" if isinstance(network, Transformer) else "decoder")
        if self.stack == "encoder" and not isinstance(network, Transformer):
            raise UsageError(f"walk: `{bundle.recipe.name}` has one stack, the decoder, but `encoder` was asked for.")
        self.source = text if network.reads_source else None
        source: list[int] | None = None
        if network.reads_source:
            ended = source_ids(bundle, text, language)
            source = ended[:-1]
            written = list(best(bundle, ended).tokens) if target is None else tokenizer.encode(target)
        else:
            written = read_ids(bundle, text)
        must_fit("walk", bundle, written)
        self.call = Call(network, tokenizer, source, written)

    def walk(self, layer: int, head: int, position: int | None) -> Walk:
        """All steps."""
        labels = self.call.sights["encoder" if self.stack == "encoder" else "decoder"].keys
        layers, embedding, norm = self._parts()
        _check("layer", layer, len(layers))
        position = len(labels) - 1 if position is None else position
        _check("position", position, len(labels))
        chosen = layers[layer]
        assert isinstance(chosen, EncoderLayer | DecoderLayer)
        _check("head", head, chosen.attention.heads)
        with _Caught(chosen) as entered, _Caught(embedding) as read, _Caught(norm) as left:
            self.network.features(self.call.batch)
        # One embedding may serve both stacks: the encoder's turn is the first, the decoder's the last.
        tokens = read.inputs[0 if self.stack == "encoder" else -1][0]
        words = Words(labels, position)
        steps = [*_entry(embedding, tokens, words), *_between(words, layer, entered.inputs[0][0])]
        steps += self._sublayers(chosen, entered.inputs[0], words, head)
        if self.stack == "decoder":
            steps.append(self._logits(left.outputs[0], words, len(layers)))
        return Walk(self.source, *self._texts(), self.stack, layer, head, position, tuple(steps))

    def _texts(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """The labels of what is read, and of what a decoder with an encoder reads of its own."""
        sights = self.call.sights
        if isinstance(self.network, Transformer):
            return sights["encoder"].keys, sights["decoder"].keys
        return sights["decoder"].keys, None

    def _parts(self) -> tuple[list[nn.Module], Embedding, nn.Module]:
        """The layers of the stack, the embedding below them, and the norm above."""
        network = self.network
        if not isinstance(network, Transformer):
            return list(network.layers), network.embedding, network.norm
        if self.stack == "decoder":
            return list(network.decoder), network.embedding, network.decoder_norm
        return list(network.encoder.layers), network.own_source_embedding or network.embedding, network.encoder.norm

    def _sublayers(
        self, chosen: EncoderLayer | DecoderLayer, entered: tuple[Any, ...], words: Words, head: int
    ) -> list[Step]:
        """The layer itself."""
        keeps = self.stack == "decoder"
        way = Sublayers(entered[0], words, head, [])
        if isinstance(chosen, DecoderLayer):
            _, memory, visible, source_visible = entered
            assert isinstance(memory, DecoderMemory)
            attended(way, chosen.attention, chosen.around_attention, visible, keeps=keeps)
            source = Words(self.call.sights["encoder"].keys)
            attended(
                way, chosen.cross_attention, chosen.around_cross_attention, source_visible, (source, memory.source)
            )
        else:
            attended(way, chosen.attention, chosen.around_attention, entered[1], keeps=keeps)
        assert isinstance(chosen.feedforward, FeedForward)
        fed_forward(way, chosen.feedforward, chosen.around_feedforward)
        return way.steps

    def _logits(self, features_BTD: Tensor, words: Words, layers: int) -> Step:
        """What comes next, after all layers."""
        position = words.position or 0
        logits_V = self.network.logits(features_BTD[:, position : position + 1])[0, 0].float()
        probabilities_V = logits_V.softmax(dim=-1)
        best_N = logits_V.topk(min(LIKELIEST, len(logits_V))).indices
        names = readable(self.tokenizer, best_N.tolist())
        word, size = words.labels[position], features_BTD.shape[2]
        numbers = {"layers": layers, "vocabulary": len(logits_V), "count": len(names)}
        return Step(
            "logits",
            Said(("logits",), {"word": word, **numbers}),
            "p = softmax(x · W_outᵀ)",
            f"[{size}] · [{size}, {len(logits_V)}] → [{len(logits_V)}]",
            (
                table("features", features_BTD[0], words),
                one_row("logits", logits_V[best_N], word, names),
                one_row("probabilities", probabilities_V[best_N], word, names),
            ),
        )


class _Caught:
    """What a module is given, and what it gives, while the block runs."""

    def __init__(self, module: nn.Module) -> None:
        self.inputs: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []
        self._module = module

    def __enter__(self) -> Self:
        def note(_module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self.inputs.append(inputs)
            self.outputs.append(output)

        self._handle = self._module.register_forward_hook(note)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


def _entry(embedding: Embedding, tokens: Tokens, words: Words) -> list[Step]:
    """From token numbers to vectors that know where they stand."""
    vectors_TD = embedding.table(tokens.ids_BT)[0] * embedding.scale
    size, scaled = vectors_TD.shape[1], embedding.scale != 1.0
    shape = f"[{len(vectors_TD)}, {size}]"
    steps = [
        Step(
            "embedding",
            Said(("embedding", "embedding.scaled") if scaled else ("embedding",), {"size": size}),
            f"x = E[token]{' · √d_model' if scaled else ''}",
            shape,
            (table("x", vectors_TD, words),),
        )
    ]
    if embedding.positions is None:
        return steps
    places_TD = embedding.positions(tokens.places.positions_BT)[0].to(vectors_TD.dtype)
    learned = isinstance(embedding.positions, LearnedPositions)
    steps.append(
        Step(
            "position",
            Said(("position", "position.learned" if learned else "position.waves"), {}),
            "x ← x + PE(position)",
            shape,
            (table("PE", places_TD, words), table("x + PE", vectors_TD + places_TD, words)),
        )
    )
    return steps


def _between(words: Words, layer: int, x_BTD: Tensor) -> list[Step]:
    """What the layers below made of it, if there are any."""
    if not layer:
        return []
    return [
        Step(
            "input",
            Said(("input",), {"layer": layer + 1, "below": layer}),
            f"x = layer_{layer}(…)",
            f"[{x_BTD.shape[1]}, {x_BTD.shape[2]}]",
            (table("x", x_BTD[0], words),),
        )
    ]


def _check(name: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise UsageError(f"walk: `{name}` must be from 0 to {count - 1}, but is {value}.")
