#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Many idle sandboxes at once: what each costs in memory, whether each can run a command, how long all of them take to go.

    SANDGLASS_BUILD=build bench/density.py [SANDBOXES [BACKEND]]

Ends with 1 when a command failed, or when a process, a control group or a mount is left. Memory is what the machine
has less of (MemAvailable) after a short settling, kernel structures included, divided by the number of sandboxes.
"""
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from conftest import Daemon, leftovers  # noqa: E402

WORKERS = 4
BATCH = 250
SETTLE_SECONDS = 20


def available_kib():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


def settled_kib():
    """Freed memory comes back late: waits until it does not grow any more."""
    deadline = time.monotonic() + SETTLE_SECONDS
    best = available_kib()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = available_kib()
        if now <= best + 512:
            return now
        best = now
    return best


def timed(what, function):
    before = time.monotonic()
    result = function()
    print(f"{what:28} {time.monotonic() - before:8.2f} s", flush=True)
    return result


def each(function, items):
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(function, items))


def create(daemon, count):
    """Sessions with their sandboxes ready. Who asks for more at once than are made in time would get errors, and rightly."""
    sessions = []
    while len(sessions) < count:
        sessions += each(lambda _: daemon.session(idle_timeout=0), range(min(BATCH, count - len(sessions))))
        while sandboxes(daemon, "ready") < len(sessions):
            time.sleep(0.01)
    return sessions


def sandboxes(daemon, state):
    for line in daemon.request("GET", "/metrics").body.decode().splitlines():
        if line.startswith("sandglass_sandboxes{") and f'"{state}"' in line:
            return int(float(line.rsplit(" ", 1)[1]))
    return 0


def run_in(daemon, session):
    answer = daemon.execute(session, ["/bin/true"], timeout=60)
    return answer["exit_code"] == 0


def await_nothing(directory):
    deadline = time.monotonic() + 60
    left = leftovers(directory)
    while any(left.values()) and time.monotonic() < deadline:
        time.sleep(0.1)
        left = leftovers(directory)
    return {kind: items for kind, items in left.items() if items}


def measure(daemon, count):
    before = settled_kib()
    sessions = timed(f"create {count}", lambda: create(daemon, count))
    idle = settled_kib()
    print(f"{'memory of each, idle':28} {(before - idle) / count:8.0f} kB")
    good = timed("a command in each", lambda: sum(each(lambda session: run_in(daemon, session), sessions)))
    print(f"{'memory of each, after it':28} {(before - settled_kib()) / count:8.0f} kB")
    timed("destroy all", lambda: daemon.api("DELETE", "/sessions", expect=200, timeout=300))
    print(f"{'commands that succeeded':28} {good:8} of {count}")
    return good == count


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    backend = sys.argv[2] if len(sys.argv) > 2 else "native"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sgt-"))
    os.chmod(directory, 0o711)
    daemon = Daemon(directory, backend=backend,
                    settings={"pool": {"size": 0}, "log": {"level": "warn"}, "shutdown": {"policy": "destroy", "timeout": 60},
                              "capacity": {"max_sandboxes": count + 10, "max_per_owner": count + 10}}).start()
    try:
        good = measure(daemon, count)
    finally:
        daemon.stop(120)
    left = await_nothing(directory)
    shutil.rmtree(directory, ignore_errors=True)
    print(f"{'left behind':28} {left or 'nothing'}")
    return 0 if good and not left else 1


if __name__ == "__main__":
    sys.exit(main())
