package capturegen

import "github.com/drydock-rl/drydock/internal/checkpoint"

// Generate makes the default capture of a checkpoint for tp destination ranks, one case each.
func Generate(c *checkpoint.Checkpoint, tp int) (*Capture, error) { panic("not yet") }
