"""Drydock for Python: trainers publish their weights, and engines take them.

`Publisher` publishes a trainer rank's tensors through a sidecar (docs/trainers.md). `drydock.engines` holds what runs inside
inference engines, `drydock.capture` records what their loaders copy. This package itself needs the standard library alone;
torch is used where a trainer brings it.
"""

from .errors import (
    CannotSpawn,
    DrydockError,
    Fenced,
    Held,
    Incomplete,
    SaturationError,
    ShardError,
    SidecarError,
    SidecarUnavailable,
    Superseded,
    UnshardedError,
    VersionEnded,
    VersionTaken,
)
from .publisher import Publication, Publisher
from .rules import Parallel, Rule
from .shards import Shard, whole
from .sidecar import Sidecar, Spawn

__version__ = "0.1.0"

__all__ = [
    "CannotSpawn",
    "DrydockError",
    "Fenced",
    "Held",
    "Incomplete",
    "Parallel",
    "Publication",
    "Publisher",
    "Rule",
    "SaturationError",
    "Shard",
    "ShardError",
    "Sidecar",
    "SidecarError",
    "SidecarUnavailable",
    "Spawn",
    "Superseded",
    "UnshardedError",
    "VersionEnded",
    "VersionTaken",
    "whole",
]
