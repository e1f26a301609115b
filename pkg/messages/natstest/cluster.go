package natstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Cluster is three nats-server processes with JetStream, built from the pinned module.
// They are real processes, so that they can be killed.
type Cluster struct {
	tb    testing.TB
	exe   string
	nodes []*node
}

type node struct {
	name    string
	config  string
	port    int
	monitor int
	mu      sync.Mutex
	cmd     *exec.Cmd
	gone    chan struct{} // the process has ended
}

// build makes the server of the module that go.mod pins. The toolchain's cache keeps it,
// so that only the first build takes long.
func build(tb testing.TB) string {
	tb.Helper()
	exe := filepath.Join(tb.TempDir(), "nats-server")
	out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", exe, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		tb.Fatalf("build nats-server: %v: %s", err, out)
	}
	return exe
}

// StartCluster runs a cluster that ends with the test.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, exe: build(tb)}
	const size = 3
	ports := freePorts(tb, 3*size)
	var routes []string
	for i := range size {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[size+i]))
	}
	for i := range size {
		n := &node{name: fmt.Sprintf("n%d", i), port: ports[i], monitor: ports[2*size+i]}
		dir := tb.TempDir()
		n.config = filepath.Join(dir, "nats.conf")
		conf := fmt.Sprintf(`server_name: %s
listen: 127.0.0.1:%d
http: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always }
cluster { name: test, listen: 127.0.0.1:%d, routes: [%s] }
`, n.name, n.port, n.monitor, filepath.Join(dir, "js"), ports[size+i], strings.Join(routes, ", "))
		if err := os.WriteFile(n.config, []byte(conf), 0o600); err != nil {
			tb.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
	}
	for i := range c.nodes {
		c.Start(i)
	}
	tb.Cleanup(func() {
		for i := range c.nodes {
			c.Kill(i)
		}
	})
	c.awaitReady()
	return c
}

// freePorts finds ports that were free a moment ago.
func freePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			tb.Fatalf("listening on %v", l.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports
}

// URL lists all servers.
func (c *Cluster) URL() string {
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", n.port))
	}
	return strings.Join(urls, ",")
}

// Start runs a server that is not running.
func (c *Cluster) Start(i int) {
	n := c.nodes[i]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return
	}
	cmd := exec.Command(c.exe, "-c", n.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.tb.Errorf("start %s: %v", n.name, err)
		return
	}
	n.cmd, n.gone = cmd, make(chan struct{})
	go func(gone chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(gone)
	}(n.gone)
}

// Kill ends a server with SIGKILL and waits until it is gone.
func (c *Cluster) Kill(i int) {
	n := c.nodes[i]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // fails only when it is gone already
	<-n.gone
	n.cmd = nil
}

// Stop freezes a server, or lets it go on: to the others it is one whose machine, or
// whose disk, has come to a halt.
func (c *Cluster) Stop(i int, frozen bool) {
	n := c.nodes[i]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	_ = n.cmd.Process.Signal(sig) // fails only when it is gone
}

// awaitReady waits until the cluster has a JetStream leader that knows all servers.
func (c *Cluster) awaitReady() {
	c.tb.Helper()
	ctx := Context(c.tb, time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.ready()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.tb.Fatalf("the cluster did not come up: %v", err)
		}
	}
}

func (c *Cluster) ready() error {
	for i := range c.nodes {
		var info struct {
			Meta *struct {
				Leader string `json:"leader"`
				Size   int    `json:"cluster_size"`
			} `json:"meta_cluster"`
		}
		if err := c.monitor(i, "jsz", &info); err != nil {
			return err
		}
		if info.Meta == nil || info.Meta.Leader == "" || info.Meta.Size != len(c.nodes) {
			return fmt.Errorf("%s has no JetStream leader yet", c.nodes[i].name)
		}
	}
	return nil
}

// Leader is the number of the server that leads a stream, as far as the servers but those
// excepted know; -1 when there is none. An excepted one is not asked, and does not count.
func (c *Cluster) Leader(stream string, except ...int) int {
	for i := range c.nodes {
		if slices.Contains(except, i) {
			continue
		}
		var info struct {
			Accounts []struct {
				Streams []struct {
					Name    string `json:"name"`
					Cluster *struct {
						Leader string `json:"leader"`
					} `json:"cluster"`
				} `json:"stream_detail"`
			} `json:"account_details"`
		}
		if c.monitor(i, "jsz?streams=true&accounts=true", &info) != nil {
			continue
		}
		for _, a := range info.Accounts {
			for _, s := range a.Streams {
				if s.Name == stream && s.Cluster != nil && s.Cluster.Leader == c.nodes[i].name {
					return i
				}
			}
		}
	}
	return -1
}

func (c *Cluster) monitor(i int, path string, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/%s", c.nodes[i].monitor, path), http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}
