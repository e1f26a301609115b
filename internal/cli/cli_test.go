package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type program struct {
	Common
	Version
	World int    `help:"Trainer ranks." default:"1"`
	Model string `help:"Model name." default:"m"`
	Where string `help:"Where to look." default:"/here" placeholder:"DIR"`
	Why   string `help:"Why. Default: because." default:"0" placeholder:"TEXT"`
	fail  error
}

func (p *program) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	if p.fail != nil {
		return p.fail
	}
	fmt.Fprintf(out, "world %d model %s", p.World, p.Model)
	log.Info("ran")
	return ctx.Err()
}

func runProgram(t *testing.T, p *program, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), "prog", "A program.", p, args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedenceIsFlagEnvironmentFileDefault(t *testing.T) {
	path := writeConfig(t, "world: 3\nmodel: file\n")
	steps := []struct {
		name, env string
		args      []string
		want      string
	}{
		{"default", "", nil, "world 1 model m"},
		{"file", "", []string{"--config", path}, "world 3 model file"},
		{"environment", "4", []string{"--config", path}, "world 4 model file"},
		{"flag", "4", []string{"--config", path, "--world", "5"}, "world 5 model file"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			if s.env != "" {
				t.Setenv("DRYDOCK_WORLD", s.env)
			}
			code, out, errs := runProgram(t, &program{}, s.args...)
			if code != ExitOK || out != s.want {
				t.Fatalf("code %d, output %q, errors %q; want output %q", code, out, errs, s.want)
			}
		})
	}
}

func TestWrongInputIsUsage(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown flag":        {"--wordl", "3"},
		"not a number":        {"--world", "three"},
		"missing file":        {"--config", filepath.Join(t.TempDir(), "none.yaml")},
		"unknown key":         {"--config", writeConfig(t, "wordl: 3\n")},
		"not yaml":            {"--config", writeConfig(t, ":\n\t:")},
		"unknown log format":  {"--log-format", "xml"},
		"unexpected argument": {"extra"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := runProgram(t, &program{}, args...)
			if code != ExitUsage || !strings.Contains(errs, "prog: ") {
				t.Fatalf("code %d, errors %q; want code %d and a line of the program's", code, errs, ExitUsage)
			}
		})
	}
}

func TestHelpSaysEnvironmentAndEndsWell(t *testing.T) {
	t.Parallel()
	code, out, _ := runProgram(t, &program{}, "--help")
	if code != ExitOK || !strings.Contains(out, "DRYDOCK_WORLD") {
		t.Fatalf("code %d, help %q", code, out)
	}
	words := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"--where=DIR Where to look. Default: /here ($DRYDOCK_WHERE)", "Why. Default: because ($DRYDOCK_WHY)"} {
		if !strings.Contains(words, want) {
			t.Errorf("the help doesn't say %q: %s", want, words)
		}
	}
	if strings.Index(words, "--world") > strings.Index(words, "Program: --config") {
		t.Error("what all programs have stands before the program's own flags")
	}
}

func TestVersionIsToldAndNothingRun(t *testing.T) {
	t.Parallel()
	code, out, _ := runProgram(t, &program{}, "--version")
	if code != ExitOK || !strings.HasPrefix(out, "prog ") || strings.Contains(out, "world") {
		t.Fatalf("code %d, output %q", code, out)
	}
}

func TestInnermostCodeWins(t *testing.T) {
	t.Parallel()
	inner := WithCode(ExitCapacity, errors.New("no room"))
	outer := WithCode(ExitFailure, fmt.Errorf("stage: %w", inner))
	code, _, errs := runProgram(t, &program{fail: outer})
	if code != ExitCapacity || !strings.Contains(errs, "prog: stage: no room\n") {
		t.Fatalf("code %d, errors %q", code, errs)
	}
	if Code(fmt.Errorf("x: %w", context.Canceled)) != ExitOK {
		t.Fatal("a cancelled program has not failed")
	}
	if WithCode(ExitInput, nil) != nil {
		t.Fatal("no error stays no error")
	}
}
