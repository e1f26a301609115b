"""What one worker knows of the update under way: who owns it, what is staged, what serves, what went wrong.

The state is plain data that every status call returns. The words:

    idle      nothing is under way
    open      an update has begun
    staged    a file was checked and waits for the apply
    applied   the version asked for serves on this rank
    refused   the file or the announcement is wrong; nothing was touched
    undone    the apply failed, and what served before serves again
    broken    the apply failed, and going back failed too: this rank has no version. Do not let it answer requests
    aborted   the update was given up before the apply

Law: `serving` names a version only while every parameter of the rank is of that version. None is the engine's own
checkpoint, as long as the state is not broken.

The module needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from drydock.engines import arenafile
from drydock.engines.arenafile import ArenaError, TensorType

IDLE, OPEN, STAGED, APPLIED = "idle", "open", "staged", "applied"
REFUSED, UNDONE, BROKEN, ABORTED = "refused", "undone", "broken", "aborted"

# Bytes of an error that travel in a status.
MAX_ERROR = 2000


@dataclass
class Announcement:
    """What the caller says of the file of one rank. The file's own label must say the same."""

    files: list[str] = field(default_factory=list)  # one: the arena of this rank
    model: str = ""
    run: int = 0  # from 1
    version: int = 0
    rank: int = -1  # tensor-parallel rank
    layout: str = ""  # the receiver's digest of the rank's layout; empty: not compared
    owner: str = ""  # who is updating, as named at init
    back: bool = False  # the version may be older than what serves: an operator's order, or going back after a failure
    traceparent: str = ""  # W3C trace context of the refit

    @property
    def key(self) -> tuple[int, int]:
        """Run and version, in the order in which versions are compared."""
        return self.run, self.version

    @property
    def label(self) -> str:
        """The version as the engine shows it to its clients."""
        return f"{self.run}.{self.version}"


class Session:
    """The update of one worker. Its methods raise ArenaError; whoever calls them catches, and notes it by `failed`."""

    def __init__(self) -> None:
        self.root = ""  # folder below which files may be opened; empty: init was not called
        self.owner = ""
        self.state = IDLE
        self.error = ""
        self.staged: Announcement | None = None
        self.serving: Announcement | None = None
        self.previous: Announcement | None = None  # what to go back to; None: the engine's checkpoint
        self.in_hand = ""  # label of a version whose update has not been closed by `done`
        self.timing: dict[str, float] = {}  # seconds, of the last apply

    def claim(self, root: str, owner: str, take_over: bool) -> None:
        """Makes owner the one who may update. Somebody else's claim stands, unless it is taken over."""
        if not root or not owner:
            raise ArenaError(f"init with root {root!r}, owner {owner!r}: both are needed")
        if self.owner not in ("", owner) and not take_over:
            raise ArenaError(f"this engine is updated by {self.owner}; {owner} may take it over only if told to")
        self.root, self.owner = root, owner

    def release(self) -> None:
        """Forgets the owner, so that another may claim."""
        self.owner = ""
        if self.state in (OPEN, STAGED):
            self.abort()

    def start(self) -> None:
        """Begins an update. A broken rank stays broken until a version is applied."""
        self.staged, self.error = None, ""
        if self.state != BROKEN:
            self.state = OPEN

    def stage(self, a: Announcement, rank: int, want: Mapping[str, TensorType]) -> None:
        """Checks announcement and file against each other and against what the engine needs. Touches nothing."""
        self._may_stage(a, rank)
        have = [arenafile.read(arenafile.resolve(path, self.root)) for path in a.files]
        if len(have) != 1:
            raise ArenaError(f"{len(have)} files for rank {rank}, expected its one arena")
        check_label(have[0], a)
        if text := arenafile.differences(have[0].tensors, want):
            raise ArenaError(f"{a.files[0]}: {text}")
        self.staged, self.in_hand = a, a.label
        if self.state != BROKEN:
            self.state = STAGED

    def _may_stage(self, a: Announcement, rank: int) -> None:
        if not self.root:
            raise ArenaError("update before init: the folder of the arenas is not known")
        if a.owner != self.owner:
            raise ArenaError(f"update by {a.owner!r}: this engine is updated by {self.owner!r}")
        if a.rank != rank:
            raise ArenaError(f"the announcement is for rank {a.rank}, this is rank {rank}")
        if a.run < 1 or a.version < 0:
            raise ArenaError(f"run {a.run} version {a.version} is no version: runs count from 1")
        if self.serving and a.key < self.serving.key and not a.back and self.state != BROKEN:
            raise ArenaError(f"version {a.label} is older than {self.serving.label}, which serves")

    def applied(self, a: Announcement) -> None:
        """A version serves on this rank, whole."""
        if self.serving is None or self.serving.key != a.key:
            self.previous = self.serving
        self.staged, self.serving, self.state, self.error = None, a, APPLIED, ""

    def went_back(self) -> None:
        """What served before the last apply serves again."""
        self.staged, self.serving, self.state = None, self.previous, UNDONE

    def refuse(self, e: BaseException) -> None:
        """Nothing was touched. A broken rank stays broken."""
        self.staged, self.error = None, describe(e)
        if self.state != BROKEN:
            self.state = REFUSED

    def undone(self, e: BaseException) -> None:
        """The apply failed, and what served still does, whole."""
        self.staged, self.state, self.error = None, UNDONE, describe(e)

    def broke(self, e: BaseException) -> None:
        """The apply failed and could not be taken back: no version is whole on this rank. What served can be tried again."""
        if self.state != BROKEN:
            self.previous = self.serving
        self.staged, self.serving, self.state, self.error = None, None, BROKEN, describe(e)

    def abort(self) -> None:
        """Gives the update up. What serves is not touched."""
        self.staged = None
        if self.state in (OPEN, STAGED, REFUSED):
            self.state = ABORTED

    def done(self) -> None:
        """The caller has closed the update: the engine answers requests again."""
        self.in_hand = ""

    def status(self) -> dict[str, Any]:
        """What the caller is told; every value is of JSON."""
        return {
            "state": self.state,
            "error": self.error,
            "staged": self.staged.label if self.staged else "",
            "serving": self.serving.label if self.serving else "",
            "owner": self.owner,
            "in_hand": self.in_hand,
            "root": self.root,
            "timing": dict(self.timing),
        }


def check_label(have: arenafile.ArenaFile, a: Announcement) -> None:
    """Compares what a file says of itself with what was announced. Files of ranks have equal shapes: only this tells them apart."""
    found = {
        "rank": have.rank, "run": have.key[0], "version": have.key[1],
        "model": have.metadata.get(arenafile.MODEL, ""), "layout": have.layout,
    }  # fmt: skip
    said = asdict(a)
    for key, value in found.items():
        if value != said[key] and (key != "layout" or a.layout):
            raise ArenaError(f"{have.path}: its label says {key} {value!r}, announced was {said[key]!r}")


def describe(e: BaseException) -> str:
    """An error as a status carries it."""
    text = str(e) if isinstance(e, ArenaError) else f"{type(e).__name__}: {e}"
    return text[:MAX_ERROR]
