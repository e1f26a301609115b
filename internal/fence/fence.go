package fence

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Breach is one place that a rule forbids.
type Breach struct {
	Pos  token.Position // file, from the root of the tree, and line
	What string         // the import path, or the function named
	Why  string         // the law that it breaks
}

// String gives the breach as compilers give errors.
func (b Breach) String() string { return fmt.Sprintf("%s: %s: %s", b.Pos, b.What, b.Why) }

// Check reads the Go files of a source tree and returns what breaks the fence, in the order of the files.
// The error says which file can't be read or parsed; what was found before it is returned with it.
func Check(tree fs.FS) ([]Breach, error) {
	var found []Breach
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk the source tree: %w", err)
		}
		if d.IsDir() {
			if skipped(tree, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		more, err := checkFile(tree, name)
		found = append(found, more...)
		return err
	})
	return found, err
}

// skipped tells whether a folder holds no source of this module.
func skipped(tree fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(tree, path.Join(dir, "go.mod"))
	return err == nil
}

func checkFile(tree fs.FS, name string) ([]Breach, error) {
	src, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse source: %w", err)
	}
	var found []Breach
	for i := range rules {
		r := &rules[i]
		if !r.covers(name) {
			continue
		}
		for _, b := range slices.Concat(r.imports(file), r.named(file)) {
			found = append(found, Breach{Pos: files.Position(b.Pos()), What: b.what, Why: r.why})
		}
	}
	return found, nil
}

// offence is a node of the syntax tree that a rule forbids.
type offence struct {
	ast.Node
	what string
}

func (r *rule) imports(file *ast.File) []offence {
	var found []offence
	for _, spec := range file.Imports {
		if p := importPath(spec); r.forbids(p) {
			found = append(found, offence{spec, "import of " + p})
		}
	}
	return found
}

// named finds the functions that the rule forbids, under whatever name the file imports their package.
func (r *rule) named(file *ast.File) []offence {
	if len(r.uses) == 0 {
		return nil
	}
	packages := map[string]string{} // name in this file → import path
	for _, spec := range file.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		packages[name] = p
	}
	var found []offence
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				if use := packages[x.Name] + "." + sel.Sel.Name; slices.Contains(r.uses, use) {
					found = append(found, offence{sel, "use of " + use})
				}
			}
		}
		return true
	})
	return found
}

// importPath gives the path of an import; the parser has checked that it is a string literal.
func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value)
	return p
}
