package main

import (
	"fmt"
	"io"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/operator"
)

// arenasCommand lists this host's arenas.
type arenasCommand struct {
	ArenaDir      string `help:"Folder of the receivers' folders, as given to receivers." default:"/dev/shm/drydock" placeholder:"DIR"`
	Verify        bool   `help:"Read all arenas. Exit code 5 if bytes are not as they were when they came, a header is invalid, or files of one slot are of several versions."`
	RemoveOrphans bool   `help:"Remove the arenas that don't serve and whose receiver is gone." env:"-"`
	JSON          bool   `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (arenasCommand) Help() string {
	return `A receiver keeps two slots, each with a file for each of its ranks: one serves, the other is staged into. When a receiver
is gone its serving arena stays, for engines and for its next life; --remove-orphans never touches that one.

Examples:

    refitctl arenas
    refitctl arenas --arena-dir /dev/shm/drydock --verify
    refitctl arenas --remove-orphans`
}

// Run lists, after removing what it was told to.
func (c *arenasCommand) Run(out io.Writer) error {
	var removed []operator.RemovedSlot
	if c.RemoveOrphans {
		var err error
		if removed, err = operator.RemoveOrphans(c.ArenaDir); err != nil {
			return err
		}
	}
	l, err := operator.Arenas(c.ArenaDir)
	if err != nil {
		return err
	}
	l.Removed = removed
	if c.Verify {
		l.Verify()
	}
	if err := operator.Show(out, l, c.JSON); err != nil {
		return err
	}
	if n := l.Problems(); c.Verify && n > 0 {
		return cli.WithCode(cli.ExitMismatch, fmt.Errorf("%d of %d arenas are not what they must be", n, len(l.Arenas)))
	}
	return nil
}
