package rdma

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Cost is what a transport was measured to cost here: a read of n runs and b bytes takes about n·Alpha + b·Beta.
type Cost struct {
	Transport string  `json:"transport"`
	Alpha     float64 `json:"alpha_s"` // seconds for each contiguous run
	Beta      float64 `json:"beta_s"`  // seconds for each byte
}

// CopyCost is the name under which plain copies of memory are kept among the costs of transports: what staging costs.
const CopyCost = "copy"

// costFile is the form on disk.
type costFile struct {
	Format string `json:"format"`
	Host   string `json:"host"` // HostID when it was measured: costs of another boot are still a hint, of another host none
	Costs  []Cost `json:"costs"`
}

const costFormat = "drydock.costs.v1"

// SaveCosts writes measured costs, whole or not at all, and makes the file's folder.
func SaveCosts(path string, costs []Cost) error {
	host, err := HostID()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(costFile{Format: costFormat, Host: host, Costs: costs}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode costs: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save costs: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".costs-*")
	if err != nil {
		return fmt.Errorf("save costs: %w", err)
	}
	if _, err = tmp.Write(append(b, '\n')); err == nil {
		err = tmp.Chmod(0o644) // receivers may run as another user
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("save costs: %w", err)
	}
	return nil
}

// LoadCosts reads what SaveCosts wrote, and refuses numbers that can't be costs.
func LoadCosts(path string) ([]Cost, error) {
	b, err := readCosts(path)
	if err != nil {
		return nil, fmt.Errorf("load costs: %w", err)
	}
	var f costFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("load costs from %s: %w", path, err)
	}
	if f.Format != costFormat {
		return nil, fmt.Errorf("load costs from %s: format %q, want %q", path, f.Format, costFormat)
	}
	for _, c := range f.Costs {
		if c.Transport == "" || c.Alpha < 0 || c.Alpha > 1 || c.Beta < 0 || c.Beta > 1 {
			return nil, fmt.Errorf("load costs from %s: %+v is no cost", path, c)
		}
	}
	return f.Costs, nil
}

// maxCosts bounds the file, in bytes: whoever names another one by mistake is told so, and doesn't run out of memory.
const maxCosts = 64 << 10

func readCosts(path string) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	if b, err = io.ReadAll(io.LimitReader(f, maxCosts+1)); err != nil {
		return nil, err
	}
	if len(b) > maxCosts {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxCosts)
	}
	return b, nil
}
