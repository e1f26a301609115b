package protocol

import "errors"

// TakeRun takes the next run number for a job, or finds the run that the job holds
// already. Numbers are consecutive: the record of run n+1 is what fences run n. A job
// that held a run and was fenced gets ErrFenced, never another run: its rank 0 that
// comes back late must not fence its successor.
type TakeRun struct {
	Job string
	// Make builds the record of run n.
	Make func(n uint64) (Body, error)

	Record Item // after Done

	state takeState
	put   PutOnce
	retry backoff
}

type takeState uint8

const (
	takeStart takeState = iota
	takeLooking
	takePutting
)

// Step takes the answer to the last intent.
func (t *TakeRun) Step(r Result) Intent {
	switch t.state {
	case takeLooking:
		return t.looked(r)
	case takePutting:
		return t.stepPut(r)
	default:
		t.state = takeLooking
		return Intent{Verb: ListRuns}
	}
}

func (t *TakeRun) looked(r Result) Intent {
	switch r.Outcome {
	case OK:
	case Refused:
		return fail(r.Err)
	default:
		t.state = takeStart
		return t.retry.wait(retryFirst, retryMost)
	}
	next := uint64(1)
	held := false
	for _, it := range r.Items {
		next = max(next, it.Place.Key.Run+1)
		if it.Body.Class == ClassRun && it.Body.Owner == t.Job {
			t.Record, held = it, true
		}
	}
	switch {
	case held && t.Record.Place.Key.Run == next-1:
		return done()
	case held:
		return fail(ErrFenced)
	}
	body, err := t.Make(next)
	if err != nil {
		return fail(err)
	}
	t.state = takePutting
	t.put = PutOnce{Place: Place{Kind: KindRun, Key: Key{Run: next}}, Body: body}
	return t.stepPut(Result{})
}

func (t *TakeRun) stepPut(r Result) Intent {
	in := t.put.Step(r)
	if in.Verb == Done {
		t.Record = t.put.Stored
	}
	if in.Verb == Fail && errors.Is(in.Err, ErrConflict) {
		// Another job was faster; or this one was, in an earlier life.
		t.state = takeStart
		return t.retry.wait(retryFirst, retryMost)
	}
	return in
}
