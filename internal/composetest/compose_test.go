package composetest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
)

const root = "../.."

// load parses docker-compose.yml with every profile, against the schema of the specification.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("parse docker-compose.yml: %v", err)
	}
	return project
}

// started gives the services that `docker compose up` starts and keeps running.
func started(p *types.Project) []types.ServiceConfig {
	var services []types.ServiceConfig
	for _, s := range p.Services {
		if len(s.Profiles) == 0 {
			services = append(services, s)
		}
	}
	return services
}

// drydock tells whether a service runs one of our programs.
func drydock(s types.ServiceConfig) bool { return s.Build != nil }

// program gives the program of ours that a service runs, with its arguments; "" for the other images.
func program(s types.ServiceConfig) (name string, args []string) {
	if !drydock(s) {
		return "", nil
	}
	line := slices.Concat([]string(s.Entrypoint), []string(s.Command))
	return line[0], line[1:]
}

func TestFourPublishersTwoReceivers(t *testing.T) {
	t.Parallel()
	ranks := map[string][]string{}
	for _, s := range started(load(t)) {
		name, args := program(s)
		for i, a := range args {
			if a == "--rank" || a == "--ranks" {
				ranks[name] = append(ranks[name], args[i+1])
			}
		}
	}
	for name := range ranks {
		slices.Sort(ranks[name])
	}
	if got := ranks["publisher"]; !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("publishers' ranks are %v, want 0 to 3", got)
	}
	if got := ranks["receiver"]; !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("receivers' ranks are %v, want 0 and 1", got)
	}
	for _, s := range started(load(t)) {
		want := map[string]string{"publisher": "DRYDOCK_WORLD", "receiver": "DRYDOCK_TP"}
		if name, _ := program(s); want[name] != "" {
			count := s.Environment[want[name]]
			if count == nil || *count != strconv.Itoa(len(ranks[name])) {
				t.Errorf("%s: %s is %v, but there are %d of it", s.Name, want[name], count, len(ranks[name]))
			}
		}
	}
}

// TestImagesArePinned: the same file brings the same programs next year.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	for _, s := range load(t).Services {
		_, tag, tagged := strings.Cut(s.Image, ":")
		if !drydock(s) && (!tagged || strings.Trim(tag, "0123456789") == tag) {
			t.Errorf("%s: image %q names no version", s.Name, s.Image)
		}
		if drydock(s) && (s.Build.Context != mustAbs(t, root) || s.Image != "drydock:dev") {
			t.Errorf("%s: built from %q as %q, want one image from the repository's root", s.Name, s.Build.Context, s.Image)
		}
	}
}

// TestServerIsTheTestedOne: the server that the containers run is the one that the tests run.
func TestServerIsTheTestedOne(t *testing.T) {
	t.Parallel()
	nats := load(t).Services["nats"]
	if want := "nats:" + server.VERSION + "-alpine"; nats.Image != want {
		t.Errorf("image %q, but the tests run %q", nats.Image, want)
	}
}

// TestWaiting: who is waited for exists, and can reach the state that is waited for.
func TestWaiting(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, s := range started(p) {
		for name, d := range s.DependsOn {
			on, ok := p.Services[name]
			switch {
			case !ok:
				t.Errorf("%s waits for %s, which does not exist", s.Name, name)
			case d.Condition == types.ServiceConditionHealthy && (on.HealthCheck == nil || on.HealthCheck.Disable):
				t.Errorf("%s waits for %s to be healthy, which has no health check", s.Name, name)
			case d.Condition == types.ServiceConditionCompletedSuccessfully && on.Restart != "no":
				t.Errorf("%s waits for %s to end, which is started again", s.Name, name)
			case d.Condition == types.ServiceConditionStarted:
				t.Errorf("%s waits for %s to be started, which says nothing", s.Name, name)
			}
		}
	}
}

// TestHealthChecks: whatever stays up can be asked whether it is well.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	for _, s := range started(load(t)) {
		if s.Restart == "no" {
			continue
		}
		if h := s.HealthCheck; h == nil || h.Disable || h.Interval == nil || h.Timeout == nil || len(h.Test) < 2 {
			t.Errorf("%s: health check %+v lacks a test, an interval or a time-out", s.Name, h)
		}
	}
}

// TestConfinement: our programs need no privilege, and can write only where they are told to.
func TestConfinement(t *testing.T) {
	t.Parallel()
	for _, s := range load(t).Services {
		if !drydock(s) {
			continue
		}
		if s.Privileged || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 {
			t.Errorf("%s: privileged %v, read-only %v, capabilities -%v +%v", s.Name, s.Privileged, s.ReadOnly, s.CapDrop, s.CapAdd)
		}
		name, _ := program(s)
		for _, v := range s.Volumes {
			if name != "refitctl" && !v.ReadOnly {
				t.Errorf("%s: may write into %s; publishers and receivers only read files", s.Name, v.Target)
			}
		}
	}
	for _, s := range load(t).Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network", s.Name, port.Published)
			}
		}
	}
}

// TestSharedMemory: docker gives a container 64 MB of shared memory, and neither shards nor arenas fit.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	for _, s := range started(load(t)) {
		if name, _ := program(s); (name == "publisher" || name == "receiver") && s.ShmSize < 512<<20 {
			t.Errorf("%s: %d bytes of shared memory", s.Name, s.ShmSize)
		}
	}
}

// TestCheckpointIsShared: what the first service writes is what publishers and receivers read.
func TestCheckpointIsShared(t *testing.T) {
	t.Parallel()
	p := load(t)
	var at string
	for _, v := range p.Services["checkpoint"].Volumes {
		if v.Source == "checkpoint" {
			at = v.Target
		}
	}
	_, args := program(p.Services["checkpoint"])
	// The folder is renamed into place, so it can't be the place where the volume is mounted.
	below := func(arg string) bool { return at != "" && strings.HasPrefix(arg, at+"/") }
	if len(args) < 2 || !below(args[1]) {
		t.Fatalf("the checkpoint is written by %v, and its volume lies at %q", args, at)
	}
	reads := map[string]string{"publisher": "DRYDOCK_CHECKPOINT", "receiver": "DRYDOCK_CAPTURE"}
	for _, s := range started(p) {
		name, _ := program(s)
		if reads[name] == "" {
			continue
		}
		file := s.Environment[reads[name]]
		mounted := slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Source == "checkpoint" && v.Target == at
		})
		if !mounted || file == nil || !slices.Contains(args, *file) {
			t.Errorf("%s: reads %v, which is not what was written: %v", s.Name, file, args)
		}
	}
}

// TestServerConfiguration reads the server's file as the server does.
func TestServerConfiguration(t *testing.T) {
	t.Parallel()
	nats := load(t).Services["nats"]
	var file, store string
	for _, v := range nats.Volumes {
		switch v.Type {
		case types.VolumeTypeBind:
			file = v.Source
			if !slices.Contains(nats.Command, v.Target) {
				t.Errorf("command %v does not read %s", nats.Command, v.Target)
			}
		case types.VolumeTypeVolume:
			store = v.Target
		}
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("read the server's configuration: %v", err)
	}
	if !o.JetStream || o.StoreDir != store || !o.SyncAlways {
		t.Errorf("JetStream %v in %q, synced always %v; want it in the volume at %q, synced always", o.JetStream, o.StoreDir, o.SyncAlways, store)
	}
	if o.MaxPayload != 1<<20 {
		t.Errorf("largest message %d bytes, want %d", o.MaxPayload, 1<<20)
	}
	if test := strings.Join(nats.HealthCheck.Test, " "); !strings.Contains(test, ":"+strconv.Itoa(o.HTTPPort)+"/healthz") {
		t.Errorf("health check %q does not ask port %d", test, o.HTTPPort)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// TestDockerfile: the image is built with the module's Go, and its programs run as nobody in particular.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(mod), "\ngo ")
	version, _, _ := strings.Cut(after, "\n")
	for _, want := range []string{"ARG GO_VERSION=" + version + "\n", "\nUSER 10001:10001\n", "\nFROM debian:", "-o /out/ ./cmd/..."} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	for line := range strings.Lines(string(text)) {
		if from, ok := strings.CutPrefix(line, "FROM "); ok && (strings.Contains(from, "latest") || !strings.Contains(from, ":")) {
			t.Errorf("image without a version: %s", line)
		}
	}
}
