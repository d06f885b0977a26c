#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes cluster for tests: one node in namespaces of its own, reached over a link that exists on this host only.

    cluster.py up --dir DIRECTORY [--program SANDGLASS]   starts one, prints the path of its kubeconfig
    cluster.py image --dir DIRECTORY --program SANDGLASS [--name NAME]   puts the daemon's image into it
    cluster.py down --dir DIRECTORY                       ends it and removes everything
    cluster.py build                                      only makes the programs

Everything of it is a child of one process in a PID namespace, and has that process's mounts, network and control groups: nothing outlives it.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from kubernetes import api, images, programs, settings  # noqa: E402

CGROUPS = pathlib.Path("/sys/fs/cgroup")
LOCK = "/var/tmp/sandglass-kubernetes.lock"
NUMBERS = range(1, 250)


class Cluster:
    """One that runs, or did: `directory` is all that has to be known of it."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory).absolute()
        self.kubeconfig = self.directory / "admin.conf"
        self.plan = None
        if (self.directory / "plan.json").exists():
            self.plan = settings.Plan(**json.loads((self.directory / "plan.json").read_text()))

    @property
    def api(self):
        return api.Api.of(self.kubeconfig)

    def up(self, say=lambda text: None):
        if problem := programs.missing():
            raise RuntimeError(problem)
        binaries = programs.ensure(say)
        with open(LOCK, "w") as lock:  # two must not take the same number
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep_cgroups()
            self.prepare(binaries)
            self.launch()
        say("the servers start")
        self.wait_until_ready()
        return self

    def prepare(self, binaries):
        if self.plan:
            raise RuntimeError(f"{self.directory} has a cluster: end it with `cluster.py down --dir {self.directory}`")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o711)
        number = next(number for number in NUMBERS if not os.path.exists(f"/sys/class/net/sgk{number}"))
        arguments = {"directory": str(self.directory), "number": number, "programs": str(binaries)}
        self.plan = settings.Plan(**arguments)
        (self.directory / "plan.json").write_text(json.dumps(arguments))
        self.plan.write()

    def launch(self):
        """In control groups and namespaces of its own; the link comes from outside."""
        groups = make_cgroups(self.plan.cgroup)
        enter = "".join(f"echo $$ >{group}/cgroup.procs && " for group in groups)
        command = enter + 'exec unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child --mount-proc "$@"'
        with open(self.plan.logs / "node.log", "a") as log:
            outer = subprocess.Popen(["sh", "-c", command, "sh", sys.executable, str(HERE / "node.py"), str(self.directory / "plan.json")],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        pid = api.wait_for(lambda: child_of(outer.pid) if outer.poll() is None else self.fail("unshare"), "the first process", 20)
        (self.directory / "pid").write_text(f"{outer.pid} {pid} {started(pid)}")
        link = self.plan.link
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "address", "add", f"{self.plan.host_address}/30", "dev", link)
        run("ip", "link", "set", link, "up")
        for network in (self.plan.pods, self.plan.services):
            run("ip", "route", "add", network, "via", self.plan.node_address, "dev", link)

    def fail(self, what):
        raise RuntimeError(f"{what} has ended: {(self.plan.logs / 'node.log').read_text()[-3000:]}")

    def pids(self):
        """Of unshare and of the first process inside, while that one runs."""
        with contextlib.suppress(OSError, ValueError):
            outer, inner, when = (self.directory / "pid").read_text().split()
            if started(inner) == when:
                return int(outer), int(inner)
        return None

    def wait_until_ready(self, seconds=180):
        def check():
            if not self.pids():
                self.fail("the first process")
            return self.api.is_ready()
        api.wait_for(check, f"the API server, see {self.plan.logs}", seconds)
        api.wait_for(self.plan.containerd_socket.exists, "containerd", 60)
        api.wait_for(self.import_pause, "the image of the pause container", 60)
        api.wait_for(self.is_node_ready, f"the node, see {self.plan.logs}/kubelet.log", seconds)
        api.wait_for(lambda: self.api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200, "the service account", 60)

    def import_pause(self):
        try:
            images.load_pause(self.plan.containerd_socket)
        except subprocess.CalledProcessError:
            return False
        return True

    def is_node_ready(self):
        answer = self.api.request("GET", f"/api/v1/nodes/{settings.NODE}")
        conditions = answer.json["status"].get("conditions", []) if answer.status == 200 else []
        return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)

    def pid_of(self, name):
        """Of one of the servers, as this host counts."""
        place = os.readlink(f"/proc/{self.pids()[1]}/ns/pid")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == place and pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                    return int(pid)
        return None

    def make_namespace(self, name, **labels):
        """Pods are refused there before the controllers have made its service account."""
        client = self.api
        answer = client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        if answer.status not in (201, 409):
            raise api.ApiError(f"namespace {name}: {answer.body[:500]!r}")
        api.wait_for(lambda: client.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default").status == 200, "the service account", 30)

    def load_images(self, program=None, name=images.SANDGLASS):
        """Those of tests/engine, Redis, and the daemon's own."""
        images.load_tests(self.plan.containerd_socket)
        images.load_redis(self.plan.containerd_socket)
        if program:
            images.load_daemon(self.plan.containerd_socket, program, name)

    def order(self, what, name, **more):
        """start, stop or signal one of the servers."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.directory / "control"))
            connection.sendall(json.dumps({"do": what, "name": name, **more}).encode() + b"\n")
            answer = connection.makefile().readline().strip()
        if answer != "ok":
            raise RuntimeError(answer)

    def down(self):
        """Ends what runs and removes the rest; what is not there is no error."""
        pids = self.pids()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[1], signal.SIGKILL)  # and with it everything of its namespace
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pids[0], 0)
            api.wait_for(lambda: not self.pids(), "the end of the cluster", 60)
        if self.plan:
            subprocess.run(["ip", "link", "delete", self.plan.link], capture_output=True, check=False)
            api.wait_for(lambda: remove_cgroups(self.plan.cgroup), "the end of its processes", 60)
            api.wait_for(self.remove_files, f"{self.directory} can be removed", 60)

    def remove_files(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        return not self.directory.exists()


def run(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


def started(pid):
    """When a process began: tells it from a later one with its number."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return None


def child_of(pid):
    with contextlib.suppress(OSError):
        return next(iter(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), None)
    return None


def hierarchies():
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists()]


def make_cgroups(name):
    made = []
    for hierarchy in hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists():
                (group / file).write_text((hierarchy / file).read_text())
        made.append(group)
    return made


def remove_cgroups(name):
    for hierarchy in hierarchies():
        for path, _, _ in os.walk(hierarchy / name, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
    return not any((hierarchy / name).exists() for hierarchy in hierarchies())


def sweep_cgroups():
    """Of clusters whose directory is gone or whose processes were killed: their link is gone with them."""
    for name in {path.name for hierarchy in hierarchies() for path in hierarchy.glob("sgk-*")}:
        if not os.path.exists(f"/sys/class/net/sgk{name.removeprefix('sgk-')}"):
            remove_cgroups(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["up", "down", "image", "build"])
    parser.add_argument("--dir", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, help="the built sandglass, for its image")
    parser.add_argument("--name", default=images.SANDGLASS, help="of the daemon's image")
    options = parser.parse_args()
    def say(text):
        print(text, file=sys.stderr, flush=True)
    if options.command == "build":
        print(programs.ensure(say))
        return
    if not options.dir:
        parser.error("--dir is needed")
    cluster = Cluster(options.dir)
    if options.command == "down":
        cluster.down()
        return
    if options.command == "up":
        begin = time.monotonic()
        cluster.up(say)
        cluster.load_images()
        say(f"ready after {time.monotonic() - begin:.0f} s")
    if options.program:
        images.load_daemon(cluster.plan.containerd_socket, options.program, options.name)
    print(cluster.kubeconfig)


if __name__ == "__main__":
    main()
