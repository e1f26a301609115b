package arena

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// TestHugePagesChangeNothingButPages stages a version into arenas with and without them: the files are the same byte for
// byte, addresses stay over flips, a later life adopts them either way, and what came of the wish is said once.
func TestHugePagesChangeNothingButPages(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]string{"shared memory": "/dev/shm", "disk": ""} {
		dir, err := os.MkdirTemp(base, "drydock-arena-") //nolint:usetesting // shared memory is what is asked for
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		var files [2][]byte
		for i, huge := range []bool{false, true} {
			var log bytes.Buffer
			cfg := Config{
				Root: filepath.Join(dir, "arenas"), HugePages: huge,
				Ranks:  []Rank{{Tensors: []safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{2*rdma.HugePageBytes + 4711}}}}},
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			}
			s := mustOpen(t, cfg)
			slot, _ := resume(t, s, one, content)
			addr := slot.Memory(0).Addr()
			writeAll(s, slot)
			if err := s.Seal(slot, one); err != nil {
				t.Fatal(err)
			}
			flip(t, s, slot)
			if slot.Memory(0).Addr() != addr || huge && addr%rdma.HugePageBytes != 0 {
				t.Errorf("%s: at %#x, then at %#x", name, addr, slot.Memory(0).Addr())
			}
			if files[i], err = os.ReadFile(slot.Path(0)); err != nil {
				t.Fatal(err)
			}
			if said := strings.Count(log.String(), "huge pages"); said != map[bool]int{false: 0, true: 1}[huge] {
				t.Errorf("%s, huge pages %t: said %d times: %s", name, huge, said, log.String())
			}
			mustClose(t, s)
			cfg.HugePages = !huge
			again := mustOpen(t, cfg)
			if found, ok := again.Verify(1); !ok || !found.Whole || len(found.Damaged) > 0 {
				t.Errorf("%s: a later life finds %+v", name, found)
			}
			mustClose(t, again)
			if err := os.RemoveAll(cfg.Root); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s: the files differ", name)
		}
	}
}
