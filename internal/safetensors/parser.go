package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// metadataName is the one key of the header that is no tensor.
const metadataName = "__metadata__"

// parser walks the header's JSON token by token: decoding into a map would keep
// the last of two equal names and say nothing.
type parser struct {
	file  string
	start int64 // bytes before the first tensor byte
	size  int64 // bytes of the file
	json  *json.Decoder
}

// parse fills h from text. Byte ranges are checked against the file and the shape, not yet against each other.
func (p *parser) parse(text []byte, h *Header) error {
	if !utf8.Valid(text) || len(text) == 0 || text[0] != '{' {
		return p.bad("", "text that isn't a JSON object in UTF-8")
	}
	p.json = json.NewDecoder(bytes.NewReader(text))
	p.json.UseNumber() // offsets reach 2^63, beyond what a float64 holds
	seen := make(map[string]bool)
	err := p.object("", func(name string) error {
		if err := p.checkName(name, seen); err != nil {
			return err
		}
		if name == metadataName {
			return p.metadata(h)
		}
		if len(h.Tensors) == MaxTensors {
			return &Error{File: p.file, Tensor: name, Kind: ErrLimit, Found: "more tensors", Expected: fmt.Sprintf("at most %d", MaxTensors)}
		}
		t, err := p.tensor(name)
		h.Tensors = append(h.Tensors, t)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := p.json.Token(); !errors.Is(err, io.EOF) {
		return p.bad("", "text after the JSON object")
	}
	return nil
}

// checkName keeps names short enough for an error message and a table, and refuses a second entry of one: JSON
// decoders differ in which of two they keep, so two readers of the file would see different tensors.
func (p *parser) checkName(name string, seen map[string]bool) error {
	if len(name) > MaxName {
		return &Error{
			File: p.file, Tensor: strings.ToValidUTF8(name[:32], "") + "…", Kind: ErrLimit, Found: fmt.Sprintf("a name of %d bytes", len(name)),
			Expected: fmt.Sprintf("at most %d", MaxName),
		}
	}
	if seen[name] {
		return &Error{File: p.file, Tensor: name, Kind: ErrDuplicate, Found: "a second entry", Expected: "one"}
	}
	seen[name] = true
	return nil
}

// metadata reads the strings that a writer added. The format allows no other kind of value there.
func (p *parser) metadata(h *Header) error {
	h.Metadata = make(map[string]string)
	return p.object(metadataName, func(key string) error {
		if _, twice := h.Metadata[key]; twice {
			return &Error{File: p.file, Tensor: metadataName, Kind: ErrDuplicate, Found: "a second " + strconv.Quote(key), Expected: "one"}
		}
		if len(h.Metadata) == MaxMetadata {
			return &Error{File: p.file, Tensor: metadataName, Kind: ErrLimit, Found: "more entries", Expected: fmt.Sprintf("at most %d", MaxMetadata)}
		}
		value, err := p.text(metadataName)
		h.Metadata[key] = value
		return err
	})
}

// tensor reads one entry: exactly dtype, shape and data_offsets, in any order.
func (p *parser) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name}
	var offsets []int64
	seen := make(map[string]bool, 3) // the keys of this entry
	err := p.object(name, func(key string) (err error) {
		if seen[key] {
			return &Error{File: p.file, Tensor: name, Kind: ErrDuplicate, Found: "a second " + strconv.Quote(key), Expected: "one"}
		}
		seen[key] = true
		switch key {
		case "dtype":
			var text string
			text, err = p.text(name)
			t.DType = DType(text)
		case "shape":
			t.Shape, err = p.numbers(name, MaxDims)
		case "data_offsets":
			offsets, err = p.numbers(name, 2)
		default:
			err = p.bad(name, "the key "+strconv.Quote(key))
		}
		return err
	})
	if err != nil {
		return t, err
	}
	if len(seen) != 3 || len(offsets) != 2 {
		return t, p.bad(name, "an entry without dtype, shape or a pair of data_offsets")
	}
	err = p.place(&t, offsets[0], offsets[1])
	return t, err
}

// place checks the range [lo, hi) of t against file, dtype and shape, and makes it absolute.
func (p *parser) place(t *Tensor, lo, hi int64) error {
	if t.DType.Bits() == 0 {
		return &Error{File: p.file, Tensor: t.Name, Kind: ErrDType, Found: strconv.Quote(string(t.DType)), Expected: "a name of the format, like BF16"}
	}
	nbytes, err := t.DType.nbytes(t.Shape)
	if err != nil {
		return &Error{File: p.file, Tensor: t.Name, Kind: ErrShape, Found: err.Error()}
	}
	room := p.size - p.start // before any sum, so that a lying offset can't overflow
	if lo < 0 || hi < lo || hi > room {
		return &Error{
			File: p.file, Tensor: t.Name, Kind: ErrRange, Found: fmt.Sprintf("data_offsets [%d, %d]", lo, hi),
			Expected: fmt.Sprintf("a range within the file's %d tensor bytes (is the file truncated?)", room),
		}
	}
	if hi-lo != nbytes {
		return &Error{
			File: p.file, Tensor: t.Name, Kind: ErrLength, Found: fmt.Sprintf("data_offsets [%d, %d], %d bytes", lo, hi, hi-lo),
			Expected: fmt.Sprintf("%d bytes for %s %v", nbytes, t.DType, t.Shape),
		}
	}
	t.Offset, t.Nbytes = p.start+lo, nbytes
	return nil
}

// object calls member after each key; member consumes the value.
func (p *parser) object(where string, member func(key string) error) error {
	if err := p.delim(where, '{'); err != nil {
		return err
	}
	for p.json.More() {
		key, err := p.text(where)
		if err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
	return p.delim(where, '}')
}

// numbers reads a list of at most limit non-negative integers.
func (p *parser) numbers(where string, limit int) ([]int64, error) {
	if err := p.delim(where, '['); err != nil {
		return nil, err
	}
	list := []int64{}
	for p.json.More() {
		if len(list) == limit {
			return nil, &Error{File: p.file, Tensor: where, Kind: ErrLimit, Found: "a longer list", Expected: fmt.Sprintf("at most %d numbers", limit)}
		}
		token, err := p.json.Token()
		if err != nil {
			return nil, p.bad(where, err.Error())
		}
		number, _ := token.(json.Number) // another kind of token is the empty number, which ParseInt refuses
		value, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil || value < 0 {
			return nil, p.bad(where, fmt.Sprintf("%v in place of a whole number from 0 to 2^63", token))
		}
		list = append(list, value)
	}
	return list, p.delim(where, ']')
}

// text reads a string token: a key, a dtype, a metadata value.
func (p *parser) text(where string) (string, error) {
	token, err := p.json.Token()
	if err != nil {
		return "", p.bad(where, err.Error())
	}
	text, ok := token.(string)
	if !ok {
		return "", p.bad(where, fmt.Sprintf("%v in place of a string", token))
	}
	return text, nil
}

// delim reads a bracket. The decoder has checked the nesting already; this checks that the
// value is of the kind that the format has at this place.
func (p *parser) delim(where string, want json.Delim) error {
	token, err := p.json.Token()
	if err != nil {
		return p.bad(where, err.Error())
	}
	if token != want {
		return p.bad(where, fmt.Sprintf("%v in place of %v", token, want))
	}
	return nil
}

// bad is text that is no JSON, or JSON that is no header.
func (p *parser) bad(where, found string) error {
	return &Error{
		File: p.file, Tensor: where, Kind: ErrJSON, Found: found,
		Expected: `{"name": {"dtype": …, "shape": […], "data_offsets": [lo, hi]}, …}`,
	}
}
