package nixl

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

var forgeries = flag.Int("forgeries", 24, "how many endpoints TestForgedMetadataEndsAChildAtMost forges")

// forgedRig is a source and a reader that has every endpoint tried out by a child.
func forgedRig(t *testing.T) (reader *Transport, remote rdma.Remote) {
	t.Helper()
	l := library(t)
	m := rdmatest.Alloc(t, 1<<20, 1)
	source := open(t, l, Config{Listen: "127.0.0.1:0", Agents: 1})
	reg := rdmatest.Register(t, source, m)
	reader = open(t, l, Config{Agents: 1, Probe: []string{os.Args[0], ProbeArg}})
	return reader, rdmatest.RemoteOf(t, rdmatest.Pair{Source: source, Incarnation: source.Incarnation()}, reg)
}

// forge changes the library's part of an access and seals it again: its checksum is right.
func forge(t *testing.T, metadata []byte, change func(md []byte) []byte) []byte {
	t.Helper()
	a, err := decodeAccess(metadata)
	if err != nil {
		t.Fatal(err)
	}
	a.md = change(append([]byte(nil), a.md...))
	return a.encode()
}

// mutate damages bytes as a careless or hostile publisher might: mostly one bit, which gets furthest into the library; else
// whole bytes, lengths, pieces cut out or doubled.
func mutate(r *rand.Rand, md []byte) []byte {
	if r.IntN(4) > 0 {
		md[r.IntN(len(md))] ^= 1 << r.IntN(8)
		return md
	}
	for range 1 + r.IntN(3) {
		at := r.IntN(len(md))
		n := min(len(md)-at, 1+r.IntN(16))
		switch r.IntN(5) {
		case 0:
			md[at] ^= 1 << r.IntN(8)
		case 1:
			for i := range n {
				md[at+i] = byte(r.Uint32())
			}
		case 2:
			for i := range n {
				md[at+i] = 0xff
			}
		case 3:
			md = append(md[:at:at], md[at+n:]...)
		case 4:
			md = append(md[:at+n:at+n], md[at:]...)
		}
		if len(md) == 0 {
			md = []byte{0}
		}
	}
	return md
}

// Whatever an endpoint announces under a right checksum, this process lives on, and says why it doesn't read. With the flag
// at some thousands this is the fuzzer of the boundary.
func TestForgedMetadataEndsAChildAtMost(t *testing.T) {
	reader, remote := forgedRig(t)
	whole := remote.Access.Metadata
	r := rand.New(rand.NewPCG(41, 42))
	died, refused, harmless := 0, 0, 0
	for range *forgeries {
		remote.Access.Metadata = forge(t, whole, func(md []byte) []byte { return mutate(r, md) })
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		p, err := reader.Connect(ctx, remote)
		cancel()
		switch {
		case err == nil:
			harmless++
			if err := p.Close(); err != nil {
				t.Log(err)
			}
		case rdma.KindOf(err) == 0:
			t.Fatalf("an error without a kind: %v", err)
		case strings.Contains(err.Error(), "does not survive"):
			died++
		default:
			refused++
		}
	}
	t.Logf("of %d forged endpoints %d ended a child, %d were refused, %d did no harm", *forgeries, died, refused, harmless)
	remote.Access.Metadata = whole
	readAByte(t, reader, remote)
}

func readAByte(t *testing.T, reader rdma.Transport, remote rdma.Remote) {
	t.Helper()
	dst := rdmatest.Alloc(t, 4096, 9)
	p := rdmatest.Connect(t, reader, remote)
	if err := rdmatest.Read(p, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 4096)}); err != nil {
		t.Errorf("the right endpoint is not read any more: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A child is asked once about an endpoint that it could say something about.
func TestVerdictsAreRemembered(t *testing.T) {
	reader, remote := forgedRig(t)
	for range 2 {
		readAByte(t, reader, remote)
	}
	if n := len(reader.probes.known); n != 1 {
		t.Errorf("%d verdicts of one endpoint", n)
	}
	reader.cfg.Probe = []string{"/nonexistent/probe"} // whoever asks again is told so
	readAByte(t, reader, remote)
}

// What goes wrong with a child, and not with the metadata, is said so and not remembered.
func TestChildrenThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		command []string
		kind    rdma.Kind
		known   bool
		says    string
	}{
		{"no such program", []string{"/nonexistent/probe"}, rdma.ErrUnavailable, false, "no such file"},
		{"says yes", []string{"/bin/sh", "-c", "exit 0"}, 0, true, ""},
		{"says no", []string{"/bin/sh", "-c", "echo no such agent; exit 3"}, rdma.ErrUnreachable, false, "no such agent"},
		{"can't work", []string{"/bin/sh", "-c", "echo no library; exit 4"}, rdma.ErrUnavailable, false, "no library"},
		{"another program", []string{"/bin/sh", "-c", "echo unknown argument; exit 1"}, rdma.ErrUnavailable, false, "unknown argument"},
		{"crashed under Go's runtime", []string{"/bin/sh", "-c", "exit 2"}, rdma.ErrRefused, true, "does not survive"},
		{"killed", []string{"/bin/sh", "-c", "kill -SEGV $$"}, rdma.ErrRefused, true, "does not survive"},
	} {
		known, err := askChild(t.Context(), c.command, []byte("{}"), 3)
		if known != c.known || rdma.KindOf(err) != c.kind || (err != nil) != (c.kind != 0) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: known %t, %v", c.name, known, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if known, err := askChild(ctx, []string{"/bin/sleep", "60"}, nil, 3); known || rdma.KindOf(err) != rdma.ErrTimeout {
		t.Errorf("a child that hangs: known %t, %v", known, err)
	}
	var out strings.Builder
	if code := ProbeMain(strings.NewReader("what?"), &out); code != probeBroken {
		t.Errorf("a question that is none: exit code %d, %s", code, out.String())
	}
}
