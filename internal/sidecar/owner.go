package sidecar

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// owner is the process that attached to an arena. A process number alone may be given to somebody else later; the time at
// which it started tells them apart.
type owner struct {
	pid   int    // 0: not visible from here, as in another container
	start uint64 // clock ticks after boot
	seen  time.Time
	gone  time.Time // zero: not known to be gone
}

func newOwner(pid int, now time.Time) owner {
	o := owner{pid: pid, seen: now}
	var err error
	if o.start, err = startTime(pid); err != nil {
		o.pid = 0
	}
	return o
}

// look notes whether the process is gone.
func (o *owner) look(now time.Time) {
	if o.pid == 0 || !o.gone.IsZero() {
		return
	}
	if start, err := startTime(o.pid); err != nil || start != o.start {
		o.gone = now
	}
}

// alive says whether the process is known to live; false where nothing is known.
func (o *owner) alive() bool { return o.pid != 0 && o.gone.IsZero() }

// orphaned says whether an arena has nobody any more: its process ended grace ago, or has shown no sign for idle where it
// can't be seen.
func (o *owner) orphaned(now time.Time, grace, idle time.Duration) bool {
	if o.pid == 0 {
		return now.Sub(o.seen) > idle
	}
	return !o.gone.IsZero() && now.Sub(o.gone) >= grace
}

// startTime reads when a process started. Zombies count as gone.
func startTime(pid int) (uint64, error) {
	if pid <= 0 {
		return 0, fmt.Errorf("process %d", pid)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("look for process %d: %w", pid, err)
	}
	// The name, in brackets, may hold anything; what follows it are the fields from the third on.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, started = 0, 19
	if len(fields) <= started || fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(string(fields[started]), 10, 64)
}

// peer is who is at the other end of a connection.
func peer(c net.Conn) (pid int, uid uint32, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, 0, errors.New("not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("look at the connection: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return 0, 0, fmt.Errorf("ask who connects: %w", err)
	}
	return int(cred.Pid), cred.Uid, nil
}
