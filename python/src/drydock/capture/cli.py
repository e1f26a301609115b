"""drydock-capture: records what an engine's loaders copy for each rank of a model."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import pathlib
import sys
from collections.abc import Sequence

from drydock.capture import checkpoint, installed, schema

EXIT_FAILED, EXIT_EXCLUDED = 1, 3


def default_cache() -> pathlib.Path:
    """Where captures are kept between calls."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "drydock" / "captures"


def cache_name(engine: str, config: bytes, contents: Sequence[str], tp: int, ep: bool) -> str:
    """A file name that is another for another engine, model configuration, checkpoint or parallel shape."""
    h = hashlib.sha256()
    for part in (schema.SCHEMA, engine, f"tp {tp} ep {ep}", config.decode(), *contents):
        h.update(len(part).to_bytes(8, "little") + part.encode())
    return f"{h.hexdigest()[:32]}.json.gz"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    p = argparse.ArgumentParser(
        prog="drydock-capture",
        description="Records which bytes of a checkpoint an engine's own loaders copy to which place, for each rank. "
        "Needs the engine, no GPU and no weights: headers of safetensors files, or a config.json alone, are enough.",
        epilog="Exit status: 0; 1 on failure; 2 on a wrong command line; 3 when parameters are excluded, because the loader "
        "computes them: the file is written, and such a model can't be refit by copies.",
    )
    p.add_argument(
        "engine", choices=["vllm", "checkpoint"],
        help="whose loaders; checkpoint: nobody's, an arena that is the checkpoint, for engines that read folders of such files",
    )  # fmt: skip
    p.add_argument("--model", type=pathlib.Path, required=True, metavar="DIR", help="folder with config.json, and weights if there are any")
    p.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel size (1)")
    p.add_argument("--ep", action="store_true", help="expert parallel over the same ranks")
    p.add_argument("--out", type=pathlib.Path, metavar="FILE", help="where to write it; default: only the cache")
    p.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="folder of captures made before (~/.cache/drydock/captures)")
    p.add_argument("--fresh", action="store_true", help="make it anew, whatever the cache has")
    a = p.parse_args(argv)
    if a.tp < 1:
        p.error(f"--tp {a.tp}: at least 1")
    if a.engine == "checkpoint" and (a.tp > 1 or a.ep or not a.out):
        p.error("checkpoint: one rank, and --out is needed")
    if not (a.model / "config.json").is_file():
        p.error(f"--model {a.model}: there is no config.json")
    return a


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    a = arguments(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be fetched
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        if a.engine == "checkpoint":
            capture = whole(checkpoint.sources(a.model), a.model.resolve().name)
            write(a.out, schema.encode(capture))
            return report(capture, a.out)
        path, capture = obtain(a.model, a.tp, a.ep, a.cache or default_cache(), a.fresh)
    except Exception as e:
        print(f"drydock-capture: {type(e).__name__}: {e}", file=sys.stderr)
        return EXIT_FAILED
    if a.out:
        write(a.out, path.read_bytes())
    return report(capture, a.out or path)


def whole(sources: list[schema.Source], family: str) -> schema.Capture:
    """A capture that brings every source as it is: SGLang loads folders of checkpoint files, and shards by itself."""
    case = schema.Case("none", 1, 0, False)
    for i, s in enumerate(sources):
        case.params.append(schema.Param(s.name, s.dtype, s.shape))
        stride = [math.prod(s.shape[d + 1 :]) for d in range(len(s.shape))]
        case.copies.append(schema.Copy(i, [], i, 0, s.shape, stride))
    return schema.Capture("none", family, "", {}, sources, [case])


def obtain(model: pathlib.Path, tp: int, ep: bool, cache: pathlib.Path, fresh: bool = False) -> tuple[pathlib.Path, schema.Capture]:
    """The capture of a model at a parallel shape, from the cache or made now, and where it lies in the cache.

    The cache is looked at first, by what can be known without importing the engine: that import takes up to two minutes,
    and a receiver that starts, starts again, or asks through its engine, waits for the answer.
    """
    path = cache / cache_name(engine_name(), (model / "config.json").read_bytes(), checkpoint.contents(model), tp, ep)
    if path.exists() and not fresh:
        return path, schema.decode(path.read_bytes())
    from drydock.capture import simulated

    capture = simulated.capture(model, checkpoint.sources(model), [(tp, rank, ep) for rank in range(tp)], model.resolve().name)
    write(path, schema.encode(capture))
    return path, capture


def engine_name() -> str:
    """The engine whose loaders would be recorded, as far as a cache must tell it from others."""
    if known := installed.versions("vllm", "torch"):
        return known
    from drydock.capture import simulated  # such as from a source tree that was never installed: it must be asked itself

    return simulated.engine()


def write(path: pathlib.Path, content: bytes) -> None:
    """Replaces a file in one step: a reader never finds half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def report(c: schema.Capture, path: pathlib.Path) -> int:
    """Says what was recorded, and what can't be refit."""
    copies = sum(len(k.copies) for k in c.cases)
    print(json.dumps({"file": str(path), "engine": c.engine, "ranks": len(c.cases), "sources": len(c.sources), "copies": copies}))
    for i in sorted({i for k in c.cases for i in k.elsewhere}):
        print(f"{c.sources[i].name} goes to a buffer, or to what the loader makes itself, which no refit changes", file=sys.stderr)
    excluded = sorted({(p.name, p.excluded) for k in c.cases for p in k.params if p.excluded})
    for name, why in excluded:
        print(f"excluded {name}: {why}", file=sys.stderr)
    return EXIT_EXCLUDED if excluded else 0


if __name__ == "__main__":
    sys.exit(main())
