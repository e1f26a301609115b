package refit

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// ReceiverConfig says what a receiver is made of. Control, Transports and Dests are needed; zero elsewhere is the default.
type ReceiverConfig struct {
	Name       string            // unique among the model's receivers; names its lease, status and arenas
	Host       string            // host id, for affinity; default rdma.HostID
	Model      string            // full name
	Control    *messages.Control // of that model
	Transports []rdma.Transport  // in order of preference; owned by the caller
	Dests      []plan.Dest       // destination ranks; parameters are placed by the receiver
	TP         int               // size of the tensor-parallel group that the ranks belong to; 0: not known
	ArenaRoot  string            // folder for the arenas
	Arenas     int               // sets of arenas; default and least 2: one serves, one is staged into. Each more lets one more version be staged meanwhile
	HugePages  bool              // put the arenas on huge pages, where the host gives any

	Installer      Installer     // default Shm
	InstallTimeout time.Duration // of one call of the installer; default 2 min
	Engine         Engine        // which receivers feed the engine; default: this one alone

	AllowNarrowing []string                          // globs of parameters that may lose precision by a cast
	CostsOf        func(transport string) plan.Costs // what reads by each transport cost, "" one that is not known; default plan.CostsStrided for all
	StagingBytes   int64                             // memory beyond the arenas, and 16 MiB for the edges of slices; 1 MiB at least, default 256
	Lanes          int                               // batches in flight for each source rank; default 2
	Workers        int                               // batches verified and transformed at once; default the number of cores
	ReadAll        bool                              // read what has not changed, too, instead of copying it from the arena that serves
	Every          bool                              // Follow takes every version in order, for exact replay, instead of the newest. Publishers must keep them: see messages.Keep
	VerifyFloor    float64                           // share of the staged bytes that must be verified, in [0, 1]; default 0
	Stall          time.Duration                     // longest time without a finished batch of a source rank; default 30 s
	Health         rdma.HealthConfig                 // when a source rank that failed is asked again

	Logger  *slog.Logger
	Lines   io.Writer // gets each cycle's MX_REFIT_TIMING line, as it is; nil: the logger gets it
	Tracer  trace.Tracer
	Metrics *tracing.Metrics

	blockBytes  int64         // of which arenas note digests; 0: arena's default
	statusEvery time.Duration // how often the status is renewed; default statusInterval
}

// Engine names an inference engine that several receivers feed, such as one on several hosts. They install a version
// together or not at all.
type Engine struct {
	Name     string        // [A-Za-z0-9_-]{1,64}, the same for all of its receivers
	Size     int           // receivers; at most messages.MaxMembers
	Patience time.Duration // longest wait for the others to stage a version, and then to install it; default 5 min
}

// alone says whether there is nobody to agree with.
func (e *Engine) alone() bool { return e.Size <= 1 }

func (e *Engine) validate() error {
	if e.Size < 0 || e.Size > messages.MaxMembers || e.Patience < 0 {
		return fmt.Errorf("engine of %d receivers, patience %v: expected at most %d receivers, and no negative time", e.Size, e.Patience, messages.MaxMembers)
	}
	if e.Size > 1 && (e.Name == "" || e.Name != messages.Token(e.Name)) {
		return fmt.Errorf("engine name %q: expected 1 to 64 of A-Z a-z 0-9 _ -", e.Name)
	}
	return nil
}

// maxStagingSlots bounds how finely the staging budget is cut.
const maxStagingSlots = 8

func (c *ReceiverConfig) validate() error {
	switch {
	case c.Control == nil || len(c.Transports) == 0 || len(c.Dests) == 0:
		return fmt.Errorf("control %t, %d transports, %d destinations: all three are needed", c.Control != nil, len(c.Transports), len(c.Dests))
	case c.Name == "" || c.ArenaRoot == "":
		return fmt.Errorf("name %q, arena folder %q: both are needed", c.Name, c.ArenaRoot)
	case c.VerifyFloor < 0 || c.VerifyFloor > 1:
		return fmt.Errorf("verify floor %v is outside [0, 1]", c.VerifyFloor)
	case c.StagingBytes < 0 || c.Lanes < 0 || c.Workers < 0 || c.Stall < 0 || c.InstallTimeout < 0:
		return fmt.Errorf("staging %d bytes, %d lanes, %d workers, stall %v, install timeout %v: none may be negative",
			c.StagingBytes, c.Lanes, c.Workers, c.Stall, c.InstallTimeout)
	}
	if err := c.Engine.validate(); err != nil {
		return err
	}
	c.setDefaults()
	return setHost(&c.Host)
}

func (c *ReceiverConfig) setDefaults() {
	setDefault(&c.InstallTimeout, 2*time.Minute)
	setDefault(&c.Engine.Patience, 5*time.Minute)
	setDefault(&c.StagingBytes, 256<<20)
	setDefault(&c.Lanes, 2)
	setDefault(&c.Workers, runtime.GOMAXPROCS(0))
	setDefault(&c.Stall, 30*time.Second)
	setDefault(&c.statusEvery, statusInterval)
	if c.Installer == nil {
		c.Installer = Shm
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Tracer == nil {
		c.Tracer = noop.Tracer{}
	}
}

// setHost asks the kernel for the host's id where none is configured.
func setHost(host *string) (err error) {
	if *host == "" {
		*host, err = rdma.HostID()
	}
	return err
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
