"""Which rank of which launch this process is, from what the launcher says."""

from __future__ import annotations

import os
import sys
import uuid

from . import errors


def rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """What was given, else torch.distributed's where it is set up, else RANK and WORLD_SIZE, else 0 of 1."""
    if (rank is None) != (world is None):
        raise ValueError("rank and world: give both, or none")
    if rank is None or world is None:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            rank, world = dist.get_rank(), dist.get_world_size()
        else:
            rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}: a rank is at least 0 and below the world size")
    return rank, world


def job(given: str | None, world: int) -> str:
    """The launch's name: equal on all ranks, another one for each launch.

    Given, else DRYDOCK_JOB, else torchrun's run id with its restart count (a restart of all workers is a new launch, since
    it may repeat steps), else SLURM's. One process alone makes one up. Several can't agree on one without talking.
    """
    named = given or os.environ.get("DRYDOCK_JOB")
    if named:
        return named
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"{elastic}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    slurm = os.environ.get("SLURM_JOB_ID")
    if slurm:
        return f"slurm-{slurm}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    if world == 1:
        return uuid.uuid4().hex
    raise errors.DrydockError(
        f"{world} ranks need a name for their launch that all of them know: job=…, DRYDOCK_JOB, or torchrun --standalone or --rdzv-id"
    )
