"""Finding the shards that a rank holds, in torch modules and named tensors.

Placements are never computed here: for a DTensor torch itself is asked which box its local tensor is, by the hook that its
distributed checkpointing uses. No collective is called, no tensor is gathered, nothing is copied: the shards refer to the
trainer's own memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch

from . import errors, rules
from .shards import Shard, boxes_of_range

#: What wrappers insert into names: torch.compile, activation checkpointing, FSDP1.
_WRAPPERS = re.compile(r"_orig_mod\.|_checkpoint_wrapped_module\.|_fsdp_wrapped_module\.")


@dataclass
class Found:
    """The shards of a rank, and what ties their names together."""

    shards: list[Shard] = field(default_factory=list)
    aliases: list[list[str]] = field(default_factory=list)  #: names of one tensor, the published one first


def clean(name: str) -> str:
    """A parameter's name without what wrappers inserted."""
    return _WRAPPERS.sub("", name)


def find(
    source: torch.nn.Module | Mapping[str, Any], cut: Sequence[rules.Rule] = (), at: rules.Parallel | None = None
) -> Found:
    """The shards of a module, or of named tensors, in the order of their names there.

    Local plain tensors are looked up in `cut`, rules for a job that `at` describes; one that no rule matches is whole.
    """
    out = Found()
    tensors = _Tensors(source)
    tensors.refuse_unsharded()
    seen: dict[int, str] = {}
    for name, tensor in tensors:
        first = seen.setdefault(id(tensor), name)
        if first != name:
            _alias(out, first, name)
            continue
        out.shards += of_tensor(name, tensor, cut, at or rules.Parallel())
    if isinstance(source, torch.nn.Module):
        for shard, names in _fsdp1(source):
            out.shards.append(shard)
            for other in names:
                _alias(out, shard.name, other)
        _declared_ties(source, out)
    if not out.shards:
        raise errors.ShardError("there is no tensor to publish")
    return out


def _alias(out: Found, first: str, name: str) -> None:
    for group in out.aliases:
        if group[0] == first:
            if name not in group:
                group.append(name)
            return
    out.aliases.append([first, name])


class _Tensors:
    """The named tensors of a source: parameters, and buffers that belong to checkpoints. Tied ones come under each name."""

    def __init__(self, source: torch.nn.Module | Mapping[str, Any]) -> None:
        self.source = source

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        if not isinstance(self.source, torch.nn.Module):
            for name, value in self.source.items():
                if not isinstance(value, torch.Tensor):
                    raise errors.ShardError(f"{name} is a {type(value).__name__}, not a tensor")
                yield clean(name), value
            return
        flat = {id(v) for m in self.source.modules() for v in _flat_views(m)}
        for name, parameter in self.source.named_parameters(remove_duplicate=False):
            if "_flat_param" not in name and id(parameter) not in flat:
                yield clean(name), parameter
        for prefix, module in self.source.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and key not in module._non_persistent_buffers_set:
                    yield clean(f"{prefix}.{key}" if prefix else key), buffer

    def refuse_unsharded(self) -> None:
        """After a forward without backward, and during unshard(), FSDP2 puts whole parameters in the place of shards."""
        if not isinstance(self.source, torch.nn.Module):
            return
        for name, module in self.source.named_modules():
            get = getattr(module, "_get_fsdp_state", None)
            state = get() if callable(get) else None
            group = getattr(state, "_fsdp_param_group", None)
            if group is not None and getattr(group, "is_unsharded", False):
                raise errors.UnshardedError(
                    f"the parameters of module {name or '(the root)'} are whole, as after a forward without a backward: "
                    "call model.reshard() before publishing"
                )


def of_tensor(name: str, tensor: torch.Tensor, cut: Sequence[rules.Rule] = (), at: rules.Parallel | None = None) -> list[Shard]:
    """The shards that one tensor is."""
    if is_dtensor(tensor):
        return [_of_dtensor(name, tensor)]
    local = tensor.detach()
    _refuse_odd(name, local)
    pieces = rules.apply(cut, at or rules.Parallel(), name, local.shape)
    if pieces is None:
        return [Shard(name, dtype_name(local), tuple(local.shape), tuple((0, n) for n in local.shape), local)]
    return [
        Shard(p.name, dtype_name(local), p.shape, p.box, local[tuple(slice(lo, hi) for lo, hi in p.local)]) for p in pieces
    ]


def is_dtensor(tensor: torch.Tensor) -> TypeGuard[Any]:
    """Whether a tensor is distributed. torch.distributed is not imported for it."""
    return hasattr(tensor, "__create_chunk_list__") and hasattr(tensor, "placements")


def _of_dtensor(name: str, tensor: Any) -> Shard:
    if any(p.is_partial() for p in tensor.placements):
        raise errors.ShardError(f"{name} has placements {tensor.placements}: a partial sum is not a value yet")
    shape = tuple(tensor.shape)
    with torch.no_grad():
        local = tensor.to_local().detach()
    _refuse_odd(name, local)
    if local.numel() == 0 and 0 not in shape:  # an empty shard: its offset says nothing
        box = tuple((n, n) if k == 0 else (0, n) for k, n in zip(local.shape, shape, strict=True))
        return Shard(name, dtype_name(local), shape, box, local)
    chunks = list(tensor.__create_chunk_list__())
    if len(chunks) != 1:
        raise errors.ShardError(f"{name} has {len(chunks)} chunks on this rank, 1 is expected: placements {tensor.placements}")
    lo, sizes = tuple(chunks[0].offsets), tuple(chunks[0].sizes)
    if sizes != tuple(local.shape):
        raise errors.ShardError(f"{name}: torch says that the shard has shape {sizes}, it has {tuple(local.shape)}")
    return Shard(name, dtype_name(local), shape, tuple((a, a + n) for a, n in zip(lo, sizes, strict=True)), local)


def _refuse_odd(name: str, local: torch.Tensor) -> None:
    if local.layout != torch.strided or local.is_meta or (type(local) not in (torch.Tensor, torch.nn.Parameter)):
        raise errors.ShardError(
            f"{name} is a {type(local).__name__} of layout {local.layout} on {local.device}: publish the tensors that it is made of, "
            "such as raw bytes and scales, under their own names and as one atomic group"
        )


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# FSDP1: one flat parameter a module, of which each rank holds a range.


def _handles(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for prefix, m in module.named_modules():
        handle = getattr(m, "_handle", None)
        if handle is not None and hasattr(getattr(handle, "flat_param", None), "_shard_param_infos"):
            yield prefix, handle


def _flat_views(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters that are views of a module's flat one, with use_orig_params."""
    handle = getattr(module, "_handle", None)
    flat = getattr(handle, "flat_param", None)
    views: list[torch.Tensor] = list(getattr(flat, "_params", None) or []) + list(getattr(flat, "_shared_params", None) or [])
    return views


def _fsdp1(module: torch.nn.Module) -> Iterator[tuple[Shard, list[str]]]:
    for prefix, handle in _handles(module):
        flat = handle.flat_param
        local = getattr(flat, "_local_shard", None)  # from the first forward on, data may be the whole parameter
        local = (flat.data if local is None else local).detach()
        start = f"{prefix}." if prefix else ""
        ties = _fsdp1_ties(flat, start)
        for fqn, shape, info in zip(flat._fqns, flat._shapes, flat._shard_param_infos, strict=True):
            name = clean(start + fqn)
            yield from _fsdp1_shards(name, tuple(shape), info, local, ties.get(name, []))


def _fsdp1_shards(
    name: str, shape: tuple[int, ...], info: Any, local: torch.Tensor, ties: list[str]
) -> Iterator[tuple[Shard, list[str]]]:
    if not info.in_shard:
        empty = tuple((shape[0], shape[0]) if k == 0 else (0, n) for k, n in enumerate(shape))
        yield Shard(name, dtype_name(local), shape, empty, local[:0].view([hi - lo for lo, hi in empty])), ties
        return
    at = info.offset_in_shard
    for box in boxes_of_range(shape, info.intra_param_start_idx, info.intra_param_end_idx + 1):
        sizes = [hi - lo for lo, hi in box]
        n = 1
        for x in sizes:
            n *= x
        yield Shard(name, dtype_name(local), shape, box, local[at : at + n].view(sizes)), ties
        at += n


def _fsdp1_ties(flat: Any, start: str) -> dict[str, list[str]]:
    """Other names of the parameters in a flat one."""
    ties: dict[str, list[str]] = {}
    for info in getattr(flat, "_shared_param_infos", None) or ():
        own = f"{info.module_name}.{info.param_name}" if info.module_name else info.param_name
        prim = f"{info.prim_module_name}.{info.prim_param_name}" if info.prim_module_name else info.prim_param_name
        ties.setdefault(clean(start + prim), []).append(clean(start + own))
    return ties


def _declared_ties(module: torch.nn.Module, out: Found) -> None:
    """Ties that transformers declares, of names that wrapping has hidden. They hold only where the configuration says so."""
    tied = getattr(module, "_tied_weights_keys", None)
    if not isinstance(tied, Mapping) or not getattr(getattr(module, "config", None), "tie_word_embeddings", False):
        return
    names = {s.name for s in out.shards}
    for name, first in tied.items():
        if first in names and name not in names and not any(name in g for g in out.aliases):
            _alias(out, first, name)


# Megatron's own tables.


def from_sharded_state_dict(
    state: Mapping[str, Any], vocabulary: int | None = None, name: Mapping[str, str] | None = None
) -> Found:
    """The shards in what Megatron-core's `model.sharded_state_dict()` returns.

    Entries are recognised by their attributes, so Megatron is not imported. Factories are built. A tensor that callers
    may have padded (`allow_shape_mismatch`) is clipped to `vocabulary` rows, where given. `name` renames keys. Replicas are
    published too: receivers choose among them.
    """
    out = Found()
    for entry in _walk(state):
        if getattr(entry, "flattened_range", None) is not None:
            raise errors.ShardError(f"{entry.key} is a part of a flat buffer (distributed optimizer): publish the model's own state")
        if entry.data is not None:
            out.shards.append(_of_sharded(entry, vocabulary, name or {}))
    if not out.shards:
        raise errors.ShardError("there is no sharded tensor in the state")
    return out


def _walk(value: Any) -> Iterator[Any]:
    if all(hasattr(value, a) for a in ("key", "global_shape", "global_offset", "data")):
        yield value
    elif hasattr(value, "build") and hasattr(value, "data"):  # a factory, as of gate and up in one matrix
        yield from _walk(value.build())
    elif isinstance(value, Mapping):
        for v in value.values():
            yield from _walk(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _walk(v)


def _of_sharded(e: Any, vocabulary: int | None, rename: Mapping[str, str]) -> Shard:
    axes = int(getattr(e, "prepend_axis_num", 0))
    shape, offset = list(e.global_shape), list(e.global_offset)
    data = e.data.detach()
    box = [(o, o + 1) for o in offset[:axes]] + [(o, o + n) for o, n in zip(offset[axes:], data.shape, strict=True)]
    if getattr(e, "allow_shape_mismatch", False) and vocabulary is not None:
        lo, hi = min(box[axes][0], vocabulary), min(box[axes][1], vocabulary)
        shape[axes], box[axes], data = vocabulary, (lo, hi), data[: hi - lo]
    local = data.reshape([1] * axes + list(data.shape)) if axes else data
    if local.numel() and local.data_ptr() != data.data_ptr():
        raise errors.ShardError(f"{e.key} can't be viewed with its stacked axes")
    return Shard(rename.get(e.key, e.key), dtype_name(data), tuple(shape), tuple(box), local)
