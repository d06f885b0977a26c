#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one owner waits for while others do their worst: the median of an exec, against that of a quiet daemon in the same run.

    SANDGLASS_BUILD=build bench/fairness.py [--backend native|direct] [--count N] [--json]

Loads, alone and together: 60 programs that write without end in one sandbox; 6 owners who hold all executions that they may have and go
on asking for more; 200 clients that ask for output and read nothing. Idle is measured right before and right after each load. Exit code 1: a
ratio is above 5.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import types
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lib.daemon import Daemon, UnixConnection  # noqa: E402

ALLOWED = 5.0
WRITERS, GREEDY, SLOW, CAP = 60, 6, 200, 20


class Client:
    """Requests of one owner over one connection."""

    def __init__(self, daemon, owner):
        self.connection = UnixConnection(str(daemon.socket))
        self.headers = {"X-Sandglass-On-Behalf-Of": owner, "Content-Type": "application/json"}

    def ask(self, method, path, body=None):
        self.connection.request(method, "/api/v1" + path, body=json.dumps(body) if body is not None else None, headers=self.headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def session(self):
        status, session = self.ask("POST", "/sessions", {})
        assert status == 201, session
        return session["id"]

    def run(self, session, **body):
        return self.ask("POST", f"/sessions/{session}/executions", body)


@contextlib.contextmanager
def writers(daemon):
    client = Client(daemon, "loud")
    session = client.session()
    for _ in range(WRITERS):
        status, answer = client.run(session, command="exec cat /dev/zero", background=True)
        assert status == 201, answer
    yield
    client.ask("DELETE", f"/sessions/{session}")


def insist(daemon, owners):
    """A process of its own: its requests must not wait for those that are measured, nor the other way round."""
    pairs = [(client, client.session()) for client in (Client(daemon, owner) for owner in owners)]
    for client, session in pairs:
        while client.run(session, argv=["sleep", "600"], background=True)[0] == 201:
            pass
    print("at their caps", flush=True)
    while True:
        for client, session in pairs:
            client.run(session, argv=["sleep", "600"], background=True)
            time.sleep(0.002)


@contextlib.contextmanager
def greedy(daemon):
    owners = [f"greedy{number}" for number in range(GREEDY)]
    process = subprocess.Popen([sys.executable, __file__, "--insist", str(daemon.socket), *owners], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield
    process.kill()
    process.wait()
    for owner in owners:
        Client(daemon, owner).ask("DELETE", "/sessions")


@contextlib.contextmanager
def slow(daemon):
    client = Client(daemon, "slow")
    session = client.session()
    status, execution = client.run(session, command="exec cat /dev/zero", background=True)
    assert status == 201, execution
    connections = []
    for _ in range(SLOW):
        connection = UnixConnection(str(daemon.socket))
        connection.request("GET", f"/api/v1/sessions/{session}/executions/{execution['id']}/output?stream=stdout&follow=1", headers=client.headers)
        connections.append(connection)
    yield
    for connection in connections:
        connection.close()
    client.ask("DELETE", f"/sessions/{session}")


@contextlib.contextmanager
def all_of_them(daemon):
    with writers(daemon), greedy(daemon), slow(daemon):
        yield


LOADS = {"60 writers": writers, "6 owners at their caps": greedy, "200 slow clients": slow, "all together": all_of_them}


def measure(client, session, count):
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        status, answer = client.run(session, argv=["/bin/true"])
        times.append((time.perf_counter() - begun) * 1e3)
        assert status == 201 and answer["exit_code"] == 0, answer
    return times


def compare(daemon, count):
    client = Client(daemon, "quiet")
    session = client.session()
    measure(client, session, count // 4)
    rows = []
    for name, load in LOADS.items():
        idle = measure(client, session, count)
        with load(daemon):
            time.sleep(0.5)
            loaded = measure(client, session, count)
        idle += measure(client, session, count)
        base = statistics.median(idle)
        rows.append({"load": name, "idle_ms": base, "loaded_ms": statistics.median(loaded), "p95_ms": sorted(loaded)[int(count * 0.95)],
                     "ratio": statistics.median(loaded) / base})
    client.ask("DELETE", f"/sessions/{session}")
    return rows


def main():
    if sys.argv[1:2] == ["--insist"]:
        return insist(types.SimpleNamespace(socket=sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="native")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    program = pathlib.Path(os.environ.get("SANDGLASS_BUILD", "build")).resolve() / "sandglass"
    folder = tempfile.mkdtemp(prefix="sgf-")
    os.chmod(folder, 0o711)
    settings = {"sandbox": {"backend": options.backend}, "exec": {"max_concurrent": WRITERS + 4},
                "owners": [{"name": "greedy*", "executions": CAP}]}
    try:
        with Daemon(program, folder, "fairness", settings) as daemon:
            rows = compare(daemon, options.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{'load':24} {'idle ms':>8} {'loaded':>8} {'p95':>8} {'ratio':>6}")
        for row in rows:
            print(f"{row['load']:24} {row['idle_ms']:8.2f} {row['loaded_ms']:8.2f} {row['p95_ms']:8.2f} {row['ratio']:6.2f}")
    return 1 if any(row["ratio"] > ALLOWED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
