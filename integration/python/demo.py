"""Runs `refitctl demo` on a checkpoint and keeps it running while its arenas are looked at.

This is the only place that knows the program's flags, its words and where it puts its files.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

READY = "Ctrl-C"  # what --keep says once the last version is applied and proven


class Demo:
    """A demo that stands still at its last version."""

    def __init__(self, tmp: pathlib.Path, version: int, seed: int):
        self.version, self.seed = version, seed
        self.arenas = sorted(tmp.glob("arenas/*/*/current/rank-*.safetensors"))
        (self.capture,) = tmp.glob("files/*/capture.json")


@contextlib.contextmanager
def standing(refitctl: pathlib.Path, checkpoint: pathlib.Path, *, layout: str, receivers: int, versions: int = 2,
             seed: int = 11, timeout: float = 120):
    """Yields a Demo; afterwards stops it and checks that it leaves with 0 and valid JSON."""
    with tempfile.TemporaryDirectory(prefix="drydock-python-") as name:
        tmp = pathlib.Path(name)
        (tmp / "files").mkdir()
        command = [str(refitctl), "demo", "--keep", "--json", "--checkpoint", str(checkpoint), "--layout", layout,
                   "--receivers", str(receivers), "--versions", str(versions), "--seed", str(seed),
                   "--arena-dir", str(tmp / "arenas"), "--timeout", f"{timeout:.0f}s"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={"TMPDIR": str(tmp / "files"), "PATH": "/usr/bin:/bin"})
        watchdog = threading.Timer(timeout, process.kill)
        watchdog.start()
        try:
            wait_until_ready(process)
            yield Demo(tmp, versions, seed)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\nleft with {process.returncode}:\n{err}")
            json.loads(out)
        finally:
            watchdog.cancel()
            process.kill()  # nothing happens when it has left
            process.wait()


def wait_until_ready(process: subprocess.Popen) -> None:
    said = []
    for line in process.stderr:
        said.append(line)
        if READY in line:
            return
    raise SystemExit("".join(said) + f"refitctl demo ended with {process.wait()} before it was ready")


if __name__ == "__main__":
    sys.exit("demo.py is used by check_arenas.py")
