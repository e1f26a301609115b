"""What can go wrong between a trainer and its sidecar.

Each class says what the caller should do. All derive from `DrydockError`; those that the sidecar reports carry its code.
"""

from __future__ import annotations

from collections.abc import Sequence


class DrydockError(Exception):
    """Anything that this package raises by itself."""


class ShardError(DrydockError):
    """The tensors can't be published as they are now; the message says what to change."""


class UnshardedError(ShardError):
    """Parameters are whole where they should be shards, as FSDP leaves them after a forward without a backward."""


class SaturationError(DrydockError):
    """A cast would change values to the largest one that the type can hold. Nothing was published."""


class SidecarUnavailable(DrydockError):
    """Nobody answers on the socket. The call may be repeated; what was published before may have ended."""


class CannotSpawn(SidecarUnavailable):
    """There is no sidecar, and none can be started until something on this host is changed; the message says what."""


class SidecarError(DrydockError):
    """The sidecar refused. `code` is part of its API (docs/sidecar.md); with `retry` the same call may succeed later."""

    def __init__(self, code: str, message: str, retry: bool = False, holders: Sequence[str] = ()) -> None:
        super().__init__(f"{code}: {message}" + (f" (read by {', '.join(holders)})" if holders else ""))
        self.code = code
        self.retry = retry
        self.holders = tuple(holders)


class NoArena(SidecarError):
    """The sidecar was started again, or has ended the arena: attach again. `Publisher` does so by itself."""


class StaleGeneration(SidecarError):
    """The arena's files were made anew: map them again, and copy again. `Publisher` does so by itself."""


class VersionEnded(SidecarError):
    """The version can't be read any more, or never could. Training may go on; publish the next one."""


class VersionTaken(SidecarError):
    """An earlier life of this trainer has published this number. Begin a new job, or go on after it."""


class Superseded(SidecarError):
    """A newer process publishes for this rank. This one must not go on."""


class Fenced(SidecarError):
    """A newer run exists. This one can't publish any more."""


class Held(SidecarError, TimeoutError):
    """Receivers still read what must be free, and the time to wait for them is over. `holders` names them."""


class Incomplete(SidecarError, TimeoutError):
    """Other ranks did not come in time."""


_CLASSES: dict[str, type[SidecarError]] = {
    "no_arena": NoArena,
    "stale_generation": StaleGeneration,
    "version_ended": VersionEnded,
    "version_taken": VersionTaken,
    "superseded": Superseded,
    "rank_taken": Superseded,
    "fenced": Fenced,
    "held": Held,
    "incomplete": Incomplete,
}


def of_code(code: str, message: str, retry: bool = False, holders: Sequence[str] = ()) -> SidecarError:
    """The exception for a code of the API; codes of newer sidecars are plain `SidecarError`s."""
    return _CLASSES.get(code, SidecarError)(code, message, retry, holders)
