// Package rest makes JSON calls to an inference server, as its installers need them: each with a deadline of its own,
// with the trace of the refit in its headers, and with an error that tells no answer from a wrong one.
//
// It never repeats a call: whether that is safe only the installer knows.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/drydock-rl/drydock/pkg/refit"
)

// Limits of what is read of an answer. The largest known, statuses of a thousand ranks, takes some 500 KB.
const (
	maxAnswer = 64 << 20 // bytes
	maxText   = 1 << 10  // bytes of an error's text
)

// Server is where calls go.
type Server struct {
	URL    string // http://host:port, without a slash at its end
	APIKey string // bearer token; empty: none
	Client *http.Client
}

// Base checks a server's URL and returns it without a slash at its end.
func Base(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("URL %q: expected http://host:port", text)
	}
	return strings.TrimRight(text, "/"), nil
}

// Timeout is a setting with its default.
type Timeout struct {
	Value    *time.Duration
	Standard time.Duration
}

// Timeouts gives settings that are zero their defaults, and refuses negative ones.
func Timeouts(settings ...Timeout) error {
	for _, s := range settings {
		if *s.Value < 0 {
			return errors.New("a timeout is negative")
		}
		if *s.Value == 0 {
			*s.Value = s.Standard
		}
	}
	return nil
}

// Error is a call that did not end in the answer that was asked for.
type Error struct {
	Call   string // method and path
	Status int    // HTTP; 0: no answer at all
	Text   string // what the answer says
	Err    error  // of the connection, where there was no answer
}

// Error tells the call and what came of it.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Call, e.Err)
	}
	return fmt.Sprintf("%s: HTTP %d: %s", e.Call, e.Status, e.Text)
}

// Unwrap gives the connection's error.
func (e *Error) Unwrap() error { return e.Err }

// Silent says whether err is of a call that nobody answered, or only somebody who stands in for a server that is gone.
func Silent(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == 0 || e.Status >= http.StatusBadGateway)
}

// Status is the HTTP status of a call's error, 0 for any other error.
func Status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// Marked gives an error of an engine that is as it was before its class: unreachable where nobody answered, else refused.
func Marked(err error) error {
	if Silent(err) {
		return refit.Unreachable(err)
	}
	return refit.Refused(err)
}

// Call makes one call within its timeout and decodes the answer into out, unless that is nil. The error of any answer but
// 200, and of none, is an *Error.
func (s *Server) Call(ctx context.Context, timeout time.Duration, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	call := method + " " + path
	req, err := s.request(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return &Error{Call: call, Err: cause(ctx, err)}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return &Error{Call: call, Err: cause(ctx, err)}
	case resp.StatusCode != http.StatusOK:
		return &Error{Call: call, Status: resp.StatusCode, Text: errorText(b)}
	case len(b) > maxAnswer:
		return fmt.Errorf("%s: an answer of more than %d bytes", call, maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s: answer %.100q: %w", call, b, err)
	}
	return nil
}

func (s *Server) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, payload)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+s.APIKey)
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	return req, nil
}

// cause is why a call ended, where its context knows better than the connection.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// errorText takes the message out of the servers' error answers: {"error":{"message":…}}, {"error":…}, {"detail":…},
// {"message":…}, or text.
func errorText(b []byte) string {
	var wide struct {
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
		Message string          `json:"message"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	text := string(b)
	if json.Unmarshal(b, &wide) == nil {
		switch {
		case json.Unmarshal(wide.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case wide.Message != "":
			text = wide.Message
		case len(wide.Error) > 0:
			text = string(wide.Error)
		case len(wide.Detail) > 0:
			text = string(wide.Detail)
		}
	}
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.TrimSpace(text)
}
