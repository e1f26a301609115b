"""A peer that uses NIXL's own Python bindings, without torch: serves a buffer to Go, or reads one from it.

serve: prints one JSON line {agent, md, base, nbytes} (md in hex), holds the buffer until stdin ends.
read:  takes one JSON line {agent, md, base, nbytes} on stdin, reads the bytes, prints their SHA-256.
bench: takes lines {agent, md, base, nbytes, run}, reads one run of four, prints the seconds of the fastest of ten reads.

The wheel is unpacked, not installed; its folder is the first argument.
"""

import glob
import hashlib
import importlib.util
import json
import sys
import time

import numpy


def bindings(root):
    """The extension module of the wheel, loaded from its file: the package around it would import torch."""
    path = glob.glob(f"{root}/nixl_cu12/_bindings*.so")[0]
    spec = importlib.util.spec_from_file_location("_bindings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(nixl, name, params):
    config = nixl.nixlAgentConfig()
    config.useProgThread = True
    config.pthrDelay = 1000
    agent = nixl.nixlAgent(name, config)
    defaults, _ = agent.getPluginParams("UCX")
    defaults.update(params)
    return agent, agent.createBackend("UCX", defaults)


def runs(base, nbytes):
    return numpy.array([[base, nbytes, 0]], dtype=numpy.uint64)


def read(nixl, agent, backend, local, remote, name):
    """One read as NIXL's own examples do it: lists, request, post, poll, release."""
    to = nixl.nixlXferDList(nixl.DRAM_SEG, local)
    source = nixl.nixlXferDList(nixl.DRAM_SEG, remote)
    request = agent.createXferReq(nixl.NIXL_READ, to, source, name, "", [backend])
    status = agent.postXferReq(request)
    until = time.monotonic() + 20
    while status == nixl.NIXL_IN_PROG and time.monotonic() < until:
        status = agent.getXferStatus(request)
    if status != nixl.NIXL_SUCCESS:
        sys.exit(f"read: {status}")
    agent.releaseXferReq(request)


def strided(base, run, step, count):
    out = numpy.zeros((count, 3), dtype=numpy.uint64)
    out[:, 0] = base + numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(step)
    out[:, 1] = run
    return out


def bench(nixl, agent, backend, base):
    for line in sys.stdin:
        other = json.loads(line)
        if agent.checkRemoteMD(other["agent"], nixl.nixlXferDList(nixl.DRAM_SEG)) != nixl.NIXL_SUCCESS:
            agent.loadRemoteMD(bytes.fromhex(other["md"]))
        run, count = other["run"], other["nbytes"] // (4 * other["run"])
        local, remote = strided(base, run, run, count), strided(other["base"], run, 4 * run, count)
        took = []
        for _ in range(11):
            start = time.perf_counter()
            read(nixl, agent, backend, local, remote, other["agent"])
            took.append(time.perf_counter() - start)
        print(min(took[1:]), flush=True)


def main():
    root, mode, nbytes, params = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    nixl = bindings(root)
    agent, backend = start(nixl, f"python-{mode}", params)
    memory = numpy.zeros(nbytes, dtype=numpy.uint8)
    base = memory.ctypes.data
    registered = nixl.nixlRegDList(nixl.DRAM_SEG, runs(base, nbytes))
    agent.registerMem(registered, [backend])
    if mode == "serve":
        memory[:] = numpy.arange(nbytes) * 31 % 251
        md = agent.getLocalMD().hex()
        print(json.dumps({"agent": "python-serve", "md": md, "base": base, "nbytes": nbytes}), flush=True)
        sys.stdin.read()
        return
    if mode == "bench":
        bench(nixl, agent, backend, base)
        return
    other = json.loads(sys.stdin.readline())
    agent.loadRemoteMD(bytes.fromhex(other["md"]))
    read(nixl, agent, backend, runs(base, nbytes), runs(other["base"], nbytes), other["agent"])
    print(hashlib.sha256(memory).hexdigest(), flush=True)


main()
