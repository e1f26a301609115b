package operator

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/doctor"
)

// Diagnosis is the answer of refitctl doctor.
type Diagnosis struct {
	Worst    doctor.Status    `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
}

// Diagnose asks this host what the data plane can use.
func Diagnose(ctx context.Context, o doctor.Options) *Diagnosis {
	all := append([]doctor.Finding{kernel()}, doctor.Run(ctx, o)...)
	return &Diagnosis{Worst: doctor.Worst(all), Findings: all}
}

// kernel: the local transport follows a publisher by a pidfd, which came with Linux 5.3.
func kernel() doctor.Finding {
	f := doctor.Finding{Name: "kernel", Status: doctor.OK}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return doctor.Finding{Name: f.Name, Status: doctor.Warn, Found: err.Error(), Advice: "none: it only names the kernel"}
	}
	release := unix.ByteSliceToString(u.Release[:])
	f.Found = fmt.Sprintf("%s %s on %s, %d cores", unix.ByteSliceToString(u.Sysname[:]), release, runtime.GOARCH, runtime.GOMAXPROCS(0))
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 5 || major == 5 && minor < 3) {
		f.Status, f.Advice = doctor.Warn, "Linux 5.3 or later: without pidfd_open the local transport can't tell when a publisher dies, and readers take tcp"
	}
	return f
}

// Write draws the findings, advice below each.
func (d *Diagnosis) Write(w io.Writer) error { return doctor.WriteText(w, d.Findings) }

// Err is an error if something that is always needed doesn't work.
func (d *Diagnosis) Err() error {
	n := 0
	for _, f := range d.Findings {
		if f.Status == doctor.Fail {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return cli.WithCode(cli.ExitUnavailable, fmt.Errorf("%d of %d findings are failures", n, len(d.Findings)))
}
