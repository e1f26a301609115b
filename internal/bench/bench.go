package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// Options say how much is measured. Zero values are the defaults.
type Options struct {
	Nbytes int64  // moved by the data plane's rows; default 256 MiB
	Rounds int    // default 3
	Dir    string // of a file system for arenas; default /dev/shm
}

func (o *Options) setDefaults() {
	if o.Nbytes == 0 {
		o.Nbytes = 256 << 20
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Dir == "" {
		o.Dir = "/dev/shm"
	}
}

// row is one line: something that is done, and how much of what it does.
type row struct {
	name   string
	amount float64 // of unit, done by one run
	unit   string
	run    func() error
	best   time.Duration
}

// section is a table of rows that are measured in turn. The first row is what the others are compared with, if it says so.
type section struct {
	title   string
	compare bool
	rows    []*row
}

// Run measures everything and writes the tables.
func Run(ctx context.Context, out io.Writer, o Options) error {
	o.setDefaults()
	fmt.Fprintf(out, "%d cores, %s; best of %d rounds\n", runtime.NumCPU(), runtime.Version(), o.Rounds)
	for _, part := range []func(context.Context, io.Writer, Options) error{benchTables, benchMoves, benchStages} {
		if err := part(ctx, out, o); err != nil {
			return err
		}
		runtime.GC()
	}
	return nil
}

// measure runs all rows of a section in turn, round after round, and writes the table.
func (s *section) measure(ctx context.Context, out io.Writer, rounds int) error {
	for range rounds {
		for _, r := range s.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			start := time.Now()
			if err := r.run(); err != nil {
				return fmt.Errorf("measure %s: %w", r.name, err)
			}
			if took := time.Since(start); r.best == 0 || took < r.best {
				r.best = took
			}
		}
	}
	return s.write(out)
}

func (s *section) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n", s.title)
	for i, r := range s.rows {
		fmt.Fprintf(w, "  %s\t%.2f ms\t%s", r.name, 1e3*r.best.Seconds(), rate(r))
		if s.compare && i > 0 {
			fmt.Fprintf(w, "\t%.2f of %s", (r.amount/r.best.Seconds())/(s.rows[0].amount/s.rows[0].best.Seconds()), s.rows[0].name)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func rate(r *row) string {
	perSecond := r.amount / r.best.Seconds()
	switch {
	case r.unit == "":
		return ""
	case perSecond >= 1e9:
		return fmt.Sprintf("%.2f G%s/s", perSecond/1e9, r.unit)
	case perSecond >= 1e6:
		return fmt.Sprintf("%.2f M%s/s", perSecond/1e6, r.unit)
	}
	return fmt.Sprintf("%.0f %s/s", perSecond, r.unit)
}
