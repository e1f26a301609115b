package install

import (
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

var installation = refit.Installation{
	Model: `an "odd" model`, Key: messages.Key{Run: 3, Version: 41}, Dir: "/a b/slot-2", Ranks: []int{2, 3},
	Files: []string{"/a b/slot-2/rank-2.safetensors", "/a b/slot-2/rank-3.safetensors"},
	Peers: []refit.Member{{Name: "east", Host: "h2", Ranks: []int{0, 1}}},
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                                       "plain",
		"{{.Dir}}/{{.Version}}":                       "/a b/slot-2/41",
		"{{.Key}} {{join .Ranks \"+\"}}":              "3.41 2+3",
		`{"m":{{json .Model}}}`:                       `{"m":"an \"odd\" model"}`,
		"{{json .Files}}":                             `["/a b/slot-2/rank-2.safetensors","/a b/slot-2/rank-3.safetensors"]`,
		"{{range .Peers}}{{.Name}}:{{.Ranks}}{{end}}": "east:[0 1]",
		`{{join .Files ":"}}`:                         "/a b/slot-2/rank-2.safetensors:/a b/slot-2/rank-3.safetensors",
	} {
		tmpl, err := Parse("body", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := tmpl.Render(VarsOf(installation)); err != nil || got != want {
			t.Errorf("%s gives %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestTemplatesAreTriedWhenTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{{.Nothing}}", "{{", "{{join .Model \",\"}}", "{{index .Files 7}}"} {
		if _, err := Parse("url", text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	got := VarsOf(installation).Environ()
	for _, want := range []string{
		`DRYDOCK_MODEL=an "odd" model`, "DRYDOCK_RUN=3", "DRYDOCK_VERSION=41", "DRYDOCK_KEY=3.41", "DRYDOCK_DIR=/a b/slot-2", "DRYDOCK_RANKS=2,3",
		"DRYDOCK_FILES=/a b/slot-2/rank-2.safetensors\n/a b/slot-2/rank-3.safetensors",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}
