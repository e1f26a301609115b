"""Brings tensors into the live parameters of a vLLM model, by vLLM's own layerwise reload.

The reload puts every parameter on the meta device, buffers what is loaded, and when a layer is complete post-processes it
and copies the result over the live tensors, so that addresses stay. From the first completed layer to the last the model
is of two versions. Nothing may run on it meanwhile, and an error there needs more than the error's text:

- the live tensors must be put back, or the next forward pass finds meta tensors and ends the engine;
- layers that were complete already have new values, so the old version must be written again, whole.

`replace` does the first and says by `Torn` that the second is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import (
    _place_kernel_tensors,
    get_layerwise_info,
    make_online_process_loader,
)
from vllm.model_executor.model_loader.reload.meta import SKIP_LOAD_TENSORS
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.platforms import current_platform

from drydock.engines.vllm.layout import aliases, places


class Torn(RuntimeError):
    """The live parameters are of two versions: some layers were replaced before the error."""


def replace(model: torch.nn.Module, model_config: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors, at load-time layout, into every parameter, and post-processes as vLLM does after a load.

    The tensors may be views of a mapped file; none is kept. Raises Torn whatever happened, once it has begun.
    """
    alias = aliases(model)
    try:
        _reload(model, model_config, tensors, alias)
        repack(model, alias)
    except BaseException as e:
        raise Torn(f"{type(e).__name__}: {e}") from e


def _reload(model: torch.nn.Module, model_config: Any, tensors: Mapping[str, torch.Tensor], alias: Mapping[str, str]) -> None:
    loaders: list[tuple[torch.nn.Parameter, Any]] = []
    try:
        initialize_layerwise_reload(model)
        for place in list(places(model)):
            p = getattr(place.module, place.leaf)
            source = tensors[alias.get(place.name, place.name)]
            if place.leaf in SKIP_LOAD_TENSORS:
                # Not counted by the reload: what comes after a layer is complete would be dropped without a word.
                p.data.copy_(source)
                continue
            loaders.append((p, getattr(p, "weight_loader", None)))
            p.weight_loader = default_weight_loader  # the whole parameter, as it is,
            p.weight_loader = make_online_process_loader(place.module, place.leaf)  # then the layer's own post-processing
            p.weight_loader(p, source)
        finalize_layerwise_reload(model, model_config)
    except BaseException:
        put_back(model)
        raise
    finally:
        for p, loader in loaders:  # vLLM keeps these objects for its next reload
            if loader is None:
                del p.weight_loader
            else:
                p.weight_loader = loader


def put_back(model: torch.nn.Module) -> None:
    """Ends a reload that went wrong: the live tensors are registered again, whatever was buffered is dropped."""
    for module in model.modules():
        info = get_layerwise_info(module)
        if info.kernel_tensors is not None:
            _place_kernel_tensors(module, info)
        info.reset()


def repack(model: torch.nn.Module, alias: Mapping[str, str]) -> None:
    """What vLLM's CPU platform does at the first load and forgets at a reload."""
    if not current_platform.is_cpu():
        return
    modules = dict(model.named_modules())
    for module in modules.values():  # experts are packed only once, and a reload copies them unpacked into packed storage
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        if kernel is not None:
            kernel.fused_experts.process_weights_after_loading(module)
    for name in alias:  # a tied output head computes with a packed copy of its own
        module = modules[name.rpartition(".")[0]]
        method = getattr(module, "quant_method", None)
        if method is not None:
            method.process_weights_after_loading(module)
