package nixl

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// access is the decoded metadata.
//
//	version u8 = 1 | sha256[32] of the rest | u32 n, control[n] | u32 n, name[n] | u32 count, count × (base u64, nbytes u64) | md
type access struct {
	control []byte // metadata of the control channel's tcp endpoint; empty where there is none
	name    string // of the serving agent
	regions []extent
	md      []byte // the library's own
}

type extent struct{ Base, Nbytes uint64 }

const (
	accessVersion = 1
	maxRegions    = 1 << 16
	maxAccess     = 1 << 20 // bytes
)

func (a *access) encode() []byte {
	var b []byte
	for _, p := range [][]byte{a.control, []byte(a.name)} {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(a.regions)))
	for _, r := range a.regions {
		b = binary.LittleEndian.AppendUint64(b, r.Base)
		b = binary.LittleEndian.AppendUint64(b, r.Nbytes)
	}
	b = append(b, a.md...)
	sum := sha256.Sum256(b)
	return append(append([]byte{accessVersion}, sum[:]...), b...)
}

// ForeignAccess describes an agent that another process made with the library's own bindings, by what they say of it. Its
// regions are in the order of their numbers. There is no control channel: that the process has died shows when a read fails.
func ForeignAccess(agent string, metadata []byte, regions []rdma.RemoteRegion) (rdma.Access, error) {
	if agent == "" || len(metadata) == 0 || len(metadata) > maxAccess/2 || len(regions) > maxRegions/2 {
		return rdma.Access{}, fmt.Errorf("agent %q with %d bytes of metadata and %d regions", agent, len(metadata), len(regions))
	}
	a := access{name: agent, md: metadata}
	for _, r := range regions {
		a.regions = append(a.regions, extent{r.Base, uint64(r.Nbytes)})
	}
	return rdma.Access{Transport: Name, Agent: agent, Metadata: a.encode()}, nil
}

var errDamaged = errors.New("access is damaged")

func decodeAccess(b []byte) (access, error) {
	var a access
	const head = 1 + sha256.Size
	switch {
	case len(b) < head || len(b) > maxAccess:
		return a, fmt.Errorf("access of %d bytes, %d to %d expected", len(b), head, maxAccess)
	case b[0] != accessVersion:
		return a, fmt.Errorf("access of version %d, this is %d", b[0], accessVersion)
	}
	sum, rest := b[1:head], b[head:]
	if got := sha256.Sum256(rest); !bytes.Equal(got[:], sum) {
		return a, errDamaged
	}
	var ok [3]bool
	var name []byte
	a.control, rest, ok[0] = cutBytes(rest)
	name, rest, ok[1] = cutBytes(rest)
	a.name = string(name)
	a.regions, rest, ok[2] = cutRegions(rest)
	if a.md = rest; ok != [3]bool{true, true, true} || len(rest) == 0 {
		return a, errDamaged
	}
	return a, nil
}

func cutBytes(b []byte) (head, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

func cutRegions(b []byte) (out []extent, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; n > maxRegions || uint64(n)*16 > uint64(len(b)) {
		return nil, nil, false
	}
	for range n {
		out = append(out, extent{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
		b = b[16:]
	}
	return out, b, true
}

// agree compares the access's regions with the table's.
func agree(own []extent, table []rdma.RemoteRegion) error {
	if len(table) > len(own) {
		return fmt.Errorf("%d regions announced, %d accessible", len(table), len(own))
	}
	for i, g := range table {
		if g.Nbytes < 1 || uint64(g.Nbytes) != own[i].Nbytes || g.Base != own[i].Base {
			return fmt.Errorf("region %d: announced as %d bytes at %#x, accessible as %d at %#x", i, g.Nbytes, g.Base, own[i].Nbytes, own[i].Base)
		}
	}
	return nil
}
