#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a long history costs: lists of 1,000 and of 100,000 ended sessions, the start, retention, and the size of the database.

    SANDGLASS_BUILD=build bench/history.py [MANY [FEW]]

Real sessions are made and ended first; copies of their records fill the store. Prints a table, and exits with 1 when
a list takes more than 3 times as long with MANY as with FEW, when retention of all takes a minute or more, when a request beside it
takes more than 50 ms more than the slowest one before, or when the database does not shrink.
"""
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lib.daemon import Daemon, UnixConnection, status_kb  # noqa: E402

OWNERS, TEAMS, SAMPLES, LIVE = 10, 10, 60, 20
RATIO, RETENTION_S, SLOWEST_MS = 3.0, 60, 50


# --- filling --------------------------------------------------------------------------------------

def make_model(daemon):
    """A few sessions that have lived; their records are what is copied."""
    for _ in range(LIVE):
        daemon.api("POST", "/sessions", {"labels": {"live": "yes"}, "preload": False, "idle_timeout": 0, "max_lifetime": 0})
    session = daemon.api("POST", "/sessions", {"labels": {"all": "yes"}})["id"]
    daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo hello"})
    daemon.api("DELETE", f"/sessions/{session}")
    return session


def columns(database, table, leave_out):
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[1] not in leave_out]


def copy_rows(database, table, changed, count, first, where):
    """Each row that fits, `count` times; `changed` are columns with an expression over the number n."""
    same = columns(database, table, {*changed, "seq", "sum"})
    database.execute(
        f"""WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {first + count - 1})
            INSERT INTO {table} ({', '.join([*changed, *same])})
            SELECT {', '.join([*changed.values(), *same])} FROM numbers CROSS JOIN {table} AS model WHERE {where} ORDER BY n""")


def scattered(number):
    """The part of an id behind its prefix, as far from that of its neighbours as in real ids."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:26]


def fill(state, model, first, count):
    """The records of that many ended sessions, with an execution each, its events and its output."""
    database = sqlite3.connect(state / "sandglass.db")
    execution, = database.execute("SELECT id FROM executions WHERE session_id = ?", (model,)).fetchone()
    events, = database.execute("SELECT count(*) FROM events WHERE session_id = ?", (model,)).fetchone()
    top, = database.execute("SELECT max(sequence) FROM events").fetchone()
    database.create_function("scattered", 1, scattered, deterministic=True)
    session = "'ses_' || scattered(n)"
    copy_rows(database, "sessions", {
        "id": session, "owner": f"printf('owner-%d', n % {OWNERS})",
        "labels_json": f"json_object('all', 'yes', 'team', printf('%d', n % {TEAMS}), 'number', printf('%d', n))"},
        count, first, f"model.id = '{model}'")
    copy_rows(database, "executions", {"id": "'exe_' || scattered(-n)", "session_id": session}, count, first,
              f"model.id = '{execution}'")
    copy_rows(database, "events", {"sequence": f"{top} + (n - {first}) * {events} + session_sequence", "session_id": session},
              count, first, f"model.session_id = '{model}'")
    database.commit()
    database.close()
    output = state / "output"
    for number in range(first, first + count):
        (output / f"exe_{scattered(-number)}.out").write_text("hello\n")
    owner = output.stat()
    subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", output], check=False)


def expire(state):
    database = sqlite3.connect(state / "sandglass.db")
    database.execute("UPDATE sessions SET retain_until_wall_us = 1 WHERE state = 'ended'")
    database.commit()
    database.close()


def stop(daemon):
    daemon.process.terminate()
    daemon.process.wait(320)


def start(daemon):
    before = time.monotonic()
    daemon.start()
    return time.monotonic() - before


def size_of(state):
    return sum(file.stat().st_size for file in state.glob("sandglass.db*"))


# --- asking ---------------------------------------------------------------------------------------

class Client:
    def __init__(self, daemon):
        self.connection = UnixConnection(str(daemon.socket))

    def get(self, target):
        """How long it takes, in ms, and what comes."""
        before = time.monotonic()
        self.connection.request("GET", "/api/v1" + target)
        answer = self.connection.getresponse()
        text = answer.read()
        took = (time.monotonic() - before) * 1000
        if answer.status >= 400:
            raise RuntimeError(f"{target}: {answer.status} {text[:300]!r}")
        return took, text

    def json(self, target):
        return json.loads(self.get(target)[1])


def questions(client, count):
    """Name and target of each list that is measured; the page in the middle has a cursor of a page before."""
    ended = "/sessions?state=ended&owner=*"
    page, cursor = 1000, None
    for _ in range(min(count // 2 // page, 50)):
        cursor = client.json(ended + f"&limit={page}" + (f"&cursor={cursor}" if cursor else ""))["next_cursor"]
    cursor = cursor or client.json(ended + "&limit=100")["next_cursor"]
    return {
        "first page": ended, "page in the middle": f"{ended}&cursor={cursor}",
        "label of all": ended + "&label=all=yes", "label of a tenth": ended + "&label=team=3",
        "label of one": ended + "&label=number=77", "label of none": ended + "&label=nobody=x",
        "two labels": ended + "&label=team=3&label=number=73",
        "owner": "/sessions?state=ended&owner=owner-3", "owner and label": "/sessions?state=ended&owner=owner-3&label=team=3",
        "state": "/sessions?state=open", "live": "/sessions", "live label": "/sessions?label=live=yes"}


def summary(times):
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)]


def measure(few, few_count, many, many_count):
    """Both daemons in turn, so that whatever else the machine does concerns both: p50 and p99 of each, by name."""
    clients = [Client(few), Client(many)]
    targets = [questions(client, count) for client, count in zip(clients, (few_count, many_count))]
    found = {}
    for name in targets[0]:
        times = [[client.get(target[name])[0] for client, target in zip(clients, targets)] for _ in range(SAMPLES + 1)][1:]
        found[name] = [summary(column) for column in zip(*times)]
    return found


def walk(daemon, count):
    """All pages, one after the other."""
    client, cursor, seen = Client(daemon), None, 0
    before = time.monotonic()
    while True:
        page = client.json("/sessions?state=ended&owner=*&limit=1000" + (f"&cursor={cursor}" if cursor else ""))
        seen, cursor = seen + len(page["sessions"]), page["next_cursor"]
        if not cursor:
            break
    assert seen >= count, seen
    return time.monotonic() - before


class Probe(threading.Thread):
    """Asks without pause what does not need what is being removed."""
    targets = ("/sessions", "/sessions?state=ended&owner=*&limit=10", "/capacity")

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_under_test, self.times, self.ended = daemon, [], threading.Event()
        self.start()

    def run(self):
        client = Client(self.daemon_under_test)
        while not self.ended.is_set():
            for target in self.targets:
                self.times.append(client.get(target)[0])
            time.sleep(0.005)

    def finish(self):
        self.ended.set()
        self.join()
        return sorted(self.times)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def left(daemon):
    return Client(daemon).json("/sessions?state=ended&owner=*&limit=1")["total"]


def retain(daemon, state):
    """Seconds until all are gone, times of requests before and beside it, and of the database: sizes at its fullest and when it rests."""
    probe = Probe(daemon)
    full, begin = size_of(state), time.monotonic()
    while left(daemon):
        time.sleep(0.05)
        full = max(full, size_of(state))
    took = time.monotonic() - begin
    beside = probe.finish()
    rests = time.monotonic() + 30
    while size_of(state) > full / 4 and time.monotonic() < rests:
        time.sleep(0.1)
    return took, beside, full, size_of(state)


# --- telling --------------------------------------------------------------------------------------

def prepare(daemon, count):
    """That many ended sessions; how long the start takes that makes the lists of labels from what was written by hand."""
    model = make_model(daemon)
    stop(daemon)
    fill(daemon.folder / "state", model, 1, count)
    return start(daemon)


def compare(small, few, daemon, many, problems):
    print(f"{'ms (p50, p99)':22}{few:>18,}{many:>20,}{'ratio of p50':>16}")
    for name, (short, long) in measure(small, few, daemon, many).items():
        tell(f"{name:22}{short[0]:9.2f}{short[1]:9.2f}{long[0]:11.2f}{long[1]:9.2f}{long[0] / short[0]:16.2f}",
             long[0] / short[0] > RATIO, problems)


def tell(line, missed, problems):
    print(line + (" <-- missed" if missed else ""))
    if missed:
        problems.append(line)


def main():
    many, few = (int(text) for text in (sys.argv[1:] + ["100000", "1000"][len(sys.argv) - 1:])[:2])
    program = pathlib.Path(os.environ.get("SANDGLASS_BUILD", "build")).resolve() / "sandglass"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sandglass-history-"))
    folder.chmod(0o711)
    problems = []
    settings = {"session": {"retention": "30d"}, "shutdown": {"policy": "destroy"}, "pool": {"size": 0},
                "sandbox": {"backend": os.environ.get("SANDGLASS_BACKEND", "native")}}
    with Daemon(program, folder, "few", settings) as small, Daemon(program, folder, "many", settings) as daemon:
        state = daemon.folder / "state"
        prepare(small, few)
        anew = prepare(daemon, many)
        compare(small, few, daemon, many, problems)
        print(f"all pages of 1000: {walk(daemon, many):.1f} s; memory of the daemon {status_kb(daemon.process.pid, 'VmRSS')} kB")
        stop(small)
        started_few = start(small)
        stop(daemon)
        started_many = start(daemon)
        print(f"start: {started_few:.2f} s with {few:,}, {started_many:.2f} s with {many:,} ({anew:.2f} s when lists are made anew)")
        probe = Probe(daemon)
        time.sleep(5)
        at_rest = probe.finish()
        stop(daemon)
        expire(state)
        start(daemon)
        took, beside, full, rest = retain(daemon, state)
        tell(f"retention of {many:,}: {took:.1f} s, {many / took:.0f} a second, cpu {cpu_seconds(daemon.process.pid):.1f} s", took >= RETENTION_S, problems)
        slow = sum(1 for one in beside if one > SLOWEST_MS)
        tell(f"requests beside it: {len(beside)}, p50 {statistics.median(beside):.2f} ms, slowest {beside[-1]:.1f} ms, "
             f"{slow} over {SLOWEST_MS} ms; before: p50 {statistics.median(at_rest):.2f} ms, slowest {at_rest[-1]:.1f} ms",
             beside[-1] > at_rest[-1] + SLOWEST_MS, problems)
        tell(f"database: {full / 1e6:.1f} MB with them, {rest / 1e6:.1f} MB afterwards", rest > full / 4, problems)
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
