# SPDX-License-Identifier: Apache-2.0
"""A carrier that fails: a proxy in the place of a sandbox's socket, between the daemon's bridge and the relay inside."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import threading

from conftest import BUILD

INIT = BUILD / "src" / "init" / "sandglass-init"


class Link:
    """One connection of the bridge, passed on to the relay by ourselves or by a pump."""

    def __init__(self, near, target, by_pump):
        self.near = near
        self.process = None
        if by_pump:
            self.far, other = socket.socketpair()
            self.process = subprocess.Popen([INIT, f"--pump={target}"], stdin=other, stdout=other)
            other.close()
        else:
            self.far = socket.socket(socket.AF_UNIX)
            self.far.connect(target)
        self.threads = [threading.Thread(target=self.copy, args=pair, daemon=True)
                        for pair in ((self.near, self.far), (self.far, self.near))]
        for thread in self.threads:
            thread.start()

    def copy(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        self.cut()

    def cut(self):
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def kill_pump(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)

    def close(self):
        self.cut()
        for thread in self.threads:
            thread.join()
        self.near.close()
        self.far.close()
        if self.process:
            self.process.wait(30)


class Proxy:
    """Takes the place of `init.sock` in the directory of a sandbox. What is connected already goes on as it is."""

    def __init__(self, directory, by_pump=False):
        directory = pathlib.Path(directory)
        self.by_pump = by_pump
        self.target = str(directory / "relay.sock")
        self.links = []
        self.lock = threading.Lock()
        path = directory / "init.sock"
        owner = path.stat()
        path.rename(self.target)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        os.chmod(path, 0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
        self.listener.listen(16)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    link = Link(near, self.target, self.by_pump)
                except OSError:  # the sandbox has ended
                    near.close()
                    continue
                with self.lock:
                    for old in self.links:
                        old.close()
                    self.links = [link]

    def cut(self):
        with self.lock:
            for link in self.links:
                link.cut()

    def kill_pump(self):
        with self.lock:
            for link in self.links:
                link.kill_pump()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for link in self.links:
            link.close()
