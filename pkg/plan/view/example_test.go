package view_test

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// The second half of the columns, transposed: offset, shape and strides over the row-major source.
func ExampleReplay() {
	v, err := view.Replay([]int64{4, 6}, []view.Op{
		{Name: "chunk", Args: []view.Arg{{Int: 2}, {Int: 1}}},
		{Name: "__getitem__", Args: []view.Arg{{Int: -1}}},
		{Name: "t"},
	})
	fmt.Println(v.String(), err)
	_, err = view.Replay([]int64{4, 6}, []view.Op{{Name: "t"}, {Name: "reshape", Args: []view.Arg{{Int: 24}}}})
	fmt.Println(err)
	// Output:
	// 3+[3 4]/[1 6] <nil>
	// op 1 reshape: it would copy: shape [24] does not fit the strides of 0+[6 4]/[1 6]
}
