# SPDX-License-Identifier: Apache-2.0
"""A cluster for tests: several daemons on this machine that share one Redis server."""
import contextlib
import os
import select
import shutil
import socket
import subprocess
import threading

import pytest

from conftest import free_port, wait_for

MISSING = not shutil.which("redis-server")
LEASE = 6  # seconds; a node that stands still for less than two of them goes on serving
needs_redis = pytest.mark.skipif(MISSING, reason="there is no redis-server here")


class Redis:
    def __init__(self, directory):
        self.directory = directory
        self.socket = directory / "socket"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "777", "--dir",
                                         self.directory, "--save", "", "--appendonly", "no", "--logfile", self.directory / "log"],
                                        stdin=subprocess.DEVNULL)
        wait_for(self.answers, "the Redis server answers")

    def answers(self):
        """Its socket is there before it listens."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(self.socket))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        return False

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Door:
    """A socket that leads to the Redis server. While it `is_for_openings`, other new connections end with the first request behind ROLE."""

    def __init__(self, path, redis):
        self.redis, self.is_for_openings = redis, False
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        os.chmod(path, 0o777)
        self.server.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.server.accept()[0]
            except OSError:  # closed
                return
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self.redis.socket))
            requests = 0
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    requests += source is client
                    if not data or self.is_for_openings and requests == 2 and source is client and b"maxmemory-policy" not in data:
                        return
                    (server if source is client else client).sendall(data)

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


class Cluster:
    """Nodes by their names: cluster["a"] is a Daemon."""

    def __init__(self, make_daemon, work, redis):
        self.make_daemon = make_daemon
        self.redis = redis
        self.nodes = {}
        self.secret = work / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef\n")
        self.secret.chmod(0o600)

    def __getitem__(self, name):
        return self.nodes[name]

    def settings(self, name, port, lease=f"{LEASE}s", labels=None, scheme="http", ca=None, **more):
        node = {"id": name, "address": f"{scheme}://127.0.0.1:{port}", "lease": lease, "secret_file": str(self.secret)}
        if ca:
            node["ca"] = str(ca)
        if labels:
            node["labels"] = labels
        return {"store": {"kind": "redis", "redis": {"url": f"unix://{self.redis.socket}", "prefix": "c:"}}, "node": node,
                "listen": [f"127.0.0.1:{port}"], **more}

    def add(self, name, backend="native", **options):
        port = options.pop("port", None) or free_port()
        daemon = self.make_daemon(backend=backend, settings=self.settings(name, port, **options), start=False)
        daemon.port = port  # --listen adds it to the unix socket
        daemon.settings.pop("listen")
        self.nodes[name] = daemon.start()
        return daemon

    def wait_until_known(self, names=None):
        """Until every node knows all of them as up."""
        names = sorted(names or self.nodes)
        for daemon in self.nodes.values():
            if daemon.process.poll() is None:
                wait_for(lambda: self.up(daemon) == names, f"{daemon.settings['node']['id']} knows {names}, not {self.up(daemon)}", 20)

    @staticmethod
    def up(daemon):
        answer = daemon.api("GET", "/nodes")
        if answer.status != 200:
            return None
        return sorted(node["id"] for node in answer.json["nodes"] if node["state"] == "up")


@pytest.fixture
def redis(work):
    directory = work / "redis"
    directory.mkdir()
    os.chmod(directory, 0o711)
    server = Redis(directory)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster(redis, make_daemon, work):
    return Cluster(make_daemon, work, redis)


@pytest.fixture
def pair(cluster):
    """Two nodes that know each other."""
    cluster.add("a")
    cluster.add("b")
    cluster.wait_until_known()
    return cluster
