package vllmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

type object = map[string]any

func failed(err error) (int, any) {
	return http.StatusInternalServerError, object{"error": object{"message": err.Error()}}
}

// answer does the work of a call, under the lock.
func (e *Engine) answer(r *http.Request, body []byte, method string, kwargs map[string]string) (int, any) {
	if !e.Dev {
		return http.StatusNotFound, object{"detail": "Not Found"}
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /server_info":
		var transfer any
		if e.Backend != "" {
			transfer = object{"backend": e.Backend}
		}
		return http.StatusOK, object{"vllm_config": object{"weight_transfer_config": transfer}}
	case "GET /get_world_size":
		return http.StatusOK, object{"world_size": len(e.ranks) * max(e.DP, 1)}
	case "GET /weight_info":
		return http.StatusOK, object{"weight_version": e.label}
	case "GET /is_paused":
		return http.StatusOK, object{"is_paused": e.paused}
	case "POST /collective_rpc":
		return e.rpc(method, kwargs)
	case "POST /pause":
		return e.pause(r.URL.Query().Get("mode"), r.URL.Query().Get("clear_cache"))
	case "POST /resume":
		e.paused = false
		return http.StatusOK, object{"status": "resumed"}
	case "POST /reset_prefix_cache":
		ok := e.running == 0 || r.URL.Query().Get("reset_running_requests") == "true"
		e.stale = e.stale && !ok
		return http.StatusOK, object{"success": ok}
	case "POST /update_weight_version":
		var in struct {
			Version string `json:"new_version"`
		}
		if err := json.Unmarshal(body, &in); err != nil {
			return http.StatusBadRequest, object{"detail": err.Error()}
		}
		e.label = in.Version
		return http.StatusOK, object{"success": true, "new_version": in.Version}
	}
	return e.transfer(r.URL.Path, body)
}

func (e *Engine) pause(mode, clearCache string) (int, any) {
	switch mode {
	case "wait":
		e.running = 0 // they run to their end
	case "abort":
		e.aborted += e.running
		e.running = 0
	case "keep":
	default:
		return http.StatusBadRequest, object{"error": "mode " + mode}
	}
	if clearCache == "true" {
		e.stale = false
	}
	e.paused = true
	return http.StatusOK, object{"status": "paused"}
}

// transfer does the calls of weight transfer: each is a call to all workers.
func (e *Engine) transfer(path string, body []byte) (int, any) {
	if e.Backend == "" {
		_, err := e.collective(path, func(*Rank) (any, error) { return nil, fmt.Errorf("Weight transfer not configured") }) //nolint:staticcheck // vLLM's words
		return failed(err)
	}
	var in struct {
		Init   *initInfo       `json:"init_info"`
		Update []*announcement `json:"update_info"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			return http.StatusBadRequest, object{"detail": err.Error()}
		}
	}
	do, ok := map[string]func(*Rank) error{
		"/init_weight_transfer_engine": func(r *Rank) error { r.init(in.Init.Root, in.Init.Owner, in.Init.TakeOver); return nil },
		"/start_weight_update":         (*Rank).start,
		"/update_weights": func(r *Rank) error {
			if r.rank >= len(in.Update) {
				return fmt.Errorf("list index out of range")
			}
			return r.update(in.Update[r.rank])
		},
		"/finish_weight_update": func(r *Rank) error {
			before := r.weights
			err := r.finish()
			e.stale = e.stale || r.weights != before && (!e.paused || e.running > 0)
			return err
		},
	}[path]
	if !ok {
		return http.StatusNotFound, object{"detail": "Not Found"}
	}
	if _, err := e.collective(path[1:], func(r *Rank) (any, error) { return nil, do(r) }); err != nil {
		return failed(err)
	}
	return http.StatusOK, object{"message": "done"}
}

type initInfo struct {
	Root     string `json:"root"`
	Owner    string `json:"owner"`
	TakeOver bool   `json:"take_over"`
}

// rpc calls a method of the workers.
func (e *Engine) rpc(method string, kwargs map[string]string) (int, any) {
	do, ok := map[string]func(*Rank){
		"drydock_status":  func(*Rank) {},
		"drydock_abort":   (*Rank).abort,
		"drydock_undo":    func(r *Rank) { r.undo(kwargs["label"]) },
		"drydock_done":    func(r *Rank) { r.inHand = "" },
		"drydock_capture": func(*Rank) {},
	}[method]
	values, err := e.collective(method, func(r *Rank) (any, error) {
		if !ok || e.Backend != "drydock" {
			return nil, fmt.Errorf("'Worker' object has no attribute '%s'", method)
		}
		do(r)
		status := r.status(kwargs["nonce"], len(e.ranks))
		if method == "drydock_capture" && r.rank == 0 {
			e.capture(status)
		}
		return status, nil
	})
	if err != nil {
		return failed(err)
	}
	return http.StatusOK, object{"results": values}
}

// capture answers one of Captures after the other; the last one again and again.
func (e *Engine) capture(status object) {
	if len(e.Captures) == 0 {
		return
	}
	maps.Copy(status, e.Captures[0])
	if len(e.Captures) > 1 {
		e.Captures = e.Captures[1:]
	}
}
