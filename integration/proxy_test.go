package integration

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between readers and one publisher's tcp transport, and changes payload bytes on their way to the reader.
// It knows the transport's framing only as far as it takes to leave everything but payloads alone.
type proxy struct {
	addr, target string
	left         atomic.Int64 // answers that are still to be corrupted
	done         atomic.Int64 // answers that were
	listener     net.Listener
	wg           sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newProxy listens now and forwards to target, where the publisher is to listen.
func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, listener: l}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// corrupt has the next n answers arrive with a wrong byte.
func (p *proxy) corrupt(n int64) { p.left.Store(n) }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		reader, err := p.listener.Accept()
		if err != nil {
			return
		}
		source, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = reader.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, reader, source)
		p.mu.Unlock()
		p.wg.Go(func() {
			p.forward(source, reader, func(to io.Writer, from io.Reader) error { _, err := io.Copy(to, from); return err })
		})
		p.wg.Go(func() { p.forward(reader, source, p.answers) })
	}
}

// forward copies until one side is gone, and takes the other one with it.
func (p *proxy) forward(to, from net.Conn, by func(io.Writer, io.Reader) error) {
	_ = by(to, from) // an end is an end
	_ = to.Close()
	_ = from.Close()
}

// answers passes greeting, welcome, and then answer after answer.
func (p *proxy) answers(to io.Writer, from io.Reader) error {
	const greeting, header, trailer = 8 + 16, 1 + 8 + 8, 1 + 8
	if _, err := io.CopyN(to, from, greeting); err != nil {
		return err
	}
	var length [2]byte
	if _, err := io.ReadFull(io.TeeReader(from, to), length[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(to, from, int64(binary.LittleEndian.Uint16(length[:]))); err != nil {
		return err
	}
	for {
		var head [header]byte
		if _, err := io.ReadFull(io.TeeReader(from, to), head[:]); err != nil {
			return err
		}
		nbytes, status := int64(binary.LittleEndian.Uint64(head[9:])), head[0]
		if err := p.payload(to, from, nbytes); err != nil {
			return err
		}
		if status != 0 {
			continue // a refusal has no trailer
		}
		if _, err := io.CopyN(to, from, trailer); err != nil {
			return err
		}
	}
}

func (p *proxy) payload(to io.Writer, from io.Reader, nbytes int64) error {
	if nbytes == 0 || p.left.Add(-1) < 0 {
		_, err := io.CopyN(to, from, nbytes)
		return err
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, from, nbytes); err != nil {
		return err
	}
	b.Bytes()[nbytes/2] ^= 0x10
	p.done.Add(1)
	_, err := to.Write(b.Bytes())
	return err
}
