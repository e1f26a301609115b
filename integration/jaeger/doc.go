// Package jaeger holds the test that a real Jaeger shows what docs/tracing.md
// promises: one trace for a version, all services in it, every stage, the right
// parents, and the caller's pause as a gap.
//
// It runs where DRYDOCK_JAEGER names a jaeger program; scripts/test-jaeger.sh
// builds one from the module in build/.
package jaeger
