package install

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// Vars is what a template sees of a version: {{.Dir}}, {{json .Files}}, {{join .Ranks ","}}.
type Vars struct {
	Model   string         // full name
	Run     uint64         //
	Version uint64         //
	Key     string         // "run.version", the label that engines show
	Dir     string         // folder of the files
	Ranks   []int          // destination ranks
	Files   []string       // arena file of each rank, in the order of Ranks
	Peers   []refit.Member // the other receivers of the same engine
}

// VarsOf takes an installation apart.
func VarsOf(in refit.Installation) Vars {
	return Vars{
		Model: in.Model, Run: in.Key.Run, Version: in.Key.Version, Key: in.Key.String(),
		Dir: in.Dir, Ranks: in.Ranks, Files: in.Files, Peers: in.Peers,
	}
}

// Environ is the same for a child process: DRYDOCK_MODEL, DRYDOCK_RUN, DRYDOCK_VERSION, DRYDOCK_KEY, DRYDOCK_DIR,
// DRYDOCK_RANKS separated by commas, DRYDOCK_FILES separated by line feeds.
func (v Vars) Environ() []string {
	return []string{
		"DRYDOCK_MODEL=" + v.Model,
		"DRYDOCK_RUN=" + strconv.FormatUint(v.Run, 10),
		"DRYDOCK_VERSION=" + strconv.FormatUint(v.Version, 10),
		"DRYDOCK_KEY=" + v.Key,
		"DRYDOCK_DIR=" + v.Dir,
		"DRYDOCK_RANKS=" + joinInts(v.Ranks, ","),
		"DRYDOCK_FILES=" + strings.Join(v.Files, "\n"),
	}
}

// Text is a template of one string.
type Text struct{ t *template.Template }

// sample is what templates are tried on before anything is installed with them.
var sample = Vars{
	Model: "org/model", Run: 1, Version: 2, Key: messages.Key{Run: 1, Version: 2}.String(), Dir: "/arenas/slot-1",
	Ranks: []int{0}, Files: []string{"/arenas/slot-1/rank-0.safetensors"},
	Peers: []refit.Member{{Name: "other", Host: "host", Ranks: []int{1}, Files: []string{"/arenas/slot-1/rank-1.safetensors"}}},
}

// Parse reads a template and tries it: a variable that doesn't exist is found now, not at the first version.
// Beside Go's own functions there are json, which writes a value as JSON, and join, which joins a list by a separator.
func Parse(name, text string) (*Text, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"json": jsonText, "join": join}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse template of %s: %w", name, err)
	}
	made := &Text{t}
	if _, err := made.Render(sample); err != nil {
		return nil, err
	}
	return made, nil
}

// Render fills the template in.
func (t *Text) Render(v Vars) (string, error) {
	var b strings.Builder
	if err := t.t.Execute(&b, v); err != nil {
		return "", fmt.Errorf("fill in the template of %s: %w", t.t.Name(), err)
	}
	return b.String(), nil
}

func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// join takes the two kinds of lists that Vars has.
func join(list any, separator string) (string, error) {
	switch l := list.(type) {
	case []string:
		return strings.Join(l, separator), nil
	case []int:
		return joinInts(l, separator), nil
	}
	return "", fmt.Errorf("join %T: expected a list of strings or numbers", list)
}

func joinInts(list []int, separator string) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, separator)
}
