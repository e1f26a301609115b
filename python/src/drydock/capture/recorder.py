"""Watches a loader at work and writes down, for each parameter, what was copied to it.

The recorder sits below autograd, where torch dispatches every operation of whatever the loader calls. Nothing of the
loader is replaced. Sources and parameters may be on the meta device: only geometry matters, and no memory is needed.

How a tensor is known: by its storage, and within it by offset, shape and stride. A view that torch makes without an
operation (`.data`, `detach`) has the same place and so the same history. What happens to a storage of a source:

    a view       the chain of operations grows by one
    a copy of it (contiguous, to(dtype), index_select) is a new storage with the same chain and one operation more
    anything else that reads it makes a computed storage: it remembers the operation's name
    anything that writes to it spoils it: what is read of it from then on is not the checkpoint's

A parameter that gets something computed, or that is computed upon in place, is excluded with the names of the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from drydock.capture import schema, writes

aten = torch.ops.aten

# (storage, offset, shape, stride): the identity of a view.
Key = tuple[int, int, tuple[int, ...], tuple[int, ...]]


class CaptureError(RuntimeError):
    """The loader does what can't be recorded at all: what it copies depends on values."""


@dataclass(frozen=True)
class Chain:
    """A source as it is seen through operations."""

    source: int
    ops: tuple[Any, ...]
    casts: tuple[torch.dtype, ...] = ()  # types that elements were converted to on the way

    def then(self, *op: Any) -> Chain:
        return Chain(self.source, (*self.ops, op), self.casts)


@dataclass
class Computed:
    """A storage that holds what operations made of sources or parameters."""

    by: tuple[str, ...]
    sources: frozenset[int] = frozenset()


@dataclass
class Target:
    """A parameter and what was written to it."""

    index: int
    tensor: torch.Tensor
    writes: list[writes.Write] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)  # reasons
    sources: set[int] = field(default_factory=set)  # that had a part in it


def key_of(t: torch.Tensor) -> Key:
    return storage_of(t), t.storage_offset(), tuple(t.shape), tuple(t.stride())


def storage_of(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


class Recorder(TorchDispatchMode):
    """A context in which a loader runs."""

    def __init__(self, sources: list[torch.Tensor], params: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._keep: list[Any] = []  # storages must not be freed: another would get their identity
        self._chains: dict[Key, Chain] = {}
        self._origin: dict[int, frozenset[int]] = {}  # storage: sources whose bytes it holds
        self._spoiled: dict[int, str] = {}  # storage of sources: by what
        self._computed: dict[int, Computed] = {}
        self.targets: dict[int, Target] = {}
        self.elsewhere: set[int] = set()  # sources that went to tensors that are no parameters: buffers, for one
        self._numbers: dict[float, Chain] = {}  # stands for an element that the loader read as a number
        for i, t in enumerate(sources):
            self._know(t, Chain(i, ()))
        for p in params.values():
            self.targets.setdefault(storage_of(p), Target(len(self.targets), p))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and self._is_ours(args[0]):
            return self._number(args[0])
        out = func(*args, **kwargs)
        self._note(func, args, kwargs, out)
        return out

    # What a tensor is.

    def _know(self, t: torch.Tensor, chain: Chain) -> None:
        self._keep.append(t.untyped_storage())
        self._chains.setdefault(key_of(t), chain)
        self._origin[storage_of(t)] = self._origin.get(storage_of(t), frozenset()) | {chain.source}

    def _is_ours(self, t: torch.Tensor) -> bool:
        s = storage_of(t)
        return s in self._origin or s in self._computed or s in self.targets

    def chain(self, t: torch.Tensor) -> Chain | str:
        """How t came from a source, or why it can't be said."""
        s = storage_of(t)
        if s in self._spoiled:
            return f"source is changed in place: {self._spoiled[s]}"
        if s in self._computed:
            return "loader computes: " + ",".join(self._computed[s].by)
        found = self._chains.get(key_of(t))
        if found is not None:
            return found
        if s in self._origin:
            return "loader looks at a source in a way that is not recorded"
        return "loader copies what is not of the checkpoint"

    def sources_of(self, t: torch.Tensor) -> frozenset[int]:
        """The sources whose bytes a tensor holds, or was computed of."""
        s = storage_of(t)
        if s in self._computed:
            return self._computed[s].sources
        return self._origin.get(s, frozenset())

    def _number(self, t: torch.Tensor) -> float:
        """An element as a Python number. It has no value: a number that occurs nowhere else stands for it."""
        chain = self.chain(t)
        if isinstance(chain, str) or t.dtype in (torch.bool, torch.int64, torch.int32):
            raise CaptureError(f"the loader decides by the value of a tensor ({chain})")
        number = float(2**60 + (len(self._numbers) << 12))  # exact in a double, and far from any constant
        self._numbers[number] = chain
        return number

    # What an operation does.

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        read, written = _inputs(func, args, kwargs)
        for t in written:
            self._write(func, t, args, read)
        touched = [t for t in read if self._is_ours(t)]
        if not touched:
            return
        for i, o in enumerate(_tensors(out)):
            if any(o is t for t in written):
                continue
            s = storage_of(o)
            if any(s == storage_of(t) for t in touched):
                self._view(func, args, o, i)
            elif s not in self.targets:
                self._derive(func, args, o, touched)

    def _view(self, func: Any, args: Any, out: torch.Tensor, i: int) -> None:
        parent = self._chains.get(key_of(args[0])) if isinstance(args[0], torch.Tensor) else None
        if parent is None or key_of(out) in self._chains:
            return  # of a parameter, of something computed, or known
        ops = _view_ops(func, args, out, i)
        if ops is None:
            return  # chain() says so, should anybody copy from it
        chain = parent
        for op in ops:
            chain = chain.then(*op)
        self._chains[key_of(out)] = chain

    def _derive(self, func: Any, args: Any, out: torch.Tensor, touched: list[torch.Tensor]) -> None:
        """A new storage: the same elements elsewhere, or something computed."""
        self._keep.append(out.untyped_storage())
        chain = self.chain(touched[0])
        ops = _copy_ops(func, args, out)
        if isinstance(chain, Chain) and ops is not None and touched[0] is args[0]:
            for op in ops:
                chain = chain.then(*op)
            if out.dtype != touched[0].dtype:
                chain = Chain(chain.source, chain.ops, (*chain.casts, out.dtype))
            self._know(out, chain)
            return
        by = [name for t in touched for name in (self._computed[storage_of(t)].by if storage_of(t) in self._computed else ())]
        names = tuple(dict.fromkeys([*by, _name(func)]))
        self._computed[storage_of(out)] = Computed(names, frozenset().union(*(self.sources_of(t) for t in touched)))

    def _write(self, func: Any, t: torch.Tensor, args: Any, read: list[torch.Tensor]) -> None:
        s = storage_of(t)
        target = self.targets.get(s)
        others = [x for x in read if x is not t and self._is_ours(x)]
        if target is not None:
            self._write_param(func, target, t, args)
        elif s in self._origin:
            self._spoiled.setdefault(s, _name(func))
        elif others:  # a buffer of the loader's own, put together from sources
            self._keep.append(t.untyped_storage())
            had = self._computed.get(s, Computed(()))
            sources = had.sources.union(*(self.sources_of(x) for x in others))
            self.elsewhere |= sources
            self._computed[s] = Computed(tuple(dict.fromkeys([*had.by, _name(func)])), sources)

    def _write_param(self, func: Any, target: Target, t: torch.Tensor, args: Any) -> None:
        place = writes.Place(t.storage_offset(), tuple(t.shape), tuple(t.stride()))
        if func in (aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default):
            self._fill(target, place, 0.0 if func is aten.zero_.default else args[1])
        elif func is aten.copy_.default:
            self._copy(target, place, t, args[1])
        else:
            target.computed.append(f"loader computes in place: {_name(func)}")

    def _fill(self, target: Target, place: writes.Place, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if self._is_ours(value) or value.is_meta:
                target.computed.append("loader fills with a computed number")
                return
            value = value.item()
        if value in self._numbers:  # one element of a source, read as a number
            chain = self._numbers[value]
            target.sources.add(chain.source)
            target.writes.append(writes.Write(place, chain.then("reshape", list(place.shape))))
        elif abs(value) >= 2**50 and abs(value) != float("inf"):
            target.computed.append("loader fills with a number that it computed of a source")
        else:
            target.writes.append(writes.Write(place, float(value), True))

    def _copy(self, target: Target, place: writes.Place, t: torch.Tensor, source: torch.Tensor) -> None:
        target.sources |= self.sources_of(source)
        chain = self.chain(source)
        if isinstance(chain, str):
            if not self._is_ours(source) and not source.is_meta and source.numel() == 1:
                target.writes.append(writes.Write(place, float(source.item()), True))
                return
            target.computed.append(chain)
            return
        if source.numel() != t.numel():
            target.computed.append("loader copies: expand")
            return
        if any(not _keeps(a, b) for a, b in zip(chain.casts, (*chain.casts[1:], t.dtype), strict=False)):
            target.computed.append("loader converts to " + str(chain.casts[-1]).removeprefix("torch."))
            return
        if source.shape != t.shape:
            chain = chain.then("reshape", list(t.shape))
        target.writes.append(writes.Write(place, chain))

    def replaced(self, target: Target, now: torch.Tensor) -> None:
        """The loader has put another tensor in a parameter's place, whole."""
        target.tensor, target.writes, target.computed = now, [], []
        target.sources |= self.sources_of(now)
        chain = self.chain(now)
        if isinstance(chain, str):
            target.computed.append(chain)
            return
        whole = torch.empty(now.shape, device="meta")
        target.writes.append(writes.Write(writes.Place(0, tuple(now.shape), tuple(whole.stride())), chain))

    def check(self) -> None:
        """Every number that stands for an element must have come to rest in a parameter."""
        resting = {w.what.source for t in self.targets.values() for w in t.writes if isinstance(w.what, Chain)}
        for chain in self._numbers.values():
            if chain.source not in resting:
                raise CaptureError(f"the loader reads source {chain.source} as a number, and where it goes is not known")


def _keeps(a: torch.dtype, b: torch.dtype) -> bool:
    """Whether a conversion to a, then to b, is the conversion to b: a is b, or the way there loses nothing."""
    return a == b or (torch.promote_types(a, b) == a and a in (torch.float32, torch.float64))


def _name(func: Any) -> str:
    return func._schema.name.removeprefix("aten::")


def _tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _tensors(y)


def _inputs(func: Any, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors that an operation is given, and those of them that it writes to."""
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    for i, a in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(a.name)
        found = list(_tensors(value))
        read += found
        if a.alias_info is not None and a.alias_info.is_write:
            written += found
    return read, written


def _view_ops(func: Any, args: Any, out: torch.Tensor, i: int) -> list[tuple[Any, ...]] | None:
    """The operation that makes the i-th output, in the schema's words; [] where nothing changes, None: not to be said."""
    match _name(func):
        case "slice":
            dim, start, stop, step = [*args[1:], None, None, None, None][:4]
            dim, size = dim or 0, args[0].shape[dim or 0]
            start, stop, _ = slice(start, stop).indices(size)
            if step in (None, 1):
                return [] if (start, stop) == (0, size) else [("narrow", [dim, start, max(stop - start, 0)])]
            dim %= args[0].dim()
            index = [{"slice": [None, None, None]}] * dim + [{"slice": [start, stop, step]}]
            return [("__getitem__", index)]
        case "narrow":
            return [("narrow", [args[1], int(args[2]), args[3]])]
        case "select":
            dim = args[1] % args[0].dim()
            return [("__getitem__", [{"slice": [None, None, None]}] * dim + [{"int": args[2]}])]
        case "split" | "split_with_sizes":
            dim = args[2] if len(args) > 2 else 0
            size = args[1] if isinstance(args[1], int) else list(args[1])
            return [("split", [size, dim]), ("__getitem__", [{"int": i}])]
        case "unbind":
            return [("unbind", [args[1] if len(args) > 1 else 0]), ("__getitem__", [{"int": i}])]
        case "view" | "_unsafe_view" | "_reshape_alias" | "reshape":
            return None if out.dtype != args[0].dtype else [("view", list(out.shape))]
        case "transpose":
            return [("transpose", [args[1], args[2]])]
        case "t":
            return [("t", [])]
        case "permute":
            return [("permute", list(args[1]))]
        case "unsqueeze":
            return [("unsqueeze", [args[1]])]
        case "squeeze":
            return [("view", list(out.shape))]
        case "detach" | "alias" | "lift_fresh" | "view_as":
            return []
    return None


def _copy_ops(func: Any, args: Any, out: torch.Tensor) -> list[tuple[Any, ...]] | None:
    """As _view_ops, for operations that put the same elements elsewhere."""
    match _name(func):
        case "clone" | "_to_copy" | "contiguous":
            # A clone may keep the order of a transposed view; the order of its elements as seen is the same.
            return [("contiguous", [])] if out.is_contiguous() and not args[0].is_contiguous() else []
        case "_unsafe_view" | "view" | "_reshape_copy":
            return [("reshape", list(out.shape))]
        case "index_select":
            if args[2].is_meta:
                return None
            return [("index_select", [args[1], args[2].tolist()])]
        case "index":  # w[list of numbers]: the experts of a rank, for one
            dims = [d for d, i in enumerate(args[1]) if i is not None]
            if len(dims) != 1 or args[1][dims[0]].is_meta or args[1][dims[0]].dim() != 1:
                return None
            at = args[1][dims[0]]
            if at.dtype == torch.bool:
                at = at.nonzero().flatten()
            return [("index_select", [dims[0], [int(i) % args[0].shape[dims[0]] for i in at.tolist()]])]
    return None


def record(
    names: Iterable[tuple[str, torch.Tensor]], params: Mapping[str, torch.Tensor], load: Any, after: Any
) -> tuple[Recorder, dict[str, torch.Tensor]]:
    """Runs load on the named sources and returns what was recorded, with the parameters as after() finds them then."""
    named = list(names)
    recorder = Recorder([t for _, t in named], params)
    with torch.no_grad(), recorder:
        load(iter(named))
    now = dict(after())
    for name, before in params.items():
        found = now.get(name)
        target = recorder.targets[storage_of(before)]
        if found is not None and storage_of(found) != storage_of(before):
            recorder.replaced(target, found)
    recorder.check()
    return recorder, now


def case_of(recorder: Recorder, params: Mapping[str, torch.Tensor], nsources: int, dtypes: Mapping[torch.dtype, str]) -> schema.Case:
    """What was recorded, as the file has it. arch, tp, rank and ep are the caller's."""
    case = schema.Case("", 0, 0, False)
    first: dict[int, str] = {}
    used: set[int] = set()
    # Parameters that the loader makes itself, such as the bias of an output head that it comes across, are none of the
    # model's when an engine notes its load-time layout: no arena can have them, and what goes there counts as not read.
    late: set[int] = set()
    for name, p in params.items():
        target = recorder.targets.get(storage_of(p)) or next((t for t in recorder.targets.values() if t.tensor is p), None)
        if target is None:
            late |= recorder.sources_of(p)
            continue
        if target.index in first:
            case.alias[name] = first[target.index]
            continue
        first[target.index] = name
        at = len(case.params)
        left, reason = writes.settle(target.writes, p.numel())
        reason = "; ".join(dict.fromkeys(target.computed)) or reason
        case.params.append(schema.Param(name, dtypes.get(p.dtype, str(p.dtype)), list(p.shape), reason))
        used |= target.sources
        if reason:
            continue
        for w in left:
            place = (at, w.place.offset, list(w.place.shape), list(w.place.stride))
            if isinstance(w.what, Chain):
                used.add(w.what.source)
                case.copies.append(schema.Copy(w.what.source, [[n, list(a)] for n, a in w.what.ops], *place))
            else:
                case.fills.append(schema.Fill(*place, float(w.what)))  # type: ignore[arg-type]
    case.copies.sort(key=lambda c: (c.source, c.param, c.offset))
    case.unread = [i for i in range(nsources) if i not in used | (recorder.elsewhere - late)]
    case.elsewhere = sorted((recorder.elsewhere | late) - used)
    return case
