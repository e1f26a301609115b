#!/usr/bin/env bash
# Measures a Python trainer on this machine: see python/tests/trainer/bench.py. Uses the environment of scripts/test-python.sh,
# and 2 GB of shared memory and 4 GB of other (--mib 954). Arguments go to the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.cache/venv-python/bin/python
"$python" -c 'import torch' 2>/dev/null || { echo "no torch in .cache/venv-python: make test-python puts it there" >&2; exit 1; }
[ -x .cache/python-tests/nats-server ] || { mkdir -p .cache/python-tests; "${GO:-go}" build -o .cache/python-tests/nats-server github.com/nats-io/nats-server/v2; }
PYTHONPATH=python/src:python/tests/trainer exec "$python" python/tests/trainer/bench.py "$@"
