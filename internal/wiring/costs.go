package wiring

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// Costs says where a receiver finds what its transports cost.
type Costs struct {
	Costs string `help:"Measured costs of the transports, as refitctl bench rdma saves them. Default: drydock/costs.json in the user's cache folder, where it exists." placeholder:"FILE"`
}

// systemCosts is where costs are kept on behalf of users without a cache folder, as services often are.
const systemCosts = "/var/lib/drydock/costs.json"

// CostsFile is where refitctl bench rdma saves costs, and receivers look for them, unless told otherwise.
func CostsFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return systemCosts
	}
	return filepath.Join(dir, "drydock", "costs.json")
}

// CostTable is what the planner is told of transports, by name.
type CostTable map[string]plan.Costs

// LoadCosts reads the file that was named, which must be there, or else the default one, if it is there.
func (c *Costs) LoadCosts(log *slog.Logger) (CostTable, error) {
	path := c.Costs
	if path == "" {
		path = CostsFile()
	}
	measured, err := rdma.LoadCosts(path)
	if c.Costs == "" && errors.Is(err, fs.ErrNotExist) {
		log.Debug("no measured costs of transports: the planner takes its presets", "file", path)
		return CostTable{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w (refitctl bench rdma measures them)", err)
	}
	log.Info("the planner takes measured costs of transports", "file", path, "transports", len(measured))
	return costTable(measured), nil
}

// costTable replaces in the presets what was measured. A measurement of plain copies gives the price of staging.
func costTable(measured []rdma.Cost) CostTable {
	t, copied := CostTable{}, rdma.Cost{}
	for _, m := range measured {
		if m.Transport == rdma.CopyCost {
			copied = m
		}
	}
	for _, m := range measured {
		if m.Transport == rdma.CopyCost {
			continue
		}
		c := preset(m.Transport)
		c.PerRun, c.PerByte = nanos(m.Alpha), nanos(m.Beta)
		if copied.Beta > 0 {
			c.PerStaged, c.PerScatterRun = nanos(copied.Beta), nanos(copied.Alpha)
		}
		t[m.Transport] = c
	}
	return t
}

// nanos makes seconds nanoseconds. What was too cheap to be seen still costs something: nothing is free to the planner.
func nanos(seconds float64) float64 { return max(seconds*1e9, 1e-3) }

// Of is what reads by a transport cost: as measured, or its preset.
func (t CostTable) Of(transport string) plan.Costs {
	if c, ok := t[transport]; ok {
		return c
	}
	return preset(transport)
}

func preset(transport string) plan.Costs {
	switch transport {
	case local.Name:
		return plan.CostsLocal
	case nixl.Name:
		return plan.CostsFlat
	default:
		return plan.CostsStrided
	}
}
