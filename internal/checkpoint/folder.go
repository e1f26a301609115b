package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Names and limits of a folder's files.
const (
	indexName  = "model.safetensors.index.json"
	singleName = "model.safetensors"
	configName = "config.json"

	maxIndex  = 256 << 20 // bytes of model.safetensors.index.json
	maxConfig = 4 << 20   // bytes of config.json
	maxFiles  = 10_000
)

// folder is which files make a checkpoint.
type folder struct {
	dir   string
	files []string          // base names, sorted
	index map[string]string // tensor to base name; nil when there is no index
}

// locate finds the safetensors files of a path.
func locate(path string) (folder, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return folder{}, fmt.Errorf("%w, expected a folder of safetensors files or one such file", os.ErrNotExist)
	}
	if err != nil {
		return folder{}, fmt.Errorf("look at the folder: %w", err)
	}
	if !info.IsDir() {
		return folder{dir: filepath.Dir(path), files: []string{filepath.Base(path)}}, nil
	}
	index, err := readIndex(path)
	if err == nil {
		return indexed(path, index)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return folder{}, err
	}
	return unindexed(path)
}

// indexed is a folder whose index names the files.
func indexed(dir string, index map[string]string) (folder, error) {
	f := folder{dir: dir, index: index}
	for tensor, name := range index {
		// The index is somebody else's text: it may not lead out of the folder.
		if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return folder{}, fmt.Errorf("%s places tensor %s in %q, expected a file name in the same folder", indexName, tensor, name)
		}
		f.files = append(f.files, name)
	}
	slices.Sort(f.files)
	f.files = slices.Compact(f.files) // one entry a tensor became one a file
	if len(f.files) > maxFiles {
		return folder{}, fmt.Errorf("%s names %d files, expected at most %d", indexName, len(f.files), maxFiles)
	}
	return f, nil
}

// unindexed is a folder with one file that can only be the checkpoint.
func unindexed(dir string) (folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return folder{}, fmt.Errorf("list the folder: %w", err)
	}
	f := folder{dir: dir}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == singleName:
			return folder{dir: dir, files: []string{name}}, nil
		case strings.HasSuffix(name, ".safetensors") && !strings.HasPrefix(name, "."):
			f.files = append(f.files, name)
		}
	}
	switch len(f.files) {
	case 1:
		return f, nil
	case 0:
		return f, fmt.Errorf("found no safetensors file, expected %s, %s with the files it lists, or one other *.safetensors", singleName, indexName)
	default:
		return f, fmt.Errorf("found %d safetensors files (%s, %s, …) and no %s that says which belong to the model",
			len(f.files), f.files[0], f.files[1], indexName)
	}
}

// readIndex returns the weight map.
func readIndex(dir string) (map[string]string, error) {
	text, err := readLimited(filepath.Join(dir, indexName), maxIndex)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("parse %s: %w", indexName, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("parse %s: found no weight_map, expected an object of tensor names and file names", indexName)
	}
	return index.WeightMap, nil
}

// readLimited reads a small file whole.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s: more than %d bytes", path, limit)
	}
	return text, nil
}

// add maps one file and appends its tensors.
func (c *Checkpoint) add(found folder, name string) error {
	f, err := safetensors.Open(filepath.Join(found.dir, name))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) && found.index != nil {
			return fmt.Errorf("%s names the file %s, which is missing: %w", indexName, name, os.ErrNotExist)
		}
		return err
	}
	c.files = append(c.files, f)
	for _, t := range f.Tensors {
		if found.index != nil && found.index[t.Name] == "" {
			return fmt.Errorf("tensor %s of %s is not in %s", t.Name, name, indexName)
		}
		c.tensors = append(c.tensors, carried(f, t, name))
	}
	return nil
}

// carried is a tensor as the rest of the system sees it: without sub-byte elements.
func carried(f *safetensors.File, t safetensors.Tensor, file string) Tensor {
	out := Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, File: file, Bytes: f.Bytes(t)}
	if t.DType.Size() > 0 {
		return out
	}
	out.DType, out.Packed = safetensors.U8, t.DType
	out.Shape = packedShape(t)
	return out
}

// packedShape keeps the leading dimensions when each row is a whole number of bytes.
func packedShape(t safetensors.Tensor) []int64 {
	if n := len(t.Shape); n > 0 && t.Nbytes > 0 && t.Shape[n-1]*t.DType.Bits()%8 == 0 {
		shape := slices.Clone(t.Shape)
		shape[n-1] = shape[n-1] * t.DType.Bits() / 8
		return shape
	}
	return []int64{t.Nbytes}
}

// settle sorts the tensors and compares their names with the index and with each other.
func (c *Checkpoint) settle(found folder) error {
	slices.SortFunc(c.tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	for i := 1; i < len(c.tensors); i++ {
		if a, b := &c.tensors[i-1], &c.tensors[i]; a.Name == b.Name {
			return fmt.Errorf("tensor %s is in two files, %s and %s, expected one", a.Name, a.File, b.File)
		}
	}
	missing := []string{} // of the index, not found where it says
	for name, file := range found.index {
		if t, ok := c.Find(name); !ok || t.File != file {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		name := slices.Min(missing)
		return fmt.Errorf("%s places tensor %s in %s, which doesn't hold it (%d such tensors)", indexName, name, found.index[name], len(missing))
	}
	return nil
}
