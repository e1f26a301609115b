package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit/install"
)

// call is a step that is ready to be made.
type call struct {
	step   Step
	url    *install.Text
	body   *install.Text
	header map[string]*install.Text
	fields map[string]*install.Text
	undo   []*call
}

func newCalls(steps []Step) ([]*call, error) {
	calls := make([]*call, len(steps))
	for i, s := range steps {
		c, err := newCall(s)
		if err != nil {
			return nil, err
		}
		calls[i] = c
	}
	return calls, nil
}

func newCall(s Step) (c *call, err error) {
	s.Method = strings.ToUpper(s.Method)
	if s.Method == "" {
		s.Method = http.MethodPost
	}
	if s.Name == "" {
		s.Name = s.Method + " " + s.URL
	}
	switch s.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		s.Idempotent = true
	}
	if s.Timeout == 0 {
		s.Timeout = 30 * time.Second
	}
	if s.Attempts == 0 {
		s.Attempts = 3
	}
	if !s.Idempotent {
		s.Attempts = 1
	}
	c = &call{step: s}
	if c.url, err = install.Parse("url of step "+s.Name, s.URL); err != nil {
		return nil, err
	}
	if c.body, err = install.Parse("body of step "+s.Name, s.Body); err != nil {
		return nil, err
	}
	if c.header, err = parseAll("header of step "+s.Name, s.Header); err != nil {
		return nil, err
	}
	if c.fields, err = parseAll("field of step "+s.Name, s.Fields); err != nil {
		return nil, err
	}
	c.undo, err = newCalls(s.OnFailure)
	return c, err
}

func parseAll(name string, texts map[string]string) (map[string]*install.Text, error) {
	parsed := map[string]*install.Text{}
	for key, text := range texts {
		t, err := install.Parse(name+" "+key, text)
		if err != nil {
			return nil, err
		}
		parsed[key] = t
	}
	return parsed, nil
}

// answer is what came of a call.
type answer struct {
	sent  bool          // the request may have reached the engine
	pause time.Duration // that the answer speaks of; 0: none
}

// failure is the error of one call.
type failure struct {
	step, method, url string
	status            int // 0: no answer
	err               error
}

func (f *failure) Error() string {
	return fmt.Sprintf("step %q: %s %s: %v", f.step, f.method, f.url, f.err)
}

func (f *failure) Unwrap() error { return f.err }

// passing says whether the same call may get another answer soon.
func (f *failure) passing() bool {
	switch f.status {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Back-off between attempts at an idempotent call.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 2 * time.Second
)

// do makes the call, as often as it may be made.
func (c *call) do(ctx context.Context, client *http.Client, v install.Vars) (a answer, err error) {
	wait := firstWait
	for attempt := 1; ; attempt++ {
		var one answer
		one, err = c.once(ctx, client, v)
		a.sent, a.pause = a.sent || one.sent, one.pause
		var f *failure
		if err == nil || attempt >= c.step.Attempts || ctx.Err() != nil || errors.As(err, &f) && !f.passing() {
			if attempt > 1 && err != nil {
				err = fmt.Errorf("%w (after %d attempts)", err, attempt)
			}
			return a, err
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
		wait = min(2*wait, lastWait)
	}
}

// once makes the call and judges its answer.
func (c *call) once(ctx context.Context, client *http.Client, v install.Vars) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.step.Timeout, fmt.Errorf("no answer within %v: %w", c.step.Timeout, context.DeadlineExceeded))
	defer cancel()
	req, err := c.request(ctx, v)
	if err != nil {
		return a, err
	}
	fail := func(status int, err error) error {
		return &failure{step: c.step.Name, method: req.Method, url: req.URL.Redacted(), status: status, err: err}
	}
	if ctx.Err() != nil {
		return a, fail(0, context.Cause(ctx))
	}
	resp, err := client.Do(req)
	if err != nil {
		a.sent = !neverSent(err)
		return a, fail(0, reason(ctx, err))
	}
	defer func() { _ = resp.Body.Close() }() // the connection is given back or dropped
	a.sent = true
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return a, fail(0, fmt.Errorf("read the answer, status %d: %w", resp.StatusCode, reason(ctx, err)))
	}
	if err := c.judge(resp.StatusCode, body, v); err != nil {
		return a, fail(resp.StatusCode, err)
	}
	if c.step.PauseField != "" {
		a.pause = pauseOf(body, c.step.PauseField)
	}
	return a, nil
}

// reason is the error without the URL that net/http puts around it, which may hold a password; a deadline says which one.
func reason(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// neverSent says whether a request has certainly not left: no connection was made for it.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (c *call) request(ctx context.Context, v install.Vars) (*http.Request, error) {
	u, err := c.url.Render(v)
	if err != nil {
		return nil, err
	}
	body, err := c.body.Render(v)
	if err != nil {
		return nil, err
	}
	var content io.Reader = http.NoBody
	if c.step.Body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, c.step.Method, u, content)
	if err != nil {
		return nil, fmt.Errorf("step %q: %w", c.step.Name, err)
	}
	if c.step.Body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, t := range c.header {
		value, err := t.Render(v)
		if err != nil {
			return nil, err
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// judge says why an answer does not mean yes.
func (c *call) judge(status int, body []byte, v install.Vars) error {
	good := status/100 == 2
	expected := "2xx"
	if len(c.step.Status) > 0 {
		good, expected = slices.Contains(c.step.Status, status), strings.Trim(fmt.Sprint(c.step.Status), "[]")
	}
	if !good {
		return fmt.Errorf("status %d, expected %s%s", status, expected, head(body))
	}
	for path, t := range c.fields {
		want, err := t.Render(v)
		if err != nil {
			return err
		}
		if got, err := field(body, path); err != nil || got != want {
			if err == nil {
				err = fmt.Errorf("is %s", got)
			}
			return fmt.Errorf("status %d, but field %q of the answer should be %s: %w%s", status, path, want, err, head(body))
		}
	}
	return nil
}

// head is the beginning of a body as an error shows it.
func head(body []byte) string {
	body = bytes.TrimSpace(body)
	cut := ""
	if len(body) > headBytes {
		body, cut = body[:headBytes], "…"
	}
	if len(body) == 0 {
		return ", without a body"
	}
	return ": " + strings.ToValidUTF8(string(body), "\ufffd") + cut
}

// field walks into JSON: names and indices, separated by dots. Strings come as they are, everything else as JSON.
func field(body []byte, path string) (string, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // 1e3 stays what it is written as
	var v any
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("the answer is no JSON: %w", err)
	}
	for _, step := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return "", fmt.Errorf("there is no %q", step)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return "", fmt.Errorf("there is no element %q among %d", step, len(at))
			}
			v = at[i]
		default:
			return "", fmt.Errorf("there is nothing below %v to find %q in", v, step)
		}
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// pauseOf reads a number of milliseconds; 0 where there is none that makes sense.
func pauseOf(body []byte, path string) time.Duration {
	text, err := field(body, path)
	if err != nil {
		return 0
	}
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ms > 0 && ms < 1e9) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}
