package operator

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// none stands where a table has nothing to say.
const none = "–"

// printable replaces what could steer a terminal: texts of other processes are shown, not obeyed.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, s)
}

// brief cuts s to n characters.
func brief(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// orNone is s, or the sign for nothing.
func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// names lists the first few of many names.
func names(all []string) string {
	const shown = 3
	if len(all) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shown-1], ", "), len(all)-shown+1)
	}
	return orNone(strings.Join(all, ", "))
}

// ranks draws sorted ranks in runs: "0-3,7".
func ranks(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		part := fmt.Sprint(all[i])
		if j > i {
			part += fmt.Sprintf("-%d", all[j])
		}
		parts, i = append(parts, part), j+1
	}
	return orNone(strings.Join(parts, ","))
}

// age draws how long ago something was.
func age(now, then time.Time) string {
	if then.IsZero() {
		return none
	}
	return span(now.Sub(then)) + " ago"
}

// span draws a duration in its one or two largest units. Clocks of other hosts may run ahead: that is no time at all.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
