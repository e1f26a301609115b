package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// ucxKinds are ways by which UCX moves host memory alone, and the transport that it knows each as. A list of several is
// cut by the library at its commas, so shared memory, which UCX refuses without another beside it for messages, can't be
// asked for: it is part of what the plug-in chooses by itself, which the finding nixl is about.
var ucxKinds = []struct{ name, tls string }{
	{"tcp", "tcp"},
	{"RDMA cards (rc)", "rc"},
}

// quiet keeps the library from telling what the findings tell. The library reads it once, when it is opened.
var quiet = map[string]string{"UCX_LOG_LEVEL": "fatal", "NIXL_LOG_LEVEL": "FATAL"}

// ucxTransports reads a page by each way alone: what UCX chooses by itself hides what doesn't work.
func ucxTransports(o *Options) Finding {
	l, err := nixl.Open(o.Nixl, o.NixlRoots...)
	if err != nil {
		return finding(None, "not known: there is no library", "see nixl")
	}
	var works, fails []string
	for _, k := range ucxKinds {
		cfg := o.Nixl
		cfg.Params = maps.Clone(o.Nixl.Params)
		if cfg.Params == nil {
			cfg.Params = map[string]string{}
		}
		cfg.Params["engine_config"] = "TLS=" + k.tls
		if err := l.SelfTest(cfg); err != nil {
			fails = append(fails, fmt.Sprintf("%s (%v)", k.name, err))
			continue
		}
		works = append(works, k.name)
	}
	found := "works alone: " + strings.Join(works, ", ")
	if len(works) == 0 {
		return finding(Warn, "none works alone: "+strings.Join(fails, "; "), "UCX_LOG_LEVEL=info tells what UCX finds; UCX_TLS may forbid it")
	}
	if len(fails) > 0 {
		return finding(None, found+"; not: "+strings.Join(fails, "; "), "what works is taken; cards need their driver and /dev/infiniband in the container")
	}
	return good("%s", found)
}

// measuredCosts looks for what refitctl bench rdma saves.
func measuredCosts(o *Options) Finding {
	const measure = "refitctl bench rdma measures and saves them; until then plans rest on presets"
	if o.Costs == "" {
		return finding(None, "not looked for", measure)
	}
	costs, err := rdma.LoadCosts(o.Costs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return finding(None, "not measured: no "+o.Costs, measure)
	case err != nil:
		return finding(Warn, err.Error(), "refitctl bench rdma writes it anew; receivers that start with this file fail")
	}
	var names []string
	for _, c := range costs {
		names = append(names, fmt.Sprintf("%s (%.0f ns a run, %.2f GB/s)", c.Transport, c.Alpha*1e9, 1e-9/max(c.Beta, 1e-18)))
	}
	return good("%s: %s", o.Costs, strings.Join(names, ", "))
}
