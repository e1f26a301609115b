package cast_test

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
)

// A row of two float32 becomes bfloat16; ties go to even.
func ExampleConvert() {
	src := []byte{0, 0x80, 0x80, 0x3f, 0, 0x80, 0x81, 0x3f} // 1.00390625 and 1.01171875, both halfway
	dst := make([]byte, 4)
	err := cast.Convert(dst, src, 2, 2, 4, cast.F32, cast.BF16, cast.Fails)
	fmt.Printf("%x %v\n", dst, err)
	fmt.Println(cast.Lossless(cast.BF16, cast.F32), cast.Lossless(cast.F32, cast.BF16))
	// Output:
	// 803f823f <nil>
	// true false
}
