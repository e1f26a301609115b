package plan

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// nonFinite are the numbers that Python's json module writes and reads, although JSON has none of them.
var nonFinite = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// quoteNonFinite makes strings of the numbers that JSON lacks, which a recorder in Python writes for a mask that a
// loader fills with minus infinity. It returns b itself when there are none.
func quoteNonFinite(b []byte) []byte {
	if !bytes.Contains(b, nonFinite[1]) && !bytes.Contains(b, nonFinite[2]) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for len(b) > 0 {
		n := 1
		switch b[0] {
		case '"':
			n = stringLen(b)
		case '-', 'I', 'N':
			for _, word := range nonFinite {
				if bytes.HasPrefix(b, word) {
					out, n = strconv.AppendQuote(out, string(word)), 0
					b = b[len(word):]
					break
				}
			}
		}
		out, b = append(out, b[:n]...), b[n:]
	}
	return out
}

// stringLen returns the bytes of the JSON string that b begins with, quotes included.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// parseInt reads a whole number; one beyond 64 bits gives the last one there is, and strconv.ErrRange.
func parseInt(raw []byte) (int64, error) {
	return strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
}

// parseFloat reads a number, or one that quoteNonFinite quoted.
func parseFloat(raw []byte) (v float64, err error) {
	var word string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &word) == nil {
		for _, w := range nonFinite {
			if word == string(w) {
				return strconv.ParseFloat(word, 64)
			}
		}
	}
	err = json.Unmarshal(raw, &v)
	return v, err
}
