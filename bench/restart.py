#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a daemon takes to serve again after kill -9 with many live sandboxes, and to remove them all.

    SANDGLASS_BUILD=build bench/restart.py [SANDBOXES [BACKEND]]
"""
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE)]
from conftest import Daemon  # noqa: E402
from lib.daemon import launchers  # noqa: E402


def cpu_seconds(pid):
    """Of the process and of its children that it has waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def used(daemon):
    """CPU time of the daemon and of its launcher: the wall clock counts what else the machine does, too."""
    return cpu_seconds(daemon.process.pid), sum(map(cpu_seconds, launchers(daemon.process.pid)))


def timed(what, function, daemon, fresh=False):
    cpu = (0, 0) if fresh else used(daemon)
    before = time.monotonic()
    function()
    took = time.monotonic() - before
    core, launcher = (after - start for after, start in zip(used(daemon), cpu))
    print(f"{what:24} {took:7.3f} s, cpu: daemon {core:6.2f} s, launcher {launcher:6.2f} s")


def create(daemon, count):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: daemon.session(idle_timeout=3600), range(count)))


def await_ready(daemon, count):
    while daemon.api("GET", "/capacity").json["sandboxes"] < count or "creating" in states(daemon):
        time.sleep(0.05)


def states(daemon):
    return {line.split('"')[1] for line in daemon.request("GET", "/metrics").body.decode().splitlines()
            if line.startswith("sandglass_sandboxes{") and not line.endswith(" 0")}


def restart(daemon):
    daemon.spawn()
    while not daemon.is_ready():
        time.sleep(0.002)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    backend = sys.argv[2] if len(sys.argv) > 2 else "native"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sgt-"))
    os.chmod(directory, 0o711)
    daemon = Daemon(directory, backend=backend,
                    settings={"pool": {"size": 0}, "log": {"level": "warn"}, "shutdown": {"policy": "destroy", "timeout": 60},
                              "capacity": {"max_sandboxes": count + 10, "max_per_owner": count + 10}}).start()
    try:
        timed(f"create {count}", lambda: (create(daemon, count), await_ready(daemon, count)), daemon)
        for _ in range(3):
            daemon.kill()
            timed(f"restart with {count}", lambda: restart(daemon), daemon, fresh=True)
        timed(f"delete {count}", lambda: daemon.api("DELETE", "/sessions", expect=200, timeout=120), daemon)
    finally:
        daemon.stop(90)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
