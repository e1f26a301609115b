package messages

import (
	"strconv"
)

// subjects makes every subject, stream and bucket name of one model from its token.
type subjects struct{ token string }

func (s subjects) stream() string       { return "REFIT_" + s.token }
func (s subjects) leaseBucket() string  { return "refit_lease_" + s.token }
func (s subjects) statusBucket() string { return "refit_status_" + s.token }
func (s subjects) root() string         { return "refit." + s.token + "." }
func (s subjects) all() string          { return s.root() + ">" }
func (s subjects) notifyAll() string    { return "refit-notify." + s.token + ".>" }

// commit is where a version's manifest, or its end, stands.
func (s subjects) commit(k Key) string { return s.root() + "c." + k.String() }
func (s subjects) commits() string     { return s.root() + "c.*.*" }

// version is all that lies below a version: tables and tile digests of all ranks.
func (s subjects) version(k Key) string { return s.root() + "v." + k.String() + ".>" }

func (s subjects) table(k Key, rank int) string {
	return s.root() + "v." + k.String() + ".t." + strconv.Itoa(rank)
}

// tiles is one chunk of a rank's tile digests: they live and die with their version.
func (s subjects) tiles(k Key, rank, chunk int) string {
	return s.root() + "v." + k.String() + ".d." + strconv.Itoa(rank) + "." + strconv.Itoa(chunk)
}

// blob is one chunk of a layout or an endpoint: they live as long as their run.
func (s subjects) blob(run uint64, d Digest, chunk int) string {
	return s.root() + "b." + strconv.FormatUint(run, 10) + "." + d.String() + "." + strconv.Itoa(chunk)
}
func (s subjects) run(n uint64) string { return s.root() + "r." + strconv.FormatUint(n, 10) }
func (s subjects) runs() string        { return s.root() + "r.*" }

// order is one operator's order, e.g. a rollback.
func (s subjects) order(n uint64) string { return s.root() + "o." + strconv.FormatUint(n, 10) }
func (s subjects) orders() string        { return s.root() + "o.*" }

func (s subjects) lease(k Key, receiver string) string {
	return "$KV." + s.leaseBucket() + "." + k.String() + "." + receiver
}

func (s subjects) leases(k Key) string {
	return "$KV." + s.leaseBucket() + "." + k.String() + ".*"
}
func (s subjects) status(name string) string { return "$KV." + s.statusBucket() + "." + name }

// engine is the record of an inference engine that several receivers feed. It has a token more than a status.
func (s subjects) engine(name string) string { return s.status("engine." + name) }

// isToken says whether s may stand for one token of a subject.
func isToken(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return true
}

func isTokenByte(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// Token derives the subject token of a model from its full name: every character that
// a token can't hold becomes '-'. Two names may share a token; the full name in the
// messages tells them apart.
func Token(model string) string {
	b := []byte(model)
	for i, c := range b {
		if !isTokenByte(c) {
			b[i] = '-'
		}
	}
	return string(b[:min(len(b), 64)])
}
