#!/usr/bin/env bash
# Checks deploy/prometheus and deploy/grafana with a real Prometheus and promtool: those on the PATH, else Debian's
# package, unpacked (not installed) under .cache. Arguments go to `go test`.
set -euo pipefail
cd "$(dirname "$0")/.."

if promtool=$(command -v promtool) && command -v prometheus >/dev/null; then
	dir=$(dirname "$promtool")
else
	dir=$PWD/.cache/prometheus/usr/bin
	if [ ! -x "$dir/prometheus" ]; then
		if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
			echo "test-prometheus: neither prometheus and promtool on the PATH, nor apt-get and dpkg-deb to get Debian's" >&2
			exit 1
		fi
		mkdir -p .cache/prometheus
		(cd .cache/prometheus && apt-get download prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb)
	fi
fi
"$dir/prometheus" --version 2>&1 | head -n 1
DRYDOCK_PROMETHEUS=$dir exec "${GO:-go}" test -count=1 -timeout 5m ./internal/promtest "$@"
