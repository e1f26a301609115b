"""Copying shards into a slot: casts on the way, in parallel, without touching what is not copied.

A slot is shared memory that the sidecar owns. Its pages are faulted in once, when it is mapped: a first touch costs ten
times the copy.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from . import errors
from .shards import SIZES, Shard

#: madvise(2): make pages present and writable. Linux 5.14; Python has no name for it.
_POPULATE_WRITE = 23

#: What a cast policy may be: a type for all floating tensors, types by name patterns, or a function of the shard.
DType = str | Mapping[str, str] | Callable[[Shard], str | None] | None

_FLOATS = ("float64", "float32", "float16", "bfloat16")
_CASTS_TO = (*_FLOATS, "float8_e4m3fn", "float8_e5m2")


def served_dtype(policy: DType, shard: Shard) -> str:
    """The type in which a shard is published. Only floats are cast, and never to types whose casts torch drops signs in."""
    wanted: str | None
    if callable(policy):
        wanted = policy(shard)
    elif isinstance(policy, Mapping):
        wanted = next((to for pattern, to in policy.items() if fnmatchcase(shard.name, pattern)), None)
    else:
        wanted = policy if shard.dtype in _FLOATS else None
    wanted = (wanted or shard.dtype).removeprefix("torch.")
    if wanted != shard.dtype and not (shard.dtype in _FLOATS and wanted in _CASTS_TO):
        raise errors.ShardError(f"{shard.name} is {shard.dtype} and can't be published as {wanted}")
    return wanted


class Slot:
    """One mapped slot of an arena, and the copies into it."""

    def __init__(self, path: str, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size != nbytes:
                raise errors.SidecarUnavailable(f"slot {path} has {size} bytes, {nbytes} are expected")
            self.memory = mmap.mmap(fd, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        self._fault_in()

    def _fault_in(self) -> None:
        with contextlib.suppress(OSError):  # older kernels: the first copy is slow
            self.memory.madvise(_POPULATE_WRITE)


Copy = tuple[Any, Any]  # destination, source


@dataclass(frozen=True)
class Named:
    """A copy, and the tensor that it brings a part of."""

    name: str
    copy: Copy


def plan(shards: Sequence[Shard], served: Sequence[str], places: Sequence[Sequence[Mapping[str, Any]]], slot: Slot) -> list[Named]:
    """The copies that bring every shard to its places. A shard's blocks are boxes of its tensor, packed in the slot."""
    copies: list[Named] = []
    for shard, dtype, blocks in zip(shards, served, places, strict=True):
        for block in blocks:
            box = [(lo, hi) for lo, hi in block["box"]]
            if all(hi > lo for lo, hi in box):
                copies.append(Named(shard.name, _copy(shard, dtype, box, int(block["offset"]), slot)))
    return copies


def _copy(shard: Shard, dtype: str, box: list[tuple[int, int]], offset: int, slot: Slot) -> Copy:
    sizes = [hi - lo for lo, hi in box]
    nbytes = SIZES[dtype]
    for n in sizes:
        nbytes *= n
    if offset < 0 or offset + nbytes > slot.nbytes:
        raise errors.SidecarUnavailable(f"{shard.name}: bytes [{offset}, {offset + nbytes}) are not in a slot of {slot.nbytes}")
    part = tuple(slice(lo - start, hi - start) for (lo, hi), (start, _) in zip(box, shard.box, strict=True))
    if is_tensor(shard.data):
        import torch

        whole = torch.frombuffer(slot.memory, dtype=torch.uint8, count=nbytes, offset=offset)
        return whole.view(getattr(torch, dtype)).view(sizes), shard.data[part]
    if dtype != shard.dtype:
        raise errors.ShardError(f"{shard.name}: only torch tensors are cast, this is a {type(shard.data).__name__}")
    packed = memoryview(shard.data).cast("B")
    if packed.nbytes != nbytes:
        if len(box) and tuple(box) != tuple(shard.box):
            raise errors.ShardError(f"{shard.name}: only torch tensors can be laid out in blocks, this is a {type(shard.data).__name__}")
        raise errors.ShardError(f"{shard.name} has {packed.nbytes} bytes, its box of {dtype} needs {nbytes}")
    return memoryview(slot.memory)[offset : offset + nbytes], packed


def is_tensor(data: object) -> bool:
    """Whether data is a torch tensor; torch is not imported to find out."""
    return type(data).__module__.partition(".")[0] == "torch"


#: Bytes of a piece of work of one copying thread.
_PIECE = 16 << 20

#: Bytes that are not worth waking threads for.
_SMALL = 1 << 20


def perform(copies: Sequence[Copy]) -> None:
    """Does the copies; those of host tensors on several threads.

    The threads are ours: torch's own wait for each other after every tensor, and one that the kernel has taken off its core
    then holds up all. Here each takes the next piece when it is done with one, and all meet once.
    """
    host, device = [], []
    for destination, source in copies:
        if not is_tensor(source):
            destination[:] = source
        elif source.device.type == "cpu":
            host.append((destination, source))
        else:
            device.append((destination, source))
    if device:
        _from_devices(device)
    if host:
        _from_host(host)


def _from_devices(copies: Sequence[Copy]) -> None:
    import torch

    with torch.no_grad():
        torch._foreach_copy_([d for d, _ in copies], [s for _, s in copies], non_blocking=True)
    for one in {s.device for _, s in copies}:
        if one.type == "cuda":
            torch.cuda.synchronize(one)


def _from_host(copies: Sequence[Copy]) -> None:
    import torch

    if sum(d.nbytes for d, _ in copies) <= _SMALL:
        with torch.no_grad():
            torch._foreach_copy_([d for d, _ in copies], [s for _, s in copies])
        return
    pool, workers = _pool()
    work = iter(_pieces(copies))

    def take() -> None:
        with torch.no_grad():
            for destination, source in iter(lambda: next(work, None), None):
                destination.copy_(source)

    for done in [pool.submit(take) for _ in range(workers)]:
        done.result()


def _pieces(copies: Sequence[Copy]) -> list[Copy]:
    """Cuts what is large along its rows; the largest first, so that no thread is left with one at the end."""
    out: list[Copy] = []
    for destination, source in copies:
        rows = destination.shape[0] if destination.dim() else 1
        step = max(1, rows * _PIECE // max(1, destination.nbytes))
        if step >= rows:
            out.append((destination, source))
        else:
            out += zip(destination.split(step), source.split(step), strict=True)
    out.sort(key=lambda c: -int(c[0].nbytes))
    return out


_pools: dict[int, tuple[ThreadPoolExecutor, int]] = {}


def _pool() -> tuple[ThreadPoolExecutor, int]:
    """The copying threads of this process; a forked child has its own. Each computes alone: torch's number of threads is a
    setting of the calling thread, and a default of those to come, which is put back."""
    made = _pools.get(os.getpid())
    if made is None:
        import torch

        threads = torch.get_num_threads()
        workers = max(1, min(threads, 8))
        ready = threading.Barrier(workers + 1)

        def begin() -> None:
            torch.set_num_threads(1)
            ready.wait()

        pool = ThreadPoolExecutor(workers, "drydock-copy")
        for _ in range(workers):
            pool.submit(begin)
        ready.wait()
        torch.set_num_threads(threads)
        _pools.clear()
        made = _pools[os.getpid()] = (pool, workers)
    return made


def refuse_saturation(shards: Sequence[Shard], served: Sequence[str]) -> None:
    """Refuses casts to 8 bits that would clip: what torch makes of such values differs between its versions."""
    for shard, dtype in zip(shards, served, strict=True):
        if not dtype.startswith("float8") or dtype == shard.dtype or not shard.nelems:
            continue
        import torch

        limit = torch.finfo(getattr(torch, dtype)).max
        # Values are rounded to the nearest: half a step beyond the largest still gives the largest.
        beyond = {"float8_e4m3fn": 464.0, "float8_e5m2": 61440.0}[dtype]
        most = float(shard.data.detach().abs().nan_to_num(nan=0.0, posinf=float("inf")).max())
        if most >= beyond:
            raise errors.SaturationError(
                f"{shard.name} has a value of magnitude {most:g}, {dtype} ends at {limit:g}: scale it, or publish it in another type"
            )
