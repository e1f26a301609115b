package operator

import (
	"bytes"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/doctor"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	none := nixl.Config{Library: "/nowhere/libnixl_capi.so"}
	d := Diagnose(t.Context(), doctor.Options{Nixl: none})
	var b bytes.Buffer
	if err := d.Write(&b); err != nil || !strings.Contains(b.String(), "kernel") || !strings.Contains(b.String(), "Linux") {
		t.Errorf("%v\n%s", err, b.String())
	}
	bad := Diagnose(t.Context(), doctor.Options{Nixl: none, Listen: "256.0.0.1:1"})
	if bad.Worst != doctor.Fail || cli.Code(bad.Err()) != cli.ExitUnavailable {
		t.Errorf("an address that can't be: %s, %v", bad.Worst, bad.Err())
	}
	if d.Worst != doctor.Fail && d.Err() != nil {
		t.Errorf("%s, %v", d.Worst, d.Err())
	}
}

func TestThisBuild(t *testing.T) {
	t.Parallel()
	got := string(drawn(t, ThisBuild()))
	for _, want := range []string{"wire format v1", "drydock.capture.v1", `"go": "go1.`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
