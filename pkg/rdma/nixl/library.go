package nixl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
)

const libraryName = "libnixl_capi.so"

// Candidates lists where the library is looked for when no path is configured: the loader's own path, then the folders
// that the Python wheel unpacks to, in the usual places and in the extra roots given (site-packages folders, or a
// folder that the wheel was unpacked into).
func Candidates(roots ...string) []string {
	out := []string{libraryName}
	patterns := []string{
		"/usr/lib/python3*/site-packages", "/usr/local/lib/python3*/site-packages",
		"/usr/lib/python3*/dist-packages", "/usr/local/lib/python3*/dist-packages", "/opt/venv/lib/python3*/site-packages",
	}
	for _, root := range append(roots, patterns...) {
		found, err := filepath.Glob(filepath.Join(root, ".nixl_cu1*.mesonpy.libs", libraryName))
		if err != nil {
			continue // a root with a bad pattern character holds nothing
		}
		out = append(out, found...)
	}
	return out
}

// Library is the opened library. It is tested once, by the first transport made of it.
type Library struct {
	sys  *nixlsys.Library
	Path string // as it was opened

	once   sync.Once
	tested error
}

// Open opens the configured library, or the first candidate that opens. The error tells of all that were tried, and is
// of kind ErrUnavailable.
func Open(cfg Config, roots ...string) (*Library, error) {
	paths := []string{cfg.Library}
	if cfg.Library == "" {
		paths = Candidates(roots...)
	}
	var errs []error
	for _, p := range paths {
		l, err := nixlsys.Load(p, cfg.env(pluginFolder(p)))
		if err == nil {
			return &Library{sys: l, Path: p}, nil
		}
		errs = append(errs, err)
	}
	return nil, fail("open library", -1, rdma.ErrUnavailable, errors.Join(errs...))
}

// pluginFolder is the folder of plug-ins beside a library, as the wheel has it.
func pluginFolder(lib string) string {
	dir := filepath.Join(filepath.Dir(lib), "plugins")
	if st, err := os.Stat(dir); err != nil || !st.IsDir() || filepath.Base(lib) == lib {
		return ""
	}
	return dir
}

// Plugins lists the plug-ins that the library finds.
func (l *Library) Plugins() ([]string, error) {
	a, err := l.sys.NewAgent("drydock-plugins", servingAgent)
	if err != nil {
		return nil, fmt.Errorf("make an agent: %w", err)
	}
	names, err := l.sys.Plugins(a)
	return names, errors.Join(err, l.sys.DestroyAgent(a))
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
