# SPDX-License-Identifier: Apache-2.0
"""The first process of a cluster's namespaces: makes mounts and network, starts the servers, starts them again when they end, reaps. With it everything ends.

    node.py PLAN       (inside of `unshare --mount --net --pid --uts --ipc --cgroup`)

It obeys one line of JSON for each connection at DIRECTORY/control: {"do": "start" | "stop" | "signal", "name": SERVER, "signal": NUMBER}.
"""
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes import api, settings  # noqa: E402

RESTART_SECONDS = 1
# What the kubelet writes for the whole machine, and must not here; names of files below /proc/sys.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
                   "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}


def do(*command):
    subprocess.run(list(map(str, command)), check=True)


def make_mounts(plan):
    for name, place in (("varlib", "/var/lib"), ("varlog", "/var/log")):
        (plan.directory / name).mkdir(exist_ok=True)
        do("mount", "--bind", plan.directory / name, place)
    (plan.directory / "varlib/containerd").mkdir(exist_ok=True)
    do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    # In a user namespace /proc is mounted only where one is visible as a whole, which that with our files is not.
    os.mkdir("/run/proc")
    do("mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/run/proc")
    for name, value in KERNEL_SETTINGS.items():
        file = plan.directory / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value + "\n")
        do("mount", "--bind", file, f"/proc/sys/{name}")
    make_cgroup_mounts()
    do("mount", "--make-rshared", "/")


def make_cgroup_mounts():
    """The hierarchies of the host as they look from our group: the servers see no other group, and nobody's but theirs ends with them."""
    lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    do("mount", "-t", "sysfs", "sysfs", "/sys")
    do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for _, controllers, _ in lines:
        name = controllers.removeprefix("name=") or "unified"
        place = f"/sys/fs/cgroup/{name}"
        os.mkdir(place)
        if controllers:
            do("mount", "-t", "cgroup", "-o", f"none,{controllers}" if controllers.startswith("name=") else controllers, "cgroup", place)
        else:
            do("mount", "-t", "cgroup2", "cgroup2", place)


def make_network(plan):
    do("ip", "link", "set", "lo", "up")
    api.wait_for(lambda: os.path.exists("/sys/class/net/eth0"), "the link to the host")
    do("ip", "address", "add", f"{plan.node_address}/30", "dev", "eth0")
    do("ip", "link", "set", "eth0", "up")
    do("ip", "route", "add", "default", "via", plan.host_address)
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


class Servers:
    def __init__(self, plan):
        self.plan = plan
        self.commands = settings.commands(plan)
        self.pids = {}  # by name
        self.due = {}  # when a server is started again
        self.stopped = set()

    def start(self, name):
        self.stopped.discard(name)
        if name in self.pids:
            return
        child = os.fork()
        if child == 0:
            try:
                output = os.open(self.plan.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.closerange(3, 256)
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                os.environ["PATH"] = f"{self.plan.programs}:{os.environ['PATH']}"  # containerd looks for its shim there
                os.execvp(self.commands[name][0], self.commands[name])
            finally:
                os._exit(127)
        self.pids[name] = child

    def reap(self):
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]):
                for name in [name for name, pid in self.pids.items() if pid == ended]:
                    del self.pids[name]
                    if name not in self.stopped:
                        self.due[name] = time.monotonic() + RESTART_SECONDS

    def start_due(self):
        for name in [name for name, when in self.due.items() if when <= time.monotonic()]:
            del self.due[name]
            if name not in self.stopped:
                self.start(name)

    def obey(self, order):
        name = order["name"]
        if name not in self.commands:
            return f"no such server: {name}"
        if order["do"] == "start":
            self.due.pop(name, None)
            self.start(name)
            return "ok"
        if order["do"] == "stop":
            self.stopped.add(name)
        if name in self.pids:
            os.kill(self.pids[name], order.get("signal", signal.SIGTERM))
        return "ok"


def serve(servers, control):
    while True:
        ready, _, _ = select.select([control], [], [], 0.2)
        servers.reap()
        servers.start_due()
        if not ready:
            continue
        connection = control.accept()[0]
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            connection.settimeout(5)
            connection.sendall(servers.obey(json.loads(connection.makefile().readline())).encode() + b"\n")


def main():
    with open(sys.argv[1]) as file:
        plan = settings.Plan(**json.load(file))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    socket.sethostname(settings.NODE)
    make_mounts(plan)
    make_network(plan)
    control = socket.socket(socket.AF_UNIX)
    control.bind(str(plan.directory / "control"))
    control.listen(8)
    servers = Servers(plan)
    for name in servers.commands:
        servers.start(name)
        if name == "kube-apiserver":  # the others would try in vain
            client = api.Api.of(plan.directory / "admin.conf")
            api.wait_for(lambda: servers.reap() or servers.start_due() or client.is_ready(), "the API server", 300)
    serve(servers, control)


if __name__ == "__main__":
    main()
