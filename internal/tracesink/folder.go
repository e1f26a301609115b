package tracesink

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Limits of what is read from a trace folder.
const (
	maxLine   = 64 << 20
	maxFolder = 5_000_000 // spans
)

// Folder is what the trace files of one or more folders hold.
type Folder struct {
	Torn int // lines that could not be read: of processes that were killed, or are writing just now

	store *store
}

// ReadFolders reads all trace files of some folders. Lines that can't be read are counted, not refused.
func ReadFolders(dirs ...string) (*Folder, error) {
	f := &Folder{store: newStore(maxFolder, maxFolder)}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("read traces: %w", err)
		}
		files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+fileEnd))
		if err != nil {
			return nil, fmt.Errorf("read traces of %s: %w", dir, err)
		}
		for _, file := range files {
			if err := f.read(file); err != nil {
				return nil, fmt.Errorf("read traces: %w", err)
			}
		}
	}
	return f, nil
}

// escapeGlob keeps a folder's name from being taken for a pattern.
func escapeGlob(dir string) string {
	var b bytes.Buffer
	for _, c := range []byte(dir) {
		if bytes.IndexByte([]byte(`*?[\`), c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

func (f *Folder) read(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its process has begun another one since
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		f.line(lines.Bytes())
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong): // no process of ours wrote it
		f.Torn++
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (f *Folder) line(line []byte) {
	batches, err := decodeLine(line)
	if err != nil {
		f.Torn++
		return
	}
	f.store.add(batches)
}

// Trace returns the spans of one trace, by start time.
func (f *Folder) Trace(id TraceID) Trace { return f.store.trace(id) }

// VersionTrace is a trace that says whose version it is of.
type VersionTrace struct {
	ID           TraceID
	Model        string
	Run, Version int64
	Spans        int
}

// The attributes by which a span names its version. They are those of package tracing.
const (
	modelKey   = "drydock.model"
	runKey     = "drydock.run"
	versionKey = "drydock.version"
)

// Versions lists the traces of versions, by model, run and version. A trace says it by any of its spans.
func (f *Folder) Versions() []VersionTrace {
	var all []VersionTrace
	for _, s := range f.store.list() {
		t := f.store.trace(s.ID)
		for i := range t.Spans {
			model, isText := t.Spans[i].Attr(modelKey).(string)
			run, hasRun := t.Spans[i].Attr(runKey).(int64)
			version, hasVersion := t.Spans[i].Attr(versionKey).(int64)
			if isText && hasRun && hasVersion {
				all = append(all, VersionTrace{ID: s.ID, Model: model, Run: run, Version: version, Spans: len(t.Spans)})
				break
			}
		}
	}
	slices.SortFunc(all, VersionTrace.compare)
	return all
}

func (v VersionTrace) compare(w VersionTrace) int {
	return cmp.Or(cmp.Compare(v.Model, w.Model), cmp.Compare(v.Run, w.Run), cmp.Compare(v.Version, w.Version))
}
