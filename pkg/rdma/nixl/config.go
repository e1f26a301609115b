package nixl

import (
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Name is the transport's name.
const Name = "nixl"

// Config says where the library is and how it is used. The zero value reads, over UCX, with a library that is found.
type Config struct {
	Library string            // path of libnixl_capi.so; default: the first of Candidates that opens
	Plugin  string            // default "UCX"
	Params  map[string]string // of the plug-in, such as engine_config
	Env     map[string]string // C environment, where unset; added to the package's defaults

	Listen      string   // address of the control channel, such as ":0"; "" serves nothing
	Advertise   []string // its addresses as readers try them; default: those of all interfaces
	Secure      bool     // control channel over TLS
	Incarnation string   // this life of the endpoint; default rdma.NewIncarnation()

	// Probe is a command that calls ProbeMain: it tries out the metadata of each endpoint that is met for the first time, in a
	// process of its own, which the library may end. Default: none, for processes that trust whoever announces endpoints.
	Probe []string

	Agents  int           // reading agents; peers are spread over them; default 2
	Stall   time.Duration // a request in progress so long is given up, its memory quarantined; default 30 s
	Ceiling int64         // bytes/s that the fabric can't exceed; faster reads are false completions; 0: unknown

	Logger *slog.Logger // default: none
}

// defaultEnv keeps UCX off what belongs to the Go runtime, and quiet below errors.
var defaultEnv = map[string]string{
	"UCX_ERROR_SIGNALS":        "",
	"UCX_HANDLE_ERRORS":        "none",
	"UCX_MEM_EVENTS":           "n",
	"UCX_MEM_MMAP_HOOK_MODE":   "none",
	"UCX_WARN_UNUSED_ENV_VARS": "n",
	"UCX_LOG_LEVEL":            "error",
	"NIXL_LOG_LEVEL":           "ERROR",
}

func orDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (c *Config) validate() error {
	orDefault(&c.Plugin, "UCX")
	orDefault(&c.Incarnation, rdma.NewIncarnation())
	orDefault(&c.Agents, 2)
	orDefault(&c.Stall, 30*time.Second)
	orDefault(&c.Logger, slog.New(slog.DiscardHandler))
	if c.Agents < 1 || c.Agents > 256 || c.Stall < 0 || c.Ceiling < 0 {
		return fmt.Errorf("%d agents, stall %v, ceiling %d bytes/s", c.Agents, c.Stall, c.Ceiling)
	}
	return nil
}

// env is the C environment for a library whose plug-ins are in a folder; "" for unknown.
func (c *Config) env(plugins string) map[string]string {
	env := maps.Clone(defaultEnv)
	if plugins != "" {
		env["NIXL_PLUGIN_DIR"] = plugins
	}
	maps.Copy(env, c.Env)
	return env
}
