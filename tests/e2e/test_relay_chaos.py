# SPDX-License-Identifier: Apache-2.0
"""Connections to the relay are cut, pumps and the daemon killed at random under load: no byte is missing, none is doubled.

SANDGLASS_CUTS sets how often something happens, SANDGLASS_SEED repeats the moments of an earlier run."""
import collections
import http.client
import os
import random
import threading
import time

from relay_proxy import Proxy

CUTS = int(os.environ.get("SANDGLASS_CUTS", "30"))
SEED = int(os.environ.get("SANDGLASS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
RECORD = 8  # bytes: each record is its number, so that every byte's value follows from its offset

MARKS = bytes(range(128, 228))  # one before each piece of input that is sent again, none of them in a record
BYTES = {"Content-Type": "application/octet-stream"}

# Numbered records in pieces that end anywhere.
WRITER = """
import os, random
left, first, chance = %d, 0, random.Random(%d)
while left:
    count = min(left, chance.choice([1, 10, 1000, 10000]))
    data = b"".join(b"%%07d\\n" %% n for n in range(first, first + count))
    first, left = first + count, left - count
    while data:
        data = data[os.write(1, data[:chance.choice([1, 100, 65536, 1 << 20])]):]
"""


def records(first, count):
    return b"".join(b"%07d\n" % n for n in range(first, first + count))


def difference(data, expected):
    """Where they begin to differ; None when they do not."""
    if data == expected:
        return None
    at = next((i for i, (a, b) in enumerate(zip(data, expected)) if a != b), min(len(data), len(expected)))
    return f"{len(data)} bytes instead of {len(expected)}, at {at} {data[at:at + 24]!r} instead of {expected[at:at + 24]!r}"


class Worker(threading.Thread):
    """Does one thing again and again in a session. A request that the death of the daemon broke is sent again."""

    def __init__(self, daemon, session, number, stop):
        super().__init__(daemon=True)
        self.server, self.base, self.stop = daemon, f"/sessions/{session}", stop
        self.chance = random.Random(SEED * 100 + number)
        self.rounds = 0
        self.problems = []

    def ask(self, method, path, body=None, **options):
        """The answer, or None when the daemon died meanwhile or is starting."""
        try:
            answer = self.server.api(method, path, body, timeout=60, **options)
        except TimeoutError:
            self.problems.append(f"{method} {path}: no answer in 60 s")
            return None
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
            return None
        return None if answer.status in (429, 503) else answer

    def insist(self, method, path, body=None, **options):
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            answer = self.ask(method, path, body, **options)
            if answer is not None:
                return answer
        raise AssertionError(f"{method} {path}: not answered in 300 s")

    def start_program(self, **request):
        """The path of an execution in the background; its key makes it one, however often it is asked for."""
        key = f"{type(self).__name__}-{self.rounds}-{self.chance.random()}"
        answer = self.insist("POST", self.base + "/executions", {**request, "background": True, "key": key})
        assert answer.status in (200, 201), answer.body
        return f"{self.base}/executions/{answer.json['id']}"

    def result(self, path):
        """The record of an execution that has ended, and its output; None when it never ran."""
        while (record := self.insist("GET", path + "?wait=1").json)["state"] in ("queued", "running"):
            pass
        if record["started_at"] is None and (record["reason"] or "").startswith("lost: the daemon ended before"):
            return None, b""
        if (record["state"], record["exit_code"]) != ("exited", 0):
            self.problems.append(f"{path}: {record}")
        output = self.insist("GET", path + "/output?stream=stdout")
        if "x-sandglass-gap" in output.headers:
            self.problems.append(f"{path}: a gap {output.headers['x-sandglass-gap']}")
        return record, output.body

    def compare(self, what, data, expected):
        found = difference(data, expected)
        if found:
            self.problems.append(f"{what}: {found}")

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
                self.rounds += 1
        except Exception as problem:  # told by the test, which sees all of them
            self.problems.append(repr(problem))


class Output(Worker):
    terminal = {}

    def expected(self, count):
        return records(0, count)

    def step(self):
        count = self.chance.choice((10, 10000, 300000))
        path = self.start_program(code=WRITER % (count, self.rounds), **self.terminal)
        record, output = self.result(path)
        if record:
            self.compare(f"output of {path}", output, self.expected(count))


class Terminal(Output):
    terminal = {"tty": {"cols": 80, "rows": 24}}

    def expected(self, count):
        return records(0, count).replace(b"\n", b"\r\n")


class Input(Worker):
    """Writes to a `cat`. When a request got no answer, a part of it may have arrived: then a mark says where it is begun again."""

    def step(self):
        path = self.start_program(argv=["/bin/cat"], stdin=True)
        first, pieces = 0, []  # what has to arrive, and of some pieces only a part: (bytes, is certain)
        for _ in range(12):
            count = self.chance.choice((1, 50, 5000, 20000))
            data = records(first, count)
            if not self.write(path, data, pieces):
                return
            first += count
        while (answer := self.ask("POST", path + "/stdin?eof=1", b"", headers=BYTES)) is None:
            pass
        assert answer.status in (200, 409), answer.body
        record, output = self.result(path)
        if record:
            self.check(path, output, pieces)

    def write(self, path, data, pieces):
        """False when the program has never run."""
        while True:
            answer = self.ask("POST", path + "/stdin", data, headers=BYTES)
            if answer is not None and answer.status == 200:
                pieces.append((data, True))
                return True
            if answer is not None and answer.status == 409 and self.insist("GET", path).json["started_at"] is None:
                return False
            if answer is not None:
                raise AssertionError(f"stdin: {answer.status} {answer.body!r}")
            pieces.append((data, False))
            self.insist("GET", path)  # not before the daemon serves again: there are not so many marks
            data = bytes([128 + len(pieces) % 100]) + data.lstrip(MARKS)

    def check(self, path, output, pieces):
        at = 0
        for data, is_certain in pieces:
            if is_certain:
                if output[at:at + len(data)] != data:
                    self.problems.append(f"input of {path} at {at}: {difference(output[at:at + len(data)], data)}")
                    return
                at += len(data)
                continue
            length = len(os.path.commonprefix([output[at:at + len(data)], data]))
            at += length
        if at != len(output):
            self.problems.append(f"input of {path}: {len(output) - at} bytes too many, {output[at:at + 40]!r}")


class Files(Worker):
    def step(self):
        count = self.chance.choice((0, 3, 1000, 200000))
        data = records(self.rounds, count)
        name = f"/files?path=f{self.chance.randrange(3)}"
        answer = self.insist("PUT", self.base + name, data)
        assert answer.status in (200, 201, 204), answer.body
        answer = self.insist("GET", self.base + name)
        assert answer.status == 200, answer.body
        self.compare(f"{name} in round {self.rounds}", answer.body, data)
        offset = self.chance.randrange(len(data)) if data else 0
        if data:
            answer = self.insist("GET", self.base + name, headers={"Range": f"bytes={offset}-"})
            self.compare(f"{name} from {offset}", answer.body, data[offset:])


def proxies_of(daemon, by_pump):
    """One for each sandbox that is there, by its directory."""
    return {path: Proxy(path, by_pump and index % 2 == 0)
            for index, path in enumerate(sorted((daemon.state / "sandboxes").iterdir()))}


def shake(daemon, proxies, chance):
    """One thing that goes wrong, and its name."""
    time.sleep(chance.choice((0.01, 0.05, 0.2, 0.5)) * chance.random())
    kind = chance.choice(("cut", "cut", "cut", "pump", "pump", "daemon"))
    if kind == "daemon":
        daemon.kill()
        daemon.start()
    else:
        proxy = chance.choice(list(proxies.values()))
        proxy.kill_pump() if kind == "pump" and proxy.by_pump else proxy.cut()
    return kind


def test_no_byte_is_missing_or_doubled_when_carriers_and_daemons_die(make_daemon):
    daemon = make_daemon(settings={"sandbox": {"backend": "native", "relay": True, "auto_restart": False}, "pool": {"size": 0},
                                   "exec": {"output_spool": "64m"}})
    sessions = [daemon.session(idle_timeout=3600) for _ in range(2)]
    for session in sessions:
        daemon.execute(session, command="true")  # so that it has a sandbox
    daemon.kill()
    proxies = proxies_of(daemon, by_pump=True)
    assert len(proxies) == len(sessions)
    daemon.start()
    stop = threading.Event()
    workers = [kind(daemon, session, number, stop) for number, (session, kind) in enumerate(
        (session, kind) for session in sessions for kind in (Output, Terminal, Input, Files))]
    for worker in workers:
        worker.start()
    chance, happened = random.Random(SEED), collections.Counter()
    try:
        for _ in range(CUTS):
            happened[shake(daemon, proxies, chance)] += 1
            assert daemon.process.poll() is None, daemon.log()[-4000:]
            if any(worker.problems for worker in workers):
                break
        stop.set()
        for worker in workers:
            worker.join(400)
    finally:
        stop.set()
        problems = [problem for worker in workers for problem in worker.problems]
        problems += [f"{type(worker).__name__} does not end" for worker in workers if worker.is_alive()]
        for session in sessions:
            daemon.api("DELETE", f"/sessions/{session}")
        for proxy in proxies.values():
            proxy.close()
    print({type(worker).__name__: worker.rounds for worker in workers}, dict(happened))
    assert not problems, f"{problems[:5]} after {dict(happened)}; SANDGLASS_SEED={SEED}"
    assert all(worker.rounds for worker in workers), [(type(w).__name__, w.rounds) for w in workers]
