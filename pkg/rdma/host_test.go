package rdma

import (
	"os"
	"testing"
)

func TestHostsHaveNamesForPeople(t *testing.T) {
	t.Parallel()
	id, err := HostID()
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		t.Skip("this host has no name")
	}
	if got := HostName(id); got != name {
		t.Errorf("this host is called %q, want %q", got, name)
	}
	if got := HostName("host-a"); got != "host-a" {
		t.Errorf("another host is called %q, want its id", got)
	}
}
