package fence

import (
	"path"
	"slices"
	"strings"
)

// Module is the path of the module whose tree is checked.
const Module = "github.com/drydock-rl/drydock"

// A rule forbids imports, or uses of a package's functions, to the files of some folders.
type rule struct {
	in     []string               // folders, from the root of the tree, that the rule holds for; none: all
	except []string               // folders that it does not hold for
	tests  bool                   // whether it holds for tests too
	only   func(file string) bool // picks the files that it holds for; none: all
	forbid []string               // import paths, each with all below it
	allow  []string               // import paths taken out of forbid, each with all below it
	uses   []string               // "os.Getenv": package-level functions that may not be named, where their package may be imported
	why    string
}

// rules is the fence, one entry a law.
var rules = []rule{
	leaf("pkg/messages"), leafTests("pkg/messages"),
	leaf("pkg/plan"), leafTests("pkg/plan"),
	leaf("pkg/rdma"), leafTests("pkg/rdma"),
	leaf("pkg/tracing"), leafTests("pkg/tracing"),
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
var programs = []string{"cmd", "internal/cli", "internal/oracle", "examples"}

// leaf keeps a package from importing anything of this module outside its own folder.
func leaf(dir string) rule {
	return rule{
		in:     []string{dir},
		forbid: []string{Module},
		allow:  []string{Module + "/" + dir},
		why:    "messages, plan, rdma and tracing import none of each other; pkg/refit ties them together",
	}
}

// leafTests lets a package's tests use internal, such as a server to talk to, and still no sibling.
func leafTests(dir string) rule {
	return rule{
		in: []string{dir}, only: isTest, tests: true,
		forbid: []string{Module + "/pkg"},
		allow:  []string{Module + "/" + dir},
		why:    "messages, plan, rdma and tracing import none of each other, not even in tests",
	}
}

// covers tells whether the rule holds for a file.
func (r *rule) covers(file string) bool {
	if isTest(file) && !r.tests || r.only != nil && !r.only(file) {
		return false
	}
	return (len(r.in) == 0 || under(r.in, file)) && !under(r.except, file)
}

// isTest tells whether a file is a test, or lies in a folder named …test, which tests of other packages import.
func isTest(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasSuffix(path.Dir(file), "test")
}

// forbids tells whether the rule forbids an import path.
func (r *rule) forbids(imported string) bool {
	return under(r.forbid, imported) && !under(r.allow, imported)
}

// under tells whether a path is one of roots or lies below one.
func under(roots []string, p string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return p == root || strings.HasPrefix(p, root+"/")
	})
}
