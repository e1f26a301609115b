package operator

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes that people write as "512MiB", "2GB" or "4096".
type Size int64

// units by their suffix, upper case. "2G" is 2GiB, as in the configuration of NATS.
var units = map[string]int64{
	"": 1, "B": 1,
	"K": 1 << 10, "KIB": 1 << 10, "KB": 1e3,
	"M": 1 << 20, "MIB": 1 << 20, "MB": 1e6,
	"G": 1 << 30, "GIB": 1 << 30, "GB": 1e9,
	"T": 1 << 40, "TIB": 1 << 40, "TB": 1e12,
}

// UnmarshalText reads a whole number and a unit.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	digits := strings.TrimRight(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, known := units[strings.ToUpper(strings.TrimSpace(t[len(digits):]))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size: expected a whole number of bytes, such as 4096, 512MiB or 2GB", t)
	}
	*s = Size(n * unit)
	return nil
}

// String draws the size with a decimal unit.
func (s Size) String() string {
	switch n := float64(s); {
	case n >= 1e12:
		return fmt.Sprintf("%.2f TB", n/1e12)
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", n/1e3)
	}
	return fmt.Sprintf("%d B", int64(s))
}
