package nixl

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

const pythonBytes = 1 << 20

var sideBySide = flag.Bool("python-bench", false, "measure reads beside NIXL's own Python loop")

// pythonEnd is what one end tells the other.
type pythonEnd struct {
	Agent  string `json:"agent"`
	MD     string `json:"md"` // hex
	Base   uint64 `json:"base"`
	Nbytes int64  `json:"nbytes"`
	Run    int64  `json:"run,omitempty"` // bench: bytes of a run
}

// python starts testdata/peer.py in the environment that scripts/nixl-python.sh makes.
func python(t *testing.T, mode string, nbytes int64, params map[string]string) (in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	exe, err := filepath.Abs("../../../.cache/nixl-python/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(exe); err != nil {
		t.Skip("no Python environment: run scripts/nixl-python.sh")
	}
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	wheel := filepath.Dir(filepath.Dir(findLibrary()))
	cmd := exec.Command(exe, "testdata/peer.py", wheel, mode, fmt.Sprint(nbytes), string(raw))
	cmd.Env = append(os.Environ(), "NIXL_PLUGIN_DIR="+filepath.Join(filepath.Dir(findLibrary()), "plugins"))
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(2*rdmatest.Deadline, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("python: %v", err)
		}
		kill.Stop()
	})
	return in, bufio.NewReader(pipe)
}

// A Python process serves a numpy buffer by NIXL's own bindings, without a control channel; Go reads it.
func TestGoReadsFromPython(t *testing.T) {
	for name, params := range map[string]map[string]string{"shm": overSHM, "tcp": overTCP} {
		t.Run(name, func(t *testing.T) {
			l := library(t)
			_, out := python(t, "serve", pythonBytes, params)
			line, err := out.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var e pythonEnd
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			md, err := hex.DecodeString(e.MD)
			if err != nil {
				t.Fatal(err)
			}
			a := access{name: e.Agent, regions: []extent{{e.Base, uint64(e.Nbytes)}}, md: md}
			dst := rdmatest.Alloc(t, pythonBytes, 1)
			p := rdmatest.Connect(t, open(t, l, Config{Params: params, Agents: 1}), rdma.Remote{
				Regions: []rdma.RemoteRegion{{Base: e.Base, Nbytes: e.Nbytes}},
				Access:  rdma.Access{Transport: Name, Agent: e.Agent, Metadata: a.encode()},
			})
			if err := rdmatest.Read(p, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, pythonBytes)}); err != nil {
				t.Fatal(err)
			}
			for i, b := range dst.Bytes() {
				if b != byte(i*31%251) {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
		})
	}
}

// Go serves; a Python process reads by NIXL's own bindings.
func TestPythonReadsFromGo(t *testing.T) {
	for name, params := range map[string]map[string]string{"shm": overSHM, "tcp": overTCP} {
		t.Run(name, func(t *testing.T) {
			l := library(t)
			in, out := python(t, "read", pythonBytes, params)
			src := rdmatest.Alloc(t, pythonBytes, 7)
			s := open(t, l, Config{Params: params, Agents: 1, Listen: "127.0.0.1:0"})
			t.Cleanup(func() { _ = s.Close() })
			reg := rdmatest.Register(t, s, src)
			acc, err := s.Access()
			if err != nil {
				t.Fatal(err)
			}
			a, err := decodeAccess(acc.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			e := pythonEnd{Agent: a.name, MD: hex.EncodeToString(a.md), Base: reg.Describe().Base, Nbytes: src.Len()}
			if err := json.NewEncoder(in).Encode(e); err != nil {
				t.Fatal(err)
			}
			got, err := out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("%x", sha256.Sum256(src.Bytes())); strings.TrimSpace(got) != want {
				t.Fatalf("python read bytes with digest %s, want %s", got, want)
			}
		})
	}
}

// The same descriptors, from the same source in a process of its own, read by NIXL's Python loop and by this package.
// It prints the shares; on a shared machine they are no ground to fail.
func TestPythonLoopSideBySide(t *testing.T) {
	if !*sideBySide {
		t.Skip("a measurement: scripts/nixl-python.sh runs it")
	}
	const nbytes = 64 << 20
	l := library(t)
	in, out := python(t, "bench", nbytes/4, overSHM)
	s := rdmatest.StartSource(t, rdmatest.SourceSpec{Kind: "shm", Regions: []int64{nbytes}})
	a, err := decodeAccess(s.Remote.Access.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	reader := open(t, l, Config{Params: overSHM, Agents: 1})
	dst := rdmatest.Alloc(t, nbytes/4, 1)
	t.Cleanup(func() { _ = reader.Close() })
	rdmatest.Register(t, reader, dst)
	p := rdmatest.Connect(t, reader, s.Remote)
	for _, run := range []int64{nbytes / 4, 64 << 10, 4 << 10, 384} {
		e := pythonEnd{Agent: a.name, MD: hex.EncodeToString(a.md), Base: a.regions[0].Base, Nbytes: nbytes, Run: run}
		if err := json.NewEncoder(in).Encode(e); err != nil {
			t.Fatal(err)
		}
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var theirs float64
		if _, err := fmt.Sscan(line, &theirs); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n := nbytes / (4 * run)
		ours := fastest(t, p, dst, rdma.Segment{Run: run, N: [3]int64{1, 1, n}, SrcStride: [3]int64{0, 0, 4 * run}, DstStride: [3]int64{0, 0, run}})
		t.Logf("%6d runs of %8d bytes: Python %7.2f ms, Go %7.2f ms, share of Python's speed %.2f", n, run, theirs*1e3, ours*1e3, theirs/ours)
	}
}

// fastest gives the seconds of the fastest of ten reads.
func fastest(t *testing.T, p rdma.Peer, dst *rdma.Memory, s rdma.Segment) float64 {
	t.Helper()
	best := time.Hour
	for range 11 {
		start := time.Now()
		if err := rdmatest.Read(p, dst, []rdma.Segment{s}); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	return best.Seconds()
}
