package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

// Limits of what is read of an answer. A status of 1,000 ranks takes some 500 KB; /server_info a few hundred.
const (
	maxAnswer = 64 << 20
	maxText   = 1 << 10 // of an error's text
)

// call makes one call within its timeout and decodes the answer into out, unless that is nil.
func (i *Installer) call(ctx context.Context, timeout time.Duration, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	name := method + " " + path
	req, err := i.request(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	resp, err := i.cfg.Client.Do(req)
	if err != nil {
		i.trusted = false // another server may answer next
		return &callError{call: name, err: cause(ctx, err)}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		i.trusted = false
		return &callError{call: name, err: cause(ctx, err)}
	case resp.StatusCode != http.StatusOK:
		return &callError{call: name, status: resp.StatusCode, text: errorText(b)}
	case len(b) > maxAnswer:
		return fmt.Errorf("%s: an answer of more than %d bytes", name, maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s: answer %.100q: %w", name, b, err)
	}
	return nil
}

func (i *Installer) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, i.cfg.URL+path, payload)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if i.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+i.cfg.APIKey)
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

// errorText takes the message out of vLLM's error answers: {"error":{"message":…}}, {"error":…}, {"detail":…}, or text.
func errorText(b []byte) string {
	var wide struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	text := string(b)
	if json.Unmarshal(b, &wide) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(wide.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
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
