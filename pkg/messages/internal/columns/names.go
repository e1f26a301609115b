package columns

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Names is a front-coded list of strings as it travels.
type Names struct {
	Prefix []byte // plain column: bytes shared with the previous name
	Suffix []byte // plain column: bytes of its own
	Text   []byte // own bytes, concatenated
}

// NameLimits bounds what a name column may expand to.
type NameLimits struct {
	Each  int // bytes of one name
	Total int // bytes of all names
}

// EncodeNames front-codes names in their order.
func EncodeNames(names []string) Names {
	var n Names
	prev := ""
	for _, name := range names {
		k := shared(prev, name)
		n.Prefix = binary.AppendUvarint(n.Prefix, uint64(k))
		n.Suffix = binary.AppendUvarint(n.Suffix, uint64(len(name)-k))
		n.Text = append(n.Text, name[k:]...)
		prev = name
	}
	return n
}

func shared(a, b string) int {
	k := 0
	for k < min(len(a), len(b)) && a[k] == b[k] {
		k++
	}
	return k
}

// DecodeNames expands count names. They share one allocation, so that keeping one name
// keeps all. Empty names and names that are not UTF-8 are refused.
func DecodeNames(n Names, count int, limits NameLimits) ([]string, error) {
	prefix, err := Plain[uint32](n.Prefix, count, int64(limits.Each))
	if err != nil {
		return nil, fmt.Errorf("prefix: %w", err)
	}
	suffix, err := Plain[uint32](n.Suffix, count, int64(limits.Each))
	if err != nil {
		return nil, fmt.Errorf("suffix: %w", err)
	}
	total, err := checkLengths(prefix, suffix, len(n.Text), limits)
	if err != nil {
		return nil, err
	}
	return expand(prefix, suffix, n.Text, total)
}

// checkLengths proves that every length is covered before a byte is copied, and
// returns the bytes of all names.
func checkLengths(prefix, suffix []uint32, ntext int, limits NameLimits) (int, error) {
	total, own, prev := 0, 0, 0
	for i := range prefix {
		k, s := int(prefix[i]), int(suffix[i])
		switch {
		case k > prev:
			return 0, fmt.Errorf("%w: name %d shares %d bytes with one of %d", ErrMalformed, i, k, prev)
		case k+s == 0:
			return 0, fmt.Errorf("%w: name %d is empty", ErrMalformed, i)
		case k+s > limits.Each:
			return 0, fmt.Errorf("%w: name %d has %d bytes, limit %d", ErrMalformed, i, k+s, limits.Each)
		}
		prev = k + s
		own += s
		total += prev
		if total > limits.Total {
			return 0, fmt.Errorf("%w: names take more than %d bytes", ErrMalformed, limits.Total)
		}
	}
	if own != ntext {
		return 0, fmt.Errorf("%w: suffixes take %d bytes, text has %d", ErrMalformed, own, ntext)
	}
	return total, nil
}

// expand writes all names into one string. A builder lets what was written be read
// while more is appended, and gives the string without another copy.
func expand(prefix, suffix []uint32, text []byte, total int) ([]string, error) {
	var b strings.Builder
	b.Grow(total)
	ascii := isASCII(text) // names hold nothing but pieces of it
	for i := range prefix {
		if i > 0 {
			// The previous name begins its own length before the end.
			before := b.Len() - int(prefix[i-1]+suffix[i-1])
			b.WriteString(b.String()[before : before+int(prefix[i])])
		}
		b.Write(text[:suffix[i]])
		text = text[suffix[i]:]
	}
	all := b.String()
	names := make([]string, len(prefix))
	for i := range names {
		n := int(prefix[i] + suffix[i])
		names[i], all = all[:n], all[n:]
		// Names are checked one by one: two halves of a rune are valid only together.
		if !ascii && !utf8.ValidString(names[i]) {
			return nil, fmt.Errorf("%w: name %d is not UTF-8", ErrMalformed, i)
		}
	}
	return names, nil
}

func isASCII(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint64(b)&highBits != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
