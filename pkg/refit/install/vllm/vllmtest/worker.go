package vllmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// Rank is one worker. Its exported fields are faults that a test sets before a call.
type Rank struct {
	Raise     map[string]string // method: text of the exception that the next call of it raises
	FailApply int               // so many applies fail in the middle; what served is written again
	FailUndo  bool              // going back fails too

	rank     int
	active   bool // vLLM's own flag of an open update
	root     string
	owner    string
	state    string
	problem  string
	staged   *announcement
	serving  *announcement
	previous *announcement
	inHand   string
	weights  string // label of what was copied last, "checkpoint", or "torn"
}

type announcement struct {
	Files       []string `json:"files"`
	Model       string   `json:"model"`
	Run         uint64   `json:"run"`
	Version     uint64   `json:"version"`
	Rank        int      `json:"rank"`
	Layout      string   `json:"layout"`
	Owner       string   `json:"owner"`
	Back        bool     `json:"back"`
	Traceparent string   `json:"traceparent"`
}

func (a *announcement) key() messages.Key { return messages.Key{Run: a.Run, Version: a.Version} }

func (a *announcement) label() string {
	if a == nil {
		return ""
	}
	return a.key().String()
}

const broken = "broken"

func (r *Rank) set(state string) {
	if r.state != broken {
		r.state = state
	}
}

func (r *Rank) init(root, owner string, takeOver bool) {
	switch {
	case root == "" || owner == "":
		r.refuse(fmt.Errorf("init with root %q, owner %q", root, owner))
	case r.owner != "" && r.owner != owner && !takeOver:
		r.refuse(fmt.Errorf("this engine is updated by %s", r.owner))
	default:
		r.root, r.owner = root, owner
	}
}

func (r *Rank) refuse(err error) {
	r.staged, r.problem = nil, err.Error()
	r.set("refused")
}

// start raises in vLLM itself when an update is open.
func (r *Rank) start() error {
	if r.active {
		return fmt.Errorf("start_weight_update called while a weight update is already active")
	}
	r.active, r.staged, r.problem = true, nil, ""
	r.set("open")
	return nil
}

func (r *Rank) update(a *announcement) error {
	if !r.active {
		return fmt.Errorf("start_weight_update must be called before update_weights")
	}
	if err := r.stage(a); err != nil {
		r.refuse(err)
	}
	return nil
}

func (r *Rank) stage(a *announcement) error {
	switch {
	case a.Owner != r.owner:
		return fmt.Errorf("update by %q: this engine is updated by %q", a.Owner, r.owner)
	case a.Rank != r.rank:
		return fmt.Errorf("the announcement is for rank %d, this is rank %d", a.Rank, r.rank)
	case r.serving != nil && a.key().Less(r.serving.key()) && !a.Back && r.state != broken:
		return fmt.Errorf("version %s is older than %s, which serves", a.label(), r.serving.label())
	case len(a.Files) != 1:
		return fmt.Errorf("%d files", len(a.Files))
	}
	if rel, err := filepath.Rel(r.root, a.Files[0]); err != nil || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("%s is outside %s", a.Files[0], r.root)
	}
	if err := checkLabel(a); err != nil {
		return err
	}
	r.staged, r.inHand = a, a.label()
	r.set("staged")
	return nil
}

// checkLabel reads the file as a worker does.
func checkLabel(a *announcement) error {
	f, err := safetensors.Open(a.Files[0])
	if err != nil {
		return err
	}
	defer f.Close()
	found := []string{f.Metadata[arena.MetaModel], f.Metadata[arena.MetaRun], f.Metadata[arena.MetaVersion], f.Metadata[arena.MetaRank]}
	want := []string{a.Model, strconv.FormatUint(a.Run, 10), strconv.FormatUint(a.Version, 10), strconv.Itoa(a.Rank)}
	for k := range want {
		if found[k] != want[k] {
			return fmt.Errorf("%s: its label says %q, announced was %q", a.Files[0], found[k], want[k])
		}
	}
	if l := f.Metadata[arena.MetaLayout]; a.Layout != "" && a.Layout != l {
		return fmt.Errorf("%s: layout %q, announced was %q", a.Files[0], l, a.Layout)
	}
	return nil
}

func (r *Rank) finish() error {
	if !r.active {
		return fmt.Errorf("finish_weight_update called without a matching start_weight_update")
	}
	r.active = false
	a := r.staged
	if a == nil {
		return nil
	}
	r.staged = nil
	if r.FailApply == 0 {
		r.applied(a)
		return nil
	}
	r.FailApply--
	r.problem, r.weights = "RuntimeError: out of memory in the middle", "torn"
	if r.FailUndo {
		if r.state != broken {
			r.previous = r.serving
		}
		r.serving, r.state = nil, broken
		return nil
	}
	r.weights = weightsOf(r.serving)
	r.set("undone")
	return nil
}

func (r *Rank) applied(a *announcement) {
	if r.serving.label() != a.label() {
		r.previous = r.serving
	}
	r.serving, r.state, r.problem, r.weights = a, "applied", "", a.label()
}

func (r *Rank) undo(label string) {
	if r.state != broken && (r.inHand != label || r.serving.label() != label) {
		return
	}
	if r.FailUndo {
		r.problem = "can't go back"
		return
	}
	if r.previous != nil {
		if _, err := os.Stat(r.previous.Files[0]); err != nil {
			r.problem = err.Error()
			return
		}
	}
	r.serving, r.state, r.weights = r.previous, "undone", weightsOf(r.previous)
}

func weightsOf(a *announcement) string {
	if a == nil {
		return "checkpoint"
	}
	return a.label()
}

func (r *Rank) abort() {
	r.staged = nil
	if r.state == "open" || r.state == "staged" || r.state == "refused" {
		r.state = "aborted"
	}
}

func (r *Rank) status(nonce string, size int) map[string]any {
	return map[string]any{
		"protocol": 1, "nonce": nonce, "engine": "vllm stand-in", "rank": r.rank, "tp_rank": r.rank, "tp_size": size, "open": r.active,
		"state": r.state, "error": r.problem, "staged": r.staged.label(), "serving": r.serving.label(), "owner": r.owner,
		"in_hand": r.inHand, "root": r.root,
	}
}
