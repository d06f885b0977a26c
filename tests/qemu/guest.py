#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PID 1 of the virtual machine: version 2 of control groups and nothing else, then the tests of the native backend, as root and
as a user to whom a group was delegated. Every line that counts begins with a mark; run.py reads them."""
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
import traceback

MARK = "@sandglass"
GROUPS = "/sys/fs/cgroup"
USER = 1000
RB_POWER_OFF = 0x4321FEDC

libc = ctypes.CDLL(None, use_errno=True)


def tell(*words):
    print(MARK, *words, flush=True)


def mount(kind, path, options=""):
    os.makedirs(path, exist_ok=True)
    if libc.mount(kind.encode(), path.encode(), kind.encode(), 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), f"mount {path}")


def load_modules():
    for name in sorted(os.listdir("/modules")):
        fd = os.open("/modules/" + name, os.O_RDONLY)
        if libc.syscall(313, fd, b"", 0) < 0:  # finit_module
            raise OSError(ctypes.get_errno(), name)
        os.close(fd)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def prepare():
    for kind, path in {"proc": "/proc", "sysfs": "/sys", "devtmpfs": "/dev", "tmpfs": "/run", "devpts": "/dev/pts"}.items():
        mount(kind, path)
    os.chmod("/tmp", 0o1777)  # on the disk: this kernel cannot map the ids of a tmpfs
    os.chmod("/var/tmp", 0o1777)
    mount("tmpfs", "/dev/shm", "mode=1777")
    mount("cgroup2", GROUPS)
    load_modules()
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))  # up


def delegate():
    """As systemd does it for Delegate=yes: the group and the files by which it is ruled belong to the user."""
    write(GROUPS + "/cgroup.subtree_control", "+memory +pids +cpu +io")
    group = GROUPS + "/delegated"
    if os.path.exists(group):  # the processes that were in it have been moved
        return group + "/sandglass.daemon"
    os.mkdir(group)
    for name in (".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
        os.chown(f"{group}/{name}", USER, USER)
    return group


def as_user(group=None):
    if group:
        write(group + "/cgroup.procs", "0")
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def run(name, command, **options):
    """Repeats what the tests say, each line with a mark."""
    tell("begin", name)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    for line in process.stdout:
        tell("line", line.rstrip())
    tell("end", name, process.wait())


def check(name, good, detail=""):
    tell("line", f"{'ok' if good else 'not ok'} 1 - {name}")
    if not good:
        tell("line", str(detail))


def use_daemon(name, environment, **options):
    """A daemon and its command line: a program, one that takes too much memory, a paused session, the report."""
    state = f"/tmp/{name}"
    environment = {**environment, "SANDGLASS_URL": f"unix:{state}/sock"}

    def cli(*arguments):
        return subprocess.run(["sandglass", *arguments], env=environment, capture_output=True, text=True, timeout=100,
                              preexec_fn=as_user if options else None)

    tell("begin", name)
    daemon = subprocess.Popen(["sandglass", "serve", "--state", state, "--listen", environment["SANDGLASS_URL"],
                               "--set", "shutdown.policy=destroy", "--set", "pool.size=0"],
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)
    for _ in range(300):
        if daemon.poll() is not None or cli("session", "ls").returncode == 0:
            break
        time.sleep(0.1)
    ran = cli("run", "--", "sh", "-c", "id -un; echo $HOME")
    check("a program runs", ran.stdout == "user\n/home/user\n", ran)
    killed = cli("run", "--memory", "64m", "--", "python3", "-c", "b = bytearray(512 << 20)")
    check("memory is limited", killed.returncode == 137, killed)
    session = json.loads(cli("session", "create", "--json").stdout)["id"]
    for _ in range(300):
        report = json.loads(cli("inspect", session, "--json").stdout)
        if (report["sandbox"] or {}).get("state") == "ready":
            break
        time.sleep(0.1)
    check("the report tells version 2", '"cgroup": "v2"' in json.dumps(report), report)
    check("it is paused", cli("session", "pause", session).returncode == 0)
    check("and goes on", cli("exec", session, "--", "echo", "on").stdout == "on\n")
    check_daemon(daemon.pid, state + "/sock")
    if not options:
        check_score(cli)
    check_sockets(lambda *arguments: subprocess.Popen(["sandglass", *arguments], env=environment, stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.DEVNULL, preexec_fn=as_user if options else None))
    daemon.terminate()
    _, told = daemon.communicate(timeout=100)
    tell("end", name, daemon.returncode)
    if daemon.returncode:
        check("the daemon ends", False, told[-2000:])


HOARD = """
import socket, time
server = socket.create_server(('127.0.0.1', 0), backlog=1000)
held = []
try:
    while len(held) < 3000:
        left = socket.create_connection(server.getsockname())
        right = server.accept()[0]
        for one in (left, right):
            one.setblocking(False)
            try:
                while True:
                    one.send(b'x' * (1 << 18))
            except BlockingIOError:
                pass
        held += [left, right]
except OSError:
    pass
time.sleep(5)
"""


def socket_bytes():
    """What all TCP sockets of the machine hold."""
    with open("/proc/net/sockstat") as file:
        return next(int(line.split()[-1]) * 4096 for line in file if line.startswith("TCP:"))


def check_sockets(start):
    """Buffers of sockets count for the sandbox: kept below its limit, or the end of it."""
    with start("run", "--memory", "64m", "--timeout", "60s", "--", "python3", "-c", HOARD) as hoarder:
        most = 0
        while hoarder.poll() is None:
            most = max(most, socket_bytes())
            time.sleep(0.05)
    check("buffers of sockets stay within the memory", most < 96 << 20, f"{most >> 20} MB, ended with {hoarder.returncode}")


def check_daemon(pid, address):
    """Its walls, and those that keep its helpers out of them."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = client.makefile("rb").read()
    told = json.loads(answer.partition(b"\r\n\r\n")[2])["confinement"]
    with open(f"/proc/{pid}/status") as file:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    check("the daemon is confined", told["seccomp"] and told["landlock"] and (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1"),
          (told, status))


def check_score(cli):
    """Root of this machine has the capability that it takes."""
    ran = cli("run", "--", "sh", "-c", "cd /proc/self; cat oom_score_adj; (echo 449 > oom_score_adj) 2>/dev/null; cat oom_score_adj")
    lowest = ran.stdout.split()
    check("a program does not lower its score", lowest == ["500", "500"], ran)


def left_behind(group):
    """Groups that outlived their sandboxes; the one that the daemon was moved to is not among them."""
    found = []
    for path, names, _ in os.walk(group):
        found += [os.path.join(path, name) for name in names if name.startswith(("sbx_", "kit-"))]
    return found


def main():
    prepare()
    tell("controllers", open(GROUPS + "/cgroup.controllers").read().strip())
    environment = {"PATH": "/usr/bin:/usr/sbin", "HOME": "/tmp", "SANDGLASS_TEST_PATIENCE": os.environ["PATIENCE"], "CMOCKA_MESSAGE_OUTPUT": "TAP",
                   "SANDGLASS_TEST_MOMENTS": "6"}
    for part in os.environ["PARTS"].split(","):
        name, _, what = part.partition("-")
        options = {}
        if name == "user":
            options["preexec_fn"] = lambda group=delegate(): as_user(group)
            environment["SANDGLASS_TEST_DELEGATED"] = GROUPS + "/delegated"
        if what == "daemon":
            use_daemon(part, environment, **options)
        else:
            run(part, ["/tests/test_backend_" + (what or "native")], env=environment, **options)
        tell("left", part, *left_behind(GROUPS))


try:
    main()
except BaseException:
    for line in traceback.format_exc().splitlines():
        tell("broken", line)
sys.stdout.flush()
os.sync()
libc.reboot(RB_POWER_OFF)
