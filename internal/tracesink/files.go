package tracesink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// A trace folder holds what the processes of a host have recorded: files of lines, each line one OTLP request in JSON,
// as OpenTelemetry's file exporter specification has it. A process appends to a file of its own,
//
//	<service>.<instance>.<number>.jsonl
//
// and begins the next number when the file is full, or when it starts; beyond a few files of one service and instance
// the oldest is removed. So a folder's size follows from the number of processes, however long they run. Nothing is ever
// renamed: who reads a file while another is begun has lost nothing.

// FilesConfig describes the files of one process. Dir, Service and Instance are needed.
type FilesConfig struct {
	Dir      string // made where it is missing
	Service  string
	Instance string
	MaxBytes int64 // of one file; default 16 MiB
	MaxFiles int   // of this service and instance; default 4
}

func (c *FilesConfig) validate() error {
	if c.Dir == "" || c.Service == "" || c.Instance == "" {
		return fmt.Errorf("folder %q, service %q, instance %q: all three are needed", c.Dir, c.Service, c.Instance)
	}
	if c.MaxBytes < 0 || c.MaxFiles < 0 {
		return fmt.Errorf("%d files of %d bytes: expected 0 (the default) or more", c.MaxFiles, c.MaxBytes)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 20
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = 4
	}
	return nil
}

// Files appends spans to the files of one process. It is an otlptrace.Client, so that the SDK's own exporter makes the
// requests.
type Files struct {
	c      FilesConfig
	prefix string

	mu     sync.Mutex
	file   *os.File // nil before the first span, and after Stop
	nbytes int64    // of file
	number int      // of file
}

// NewFiles makes the folder. No file is made before there is a span.
func NewFiles(c FilesConfig) (*Files, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("keep traces in files: %w", err)
	}
	f := &Files{c: c, prefix: fileWord(c.Service) + "." + fileWord(c.Instance) + "."}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("keep traces in files: %w", err)
	}
	return f, nil
}

// Exporter is an SDK exporter into new files of c.
func Exporter(ctx context.Context, c FilesConfig) (*otlptrace.Exporter, error) {
	f, err := NewFiles(c)
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, f)
}

// fileWord makes a part of a file's name of a name that somebody chose.
func fileWord(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// Start implements otlptrace.Client.
func (f *Files) Start(context.Context) error { return nil }

// Stop closes the file. Spans that come later begin another one.
func (f *Files) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.close()
}

// UploadTraces appends one line. A line is written by one call, so that what a killed process leaves is whole lines, and
// at most one that is not.
func (f *Files) UploadTraces(_ context.Context, batches []*tracepb.ResourceSpans) error {
	line, err := encodeLine(batches)
	if err != nil {
		return fmt.Errorf("encode spans for a file: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeRoom(int64(len(line))); err != nil {
		return fmt.Errorf("begin a trace file in %s: %w", f.c.Dir, err)
	}
	n, err := f.file.Write(line)
	f.nbytes += int64(n)
	if err != nil {
		return errors.Join(fmt.Errorf("append spans: %w", err), f.close()) // a torn line must stay the last of its file
	}
	return nil
}

func (f *Files) close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// makeRoom begins a file where there is none, or where the next line would make it too long.
func (f *Files) makeRoom(nbytes int64) error {
	if f.file != nil && f.nbytes+nbytes <= f.c.MaxBytes {
		return nil
	}
	if err := f.close(); err != nil {
		return err
	}
	there, err := f.mine()
	if err != nil {
		return err
	}
	if n := len(there); n > 0 {
		f.number = max(f.number, there[n-1])
	}
	for {
		f.number++
		f.file, err = os.OpenFile(f.path(f.number), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
		if !errors.Is(err, fs.ErrExist) { // another process of the same name was faster
			break
		}
	}
	if err != nil {
		return err
	}
	f.nbytes = 0
	for len(there) >= f.c.MaxFiles {
		if err := os.Remove(f.path(there[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		there = there[1:]
	}
	return nil
}

func (f *Files) path(number int) string {
	return filepath.Join(f.c.Dir, f.prefix+strconv.Itoa(number)+fileEnd)
}

// fileEnd is how the names of trace files end.
const fileEnd = ".jsonl"

// mine lists the numbers of this service's and instance's files, the oldest first.
func (f *Files) mine() ([]int, error) {
	entries, err := os.ReadDir(f.c.Dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), f.prefix)
		if n, err := strconv.Atoi(strings.TrimSuffix(rest, fileEnd)); ours && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// The JSON form of OTLP is protobuf's, except that the ids of traces and spans are hexadecimal. Within strings quotes are
// escaped, so these patterns find keys only.
var (
	base64IDs = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":\s*"([A-Za-z0-9+/]+=*)"`)
	hexIDs    = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":\s*"([0-9a-fA-F]+)"`)
)

func encodeLine(batches []*tracepb.ResourceSpans) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&coltrace.ExportTraceServiceRequest{ResourceSpans: batches})
	if err != nil {
		return nil, err
	}
	b = replaceIDs(b, base64IDs, func(id []byte) (string, error) {
		raw, err := base64.StdEncoding.DecodeString(string(id))
		return hex.EncodeToString(raw), err
	})
	return append(bytes.ReplaceAll(b, []byte("\n"), nil), '\n'), nil
}

func decodeLine(line []byte) ([]*tracepb.ResourceSpans, error) {
	line = replaceIDs(line, hexIDs, func(id []byte) (string, error) {
		raw, err := hex.DecodeString(string(id))
		return base64.StdEncoding.EncodeToString(raw), err
	})
	var r coltrace.ExportTraceServiceRequest
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(line, &r); err != nil {
		return nil, err
	}
	return r.GetResourceSpans(), nil
}

// replaceIDs rewrites each id; one that is not what it should be stays, for the decoder to refuse.
func replaceIDs(b []byte, pattern *regexp.Regexp, rewrite func([]byte) (string, error)) []byte {
	return pattern.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := pattern.FindSubmatch(found)
		id, err := rewrite(parts[2])
		if err != nil {
			return found
		}
		return []byte(`"` + string(parts[1]) + `":"` + id + `"`)
	})
}
