package fence

import (
	"slices"
	"strings"
)

// Module is the path of the module whose tree is checked.
const Module = "github.com/drydock-rl/drydock"

// A rule forbids imports, or uses of a package's functions, to the files of some folders.
type rule struct {
	in     []string // folders, from the root of the tree, that the rule holds for; none: all
	except []string // folders that it does not hold for
	tests  bool     // whether it holds for _test.go files too
	forbid []string // import paths, each with all below it
	allow  []string // import paths taken out of forbid, each with all below it
	uses   []string // "os.Getenv": package-level functions that may not be named, where their package may be imported
	why    string
}

// rules is the fence, one entry a law.
var rules = []rule{
	leaf("pkg/messages"),
	leaf("pkg/plan"),
	leaf("pkg/rdma"),
	leaf("pkg/tracing"),
	{
		in: []string{"pkg", "internal"}, tests: true,
		forbid: []string{Module + "/cmd"},
		why:    "the programs stand on the packages, never the other way round",
	},
	{
		in:     []string{"pkg/plan"},
		forbid: []string{"os", "net", "time", "log", "math/rand"},
		why:    "the planner is pure: no I/O, no clock, equal inputs give equal plans",
	},
	{
		in: []string{"internal/proof"}, tests: true,
		forbid: []string{Module + "/pkg"},
		why:    "the proof shares nothing with what it proves",
	},
	{
		except: []string{"pkg/rdma/internal/nixlsys"}, tests: true,
		forbid: []string{"unsafe", "C", "github.com/ebitengine/purego"},
		why:    "only pkg/rdma/internal/nixlsys is unsafe and calls foreign code",
	},
	{
		except: programs,
		forbid: []string{"flag"},
		why:    "only the programs read flags",
	},
	{
		// The switch MX_REFIT_TIMING is read through an injected function whose default is os.Getenv.
		except: append(slices.Clone(programs), "pkg/tracing"),
		uses:   []string{"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv"},
		why:    "only the programs read the environment",
	},
}

// programs are the folders in which flags, environment and exit codes belong.
var programs = []string{"cmd", "internal/cli", "internal/config", "examples"}

// leaf keeps a package from importing anything of this module outside its own folder.
func leaf(dir string) rule {
	return rule{
		in: []string{dir}, tests: true,
		forbid: []string{Module},
		allow:  []string{Module + "/" + dir},
		why:    "messages, plan, rdma and tracing import none of each other; pkg/refit ties them together",
	}
}

// covers tells whether the rule holds for a file.
func (r *rule) covers(file string) bool {
	if strings.HasSuffix(file, "_test.go") && !r.tests {
		return false
	}
	return (len(r.in) == 0 || under(r.in, file)) && !under(r.except, file)
}

// forbids tells whether the rule forbids an import path.
func (r *rule) forbids(path string) bool { return under(r.forbid, path) && !under(r.allow, path) }

// under tells whether path is one of roots or lies below one.
func under(roots []string, path string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}
