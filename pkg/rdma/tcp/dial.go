package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// dialer reaches one endpoint, as often as its peer needs connections.
type dialer struct {
	cfg    *Config
	remote *rdma.Remote
	access access
	host   string // this host's id
}

// dial gives a proven connection and the server's limits.
func (d *dialer) dial(ctx context.Context) (net.Conn, welcome, error) {
	var errs []error
	kind := rdma.ErrTimeout // if every address timed out
	for _, addr := range d.access.addresses {
		if d.remote.Host != d.host && isLoopback(addr) {
			continue
		}
		c, w, err := d.dialOne(ctx, addr)
		if err == nil {
			return c, w, nil
		}
		k := rdma.KindOf(err)
		if k == rdma.ErrStale || k == rdma.ErrRefused || ctx.Err() != nil {
			return nil, w, err
		}
		if k != rdma.ErrTimeout {
			kind = rdma.ErrUnreachable
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, errors.Unwrap(err)))
	}
	if len(errs) == 0 {
		return nil, welcome{}, d.fail(rdma.ErrUnreachable, errors.New("it advertises only loopback addresses, and is on another host"))
	}
	return nil, welcome{}, d.fail(kind, errors.Join(errs...))
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func (d *dialer) dialOne(ctx context.Context, addr string) (net.Conn, welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Handshake)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, welcome{}, d.classify(err, rdma.ErrUnreachable)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c, w, err := d.prove(raw, addr)
	if !stop() && err == nil {
		err = d.fail(rdma.ErrTimeout, context.Cause(ctx))
	}
	if err != nil {
		_ = raw.Close()
		return nil, w, err
	}
	return c, w, nil
}

func (d *dialer) prove(raw net.Conn, addr string) (net.Conn, welcome, error) {
	c, err := d.wrap(raw, addr)
	if err != nil {
		return nil, welcome{}, d.classify(err, rdma.ErrUnreachable)
	}
	w, err := d.greet(c)
	return c, w, err
}

// wrap adds TLS where the endpoint asks for it: by the pinned hash, else by the configured authority.
func (d *dialer) wrap(raw net.Conn, addr string) (net.Conn, error) {
	if !d.access.tls {
		return raw, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if d.cfg.ClientTLS != nil {
		cfg = d.cfg.ClientTLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if d.access.pinned {
		// The chain proves nothing here: the certificate is this endpoint's own, known by its hash.
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = d.checkPin
	}
	c := tls.Client(raw, cfg)
	return c, c.Handshake()
}

func (d *dialer) checkPin(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) > 0 {
		sum := sha256.Sum256(cs.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(sum[:], d.access.pin[:]) == 1 {
			return nil
		}
	}
	return d.fail(rdma.ErrStale, errors.New("certificate differs from the one that the endpoint announced"))
}

func (d *dialer) greet(c net.Conn) (welcome, error) {
	var g [len(magic) + 16]byte
	if _, err := io.ReadFull(c, g[:]); err != nil {
		return welcome{}, d.classify(err, rdma.ErrUnreachable)
	}
	if string(g[:len(magic)]) != magic {
		return welcome{}, d.fail(rdma.ErrUnreachable, errors.New("something else listens there"))
	}
	server := [16]byte(g[len(magic):])
	h := hello{incarnation: d.remote.Incarnation, lease: d.remote.Lease}
	_, _ = rand.Read(h.nonce[:])
	h.proof = readerProof(&d.access.token, &server, &h.nonce, h.incarnation, h.lease)
	if _, err := c.Write(short(h.encode())); err != nil {
		return welcome{}, d.classify(err, rdma.ErrUnreachable)
	}
	b, err := readShort(c)
	if err != nil {
		return welcome{}, d.classify(err, rdma.ErrUnreachable)
	}
	w, err := decodeWelcome(b)
	if err != nil {
		return w, d.fail(rdma.ErrProtocol, fmt.Errorf("decode welcome: %w", err))
	}
	if w.status != statusOK {
		return w, d.fail(w.status.kind(), errors.New(w.text))
	}
	want := serverProof(&d.access.token, &server, &h.nonce)
	if !hmac.Equal(want[:], w.proof[:]) {
		return w, d.fail(rdma.ErrStale, errors.New("the server doesn't know the endpoint's capability"))
	}
	return w, nil
}

func (d *dialer) fail(kind rdma.Kind, err error) error {
	return fail("connect", d.remote.Rank, kind, err)
}

// classify gives an error of the network its kind, unless it has one.
func (d *dialer) classify(err error, otherwise rdma.Kind) error {
	if rdma.KindOf(err) != 0 {
		return err
	}
	return d.fail(kindOf(err, otherwise), err)
}

func kindOf(err error, otherwise rdma.Kind) rdma.Kind {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return rdma.ErrTimeout
	}
	return otherwise
}
