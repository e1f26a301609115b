package view

// table maps torch's method names to what they do to a view. Some names share a function.
var table = map[string]func(*state, []Arg) *Error{
	"__getitem__":      (*state).getitem,
	"narrow":           (*state).narrow,
	"select":           (*state).selectIndex,
	"slice":            (*state).sliceOp,
	"chunk":            (*state).chunk,
	"split":            (*state).split,
	"split_with_sizes": (*state).splitWithSizes,
	"tensor_split":     (*state).tensorSplit,
	"unbind":           (*state).unbind,
	"transpose":        (*state).transpose,
	"swapaxes":         (*state).transpose,
	"swapdims":         (*state).transpose,
	"t":                (*state).t,
	"T":                (*state).reversed,
	"mT":               (*state).matrixTransposed,
	"permute":          (*state).permute,
	"movedim":          (*state).movedim,
	"moveaxis":         (*state).movedim,
	"view":             (*state).view,
	"view_as":          (*state).view,
	"reshape":          (*state).reshape,
	"reshape_as":       (*state).reshape,
	"flatten":          (*state).flatten,
	"unflatten":        (*state).unflatten,
	"ravel":            (*state).ravel,
	"squeeze":          (*state).squeeze,
	"unsqueeze":        (*state).unsqueeze,
	"contiguous":       (*state).contiguous,
	"clone":            (*state).clone,
	"index_select":     (*state).indexSelect,
	"detach":           (*state).same,
	"alias":            (*state).same,
	"expand":           (*state).expand,
	"expand_as":        (*state).expand,
	"diagonal":         (*state).diagonal,
}

// elsewhere holds operations that are known, and why they can't be planned.
var elsewhere = map[string]Reason{
	"as_strided": Unsupported, "unfold": Unsupported, "view_as_real": Unsupported, "view_as_complex": Unsupported,
	"take": Copies, "gather": Copies, "masked_select": Copies, "repeat": Copies,
	"tile": Copies, "flip": Copies, "roll": Copies, "cat": Copies, "stack": Copies, "neg": Copies, "abs": Copies,
	"add": Copies, "sub": Copies, "mul": Copies, "div": Copies, "exp": Copies, "int": Copies, "long": Copies,
	"bool": Copies, "to": Copies, "float": Copies, "half": Copies, "bfloat16": Copies, "double": Copies, "repeat_interleave": Copies, "index_put": Copies, "where": Copies, "zero_": Copies,
}

// refuse says why an operation that is not in the table can't be planned.
func refuse(name string) *Error {
	switch r, ok := elsewhere[name]; {
	case !ok:
		return unsupported("unknown operation")
	case r == Copies:
		return copies("its result is not a view of the source")
	default:
		return unsupported("it may show an element twice, or reinterpret it")
	}
}

// same is for operations that show the same elements in the same way.
func (s *state) same(args []Arg) *Error {
	if len(args) != 0 {
		return raises("%d arguments, expected none", len(args))
	}
	return nil
}
