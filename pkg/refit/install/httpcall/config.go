package httpcall

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"gopkg.in/yaml.v3"
)

// Config is a list of calls. Steps is needed.
type Config struct {
	Steps  []Step       `yaml:"steps"`
	Client *http.Client `yaml:"-"` // its redirect policy is not used; nil: a new connection for each call
}

// Step is one call.
type Step struct {
	Name       string            `yaml:"name"`       // for errors; default method and path
	Method     string            `yaml:"method"`     // default POST
	URL        string            `yaml:"url"`        // template
	Header     map[string]string `yaml:"header"`     // values are templates
	Body       string            `yaml:"body"`       // template; with one, Content-Type is application/json unless Header says else
	Status     []int             `yaml:"status"`     // that mean yes; default every 2xx
	Fields     map[string]string `yaml:"fields"`     // of a JSON answer, by path ("results.0.state"): template of the value it must have
	Timeout    time.Duration     `yaml:"timeout"`    // of one attempt; default 30 s
	Attempts   int               `yaml:"attempts"`   // of an idempotent step; default 3
	Idempotent bool              `yaml:"idempotent"` // may be sent twice; GET, HEAD, PUT and DELETE are so anyway
	Changes    bool              `yaml:"changes"`    // once this is sent, other weights may serve
	Pause      Edge              `yaml:"pause"`      // the engine stands still from this step's request, or until its answer
	PauseField string            `yaml:"pause_ms"`   // path of a number in the answer: how long the engine stood still, ms; it has the last word
	OnFailure  []Step            `yaml:"on_failure"` // undo this step
}

// Edge is where a pause begins or ends.
type Edge string

// The edges of a pause.
const (
	PauseBegins Edge = "begin"
	PauseEnds   Edge = "end"
)

// Limits of a configuration and of what engines answer.
const (
	maxConfig = 1 << 20 // bytes
	maxSteps  = 64      // undoing ones included
	maxAnswer = 4 << 20 // bytes that are looked at of a body
	headBytes = 512     // of a body in an error
)

// Load reads a configuration in YAML. What it doesn't know is refused.
func Load(r io.Reader) (Config, error) {
	var c Config
	d := yaml.NewDecoder(io.LimitReader(r, maxConfig))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("read the steps of the http installer: %w", err)
	}
	return c, nil
}

// check refuses what can't work, before any engine is asked.
func (c *Config) check() error {
	if len(c.Steps) == 0 {
		return errors.New("no steps")
	}
	left := maxSteps
	return checkSteps(c.Steps, &left, false)
}

func checkSteps(steps []Step, left *int, undoing bool) error {
	for i := range steps {
		s := &steps[i]
		if *left--; *left < 0 {
			return fmt.Errorf("more than %d steps", maxSteps)
		}
		switch {
		case s.URL == "":
			return fmt.Errorf("step %d %q has no url", i, s.Name)
		case s.Timeout < 0 || s.Attempts < 0:
			return fmt.Errorf("step %d %q: timeout %v, %d attempts: neither may be negative", i, s.Name, s.Timeout, s.Attempts)
		case s.Pause != "" && s.Pause != PauseBegins && s.Pause != PauseEnds:
			return fmt.Errorf("step %d %q: pause %q, expected %s or %s", i, s.Name, s.Pause, PauseBegins, PauseEnds)
		case undoing && (len(s.OnFailure) > 0 || s.Changes):
			return fmt.Errorf("step %d %q undoes another: it can neither be undone nor change weights", i, s.Name)
		}
		if err := checkSteps(s.OnFailure, left, true); err != nil {
			return fmt.Errorf("on_failure of step %d %q: %w", i, s.Name, err)
		}
	}
	return nil
}
