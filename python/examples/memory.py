"""Memory that readers of this host map, served as docs/wire.md section 7 wants it: the transport `local`.

Nothing runs for it. The reader opens the two files through /proc/<pid>/fd, and looks at the control page before and after each read.
"""
import os, struct

SERVED, WITHDRAWN = 1, 2
STATE, NAME, REGIONS, PAGE = 8, 9, 256, 256 + (32 << 10)  # of the control page, in bytes


def regular_file(fd):
    st = os.fstat(fd)
    return struct.pack("<iQQ", fd, st.st_dev, st.st_ino)


def host_id():
    """The running kernel: equal for all processes that may map each other's memory."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


class Memory:
    """One region of a publisher that lives as long as its process, or until withdraw()."""

    def __init__(self, contents, incarnation):
        self.base, self.nbytes = 1 << 32, max(1, len(contents))  # any address: the region has a file, and is found by it
        self.region, self.control = os.memfd_create("weights"), os.memfd_create("control")
        os.truncate(self.control, PAGE)
        os.truncate(self.region, self.nbytes)
        name = incarnation.encode()
        os.pwrite(self.control, b"DRYLOCL1" + bytes([SERVED, len(name)]) + name, 0)
        for at in range(0, len(contents), 1 << 30):  # the kernel takes at most 2 GiB at once
            os.pwrite(self.region, contents[at:at + (1 << 30)], at)
        os.pwrite(self.control, bytes([SERVED]), REGIONS)

    def access(self):
        with open("/proc/self/stat") as f:
            began = int(f.read().rpartition(")")[2].split()[19])  # field 22 of stat, of which 3 and on stand here
        namespace = os.stat("/proc/self/ns/pid").st_ino
        head = struct.pack("<BIQQ", 1, os.getpid(), began, namespace) + regular_file(self.control)
        return head + struct.pack("<I", 1) + regular_file(self.region) + struct.pack("<Qq", self.base, self.nbytes)

    def withdraw(self):
        os.pwrite(self.control, bytes([WITHDRAWN]), STATE)
