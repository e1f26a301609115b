package main

import (
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// BenchmarkPlanKimi plans eight of the sixty layers on all 256 ranks.
func BenchmarkPlanKimi(b *testing.B) {
	const layers = 8
	names := kimiNames(layers)
	t, err := kimiTable(layers, kimiWorld, names)
	if err != nil {
		b.Fatal(err)
	}
	d := kimiDest(layers, names)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.New(t, []plan.Dest{d}, plan.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
