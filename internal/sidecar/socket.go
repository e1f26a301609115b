package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxSocketPath is what the kernel allows for the name of a Unix socket, in bytes.
const maxSocketPath = 107

// Listener is a Unix socket that only this user can open, and that one process serves.
type Listener struct {
	*net.UnixListener
	path string
	lock *os.File
	once sync.Once
}

// Listen makes the socket. What an earlier process has left is replaced; one that another process serves is not.
func Listen(path string) (*Listener, error) {
	if path == "" || len(path) > maxSocketPath-len(".new") {
		return nil, fmt.Errorf("listen on socket %q: its name has %d bytes, at most %d are possible", path, len(path), maxSocketPath-len(".new"))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: another process serves it: %w", path, err)
	}
	l, err := bind(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on socket %s: %w", path, err), lock.Close())
	}
	return &Listener{UnixListener: l, path: path, lock: lock}, nil
}

// bind gives the socket its name only when its mode is right, so that nobody else gets in before.
func bind(path string) (*net.UnixListener, error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return l, nil
}

// Close ends the socket, once; the server that is given it does so too. Its lock file stays: removing it would let two
// processes hold locks of the same name.
func (l *Listener) Close() (err error) {
	l.once.Do(func() { err = errors.Join(l.UnixListener.Close(), os.Remove(l.path), l.lock.Close()) })
	return err
}

// callerKey is the context's key of the process that is connected.
type callerKey struct{}

// pidOf is the process at the other end, 0 where it can't be seen.
func pidOf(ctx context.Context) int {
	pid, _ := ctx.Value(callerKey{}).(int)
	return pid
}

// Serve answers requests on the listener until ctx ends, and then lets those in flight finish, within a second. Connections
// of other users are cut: the socket's mode keeps them out, this does where a folder was mounted carelessly.
func (s *Sidecar) Serve(ctx context.Context, l *Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			pid, uid, err := peer(c)
			if err != nil || int(uid) != os.Geteuid() && uid != 0 {
				s.cfg.Logger.Warn("connection cut: it is of another user", "uid", uid, "error", err)
				_ = c.Close()
			}
			return context.WithValue(ctx, callerKey{}, pid)
		},
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", l.path, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := server.Shutdown(last)
	if err != nil { // long polls
		err = server.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
