package refit

import (
	"context"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Installation is a staged version as an installer gets it.
type Installation struct {
	Model string
	Key   messages.Key
	Dir   string   // folder of the arena files; it stays readable at least until the next but one version is staged
	Ranks []int    // destination ranks
	Files []string // arena file of each rank, in the order of Ranks
}

// Report is what an installer measured.
type Report struct {
	Pause time.Duration // how long the engine answered nobody; 0: not known or none
	Ready time.Duration // from the end of the installation until the engine serves; 0: not known or none
}

// Installer brings a staged version into an engine, all ranks or none. It must be idempotent by version, and an error
// must leave the engine on the version that it served before.
type Installer interface {
	Install(ctx context.Context, in Installation) (Report, error)
}

// InstallerFunc makes an installer of a function, for engines in the same process.
type InstallerFunc func(ctx context.Context, in Installation) (Report, error)

// Install calls f.
func (f InstallerFunc) Install(ctx context.Context, in Installation) (Report, error) {
	return f(ctx, in)
}

// Shm is the installer for engines that read the arena by its name: what Apply does for every installer, to flip that
// name, is all there is to do.
var Shm Installer = InstallerFunc(func(context.Context, Installation) (Report, error) { return Report{}, nil })
