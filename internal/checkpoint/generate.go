package checkpoint

import "context"

// GenerateOptions sizes the generated checkpoint. The zero value is the demo's, some 200 MB.
type GenerateOptions struct {
	Seed uint64
	Tiny bool // a few hundred kilobytes of the same shape, for tests
}

// Generate writes a mixture-of-experts checkpoint into dir, which it creates; the same
// options give the same bytes. The index is written last: a folder without it is incomplete.
func Generate(ctx context.Context, dir string, o GenerateOptions) error { panic("not yet") }
