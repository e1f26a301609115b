#!/bin/sh
# Runs the tests in which Go and NIXL's own Python bindings read from each other, and measures both side by side. Makes their environment itself, in
# .cache/nixl-python: a Python 3.11 (the wheel's bindings are for that version) with numpy; torch isn't needed.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
"$root/scripts/fetch-nixl.sh" >/dev/null
venv=$root/.cache/nixl-python
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import numpy' 2>/dev/null; then
	python=$(command -v python3.11 || command -v python3)
	"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
		echo "nixl-python: Python 3.11 is needed, found $("$python" --version)" >&2
		exit 1
	}
	"$python" -m venv "$venv"
	"$venv/bin/python" -m pip --disable-pip-version-check --quiet install numpy==2.3.5
fi
cd "$root"
exec go test -count=1 -v -run Python ./pkg/rdma/nixl "$@" -args -python-bench
