"""What a publish costs a trainer: the copy beside memcpy, the time that the trainer is kept, the call until the commit.

One rank, bfloat16 tensors (and float32 ones that are cast), a sidecar and a NATS server on this machine. Times are the best and
the median of the rounds; rounds of the different measures take turns, since a shared machine is faster at one time than at another.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from conftest import World, serve_nats

from drydock import Publisher


def timed(f: Callable[[], object]) -> float:
    began = time.perf_counter()
    f()
    return time.perf_counter() - began


def show(what: str, times: list[float], nbytes: int) -> None:
    best, middle = min(times), statistics.median(times)
    print(f"{what:44} best {best * 1e3:8.1f} ms  {nbytes / best / 1e9:6.2f} GB/s   median {middle * 1e3:8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=954, help="of what is published")
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cast", action="store_true", help="publish float32 tensors as bfloat16")
    parser.add_argument("--layout", default="plain", help="the sidecar's --served-layout")
    args = parser.parse_args()
    nelems = args.mib * 2**20 // 2 // args.tensors // 1024 * 1024
    dtype = torch.float32 if args.cast else torch.bfloat16
    tensors = {f"layers.{i}.weight": torch.ones(nelems // 1024, 1024, dtype=dtype) for i in range(args.tensors)}
    nbytes = nelems * 2 * args.tensors
    source, destination = torch.ones(nbytes, dtype=torch.uint8), torch.zeros(nbytes, dtype=torch.uint8)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(prefix="dd", dir="/dev/shm") as shm,
        serve_nats(Path(folder)) as nats,
    ):
        world = World(nats, Path(folder), Path(shm))
        try:
            world.sidecar("--served-layout", args.layout)
            began = time.perf_counter()
            with Publisher(world.model, tensors, socket=world.socket, dtype="bfloat16") as publisher:
                took = time.perf_counter() - began
                print(f"{nbytes / 1e9:.2f} GB in {args.tensors} tensors, {torch.get_num_threads()} threads; set-up {took:.2f} s")
                memcpy, copy, kept, committed = [], [], [], []
                for version in range(1, args.rounds + 3):
                    round_memcpy = timed(lambda: destination.copy_(source))
                    began = time.perf_counter()
                    out = publisher.publish(version)
                    publisher.wait_committed(version)
                    if version > 2:  # the first two touch each slot for the first time
                        memcpy.append(round_memcpy)
                        copy.append(out.copied)
                        kept.append(out.blocked)
                        committed.append(time.perf_counter() - began)
            show("memcpy, private memory to private memory", memcpy, nbytes)
            show("copy into the slot", copy, nbytes)
            show("trainer kept by publish()", kept, nbytes)
            show("publish() until committed", committed, nbytes)
        finally:
            world.end()


if __name__ == "__main__":
    main()
