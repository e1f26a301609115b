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
	Peers []Member // the other receivers of the same engine, each with this version staged; nil outside a group
}

// Member is another receiver of the same engine. Its files are paths on its own host.
type Member struct {
	Name, Host string
	Ranks      []int
	Files      []string
}

// Report is what an installer measured.
type Report struct {
	Pause time.Duration // how long the engine answered nobody, by its own measure; 0: not known, or none
	Ready time.Duration // from the end of the installation until the engine serves; 0: not known or none
}

// Installer brings a staged version into an engine, all ranks or none. It must be idempotent by version: the same
// version again is no error, and an older one is the way back after a failure elsewhere. An error must leave the engine
// on the version that it served before, and is told apart by Refused, Unreachable and Unknown; one that is marked with
// none of them counts as refused, and as unknown where ctx has ended meanwhile.
//
// The conformance suite is pkg/refit/install/installtest.
type Installer interface {
	Install(ctx context.Context, in Installation) (Report, error)
}

// Preparer is an installer that can find out before the engine's update window opens that a version will be refused.
// Prepare touches nothing that serves; it is called once all files are staged, and its errors are Install's.
type Preparer interface {
	Prepare(ctx context.Context, in Installation) error
}

// Refused marks an installer's error: the engine said no, and serves the version that it served before. The version
// is not tried again.
func Refused(err error) error { return as(InstallRefused, err) }

// Unreachable marks an installer's error: the engine could not be asked, and nothing of it has changed. The version is
// tried again.
func Unreachable(err error) error { return as(EngineUnreachable, err) }

// Unknown marks an installer's error: the engine was asked, and whether it took the version is not known. The
// version that served before is installed again at once, and then this one is tried again.
func Unknown(err error) error { return as(EngineUnknown, err) }

// InstallerFunc makes an installer of a function, for engines in the same process.
type InstallerFunc func(ctx context.Context, in Installation) (Report, error)

// Install calls f.
func (f InstallerFunc) Install(ctx context.Context, in Installation) (Report, error) {
	return f(ctx, in)
}

// Shm is the installer for engines that read the arena by its name: what Apply does for every installer, to flip that
// name, is all there is to do.
var Shm Installer = shm{}

type shm struct{}

func (shm) Install(context.Context, Installation) (Report, error) { return Report{}, nil }
