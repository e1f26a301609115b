package composetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProgramsKnowWhatTheyAreTold builds the programs and asks each, by --help, whether it knows every command, flag
// and variable that the file gives it. A variable that a program doesn't know would be passed over in silence.
func TestProgramsKnowWhatTheyAreTold(t *testing.T) {
	t.Parallel()
	bin := build(t)
	for _, s := range load(t).Services {
		name, args := program(s)
		if name == "" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			text := help(t, filepath.Join(bin, name), args)
			for _, arg := range args {
				if strings.HasPrefix(arg, "--") && !strings.Contains(text, arg) {
					t.Errorf("%s %v: no flag %s in its help", name, args, arg)
				}
			}
			for variable := range s.Environment {
				if strings.HasPrefix(variable, "DRYDOCK_") && name != "refitctl" && !strings.Contains(text, "$"+variable) {
					t.Errorf("%s: no variable %s in its help", name, variable)
				}
			}
		})
		if h := s.HealthCheck; h != nil && drydock(s) {
			t.Run(s.Name+" health", func(t *testing.T) {
				t.Parallel()
				help(t, filepath.Join(bin, h.Test[1]), h.Test[2:])
			})
		}
	}
}

// build compiles the programs as the image does.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin+string(filepath.Separator), "./cmd/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return bin
}

// help gives a program's help for the command that the arguments name; a command that it lacks is an error.
func help(t *testing.T, program string, args []string) string {
	t.Helper()
	command := args[:max(0, slices.IndexFunc(append(slices.Clone(args), "--"), isFlag))]
	out, err := exec.CommandContext(t.Context(), program, append(slices.Clone(command), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v\n%s", filepath.Base(program), command, err, out)
	}
	return string(out)
}

func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") }
