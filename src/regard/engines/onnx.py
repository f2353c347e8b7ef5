"""onnxruntime as a model: every search, sampler and score that steps through `SequenceModel` works with it.

Shapes: B sentences, R texts, S source tokens, T new tokens, K tokens so far, D model, V vocabulary.

`regard.interop.onnx` says what the graphs read and give. States are those of our own models, so that beams are
selected, and share their source, in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.errors import DataError, UsageError
from regard.folder import RECIPE
from regard.layers.attention import KeyValue
from regard.layers.block import DecoderMemory
from regard.layers.mask import Mask, Visible
from regard.models.gpt import GPTSettings, GPTState
from regard.models.interface import SequenceModel
from regard.models.transformer import EVERYTHING, TransformerSettings, TransformerState, look_back

ENCODER, DECODER, NUMBERS = "encoder.onnx", "decoder.onnx", "numbers"
COMPARED = ("relative", "alibi")  # positions for which a decoder is told where all that it looks back at stands


class OnnxModel(SequenceModel[Any]):
    """A folder that `regard export --to onnx` wrote."""

    def __init__(self, folder: Path, settings: TransformerSettings | GPTSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.context = settings, vocabulary, settings.limit
        self.width = vocabulary  # the graph goes as far as scores: they are all the features there are
        self.reads_source = isinstance(settings, TransformerSettings)  # type: ignore[misc]
        self.looks_around, self.looks_back = Mask(window=settings.window), Mask(causal=True, window=settings.window)
        self.encoder = _session(folder / ENCODER) if self.reads_source else None
        self.decoder = _session(folder / DECODER)
        # Whoever asks a model where and in which numbers it computes asks its parameters; this one has none in torch.
        small = self.decoder.get_modelmeta().custom_metadata_map.get(NUMBERS) == "int8"
        self.nowhere = nn.Parameter(torch.empty(0, dtype=torch.int8 if small else torch.float32), requires_grad=False)
        sizes = settings.layer_sizes()
        self.heads, self.d_k, self.d_v = sizes.heads, sizes.d_k, sizes.d_v
        self.layers = settings.decoder_layers if isinstance(settings, TransformerSettings) else settings.layers
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """The graphs must read and give what a model of these settings does, in its sizes; no other model's do."""
        sides = ("past", "source") if self.reads_source else ("past",)
        memory = {
            side: {f"{side}_{part}_{number}": (self.heads, size)
                   for number in range(self.layers) for part, size in (("key", self.d_k), ("value", self.d_v))}
            for side in sides
        }  # fmt: skip
        text: dict[str, tuple[int, int] | None] = dict.fromkeys(("tokens", "positions", "mask"))
        masks = dict.fromkeys(("source_mask",) if self.reads_source else ())
        places = dict.fromkeys(("seen",) if self.settings.positions in COMPARED else ())
        reads = text | masks | places | {name: sizes for each in memory.values() for name, sizes in each.items()}
        kept = {name.removeprefix("past_"): sizes for name, sizes in memory["past"].items()}
        if self.encoder is not None:
            _must(folder / ENCODER, "read", self.encoder.get_inputs(), text)
            _must(folder / ENCODER, "give", self.encoder.get_outputs(), memory["source"])
        _must(folder / DECODER, "read", self.decoder.get_inputs(), reads)
        _must(folder / DECODER, "give", self.decoder.get_outputs(), {**kept, "scores": (None, self.vocabulary)})

    def features(self, batch: Batch) -> Tensor:
        """The scores at every target position, [B, T, V]: `logits` leaves them as they are."""
        rows = batch.target.ids_BT.shape[0]
        if not self.reads_source:
            self.refuse(batch.source)
        source = self.needed(batch.source, rows) if self.reads_source else None
        return self._decode(batch.target, self.start(source, rows))[0]

    def logits(self, features_BTD: Tensor) -> Tensor:
        """As they are."""
        return features_BTD

    def start(self, source: Tokens | None, rows: int) -> TransformerState | GPTState:
        """Encode the source."""
        if self.encoder is None:
            self.refuse(source)
            nothing = tuple(self._nothing(rows) for _ in range(self.layers))
            return GPTState(nothing, Places.whole(torch.zeros(rows, 0)))
        source = self.needed(source, rows)
        visible = self.looks_around.visible(source.places, source.places)
        length = source.ids_BT.shape[1]
        found = self.encoder.run(None, {
            "tokens": source.ids_BT.numpy(),
            "positions": source.places.positions_BT.contiguous().numpy(),
            "mask": _added(visible, length, length).numpy(),
        })  # fmt: skip
        pairs = [KeyValue(torch.from_numpy(keys), torch.from_numpy(values))
                 for keys, values in zip(found[::2], found[1::2], strict=True)]  # fmt: skip
        memories = tuple(DecoderMemory(pair, self._nothing(rows)) for pair in pairs)
        return TransformerState(memories, source.places, Places.whole(source.ids_BT[:, :0]))

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        places = Places.whole(tokens_BT, state.seen.positions_BT.shape[1])
        scores_RTV, state = self._decode(Tokens(tokens_BT, places), state)
        return scores_RTV[:, -1], state

    def _decode(self, tokens: Tokens, state: Any) -> tuple[Tensor, Any]:
        seen, visible = look_back(self.looks_back, tokens.places, state.seen, self.settings.limit)
        assert isinstance(seen, Places)
        length, everything = tokens.ids_BT.shape[1], seen.positions_BT.shape[1]
        handed = {
            "tokens": tokens.ids_BT.contiguous().numpy(),
            "positions": tokens.places.positions_BT.contiguous().numpy(),
            "mask": _added(visible, length, everything).numpy(),
        }
        if self.settings.positions in COMPARED:
            handed["seen"] = seen.positions_BT.contiguous().numpy()
        pasts = state.layers
        if isinstance(state, TransformerState):
            pasts = [memory.past for memory in state.layers]
            places = tokens.places.share(state.source)
            source_visible = EVERYTHING.visible(places, state.source)
            queries, keys = places.positions_BT.shape[1], state.source.positions_BT.shape[1]
            handed["source_mask"] = _added(source_visible, queries, keys).numpy()
            for number, memory in enumerate(state.layers):
                handed[f"source_key_{number}"] = memory.source.keys_BHKE.numpy()
                handed[f"source_value_{number}"] = memory.source.values_BHKE.numpy()
        for number, past in enumerate(pasts):
            handed[f"past_key_{number}"] = past.keys_BHKE.numpy()
            handed[f"past_value_{number}"] = past.values_BHKE.numpy()
        *found, scores = self.decoder.run(None, handed)
        kept = [KeyValue(torch.from_numpy(keys), torch.from_numpy(values))
                for keys, values in zip(found[::2], found[1::2], strict=True)]  # fmt: skip
        if isinstance(state, TransformerState):
            memories = tuple(DecoderMemory(old.source, new) for old, new in zip(state.layers, kept, strict=True))
            return torch.from_numpy(scores), TransformerState(memories, state.source, seen)
        return torch.from_numpy(scores), GPTState(tuple(kept), seen)

    def _nothing(self, rows: int) -> KeyValue:
        keys, values = (torch.zeros(rows, self.heads, 0, size) for size in (self.d_k, self.d_v))
        return KeyValue(keys, values)


def _added(visible: Visible, queries: int, keys: int) -> Tensor:
    """What to add to scores, [B or 1, 1, queries or 1, keys]: 0 where there is something to see, else -inf."""
    if visible.allowed_BQK is None and not visible.is_causal:
        return torch.zeros(1, 1, 1, keys)
    allowed_BQK = visible.dense(torch.zeros(1, 1, queries, keys))
    return torch.zeros(allowed_BQK.shape).masked_fill(~allowed_BQK, -torch.inf)[:, None]


def _must(file: Path, does: str, found: Sequence[Any], wanted: Mapping[str, tuple[int | None, int] | None]) -> None:
    """Raise unless these are the names, and of memories and scores the sizes that do not change: heads, numbers."""
    there = {each.name: each.shape for each in found}
    wrong = sorted(set(there) ^ set(wanted))
    for name in set(there) & set(wanted):
        sizes = wanted[name]
        if sizes is not None and (there[name][-1] != sizes[1] or sizes[0] not in (None, there[name][1])):
            wrong.append(name)
    if wrong:
        raise DataError(
            f"{file}: must {does} what the model of {RECIPE} does, but {wrong[0]} is missing, left over or of another "
            "size. Is the graph another model's? Export the model again."
        )


def _session(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError(
            "engine: onnx needs onnxruntime, but it is not installed. Install it: pip install 'regard[export]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{file}: must be a graph onnxruntime can read, but is not: {error}") from error
