package arena

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Config says which arenas a receiver keeps.
type Config struct {
	Root      string       // the receiver's own folder; made where it is missing
	Ranks     []Rank       // destination ranks, at least one
	Slots     int          // sets of files; default and least 2. With more, a version is staged while others are staged or applied
	HugePages bool         // put files on huge pages, where the host gives any
	Logger    *slog.Logger // nil: none

	BlockBytes int64 // of which digests are noted; default 256 KiB, small enough to be in the cache when its last byte comes

	lazy bool // leave pages to be faulted in at first touch; for benchmarks of more than memory holds
}

// maxSlots bounds what is reserved by mistake: each slot is as large as the model.
const maxSlots = 16

// Rank is the parameter layout of one destination rank.
type Rank struct {
	Rank    int
	Tensors []safetensors.Spec
	Alias   map[string]string // other name: name among Tensors, recorded in the header
	Recipe  string            // how the tensors are made, "" if that is not told: files made by another recipe are not adopted
}

// Version labels what a slot holds.
type Version struct {
	Model   string
	Run     uint64
	Version uint64
}

// IsZero says whether v names nothing: runs count from 1.
func (v Version) IsZero() bool { return v.Run == 0 }

// before says whether v is an older version of the same model. What names nothing is older than nothing.
func (v Version) before(w Version) bool {
	return !v.IsZero() && v.Model == w.Model && (v.Run < w.Run || v.Run == w.Run && v.Version < w.Version)
}

// Metadata keys of the header that this package writes.
const (
	MetaModel   = "drydock.model"
	MetaRun     = "drydock.run"
	MetaVersion = "drydock.version"
	MetaRank    = "drydock.rank"
	MetaLayout  = "drydock.layout" // digest of the parameter layout: a file of another rank or shape is told apart
	MetaAlias   = "drydock.alias"  // JSON object: other name to tensor name
	MetaRecipe  = "drydock.recipe" // as Rank.Recipe says: the same version, otherwise made, has other bytes
)

// align is where the first tensor byte lies: a page, so that tensors can be registered and mapped by page.
const align = safetensors.PageAlign

// file is the layout of one rank's file.
type file struct {
	rank     Rank
	digest   string
	alias    string
	offsets  []int64 // of each tensor, bytes from the file's start
	sizes    []int64 // of each tensor, bytes
	header   int64   // bytes reserved for the header, whatever the version's number
	nbytes   int64
	perBlock int64 // bytes
}

func (c *Config) validate() error {
	if c.Root == "" || len(c.Ranks) == 0 {
		return fmt.Errorf("root %q, %d ranks: expected a folder and at least one rank", c.Root, len(c.Ranks))
	}
	seen := map[int]bool{}
	for _, r := range c.Ranks {
		if r.Rank < 0 || seen[r.Rank] {
			return fmt.Errorf("rank %d is negative or named twice", r.Rank)
		}
		seen[r.Rank] = true
	}
	if c.Slots == 0 {
		c.Slots = slotCount
	}
	if c.Slots < slotCount || c.Slots > maxSlots {
		return fmt.Errorf("%d slots: expected %d to %d", c.Slots, slotCount, maxSlots)
	}
	if c.BlockBytes <= 0 {
		c.BlockBytes = 256 << 10
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// newFile lays one rank's file out, with room for the header of the longest version label.
func newFile(r Rank, perBlock int64) (*file, error) {
	alias, err := json.Marshal(r.Alias)
	if err != nil {
		return nil, fmt.Errorf("encode aliases: %w", err)
	}
	f := &file{rank: r, alias: string(alias), digest: digest(r), perBlock: perBlock}
	widest := Version{Model: strings.Repeat("m", maxModel), Run: 1<<64 - 1, Version: 1<<64 - 1}
	l, err := safetensors.NewLayout(r.Tensors, f.metadata(widest), align)
	if err != nil {
		return nil, err
	}
	for _, t := range l.Tensors {
		f.offsets, f.sizes = append(f.offsets, t.Offset), append(f.sizes, t.Nbytes)
	}
	f.header, f.nbytes = int64(len(l.Header)), l.Nbytes
	return f, nil
}

// maxModel bounds a model's name in a header, in bytes.
const maxModel = 256

func (f *file) metadata(v Version) map[string]string {
	m := map[string]string{
		"format":    "pt", // what loaders of torch checkpoints expect to find
		MetaModel:   v.Model,
		MetaRun:     strconv.FormatUint(v.Run, 10),
		MetaVersion: strconv.FormatUint(v.Version, 10),
		MetaRank:    strconv.Itoa(f.rank.Rank),
		MetaLayout:  f.digest,
	}
	if len(f.rank.Alias) > 0 {
		m[MetaAlias] = f.alias
	}
	if f.rank.Recipe != "" {
		m[MetaRecipe] = f.rank.Recipe
	}
	return m
}

// headerFor is the header for v, as long as every other header of the file.
func (f *file) headerFor(v Version) ([]byte, error) {
	if len(v.Model) > maxModel {
		return nil, fmt.Errorf("write arena header: model name of %d bytes, at most %d fit", len(v.Model), maxModel)
	}
	l, err := safetensors.NewLayout(f.rank.Tensors, f.metadata(v), align)
	if err != nil {
		return nil, err
	}
	h := l.Header
	if int64(len(h)) > f.header {
		return nil, fmt.Errorf("write arena header: %d bytes with the label of model %q, %d are reserved", len(h), v.Model, f.header)
	}
	for int64(len(h)) < f.header {
		h = append(h, ' ')
	}
	binary.LittleEndian.PutUint64(h, uint64(len(h)-lengthBytes))
	return h, nil
}

// lengthBytes is the length prefix of a safetensors header.
const lengthBytes = 8

// digest names a parameter layout: names, dtypes and shapes in order, and the aliases.
func digest(r Rank) string {
	h := sha256.New()
	for _, t := range r.Tensors {
		fmt.Fprintf(h, "%q %s %v\n", t.Name, t.DType, t.Shape)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Alias)) {
		fmt.Fprintf(h, "%q = %q\n", name, r.Alias[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
