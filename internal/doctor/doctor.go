// Package doctor asks the host what the data plane can use: memory, limits, permissions, devices, libraries, ports and
// clock. It changes nothing that outlives it, and each finding that isn't good comes with what to do.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// Status is how a finding is to be taken.
type Status string

// The statuses.
const (
	OK   Status = "ok"   // works
	Warn Status = "warn" // works, slower or within limits that large models meet
	Fail Status = "fail" // something that is always needed doesn't work
	None Status = "none" // absent, and not needed: another way is taken
)

// Finding is the answer to one question.
type Finding struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"` // what to do; "" when there is nothing to be done
}

// Options says what to look at.
type Options struct {
	Nixl      nixl.Config // Library, Plugin and Params
	NixlRoots []string    // where the library is looked for besides
	Listen    string      // address that a publisher would serve on; default "127.0.0.1:0"
	Costs     string      // file in which receivers look for measured costs of transports; "": not looked for
	Proc, Sys string      // default "/proc", "/sys"; for tests
	Shm       string      // where arenas would lie; default "/dev/shm"
}

// Run asks all questions. It ends early when ctx ends.
func Run(ctx context.Context, o Options) []Finding {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Sys == "" {
		o.Sys = "/sys"
	}
	if o.Shm == "" {
		o.Shm = "/dev/shm"
	}
	if o.Nixl.Env == nil {
		o.Nixl.Env = quiet
	}
	var out []Finding
	for _, q := range []struct {
		name string
		ask  func(*Options) Finding
	}{
		{"memory", memory},
		{"shared memory", sharedMemory},
		{"sealed memfd", sealedMemfd},
		{"huge pages", hugePages},
		{"locked memory", lockedMemory},
		{"open files", openFiles},
		{"local transport", localTransport},
		{"process_vm_readv", vmRead},
		{"tcp transport", tcpTransport},
		{"rdma devices", rdmaDevices},
		{"nixl", nixlLibrary},
		{"ucx transports", ucxTransports},
		{"costs of transports", measuredCosts},
		{"clock", clock},
	} {
		if ctx.Err() != nil {
			break
		}
		f := q.ask(&o)
		f.Name = q.name
		out = append(out, f)
	}
	return out
}

// Worst is the worst status among findings; None counts as good.
func Worst(fs []Finding) Status {
	worst := OK
	for _, f := range fs {
		if f.Status == Fail || f.Status == Warn && worst == OK {
			worst = f.Status
		}
	}
	return worst
}

// WriteText writes findings for people, advice below each.
func WriteText(w io.Writer, fs []Finding) error {
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	for _, f := range fs {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Status, f.Name, oneLine(f.Found))
		if f.Advice != "" {
			_, _ = fmt.Fprintf(tw, "\t\t→ %s\n", f.Advice)
		}
	}
	return tw.Flush()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func good(format string, args ...any) Finding {
	return Finding{Status: OK, Found: fmt.Sprintf(format, args...)}
}

func finding(s Status, found, advice string) Finding {
	return Finding{Status: s, Found: found, Advice: advice}
}
