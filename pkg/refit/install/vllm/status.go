package vllm

import (
	"fmt"
	"strings"
)

// protocol is the version of the calls to our methods in the workers; worker.py has the same number.
const protocol = 1

// States of a rank, as session.py names them.
const (
	stateApplied = "applied"
	stateBroken  = "broken"
)

// status is what one worker says of itself.
type status struct {
	Protocol int    `json:"protocol"`
	Nonce    string `json:"nonce"`
	Engine   string `json:"engine"`
	Rank     int    `json:"rank"`    // among the workers
	TPRank   int    `json:"tp_rank"` // whose arena it takes
	TPSize   int    `json:"tp_size"`
	Open     bool   `json:"open"` // vLLM has an update open
	State    string `json:"state"`
	Error    string `json:"error"`
	Staged   string `json:"staged"`  // version that was checked, empty: none
	Serving  string `json:"serving"` // version that every parameter is of; empty: the checkpoint, or none when broken
	Owner    string `json:"owner"`
	InHand   string `json:"in_hand"` // version whose update was staged and not closed
	Root     string `json:"root"`
}

func checkProtocol(list []status) error {
	if len(list) == 0 {
		return fmt.Errorf("%w: no worker answers", ErrNoBackend)
	}
	for k := range list {
		if list[k].Protocol != protocol {
			return fmt.Errorf("%w: rank %d speaks version %d of its calls, expected %d: the Python package and this program differ",
				ErrNoBackend, k, list[k].Protocol, protocol)
		}
	}
	return nil
}

// every says whether all ranks fulfil ok.
func every(list []status, ok func(*status) bool) bool {
	for k := range list {
		if !ok(&list[k]) {
			return false
		}
	}
	return true
}

func anyOf(list []status, ok func(*status) bool) bool {
	return !every(list, func(s *status) bool { return !ok(s) })
}

// whole says whether every rank has one and the same version, and which; empty is the checkpoint.
func whole(list []status) (serving string, ok bool) {
	serving = list[0].Serving
	return serving, every(list, func(s *status) bool { return s.State != stateBroken && s.Serving == serving })
}

// inHand is the version of the update that was not closed, or empty.
func inHand(list []status) string {
	for k := range list {
		if list[k].InHand != "" {
			return list[k].InHand
		}
	}
	return ""
}

// complaint lists what each rank that is not as wanted says of itself.
func complaint(list []status, ok func(*status) bool) string {
	var b strings.Builder
	for k := range list {
		s := &list[k]
		if ok(s) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		serving := s.Serving
		if serving == "" {
			serving = "its checkpoint"
		}
		if s.State == stateBroken {
			serving = "no whole version"
		}
		fmt.Fprintf(&b, "rank %d is %s, has %s", s.Rank, s.State, serving)
		if s.Error != "" {
			fmt.Fprintf(&b, ": %s", s.Error)
		}
	}
	return b.String()
}
