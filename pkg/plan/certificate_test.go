package plan_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// TestCertificateRefusesSpoiledPlans changes one number of a finished plan at a time. The proof must notice,
// whichever copy, batch or form of read it lies in.
func TestCertificateRefusesSpoiledPlans(t *testing.T) {
	t.Parallel()
	for name, spoil := range plan.Spoilers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoiled := 0
			for seed := range uint64(400) {
				c, err := plantest.Random(seed)
				if err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(seed, 3))
				o := randomOptions(seed)
				if o.Classic = false; seed%2 == 0 {
					o.Unchanged = randomKept(r, c.Table).unchanged
				}
				p, err := plan.New(c.Table, c.Dests, o)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if p.Batches() == 0 || !spoil(p, r.IntN(1000)) {
					continue
				}
				spoiled++
				if err := p.Prove(); !errors.Is(err, plan.ErrProof) && !errors.Is(err, plan.ErrHole) && !errors.Is(err, plan.ErrOverlap) {
					t.Fatalf("seed %d: a spoiled plan was proven: %v\n%s", seed, err, p.Describe())
				}
			}
			if spoiled == 0 {
				t.Error("no plan had anything to spoil")
			}
		})
	}
}
