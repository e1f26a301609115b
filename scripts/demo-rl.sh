#!/usr/bin/env bash
# A tiny Qwen3 is trained by reinforcement, and each step is refit into a running vLLM server: docs/demo-rl.md. No GPU.
# The environment is that of `make test-vllm`: pinned, 6 GB, made once. The NATS server is built from the module that go.mod
# pins. Arguments go to python/examples/rl/demo.py; `test` as the first runs the tests instead, and the rest go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/test-vllm.sh venv
mkdir -p .cache/demo-rl
[ -x .cache/demo-rl/nats-server ] || "${GO:-go}" build -o .cache/demo-rl/nats-server github.com/nats-io/nats-server/v2
python=$PWD/.cache/venv-vllm/bin/python
if [ "${1:-}" = test ]; then
  exec "$python" -m pytest -q -m rl python/tests/rl "${@:2}"
fi
exec "$python" python/examples/rl/demo.py "$@"
