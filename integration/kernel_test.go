package integration

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// errFinished is what signalling a process that has been waited for returns.
var errFinished = os.ErrProcessDone

// kernelState is the letter that the kernel gives the process: R, S, T (stopped), Z…
func (p *process) kernelState() string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return err.Error()
	}
	// pid (name) state …; the name may hold anything but is closed by the last parenthesis.
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

// nextPort counts through ports that the kernel doesn't give out by itself.
var nextPort atomic.Int64

// freePort finds a port of this host that nobody listens on, and that nobody else is given meanwhile.
func freePort(t *testing.T) string {
	t.Helper()
	for range 200 {
		port := 20000 + (int64(os.Getpid())*31+nextPort.Add(1))%12000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port found")
	return ""
}

// arenaFolder makes a folder in shared memory that ends with the test.
func arenaFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "drydock-integration-") //nolint:usetesting // arenas want shared memory, not the disk
	if err != nil {
		t.Skipf("no shared memory: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
