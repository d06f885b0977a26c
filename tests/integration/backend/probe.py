# SPDX-License-Identifier: Apache-2.0
"""What hostile code tries, from inside a sandbox. Prints one line for each check that it should not
have passed, and "done" at the end.

Arguments: the user it runs as, then KEY=VALUE about what the outside has planted.
"""
import ctypes
import errno
import os
import socket
import stat
import struct
import subprocess
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
user = sys.argv[1]
planted = dict(item.split("=", 1) for item in sys.argv[2:])
ranged = planted.get("ranged") == "1"


def check(name, fine, detail=""):
    if not fine:
        print(f"ESCAPE {name} {detail}")


def call(number, *args):
    ctypes.set_errno(0)
    converted = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *converted)
    return result, ctypes.get_errno()


def refused(name, number, *args, codes=(errno.EPERM, errno.ENOSYS, errno.EACCES)):
    """In a child, so that a call which succeeds changes nothing for the others."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        result, code = call(number, *args)
        os.write(writer, struct.pack("qi", result, code))
        os._exit(0)
    os.close(writer)
    data = os.read(reader, 16)
    os.close(reader)
    os.waitpid(pid, 0)
    if len(data) < 12:
        return
    result, code = struct.unpack("qi", data)
    check(name, result == -1 and code in codes, f"result {result} errno {code}")


def cannot(name, action, *exceptions):
    try:
        result = action()
    except (OSError, ValueError) as e:
        return e
    check(name, False, repr(result)[:80])


def readable(path):
    try:
        with open(path, "rb") as f:
            return f.read(65536)
    except OSError:
        return None


def inherited():
    check("descriptors", set(os.listdir("/proc/self/fd")) <= {"0", "1", "2", "3", "4"}, str(os.listdir("/proc/self/fd")))


# --- kernel surface -------------------------------------------------------------------------------

def surface():
    CLONE = {"ns": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "time": 0x80}
    refused("mount tmpfs", 165, b"none", b"/tmp", b"tmpfs", 0, 0)
    refused("mount proc", 165, b"proc", b"/tmp", b"proc", 0, 0)
    refused("mount bind", 165, b"/etc", b"/tmp", b"", 4096, 0)
    refused("remount", 165, b"", b"/", b"", 32, 0)
    refused("umount /proc", 166, b"/proc", 2)
    refused("umount mask", 166, b"/proc/keys", 2)
    for name, number in {"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "statmount": 457, "listmount": 458}.items():
        refused(name, number, 0, b"tmpfs", 0, 0, 0)
    for name, flag in CLONE.items():
        refused("unshare " + name, 272, flag)
        if name != "time":
            refused("clone " + name, 56, flag | 17, 0, 0, 0, 0)
    args = struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    refused("clone3 user", 435, args, len(args))
    refused("setns", 308, 0, 0)
    refused("bpf", 321, 0, bytes(128), 128)
    refused("io_uring", 425, 8, bytes(256))
    refused("userfaultfd", 323, 0)
    refused("userfaultfd user mode", 323, 1)
    refused("perf_event_open", 298, bytes(128), 0, -1, -1, 0)
    refused("fanotify", 300, 0, 0)
    refused("kexec_load", 246, 0, 0, 0, 0)
    refused("kexec_file_load", 320, 0, 0, 0, 0, 0)
    refused("init_module", 175, b"x", 1, b"")
    refused("finit_module", 313, 0, b"", 0)
    refused("delete_module", 176, b"x", 0)
    refused("reboot", 169, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0)
    refused("swapon", 167, b"/tmp/x", 0)
    refused("acct", 163, 0)
    refused("quotactl", 179, 0, 0, 0, 0)
    refused("syslog", 103, 3, bytes(64), 64)
    refused("clock_settime", 227, 0, bytes(16))
    refused("settimeofday", 164, bytes(16), 0)
    refused("adjtimex", 159, bytes(256))
    refused("iopl", 172, 3)
    refused("ioperm", 173, 0, 1, 1)
    refused("modify_ldt", 154, 0, bytes(16), 16)
    refused("pivot_root", 155, b"/tmp", b"/tmp")
    refused("keyctl", 250, 0, -3, 0)
    refused("add_key", 248, b"user", b"x", b"y", 1, -3)
    refused("request_key", 249, b"user", b"x", 0, 0)
    refused("name_to_handle_at", 303, -100, b"/", bytes(256), bytes(8), 0)
    handle = struct.pack("IiQ", 8, 1, 2)
    refused("open_by_handle_at", 304, os.open("/", os.O_RDONLY), handle, 0)
    refused("ptrace init", 101, 16, 1, 0, 0)
    refused("ptrace seize", 101, 0x4206, 1, 0, 0)
    refused("process_vm_readv", 310, 1, bytes(16), 1, bytes(16), 1, 0)
    refused("process_vm_writev", 311, 1, bytes(16), 1, bytes(16), 1, 0)
    refused("kcmp", 312, 1, os.getpid(), 0, 0, 0)
    pidfd, _ = call(434, 1, 0)
    if pidfd >= 0:
        refused("pidfd_getfd", 438, pidfd, 3, 0)
        os.close(pidfd)
    refused("personality 32", 135, 8)
    refused("vhangup", 153)
    refused("lookup_dcookie", 212, 0, 0, 0)
    refused("sched fifo", 144, 0, 1, struct.pack("i", 1))
    refused("ioprio realtime", 251, 1, 0, 1 << 13)
    refused("sethostname", 170, b"x", 1)
    refused("setdomainname", 171, b"x", 1)
    refused("chroot" if user != "root" else "swapoff", 161 if user != "root" else 168, b"/tmp")
    refused("x32 getpid", 0x40000000 + 39)
    for name, args in {"packet": (17, 3, 0), "packet dgram": (17, 2, 0), "raw": (2, 3, 1), "raw6": (10, 3, 58), "alg": (38, 5, 0), "vsock": (40, 1, 0), "key": (15, 3, 2), "xdp": (44, 3, 0), "netlink generic": (16, 3, 16), "netlink audit": (16, 3, 9), "netlink netfilter": (16, 3, 12), "netlink kobject": (16, 3, 15), "sctp": (2, 1, 132), "sctp seq": (2, 5, 132), "dccp": (2, 6, 33), "udplite": (2, 2, 136), "mptcp": (2, 1, 262), "icmp": (2, 2, 1), "bluetooth": (31, 3, 0), "can": (29, 3, 1), "tipc": (30, 2, 0), "rds": (21, 5, 0), "nfc": (39, 3, 0), "smc": (43, 1, 0), "qipcrtr": (42, 2, 0)}.items():
        refused("socket " + name, 41, *args, codes=(errno.EPERM, errno.EPROTONOSUPPORT))
    for name, number in {"memfd_secret": 447, "pidfd_getfd": 438, "process_madvise": 440, "quotactl_fd": 443, "landlock-free ustat": 136, "sysfs": 139, "_sysctl": 156, "nfsservctl": 180, "create_module": 174, "uselib": 134, "vserver": 236, "move_pages": 279, "migrate_pages": 256, "set_mempolicy_home_node": 450, "cachestat": 451, "lsm_set_self_attr": 460, "open_tree_attr": 467, "file_setattr": 469, "io_uring_enter": 426, "io_uring_register": 427, "io_setup": 206, "io_submit": 209, "io_pgetevents": 333, "fanotify_mark": 301, "rseq_slice": 471}.items():
        refused(name, number, 0, 0, 0, 0, 0)
    refused("mmap of huge pages", 9, 0, 1 << 21, 3, 0x40022, -1, 0)
    refused("memfd of huge pages", 319, b"x", 4)
    refused("segment of huge pages", 29, 0, 1 << 21, 0o4000 | 0o1600)
    refused("core scheduling", 157, 62, 1, 0, 1, 0)
    refused("no dumping of others", 157, 35, 0, 0, 0, 0, codes=(errno.EPERM, errno.EINVAL))
    refused("nice", 141, 0, 0, -20)
    refused("sched deadline", 314, 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 1000000, 10000000, 10000000), 0)
    refused("mlock beyond the limit", 149, 0, 1 << 30, codes=(errno.EPERM, errno.ENOMEM))
    refused("limits of init", 302, 1, 7, 0, bytes(16))
    refused("timer of the host", 283, 8, 0, codes=(errno.EPERM, errno.EINVAL))
    with socket.socket() as tcp:
        refused("upper protocol", 54, tcp.fileno(), 6, 31, b"tls", 3)
        for name, level, option in (("iptables", 0, 64), ("ip6tables", 41, 64), ("arptables", 0, 96), ("mark", 1, 36), ("device", 1, 25), ("debug", 1, 1), ("priority", 1, 12), ("force buffer", 1, 33), ("transparent", 0, 19)):
            refused("option " + name, 54, tcp.fileno(), level, option, struct.pack("I", 99) + bytes(92), 96, codes=(errno.EPERM, errno.EACCES, errno.ENOPROTOOPT, errno.EINVAL, errno.ENODEV))
    master, slave = os.openpty()
    refused("line discipline", 16, slave, 0x5423, struct.pack("i", 13), codes=(errno.EPERM,))
    refused("console", 16, slave, 0x541D, 0, codes=(errno.EPERM,))
    refused("TIOCSTI", 16, slave, 0x5412, b"x", codes=(errno.EPERM,))
    refused("TIOCSTI high bits", 16, slave, 0x100005412, b"x", codes=(errno.EPERM,))
    refused("TIOCLINUX", 16, slave, 0x541C, b"\x01", codes=(errno.EPERM,))
    check("other ioctls work", call(16, slave, 0x5401, bytes(64))[0] == 0)
    os.close(master)
    os.close(slave)
    foreign_entry()


def foreign_entry():
    """mov eax, 20 (getpid of i386); int 0x80; ret"""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    pid = os.fork()
    if pid == 0:
        import mmap

        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        os._exit(1 if function() == os.getpid() else 0)
    _, status = os.waitpid(pid, 0)
    check("int 0x80", os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0)


# --- who we are -----------------------------------------------------------------------------------

def netlink():
    """Questions are answered, changes are not."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        for name, kind, body in (("new link", 16, struct.pack("BxHiII", 0, 0, 0, 0, 0)), ("new address", 20, struct.pack("BBBBI", 2, 8, 0, 0, 1) + struct.pack("HH4s", 8, 2, bytes([10, 0, 0, 1]))), ("new route", 24, struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0)), ("delete link", 17, struct.pack("BxHiII", 0, 0, 1, 0, 0)), ("new namespace id", 88, bytes(4)), ("traffic control", 36, struct.pack("BxxxiIII", 0, 1, 0, 0, 0))):
            route.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
            answer = route.recv(4096)
            check("netlink " + name, struct.unpack_from("H", answer, 4)[0] == 2 and struct.unpack_from("i", answer, 16)[0] < 0, str(answer[:24]))


def descriptors():
    """Passed through a socket of one's own, they give no more than they were."""
    left, right = socket.socketpair()
    with open("/proc/self/status") as mine:
        socket.send_fds(left, [b"x"], [mine.fileno()])
        _, received, _, _ = socket.recv_fds(right, 1, 4)
        check("descriptor is passed", len(received) == 1)
        os.close(received[0])
    left.close()
    right.close()
    for fd in range(3, 64):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        check(f"descriptor {fd}", target.startswith(("/proc/", "pipe:", "socket:", "/usr/")) or target == "/", target)


def other_processes():
    """Only what is ours can be seen; a descriptor of a process leads nowhere else."""
    for pid in list(range(2, 300)) + [1000, 5000, 32767, 100000, 4194303]:
        fd, code = call(434, pid, 0)
        if fd >= 0:
            check(f"pid {pid} is ours", os.path.exists(f"/proc/{pid}"))
            os.close(fd)
        elif not os.path.exists(f"/proc/{pid}"):
            check(f"pid {pid}", code in (errno.ESRCH, errno.EINVAL), str(code))
    for kind in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
        try:
            fd = os.open("/proc/self/ns/" + kind, os.O_RDONLY)
        except OSError:
            continue
        result, _ = call(16, fd, 0xB702, 0)  # the parent of the namespace
        check("parent of " + kind, result < 0)
        if kind != "user":
            result, _ = call(16, fd, 0xB701, 0)  # its owner
            check("owner of " + kind, result < 0 or not ranged)
        os.close(fd)
    check("nobody else's IPC", len(open("/proc/sysvipc/shm").read().splitlines()) == 1, open("/proc/sysvipc/shm").read())
    named = [line.split()[-1] for line in open("/proc/net/unix") if "@" in line]
    check("nobody else's sockets", named in ([], ["@sandglass-storage"]), str(named))


def cgroups():
    for path, folders, names in os.walk("/sys"):
        check("/sys is empty", not folders and not names, str(folders + names))
    for name in ("release_agent", "cgroup.procs", "notify_on_release"):
        found = subprocess.run(["find", "/", "-xdev", "-name", name, "-not", "-path", "/proc/*"], capture_output=True, text=True).stdout.split()
        check("file " + name, not [f for f in found if not f.startswith(("/usr/share", "/usr/lib", "/usr/src"))], str(found))
    for line in open("/proc/self/cgroup"):
        check("group is the root", line.rstrip("\n").endswith(":/"), line)


def identity():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    effective = int(status["CapEff"], 16)
    bounding = int(status["CapBnd"], 16)
    check("no capabilities as user", user == "root" or effective == 0, hex(effective))
    forbidden = [12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 30, 32, 33, 34, 35, 36, 37, 38, 39, 40, 2, 9, 11, 28]
    check("capabilities of root", not any(effective >> c & 1 for c in forbidden), hex(effective))
    check("bounding set", not any(bounding >> c & 1 for c in forbidden), hex(bounding))
    check("ambient", int(status["CapAmb"], 16) == 0)
    check("inheritable", int(status["CapInh"], 16) == 0)
    check("no_new_privs", status["NoNewPrivs"].strip() == "1")
    check("seccomp", status["Seccomp"].strip() == "2")
    check("own pid namespace", readable("/proc/1/comm") == b"sandglass-init\n", str(readable("/proc/1/comm")))
    check("few processes", len([p for p in os.listdir("/proc") if p.isdigit()]) < 30)
    if ranged:
        first = [line.split() for line in open("/proc/self/uid_map")]
        check("uid map", first[0][0] == "0" and int(first[0][1]) >= 65536 and first[0][2] == "65536", str(first))
    check("host name", os.uname().nodename == "sandbox")
    limit = readable("/proc/sys/user/max_user_namespaces")
    check("no user namespaces", limit is None or limit.strip() == b"0", str(limit))


def privileges():
    for path in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/usr/bin/sudo", "/usr/bin/newgrp"):
        if user != "root" and os.path.exists(path):
            pid = os.fork()
            if pid == 0:
                os.setsid()
                os.execv("/bin/sh", ["sh", "-c", f"cp {path} /tmp/x 2>/dev/null; exit 0"])
            os.waitpid(pid, 0)
    if user != "root":
        cannot("setuid", lambda: os.setuid(0))
        cannot("setgid", lambda: os.setgid(0))
    program = "/home/user/suid" if user != "root" else "/root/suid"
    subprocess.run(["cp", "/usr/bin/id", program], check=True)
    os.chmod(program, 0o4755)
    out = subprocess.run([program, "-u"], capture_output=True, text=True).stdout.strip()
    check("setuid bit", out == str(os.getuid()), out)
    os.unlink(program)
    cannot("mknod device", lambda: os.mknod("/tmp/sda", 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
    cannot("mknod char", lambda: os.mknod("/tmp/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
    cannot("mknod whiteout", lambda: os.mknod("/tmp/wh", 0o600 | stat.S_IFCHR, 0))
    cannot("trusted xattr", lambda: os.setxattr("/tmp", "trusted.overlay.opaque", b"y"))
    cannot("lower oom score", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"))
    import resource

    cannot("prlimit of init", lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)))
    cannot("raise core limit", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30)))
    cannot("raise file limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)))


def init_process():
    for name in ("environ", "mem", "maps", "auxv", "stack", "syscall", "fd", "cwd", "root", "exe", "io", "personality"):
        path = "/proc/1/" + name
        if name in ("cwd", "root", "exe"):
            cannot("init " + name, lambda: os.readlink(path))
        elif name == "fd":
            cannot("init fd", lambda: [os.readlink(f"{path}/{n}") for n in os.listdir(path)])
        else:
            check("init " + name, not readable(path), str(readable(path))[:40])
    cannot("write init", lambda: open("/proc/1/mem", "r+b"))
    cannot("init exe", lambda: open("/proc/1/exe", "r+b"))
    for number in (9, 19, 15):
        try:
            os.kill(1, number)
            check("signal init", user == "root" or not ranged)
        except PermissionError:
            pass
    check("init lives", os.path.exists("/proc/1/status"))


# --- files ----------------------------------------------------------------------------------------

def files():
    for path in planted.get("canaries", "").split(","):
        if path:
            check("canary " + path, not os.path.exists(path))
            for way in ("/proc/1/root", "/proc/self/root", "/..", "/proc/self/root/..", "/proc/self/cwd/../../.."):
                check("canary by " + way, not readable(way + path))
    secret = planted.get("secret", "").encode()
    if secret:
        for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
            for name in ("environ", "cmdline"):
                content = readable(f"/proc/{pid}/{name}") or b""
                mine = pid == str(os.getpid()) or pid == str(os.getppid())
                check(f"secret in {name} of {pid}", mine or secret not in content)
        check("secret in environment", not any(secret.decode() in v for v in os.environ.values()))
    for path in ("/etc/shadow", "/etc/gshadow"):
        content = readable(path)
        check("shadow", not content or b"$" not in content, str(content))
    for path in ("/home", "/root", "/opt", "/srv", "/mnt", "/media", "/boot"):
        names = [n for n in os.listdir(path) if not n.startswith(".")] if os.path.isdir(path) and os.access(path, os.R_OK) else []
        check("content of " + path, names in ([], ["user"]), str(names))
    for path in ("/etc/ssl/private", "/etc/ssh", "/etc/sudoers", "/etc/apt/auth.conf", "/var/lib/docker", "/run/docker.sock", "/var/run/docker.sock", "/run/dbus", "/run/systemd", "/sys/fs/cgroup", "/sys/kernel", "/sys/firmware", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/loop0", "/dev/fuse", "/dev/net/tun", "/dev/vsock", "/dev/mapper", "/lost+found"):
        check("exists " + path, not os.path.exists(path))
    check("/dev", set(os.listdir("/dev")) == {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}, str(os.listdir("/dev")))
    cannot("write /dev", lambda: open("/dev/x", "w"))
    cannot("replace /dev/null", lambda: os.unlink("/dev/null"))
    for path in ("kcore", "kmsg", "keys", "kallsyms", "timer_list", "cmdline", "interrupts", "modules", "sched_debug", "kpageflags", "kpagecount", "iomem", "ioports", "config.gz", "diskstats", "partitions", "swaps", "mtrr", "slabinfo", "vmallocinfo", "pagetypeinfo", "latency_stats", "bootconfig", "key-users"):
        check("proc " + path, not readable("/proc/" + path), str(readable("/proc/" + path))[:60])
    for path in ("acpi", "asound", "bus", "fs", "irq", "pressure", "scsi"):
        check("proc " + path, not os.path.isdir("/proc/" + path) or not os.listdir("/proc/" + path), path)
    for path in ("sys/kernel/cad_pid", "sys/kernel/kptr_restrict", "sys/kernel/dmesg_restrict", "sys/kernel/perf_event_paranoid", "sys/kernel/yama/ptrace_scope", "sys/vm/mmap_min_addr", "sys/vm/nr_hugepages", "sys/fs/suid_dumpable", "sys/fs/protected_symlinks", "sys/kernel/hotplug", "sys/kernel/poweroff_cmd", "sys/net/core/somaxconn", "sys/kernel/domainname", "sys/fs/binfmt_misc/register", "self/oom_adj", "1/oom_score_adj", "1/mem", "self/attr/exec", "sys/kernel/tainted", "sys/kernel/sysrq", "sys/user/max_net_namespaces"):
        cannot("write /proc/" + path, lambda: os.write(os.open("/proc/" + path, os.O_WRONLY), b"-17" if "oom" in path else b"0"))
    for path in ("sys/kernel/shmmax", "sys/kernel/msgmax", "sys/fs/mqueue/msg_max"):
        if ranged:  # else the limits of an IPC namespace are its user's own business
            cannot("write /proc/" + path, lambda: os.write(os.open("/proc/" + path, os.O_WRONLY), b"0"))
    for path in ("sysrq-trigger", "sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/kernel/hostname", "sys/kernel/panic", "sys/vm/drop_caches", "sys/vm/overcommit_memory", "sys/net/ipv4/ip_forward", "sys/net/ipv4/ip_unprivileged_port_start", "sys/fs/file-max", "sys/kernel/pid_max", "sys/user/max_user_namespaces", "sys/kernel/randomize_va_space", "self/uid_map", "self/gid_map", "self/setgroups", "sys/kernel/unprivileged_bpf_disabled", "sys/kernel/ns_last_pid"):
        cannot("write /proc/" + path, lambda: os.write(os.open("/proc/" + path, os.O_WRONLY), b"0"))
    mounts = open("/proc/self/mountinfo").read()
    for word in planted.get("words", "").split(","):
        check("mountinfo shows " + word, not word or word not in mounts)
    for line in mounts.splitlines():
        fields = line.split()
        if not fields[4].startswith("/dev"):
            check("nodev " + fields[4], "nodev" in fields[5], fields[5])
        check("nosuid " + fields[4], "nosuid" in fields[5], fields[5])
    for path in ("/", "/usr", "/etc", "/usr/bin"):
        check("writable " + path, os.access(path, os.W_OK) == (user == "root") or not ranged)
    check("cgroup path", all("sbx_" not in line for line in open("/proc/self/cgroup")), open("/proc/self/cgroup").read())
    check("environment", set(os.environ) <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "LANG", "SHLVL", "_", "LC_CTYPE", "TMPDIR", "SANDGLASS_STORAGE"}, str(dict(os.environ)))
    check("home", os.path.expanduser("~") == ("/root" if user == "root" else "/home/user"))


# --- network --------------------------------------------------------------------------------------

def network():
    import fcntl

    names = [name for _, name in socket.if_nameindex()]
    check("interfaces", names == ["lo"], str(names))
    for address in filter(None, planted.get("listeners", "").split(",")):
        host, port = address.rsplit(":", 1)
        cannot("connect " + address, lambda: socket.create_connection((host, int(port)), 1))
    for host in ("169.254.169.254", "10.0.0.1", "8.8.8.8"):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        cannot("send to " + host, lambda: s.sendto(b"x", (host, 53)))
        s.close()
    if planted.get("abstract"):
        s = socket.socket(socket.AF_UNIX)
        cannot("abstract socket", lambda: s.connect("\0" + planted["abstract"]))
    server = socket.socket()
    server.bind(("127.0.0.1", 80))
    server.listen()
    client = socket.create_connection(("127.0.0.1", 80), 2)
    check("own loopback works", client is not None)
    cannot("add address", lambda: fcntl.ioctl(client, 0x8916, struct.pack("16sHH4s8x", b"lo", 2, 0, b"\x0a\0\0\1")))
    cannot("take lo down", lambda: fcntl.ioctl(client, 0x8914, struct.pack("16sH14x", b"lo", 0)))


# --- limits ---------------------------------------------------------------------------------------

def limits():
    terminals = []
    try:
        while len(terminals) < 300:
            terminals.append(os.openpty())
    except OSError:
        pass
    check("terminals", len(terminals) <= 16, str(len(terminals)))
    for pair in terminals:
        os.close(pair[0])
        os.close(pair[1])
    import resource

    check("core limit", resource.getrlimit(resource.RLIMIT_CORE)[1] <= 1)
    check("memory that is locked", resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] <= 64 << 20)
    check("real time", resource.getrlimit(resource.RLIMIT_RTPRIO)[1] == 0)
    space = os.statvfs("/dev/shm")
    check("/dev/shm", space.f_blocks * space.f_frsize <= 4 << 30, str(space.f_blocks))
    watchers = []
    while len(watchers) < 5000:
        fd, _ = call(294, 0)
        if fd < 0:
            break
        watchers.append(fd)
    check("inotify", 8 <= len(watchers) < 5000, str(len(watchers)))
    for fd in watchers:
        os.close(fd)
    check("file limit", resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 65536)


inherited()
surface()
netlink()
descriptors()
other_processes()
cgroups()
identity()
privileges()
init_process()
files()
network()
limits()
print("done")
