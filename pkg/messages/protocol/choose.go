package protocol

// Standing is a version whose manifest stands.
type Standing struct {
	Key Key
	Seq uint64 // of the commit in the stream
}

// Rollback is an operator's order to serve an older version until a newer commit. The
// zero value is no order.
type Rollback struct {
	To  Key
	Seq uint64 // of the order in the stream
}

// Choose picks the version that receivers should serve; the zero key is none. Only
// versions of the newest run count, since it fences all others. Among them it is the
// greatest; after a rollback it is the order's target until a version is committed
// after the order. The stream's sequence, which orders commits and orders alike, makes
// every reader of the same stream choose the same.
func Choose(standing []Standing, run uint64, order Rollback) Key {
	var newest, after, target Key
	for _, v := range standing {
		if v.Key.Run < run {
			continue
		}
		if newest.Less(v.Key) {
			newest = v.Key
		}
		if v.Seq > order.Seq && after.Less(v.Key) {
			after = v.Key
		}
		if v.Key == order.To {
			target = v.Key
		}
	}
	switch {
	case order.Seq == 0 || order.To.Run < run:
		return newest
	case !after.IsZero():
		return after
	default:
		return target
	}
}

// MayInstall says whether a receiver that serves `serving` may go to `next`: forward
// always, backward only by an order that is newer than the last one it has followed.
func MayInstall(serving, next Key, order Rollback, followed uint64) bool {
	if serving.Less(next) {
		return true
	}
	return next != serving && order.To == next && order.Seq > followed
}

// Keep says which versions a publisher keeps.
type Keep struct {
	Last  int  // how many of the newest; at least 1
	Every bool // every version, until each of its readers has said that it is done
}

// Retire picks of the versions that a publisher holds, oldest first, those that may be
// withdrawn now. doneWith tells with Every whether all readers are done with a version.
func (k Keep) Retire(held []Key, doneWith func(Key) bool) []Key {
	spare := len(held) - max(k.Last, 1)
	var out []Key
	for i := 0; i < spare; i++ {
		if !k.Every || doneWith(held[i]) {
			out = append(out, held[i])
		}
	}
	return out
}
