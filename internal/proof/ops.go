package proof

import (
	"errors"
	"fmt"
	"slices"
)

// maxChunks bounds a capture's chunk count.
const maxChunks = 1 << 20

// several are the operations that give a list of tensors; one are those that give one.
var (
	several = map[string]func(view, []any) ([]view, error){"chunk": chunk, "split": split, "unbind": unbind}
	one     = map[string]func(view, []any) (view, error){
		"narrow": narrow, "select": selectIndex, "__getitem__": getItem, "index_select": indexSelect,
		"view": reshape, "reshape": reshape, "flatten": flatten, "squeeze": squeeze, "unsqueeze": unsqueeze,
		"transpose": transpose, "t": t, "permute": permute, "contiguous": same, "clone": same, "detach": same,
	}
)

// same is for operations that change where elements lie in memory, not which they are.
func same(v view, _ []any) (view, error) { return v, nil }

// narrow is v.narrow(dim, start, length).
func narrow(v view, args []any) (view, error) {
	n, err := numbers(args, 3)
	if err != nil {
		return view{}, err
	}
	dim, err := v.dim(n[0], 0)
	if err != nil {
		return view{}, err
	}
	start := n[1]
	if start < 0 {
		start += v.shape[dim]
	}
	return v.span(dim, start, n[2])
}

// selectIndex is v.select(dim, i).
func selectIndex(v view, args []any) (view, error) {
	n, err := numbers(args, 2)
	if err != nil {
		return view{}, err
	}
	dim, err := v.dim(n[0], 0)
	if err != nil {
		return view{}, err
	}
	return v.at(dim, n[1])
}

// at is one position of a dimension, without the dimension.
func (v view) at(dim int, i int64) (view, error) {
	if i < 0 {
		i += v.shape[dim]
	}
	part, err := v.span(dim, i, 1)
	if err != nil {
		return view{}, err
	}
	return part.dropped(dim), nil
}

// chunk cuts a dimension in parts of ceil(extent / count).
func chunk(v view, args []any) ([]view, error) {
	count, dim, err := v.countAndDim(args)
	if err != nil {
		return nil, err
	}
	if count < 1 || count > maxChunks {
		return nil, fmt.Errorf("%d chunks", count)
	}
	if v.shape[dim] == 0 { // then torch makes as many as asked, all empty
		return slices.Repeat([]view{v}, int(count)), nil
	}
	return v.pieces(dim, (v.shape[dim]-1)/count+1)
}

// split cuts a dimension in parts of a size, or of listed sizes.
func split(v view, args []any) ([]view, error) {
	if len(args) > 0 {
		if _, ok := args[0].([]any); ok {
			return splitSizes(v, args)
		}
	}
	size, dim, err := v.countAndDim(args)
	if err != nil {
		return nil, err
	}
	if size < 1 {
		return nil, fmt.Errorf("parts of size %d", size)
	}
	return v.pieces(dim, size)
}

// splitSizes is v.split([sizes], dim); the sizes must cover the dimension.
func splitSizes(v view, args []any) ([]view, error) {
	sizes, err := numbers(args[:1], -1)
	if err != nil {
		return nil, err
	}
	_, dim, err := v.countAndDim(append([]any{int64(0)}, args[1:]...))
	if err != nil {
		return nil, err
	}
	var list []view
	start := int64(0)
	for _, size := range sizes {
		part, err := v.span(dim, start, size)
		if err != nil {
			return nil, err
		}
		list = append(list, part)
		start += size
	}
	if start != v.shape[dim] {
		return nil, fmt.Errorf("sizes add up to %d of %d", start, v.shape[dim])
	}
	return list, nil
}

// unbind is every position of a dimension, without the dimension.
func unbind(v view, args []any) ([]view, error) {
	_, dim, err := v.countAndDim(append([]any{int64(0)}, args...))
	if err != nil {
		return nil, err
	}
	parts, err := v.pieces(dim, 1)
	if err != nil || v.shape[dim] == 0 {
		return []view{}, err
	}
	for i := range parts {
		parts[i] = parts[i].dropped(dim)
	}
	return parts, nil
}

// pieces cuts a dimension in parts of a size, the last one short; an empty dimension is one empty part.
func (v view) pieces(dim int, size int64) ([]view, error) {
	var list []view
	for start := int64(0); start < v.shape[dim] || start == 0; start += size {
		part, err := v.span(dim, start, min(size, v.shape[dim]-start))
		if err != nil {
			return nil, err
		}
		list = append(list, part)
	}
	return list, nil
}

// getItem indexes with Python's keys; each consumes or makes dimensions from the left.
func getItem(v view, args []any) (view, error) {
	consumed := 0 // dimensions that the keys use
	for _, arg := range args {
		key, _ := arg.(map[string]any)
		if key["slice"] != nil || key["int"] != nil {
			consumed++
		}
	}
	if consumed > len(v.shape) {
		return view{}, fmt.Errorf("%d keys for shape %v", consumed, v.shape)
	}
	skip, dim := len(v.shape)-consumed, 0 // dimensions that an ellipsis passes over; the next key's dimension
	for _, arg := range args {
		key, _ := arg.(map[string]any)
		var err error
		switch {
		case key["ellipsis"] != nil:
			dim += skip
		case key["none"] != nil:
			v = v.inserted(dim)
			dim++
		case key["int"] != nil:
			i, _ := key["int"].(int64)
			v, err = v.at(dim, i)
		case key["slice"] != nil:
			v, err = v.sliced(dim, key["slice"])
			dim++
		default:
			err = fmt.Errorf("unknown key %v", arg)
		}
		if err != nil {
			return view{}, err
		}
	}
	return v, nil
}

// sliced is v[start:stop:step] with Python's rules for absent and negative bounds.
func (v view) sliced(dim int, bounds any) (view, error) {
	list, _ := bounds.([]any)
	if len(list) != 3 {
		return view{}, fmt.Errorf("slice %v, expected start, stop and step", bounds)
	}
	extent := v.shape[dim]
	bound := func(at int, absent int64) int64 {
		x, ok := list[at].(int64)
		if !ok {
			return absent
		}
		if x < 0 {
			x += extent
		}
		return min(max(x, 0), extent)
	}
	step, ok := list[2].(int64)
	if !ok {
		step = 1
	}
	if step < 1 {
		return view{}, fmt.Errorf("slice with step %d", step)
	}
	var positions []int64
	for p := bound(0, 0); p < bound(1, extent); p += step {
		positions = append(positions, p)
	}
	return v.gather(dim, positions), nil
}

// indexSelect is v.index_select(dim, positions): a gather, which is no view in torch, but in a list of indices nothing else than one.
func indexSelect(v view, args []any) (view, error) {
	if len(args) != 2 {
		return view{}, fmt.Errorf("%d arguments, expected dimension and positions", len(args))
	}
	d, err := numbers(args[:1], 1)
	if err != nil {
		return view{}, err
	}
	dim, err := v.dim(d[0], 0)
	if err != nil {
		return view{}, err
	}
	positions, err := numbers(args[1:], -1)
	if err != nil {
		return view{}, err
	}
	for _, p := range positions {
		if p < 0 || p >= v.shape[dim] {
			return view{}, fmt.Errorf("position %d lies outside dimension %d of shape %v", p, dim, v.shape)
		}
	}
	return v.gather(dim, positions), nil
}

// reshape gives the list another shape, one size of which may be -1.
func reshape(v view, args []any) (view, error) {
	shape, err := numbers(args, -1)
	if err != nil {
		return view{}, err
	}
	open, known := -1, int64(1) // the dimension given as -1; the product of the others
	for d, n := range shape {
		switch {
		case n == -1 && open < 0:
			open = d
		case n < 0:
			return view{}, fmt.Errorf("size %d", n)
		default:
			known *= n
		}
	}
	if open >= 0 && known > 0 {
		shape[open] = int64(len(v.index)) / known
		known *= shape[open]
	}
	if known != int64(len(v.index)) || open >= 0 && shape[open] < 0 {
		return view{}, fmt.Errorf("shape %v for %d elements", shape, len(v.index))
	}
	return v.reshaped(shape), nil
}

// flatten joins the dimensions first to last, the ends included.
func flatten(v view, args []any) (view, error) {
	ends := []int64{0, -1}
	n, err := numbers(args, -1)
	if err != nil {
		return view{}, err
	}
	copy(ends, n)
	if len(v.shape) == 0 {
		return v.reshaped([]int64{1}), nil
	}
	first, err := v.dim(ends[0], 0)
	if err != nil {
		return view{}, err
	}
	last, err := v.dim(ends[1], 0)
	if err != nil || last < first {
		return view{}, errors.Join(err, fmt.Errorf("dimensions %d to %d", first, last))
	}
	joined := int64(1)
	for _, n := range v.shape[first : last+1] {
		joined *= n
	}
	shape := append(append([]int64{}, v.shape[:first]...), joined)
	return v.reshaped(append(shape, v.shape[last+1:]...)), nil
}

// squeeze drops one dimension, or all, that hold one element.
func squeeze(v view, args []any) (view, error) {
	n, err := numbers(args, -1)
	if err != nil {
		return view{}, err
	}
	if len(n) == 0 {
		return v.reshaped(withoutOnes(v.shape)), nil
	}
	dim, err := v.dim(n[0], 0)
	if err != nil || v.shape[dim] != 1 {
		return v, err
	}
	return v.dropped(dim), nil
}

// unsqueeze is v.unsqueeze(dim), where dim may be one more than there are.
func unsqueeze(v view, args []any) (view, error) {
	n, err := numbers(args, 1)
	if err != nil {
		return view{}, err
	}
	dim, err := v.dim(n[0], 1)
	if err != nil {
		return view{}, err
	}
	return v.inserted(dim), nil
}

// transpose exchanges two dimensions.
func transpose(v view, args []any) (view, error) {
	n, err := numbers(args, 2)
	if err != nil {
		return view{}, err
	}
	a, err := v.dim(n[0], 0)
	if err != nil {
		return view{}, err
	}
	b, err := v.dim(n[1], 0)
	if err != nil {
		return view{}, err
	}
	order := make([]int, len(v.shape))
	for d := range order {
		order[d] = d
	}
	order[a], order[b] = b, a
	return v.permuted(order), nil
}

// t transposes a matrix and leaves what has fewer dimensions, as torch's does.
func t(v view, _ []any) (view, error) {
	switch len(v.shape) {
	case 0, 1:
		return v, nil
	case 2:
		return v.permuted([]int{1, 0}), nil
	}
	return view{}, fmt.Errorf("shape %v has more than two dimensions", v.shape)
}

// permute orders all dimensions anew.
func permute(v view, args []any) (view, error) {
	n, err := numbers(args, -1)
	if err != nil {
		return view{}, err
	}
	order, seen := make([]int, len(n)), make([]bool, len(v.shape))
	for i := range n {
		if order[i], err = v.dim(n[i], 0); err != nil {
			return view{}, err
		}
		if seen[order[i]] {
			return view{}, fmt.Errorf("dimension %d twice", order[i])
		}
		seen[order[i]] = true
	}
	if len(order) != len(v.shape) {
		return view{}, fmt.Errorf("%d dimensions for shape %v", len(order), v.shape)
	}
	return v.permuted(order), nil
}

// dim makes a dimension number non-negative; more is 1 for places between dimensions.
func (v view) dim(d int64, more int) (int, error) {
	n := int64(len(v.shape) + more)
	if d < -n || d >= n {
		return 0, fmt.Errorf("dimension %d of shape %v", d, v.shape)
	}
	return int((d + n) % n), nil
}

// countAndDim reads a number and an optional dimension.
func (v view) countAndDim(args []any) (count int64, dim int, err error) {
	n, err := numbers(args, -1)
	if err != nil {
		return 0, 0, err
	}
	if len(n) == 1 {
		n = append(n, 0)
	}
	if len(n) != 2 {
		return 0, 0, fmt.Errorf("%d arguments", len(n))
	}
	dim, err = v.dim(n[1], 0)
	return n[0], dim, err
}

// numbers reads arguments that are integers, or one list of them; exactly so many unless want is negative.
func numbers(args []any, want int) ([]int64, error) {
	if len(args) == 1 {
		if list, ok := args[0].([]any); ok {
			args = list
		}
	}
	if want >= 0 && len(args) != want {
		return nil, fmt.Errorf("%d arguments, expected %d", len(args), want)
	}
	n := make([]int64, len(args))
	for i, arg := range args {
		var ok bool
		if n[i], ok = arg.(int64); !ok {
			return nil, fmt.Errorf("argument %v, expected an integer", arg)
		}
	}
	return n, nil
}
