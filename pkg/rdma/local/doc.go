// Package local is the transport between processes of one host: the reader maps the publisher's shared memory, or asks
// the kernel to copy from it, and moves strided segments straight into the destination, on all cores, in one copy.
//
// Nothing runs in the publisher. Its Access names the process (id, start time and pid namespace), and the descriptors
// of its files with their inodes; the reader opens them through /proc/PID/fd, which the kernel allows to those whom it
// would allow to read that process's memory. No capability travels, and none is needed.
//
// # Ways
//
//   - map: memory with a file behind it (memfd, named file) is mapped read-only, each region once for a peer.
//   - vmread: anonymous memory is read by process_vm_readv, where the kernel's ptrace rules allow that.
//
// # Law
//
// A read is bracketed: before its first byte and after its last, the reader asks whether the process lives (a pidfd)
// and whether the regions are still served (the control page, a small memfd of the publisher with its incarnation and
// a byte for each region). What changed in between fails the read.
//
// The death of the publisher can't hurt the reader: mapped pages stay valid. A file that is shortened while it is
// mapped makes the copy fault; the fault is caught and fails the read. Memfds of rdma.Alloc are sealed against that.
//
// Connect answers ErrUnavailable, with the reason, where this can't work: another host, another pid namespace, no
// permission. It never guesses.
package local
