#!/bin/sh
# Fetches NIXL's shared libraries into .cache/nixl (or the folder given), from the pinned wheel on the package index
# that pip is configured for. Prints the path of libnixl_capi.so. Nothing is installed; no Python package is needed but
# pip and the standard library. Running it again costs nothing once the folder is complete.
#
# The wheel's own folders are kept as they are: the libraries find each other relative to themselves.
set -eu

version=1.5.1
case "$(uname -m)" in
x86_64) platform=manylinux_2_28_x86_64 sum=341d0dfa499f941c054614252f1d8047d1380e33f29c87707372ff5ec7d3779a ;;
aarch64) platform=manylinux_2_28_aarch64 sum=aced5529cc9781f8be1ee22e451c852630455460c1812b06cc863b05d797f2db ;;
*) echo "fetch-nixl: no wheel for $(uname -m)" >&2; exit 1 ;;
esac

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
dest=${1:-$root/.cache/nixl}
lib=$dest/$version/.nixl_cu12.mesonpy.libs/libnixl_capi.so
if [ -f "$dest/$version/.complete" ]; then
	echo "$lib"
	exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip --disable-pip-version-check --quiet download --no-deps --only-binary=:all: \
	--python-version 3.11 --implementation cp --abi cp311 --platform "$platform" \
	--dest "$work" "nixl-cu12==$version" >&2
wheel=$(echo "$work"/*.whl)
got=$(sha256sum "$wheel" | cut -d' ' -f1)
if [ "$got" != "$sum" ]; then
	echo "fetch-nixl: $(basename "$wheel") has SHA-256 $got, expected $sum" >&2
	exit 1
fi
python3 -m zipfile -e "$wheel" "$work/unpacked"
mkdir -p "$dest"
rm -rf "${dest:?}/$version"
mv "$work/unpacked" "$dest/$version"
[ -f "$lib" ] || { echo "fetch-nixl: the wheel holds no $lib" >&2; exit 1; }
touch "$dest/$version/.complete"
echo "$lib"
