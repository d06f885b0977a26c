# SPDX-License-Identifier: Apache-2.0
"""A cluster under load and faults, and a check of its history: tests/cluster/storm.py --faults 500 --seed 7

Prints the seed, each fault, and every violation; the history is kept in a file when there is one. Ends with rows of TAP.
"""
import argparse
import collections
import http.client
import random
import signal
import sys
import threading
import time

import checker
import faults
import load
import rig as rigs
from rig import now

LOOK_S = 0.1  # how often the homes of all sessions are looked at
ONE_CALL_IDLE_S = 60  # the idle timeout of a session that is made for one call; that of the rig is a day


class Sampler(threading.Thread):
    """Reads the home of each session in the store itself, ten times a second."""

    def __init__(self, rig, stop):
        super().__init__(daemon=True)
        self.rig, self.stop = rig, stop
        self.client, self.server = None, None
        self.last = {}

    def run(self):
        while not self.stop.is_set():
            try:
                self.sample()
            except (OSError, RuntimeError, ConnectionError, AssertionError, IndexError):
                self.client = None
            self.stop.wait(LOOK_S)

    def sample(self):
        master = self.rig.store.master()
        if master is None:
            return
        if self.client is None or master is not self.server:
            self.client, self.server = master.client(timeout=1), master
        begin = now()
        sessions = self.client.ask("ZRANGE", "rig:s.live", 0, -1)
        homes = self.client.ask_all([("HGET", f"rig:s:{session}", "node") for session in sessions]) if sessions else []
        end = now()
        if self.rig.store.master() is not master:
            return
        for session, node in zip(sessions, homes):
            self.note(session, (node or "").removeprefix(f"{self.rig.instance}-"), begin, end)

    def note(self, session, node, begin, end):
        """One entry for as long as it stays so; after a time without a look there is another."""
        last = self.last.get(session)
        if last and last["node"] == node and begin - last["end"] < LOOK_S * 5:
            last["end"] = end
        else:
            self.last[session] = self.rig.recorder.add("home", session=session, node=node, begin=begin, end=end)


class LossWatcher:
    """The store says that it has lost what it acknowledged: in the log of a daemon."""
    SAYS = "has lost commits that it had acknowledged"

    def __init__(self, rig):
        self.rig, self.seen = rig, collections.Counter()

    def look(self, since):
        for node in self.rig.nodes.values():
            times = node.log().count(self.SAYS)
            if times > self.seen[node.name]:
                self.rig.recorder.add("loss", node=node.name, since=since, at=now())
            self.seen[node.name] = times


class Storm:
    def __init__(self, names, faults_wanted, seed, clients, is_replicated=False, is_clustered=True, only=None, quiet=False):
        self.seed, self.wanted, self.only = seed, faults_wanted, only
        self.report = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
        self.rig = rigs.Rig(names, is_replicated, is_clustered)
        self.stop = threading.Event()
        self.sampler = Sampler(self.rig, self.stop)
        self.clients = [load.Client(self.rig, number, seed, self.stop) for number in range(clients)]
        self.losses = LossWatcher(self.rig)
        self.problems = []

    def run(self):
        """Everything; returns the list of (rule, sentence)."""
        begin, is_whole = time.monotonic(), False
        try:
            self.rig.start()
            self.weather()
            self.settle()
            is_whole = True
            self.end()
        except AssertionError as problem:
            self.problems.append(("the rig", str(problem)))
        finally:
            self.stop.set()
            self.rig.read_witness()
            self.rig.remove()
        entries = self.rig.recorder.entries
        self.problems += checker.check(entries, cap=self.rig.cap, paid_cap=rigs.PAID_CAP, is_whole=is_whole)
        self.problems += [("clients", problem) for client in self.clients for problem in client.problems]
        self.problems += [("daemons", entry["text"]) for entry in entries if entry["what"] == "problem"]
        self.report(self.summary(time.monotonic() - begin))
        return self.problems

    def weather(self):
        for thread in [self.sampler, *self.clients]:
            thread.start()
        injector = faults.Injector(self.rig, random.Random(self.seed), self.report)
        for _ in range(self.wanted):
            since = now() - rigs.LEASE_S
            injector.inject(self.only)
            time.sleep(injector.chance.uniform(0, rigs.LEASE_S))
            self.losses.look(since)
            self.look_at_daemons()
        self.stop.set()
        for client in self.clients:
            client.join(120)
            assert not client.is_alive(), f"client {client.number} waits for ever"

    def look_at_daemons(self):
        for node in self.rig.nodes.values():
            assert node.is_running(), f"{node.name} has ended with {node.process.returncode}:\n{node.log()[-4000:]}"

    def settle(self):
        """No more faults: all nodes serve, and each session says what became of it."""
        for node in self.rig.nodes.values():
            node.wait(60)
        self.rig.store.wait_until(lambda: all(self.sees_all(node) for node in self.rig.nodes.values()), "each node knows all others")
        owners = {entry["session"]: entry["owner"] for entry in self.rig.recorder.entries if entry["what"] == "op" and entry.get("session")}
        owners.update({session: record["owner"] for session, record in self.listed().items()})
        for session, owner in sorted(owners.items()):
            self.look_at_session(session, owner)
        for owner in rigs.OWNERS:
            load.record_money(self.rig.recorder, self.insist("GET", "/budget", key=self.rig.keys[owner]).json)
        self.compare_lists()

    def sees_all(self, node):
        if not self.rig.is_clustered:
            return True
        answer = node.api("GET", "/nodes", key=self.rig.keys["root"])
        return answer.status == 200 and sum(entry["state"] == "up" for entry in answer.json["nodes"]) == len(self.rig.nodes)

    def insist(self, method, path, seconds=60, **options):
        """The answer of any node once it says more than "later"."""
        deadline = time.monotonic() + seconds
        while True:
            node = self.rig.any_node()
            try:
                answer = node.api(method, path, **options)
            except (OSError, http.client.HTTPException) as problem:
                answer = problem
            if not isinstance(answer, Exception) and answer.status not in (429, 502, 503, 504):
                return answer
            assert time.monotonic() < deadline, f"{method} {path} through {node.name}: {getattr(answer, 'body', answer)!r} after {seconds} s"
            time.sleep(0.1)

    def listed(self, state=""):
        found, cursor = {}, ""
        while cursor is not None:
            page = self.insist("GET", f"/sessions?owner=*&limit=100{state}{f'&cursor={cursor}' if cursor else ''}", key=self.rig.keys["root"]).json
            found.update({record["id"]: record for record in page["sessions"]})
            cursor = page["next_cursor"]
        return found

    def look_at_session(self, session, owner):
        key = self.rig.keys[owner]
        answer = self.insist("GET", f"/sessions/{session}", key=key)
        if answer.status != 200:
            return self.rig.recorder.add("final", session=session, state="missing")
        record = answer.json
        labels = record["labels"]
        self.rig.recorder.add("final", session=session, state=record["state"], reason=record["end_reason"], owner=record["owner"], key=record["key"],
                              token=labels.get("token"), client=int(labels["client"]) if "client" in labels else None,
                              value=int(labels.get("value", 0)), generation=record["generation"],
                              is_for_one_call=record["idle_timeout_seconds"] is not None and record["idle_timeout_seconds"] <= ONE_CALL_IDLE_S)
        events = self.insist("GET", f"/sessions/{session}/events?follow=0", key=key)
        if events.status == 200:
            load.record_events(self.rig.recorder, session, events.body)
        return None

    def compare_lists(self):
        finals = {entry["session"]: entry["state"] for entry in self.rig.recorder.entries if entry["what"] == "final"}
        live, ended = self.listed(), self.listed("&state=ended")
        for session, state in finals.items():
            where = live if state in ("open", "paused", "ending") else ended if state == "ended" else {}
            if where is not None and (session in live) + (session in ended) != (0 if state == "missing" else 1):
                self.problems.append(("lists", f"{session} is {state}, and listed as live: {session in live}, ended: {session in ended}"))

    def end(self):
        """Everything is deleted, and then nothing may be left on any node."""
        for owner in rigs.OWNERS:
            answer = self.insist("DELETE", "/sessions", key=self.rig.keys[owner], timeout=60)
            if answer.status != 200 or answer.json["failed"]:
                self.problems.append(("the end", f"DELETE /sessions of {owner}: {answer.status} {answer.body[:500]!r}"))
        if self.listed():
            self.problems.append(("the end", f"still listed: {sorted(self.listed())}"))
        self.wait_for_sandboxes()
        for node in self.rig.nodes.values():  # the next ones have nothing to keep
            node.kill()
            node.settings["shutdown"] = {"policy": "destroy", "timeout": "20s"}
            node.start()
        self.problems += [("the end", problem) for problem in self.rig.stop()]

    def wait_for_sandboxes(self):
        """Only spares are left while the daemons still run."""
        most = 2  # one that is ready, and one that is being made
        self.rig.store.wait_until(lambda: all(len(node.sandboxes()) <= most for node in self.rig.nodes.values()),
                                  f"no sandbox without a session: {({node.name: node.sandboxes() for node in self.rig.nodes.values()})}", 30)

    def summary(self, seconds):
        entries = self.rig.recorder.entries
        outcomes = collections.Counter(entry["outcome"] for entry in entries if entry["what"] == "op")
        codes = collections.Counter(f"{entry.get('status')} {entry['code']}" for entry in entries if entry["what"] == "op" and entry.get("code"))
        kinds = collections.Counter(entry["kind"] for entry in entries if entry["what"] == "fault")
        moved = sum(len(set(found)) - 1 for found in self.homes().values())
        return (f"seed {self.seed}: {sum(kinds.values())} faults in {seconds:.0f} s {dict(kinds)}; requests {dict(outcomes)}, refused {dict(codes)}; "
                f"{sum(entry['what'] == 'ran' for entry in entries)} programs ran, {len(self.homes())} sessions, {moved} moves, "
                f"{sum(entry['what'] == 'loss' for entry in entries)} losses told")

    def homes(self):
        found = collections.defaultdict(list)
        for entry in self.rig.recorder.entries:
            if entry["what"] == "home" and (not found[entry["session"]] or found[entry["session"]][-1] != entry["node"]):
                found[entry["session"]].append(entry["node"])
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=100, metavar="N", help="how many faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10 ** 6))
    parser.add_argument("--nodes", default="a,b,c", metavar="NAMES", help="of the daemons, with commas")
    parser.add_argument("--clients", type=int, default=6, metavar="N")
    parser.add_argument("--only", metavar="NAMES", help="only these kinds of faults, with commas")
    parser.add_argument("--sole", action="store_true", help="one daemon that is no node")
    parser.add_argument("--sentinel", action="store_true", help="a replicated store, with failovers")
    parser.add_argument("--history", metavar="FILE", help="keep the history there")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # ignored in the background; either way everything is removed
        signal.signal(number, lambda *_: sys.exit("interrupted"))
    if rigs.missing():
        print(f"1..0 # SKIP {rigs.missing()}")
        return 0
    print(f"--faults {options.faults} --seed {options.seed}", flush=True)
    storm = Storm(options.nodes.split(",")[:1 if options.sole else None], options.faults, options.seed, options.clients, options.sentinel, not options.sole,
                  options.only.split(",") if options.only else None)
    problems = storm.run()
    if options.history:
        storm.rig.recorder.save(options.history)
    broken = collections.defaultdict(list)
    for rule, problem in problems:
        broken[rule].append(problem)
    names = [rule.__name__ for rule in checker.RULES] + sorted(set(broken) - {rule.__name__ for rule in checker.RULES})
    for number, name in enumerate(names, 1):
        print(f"{'not ok' if broken[name] else 'ok'} {number} - {name.replace('_', ' ')}")
        for problem in broken[name][:20]:
            print(f"#   {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
