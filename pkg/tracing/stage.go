package tracing

import (
	"errors"
	"fmt"
	"strings"
)

// Stage is one of the ten kinds of work that a refit consists of. The zero
// value is no stage.
type Stage uint8

// The stages, in the order in which a record lists them.
const (
	ControlDiscovery  Stage = iota + 1 // learn of the version: announcement, manifest, tables, lease
	SourcePreparation                  // what sources do before they can be read: snapshot, repack, digests
	SetupRegistration                  // arenas, registration, connections
	TransferPlanning                   // geometry to reads, or rebinding of a cached plan
	WireTransfer                       // bytes in flight
	ReceiveSync                        // wait for the last byte, verify tile digests
	Transformation                     // cast, scatter, fill
	Installation                       // the engine takes the new weights
	PostInstall                        // caches reset, old arena retired
	RolloutReadiness                   // until the engine says that it serves the version
)

// nstages is the number of stages; arrays indexed by Stage-1 have this length.
const nstages = 10

var stageNames = [nstages]string{
	"control_discovery",
	"source_preparation",
	"setup_registration",
	"transfer_planning",
	"wire_transfer",
	"receive_sync",
	"transformation",
	"installation",
	"post_install",
	"rollout_readiness",
}

// ErrUnknownStage is wrapped by every error about a stage that does not exist.
// The cycle is left as it was.
var ErrUnknownStage = errors.New("unknown refit stage")

// Stages returns the stages in order.
func Stages() [nstages]Stage {
	var all [nstages]Stage
	for i := range all {
		all[i] = Stage(i + 1)
	}
	return all
}

// ParseStage returns the stage called name, as it is written in records.
func ParseStage(name string) (Stage, error) {
	for i, n := range stageNames {
		if n == name {
			return Stage(i + 1), nil
		}
	}
	return 0, fmt.Errorf("parse stage: %w %q (expected one of %s)", ErrUnknownStage, name, strings.Join(stageNames[:], ", "))
}

// String returns the name that records, spans and metrics use.
func (s Stage) String() string {
	if !s.valid() {
		return fmt.Sprintf("Stage(%d)", uint8(s))
	}
	return stageNames[s-1]
}

func (s Stage) valid() bool { return s >= 1 && s <= nstages }

func (s Stage) check() error {
	if s.valid() {
		return nil
	}
	return fmt.Errorf("%w %s (expected one of %s)", ErrUnknownStage, s, strings.Join(stageNames[:], ", "))
}
