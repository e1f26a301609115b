package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// voice tells people how the demo goes on, one line for each event.
type voice struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func newVoice(w io.Writer) *voice { return &voice{w: w, start: time.Now()} }

func (v *voice) line(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.w, "[%6.2fs] %s\n", time.Since(v.start).Seconds(), fmt.Sprintf(format, args...))
}

func (v *voice) plan(r *run) {
	origin := "given"
	if r.files.generated {
		origin = fmt.Sprintf("generated, seed %d", r.o.Seed)
	}
	v.line("checkpoint  %s: %d tensors, %s (%s)", r.files.checkpoint, len(r.files.source.Tensors()), size(r.files.nbytes()), origin)
	v.line("trainers    %d ranks, layout %s", r.o.Trainers, r.o.Layout)
	v.line("receivers   %d, tensor parallel %d, capture %s", r.o.Receivers, r.o.Receivers, r.files.captureFile)
	for _, note := range r.files.capture.Notes {
		v.line("            %s", note)
	}
}

func (v *voice) server(r *run) {
	kind := "given"
	if r.o.NATS == "" {
		kind = "embedded"
	}
	v.line("server      %s (%s), model %s", r.url, kind, r.model)
}

// record tells of a finished refit cycle.
func (v *voice) record(receiver int, rec *tracing.Record) {
	if rec.Drydock.Outcome != tracing.OutcomeApplied {
		v.line("version %d   %s: %s: %s", rec.Version, receiverName(receiver), rec.Drydock.Outcome, rec.Drydock.Error)
		return
	}
	brought := fmt.Sprintf("%s in %.1f ms, %s verified", size(rec.Bytes), float64(rec.E2EMs), percent(rec.Drydock.VerifiedBytes, rec.Drydock.StagedBytes))
	if rec.Bytes == 0 { // as after a rollback to the version before, which lies in the other arena
		brought = fmt.Sprintf("nothing had to be read, %.1f ms", float64(rec.E2EMs))
	}
	v.line("version %d   applied by %s: %s, pause %.3f ms", rec.Version, receiverName(receiver), brought, pauseMs(rec))
}

func (v *voice) proven(res *result, took time.Duration) {
	params, nbytes := res.proven()
	v.line("version %d   proven: %d parameters, %s, recomputed from the checkpoint in %.1f s and equal byte for byte",
		res.Version, params, size(nbytes), took.Seconds())
}

func (v *voice) lookAround(r *run) {
	v.line("everything is left running; Ctrl-C stops it. In another terminal:")
	refitctl := "refitctl"
	if path, err := os.Executable(); err == nil {
		refitctl = path
	}
	fmt.Fprintf(v.w, "\n  export DRYDOCK_NATS=%s DRYDOCK_MODEL=%s DRYDOCK_ARENA_DIR=%s\n", r.url, r.model, r.files.arenas)
	for _, command := range []string{
		"versions     # also: receivers, publishers, why, watch, arenas",
		"trace latest --collector " + r.sink.HTTPURL(),
		fmt.Sprintf("rollback %d --reason 'to try it'", max(r.o.Versions-1, 1)),
		fmt.Sprintf("plan --capture %s --tp %d --version latest", r.files.captureFile, r.o.Receivers),
	} {
		fmt.Fprintf(v.w, "  %s %s\n", refitctl, command)
	}
	fmt.Fprintf(v.w, "  tail -f %s\n\n", r.files.log("*"))
}

// leftBehind tells what --keep leaves when it ends.
func (v *voice) leftBehind(r *run) {
	v.line("stopped. Files are left in %s and, in shared memory, in %s: remove them when done", r.files.dir, r.files.arenas)
}

// pauseMs is how long the installation took: nothing serves half of a version before or after it.
func pauseMs(rec *tracing.Record) float64 {
	return float64(rec.Stages.Get(tracing.Installation).DurationMs)
}

func size(nbytes int64) string {
	switch {
	case nbytes >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(nbytes)/1e9)
	case nbytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(nbytes)/1e6)
	case nbytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(nbytes)/1e3)
	}
	return fmt.Sprintf("%d B", nbytes)
}

// percent writes part of whole. It rounds down, so that 100.0 % means all.
func percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%d.%d %%", 100*part/whole, 1000*part/whole%10)
}
