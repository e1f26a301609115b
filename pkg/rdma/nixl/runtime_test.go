package nixl

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// With the library loaded and agents running, a nil dereference is still a panic that can be recovered: UCX has not
// put its own handler in the place of the runtime's.
func TestLibraryLeavesSignalsToTheRuntime(t *testing.T) {
	before := caught(t)
	l := library(t)
	open(t, l, Config{Agents: 1})
	if after := caught(t); after != before {
		t.Errorf("caught signals were %s, are %s", before, after)
	}
	defer func() {
		if err, ok := recover().(runtime.Error); !ok {
			t.Errorf("recovered %v", err)
		}
	}()
	t.Log(pluginOf(nil))
}

func pluginOf(t *Transport) string { return t.cfg.Plugin }

// caught is the mask of signals with a handler.
func caught(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "SigCgt:")
	mask, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(mask)
}
