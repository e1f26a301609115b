package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// file writes a file of the test's own.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEachInstallerIsMadeFromItsFlags(t *testing.T) {
	t.Parallel()
	steps := file(t, "steps: [{url: 'http://127.0.0.1:1/update', body: '{{json .Files}}'}]")
	for name, e := range map[string]engine{
		"shm":    {},
		"exec":   {Exec: []string{"/bin/true", "{{.Dir}}", "{{.Version}}"}},
		"http":   {HTTPSteps: steps},
		"vllm":   {EngineURL: "http://127.0.0.1:8000", EngineKey: file(t, " secret\n"), EngineDrain: "keep"},
		"sglang": {EngineURL: "http://127.0.0.1:30000", EngineDrain: "abort"},
	} {
		e.Installer, e.EngineGroupSize = name, 1
		if err := e.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		i, err := e.install(maker{receiver: "r", arenas: "/dev/shm/drydock/r", log: slog.New(slog.DiscardHandler)})
		if err != nil || i == nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "shm" && i != refit.Shm {
			t.Errorf("shm is %T", i)
		}
	}
	if len(installers) != 5 {
		t.Errorf("%d installers: the table above is to be as long", len(installers))
	}
}

func TestInstallersThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]engine{
		"no such file":      {Installer: "http", HTTPSteps: "/no/such/file"},
		"unknown key":       {Installer: "http", HTTPSteps: file(t, "stpes: []")},
		"no steps":          {Installer: "http", HTTPSteps: file(t, "steps: []")},
		"bad template":      {Installer: "exec", Exec: []string{"x", "{{.Nope}}"}},
		"bad URL":           {Installer: "vllm", EngineURL: "not a url"},
		"no key":            {Installer: "sglang", EngineURL: "http://h", EngineKey: "/no/such/file"},
		"empty key":         {Installer: "vllm", EngineURL: "http://h", EngineKey: file(t, "\n")},
		"unknown drain":     {Installer: "vllm", EngineURL: "http://h", EngineDrain: "gently"},
		"unknown installer": {Installer: "rsync"},
	} {
		_, err := e.install(maker{receiver: "r", arenas: "/a", log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "--installer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFlagsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]engine{
		"--exec is for --installer exec":      {Installer: "shm", EngineGroupSize: 1, Exec: []string{"x"}},
		"--installer http needs --http-steps": {Installer: "http", EngineGroupSize: 1},
		"--installer vllm needs --engine-url": {Installer: "vllm", EngineGroupSize: 1},
		"a group has a name":                  {Installer: "shm", EngineGroupSize: 2},
		"at least two receivers":              {Installer: "shm", EngineGroupSize: 1, EngineGroup: "big"},
		"expected 1 to":                       {Installer: "shm", EngineGroup: "big"},
		"expected up to 64":                   {Installer: "shm", EngineGroup: "a b", EngineGroupSize: 2},
	} {
		if err := e.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
}

func TestHelpNamesInstallers(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), "receiver", "", &config{}, []string{"--help"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, flag := range []string{"--installer", "--exec", "--http-steps", "--engine-url", "--engine-group", "--engine-group-size", "--install-timeout"} {
		if !strings.Contains(out.String(), flag) {
			t.Errorf("--help does not name %s", flag)
		}
	}
}
