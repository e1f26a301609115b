// Package rdmabench measures the transports of this host side by side, in one run: reads of typical shapes, beside a
// plain copy of the same bytes and a raw copy over the loopback device, and what a run and a byte cost each of them.
//
// It measures and decides nothing. Everything runs in one process, so that publisher and reader share the cores as
// they do when a host is busy with both; figures of different machines, or of different runs, don't compare.
package rdmabench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// Options says what is measured. The zero value measures what works here in some ten seconds.
type Options struct {
	Transports []string      // of "local", "vmread", "tcp", "tls", "nixl"; default: all, leaving out what doesn't work
	Nbytes     int64         // moved by each read; default 128 MiB
	Sources    []int         // how many sources share a large read; default 1, 4, 16
	Times      int           // reads of each kind; the fastest counts; default 5
	Nixl       nixl.Config   // Library and Params
	NixlRoots  []string      // where the library is looked for besides
	Logger     *slog.Logger  // default: none
	Progress   func(row Row) // hears of each result; may be nil
}

func (o *Options) validate() error {
	if o.Transports == nil {
		o.Transports = []string{"local", "vmread", "tcp", "tls", "nixl"}
	}
	if o.Nbytes == 0 {
		o.Nbytes = 128 << 20
	}
	if o.Sources == nil {
		o.Sources = []int{1, 4, 16}
	}
	if o.Times == 0 {
		o.Times = 5
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Nbytes < 1<<20 || o.Times < 1 {
		return fmt.Errorf("%d bytes, %d times: at least 1 MiB and once", o.Nbytes, o.Times)
	}
	for _, s := range o.Sources {
		if s < 1 || s > 64 {
			return fmt.Errorf("%d sources: 1 to 64", s)
		}
	}
	return nil
}

// Row is one measurement.
type Row struct {
	Transport string  `json:"transport"`
	Shape     string  `json:"shape"`
	Sources   int     `json:"sources"`
	Digests   bool    `json:"digests,omitempty"` // tiles are digested as they come
	Nbytes    int64   `json:"bytes"`
	Runs      int64   `json:"runs"`
	Seconds   float64 `json:"seconds"`             // of the fastest read
	CPU       float64 `json:"cpu_seconds"`         // processor time of both ends, of the read that took least
	Against   string  `json:"against,omitempty"`   // what was measured by turns with it: a plain copy, a raw loopback copy, a read without digests
	Share     float64 `json:"share,omitempty"`     // of that one's speed
	ShareCPU  float64 `json:"share_cpu,omitempty"` // the same by processor time, which neighbours disturb less
}

// GBps is the speed in 10⁹ bytes a second.
func (r Row) GBps() float64 { return float64(r.Nbytes) / r.Seconds / 1e9 }

// Report is one run.
type Report struct {
	Host    string            `json:"host"`
	Cores   int               `json:"cores"`
	When    time.Time         `json:"when"`
	Rows    []Row             `json:"rows"`
	Costs   []rdma.Cost       `json:"costs"`
	Extra   []Extra           `json:"extra"`
	Missing map[string]string `json:"missing,omitempty"` // transports that couldn't be measured, and why
}

// Extra is a comparison of two ways to do one thing.
type Extra struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	Against string  `json:"against"`
	Other   float64 `json:"other_seconds"`
}

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("configure the benchmark: %w", err)
	}
	host, err := rdma.HostID()
	if err != nil {
		return nil, err
	}
	rep := &Report{Host: host, Cores: runtime.GOMAXPROCS(0), When: time.Now(), Missing: map[string]string{}}
	b, err := newBench(&o, rep)
	if err != nil {
		return nil, fmt.Errorf("prepare the benchmark: %w", err)
	}
	err = b.run(ctx)
	if err = errors.Join(err, b.close()); err != nil {
		return nil, fmt.Errorf("measure transports: %w", err)
	}
	rep.Costs = fit(rep.Rows)
	return rep, nil
}

// Write writes the tables for people.
func (r *Report) Write(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "%d cores; shares are of the speed of what was measured by turns with it\n", r.Cores)
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "transport\tshape\tsources\truns\tGB/s\tCPU s/GB\tshare\tby CPU\tof\tgoal\t")
	for i := range r.Rows {
		row := &r.Rows[i]
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%.2f\t%.2f\t%s\t%s\t%s\t%s\t\n", row.Transport, row.Shape, row.Sources, row.Runs,
			row.GBps(), row.CPU/float64(row.Nbytes)*1e9, shareText(row.Share), shareText(row.ShareCPU), row.Against, row.verdict())
	}
	_, _ = fmt.Fprintln(tw, "\t\t\t\t\t\t\t\t\t\t")
	for _, c := range r.Costs {
		_, _ = fmt.Fprintf(tw, "%s\tα %.0f ns a run\t\t\t%.2f\tβ⁻¹, GB/s\t\t\t\t\n", c.Transport, c.Alpha*1e9, 1e-9/max(c.Beta, 1e-18))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, e := range r.Extra {
		_, _ = fmt.Fprintf(w, "%s: %.2f ms; %s: %.2f ms; %.2f ×\n", e.What, e.Seconds*1e3, e.Against, e.Other*1e3, e.Other/e.Seconds)
	}
	for _, name := range slices.Sorted(mapKeys(r.Missing)) {
		_, _ = fmt.Fprintf(w, "not measured: %s: %s\n", name, r.Missing[name])
	}
	return nil
}

// goals are the shares that a transport should reach of what it is compared with; others have none. Both copies of
// process_vm_readv are the kernel's, TLS is the processor's.
var goals = map[string]float64{"local": 0.8, "tcp": 0.9}

// digestGoal is the share of a read without digests: they take at most a tenth of the time.
const digestGoal = 0.9

// verdict says whether a row reached its goal.
func (r *Row) verdict() string {
	goal := goals[r.Transport]
	if r.Digests {
		goal = digestGoal
	}
	switch {
	case goal == 0 || r.Share == 0:
		return ""
	case r.Share >= goal:
		return fmt.Sprintf("≥ %.1f met", goal)
	case r.ShareCPU >= goal:
		return fmt.Sprintf("≥ %.1f met by CPU", goal)
	default:
		return fmt.Sprintf("≥ %.1f MISSED", goal)
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func shareText(f float64) string {
	if f == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

// fit finds α and β of each transport from its reads of one source, by least squares of the relative error: the
// shapes differ by three orders of magnitude in runs, and none shall drown the others.
func fit(rows []Row) []rdma.Cost {
	var out []rdma.Cost
	for _, name := range transportsOf(rows) {
		var aa, ab, bb, a1, b1 float64 // normal equations for 1 = α·(runs/t) + β·(bytes/t)
		for _, r := range rows {
			if r.Transport != name || r.Sources != 1 || r.Digests {
				continue
			}
			x, y := float64(r.Runs)/r.Seconds, float64(r.Nbytes)/r.Seconds
			aa, ab, bb, a1, b1 = aa+x*x, ab+x*y, bb+y*y, a1+x, b1+y
		}
		det := aa*bb - ab*ab
		if det == 0 {
			continue
		}
		c := rdma.Cost{Transport: name, Alpha: (a1*bb - b1*ab) / det, Beta: (b1*aa - a1*ab) / det}
		if c.Alpha < 0 { // runs cost nothing that can be seen
			c.Alpha, c.Beta = 0, b1/bb
		}
		if c.Beta < 0 {
			c.Alpha, c.Beta = a1/aa, 0
		}
		out = append(out, c)
	}
	return out
}

func transportsOf(rows []Row) []string {
	var out []string
	for _, r := range rows {
		if r.Transport != rawName && !slices.Contains(out, r.Transport) {
			out = append(out, r.Transport)
		}
	}
	return out
}
