package vllm

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel/propagation"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// announcement is what a rank is told of its file; session.py has the same fields and refuses others.
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

// announce makes the announcement for each tensor-parallel rank, in the order of the ranks. A file that does not say of
// itself what is installed is refused before the engine hears of it. All ranks must be this receiver's: two that call the
// same engine at the same time would open one update twice, which raises in its workers.
func (i *Installer) announce(ctx context.Context, in refit.Installation) ([]announcement, error) {
	if len(in.Peers) > 0 {
		return nil, fmt.Errorf("%d other receivers have ranks of this engine: one receiver must have all ranks of a vLLM engine", len(in.Peers))
	}
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	byRank := map[int]announcement{}
	for k, rank := range in.Ranks {
		layout, err := layoutOf(in.Files[k], in.Model, in.Key, rank)
		if err != nil {
			return nil, err
		}
		byRank[rank] = announcement{
			Files: []string{in.Files[k]}, Model: in.Model, Run: in.Key.Run, Version: in.Key.Version,
			Rank: rank, Layout: layout, Owner: i.cfg.Owner, Traceparent: trace["traceparent"],
		}
	}
	list := make([]announcement, len(byRank))
	for rank := range list {
		a, ok := byRank[rank]
		if !ok {
			return nil, fmt.Errorf("%d files, and none for rank %d: a version is installed on all ranks or none", len(byRank), rank)
		}
		list[rank] = a
	}
	return list, nil
}

// layoutOf reads the label of an arena file and compares it with what is to be installed.
func layoutOf(path, model string, key messages.Key, rank int) (layout string, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return "", fmt.Errorf("read arena of rank %d: %w", rank, err)
	}
	defer f.Close()
	for _, c := range []struct{ key, want string }{
		{arena.MetaModel, model},
		{arena.MetaRun, strconv.FormatUint(key.Run, 10)},
		{arena.MetaVersion, strconv.FormatUint(key.Version, 10)},
		{arena.MetaRank, strconv.Itoa(rank)},
	} {
		if got := f.Metadata[c.key]; got != c.want {
			return "", fmt.Errorf("arena %s: its label says %s %q, expected %q", path, c.key, got, c.want)
		}
	}
	return f.Metadata[arena.MetaLayout], nil
}
