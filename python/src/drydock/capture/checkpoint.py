"""What the checkpoint of a model folder holds: names, types and shapes, sorted by name. No tensor is read.

Where the folder has weights, their headers tell. A folder with a configuration alone is enough too: the model is made on
the meta device by transformers, and named as its checkpoints are.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from drydock.capture import installed
from drydock.capture.schema import Source
from drydock.engines import arenafile


def sources(folder: pathlib.Path) -> list[Source]:
    """The checkpoint's tensors."""
    files = weights(folder)
    return from_headers(files) if files else from_config(folder)


def weights(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folder's safetensors files, as its index names them where there is one."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return sorted({folder / f for f in json.loads(index.read_text())["weight_map"].values()})
    return sorted(folder.glob("*.safetensors"))


def contents(folder: pathlib.Path) -> list[str]:
    """Lines that differ where `sources` may: its tensors, or who would be asked for them. Imports neither torch nor transformers."""
    files = weights(folder)
    if files:
        return [f"{s.name} {s.dtype} {s.shape}" for s in from_headers(files)]
    return [f"as transformers {installed.version('transformers')} would save it"]


def from_headers(files: list[pathlib.Path]) -> list[Source]:
    """Reads the headers of safetensors files."""
    found: dict[str, Source] = {}
    for path in files:
        for name, (dtype, shape) in arenafile.read(str(path)).tensors.items():
            if name in found:
                raise ValueError(f"{path}: tensor {name} is in another file too")
            found[name] = Source(name, dtype, list(shape))
    return [found[name] for name in sorted(found)]


def from_config(folder: pathlib.Path) -> list[Source]:
    """Asks transformers what save_pretrained would write."""
    import torch
    from safetensors.torch import _TYPES
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    dtype = getattr(config, "dtype", None) or torch.bfloat16
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    state = _as_saved(model, model.state_dict())
    tied = set(getattr(model, "all_tied_weights_keys", None) or ()) if getattr(config, "tie_word_embeddings", False) else set()
    names = {t: n for n, t in _TYPES.items()}
    return [Source(name, names[state[name].dtype], list(state[name].shape)) for name in sorted(state) if name not in tied]


def _as_saved(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Newer versions of transformers fuse experts in memory and split them again when they save."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return state
    return revert_weight_conversion(model, state)
