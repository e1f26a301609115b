"""A trainer's publisher: one call a step, no collective, no event loop, no thread but those that copy.

    with Publisher("org/model", model) as publisher:
        for step in steps:
            ...
            optimizer.step()
            publisher.publish(step)

`publish` waits until a slot is free (readers of the version before the last one are waited for), copies this rank's shards
into it, tells the sidecar, and returns. Digests, upload and commit are the sidecar's work, beside the next step.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import copying, errors, launch
from .copying import DType
from .rules import Parallel, Rule
from .shards import Shard
from .sidecar import POLL, Sidecar, Spawn, default_socket

if TYPE_CHECKING:
    from .found import Found

log = logging.getLogger("drydock")

#: What may be published: a torch module, named tensors, shards, what `found` has found, or a function that gives one of them.
Source = Any


#: Seconds of trying again that nobody is told of.
_UNMENTIONED = 1.0

#: Seconds that a sidecar may be silent, such as while it is started again.
_SILENCE = 60.0


@dataclass
class Publication:
    """Where one version is. `state` is the sidecar's: publishing, committed, failed, …; "ended" where it never will be read."""

    version: int
    state: str
    run: int = 0  #: of the training job; 0: not known yet
    slot: int = -1
    reason: str = ""  #: why it ended
    waited: float = 0.0  #: seconds until a slot was free
    copied: float = 0.0  #: seconds of the copy
    base: int | None = None  #: the version that it is a difference from, as asked for; once it is committed, as it is. None: whole
    blocked: float = 0.0  #: seconds that the trainer was kept

    @property
    def committed(self) -> bool:
        return self.state == "committed"


class Publisher:
    """Publishes one rank's tensors. See the module's text and docs/trainers.md.

    tensors: a module, a mapping of names to tensors (torch, or with `Shard`s anything with a buffer), a list of `Shard`s, or
        a function without arguments that returns one of these, which is asked again at each publish.
    rank, world, job: default what the launcher says.
    socket: the sidecar's; default DRYDOCK_SOCKET, else one that all ranks of a host agree on.
    spawn: start a sidecar where none answers: True, or a `Spawn` that says how.
    dtype: the type in which floating tensors are published, cast while they are copied: one for all, {pattern: type}, or a
        function of the shard. Default: as they are.
    rules, parallel: for Megatron-style modules, how local tensors were cut, and where this rank is.
    atomic: groups of names that change together, such as weights and their scales.
    on_ended: what to do about a version that nobody can read, such as after the sidecar was started again: "warn" goes on.
    timeout: longest wait for readers, other ranks and the sidecar, in seconds.
    """

    def __init__(
        self,
        model: str,
        tensors: Source,
        *,
        rank: int | None = None,
        world: int | None = None,
        job: str | None = None,
        socket: str | os.PathLike[str] | None = None,
        spawn: bool | Spawn = False,
        dtype: DType = None,
        rules: Sequence[Rule] = (),
        parallel: Parallel | None = None,
        atomic: Sequence[Sequence[str]] = (),
        on_ended: Literal["warn", "raise"] = "warn",
        timeout: float = 600.0,
        kind: Literal["arenas", "external"] = "arenas",
    ) -> None:
        self.model, self.timeout, self.on_ended = model, timeout, on_ended
        self.rank, self.world = launch.rank_and_world(rank, world)
        self.job = launch.job(job, self.world)
        self.sidecar = Sidecar(socket or default_socket(model))
        self._spawn = Spawn() if spawn is True else spawn or None
        self._source, self._dtype, self._rules, self._parallel, self._atomic = tensors, dtype, tuple(rules), parallel, atomic
        self._session = uuid.uuid4().hex
        self._path = f"/v1/{kind}/{self.rank}"  # "external" is what InPlacePublisher asks for
        self._generation = 0
        self._slots: list[copying.Slot] = []
        self._copies: dict[int, list[copying.Named]] = {}  # of a slot: one for each block of each shard
        self._stale: dict[int, set[str]] = {}  # of a slot: tensors that changed since it was filled; not there: any may have
        self._under_way: int | None = None  # the version whose end is not known yet
        self._last: int | None = None  # the newest version that was handed over and is not known to have ended
        self._since: set[str] | None = None  # tensors that changed since that one; None: any may have
        self._closed = False
        self._find()
        self._with_patience(self._attach)

    # What is published.

    def _find(self) -> None:
        found = _resolve(self._source, self._rules, self._parallel)
        self._shards, self._since = found.shards, None
        self._served = [copying.served_dtype(self._dtype, s) for s in found.shards]
        self._groups = [{"kind": "alias", "members": g} for g in found.aliases]
        self._groups += [{"kind": "atomic", "members": list(g)} for g in self._atomic]
        self._pointers = _pointers(found.shards)
        self._copies, self._stale = {}, {}

    def _refresh(self) -> None:
        """Finds the tensors anew where they have moved, as after load_state_dict(assign=True) or .to(dtype)."""
        before, served = self._shards, self._served
        found = _resolve(self._source, self._rules, self._parallel)
        if _pointers(found.shards) == self._pointers and len(found.shards) == len(before):
            return
        self._find()
        was = [_entry(s, t) for s, t in zip(before, served, strict=True)]
        if was != [_entry(s, t) for s, t in zip(self._shards, self._served, strict=True)]:
            log.warning("rank %d: the tensors have another layout now: the arena is made anew", self.rank)
            self._with_patience(self._attach)

    # The sidecar.

    def _attach(self) -> None:
        """Creates or adopts the arena, and maps it unless it is the one that is mapped."""
        body = {
            "model": self.model, "world": self.world, "job": self.job, "session": self._session, "groups": self._groups,
            "entries": [_entry(s, t) for s, t in zip(self._shards, self._served, strict=True)],
        }  # fmt: skip
        answer = self.sidecar.call("PUT", self._path, body, wait=self.timeout)
        if answer["generation"] != self._generation:
            self._copies, self._slots = {}, [copying.Slot(path, answer["nbytes"]) for path in answer["slots"]]
            self._stale = {}
            self._generation = answer["generation"]
        self._places = answer["places"]

    def _with_patience(self, ask: Any, *args: Any, final: Sequence[str] = ()) -> Any:
        """Asks until there is an answer: starts a sidecar where one may be started, attaches again to one that was.

        A sidecar that is silent is waited for a minute, message servers that are down as long as `timeout`. Codes in
        `final` are not asked again.
        """
        began, told = time.monotonic(), ""
        while True:
            try:
                if self._spawn is not None:
                    self.sidecar.ensure(self.model, self._spawn)
                return ask(*args)
            except errors.NoArena as e:
                if ask != self._attach:
                    log.warning("rank %d: the sidecar was started again: attaching", self.rank)
                    self._with_patience(self._attach)
                problem: errors.DrydockError = e
                patience = _SILENCE
            except errors.CannotSpawn:
                raise
            except errors.SidecarUnavailable as e:
                problem, patience = e, _SILENCE
            except errors.SidecarError as e:
                if not e.retry or e.code in final or isinstance(e, errors.Held):
                    raise
                problem, patience = e, self.timeout
            waited, patience = time.monotonic() - began, min(self.timeout, patience)
            if waited > patience:
                raise problem
            if waited > _UNMENTIONED and str(problem) != told:
                told = str(problem)
                log.warning("rank %d: trying again for up to %.0f s: %s", self.rank, patience, told)
            time.sleep(0.05 if waited < _UNMENTIONED else 0.2)

    def _version(self, verb: str, version: int, wait: float, final: Sequence[str] = (), **more: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            body = {
                "session": self._session, "generation": self._generation, "version": version, "wait_ms": int(wait * 1000), **more,
            }  # fmt: skip
            return self.sidecar.call("POST", f"{self._path}/{verb}", body, wait)

        answer: dict[str, Any] = self._with_patience(ask, final=final)
        return answer

    def _poll(self, verb: str, version: int, until: tuple[str, ...], timeout: float, **more: Any) -> dict[str, Any]:
        """Asks again until the version is in one of the states, or the time is over."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            answer = self._version(verb, version, max(0.0, min(left, POLL)), **more)
            if answer["state"] in until:
                return answer
            if left <= 0:
                slots = answer.get("slots") or []
                holders = [h for s in slots for h in s.get("holders") or ()]
                raise errors.Held(
                    "held", f"version {version} is still {answer['state']} after {timeout:g} s; slots: {_describe(slots)}", True, holders
                )

    # What a trainer calls.

    @property
    def names(self) -> list[str]:
        """The names of this rank's tensors, as they are published."""
        return list(dict.fromkeys(s.name for s in self._shards))

    def publish(
        self, version: int, *, wait: bool = False, traceparent: str | None = None, changed: Iterable[str] | None = None
    ) -> Publication:
        """Publishes what the tensors hold now as a version, which must be larger than all before.

        Returns when the tensors may be changed again; with `wait`, when the version is committed by all ranks. What became
        of a version that was not waited for is told at the next call, or by `wait_committed`.

        changed: names of those of this rank's tensors that are not what they were when it published before; none of the
            others is looked at, copied, or read by receivers that serve the version before. What shares a group with one
            that changed counts as changed. All ranks must give it, or none; each its own names (see `names`), which may be
            none. It is only a saving: where there is no version before that can be built upon, such as one that ended, or
            where tensors have moved, all is published.
        """
        began = time.monotonic()
        if self._closed:
            raise errors.DrydockError("the publisher is closed")
        if not 0 <= version < 1 << 63:
            raise ValueError(f"version {version}: 0 to 2**63-1 are possible")
        self._settle()
        self._refresh()
        self._age(None if changed is None else self._grouped(changed))
        out = Publication(version, "waiting")
        if self._since is not None and self._last is not None and self._last < version:
            out.base = self._last
        try:
            self._write(out, traceparent)
            if wait and out.state == "publishing":
                out = self._follow(out, self.wait_committed(version))
        except errors.VersionEnded as e:
            self._ended(out, e)
        out.blocked = time.monotonic() - began
        return out

    def _grouped(self, changed: Iterable[str]) -> set[str]:
        """The names, with those that share a group with one of them."""
        names, known = set(changed), {*self.names, *(m for g in self._groups for m in g["members"])}
        if isinstance(changed, str) or names - known:
            wrong = changed if isinstance(changed, str) else ", ".join(sorted(names - known)[:4])
            raise ValueError(f"changed: {wrong!r} is no list of names of tensors of rank {self.rank}")
        while True:
            more = {m for g in self._groups if not names.isdisjoint(g["members"]) for m in g["members"]} - names
            if not more:
                return names
            names |= more

    def _age(self, changed: set[str] | None) -> None:
        """Notes what no slot has any more, nor the last version. A slot that was filled two versions ago lacks what both of
        them changed, and a version that came to nothing leaves its changes to the next."""
        some = [(s, t) for s, t in zip(self._shards, self._served, strict=True) if changed is None or s.name in changed]
        copying.refuse_saturation([s for s, _ in some], [t for _, t in some])
        if changed is None:
            self._stale, self._since = {}, None
            return
        for stale in self._stale.values():
            stale |= changed
        if self._since is not None:
            self._since |= changed

    def _handed_over(self, out: Publication, answer: Mapping[str, Any]) -> None:
        """The sidecar has the version, and the next one may build upon it."""
        self._under_way = self._last = out.version
        self._since = set()
        out.state, out.run = answer["state"], answer.get("run", 0)

    def _write(self, out: Publication, traceparent: str | None) -> None:
        """Copies into a free slot and says so; both again where the files were made anew meanwhile."""
        for attempt in range(3):
            began = time.monotonic()
            answer = self._poll("begin", out.version, ("filling", "publishing", "committed"), self.timeout)
            out.slot, out.waited = answer["slot"], out.waited + time.monotonic() - began
            if answer["state"] != "filling":  # an earlier call has got as far
                self._handed_over(out, answer)
                return
            began = time.monotonic()
            more = self._fill(out.slot)
            out.copied = time.monotonic() - began
            if traceparent:
                more["traceparent"] = traceparent
            if out.base is not None:
                more |= {"base": out.base, "changed": sorted((self._since or set()) & self._layout_names())}
            try:
                answer = self._version("publish", out.version, 0.0, slot=out.slot, **more)
            except errors.StaleGeneration:
                if attempt == 2:
                    raise
                self._with_patience(self._attach)
                continue
            self._handed_over(out, answer)
            return

    def _layout_names(self) -> set[str]:
        """What the sidecar knows of: tensors of this rank, and the other names of those that lead a group of aliases."""
        own = set(self.names)
        return own.union(*(g["members"] for g in self._groups if g["kind"] == "alias" and g["members"][0] in own))

    def _fill(self, slot: int) -> dict[str, Any]:
        """Writes what a slot lacks, and returns what the sidecar should be told besides."""
        stale = self._stale.pop(slot, None)  # not put back before the slot is whole
        copies = self._copies_of(slot)
        copying.perform([c.copy for c in copies if stale is None or c.name in stale])
        self._stale[slot] = set()
        return {}

    def _copies_of(self, slot: int) -> list[copying.Named]:
        if slot not in self._copies:
            self._copies[slot] = copying.plan(self._shards, self._served, self._places, self._slots[slot])
        return self._copies[slot]

    def _settle(self) -> None:
        """Tells what became of the version before, if it is known by now."""
        version, self._under_way = self._under_way, None
        if version is None:
            return
        try:
            answer = self._version("await", version, 0.0, final=("control_unavailable",))
        except errors.VersionEnded as e:
            self._ended(Publication(version, "ended"), e)
        except (errors.Incomplete, errors.Held) as e:
            self._ended(Publication(version, "ended"), errors.VersionEnded(e.code, str(e)))
        except errors.SidecarError as e:
            if e.code == "not_begun":  # a sidecar that was started again knows nothing of it
                e = errors.VersionEnded("version_ended", "its sidecar was started again")
            elif e.code != "control_unavailable":  # the next version is as good
                raise
            self._ended(Publication(version, "ended"), e)
        else:
            log.debug("rank %d: version %d is %s", self.rank, version, answer["state"])

    def _ended(self, out: Publication, e: errors.SidecarError) -> None:
        out.state, out.reason = "ended", str(e)
        self._under_way = self._last = None
        if self.on_ended == "raise":
            raise e
        log.warning("rank %d: version %d can't be read, training goes on: %s", self.rank, out.version, e)

    @staticmethod
    def _follow(out: Publication, later: Publication) -> Publication:
        out.state, out.run, out.base = later.state, later.run, later.base
        return out

    def wait_committed(self, version: int, timeout: float | None = None) -> Publication:
        """Waits until all ranks have published a version. `VersionEnded` where it never will be read."""
        answer = self._poll("await", version, ("committed", "draining", "drained"), self.timeout if timeout is None else timeout)
        if self._under_way == version:
            self._under_way = None
        return Publication(version, "committed", answer.get("run", 0), answer["slot"], base=answer.get("base"))

    def wait_drained(self, version: int, timeout: float | None = None) -> None:
        """Withdraws a version and waits until nobody reads it: then its memory is free. `Held` names who still reads."""
        self._poll("drain", version, ("drained",), self.timeout if timeout is None else timeout)
        if self._under_way == version:
            self._under_way = None

    def wait_served(self, version: int, receivers: int = 1, timeout: float | None = None) -> list[str]:
        """Waits until so many receivers serve a version or a newer one, and names them."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            wait = max(0.0, min(deadline - time.monotonic(), POLL))
            body = {"version": version, "receivers": receivers, "wait_ms": int(wait * 1000)}
            answer = self._with_patience(lambda: self.sidecar.call("POST", f"{self._path}/served", body, wait))  # noqa: B023
            if answer["enough"]:
                return list(answer["receivers"])
            if time.monotonic() >= deadline:
                others = "; ".join(answer.get("others") or ["no other receiver has said anything"])
                raise errors.Incomplete(
                    "incomplete", f"{len(answer['receivers'])} of {receivers} receivers serve version {version}: {others}"
                )

    def status(self) -> dict[str, Any]:
        """What the sidecar knows of this rank: its slots, and who reads them."""
        return self.sidecar.call("GET", self._path)

    def close(self, timeout: float = 30.0) -> None:
        """Withdraws what is published, waits for readers, and has the arena removed. May be repeated.

        Where readers don't let go in time, or nobody answers, that is logged: the sidecar ends the arena by itself later.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._under_way is not None:
                self._settle_last(timeout)
            body = {"session": self._session, "wait_ms": int(min(timeout, 60.0) * 1000)}
            self.sidecar.call("POST", f"{self._path}/detach", body, min(timeout, 60.0))
        except errors.DrydockError as e:
            log.warning("rank %d: the arena was not removed: %s", self.rank, e)
        self._copies, self._slots = {}, []

    def _settle_last(self, timeout: float) -> None:
        """Lets the last version be committed: other ranks may still be about to publish it."""
        assert self._under_way is not None
        try:
            self.wait_committed(self._under_way, timeout)
        except errors.SidecarError as e:
            log.warning("rank %d: the last version is not committed: %s", self.rank, e)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _entry(shard: Shard, dtype: str) -> dict[str, Any]:
    return {"name": shard.name, "dtype": dtype, "shape": shard.shape, "box": shard.box}


def _describe(slots: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{s['slot']} holds version {s['version']} ({s['state']}), read by {', '.join(s.get('holders') or ['nobody'])}" for s in slots
    )


def _pointers(shards: Sequence[Shard]) -> list[int]:
    """Where each shard's bytes are, as far as its memory says so."""
    return [s.data.data_ptr() if hasattr(s.data, "data_ptr") else id(s.data) for s in shards]


def _resolve(source: Source, rules: Sequence[Rule], parallel: Parallel | None) -> Found:
    """Turns what was given into shards. torch is imported only where there are torch tensors."""
    value = source() if callable(source) and not hasattr(source, "named_parameters") else source
    if hasattr(value, "shards") and hasattr(value, "aliases"):
        found: Found = value
        return found
    values = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(values, (list, tuple)) and all(isinstance(s, Shard) for s in values):
        if not values:
            raise errors.ShardError("there is nothing to publish")
        return _Plain(list(values))  # type: ignore[return-value]
    if "torch" not in sys.modules:
        raise errors.ShardError("give torch tensors, a torch module, or Shards")
    from . import found as finder

    return finder.find(value, rules, parallel)


class _Plain:
    """Shards that need no torch."""

    def __init__(self, shards: list[Shard]) -> None:
        self.shards = shards
        self.aliases: list[list[str]] = []
