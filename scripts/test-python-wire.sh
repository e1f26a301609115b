#!/usr/bin/env bash
# Runs the tests of the wire protocol against Python: publish.py and read.py of python/examples, which have no code of
# Drydock, against the Go programs. What they need is installed once, pinned, into .cache/venv-python-wire; from then
# on the tests are part of `make test` too.
#
# PYTHON: an interpreter of version 3.9 or newer with venv (python3). Further arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/.cache/venv-python-wire
pins=python/examples/requirements.txt

# The stamp is a copy of what was asked for: other pins, another environment.
if ! cmp -s "$pins" "$venv/installed.txt"; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$pins"
  cp "$pins" "$venv/installed.txt"
fi

DRYDOCK_REQUIRE_PYTHON=1 DRYDOCK_PYTHON=$venv/bin/python "${GO:-go}" test ./integration/python -count 1 "$@"
