#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Creates, uses, crashes and removes sessions for a while and shows what grows.

    SANDGLASS_BUILD=build bench/soak.py [MINUTES]

Memory and descriptors of the daemon and of its launcher, files below the state directory, processes and control groups are
told for each tenth of the time, always after all sessions were removed. It fails when the last tenth has more than the third,
by more than what is noise: what is kept for retention is bounded by a short retention here.
"""
import concurrent.futures
import contextlib
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lib.daemon import Daemon, children, launchers, status_kb  # noqa: E402

TENTHS = 10
WORKERS = 4
SLACK = {"daemon kB": 4096, "launcher kB": 1024, "descriptors": 8, "launcher descriptors": 8, "files": 200, "state kB": 8192,
         "processes": 4, "groups": 4}


def descendants(pid):
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def groups(instance):
    return sum(len(list(holder.glob("sbx_*"))) for holder in pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass*{instance}*"))


def tree(path):
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith("audit.log"):
                continue  # it is meant to grow
            files += 1
            try:
                size += os.lstat(os.path.join(folder, name)).st_blocks // 2
            except OSError:
                pass
    return files, size


def look(daemon):
    pid = daemon.process.pid
    files, size = tree(daemon.folder / "state")
    return {"daemon kB": status_kb(pid, "VmRSS"), "launcher kB": sum(status_kb(one, "VmRSS") for one in launchers(pid)),
            "descriptors": descriptors(pid), "launcher descriptors": sum(map(descriptors, launchers(pid))), "files": files,
            "state kB": size, "processes": len(descendants(pid)), "groups": groups(daemon.settings["instance"])}


# --- what is done to it ---------------------------------------------------------------------------

def run_something(daemon, session):
    daemon.api("POST", f"/sessions/{session}/executions", {"command": "head -c 100000 /dev/zero; echo hello > file; false"})


def crash(daemon, session):
    """Its first process is killed; the next use makes another sandbox."""
    pid = daemon.api("GET", f"/sessions/{session}")["sandbox"]["pid"]
    with contextlib.suppress(OSError):  # it has crashed meanwhile
        if pid and pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("sandglass-init"):
            os.kill(pid, 9)
    run_something(daemon, session)


def time_out(daemon, session):
    daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/sleep", "100"], "timeout": 0.05})


def compute(daemon, session):
    daemon.api("POST", f"/sessions/{session}/executions", {"code": "print(sum(range(1000)))", "language": "python"})


def leave_running(daemon, session):
    daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/sleep", "100"], "background": True})


DEEDS = [run_something, run_something, crash, time_out, compute, leave_running]


def live(daemon, seed):
    """The life of one session."""
    dice = random.Random(seed)
    session = daemon.api("POST", "/sessions", {})["id"]
    for _ in range(dice.randrange(4)):
        try:
            dice.choice(DEEDS)(daemon, session)
        except RuntimeError as error:
            if '"retryable":true' not in str(error):  # as it is while a sandbox that has crashed is replaced
                raise
    if dice.random() < 0.8:
        daemon.api("DELETE", f"/sessions/{session}")


def spend(daemon, seconds, seed):
    end = time.monotonic() + seconds
    done = 0
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        while time.monotonic() < end:
            list(pool.map(lambda n: live(daemon, n), range(seed + done, seed + done + 4 * WORKERS)))
            done += 4 * WORKERS
    daemon.api("DELETE", "/sessions")
    time.sleep(2.5)  # the pool is full again, and what has ended is forgotten after its retention
    return done


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    build = pathlib.Path(os.environ.get("SANDGLASS_BUILD", pathlib.Path(__file__).resolve().parent.parent / "build"))
    folder = tempfile.mkdtemp(prefix="sandglass-bench.")
    os.chmod(folder, 0o711)
    looks, done = [], 0
    try:
        with Daemon(build.resolve() / "sandglass", folder, "soak", {"session": {"retention": 1}}) as daemon:
            for tenth in range(TENTHS):
                done += spend(daemon, minutes * 60 / TENTHS, done)
                looks.append(look(daemon))
                print(f"{done:6} sessions  " + "  ".join(f"{name} {value}" for name, value in looks[-1].items()), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    grown = {name: (looks[2][name], looks[-1][name]) for name in SLACK if looks[-1][name] > looks[2][name] + SLACK[name]}
    for name, (early, late) in grown.items():
        print(f"GROWS: {name}: {early} → {late}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
