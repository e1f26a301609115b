package served

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Mode says how a publisher's shards lie in its served memory.
type Mode string

// The modes.
const (
	Plain  Mode = "plain"  // as the trainer holds them
	Blocks Mode = "blocks" // every matrix in blocks of columns
	Auto   Mode = "auto"   // blocks for the sources of which receivers take columns, while there are such receivers
)

// ParseMode takes the names above; "" is plain.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Plain, nil
	case Plain, Blocks, Auto:
		return m, nil
	}
	return "", fmt.Errorf("unknown served layout %q, expected plain, blocks or auto", s)
}

// Asked is what the receivers of a model want of its sources, as far as their statuses tell.
type Asked struct {
	TP int // size of the largest tensor-parallel group; 0: no receiver has said anything
}

// AskedBy reads statuses. A receiver lists the destination ranks that it fills, counted within their tensor-parallel
// group, so the highest of all gives the group's size.
func AskedBy(statuses []messages.Status) Asked {
	var a Asked
	for i := range statuses {
		if statuses[i].Role != messages.RoleReceiver {
			continue
		}
		for _, r := range statuses[i].Ranks {
			a.TP = max(a.TP, r+1)
		}
	}
	return a
}

// Options gives the options of New for a mode. Under auto they depend on what is asked: a single rank takes whole
// matrices, for which blocks only cost; a group slices the columns of those that tensor parallelism cuts there, and the
// rows of others, which plain shards give in one run.
func (m Mode) Options(asked Asked) Options {
	switch {
	case m == Blocks:
		return Options{}
	case m == Auto && asked.TP > 1:
		return Options{Columns: shardlayout.CutsColumns}
	default:
		return Options{Parts: 1}
	}
}
