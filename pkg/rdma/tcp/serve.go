package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// session is one reader's connection as the server sees it.
type session struct {
	srv   *server
	conn  net.Conn     // TLS or plain
	raw   *net.TCPConn // nil where sendfile can't or shouldn't be used
	lease string
	out   sender
	frame []byte
	req   request
	used  []*rdma.Memory // by segment of the request under way
	asked []uint32       // its regions
}

// handle serves one connection to its end. Ends of connections are the reader's business and only logged for debugging.
func (s *server) handle(c net.Conn) {
	ss := &session{srv: s, conn: c}
	if s.tls != nil {
		ss.conn = tls.Server(c, s.tls)
	} else if raw, ok := c.(*net.TCPConn); ok && !loopback(c) {
		ss.raw = raw
	}
	ss.out = sender{conn: ss.conn, raw: ss.raw, stall: s.cfg.Stall}
	defer ss.out.free()
	err := ss.handshake()
	for err == nil {
		err = ss.serveOne()
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Debug("reader gone", "transport", Name, "client", c.RemoteAddr().String(), "error", err)
	}
}

// loopback: between processes of one host the pages that sendfile passes on cost more, one by one, than the copy that
// they save.
func loopback(c net.Conn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

func (ss *session) handshake() error {
	if err := ss.conn.SetDeadline(time.Now().Add(ss.srv.cfg.Handshake)); err != nil {
		return err
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	if _, err := ss.conn.Write(append([]byte(magic), nonce[:]...)); err != nil {
		return err
	}
	b, err := readShort(ss.conn)
	if err != nil {
		return err
	}
	h, err := decodeHello(b)
	if err != nil {
		return fmt.Errorf("decode hello: %w", err)
	}
	w := ss.srv.judge(&h, &nonce)
	if _, err := ss.conn.Write(short(w.encode())); err != nil {
		return err
	}
	if w.status != statusOK {
		return fmt.Errorf("refuse reader: %s", w.text)
	}
	ss.lease = h.lease
	return ss.conn.SetDeadline(time.Time{})
}

// judge decides on a hello. Incarnations are no secret, so that a stale reader learns that it is stale.
func (s *server) judge(h *hello, nonce *[16]byte) welcome {
	want := readerProof(&s.access.token, nonce, &h.nonce, h.incarnation, h.lease)
	switch {
	case h.incarnation != s.cfg.Incarnation:
		return welcome{status: statusStale, text: "this is incarnation " + s.cfg.Incarnation}
	case !hmac.Equal(want[:], h.proof[:]):
		return welcome{status: statusRefused, text: "wrong capability"}
	}
	if err := s.admits(h.lease, nil); err != nil {
		return welcome{status: statusRefused, text: err.Error()}
	}
	return welcome{proof: serverProof(&s.access.token, nonce, &h.nonce), maxBytes: maxPayload, maxSegments: maxSegments}
}

func (s *server) admits(lease string, regions []uint32) error {
	admit := s.gate.Load()
	if admit == nil || *admit == nil {
		return nil
	}
	if err := (*admit)(lease, regions); err != nil {
		return fmt.Errorf("lease %q: %w", lease, err)
	}
	return nil
}

// serveOne answers one request. An error ends the connection.
func (ss *session) serveOne() error {
	if err := ss.nextFrame(); err != nil {
		return err
	}
	if err := ss.req.decode(ss.frame); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	if err := ss.srv.admits(ss.lease, ss.regions()); err != nil {
		return ss.refuse(err)
	}
	nbytes, done, err := ss.acquire()
	if err != nil {
		return ss.refuse(err)
	}
	defer done()
	return ss.answer(nbytes)
}

// regions lists those of the request, in its order.
func (ss *session) regions() []uint32 {
	ss.asked = ss.asked[:0]
	for i := range ss.req.segs {
		if r := ss.req.segs[i].Region; len(ss.asked) == 0 || ss.asked[len(ss.asked)-1] != r {
			ss.asked = append(ss.asked, r)
		}
	}
	return ss.asked
}

// nextFrame waits for a request: long for its first byte, briefly for the rest.
func (ss *session) nextFrame() error {
	var n [4]byte
	if err := ss.conn.SetReadDeadline(time.Now().Add(ss.srv.cfg.Idle)); err != nil {
		return err
	}
	if _, err := io.ReadFull(ss.conn, n[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("idle for %v: %w", ss.srv.cfg.Idle, err)
		}
		return err
	}
	size := binary.LittleEndian.Uint32(n[:])
	if size > maxRequest {
		return fmt.Errorf("request of %d bytes, at most %d", size, maxRequest)
	}
	if cap(ss.frame) < int(size) {
		ss.frame = make([]byte, size, max(4096, size))
	}
	ss.frame = ss.frame[:size]
	if err := ss.conn.SetReadDeadline(time.Now().Add(ss.srv.cfg.Stall)); err != nil {
		return err
	}
	_, err := io.ReadFull(ss.conn, ss.frame)
	return err
}

// acquire checks every segment and keeps the memory of each from being withdrawn. Nothing is sent unless all of a
// request can be.
func (ss *session) acquire() (nbytes int64, done func(), err error) {
	ss.used = ss.used[:0]
	var dones []func()
	done = func() {
		for _, d := range dones {
			d()
		}
	}
	held := map[uint32]*rdma.Memory{}
	for i := range ss.req.segs {
		s := &ss.req.segs[i]
		m, ok := held[s.Region]
		if !ok {
			var d func()
			if m, d, err = ss.srv.regions.Use(s.Region); err != nil {
				done()
				return 0, nil, err
			}
			dones = append(dones, d)
			held[s.Region] = m
		}
		if nbytes, err = admitSegment(s, m.Len(), nbytes); err != nil {
			done()
			return 0, nil, fmt.Errorf("segment %d, region %d: %w", i, s.Region, err)
		}
		ss.used = append(ss.used, m)
	}
	return nbytes, done, nil
}

func admitSegment(s *rdma.Segment, regionLen, sum int64) (int64, error) {
	if err := s.Check(regionLen, maxDestination); err != nil {
		return 0, err
	}
	if sum += s.Nbytes(); sum > maxPayload {
		return 0, fmt.Errorf("request of %d bytes and more, at most %d", sum, maxPayload)
	}
	return sum, nil
}

// maxDestination: the server doesn't know the destination, whose offsets are zero here.
const maxDestination = 1 << 55

func (ss *session) refuse(reason error) error {
	text := clip(reason.Error())
	ss.out.start(header{status: statusRefused, id: ss.req.id, nbytes: uint64(len(text))})
	ss.out.buffered([]byte(text))
	return ss.out.flush()
}

func (ss *session) answer(nbytes int64) error {
	ss.out.start(header{id: ss.req.id, nbytes: uint64(nbytes)})
	for i := range ss.req.segs {
		if err := ss.out.segment(ss.used[i], &ss.req.segs[i]); err != nil {
			return err
		}
	}
	ss.out.buffered(appendTrailer(nil, ss.stillServed(), ss.req.id))
	return ss.out.flush()
}

// stillServed is stale when a region was withdrawn while its bytes were on their way: its owner may already have
// asked for its end for a reason.
func (ss *session) stillServed() status {
	for i := range ss.req.segs {
		_, done, err := ss.srv.regions.Use(ss.req.segs[i].Region)
		if err != nil {
			return statusRefused
		}
		done()
	}
	return statusOK
}

// short frames a handshake message.
func short(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...)
}

func readShort(r io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint16(n[:])
	if size > maxHandshake {
		return nil, fmt.Errorf("handshake message of %d bytes, at most %d", size, maxHandshake)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}
