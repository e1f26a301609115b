package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// castSchema names the files of what torch's casts make of all or of chosen patterns.
const castSchema = "refit.golden.cast.v1"

// castFile is such a file, as far as it is judged.
type castFile struct {
	CanonicalNaN map[string]uint64     `json:"canonical_nan"`
	Sources      map[string]castSource `json:"sources"`
	Pairs        []castPair            `json:"pairs"`
	Refused      [][2]string           `json:"refused"`
}

// castSource is the list of patterns of one type that is cast to every other.
type castSource struct {
	Patterns string `json:"patterns"` // all8, all16: pattern i at place i; explicit: Data
	Count    int64  `json:"count"`    // elements
	Data     string `json:"data"`     // base64 of little-endian elements
}

// castPair is what torch made of one list in one other type.
type castPair struct {
	Src           string      `json:"src"`
	Dst           string      `json:"dst"`
	SHA256        string      `json:"sha256"`               // of all results, each NaN as the canonical one; float8_e4m3fn saturates
	NonSaturating string      `json:"sha256_nonsaturating"` // the same where it does not, as torch up to 2.12
	Data          string      `json:"data"`                 // base64 of the results; "": only samples are there
	Samples       [][2]uint64 `json:"samples"`              // pattern and result
	Lossless      bool        `json:"lossless"`             // every value of the list comes back
}

// bytes returns the source's patterns, little-endian.
func (s *castSource) bytes(dt plan.DType) ([]byte, error) {
	switch s.Patterns {
	case "explicit":
		b, err := base64.StdEncoding.DecodeString(s.Data)
		if err == nil && int64(len(b)) != s.Count*dt.Size() {
			err = fmt.Errorf("%d bytes of %d %s patterns", len(b), s.Count, dt)
		}
		return b, err
	case "all8", "all16":
		if s.Count < 0 || s.Count > 1<<16 {
			return nil, fmt.Errorf("%d patterns of at most 16 bits", s.Count)
		}
		n := int(dt.Size())
		out := make([]byte, 0, s.Count*int64(n))
		for i := range s.Count {
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], uint64(i))
			out = append(out, w[:n]...)
		}
		return out, nil
	}
	return nil, fmt.Errorf("patterns %q", s.Patterns)
}

// judgeCasts casts by way of a plan, staging and scatter, as a refit does: not by the cast alone.
func judgeCasts(name string, raw []byte, out io.Writer) (bool, error) {
	var f castFile
	if err := decode(raw, castSchema, &f); err != nil {
		return false, err
	}
	var t tally
	for i := range f.Pairs {
		if err := f.judgePair(&f.Pairs[i], &t); err != nil {
			return false, fmt.Errorf("%s to %s: %w", f.Pairs[i].Src, f.Pairs[i].Dst, err)
		}
	}
	for _, r := range f.Refused {
		if err := judgeNeverCast(r[0], r[1], &t); err != nil {
			return false, fmt.Errorf("%s to %s: %w", r[0], r[1], err)
		}
	}
	return t.print(out, name, "pairs"), nil
}

// planCast plans n elements from one type to another through one rank.
func planCast(from, to plan.DType, n int64, o plan.Options) (*plantest.World, *plan.Plan, error) {
	w := &plantest.World{}
	w.AddShard(0, "x", from, []int64{n}, []int64{0, n}, nil, n*from.Size())
	t, err := plan.Merge(w.Layouts)
	if err != nil {
		return nil, nil, err
	}
	d := plan.Dest{
		Params: []plan.Param{{Name: "p", DType: to, Shape: []int64{n}}},
		Copies: []plan.Copy{{Source: "x", Shape: []int64{n}, Stride: []int64{1}}},
	}
	p, err := plan.New(t, []plan.Dest{d}, o)
	return w, p, err
}

// judgePair casts all patterns, under each rule that the pair has, and checks who may cast without leave.
func (f *castFile) judgePair(k *castPair, t *tally) error {
	from, err := plan.ParseDType(k.Src)
	if err != nil {
		return err
	}
	to, err := plan.ParseDType(k.Dst)
	if err != nil {
		return err
	}
	s := f.Sources[k.Src]
	src, err := s.bytes(from)
	if err != nil {
		return err
	}
	lucky := k.Lossless && s.Patterns == "explicit" // every value that the list happens to have may come back
	if _, _, err := planCast(from, to, s.Count, plan.Options{}); (err == nil) != k.Lossless && !lucky {
		t.wrong++
		t.note("%s to %s: lossless %t, and without leave: %v", k.Src, k.Dst, k.Lossless, err)
		return nil
	}
	rules := map[plan.Overflow]string{plan.OverflowSaturates: k.SHA256}
	if k.NonSaturating != "" {
		rules[plan.OverflowNaN] = k.NonSaturating
	}
	for rule, want := range rules {
		got, err := f.cast(src, from, to, s.Count, rule)
		if err != nil {
			return err
		}
		f.canonical(got, k.Dst, to)
		sum := sha256.Sum256(got)
		if hex.EncodeToString(sum[:]) != want {
			t.wrong++
			t.note("%s to %s: the results' digest differs (overflow rule %d); first: %s", k.Src, k.Dst, rule, k.firstDifference(src, got, from, to))
			return nil
		}
	}
	t.right++
	return nil
}

// cast performs a plan that casts n elements of src.
func (f *castFile) cast(src []byte, from, to plan.DType, n int64, rule plan.Overflow) ([]byte, error) {
	w, p, err := planCast(from, to, n, plan.Options{AllowNarrowing: []string{"*"}, Overflow: rule})
	if err != nil {
		return nil, err
	}
	w.Load(p.Table(), func(int) []byte { return src })
	arena := make([]byte, n*to.Size())
	return arena, w.Perform(p, [][]byte{arena})
}

// canonical replaces every NaN by the pattern that stands for them in the file.
func (f *castFile) canonical(b []byte, name string, dt plan.DType) {
	n := int(dt.Size())
	for at := 0; at < len(b); at += n {
		var w [8]byte
		copy(w[:], b[at:at+n])
		if isNaN(binary.LittleEndian.Uint64(w[:]), dt) {
			binary.LittleEndian.PutUint64(w[:], f.CanonicalNaN[name])
			copy(b[at:], w[:n])
		}
	}
}

// isNaN knows the NaNs of each type by their definition.
func isNaN(x uint64, dt plan.DType) bool {
	switch dt {
	case plan.F64:
		v := math.Float64frombits(x)
		return v != v
	case plan.F32:
		v := math.Float32frombits(uint32(x))
		return v != v
	case plan.F16:
		return x&0x7FFF > 0x7C00
	case plan.BF16:
		return x&0x7FFF > 0x7F80
	case plan.F8E4M3:
		return x&0x7F == 0x7F
	case plan.F8E5M2:
		return x&0x7F > 0x7C
	default:
		return x == 0x80
	}
}

// firstDifference compares with what the file stores in clear.
func (k *castPair) firstDifference(src, got []byte, from, to plan.DType) string {
	n, m := int(from.Size()), int(to.Size())
	word := func(b []byte) uint64 {
		var w [8]byte
		copy(w[:], b)
		return binary.LittleEndian.Uint64(w[:])
	}
	if want, err := base64.StdEncoding.DecodeString(k.Data); err == nil && len(want) == len(got) {
		for i := 0; i*m < len(got); i++ {
			if a, b := word(got[i*m:(i+1)*m]), word(want[i*m:(i+1)*m]); a != b {
				return fmt.Sprintf("%#x gives %#x, torch %#x", word(src[i*n:(i+1)*n]), a, b)
			}
		}
	}
	for _, s := range k.Samples {
		if a := word(got[int(s[0])*m : (int(s[0])+1)*m]); a != s[1] {
			return fmt.Sprintf("%#x gives %#x, torch %#x", s[0], a, s[1])
		}
	}
	return "not in the clear part of the file"
}

// judgeNeverCast checks that no allow-list lets an integer be cast.
func judgeNeverCast(src, dst string, t *tally) error {
	from, err := plan.ParseDType(src)
	if err != nil {
		return err
	}
	to, err := plan.ParseDType(dst)
	if err != nil {
		return err
	}
	if _, _, err := planCast(from, to, 8, plan.Options{AllowNarrowing: []string{"*"}}); err == nil {
		t.wrong++
		t.note("%s to %s was not refused", src, dst)
		return nil
	}
	t.expected++
	return nil
}
