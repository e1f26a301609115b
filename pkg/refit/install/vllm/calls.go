package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit/install/internal/rest"
)

// backend is how the server's configuration names ours.
const backend = "drydock"

// call makes one call. After one that nobody answered another server may answer the next.
func (i *Installer) call(ctx context.Context, timeout time.Duration, method, path string, body, out any) error {
	err := i.server.Call(ctx, timeout, method, path, body, out)
	if rest.Silent(err) {
		i.trusted = false
	}
	return err
}

// contact asks once what the server is. An engine without the back end must not be asked for more: the missing method
// would raise in its workers, and with several ranks every later answer would go to the wrong call.
func (i *Installer) contact(ctx context.Context) error {
	if i.trusted {
		return nil
	}
	var info struct {
		Config struct {
			Transfer *struct {
				Backend string `json:"backend"`
			} `json:"weight_transfer_config"`
		} `json:"vllm_config"`
	}
	err := i.call(ctx, i.cfg.ContactTimeout, http.MethodGet, "/server_info?config_format=json", nil, &info)
	if rest.Status(err) == http.StatusNotFound {
		return fmt.Errorf("%w: it has no /server_info, so it runs without VLLM_SERVER_DEV_MODE=1", ErrNoBackend)
	}
	if err != nil {
		return err
	}
	if t := info.Config.Transfer; t == nil || t.Backend != backend {
		found := "none"
		if t != nil {
			found = t.Backend
		}
		return fmt.Errorf("%w: weight transfer back end %q, expected --weight-transfer-config '{\"backend\":%q}'", ErrNoBackend, found, backend)
	}
	i.trusted = true
	return nil
}

// world asks for the number of workers, data parallel replicas included.
func (i *Installer) world(ctx context.Context) (int, error) {
	var a struct {
		World int `json:"world_size"`
	}
	err := i.call(ctx, i.cfg.CallTimeout, http.MethodGet, "/get_world_size", nil, &a)
	return a.World, err
}

func (i *Installer) label(ctx context.Context) (string, error) {
	var a struct {
		Version string `json:"weight_version"`
	}
	err := i.call(ctx, i.cfg.CallTimeout, http.MethodGet, "/weight_info", nil, &a)
	return a.Version, err
}

// setLabel names the version to clients, and asks for the name afterwards.
func (i *Installer) setLabel(ctx context.Context, label string) error {
	body := map[string]string{"new_version": label}
	if err := i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/update_weight_version", body, nil); err != nil {
		return err
	}
	got, err := i.label(ctx)
	if err == nil && got != label {
		err = fmt.Errorf("the server shows version %q after it was told %q", got, label)
	}
	return err
}

func (i *Installer) isPaused(ctx context.Context) (bool, error) {
	var a struct {
		Paused bool `json:"is_paused"`
	}
	err := i.call(ctx, i.cfg.CallTimeout, http.MethodGet, "/is_paused", nil, &a)
	return a.Paused, err
}

// pause stops scheduling, by the policy, and clears the caches, which is what makes keep right.
func (i *Installer) pause(ctx context.Context) error {
	query := url.Values{"mode": {string(i.cfg.Drain)}, "clear_cache": {"true"}}
	return i.call(ctx, i.cfg.DrainTimeout, http.MethodPost, "/pause?"+query.Encode(), nil, nil)
}

func (i *Installer) resume(ctx context.Context) error {
	if err := i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/resume", nil, nil); err != nil {
		return err
	}
	paused, err := i.isPaused(ctx)
	if err == nil && paused {
		err = errors.New("the engine is still paused after /resume")
	}
	return err
}

// resetCache drops what was computed with other weights, also of requests that are frozen: without that a server says
// 200 and success false while there are any.
func (i *Installer) resetCache(ctx context.Context) error {
	var a struct {
		Success *bool `json:"success"`
	}
	err := i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/reset_prefix_cache?reset_running_requests=true", nil, &a)
	if err == nil && (a.Success == nil || !*a.Success) {
		err = errors.New("the server did not reset its prefix cache")
	}
	return err
}

// init claims the engine for this owner. The answer says nothing; the statuses do.
func (i *Installer) init(ctx context.Context, root string) error {
	body := map[string]any{"init_info": map[string]any{"root": root, "owner": i.cfg.Owner, "take_over": i.cfg.TakeOver}}
	return i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/init_weight_transfer_engine", body, nil)
}

func (i *Installer) start(ctx context.Context) error {
	return i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/start_weight_update", nil, nil)
}

func (i *Installer) update(ctx context.Context, list []announcement) error {
	return i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/update_weights", map[string]any{"update_info": list}, nil)
}

// finish closes the update; every rank applies what it has staged, if anything. The label is not set by it: the server
// would show it whatever the ranks did.
func (i *Installer) finish(ctx context.Context, timeout time.Duration) error {
	return i.call(ctx, timeout, http.MethodPost, "/finish_weight_update", map[string]any{}, nil)
}

// rpc calls a method of every worker. No timeout is passed on: vLLM's executor would leave late answers for the next call.
func (i *Installer) rpc(ctx context.Context, timeout time.Duration, method string, args map[string]string) ([]status, error) {
	i.calls++
	nonce := fmt.Sprintf("%s-%d", i.nonce, i.calls)
	kwargs := map[string]string{"nonce": nonce}
	maps.Copy(kwargs, args)
	var a struct {
		Results []json.RawMessage `json:"results"`
	}
	body := map[string]any{"method": method, "kwargs": kwargs}
	if err := i.call(ctx, timeout, http.MethodPost, "/collective_rpc", body, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	list := make([]status, len(a.Results))
	for k, raw := range a.Results {
		if err := json.Unmarshal(raw, &list[k]); err != nil {
			return nil, fmt.Errorf("%s: %w: rank %d answered %.100s", method, ErrConfused, k, raw)
		}
		if list[k].Nonce != nonce {
			return nil, fmt.Errorf("%s: %w: rank %d answered call %q, asked was %q; restart the engine", method, ErrConfused, k, list[k].Nonce, nonce)
		}
	}
	return list, checkProtocol(list)
}

func (i *Installer) statuses(ctx context.Context) ([]status, error) {
	return i.rpc(ctx, i.cfg.CallTimeout, "drydock_status", nil)
}
