# SPDX-License-Identifier: Apache-2.0
"""Daemons on machines of the network, with clocks that can jump, and what they leave behind."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time

import servers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("SANDGLASS_BUILD", ROOT / "build-gcc"))
SANDGLASS = BUILD / "sandglass"
CLOCK = BUILD / "tests" / "cluster" / "cluster_clock.so"
PORT = 7420


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Node(servers.Program):
    """One daemon; `name` is its machine, its instance and its id. Nothing but its settings says that it is a node of a cluster."""

    def __init__(self, network, name, directory, instance, settings):
        self.network, self.machine, self.name, self.directory = network, name, name, directory
        self.instance = f"{instance}-{name}"
        self.socket = directory / "run" / "sandglass.sock"
        self.settings = {"state_dir": str(directory / "state"), "instance": self.instance, "listen": [f"unix:{self.socket}", f"0.0.0.0:{PORT}"], **settings}
        directory.mkdir()
        os.chmod(directory, 0o711)
        self.offsets = directory / "clock"
        self.offsets.write_bytes(struct.pack("2q", 0, 0))

    def start(self, wait=True):
        self.launch()
        if wait:
            self.wait()

    def launch(self):
        config = self.directory / "sandglass.yaml"
        config.write_text(json.dumps(self.settings))  # JSON is YAML
        jumping = ["env", f"LD_PRELOAD={CLOCK}", f"SANDGLASS_CLOCK={self.offsets}"] if CLOCK.exists() else []
        self.spawn([*jumping, SANDGLASS, "serve", "--config", config])

    def wait(self, seconds=60):
        """Until it serves. A daemon that cannot start while the store is away is started again, as systemd does it."""
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if self.process.poll() is not None:
                assert self.process.returncode == 1, f"{self.name} has ended with {self.process.returncode}:\n{self.log()[-4000:]}"
                time.sleep(0.5)
                self.launch()
            assert time.monotonic() < deadline, f"{self.name} is not ready within {seconds} s:\n{self.log()[-4000:]}"
            time.sleep(0.02)

    def is_ready(self):
        try:
            return self.request("GET", "/readyz", timeout=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def request(self, method, path, body=None, key=None, headers=None, timeout=20):
        connection = UnixConnection(self.socket, timeout)
        headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    def api(self, method, path, body=None, **options):
        return self.request(method, "/api/v1" + path, body, **options)

    def log(self):
        path = self.directory / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    def jump(self, wall_s=0, boot_s=0):
        """Its clocks are this much further, or behind, from now on; the one that counts since boot never goes back."""
        wall_us, boot_us = struct.unpack("2q", self.offsets.read_bytes())
        with open(self.offsets, "r+b") as file:  # in place: the daemon has it mapped
            file.write(struct.pack("2q", wall_us + int(wall_s * 1e6), boot_us + int(boot_s * 1e6)))

    def stop(self, seconds=40):
        """As an operator does it; whatever does not stop in time is a failure."""
        if not self.is_running():
            return None
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not stop within {seconds} s"
        return None

    def sandboxes(self):
        return sorted(entry.name for entry in (self.directory / "state" / "sandboxes").glob("sbx_*"))

    def sweep(self):
        """Removes what is left: after a storm that was interrupted, or one that has found something."""
        self.kill()
        deadline = time.monotonic() + 10
        while (found := self.leftovers()) and time.monotonic() < deadline:
            for kind, name in found:
                with contextlib.suppress(OSError):
                    if kind == "process":
                        os.kill(int(name.split()[0]), signal.SIGKILL)
                    elif kind == "cgroup":
                        os.rmdir(name)
                    elif kind == "mount":
                        subprocess.run(["umount", "--lazy", name], capture_output=True)
                    else:
                        shutil.rmtree(self.directory / "state" / "sandboxes" / name, ignore_errors=True)
            time.sleep(0.05)

    def leftovers(self):
        """(kind, name) of all that is left of a daemon that has ended."""
        found = [("sandbox", name) for name in self.sandboxes()]
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.directory) in line:
                found.append(("mount", line.split()[4]))
        for controller in ("memory", "cpu", "pids", "freezer", "unified", "."):
            for holder in pathlib.Path("/sys/fs/cgroup").glob(f"{controller}/sandglass*{self.instance}*"):
                with contextlib.suppress(OSError):  # gone meanwhile
                    found += [("cgroup", str(holder / name)) for name in os.listdir(holder) if name.startswith("sbx_")]
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    process = pathlib.Path("/proc") / entry
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if self.instance in (process / "cgroup").read_text() or "sandglass" in command and str(self.directory) in command:
                        found.append(("process", f"{entry} {command.strip()}"))
        return found
