#!/usr/bin/env bash
# Builds Jaeger from the pinned sources of integration/jaeger/build (about ten minutes, once) and runs the tests that ask
# its API about Drydock's traces. Arguments go to `go test`.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
bin=$PWD/.cache/jaeger
stamp=$bin/built-from
want=$(cat integration/jaeger/build/go.sum integration/jaeger/build/go.mod | sha256sum)
if [ ! -x "$bin/jaeger" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$want" ]; then
	mkdir -p "$bin"
	echo "test-jaeger: building Jaeger; this takes about ten minutes on two cores"
	(cd integration/jaeger/build && CGO_ENABLED=0 "$go" build -trimpath -ldflags '-s -w' -o "$bin/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger)
	echo "$want" >"$stamp"
fi
DRYDOCK_JAEGER=$bin/jaeger exec "$go" test -count=1 -timeout 5m ./integration/jaeger "$@"
