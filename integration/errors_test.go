package integration

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// site is what the command lines of TestUsersSee point at.
type site struct {
	t      *testing.T
	nats   string // a server where the model is initialised
	off    string // a server without JetStream
	nobody string // an address where nothing listens
	taken  string // an address where something else listens
	dir    string // for files
	arenas string
}

const siteModel = "m"

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), arenas: arenaFolder(t)}
	server := natstest.Start(t, natsd.Options{})
	natstest.Open(t, server, siteConfig(siteModel))
	s.nats, s.off = server.URL(), natstest.Start(t, natsd.Options{NoJetStream: true}).URL()
	s.nobody = "nats://" + freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s.taken = l.Addr().String()
	js, err := jetstream.New(natstest.Connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "REFIT_other", Subjects: []string{"refit.other.>"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// file writes a file and returns its path.
func (s *site) file(name string, b []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// folder writes a checkpoint folder with one file of that header and that many bytes after it.
func (s *site) folder(name, header string, nbytes int) string {
	s.t.Helper()
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(append(b, header...), make([]byte, nbytes)...)
	return filepath.Dir(s.file(name+"/model.safetensors", b))
}

// truncated copies the test's checkpoint, the last file of it without its last bytes.
func (s *site) truncated() string {
	s.t.Helper()
	files, err := filepath.Glob(built.checkpoint + "/*")
	if err != nil || len(files) == 0 {
		s.t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(f), "model-00001") {
			b = b[:len(b)-100]
		}
		s.file("truncated/"+filepath.Base(f), b)
	}
	return filepath.Join(s.dir, "truncated")
}

// capture writes the test's capture, changed.
func (s *site) capture(name string, change func(map[string]any)) string {
	s.t.Helper()
	b, err := os.ReadFile(built.captures[2])
	if err != nil {
		s.t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(b, &c); err != nil {
		s.t.Fatal(err)
	}
	change(c)
	if b, err = json.Marshal(c); err != nil {
		s.t.Fatal(err)
	}
	return s.file(name, b)
}

// publisher is a command line that would work; later arguments win.
func (s *site) publisher(args ...string) []string {
	return append([]string{
		"publisher", "--nats", s.nats, "--nats-wait", "300ms", "--model", siteModel, "--checkpoint", built.checkpoint, "--listen", "127.0.0.1:0",
	}, args...)
}

func (s *site) receiver(args ...string) []string {
	return append([]string{
		"receiver", "--nats", s.nats, "--nats-wait", "300ms", "--model", siteModel, "--name", "host", "--capture", built.captures[2],
		"--tp", "2", "--ranks", "0,1", "--arena-dir", s.arenas,
	}, args...)
}

// TestUsersSee runs programs into everything that goes wrong first, and checks what a person gets to see: the exit code,
// one line that says what, where, what was expected and what to do, and nothing left behind.
func TestUsersSee(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const f32 = `{"dtype":"F32","shape":[4],"data_offsets":[%d,%d]}`
	tensor := func(lo, hi int) string { return fmt.Sprintf(f32, lo, hi) }
	for _, c := range []struct {
		name string
		line []string
		code int
		says []string
	}{
		{"no server", s.publisher("--nats", s.nobody), 3, []string{s.nobody, "--nats"}},
		{"no server, receiver", s.receiver("--nats", s.nobody), 3, []string{s.nobody, "--nats"}},
		{"no server, operator", []string{"refitctl", "versions", "--nats", s.nobody, "--model", siteModel, "--nats-wait", "300ms"}, 3, []string{s.nobody, "--nats"}},
		{"no server, demo", []string{"refitctl", "demo", "--nats", s.nobody, "--arena-dir", s.arenas}, 3, []string{s.nobody, "--nats"}},
		{"not a URL", s.publisher("--nats", "http://127.0.0.1:80"), 2, []string{"http://127.0.0.1:80", "nats://"}},
		{"JetStream off", s.publisher("--nats", s.off), 3, []string{"JetStream", "-js"}},
		{"JetStream off, receiver", s.receiver("--nats", s.off), 3, []string{"JetStream", "-js"}},
		{"JetStream off, init", []string{"refitctl", "init", "--nats", s.off, "--model", "x"}, 3, []string{"JetStream", "-js"}},
		{"JetStream off, demo", []string{"refitctl", "demo", "--nats", s.off, "--arena-dir", s.arenas}, 3, []string{"JetStream", "-js"}},
		{"no such model", s.publisher("--model", "nobody-made-me"), 3, []string{"nobody-made-me", "refitctl init"}},
		{"no such model, receiver", s.receiver("--model", "nobody-made-me"), 3, []string{"nobody-made-me", "refitctl init"}},
		{"another configuration", []string{"refitctl", "init", "--nats", s.nats, "--model", "other"}, 3, []string{"REFIT_other", "want", "storage"}},

		{"no checkpoint", s.publisher("--checkpoint", filepath.Join(s.dir, "nowhere")), 4, []string{"nowhere", "does not exist", "expected"}},
		{"no checkpoint, demo", []string{"refitctl", "demo", "--checkpoint", filepath.Join(s.dir, "nowhere"), "--arena-dir", s.arenas}, 4, []string{"nowhere", "does not exist", "expected"}},
		{"empty folder", s.publisher("--checkpoint", t.TempDir()), 4, []string{"model.safetensors"}},
		{"truncated file", s.publisher("--checkpoint", s.truncated()), 4, []string{"model-00001", "bytes"}},
		{"offsets that lie", s.publisher("--checkpoint", s.folder("lying", `{"a":`+tensor(0, 20)+`}`, 20)), 4, []string{"lying", "model.safetensors", "tensor a", "16"}},
		{"overlapping tensors", s.publisher("--checkpoint", s.folder("overlap", `{"a":`+tensor(0, 16)+`,"b":`+tensor(8, 24)+`}`, 24)), 4, []string{"overlap", "tensor", "8"}},
		{"unknown dtype", s.publisher("--checkpoint", s.folder("dtype", `{"a":{"dtype":"Q3","shape":[4],"data_offsets":[0,16]}}`, 16)), 4, []string{"dtype", "tensor a", "Q3"}},
		{"header is no JSON", s.publisher("--checkpoint", s.folder("json", `{"a":`, 16)), 4, []string{"json", "model.safetensors"}},
		{"odd hsdp", s.publisher("--layout", "hsdp", "--world", "3"), 4, []string{"hsdp", "3", "even"}},
		{"odd hsdp, demo", []string{"refitctl", "demo", "--checkpoint", built.checkpoint, "--layout", "hsdp", "--trainers", "3", "--arena-dir", s.arenas}, 4, []string{"hsdp", "3", "even"}},

		{"no capture", s.receiver("--capture", filepath.Join(s.dir, "none.json")), 4, []string{"none.json", "no such file"}},
		{"not a capture", s.receiver("--capture", s.file("text.json", []byte("hello"))), 4, []string{"text.json"}},
		{"capture without this tp", s.receiver("--tp", "4", "--ranks", "0"), 4, []string{"capture-2.json", "tensor parallel 4", "2"}},
		{"huge parameter", s.receiver("--capture", s.capture("huge.json", enlarge)), 6, []string{s.arenas, "no room", "free", "--arena-dir"}},

		{"port taken", s.publisher("--transport", "tcp", "--listen", s.taken), 6, []string{s.taken, "in use", "--listen"}},
		{"port taken, auto", s.publisher("--listen", s.taken), 6, []string{s.taken, "in use", "--listen"}},
		{"transport not available", s.publisher("--transport", "nixl", "--nixl-lib", filepath.Join(s.dir, "none.so")), 3, []string{"nixl", "none.so", "--nixl-lib"}},
		{"no such flag", s.publisher("--wolrd", "4"), 2, []string{"--wolrd", "--help"}},
		{"no such transport", s.publisher("--transport", "pigeon"), 2, []string{"--transport", "pigeon", "auto"}},
		{"no such layout", s.publisher("--layout", "zigzag"), 2, []string{"--layout", "zigzag", "fsdp"}},
		{"rank beyond the world", s.publisher("--rank", "4", "--world", "4"), 2, []string{"--rank 4", "--world 4"}},
		{"rank beyond tp", s.receiver("--tp", "2", "--ranks", "2"), 2, []string{"--ranks 2", "--tp 2"}},
		{"missing flag", []string{"receiver", "--model", "m"}, 2, []string{"--name"}},
		{"nobody tells what is needed", []string{"receiver", "--model", "m", "--name", "r"}, 2, []string{"--capture"}},
		{"no such command", []string{"refitctl", "fly"}, 2, []string{"fly", "--help"}},
		{"no configuration file", s.publisher("--config", filepath.Join(s.dir, "none.yaml")), 2, []string{"none.yaml"}},
		{"unknown key", s.publisher("--config", s.file("key.yaml", []byte("wolrd: 4\n"))), 2, []string{"key.yaml", "wolrd"}},
		{"configuration is no mapping", s.publisher("--config", s.file("list.yaml", []byte("- a\n"))), 2, []string{"list.yaml"}},
		{"value of another type", s.publisher("--config", s.file("type.yaml", []byte("world: many\n"))), 2, []string{"--world", "many"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.line[0], c.line[0], c.line[1:]...)
			code := p.ended()
			said := errorLines(p.said())
			if code != c.code || len(said) != 1 || !containsAll(strings.Join(said, "\n"), c.says) {
				t.Errorf("%s\nexit code %d, expected %d; expected one line with %q; it said:\n%s",
					strings.Join(c.line, " "), code, c.code, c.says, strings.Join(p.said(), "\n"))
			}
		})
	}
	t.Cleanup(func() { s.leftNothing() })
}

// enlarge gives every parameter of a capture more rows than any machine has room for.
//
//nolint:errcheck // a capture of another shape than the one made above should panic here
func enlarge(c map[string]any) {
	for _, each := range c["cases"].([]any) {
		for _, p := range each.(map[string]any)["params"].([]any) {
			if shape := p.(map[string]any)["shape"].([]any); len(shape) == 2 {
				shape[0] = shape[0].(float64) * 1e6
			}
		}
	}
}

// errorLines are the lines that are no log records.
func errorLines(lines []string) []string {
	var rest []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") {
			rest = append(rest, line)
		}
	}
	return rest
}

// leftNothing checks that nobody has left a file where arenas belong.
func (s *site) leftNothing() {
	s.t.Helper()
	err := filepath.Walk(s.arenas, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Name() != "lock" {
			s.t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}
