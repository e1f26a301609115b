package operator

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// Build is the answer of refitctl version.
type Build struct {
	Version  string `json:"version"`            // of the module; "(devel)" when it was built from a working tree
	Revision string `json:"revision,omitempty"` // of the version control, where it was stamped
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Wire     int    `json:"wire"` // version of the wire format
	Capture  string `json:"capture"`
}

// wireVersion is the version of the wire format that package messages reads and writes.
const wireVersion = 1

// ThisBuild describes the running program.
func ThisBuild() *Build {
	b := &Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Wire: wireVersion, Capture: plan.CaptureSchema}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// Write draws it in one line.
func (b *Build) Write(w io.Writer) error {
	version := b.Version
	if b.Revision != "" {
		version += " (" + b.Revision + ")"
	}
	_, err := fmt.Fprintf(w, "drydock %s, %s %s, wire format v%d, captures %s\n", version, b.Go, b.Platform, b.Wire, b.Capture)
	return err
}
