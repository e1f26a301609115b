package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errCut = errors.New("msgpack is cut short")

// scan walks one msgpack value without building it: every length lies inside b,
// nesting is at most MaxDepth, keys of maps are strings, each once, and nothing
// follows the value. A decoder that runs afterwards can neither overflow its stack nor
// allocate for elements that are not there.
func scan(b []byte) error {
	var stack [MaxDepth]frame
	depth, pos := 0, 0
	for {
		start := pos
		item, err := next(b, &pos)
		if err != nil {
			return err
		}
		if depth > 0 {
			if err := stack[depth-1].take(item, b[start:pos]); err != nil {
				return err
			}
		}
		if item.children > 0 {
			if depth == MaxDepth {
				return fmt.Errorf("msgpack nests deeper than %d", MaxDepth)
			}
			stack[depth] = frame{left: item.children, isMap: item.isMap}
			depth++
		}
		for depth > 0 && stack[depth-1].left == 0 {
			depth--
		}
		if depth == 0 {
			break
		}
	}
	if pos != len(b) {
		return fmt.Errorf("%d bytes follow the msgpack value", len(b)-pos)
	}
	return nil
}

// frame is one open array or map.
type frame struct {
	left  uint64 // values to come, keys included
	isMap bool
	keys  map[string]struct{}
}

// take counts one element and checks it when it stands in a key's place.
func (f *frame) take(it item, raw []byte) error {
	key := f.isMap && f.left%2 == 0
	f.left--
	if !key {
		return nil
	}
	if !it.isString {
		return errors.New("msgpack map has a key that is not a string")
	}
	if _, twice := f.keys[string(raw)]; twice {
		return fmt.Errorf("msgpack map has the key %.64q twice", raw)
	}
	if f.keys == nil {
		f.keys = make(map[string]struct{}, 8)
	}
	f.keys[string(raw)] = struct{}{}
	return nil
}

// item is the head of one msgpack value.
type item struct {
	children uint64
	isMap    bool
	isString bool
}

// next reads one head at pos and steps over its own bytes, not over its children.
func next(b []byte, pos *int) (item, error) {
	if *pos >= len(b) {
		return item{}, errCut
	}
	c := b[*pos]
	*pos++
	switch {
	case c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small int, nil, bool
		return item{}, nil
	case c < 0x90:
		return item{children: 2 * uint64(c&0x0f), isMap: true}, nil
	case c < 0xa0:
		return item{children: uint64(c & 0x0f)}, nil
	case c < 0xc0:
		return item{isString: true}, skip(b, pos, uint64(c&0x1f))
	}
	return nextLong(b, pos, c)
}

// heads describes the types 0xc4 to 0xdf: width of the length or of the value, and
// what the length counts.
var heads = [...]struct {
	width int
	kind  byte // 'b' bytes, 's' string, 'a' array, 'm' map, 'v' value, 'x' refused
}{
	{1, 'b'},
	{2, 'b'},
	{4, 'b'}, // bin
	{0, 'x'},
	{0, 'x'},
	{0, 'x'}, // ext
	{4, 'v'},
	{8, 'v'}, // float
	{1, 'v'},
	{2, 'v'},
	{4, 'v'},
	{8, 'v'}, // uint
	{1, 'v'},
	{2, 'v'},
	{4, 'v'},
	{8, 'v'}, // int
	{0, 'x'},
	{0, 'x'},
	{0, 'x'},
	{0, 'x'},
	{0, 'x'}, // fixext
	{1, 's'},
	{2, 's'},
	{4, 's'}, // str
	{2, 'a'},
	{4, 'a'},
	{2, 'm'},
	{4, 'm'},
}

func nextLong(b []byte, pos *int, c byte) (item, error) {
	if c == 0xc1 || heads[c-0xc4].kind == 'x' {
		return item{}, fmt.Errorf("msgpack type 0x%02x is not used here", c)
	}
	h := heads[c-0xc4]
	if h.kind == 'v' {
		return item{}, skip(b, pos, uint64(h.width))
	}
	n, err := length(b, pos, h.width)
	if err != nil {
		return item{}, err
	}
	switch h.kind {
	case 'a', 'm':
		it := item{children: n, isMap: h.kind == 'm'}
		if it.isMap {
			it.children *= 2
		}
		if it.children > uint64(len(b)-*pos) {
			return item{}, errCut
		}
		return it, nil
	default:
		return item{isString: h.kind == 's'}, skip(b, pos, n)
	}
}

func length(b []byte, pos *int, width int) (uint64, error) {
	at := *pos
	if err := skip(b, pos, uint64(width)); err != nil {
		return 0, err
	}
	switch width {
	case 1:
		return uint64(b[at]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b[at:])), nil
	default:
		return uint64(binary.BigEndian.Uint32(b[at:])), nil
	}
}

func skip(b []byte, pos *int, n uint64) error {
	if n > uint64(len(b)-*pos) {
		return errCut
	}
	*pos += int(n)
	return nil
}
