# SPDX-License-Identifier: Apache-2.0
"""A daemon of Sandglass for measuring: the default settings, room for many, everything gone at the end."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=120):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path, method, target, body=None, headers=None):
    """One exchange over a unix socket: status and body."""
    connection = UnixConnection(str(path))
    try:
        connection.request(method, target, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def await_socket(path, process, target, seconds=30):
    """Waits until a server answers 200 on its socket."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")
        try:
            if ask(path, "GET", target)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.002)
    raise RuntimeError(f"{process.args[0]} does not answer")


class Daemon:
    """`with Daemon(program, folder, name, settings) as daemon:` serves on daemon.url."""

    def __init__(self, program, folder, name, settings=None):
        self.program = program
        self.folder = pathlib.Path(folder) / name
        self.socket = self.folder / "run" / "sandglass.sock"
        self.url = f"unix:{self.socket}"
        self.settings = {
            "state_dir": str(self.folder / "state"), "instance": f"bench-{name}-{os.getpid()}",
            "shutdown": {"policy": "destroy", "timeout": 300}, "log": {"level": "warn"},
            "capacity": {"max_sandboxes": 20000, "max_per_owner": 20000}, **(settings or {})}
        self.process = None

    def __enter__(self):
        self.folder.mkdir(mode=0o711)
        (self.folder / "sandglass.yaml").write_text(json.dumps(self.settings))  # JSON is YAML
        self.start()
        return self

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", "--config", self.folder / "sandglass.yaml", "--listen", self.url],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            await_socket(self.socket, self.process, "/readyz", 60)
        except RuntimeError as error:
            self.process.kill()
            raise RuntimeError(f"{error}: {(self.folder / 'log').read_text(errors='replace')[-2000:]}") from error

    def kill(self):
        """As a crash would; the sandboxes go on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(320)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def api(self, method, target, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        status, answer = ask(self.socket, method, "/api/v1" + target, body and json.dumps(body), headers)
        if status >= 400:
            raise RuntimeError(f"{method} {target}: {status} {answer[:300]!r}")
        return json.loads(answer)

    def sessions(self, limit):
        return self.api("GET", f"/sessions?limit={limit}")["sessions"]

    def metric(self, name):
        lines = ask(self.socket, "GET", "/metrics")[1].decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), None)

    def resident_kb(self):
        """Of the daemon and of its launcher."""
        pid = self.process.pid
        return status_kb(pid, "VmRSS"), sum(status_kb(one, "VmRSS") for one in launchers(pid))


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def launchers(pid):
    """Of that daemon: its child is the keeper, a copy of itself that shares its memory, and the launcher is the keeper's."""
    return [launcher for keeper in children(pid) for launcher in children(keeper)]


def status_kb(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def available_kb():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


def proportional_kb(pid):
    """Memory of a process with what it shares divided among those who share it; None where we may not look."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None
