"""What the processes say of each refit, brought together: a row for each step, and means by part at the end."""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

#: Begins the line in which a receiver says how a refit went, stage by stage.
PREFIX = "MX_REFIT_TIMING "

#: Stages of a receiver's record from the announcement to the last byte in its arena.
STAGING = (
    "control_discovery", "source_preparation", "setup_registration", "transfer_planning", "wire_transfer", "receive_sync", "transformation",
)  # fmt: skip


class Refits:
    """Reads a receiver's output. Times are in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.cycles: dict[str, dict[str, Any]] = {}  # by "run.version", of what was applied
        self.pauses: dict[str, float] = {}  # how long the engine answered nobody, by its installer
        self.complaints: list[str] = []

    def line(self, text: str) -> None:
        """Takes one line, of whichever kind."""
        with self._lock:
            if PREFIX in text:
                record = json.loads(text.partition(PREFIX)[2])
                if record["drydock"]["outcome"] == "applied":
                    self.cycles[f"{record['drydock']['run']}.{record['version']}"] = record
                return
            try:
                entry = json.loads(text)
            except ValueError:
                return
            if entry.get("msg") == "applied":
                self.pauses[entry["key"]] = entry["pause"] / 1e9
            elif entry.get("level") in ("WARN", "ERROR"):
                self.complaints.append(entry["msg"] + (f": {entry['error']}" if entry.get("error") else ""))

    def whole(self, version: str) -> bool:
        """Whether both of what is said about a version has come."""
        with self._lock:
            return version in self.cycles and version in self.pauses

    def stage(self, version: str, *names: str) -> float:
        """Seconds of some stages of one refit."""
        stages = self.cycles[version]["stages"]
        return sum(stages[n]["duration_ms"] for n in names) / 1e3


@dataclass
class Row:
    """One step. Times are in seconds; `first` counts from the end of the optimizer's step."""

    step: int
    version: str
    reward: float
    loss: float
    sample: float
    train: float
    publish: float  #: the trainer was kept
    copy: float  #: of that, the copy itself
    commit: float
    stage: float
    install: float
    pause: float
    replace: float  #: of the pause, the engine's own copy and post-processing
    first: float | None
    answered: int  #: answers of the load between the publish and the new version
    nbytes: int = 0
    logprobs: list[Any] = field(default_factory=list)


COLUMNS: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
    ("version", "", lambda r: r.version),
    ("reward", "", lambda r: f"{r.reward:.3f}"),
    ("loss", "", lambda r: f"{r.loss:.3f}"),
    ("publish", "ms", lambda r: ms(r.publish)),
    ("commit", "ms", lambda r: ms(r.commit)),
    ("stage", "ms", lambda r: ms(r.stage)),
    ("install", "ms", lambda r: ms(r.install)),
    ("pause", "ms", lambda r: ms(r.pause)),
    ("1st token", "ms", lambda r: ms(r.first)),
    ("answered", "", lambda r: str(r.answered)),
)


def ms(seconds: float | None) -> str:
    """Milliseconds, one decimal."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def head() -> str:
    """The table's head."""
    return "  ".join(f"{name:>9}" for name, _, _ in COLUMNS) + "\n" + "  ".join(f"{unit:>9}" for _, unit, _ in COLUMNS)


def line(row: Row) -> str:
    """One row of it."""
    return "  ".join(f"{value(row):>9}" for _, _, value in COLUMNS)


PARTS: tuple[tuple[str, Callable[[Row], float | None]], ...] = (
    ("publish: the trainer is kept (copy and cast into the arena)", lambda r: r.publish),
    ("commit: digests, tables of all ranks, manifest", lambda r: r.commit),
    ("stage: announcement to the last verified byte in the receiver's arena", lambda r: r.stage),
    ("install: look, check, swap, close", lambda r: r.install),
    ("  of it the engine is paused", lambda r: r.pause),
    ("  of it copy and post-processing in the engine", lambda r: r.replace),
    ("step finished → first token with the new weights", lambda r: r.first),
)


def parts(rows: Iterable[Row]) -> str:
    """Median, least and most by part. The first step, whose plan is made and whose pages are new, is left out where there are others."""
    rows = list(rows)
    out = [f"{'':<72}{'median':>9}{'min':>9}{'max':>9}"]
    for name, value in PARTS:
        found = [v for r in rows[1:] or rows if (v := value(r)) is not None]
        if found:
            out.append(f"{name:<72}{ms(statistics.median(found)):>9}{ms(min(found)):>9}{ms(max(found)):>9}")
    return "\n".join(out)
