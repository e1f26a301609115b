//go:build !linux || (!amd64 && !arm64)

package nixlsys

// Library can't exist on this platform.
type Library struct{}

// Load always fails here.
func Load(string, map[string]string) (*Library, error) { return nil, ErrUnsupported }

// NewAgent is never reached, as none of the methods below.
func (*Library) NewAgent(string, AgentConfig) (Agent, error) { return 0, ErrUnsupported }

// DestroyAgent is never reached.
func (*Library) DestroyAgent(Agent) error { return ErrUnsupported }

// LocalMetadata is never reached.
func (*Library) LocalMetadata(Agent) ([]byte, error) { return nil, ErrUnsupported }

// LoadRemote is never reached.
func (*Library) LoadRemote(Agent, []byte) (string, error) { return "", ErrUnsupported }

// InvalidateRemote is never reached.
func (*Library) InvalidateRemote(Agent, string) error { return ErrUnsupported }

// Plugins is never reached.
func (*Library) Plugins(Agent) ([]string, error) { return nil, ErrUnsupported }

// NewBackend is never reached.
func (*Library) NewBackend(Agent, string, map[string]string) (Backend, Options, error) {
	return 0, 0, ErrUnsupported
}

// FreeBackend is never reached.
func (*Library) FreeBackend(Backend, Options) {}

// Register is never reached.
func (*Library) Register(Agent, MemType, Desc, Options) error { return ErrUnsupported }

// Deregister is never reached.
func (*Library) Deregister(Agent, MemType, Desc, Options) error { return ErrUnsupported }

// NewXferList is never reached.
func (*Library) NewXferList(MemType, []Desc) (XferList, error) { return 0, ErrUnsupported }

// FreeXferList is never reached.
func (*Library) FreeXferList(XferList) {}

// NewRead is never reached.
func (*Library) NewRead(Agent, XferList, XferList, string, Options) (Request, error) {
	return 0, ErrUnsupported
}

// Post is never reached.
func (*Library) Post(Agent, Request) Status { return Exception }

// Status is never reached.
func (*Library) Status(Agent, Request) Status { return Exception }

// Free is never reached.
func (*Library) Free(Agent, Request) error { return ErrUnsupported }
