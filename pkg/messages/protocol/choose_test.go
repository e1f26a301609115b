package protocol

import (
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	k := func(run, version uint64) Key { return Key{Run: run, Version: version} }
	all := []Standing{{k(1, 9), 10}, {k(2, 1), 20}, {k(2, 3), 30}, {k(2, 2), 40}}
	for name, c := range map[string]struct {
		standing []Standing
		run      uint64
		order    Rollback
		want     Key
	}{
		"nothing":                      {nil, 1, Rollback{}, Key{}},
		"greatest, not last committed": {all, 2, Rollback{}, k(2, 3)},
		"fenced runs do not count":     {all[:1], 2, Rollback{}, Key{}},
		"rolled back":                  {all, 2, Rollback{k(2, 1), 50}, k(2, 1)},
		"committed after the order":    {all, 2, Rollback{k(2, 1), 35}, k(2, 2)},
		"target is gone":               {all, 2, Rollback{k(2, 7), 50}, Key{}},
		"order of a fenced run":        {all, 2, Rollback{k(1, 9), 50}, k(2, 3)},
	} {
		if got := Choose(c.standing, c.run, c.order); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestMayInstall(t *testing.T) {
	t.Parallel()
	older, newer := Key{1, 1}, Key{1, 2}
	back := Rollback{To: older, Seq: 7}
	for name, c := range map[string]struct {
		serving, next Key
		order         Rollback
		followed      uint64
		want          bool
	}{
		"forward":                 {older, newer, Rollback{}, 0, true},
		"first":                   {Key{}, older, Rollback{}, 0, true},
		"backward":                {newer, older, Rollback{}, 0, false},
		"again":                   {older, older, Rollback{}, 0, false},
		"backward by order":       {newer, older, back, 0, true},
		"the same order again":    {newer, older, back, 7, false},
		"an order for another":    {newer, older, Rollback{To: Key{1, 0}, Seq: 9}, 0, false},
		"to what is served, once": {older, older, back, 0, false},
	} {
		if got := MayInstall(c.serving, c.next, c.order, c.followed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	held := []Key{{1, 1}, {1, 2}, {1, 3}, {1, 4}}
	nobody := func(Key) bool { return false }
	onlyTwo := func(k Key) bool { return k.Version == 2 }
	for name, c := range map[string]struct {
		keep Keep
		done func(Key) bool
		want []Key
	}{
		"zero keeps one":          {Keep{}, nobody, held[:3]},
		"last two":                {Keep{Last: 2}, nobody, held[:2]},
		"more than there are":     {Keep{Last: 9}, nobody, nil},
		"every, none is done":     {Keep{Last: 1, Every: true}, nobody, nil},
		"every, the second is":    {Keep{Last: 1, Every: true}, onlyTwo, held[1:2]},
		"every, it is among Last": {Keep{Last: 3, Every: true}, onlyTwo, nil},
	} {
		if got := c.keep.Retire(held, c.done); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, k := range []Key{{1, 0}, {2, 18446744073709551615}} {
		if got, err := ParseKey(k.String()); err != nil || got != k {
			t.Errorf("%s became %s (%v)", k, got, err)
		}
	}
	for _, s := range []string{"", "1", "1.", ".1", "0.1", "01.1", "1.+1", "1.-1", "1.1.1", "1.18446744073709551616", "a.b"} {
		if k, err := ParseKey(s); err == nil {
			t.Errorf("%q is %s", s, k)
		}
	}
	if !(Key{1, 9}).Less(Key{2, 0}) || (Key{2, 0}).Less(Key{2, 0}) || !(Key{}).IsZero() {
		t.Error("order of keys")
	}
	d := Sum([]byte("x"))
	if got, err := ParseDigest(d.String()); err != nil || got != d {
		t.Errorf("digest %s, %v", got, err)
	}
	for _, s := range []string{"", d.Short(), "Z" + d.String()[1:], "A" + d.String()[1:]} {
		if _, err := ParseDigest(s); err == nil {
			t.Errorf("%q is a digest", s)
		}
	}
}
