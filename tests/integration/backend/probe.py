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
    master, slave = os.openpty()
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
    for path in ("kcore", "kmsg", "keys", "kallsyms", "timer_list", "cmdline", "interrupts", "modules", "sched_debug", "kpageflags", "iomem"):
        check("proc " + path, not readable("/proc/" + path), str(readable("/proc/" + path))[:60])
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
    check("environment", set(os.environ) <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "LANG", "SHLVL", "_", "LC_CTYPE", "TMPDIR"}, str(dict(os.environ)))
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
    check("terminals", len(terminals) < 70, str(len(terminals)))
    for pair in terminals:
        os.close(pair[0])
        os.close(pair[1])
    import resource

    check("core limit", resource.getrlimit(resource.RLIMIT_CORE) == (0, 0))
    check("file limit", resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 65536)


inherited()
surface()
identity()
privileges()
init_process()
files()
network()
limits()
print("done")
