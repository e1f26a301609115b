// Package fence holds the directions in which Drydock's packages may depend on each other, as a test that needs
// nothing but the Go parser.
//
// A rule names a folder and what its files may not import or call. [Check] reads every Go file of a source tree,
// whatever its build tags, and returns each breach. The linter's configuration draws the same fence; this package
// keeps it standing where the linter is not run, and covers files that a linter skips because they build elsewhere.
//
// It never looks at what code does, only at what it names. Folders called testdata, hidden folders and nested modules
// are not read.
//
// The law: cmd → pkg/refit → {pkg/messages, pkg/plan, pkg/rdma, pkg/tracing}, and those four import nothing of this
// module outside their own folder.
package fence
