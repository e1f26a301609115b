package nixl

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	nixlLine = "E1130 16:13:23.959414   20489 nixl_agent.cpp:1198] postXferReq: remote agent 'a' was disconnected"
	ucxLine  = "[1796055204.194781] [vm:20464:0]            sock.c:355  UCX  ERROR connect(fd=42) failed: Connection refused"
)

// The capture changes the process, so it is tried in one of its own.
func TestNoiseGoesToTheLogAndTheRestToStderr(t *testing.T) {
	t.Parallel()
	for _, crash := range []string{"", "yes"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNoiseChild$")
		cmd.Env = append(os.Environ(), "DRYDOCK_NOISE_CHILD=1", "DRYDOCK_NOISE_CRASH="+crash)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); (err == nil) != (crash == "") {
			t.Fatalf("child: %v\n%s", err, errs.String())
		}
		if crash != "" {
			if !strings.Contains(errs.String(), "panic: as planned") {
				t.Errorf("the crash isn't on stderr: %q", errs.String())
			}
			continue
		}
		if got := errs.String(); got != "an own line\n"+strings.Repeat("x", 40<<10)+"\nafterwards\n" {
			t.Errorf("stderr: %.200q", got)
		}
		for _, want := range []string{"level=ERROR msg=\"postXferReq: remote agent 'a' was disconnected\" transport=nixl", "level=ERROR msg=\"connect(fd=42) failed"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("log %q lacks %q", out.String(), want)
			}
		}
	}
}

func TestNoiseChild(t *testing.T) {
	if os.Getenv("DRYDOCK_NOISE_CHILD") == "" {
		t.Skip("runs as a child of TestNoiseGoesToTheLog…")
	}
	restore, err := CaptureNoise(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"an own line", nixlLine, strings.Repeat("x", 40<<10), ucxLine} {
		if _, err := os.Stderr.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("DRYDOCK_NOISE_CRASH") != "" {
		go panic("as planned")
		select {}
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stderr.WriteString("afterwards\n"); err != nil {
		t.Fatal(err)
	}
}
