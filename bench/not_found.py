#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a stranger can tell a session that exists from one that does not, by the time of the answer.

Asks for sessions of somebody else, live and ended, and for ids that nobody has, in random order over one connection.
For each pair it prints how often the one takes longer than the other: 0.50 is a coin.

    bench/not_found.py BUILD [REQUESTS]
"""
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, owner, body=None):
        headers = {"X-Sandglass-On-Behalf-Of": owner, **({"Content-Type": "application/json"} if body else {})}
        self.request(method, "/api/v1" + path, body, headers)
        answer = self.getresponse()
        return answer.status, answer.read()


def start(build, folder):
    config = folder / "sandglass.yaml"
    config.write_text(json.dumps({"state_dir": str(folder / "state"), "instance": f"bench-{os.getpid()}", "pool": {"size": 0},
                                  "session": {"preload": False}, "sandbox": {"backend": "direct"}}))
    path = str(folder / "run" / "sandglass.sock")
    daemon = subprocess.Popen([build / "sandglass", "serve", "--config", config, "--listen", "unix:" + path],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Connection(path).ask("GET", "/whoami", "ann")[0] == 200:
                return daemon, path
        except OSError:
            time.sleep(0.02)
    raise SystemExit("the daemon does not answer")


def identifiers(connection):
    """Each kind has so many that no cache knows one of them better than another."""
    made = [json.loads(connection.ask("POST", "/sessions", "ann", "{}")[1])["id"] for _ in range(200)]
    for session in made[100:]:
        connection.ask("DELETE", f"/sessions/{session}", "ann")
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    missing = ["ses_" + "".join(random.choice(alphabet) for _ in range(25)) + "0" for _ in range(100)]
    return {"live": made[:100], "ended": made[100:], "missing": missing}


def measure(connection, kinds, count):
    order = [kind for kind in kinds for _ in range(count)]
    times = {kind: [] for kind in kinds}
    shapes = set()
    random.shuffle(order)
    for kind in order:
        session = random.choice(kinds[kind])
        began = time.perf_counter_ns()
        status, body = connection.ask("GET", f"/sessions/{session}", "eve")
        times[kind].append((time.perf_counter_ns() - began) / 1000)
        shapes.add((status, body.replace(session.encode(), b"ID")))
    assert len(shapes) == 1, f"the answers differ: {shapes}"
    return times


def how_often_longer(first, second):
    """The probability that a value of the first is larger (Mann and Whitney)."""
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    return (rank_sum - len(first) * (len(first) + 1) / 2) / (len(first) * len(second))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with tempfile.TemporaryDirectory(prefix="sgb-") as name:
        os.chmod(name, 0o711)
        daemon, path = start(build, pathlib.Path(name))
        try:
            connection = Connection(path)
            times = measure(connection, identifiers(connection), count)
        finally:
            daemon.terminate()
            daemon.wait()
    for kind, values in times.items():
        print(f"{kind:8} median {statistics.median(values):8.1f} us   p90 {statistics.quantiles(values, n=10)[-1]:8.1f} us")
    for kind in ("live", "ended"):
        print(f"{kind} takes longer than missing: {how_often_longer(times[kind], times['missing']):.3f} of the time")


main()
