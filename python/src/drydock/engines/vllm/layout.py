"""Parameters of a loaded vLLM model at their load-time layout: what an arena holds.

After loading, vLLM packs, pads or replaces many parameters for its kernels. What a loader fills, and so what a capture
describes and an arena holds, is the form before that. vLLM keeps it, as meta tensors, for its own reload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from safetensors.torch import _TYPES
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.meta import SKIP_TENSORS

from drydock.engines.arenafile import TensorType

DTYPE_NAMES = {dtype: name for name, dtype in _TYPES.items()}


@dataclass(frozen=True)
class Place:
    """One parameter of one module."""

    name: str  # dotted, from the model
    module: torch.nn.Module
    leaf: str  # name within the module
    dtype: torch.dtype  # at load time
    shape: tuple[int, ...]  # at load time, elements


def places(model: torch.nn.Module) -> Iterator[Place]:
    """Every parameter that a loader may fill; a module that is held twice is seen once, under its first name."""
    for path, module in model.named_modules():
        recorded = get_layerwise_info(module).restore_metadata[0]
        live = {leaf: p for leaf, p in module._parameters.items() if p is not None}
        # vLLM never moves the SKIP_TENSORS to meta, so it has no record of them: they are what is live.
        # Without a record at all (a model that was not loaded by vLLM's loader) everything is.
        leaves = dict.fromkeys([*recorded, *(leaf for leaf in live if leaf in SKIP_TENSORS or not recorded)])
        for leaf in leaves:
            p = recorded.get(leaf, live.get(leaf))
            yield Place(f"{path}.{leaf}".lstrip("."), module, leaf, _load_dtype(leaf, p, recorded), tuple(p.shape))


def _load_dtype(leaf: str, p: torch.Tensor, recorded: dict[str, torch.Tensor]) -> torch.dtype:
    """Some CPU kernels turn a live bias into F32; it was created with the type of its weight."""
    if leaf == "bias" and leaf not in recorded and "weight" in recorded:
        return recorded["weight"].dtype
    return p.dtype


def aliases(model: torch.nn.Module) -> dict[str, str]:
    """Names that share storage with one that comes earlier, as a tied output head does with the embedding."""
    first: dict[tuple[int, torch.Size], str] = {}
    alias = {}
    for place in places(model):
        live = place.module._parameters.get(place.leaf)
        if live is None or live.is_meta or not live.numel():
            continue  # packed away for a kernel: nothing to share
        owner = first.setdefault((live.data_ptr(), live.shape), place.name)
        if owner != place.name:
            alias[place.name] = owner
    return alias


def wanted(model: torch.nn.Module) -> dict[str, TensorType]:
    """What the arena of this rank must hold, aliases left out: exactly this, nothing less and nothing more."""
    alias = aliases(model)
    return {p.name: (DTYPE_NAMES[p.dtype], p.shape) for p in places(model) if p.name not in alias}
