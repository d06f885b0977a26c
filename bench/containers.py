#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the backends docker and gvisor cost beside the engine itself, in one run: the engine's own create + start + exec and its exec in
a live container, and the same as a session and an execution, in turn. Ratios below 1 are faster than the engine.

    SANDGLASS_BUILD=build bench/containers.py [ROUNDS]
"""
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests")]
from conftest import Daemon  # noqa: E402
from engine import shared  # noqa: E402

IMAGES = {"docker": "sandglass-test:1", "gvisor": "sandglass-gvisor:1"}
AIMS = {"docker": (1.1, 0.1), "gvisor": (1.1, 0.6)}


def engine_create(api, backend, runtime):
    container = api.create(IMAGES[backend], ["sleep", "1000"], host={"Runtime": runtime, "Memory": 2 << 30})
    api.start(container)
    return container


def engine_exec(api, container):
    """As `docker exec` does it: made, started, read to its end, and its code asked for."""
    assert api.execute(container, ["/bin/true"])[0] == 0


def timed(measured):
    before = time.monotonic()
    result = measured()
    return (time.monotonic() - before) * 1000, result


def our_create(daemon):
    session = daemon.api("POST", "/sessions", {}, expect=201).json["id"]
    daemon.execute(session, ["/bin/true"])
    return session


def measure(daemon, api, backend, runtime, rounds):
    rows = {"engine: create + start + exec": [], "session + execution": [], "engine: exec": [], "execution": []}
    for _ in range(rounds):
        took, container = timed(lambda: engine_create(api, backend, runtime))
        first, _ = timed(lambda: engine_exec(api, container))
        rows["engine: create + start + exec"].append(took + first)
        for _ in range(3):
            rows["engine: exec"].append(timed(lambda: engine_exec(api, container))[0])
        api.remove(container)
        took, session = timed(lambda: our_create(daemon))
        rows["session + execution"].append(took)
        for _ in range(10):
            rows["execution"].append(timed(lambda: daemon.execute(session, ["/bin/true"]))[0])
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
    return {name: statistics.median(values) for name, values in rows.items()}


def show(backend, medians):
    theirs, ours, their_exec, our_exec = medians.values()
    for name, value in medians.items():
        print(f"{backend:8} {name:32} {value:9.2f} ms")
    for name, ratio, aim in (("create", ours / theirs, AIMS[backend][0]), ("exec", our_exec / their_exec, AIMS[backend][1])):
        print(f"{backend:8} {name + ', beside the engine':32} {ratio:9.3f}    aim {aim}: {'met' if ratio <= aim else 'missed'}")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    engine = shared.use(f"bench-{os.getpid()}")
    try:
        for backend, runtime in (("docker", "runc"), ("gvisor", "runsc")):
            with tempfile.TemporaryDirectory(prefix="sgt-bench-") as work:
                os.chmod(work, 0o755)
                daemon = Daemon(pathlib.Path(work), backend=backend, settings={
                    "pool": {"size": 0}, "session": {"preload": False}, "docker": {"host": engine.host, "image": IMAGES[backend], "pull": "never"}})
                daemon.start()
                try:
                    show(backend, measure(daemon, engine.api, backend, runtime, rounds))
                finally:
                    daemon.stop()
    finally:
        engine.release()


if __name__ == "__main__":
    main()
