package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// capturePoll is how often an engine is asked whether its capture is ready; making one takes it half a minute.
const capturePoll = time.Second

// Capture asks the engine for the capture of its model at its parallel shape, and returns the path of the file on the
// engine's host. The engine makes it where its cache has none, beside its work, until ctx ends.
func (i *Installer) Capture(ctx context.Context) (string, error) {
	if err := i.take(ctx); err != nil {
		return "", err
	}
	defer func() { <-i.token }()
	if err := i.contact(ctx); err != nil {
		return "", marked(err)
	}
	for {
		path, err := i.askCapture(ctx)
		if err != nil {
			return "", marked(fmt.Errorf("ask %s for the capture of its model: %w", i.cfg.URL, err))
		}
		if path != "" {
			return path, nil
		}
		select {
		case <-time.After(capturePoll):
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the capture that %s makes: %w", i.cfg.URL, context.Cause(ctx))
		}
	}
}

// askCapture asks once; an empty path says that it is being made.
func (i *Installer) askCapture(ctx context.Context) (string, error) {
	var a struct {
		Results []json.RawMessage `json:"results"`
	}
	body := map[string]any{"method": "drydock_capture"}
	if err := i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/collective_rpc", body, &a); err != nil {
		return "", err
	}
	var first struct {
		Capture string `json:"capture"`
		File    string `json:"file"`
		Error   string `json:"error"`
	}
	if len(a.Results) == 0 {
		return "", ErrNoBackend
	}
	if err := json.Unmarshal(a.Results[0], &first); err != nil {
		return "", fmt.Errorf("%w: %w", ErrConfused, err)
	}
	switch first.Capture {
	case "running":
		return "", nil
	case "ready":
		return first.File, nil
	case "failed":
		return "", errors.New("it failed: " + first.Error)
	}
	return "", fmt.Errorf("%w: answer %.100s", ErrConfused, a.Results[0])
}
