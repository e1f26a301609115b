#!/usr/bin/env bash
# Measures how fast a vLLM engine on the CPU takes an arena: see python/tests/engines/bench.py. Uses the environment of
# scripts/test-vllm.sh, 4 GB of memory and 0.7 GB of shared memory (--layers 12). Arguments go to the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/test-vllm.sh venv
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR
mkdir -p .cache/vllm-bench
PYTHONPATH=python/tests/engines exec .cache/venv-vllm/bin/python python/tests/engines/bench.py .cache/vllm-bench "$@"
