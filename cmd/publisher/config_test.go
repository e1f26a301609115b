package main

import (
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

func TestTheSidecarKeepsNoMoreThanItsSlots(t *testing.T) {
	t.Parallel()
	c := serveCommand{Slots: 2, Keep: messages.Keep{Last: 2}}
	if err := c.Run(t.Context(), nil); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--keep 2 --slots 2") {
		t.Error(err)
	}
}

func TestFlagsThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]checkpointCommand{
		"--rank 2 --world 2":          {Rank: 2, World: 2, Slots: 2},
		"--slots 9":                   {World: 1, Slots: 9},
		"--keep 3 --slots 2":          {World: 1, Slots: 2, Keep: messages.Keep{Last: 3}},
		"--keep every --slots 1":      {World: 1, Slots: 1, Keep: messages.Keep{Last: 1, Every: true}},
		"one slot more is needed":     {World: 1, Slots: 2, Keep: messages.Keep{Last: 2}},
		"open checkpoint /not/there:": {World: 1, Slots: 1, Checkpoint: "/not/there", Layout: "fsdp"}, // one slot keeps one version
	} {
		err := c.Run(t.Context(), nil)
		if code := cli.Code(err); code != cli.ExitUsage && code != cli.ExitInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
