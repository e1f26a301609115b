package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
)

// access is the decoded metadata of an endpoint.
//
//	version u8 = 1 | flags u8 | token[32] | pin[32] where flagged | count uvarint | count × address string
type access struct {
	tls       bool
	pinned    bool
	token     [32]byte
	pin       [32]byte // SHA-256 of the server's certificate
	addresses []string // host:port, tried in order
}

const (
	accessVersion  = 1
	flagTLS        = 1 << 0
	flagPinned     = 1 << 1
	maxAddressText = 255
)

func (a *access) encode() []byte {
	b := []byte{accessVersion, 0}
	if a.tls {
		b[1] |= flagTLS
	}
	b = append(b, a.token[:]...)
	if a.pinned {
		b[1] |= flagPinned
		b = append(b, a.pin[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(a.addresses)))
	for _, s := range a.addresses {
		b = appendText(b, s)
	}
	return b
}

func decodeAccess(b []byte) (access, error) {
	var a access
	r := reader{b: b}
	if v := r.u8(); r.err == nil && v != accessVersion {
		return a, fmt.Errorf("access of version %d, this is %d", v, accessVersion)
	}
	flags := r.u8()
	if flags&^(flagTLS|flagPinned) != 0 {
		r.fail(fmt.Errorf("unknown flags %#x", flags))
	}
	a.tls, a.pinned = flags&flagTLS != 0, flags&flagPinned != 0
	r.array(a.token[:])
	if a.pinned {
		r.array(a.pin[:])
	}
	n := r.uvarint()
	if n > maxAddresses || n == 0 && r.err == nil {
		r.fail(fmt.Errorf("%d addresses, 1 to %d expected", n, maxAddresses))
		n = 0
	}
	for range n {
		s := r.text(maxAddressText)
		if _, _, err := net.SplitHostPort(s); err != nil && r.err == nil {
			r.fail(fmt.Errorf("address %q: %w", s, err))
		}
		a.addresses = append(a.addresses, s)
	}
	return a, r.end()
}

// readerProof binds a connection to capability, incarnation and lease.
func readerProof(token *[32]byte, server, client *[16]byte, incarnation, lease string) [32]byte {
	return proof(token, []byte("reader"), server[:], client[:], []byte(incarnation), []byte{0}, []byte(lease))
}

func serverProof(token *[32]byte, server, client *[16]byte) [32]byte {
	return proof(token, []byte("server"), server[:], client[:])
}

func proof(token *[32]byte, parts ...[]byte) (out [32]byte) {
	h := hmac.New(sha256.New, token[:])
	for _, p := range parts {
		_, _ = h.Write(p) // a hash never fails
	}
	h.Sum(out[:0])
	return out
}

// advertised lists the addresses of a listener: its own, or those of all interfaces that are up, loopback last.
func advertised(addr net.Addr) ([]string, error) {
	t, ok := addr.(*net.TCPAddr)
	if !ok {
		return []string{addr.String()}, nil
	}
	if !t.IP.IsUnspecified() {
		return []string{t.String()}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list interface addresses: %w", err)
	}
	var out, loopback []string
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() {
			continue
		}
		s := (&net.TCPAddr{IP: n.IP, Port: t.Port}).String()
		if n.IP.IsLoopback() {
			loopback = append(loopback, s)
		} else {
			out = append(out, s)
		}
	}
	out = append(out, loopback...)
	return out[:min(len(out), maxAddresses)], nil
}
