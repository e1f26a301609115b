#!/usr/bin/env bash
# Checks the Python package: types, lint, the wheel, and its tests beside real programs and a real NATS server.
#
# Everything is made under .cache/venv-python, pinned. torch (5.6 GB: its wheel brings CUDA along, which is not used) is taken
# from .cache/venv-arenas where `make test-python-arenas` has put it already, else it is installed, where
# there is room and the index answers; DRYDOCK_TORCH=0 does without. Without it the tests that need it are left out.
#
# PYTHON: an interpreter of version 3.10 to 3.13 with venv (python3). Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/.cache/venv-python
arenas=$PWD/.cache/venv-arenas
pins=python/tests/requirements.txt

if ! cmp -s "$pins" "$venv/installed.txt"; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$pins"
  cp "$pins" "$venv/installed.txt"
fi

if [ "${DRYDOCK_TORCH:-1}" = 1 ] && ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  there=$("$arenas/bin/python" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null || true)
  mine=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  if [ -n "$there" ] && [ "$(basename "$(dirname "$there")")" = "$(basename "$(dirname "$mine")")" ]; then
    echo "$there" > "$mine/zz-arenas.pth"
  elif [ "$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)" -lt 12 ]; then
    echo "torch is left out, and the tests that need it: less than 12 GB are free here"
  elif ! timeout 420 "$venv/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' integration/python/requirements.txt)" numpy; then
    echo "torch is left out, and the tests that need it: it could not be installed within 7 minutes"
    rm -rf "$mine"/torch "$mine"/torch-* # what an interrupted installation has left
  fi
fi

echo "== lint and types"
cd python
sources=(src/drydock tests examples/rl examples/train_fsdp2.py)
"$venv/bin/ruff" check "${sources[@]}"
"$venv/bin/mypy" src/drydock/*.py src/drydock/engines src/drydock/capture

echo "== wheel"
"$venv/bin/python" -m build --wheel --no-isolation --outdir ../.cache/dist . > ../.cache/python-build.log || { cat ../.cache/python-build.log; exit 1; }
rm -rf build
ls -1 ../.cache/dist/*.whl | tail -n 1

echo "== tests"
export PYTHONPATH=$PWD/src # for the processes that tests start
# One after the other: each folder has a conftest of its own that its tests import from.
status=0
for part in tests/trainer tests/engines; do
  "$venv/bin/python" -m pytest "$part" "$@" || status=$?
done
exit "$status"
