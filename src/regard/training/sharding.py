"""Weights that are divided among processes (FSDP2): each holds a slice of every tensor.

A layer's weights come together when the layer is computed, and part again behind it. So a process holds no more than
its slices, a layer or two, and the weights outside of layers (embeddings, mostly).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.layers.block import DecoderLayer, EncoderLayer

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def shard(objective: ModuleT, device_type: str, size: int, compiled: bool) -> ModuleT:
    """Divide the weights of `objective` among all `size` processes, in place."""
    # Not above: this takes a second to import, which a process alone need not wait for.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # Layers give back their keys and values, which are views of one tensor; nobody writes into them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device_type, (size,))
    for layer in objective.modules():
        if isinstance(layer, (EncoderLayer, DecoderLayer)):
            if compiled:
                # The method alone: weights come together in hooks around it, which no compiler should see.
                layer.__dict__["forward"] = torch.compile(layer.forward, dynamic=False)
            if isinstance(layer, DecoderLayer):
                # Used before the layer is, when it reads the source.
                fully_shard(layer.cross_attention.key_value, mesh=mesh)
                if layer.cross_attention.key_norm is not None:
                    fully_shard(layer.cross_attention.key_norm, mesh=mesh)
            fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


def whole(tensor: Tensor) -> Tensor:
    """A divided tensor in one piece, a whole one as it is; all processes must ask for the same ones, in one order."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def is_sharded(model: nn.Module) -> bool:
    """Whether the weights are divided among processes."""
    return any(hasattr(weight, "full_tensor") for weight in model.parameters())


def divided_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of `like`: this process' slice of it if `like` is divided."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # Every process has all of it at hand, and need not be sent its slice.
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


class WholeModel:
    """A second model without weights, into which those of a divided one come together for as long as it is read."""

    def __init__(self, model: nn.Module) -> None:
        """`model` is the one to be divided, before it is."""
        weights = {id(weight): weight.detach().to("meta") for weight in model.parameters()}
        # Given to it as what was already copied, so that the copy never holds weights of its own.
        self._model = copy.deepcopy(model, {key: nn.Parameter(weight, False) for key, weight in weights.items()})
        self._nothing = {name: weight.detach() for name, weight in self._model.named_parameters(remove_duplicate=False)}

    @contextmanager
    def filled(self, model: nn.Module) -> Iterator[nn.Module]:
        """The model with the weights of the divided one; all processes must ask."""
        # Weights that come together in inference mode could not be trained on.
        with torch.inference_mode(False), torch.no_grad():
            weights = {name: whole(weight) for name, weight in model.state_dict().items()}
            self._model.load_state_dict(weights, assign=True)
        try:
            yield self._model.eval()
        finally:
            self._model.load_state_dict(self._nothing, assign=True, strict=False)
