# SPDX-License-Identifier: Apache-2.0
"""A private Docker engine for tests: own socket, data, state, network and control groups, with the runtimes runc and runsc.

Everything that it makes is below one directory, or has the directory's name: `sweep` ends and removes all of it, also when the engine has
been killed, and never looks at anything else.
"""
import contextlib
import ctypes
import fcntl
import glob
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import image
from .api import Api, EngineError

PLACE = pathlib.Path("/var/tmp")
PREFIX = "sge-"  # short: the path of a socket has 108 bytes at most
PROGRAMS = ("dockerd", "containerd", "runc", "runsc", "docker-proxy", "exe", "podman", "conmon")  # how names of the engine's processes begin
CGROUPS = pathlib.Path("/sys/fs/cgroup")
SHARED_DIRECTORIES = ["/run/docker/plugins", "/run/docker", "/run/containerd/s", "/run/containerd"]  # made by every engine on the host
PODMAN_CGROUPS = ("libpod_parent/conmon", "libpod_parent")  # made by every Podman on the host
DAEMON_USER, DAEMON_ID = "sandglass", 62420  # src/daemon/privileges.h: who a daemon becomes when root starts it

# The network of gVisor's own does not start on newer kernels, which show /proc/sys/net/core/dev_weight in every network namespace; with
# "host" a sandbox has that of its container, which is empty without a network.
RUNSC = ["--network=host", "--platform=ptrace"]
RUNTIMES = {"runsc": RUNSC, "runsc-uds": [*RUNSC, "--host-uds=all"]}

MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def missing(runtime="runc", programs=("dockerd", "containerd", "ip")):
    """Why no engine can run here, or None."""
    if os.geteuid() != 0:
        return "an engine is started as root"
    for program in (*programs, runtime, "unshare", "dpkg-query"):
        if not find(program):
            return f"{program} is not installed"
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "an engine cannot run here: no mounts or namespaces may be made"
    if os.statvfs(CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS).f_flag & os.ST_RDONLY:
        return "an engine cannot run here: control groups are read-only"
    return None


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def daemon_ids():
    """User and group of the daemons that the tests start as root."""
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(DAEMON_USER)
        return entry.pw_uid, entry.pw_gid
    return DAEMON_ID, DAEMON_ID


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Engine:
    """One engine. `start` after `kill` or `stop` goes on with the same containers; `end` leaves nothing.

    Options: live_restore; network False leaves it in the host's network namespace and without a bridge; disk is how much all its data
    may take; runtimes are further ones, by the arguments of runsc; hosts are further addresses; settings are further ones, by their names
    in daemon.json.
    """

    def __init__(self, name, live_restore=False, network=True, disk="16G", runtimes=None, hosts=(), settings=None):
        self.directory = PLACE / f"{PREFIX}{name}"
        self.socket = self.directory / "docker.sock"
        self.log_path = self.directory / "engine.log"
        self.api = Api(self.socket)
        self.live_restore, self.network, self.disk = live_restore, network, disk
        self.runtimes = {**RUNTIMES, **(runtimes or {})}
        self.hosts, self.settings = list(hosts), settings or {}
        self.guard = None  # the process that has started it
        self.pid = None  # of dockerd

    @property
    def host(self):
        return f"unix://{self.socket}"

    def start(self, seconds=20):
        self.claim()
        self.data = self.prepare_data()
        self.guard.stdin.write(json.dumps(self.command()) + "\n")
        self.guard.stdin.flush()
        self.pid = int(self.guard.stdout.readline())
        if not wait_until(lambda: self.api.ping() or not self.is_running(), seconds) or not self.is_running():
            raise RuntimeError(f"the engine does not answer:\n{self.log()[-3000:]}")
        os.chown(self.socket, *daemon_ids())
        self.socket.chmod(0o600)
        return self

    def command(self):
        """That starts it, after what it reads is written."""
        (self.directory / "docker.pid").unlink(missing_ok=True)  # of one that was killed; the number may be another's by now
        self.write_settings()
        command = [find("dockerd"), "--config-file", str(self.directory / "daemon.json")]
        if self.network:
            command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        return command

    def claim(self):
        if self.guard:
            return
        with starting():
            sweep_dead()
            self.directory.mkdir(mode=0o711)
            self.directory.chmod(0o711)  # daemons pass through without being root
            # Locked by the guard as long as it lives: nobody else sweeps the directory.
            with open(self.directory / "alive", "w") as alive:
                fcntl.flock(alive, fcntl.LOCK_EX)
                self.guard = subprocess.Popen([sys.executable, "-m", "engine.guard", self.directory], stdin=subprocess.PIPE, text=True,
                                              stdout=subprocess.PIPE, cwd=pathlib.Path(__file__).resolve().parent.parent,
                                              start_new_session=True, pass_fds=[alive.fileno()])

    def is_running(self):
        return self.pid is not None and os.path.exists(f"/proc/{self.pid}")

    def prepare_data(self):
        """A disk of its own in one file: quick to remove, and full when the test wants it to be. Else a tmpfs where the host's file system
        is an overlay, above which overlay2 does not work."""
        data, disk = self.directory / "data", self.directory / "disk"
        if data.exists():
            return data
        data.mkdir()
        with open(disk, "wb") as file:
            file.truncate(size_of(self.disk))
        made = [[find("mkfs.ext4"), "-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", "-m", "0", disk],
                ["mount", "-o", "loop", disk, data]]
        if find("mkfs.ext4") and all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in made):
            return data
        disk.unlink()
        if filesystem(data) == "overlayfs":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.disk},mode=710", "engine", data], check=True)
        return data

    def write_settings(self):
        settings = {"hosts": [self.host, *self.hosts], "data-root": str(self.data), "exec-root": str(self.directory / "exec"),
                    "pidfile": str(self.directory / "docker.pid"), "storage-driver": "overlay2", "iptables": False, "ip6tables": False,
                    "cgroup-parent": f"/{self.directory.name}", "exec-opts": ["native.cgroupdriver=cgroupfs"],
                    "live-restore": self.live_restore, "shutdown-timeout": 5,
                    "runtimes": {name: {"path": find("runsc") or "/usr/bin/runsc", "runtimeArgs": arguments}
                                 for name, arguments in self.runtimes.items()}}
        if not self.network:
            settings["bridge"] = "none"
        if version() < 23:  # else it makes a key in /etc/docker
            settings["deprecated-key-path"] = str(self.directory / "key.json")
        (self.directory / "daemon.json").write_text(json.dumps({**settings, **self.settings}, indent=1))

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def load_images(self):
        self.api.load(image.archive_of_images())

    def kill(self):
        """kill -9, as a crash would: containerd goes with it, containers and their shims stay."""
        containerd = (self.directory / "exec/containerd/containerd.pid").read_text()
        self.signal(signal.SIGKILL)
        if not wait_until(lambda: not self.is_running() and not os.path.exists(f"/proc/{containerd}"), 10):
            raise RuntimeError("the engine cannot be killed")

    def stop(self, seconds=30):
        """As an operator does: containers are stopped, unless live restore keeps them."""
        self.signal(signal.SIGTERM)
        if not wait_until(lambda: not self.is_running(), seconds):
            self.kill()

    def signal(self, number):
        if self.is_running():
            os.kill(self.pid, number)

    def hangs(self, seconds):
        """Whether it runs and does not answer a question for which dockerd and containerd both have to work."""
        try:
            self.api.request("GET", "/info", timeout=seconds)
        except TimeoutError:
            return self.is_running()
        except (OSError, http.client.HTTPException, EngineError):
            pass
        return False

    def stacks(self, seconds=5):
        """What dockerd is waiting for, and the end of the log, where containerd says the same; less when they cannot even do that."""
        containerd = None
        with contextlib.suppress(OSError, ValueError):
            os.kill(containerd := int((self.directory / "exec/containerd/containerd.pid").read_text()), signal.SIGUSR1)
        self.signal(signal.SIGUSR1)
        wait_until(lambda: self.goroutines() and "END goroutine stack dump" in self.log(), seconds)
        pathlib.Path(tempfile.gettempdir(), f"containerd.{containerd}.stacks.log").unlink(missing_ok=True)  # its own copy
        return self.goroutines() + self.log()[-100_000:]

    def goroutines(self):
        """Of dockerd, as it has written them; those that have been waiting for minutes come first."""
        found = "".join(path.read_text(errors="replace") for path in self.directory.glob("exec/goroutine-stacks*"))
        return "\n\n".join(sorted(found.split("\n\n"), key=lambda stack: " minutes" not in stack.split("\n")[0]))

    def end(self, by_force=False):
        """Ends it and removes everything that it has made; with force it is not asked for anything."""
        if not self.guard:
            return
        if by_force:
            self.signal(signal.SIGKILL)
        if self.is_running() and not by_force:
            with contextlib.suppress(OSError, EngineError, ValueError):
                for container in self.api.containers():
                    self.api.remove(container["Id"], timeout=20)
        self.guard.stdin.close()
        self.guard.wait(90)
        self.guard.stdout.close()
        self.guard = self.pid = None


def version():
    found = re.search(r"version (\d+)\.", subprocess.run([find("dockerd"), "--version"], capture_output=True, text=True, check=True).stdout)
    return int(found[1]) if found else 0


def filesystem(path):
    """The type of the file system that holds a path."""
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()


def size_of(text):
    """Bytes of "64M" or "16G"."""
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


@contextlib.contextmanager
def starting():
    """One process at a time decides whether a directory is in use."""
    with open(image.cache_directory() / "starting", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_unlocked(path):
    """A lock file that nobody holds; who opens it at this moment looks whether it is still there."""
    with contextlib.suppress(OSError), open(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def is_alive(directory):
    """Whether the guard of the engine in this directory lives."""
    try:
        with open(directory / "alive") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def sweep_dead():
    """What sessions that were killed have left. Within `starting` only."""
    for path in PLACE.glob(f"{PREFIX}*"):
        if path.is_dir() and not is_alive(path):
            sweep(path)
        elif path.suffix == ".users" and not path.with_suffix("").exists():
            remove_unlocked(path)


# What an engine has left, found by its directory alone.


def engine_processes(directory):
    """Engine, shims, sentries and execs: command lines by process number."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if f"{directory}/" in command and pathlib.Path(f"/proc/{pid}/comm").read_text().startswith(PROGRAMS):
                found[int(pid)] = command
    return found


def container_processes(directory):
    found = {}
    for path in our_cgroups(directory):
        with contextlib.suppress(OSError):
            found |= {int(pid): f"in {path}" for pid in (path / "cgroup.procs").read_text().split()}
    return found


def our_processes(directory):
    return {**engine_processes(directory), **container_processes(directory)}


def our_mounts(directory):
    """Where something is mounted below the directory, the last one first."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return [path for path in (line.split()[4] for line in reversed(lines)) if path.startswith(f"{directory}/")]


def matches(directory, pattern):
    """The matches below a directory that others may be removing: `Path.glob` raises when one that it is about to list has gone."""
    return [pathlib.Path(path) for path in glob.glob(f"{glob.escape(str(directory))}/{pattern}")]


def our_cgroups(directory):
    """Of both versions, deepest first."""
    found = []
    for top in [CGROUPS, *CGROUPS.glob("*")]:
        for name in [directory.name, *podman_cgroups(directory)]:
            if (top / name).is_dir():
                found += [pathlib.Path(path) for path, _, _ in os.walk(top / name, topdown=False)]
    return found


def podman_cgroups(directory):
    """Podman has one parent for all, whichever directories it was given: what is ours is told by the containers that have files here."""
    return [f"libpod_parent/libpod-{path.name}" for path in matches(directory, "data/*/overlay-containers/" + "[0-9a-f]" * 64)]


def shim_sockets(directory):
    """Outside of the directory, by the names that containerd has noted in it."""
    return [pathlib.Path(path.read_text().strip().removeprefix("unix://"))
            for path in matches(directory, "exec/containerd/daemon/io.containerd.runtime.v2.task/*/*/address")]


def leftovers(directory):
    found = {"processes": our_processes(directory), "mounts": our_mounts(directory), "cgroups": [str(path) for path in our_cgroups(directory)],
             "files": [str(directory)] if directory.exists() else []}
    return {kind: items for kind, items in found.items() if items}


def kill_all(find_processes, directory, seconds=15):
    """Until there are no more: some start others meanwhile."""
    def is_done():
        for pid in (found := find_processes(directory)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found
    wait_until(is_done, seconds)


def kill_containers(directory):
    kill_all(container_processes, directory, 5)


def sweep(directory):
    """Ends and removes whatever an engine in this directory has left."""
    sockets, shared = shim_sockets(directory), list(SHARED_DIRECTORIES)
    if (directory / "containers.conf").exists():
        shared += [top / name for top in [CGROUPS, *CGROUPS.glob("*")] for name in PODMAN_CGROUPS]
    kill_all(our_processes, directory)
    for path in our_mounts(directory):
        libc.umount2(path.encode(), MNT_DETACH)
    for path in our_cgroups(directory):
        wait_until(lambda path=path: remove_cgroup(path), 5)
    for path in sockets:
        if path.is_socket():
            path.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    for path in shared:
        with contextlib.suppress(OSError):  # others use it, or it is not there
            os.rmdir(path)


def remove_cgroup(path):
    with contextlib.suppress(FileNotFoundError):
        try:
            path.rmdir()
        except OSError:
            return False
    return True
