"""Makes the arenas of one version by replaying a capture on a checkpoint, labelled as a receiver labels them.

usage: make_arenas.py CAPTURE CHECKPOINT FOLDER TP RUN VERSION    makes FOLDER/rank-0.safetensors …
"""

import hashlib
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import _TYPES, save_file

from drydock.capture import replay, schema


def make(capture: schema.Capture, checkpoint: pathlib.Path, folder: pathlib.Path, tp: int, run: int, version: int) -> None:
    """Writes the file of each rank."""
    folder.mkdir(parents=True)
    with safe_open(checkpoint / "model.safetensors", "pt") as f:
        for rank in range(tp):
            case = capture.case(tp, rank)
            if excluded := [p.name for p in case.params if p.excluded]:
                raise SystemExit(f"{excluded} can't be made by copies")
            filled = replay.params(
                case,
                lambda p: torch.zeros(p.shape, dtype=_TYPES[p.dtype]),
                lambda i: f.get_tensor(capture.sources[i].name),
            )
            tensors = {p.name: t for p, t in filled}
            layout = hashlib.sha256(repr([(p.name, p.dtype, p.shape) for p in case.params]).encode()).hexdigest()[:32]
            label = {"model": "org/tiny", "run": run, "version": version, "rank": rank, "layout": layout}
            save_file(tensors, folder / f"rank-{rank}.safetensors", {f"drydock.{k}": str(v) for k, v in label.items()})


def main() -> None:
    capture = schema.decode(pathlib.Path(sys.argv[1]).read_bytes())
    tp, run, version = map(int, sys.argv[4:7])
    make(capture, pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), tp, run, version)


if __name__ == "__main__":
    main()
