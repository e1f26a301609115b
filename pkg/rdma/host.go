package rdma

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// HostID names the running kernel: equal for all processes of one host, containers included, and new after a reboot.
func HostID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the host's boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// HostName is the name by which people know the host with an id: the kernel's own name where the id is this host's, else the
// id as it is. Containers of one host share its id and have names of their own.
func HostName(id string) string {
	if own, err := HostID(); err != nil || own != id {
		return id
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return id
}

// NewIncarnation names one life of an endpoint: 16 random bytes in hex.
func NewIncarnation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}
