package simulator

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

var kindNames = map[protocol.Kind]string{
	protocol.KindTable: "table", protocol.KindCommit: "commit", protocol.KindLease: "lease", protocol.KindRun: "run",
}

var verbNames = map[protocol.Verb]string{
	protocol.Put: "put", protocol.Swap: "swap", protocol.Read: "read", protocol.ReadLeader: "read-leader",
	protocol.ListLeases: "list-leases", protocol.LastRun: "last-run", protocol.ListRuns: "list-runs", protocol.LastOrder: "last-order",
	protocol.Purge: "purge", protocol.PurgeTable: "purge-table",
}

var classNames = map[protocol.Class]string{
	protocol.ClassTable: "table", protocol.ClassManifest: "manifest", protocol.ClassAbandoned: "abandoned",
	protocol.ClassRetired: "retired", protocol.ClassLease: "lease", protocol.ClassReleased: "released", protocol.ClassRun: "run",
}

var outcomeNames = map[protocol.Outcome]string{
	protocol.OK: "ok", protocol.Exists: "exists", protocol.Fenced: "fenced", protocol.Busy: "busy", protocol.Unknown: "unknown",
}

func drawPlace(p protocol.Place) string {
	switch p.Kind {
	case protocol.KindTable:
		return fmt.Sprintf("table %s rank %d", p.Key, p.Rank)
	case protocol.KindLease:
		return fmt.Sprintf("lease %s %s", p.Key, p.Name)
	case protocol.KindRun:
		return fmt.Sprintf("run %d", p.Key.Run)
	}
	return kindNames[p.Kind] + " " + p.Key.String()
}

func drawIntent(in protocol.Intent) string {
	switch in.Verb {
	case protocol.Read:
		return fmt.Sprintf("read %d places", len(in.Places))
	case protocol.LastRun, protocol.LastOrder, protocol.ListRuns:
		return verbNames[in.Verb]
	case protocol.Put, protocol.Swap:
		return fmt.Sprintf("%s %s at %s", verbNames[in.Verb], classNames[in.Body.Class], drawPlace(in.Place))
	}
	return verbNames[in.Verb] + " " + drawPlace(in.Place)
}

func drawResult(r protocol.Result) string {
	var b strings.Builder
	b.WriteString(outcomeNames[r.Outcome])
	for i, it := range r.Items {
		if i == 4 {
			fmt.Fprintf(&b, ", and %d more", len(r.Items)-i)
			break
		}
		fmt.Fprintf(&b, ", %s at %s", classNames[it.Body.Class], drawPlace(it.Place))
	}
	return b.String()
}

func comparePlaces(a, b protocol.Place) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
}
