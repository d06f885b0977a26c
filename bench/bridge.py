#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the bridge costs: output in MB/s, the daemon's memory meanwhile, uploads, downloads and the latency of a program, with native
sandboxes that are reached directly and over the bridge, in turn.

    SANDGLASS_BUILD=build bench/bridge.py [MIB]
"""
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE)]
from conftest import Daemon, UnixConnection  # noqa: E402

ROUNDS = 500


class Memory(threading.Thread):
    """The most that the daemon has had while this ran."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_, self.peak, self.stop = daemon, daemon.resident_kib(), threading.Event()

    def __enter__(self):
        self.first = self.peak
        self.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join()

    def run(self):
        while not self.stop.wait(0.01):
            self.peak = max(self.peak, self.daemon_.resident_kib())


def follow(daemon, path, offset=0):
    """Reads output to its end; how many bytes there were."""
    connection = UnixConnection(str(daemon.socket), timeout=300)
    connection.request("GET", f"/api/v1{path}/output?offset={offset}&follow=1")
    response = connection.getresponse()
    buffer, count = bytearray(1 << 20), 0
    while size := response.readinto(buffer):
        count += size
    connection.close()
    return count


def output(daemon, session, size):
    """MB/s from a program to a client that reads along, and what the daemon's memory grew by, in MiB."""
    command = f"head -c {size} /dev/zero"
    with Memory(daemon) as memory:
        before = time.monotonic()
        run = daemon.api("POST", f"/sessions/{session}/executions", {"command": command, "background": True}, expect=201).json["id"]
        count = follow(daemon, f"/sessions/{session}/executions/{run}")
        took = time.monotonic() - before
    assert count == size, f"{count} bytes instead of {size}"
    return size / took / 1e6, (memory.peak - memory.first) / 1024, memory.peak / 1024


def unread(daemon, session, size):
    """MB/s from a program into the daemon's spool, which nobody reads."""
    before = time.monotonic()
    daemon.execute(session, command=f"head -c {size} /dev/zero")
    return size / (time.monotonic() - before) / 1e6


def files(daemon, session, size):
    """MB/s of an upload and of a download."""
    data = bytes(size)
    before = time.monotonic()
    answer = daemon.api("PUT", f"/sessions/{session}/files?path=f", data, timeout=300)
    up = time.monotonic() - before
    assert answer.status < 300, answer.body
    before = time.monotonic()
    assert len(daemon.api("GET", f"/sessions/{session}/files?path=f", expect=200, timeout=300).body) == size
    return size / up / 1e6, size / (time.monotonic() - before) / 1e6


def latency(daemons):
    """Milliseconds of one /bin/true, in turn."""
    taken = {name: [] for name in daemons}
    for _ in range(ROUNDS):
        for name, (daemon, session) in daemons.items():
            before = time.monotonic()
            daemon.execute(session, argv=["/bin/true"])
            taken[name].append((time.monotonic() - before) * 1e3)
    return taken


def main():
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sgt-"))
    os.chmod(directory, 0o711)
    daemons = {}
    try:
        for name in ("native", "bridge"):
            (directory / name).mkdir(mode=0o711)
            daemon = Daemon(directory / name, settings={
                "sandbox": {"backend": "native", "relay": name == "bridge", "memory": "4g", "cpus": 2},
                "instance": f"bridge-{name}-{os.getpid()}", "log": {"level": "warn"}}).start()
            daemons[name] = daemon, daemon.session(idle_timeout=3600)
        for name, taken in latency(daemons).items():
            print(f"{name:7} /bin/true: median {statistics.median(taken):.2f} ms, p99 {statistics.quantiles(taken, n=100)[98]:.2f} ms")
        for _ in range(3):
            for name, (daemon, session) in daemons.items():
                speed, grown, peak = output(daemon, session, size)
                print(f"{name:7} output: {speed:5.0f} MB/s read along, {unread(daemon, session, size):5.0f} MB/s unread, "
                      f"memory of the daemon +{grown:.1f} MiB to {peak:.1f} MiB")
        for name, (daemon, session) in daemons.items():
            up, down = files(daemon, session, size // 4)
            print(f"{name:7} files: {up:5.0f} MB/s up, {down:5.0f} MB/s down")
    finally:
        for daemon, _ in daemons.values():
            daemon.stop(90)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
