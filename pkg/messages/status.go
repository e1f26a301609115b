package messages

import "time"

// RunRecord is one life of a training job. Taking a run fences all older ones.
type RunRecord struct {
	Run   uint64
	Job   string   // the launch that took it; the same job gets the same run again
	Nonce [16]byte // random, the root of the run's trace ids
	World int
	Taken time.Time
}

// Role says who wrote a status.
type Role string

// The roles that write a status.
const (
	RolePublisher Role = "publisher"
	RoleReceiver  Role = "receiver"
)

// Status is what one process says of itself, for people and machines.
type Status struct {
	Role    Role
	Name    string // the receiver's or publisher's own name, unique in the model
	Host    string
	Ranks   []int // destination ranks of a receiver, trainer rank of a publisher
	Updated time.Time

	// Receivers.
	Serving    Key      // zero: none yet
	Staging    Key      // zero: none
	StageState string   // "", "assembling", "planning", "reading", "verifying", "staged", "applying"
	Failure    *Failure // the last one; nil: none since start
	Skipped    []Key    // versions that were superseded before they were staged, newest last
	Arenas     []string // names of the arenas, serving first

	// Publishers.
	Slots []Slot
	Job   string
	Run   uint64
	Keep  string // the policy, as Keep.String writes it; "": not told
}

// Failure is the last thing that went wrong.
type Failure struct {
	Class string // short, stable: "lease-lost", "torn", "unreachable", …
	Text  string
	Key   Key // the version it concerns, zero: none
	At    time.Time
}

// Slot is one buffer of a publisher.
type Slot struct {
	Key     Key      // what it holds; zero: free
	State   string   // "free", "filling", "published", "committed", "retiring", "drained"
	Holders []string // receivers whose leases keep it
}
