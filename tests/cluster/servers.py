# SPDX-License-Identifier: Apache-2.0
"""Redis servers and sentinels on machines of the network, and a client for the rig over their unix sockets."""
import os
import shutil
import signal
import socket
import subprocess
import time

PASSWORD = "of-the-rig"
MASTER = "rig"  # name of the master in Sentinel
PORT, SENTINEL_PORT = 6379, 26379


def missing():
    return None if shutil.which("redis-server") and shutil.which("redis-sentinel") else "there is no redis-server or redis-sentinel here"


class Client:
    """As much of the protocol as the rig needs: requests are lists of words, answers are text, numbers, lists and errors."""

    def __init__(self, path, password=PASSWORD, timeout=3):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")
        if password:
            self.ask("AUTH", password)

    def ask(self, *words):
        return self.ask_all([words])[0]

    def ask_all(self, requests):
        """One answer for each of several requests that are sent at once."""
        text = b""
        for words in requests:
            encoded = [str(word).encode() for word in words]
            text += b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        self.socket.sendall(text)
        return [self.answer() for _ in requests]

    def answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has gone")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise RuntimeError(rest)
        if kind == b"$":
            return None if rest == "-1" else self.file.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if rest == "-1" else [self.answer() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Program:
    """A program on a machine that can be killed, stopped and started again."""
    process = None

    def spawn(self, words):
        with open(self.directory / "out", "ab") as out:
            self.process = subprocess.Popen([*self.network.prefix(self.machine), *map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Server(Program):
    """redis-server that keeps all that it acknowledges: an append-only file, flushed always."""

    def __init__(self, network, machine, directory):
        self.network, self.machine, self.directory = network, machine, directory
        self.address = network.machines[machine]
        self.socket = directory / "socket"
        self.master = None  # of a replica
        directory.mkdir()

    def start(self, *more):
        self.socket.unlink(missing_ok=True)
        self.spawn(["redis-server", "--port", PORT, "--bind", "0.0.0.0", "--unixsocket", self.socket, "--requirepass", PASSWORD, "--masterauth", PASSWORD,
                    "--dir", self.directory, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--replica-announce-ip", self.address,
                    "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--logfile", self.directory / "log",
                    *(["--replicaof", self.master.address, PORT] if self.master else []), *more])
        self.wait()

    def wait(self, seconds=20):
        """Until it answers. The time that it needs to read its append-only file does not count: that grows with the storm."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with self.client() as client:
                    if client.ask("PING") == "PONG":
                        return
            except (OSError, RuntimeError, ConnectionError) as problem:
                if "LOADING" in str(problem):
                    deadline = time.monotonic() + seconds
            assert self.process.poll() is None and time.monotonic() < deadline, f"redis-server on {self.machine} does not answer"
            time.sleep(0.02)

    def client(self, **options):
        return Client(self.socket, **options)

    def role(self):
        try:
            with self.client(timeout=1) as client:
                return client.ask("ROLE")[0]
        except (OSError, RuntimeError, ConnectionError):
            return None


class Sentinel(Program):
    def __init__(self, network, machine, directory, quorum=2):
        self.network, self.machine, self.directory, self.quorum = network, machine, directory, quorum
        self.socket = directory / "socket"
        directory.mkdir()

    def start(self, master):
        config = self.directory / "sentinel.conf"
        config.write_text(f"""port {SENTINEL_PORT}
bind 0.0.0.0
protected-mode no
unixsocket {self.socket}
dir {self.directory}
logfile {self.directory}/log
sentinel announce-ip {self.network.machines[self.machine]}
sentinel monitor {MASTER} {master.address} {PORT} {self.quorum}
sentinel auth-pass {MASTER} {PASSWORD}
sentinel down-after-milliseconds {MASTER} 1000
sentinel failover-timeout {MASTER} 4000
sentinel parallel-syncs {MASTER} 1
""")
        self.spawn(["redis-sentinel", config])

    def master(self):
        """Address of the master as this sentinel knows it, or None."""
        try:
            with Client(self.socket, password=None, timeout=1) as client:
                return (client.ask("SENTINEL", "get-master-addr-by-name", MASTER) or [None])[0]
        except (OSError, RuntimeError, ConnectionError):
            return None


class Store:
    """The servers of a rig: one, or with `is_replicated` a master, a replica and three sentinels."""
    MACHINES = ("redis1", "redis2", "watch")

    def __init__(self, network, directory, is_replicated):
        directory.mkdir()
        os.chmod(directory, 0o711)
        self.servers = [Server(network, machine, directory / machine) for machine in self.MACHINES[:1 + is_replicated]]
        self.sentinels = [Sentinel(network, machine, directory / f"sentinel-{machine}") for machine in (self.MACHINES if is_replicated else ())]
        self.network = network
        self.machines = [part.machine for part in (self.sentinels or self.servers)]

    def start(self):
        self.servers[0].start()
        if self.sentinels:
            self.servers[1].master = self.servers[0]
            self.servers[1].start()
            self.wait_for_replica(self.servers[0])
            for sentinel in self.sentinels:
                sentinel.start(self.servers[0])
            self.wait_until(lambda: all(sentinel.master() for sentinel in self.sentinels), "the sentinels know the master")

    def settings(self, database=0):
        if not self.sentinels:
            return {"url": f"redis://:{PASSWORD}@{self.servers[0].address}:{PORT}/{database}"}
        hosts = ",".join(f"{self.network.machines[machine]}:{SENTINEL_PORT}" for machine in self.machines)
        return {"url": f"redis+sentinel://:{PASSWORD}@{hosts}/{MASTER}/{database}", "sync": "replicas:1"}

    def master(self):
        """The server that is master for those who ask the sentinels; None while that is not settled."""
        if not self.sentinels:
            return self.servers[0]
        addresses = [sentinel.master() for sentinel in self.sentinels]
        address = max(set(addresses), key=addresses.count)
        return next((server for server in self.servers if server.address == address and server.role() == "master"), None)

    def wait_for_replica(self, master):
        def is_linked():
            with master.client() as client:
                return client.ask("ROLE")[2]
        self.wait_until(is_linked, "the replica is linked")

    @staticmethod
    def wait_until(condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if value := condition():
                    return value
            except (OSError, RuntimeError, ConnectionError):
                pass
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.05)

    def fail_over(self, is_killed):
        """The master goes, the sentinels choose the other one; the old one comes back as its replica."""
        old = self.wait_until(self.master, "there is a master")
        new = next(server for server in self.servers if server is not old)
        if is_killed:
            old.kill()
        else:
            with Client(self.sentinels[2].socket, password=None) as client:
                client.ask("SENTINEL", "FAILOVER", MASTER)
        self.wait_until(lambda: self.master() is new, "the other server is the master")
        if is_killed:
            old.master = new
            old.start()
        new.master = None
        self.wait_for_replica(new)

    def stop(self):
        for part in [*self.sentinels, *self.servers]:
            part.kill()
