package rdma

import "context"

// Access is how to reach one endpoint by one transport.
type Access struct {
	Transport string // name of the transport that made it and can use it
	Agent     string // the endpoint's name within that transport, for logs
	Metadata  []byte // opaque to everybody but that transport; may hold a capability, so it is never logged
}

// RemoteRegion describes one registered region of an endpoint.
type RemoteRegion struct {
	Base   uint64 // virtual address in the endpoint's process; 0 where the transport needs none
	Nbytes int64  // bytes
	Device string // "" for host memory, else kind and index, such as "cuda:0"
}

// Remote is one endpoint as a reader sees it.
type Remote struct {
	Rank        int            // the trainer rank, for errors and logs
	Host        string         // the endpoint's HostID
	Incarnation string         // one life of the endpoint's process; a reader is refused by any other life
	Regions     []RemoteRegion // by region number
	Access      Access
	Lease       string // the name under which the reader holds its leases, "" for none; a server may insist on one: see Gated
}

// Transport is one way to serve memory and to read that of others. All methods may be called from several goroutines.
type Transport interface {
	// Name is the name that Access.Transport carries.
	Name() string
	// Register serves m, and prepares it as a destination. The region holds m until it or the transport is closed.
	Register(m *Memory) (Region, error)
	// Access describes this endpoint with the regions registered so far.
	Access() (Access, error)
	// Connect reaches a peer; ctx bounds the whole of it. Errors: ErrUnavailable (this transport can't reach that
	// endpoint from here, ask another), ErrUnreachable, ErrStale, ErrRefused, ErrTimeout.
	Connect(ctx context.Context, r Remote) (Peer, error)
	// Close ends all peers and withdraws all regions. Idempotent.
	Close() error
}

// Admit says whether the holder of a lease may read from regions now; of none, whether from any at all. It is asked by many
// goroutines, at every connect and before every request, and its error is told to the reader.
type Admit func(lease string, regions []uint32) error

// Gated is what a Transport may be besides: its server asks before it serves. Transports without a server of their own, such
// as local, have no gate: whom the kernel lets read is not theirs to say.
type Gated interface {
	// Guard has admit asked from now on; nil admits everybody, as before the first call.
	Guard(admit Admit)
}

// GuardAll guards the transports that have a gate.
func GuardAll(ts []Transport, admit Admit) {
	for _, t := range ts {
		if g, ok := t.(Gated); ok {
			g.Guard(admit)
		}
	}
}

// Region is memory under registration.
type Region interface {
	// ID is the number that segments of readers name.
	ID() uint32
	// Describe gives what readers must know of it.
	Describe() RemoteRegion
	// Close withdraws the region: reads that arrive later are refused, and m is no longer held once the reads under
	// way have ended. The number is not used again. Idempotent.
	Close() error
}

// Peer reads from one endpoint.
type Peer interface {
	// Read posts one batch and doesn't wait for it. Segments are validated as a whole before anything moves: an error
	// here leaves the destination untouched. The caller doesn't change segs before the transfer's terminal state.
	Read(dst *Memory, segs []Segment) (Transfer, error)
	// Close aborts what is in flight, waits for its end, and lets go of the endpoint. Idempotent.
	Close() error
}

// PartReader is what a Peer may be besides: it tells of parts of a batch as they come, so that whoever must look at the bytes
// does so while they are in the cache of the core that brought them. Package landing reads by it where it is there.
type PartReader interface {
	// ReadParts reads all parts as one batch, as Read would. Landed is called once for each part when its bytes have come,
	// by the goroutine that brought the last of them; several parts may land at once. It must not wait for other reads of
	// the peer. Its first error ends the transfer with that error as it is. That a part has landed proves nothing of the
	// source: the transfer may still fail, and then all its bytes are undefined.
	ReadParts(dst *Memory, parts [][]Segment, landed func(part int) error) (Transfer, error)
	// PartBytes is how large parts had better be here: as small as the cache wants where a part costs nothing, larger where
	// each is a request of its own.
	PartBytes() int64
}

// Transfer is one posted batch.
type Transfer interface {
	// Wait returns nil when every byte has arrived, a terminal *Error, or the context's error wrapped, in which case
	// the transfer goes on and Wait may be called again.
	Wait(ctx context.Context) error
	// Abort asks for an early end. The terminal state, ErrAborted or a completion that was faster, is still awaited.
	Abort()
}
