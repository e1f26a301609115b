package messages

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Keep is a publisher's policy: which committed versions it goes on holding. The zero
// value keeps the newest. What is not kept is withdrawn when its buffer is needed, and
// freed when its last lease is gone; a policy only says when that may begin.
type Keep struct {
	Last int // how many of the newest versions are kept; 0: 1
	// Every keeps every version until each reader serves it or a newer one, for exact
	// replay: the readers, which should follow with WatchOptions.Every, then miss none,
	// and the trainer waits for the slowest.
	Every bool
	// Readers are the receivers that must be through with a version, by name; with
	// Every only. None: those that have a status; while there are none, nothing is freed.
	Readers []string
}

// Waits says whether the policy may hold a version back whose buffer is needed: any but the zero value's.
func (k Keep) Waits() bool { return k.Every || k.Last > 1 }

// CheckSlots refuses a policy that a publisher of so many buffers can't follow.
func (k Keep) CheckSlots(slots int) error {
	if k.Waits() && slots <= max(k.Last, 1) {
		return fmt.Errorf("%d slots to keep %s: one slot more is needed than versions are kept, for the one that is written", slots, k)
	}
	return nil
}

// String writes the policy as it stands in flags and in statuses: "1", "every",
// "every:rx-0,rx-1", or with Last beside it "3,every".
func (k Keep) String() string {
	last := max(k.Last, 1)
	if !k.Every {
		return strconv.Itoa(last)
	}
	s := "every"
	if last > 1 {
		s = strconv.Itoa(last) + ",every"
	}
	if len(k.Readers) > 0 {
		s += ":" + strings.Join(k.Readers, ",")
	}
	return s
}

// ParseKeep reads what String writes.
func ParseKeep(s string) (Keep, error) {
	k := Keep{Last: 1}
	policy, readers, named := strings.Cut(s, ":")
	if named {
		k.Readers = strings.Split(readers, ",")
	}
	last, every, both := strings.Cut(policy, ",")
	if !both && policy == "every" {
		last, every = "1", policy
	}
	n, err := strconv.Atoi(last)
	if err != nil || every != "" && every != "every" || both && every == "" {
		return Keep{}, fmt.Errorf("keep %q: want a number, \"every\", \"every:RECEIVER,…\" or NUMBER,every", s)
	}
	k.Last, k.Every = n, every == "every"
	return k, k.validate()
}

// UnmarshalText is ParseKeep, for flags and configuration files.
func (k *Keep) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKeep(string(text))
	return err
}

func (k Keep) validate() error {
	if k.Last < 0 || k.Last > MaxList {
		return fmt.Errorf("keep %d versions: want 1 to %d", k.Last, MaxList)
	}
	if len(k.Readers) > MaxList || len(k.Readers) > 0 && !k.Every {
		return fmt.Errorf("keep %s: %d readers are named, want none, or with \"every\" up to %d", k, len(k.Readers), MaxList)
	}
	for _, r := range k.Readers {
		if !isToken(r) {
			return fmt.Errorf("keep for reader %q: want a name of A-Z a-z 0-9 _ -", r)
		}
	}
	return nil
}

// Retirable picks of the committed versions that a publisher holds, in the order of
// their keys, those that its policy lets go, oldest first. With Every it reads the
// statuses; behind names the readers that keep the oldest version that is kept for them.
func (c *Control) Retirable(ctx context.Context, keep Keep, held []Key) (free []Key, behind []string, err error) {
	if err := keep.validate(); err != nil {
		return nil, nil, err
	}
	held = slices.SortedFunc(slices.Values(held), Key.Compare)
	policy := protocol.Keep{Last: keep.Last, Every: keep.Every}
	if !keep.Every || len(held) <= max(keep.Last, 1) {
		return policy.Retire(held, nil), nil, nil
	}
	list, err := c.Statuses(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("find out which versions %s still needs: %w", keep, err)
	}
	serving := make(map[string]Key)
	for _, s := range list {
		if s.Role == RoleReceiver && (len(keep.Readers) == 0 || slices.Contains(keep.Readers, s.Name)) {
			serving[s.Name] = s.Serving
		}
	}
	for _, name := range keep.Readers {
		if _, ok := serving[name]; !ok {
			serving[name] = Key{} // it is not there (yet)
		}
	}
	through := func(k Key) bool { return len(serving) > 0 && len(needing(serving, k)) == 0 }
	free = policy.Retire(held, through)
	if i := slices.IndexFunc(held, func(k Key) bool { return !through(k) }); i >= 0 && i < len(held)-max(keep.Last, 1) {
		behind = needing(serving, held[i])
	}
	return free, behind, nil
}

// needing names the readers that serve an older version than key, or none.
func needing(serving map[string]Key, key Key) []string {
	var names []string
	for name, s := range serving {
		if s.Less(key) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
