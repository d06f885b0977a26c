# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at random moments under load: nothing acknowledged is lost, nothing is left over.

SANDGLASS_KILLS sets how often it is killed, SANDGLASS_SEED repeats the moments of an earlier run."""
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

from conftest import ONLY_ENGINE, WALLS, our_cgroups, read_process, wait_for

KILLS = int(os.environ.get("SANDGLASS_KILLS", "12"))
SEED = int(os.environ.get("SANDGLASS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
POOL = 2
PACE = 4 if ONLY_ENGINE else 1  # an engine takes that much longer to make a sandbox
LINES = 1500
COUNTER = f"i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); [ $((i % 50)) = 0 ] && sleep 0.01; done; true"
EXPECTED = "".join(f"{n}\n" for n in range(LINES)).encode()


class Worker(threading.Thread):
    """Does one thing after the other until it is told to stop. A request that got no answer may or may not have happened."""

    def __init__(self, daemon, number, stop):
        super().__init__(name=f"worker-{number}", daemon=True)
        self.server, self.number, self.stop = daemon, number, stop
        self.random = random.Random(SEED * 100 + number)
        self.made = 0
        self.requests = 0
        self.problems = []

    def ask(self, method, path, body=None):
        """The answer, or None when the daemon died meanwhile."""
        try:
            answer = self.server.api(method, path, body, timeout=30)
        except TimeoutError:
            self.problems.append(f"{method} {path}: no answer in 30 s")
            return None
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
            return None
        if answer.status in (429, 503):
            return None
        self.requests += 1
        return answer

    def insist(self, method, path, body=None):
        while not self.stop.is_set() or self.finishing:
            answer = self.ask(method, path, body)
            if answer is not None:
                return answer
        return None

    finishing = False

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
        except Exception as problem:  # told by the test, which sees all of them
            self.problems.append(repr(problem))

    def key(self, kind):
        self.made += 1
        return f"{kind}-{self.number}-{self.made}"


class Caller(Worker):
    """Creates, uses, extends and deletes sessions of its own."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.live, self.deleted, self.doubtful = set(), set(), set()

    def step(self):
        actions = [self.create] * (3 if len(self.live) < 3 else len(self.live) < 24)
        if self.live:
            actions += [self.use, self.use, self.extend, self.delete]
        self.random.choice(actions)()

    def pick(self):
        return self.random.choice(sorted(self.live))

    def create(self):
        answer = self.insist("POST", "/sessions", {"key": self.key("c"), "idle_timeout": 3600})
        if answer is None:
            return
        assert answer.status in (200, 201), answer.body
        self.live.add(answer.json["id"])

    def use(self):
        word = f"word {self.random.random()}"
        answer = self.ask("POST", f"/sessions/{self.pick()}/executions", {"argv": ["/bin/echo", word]})
        if answer is None:
            return
        if answer.status != 201 or (answer.json["state"], answer.json["stdout"]) != ("exited", word + "\n"):
            self.problems.append(f"use: {answer.status} {answer.body[:600]!r}")

    def extend(self):
        answer = self.ask("POST", f"/sessions/{self.pick()}/keepalive", {"timeout": 3600})
        if answer is not None and answer.status != 200:
            self.problems.append(f"extend: {answer.status} {answer.body[:600]!r}")

    def delete(self):
        session = self.pick()
        self.live.discard(session)
        answer = self.ask("DELETE", f"/sessions/{session}")
        answer = answer or self.insist("DELETE", f"/sessions/{session}")
        if answer is None:
            self.doubtful.add(session)
        elif answer.status == 200:
            self.deleted.add(session)
        else:
            self.problems.append(f"delete: {answer.status} {answer.body[:600]!r}")


class Counter(Worker):
    """Runs one counting program after the other in the background and reads what it printed."""
    counted = 0
    lost = 0
    session = None

    def step(self):
        if self.session is None:
            answer = self.insist("POST", "/sessions", {"key": f"counter-{self.number}"})
            self.session = answer and answer.json["id"]
            return
        self.finishing = True  # one that was begun is counted to its end
        try:
            self.count()
        finally:
            self.finishing = False

    def count(self):
        base = f"/sessions/{self.session}/executions"
        body = {"command": COUNTER, "background": True, "key": self.key("run")}
        answer = self.ask("POST", base, body)
        if answer is None:
            return
        assert answer.status in (200, 201), answer.body
        path = f"{base}/{answer.json['id']}"
        while (answer := self.insist("GET", path + "?wait=5")).json["state"] in ("queued", "running"):
            pass
        result = answer.json
        output = self.insist("GET", path + "/output?stream=stdout").body
        if result["started_at"] is None and (result["reason"] or "").startswith("lost: the daemon ended before"):
            self.lost += 1  # its record says that it never ran; whether it did is not known
            return
        if (result["state"], result["exit_code"]) != ("exited", 0):
            self.problems.append(f"counter: {json.dumps(result)[:800]}")
        elif output != EXPECTED:
            self.problems.append(f"counter {path}: {len(output)} bytes of {len(EXPECTED)}: {first_difference(output)}; "
                                 f"{json.dumps({**result, 'stdout': None, 'request': None})}")
        self.counted += 1


def first_difference(output):
    for line, (got, expected) in enumerate(zip(output.splitlines(), EXPECTED.splitlines())):
        if got != expected:
            return f"line {line}: {got!r} instead of {expected!r}"
    return "cut short"


def crash(daemon, chance):
    """One kill -9, and now and then another one while the next daemon is starting."""
    time.sleep(chance.choice((0.02, 0.1, 0.3, 0.8)) * chance.random() * PACE)
    daemon.kill()
    if chance.random() < 0.2:
        daemon.spawn()
        time.sleep(0.2 * chance.random())
        daemon.kill()
    before = time.monotonic()
    daemon.start()
    return time.monotonic() - before


def groups_of_sandboxes():
    """Names of the control groups of our sandboxes, and whether anything runs in them."""
    found = {}
    for path in our_cgroups():
        group = pathlib.Path(path)
        try:
            found.setdefault(group.name, set()).update((group / "cgroup.procs").read_text().split())
        except OSError:
            pass
    return found


def all_sessions(daemon):
    listed, cursor = [], ""
    while cursor is not None:
        page = daemon.api("GET", f"/sessions?limit=100&cursor={cursor}" if cursor else "/sessions?limit=100", expect=200).json
        listed += page["sessions"]
        cursor = page["next_cursor"]
    return listed


def state_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["state"]


def unaccounted(daemon):
    """What exists and belongs to no session, beyond what the pool may have."""
    listed = all_sessions(daemon)
    known = {session["sandbox"]["id"] for session in listed if session["sandbox"] and session["sandbox"].get("id")}
    existing = daemon.sandboxes()
    groups = groups_of_sandboxes()
    spare = existing - known
    problems = []
    if len(spare) > POOL + 1:
        problems.append(f"sandboxes without a session: {sorted(spare)}")
    if set(groups) - existing:
        problems.append(f"control groups without a sandbox: {sorted(set(groups) - existing)}")
    return problems


def test_nothing_is_lost_or_left_when_the_daemon_is_killed_at_random_moments(make_daemon):
    print(f"SANDGLASS_SEED={SEED} SANDGLASS_KILLS={KILLS}")
    chance = random.Random(SEED)
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": POOL}, "shutdown": {"policy": "destroy", "timeout": 20}})
    stop = threading.Event()
    callers = [Caller(daemon, number, stop) for number in range(4)]
    counters = [Counter(daemon, 100 + number, stop) for number in range(2)]
    slowest = 0
    for worker in callers + counters:
        worker.start()
    try:
        wait_for(lambda: all(counter.counted for counter in counters), "each has counted in its sandbox", 120)
        for _ in range(KILLS):
            slowest = max(slowest, crash(daemon, chance))
            if any(worker.problems for worker in callers + counters):
                break
    finally:
        stop.set()
        for worker in callers + counters:
            worker.join(60)
    print(f"requests={sum(w.requests for w in callers + counters)} counted={sum(c.counted for c in counters)} "
          f"lost_before_start={sum(c.lost for c in counters)} "
          f"live={sum(len(c.live) for c in callers)} deleted={sum(len(c.deleted) for c in callers)} slowest_start={slowest:.2f}s")
    log = daemon.log()
    assert not any(worker.is_alive() for worker in callers + counters), log[-4000:]
    assert not (problems := [p for worker in callers + counters for p in worker.problems]), f"seed {SEED}: {problems[:5]}\n{log[-6000:]}"
    assert sum(counter.counted for counter in counters) > len(counters)
    for caller in callers:
        for session in caller.live:
            assert state_of(daemon, session) == "open", f"seed {SEED}: lost {session}"
        for session in caller.deleted:
            assert daemon.ended(session), f"seed {SEED}: {session} came back"
        for session in caller.doubtful:
            assert state_of(daemon, session) in ("open", "ending", "ended"), f"seed {SEED}: {session} is neither"
    wait_for(lambda: not unaccounted(daemon), f"seed {SEED}: no orphans: {unaccounted(daemon)}")
    daemon.api("DELETE", "/sessions", expect=200, timeout=60)
    daemon.stop()
    wait_for(lambda: not groups_of_sandboxes(), f"seed {SEED}: no control group left")
    wait_for(lambda: not daemon.sandboxes(), f"seed {SEED}: no sandbox left")
    assert "panic" not in log and "assert" not in log.lower(), log[-4000:]


def kill_daemon(daemon, session):
    daemon.kill()
    daemon.start()


def pause_and_kill_daemon(daemon, session):
    assert daemon.api("POST", f"/sessions/{session}/pause", expect=200).json["state"] == "paused"
    kill_daemon(daemon, session)
    assert state_of(daemon, session) == "paused"


def below(pid):
    """Its children, theirs, and so on."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [process for child in children for process in [int(child), *below(child)]]


def parts_of(daemon):
    """pid → name of every process below the daemon that lives."""
    processes = {pid: read_process(pid) for pid in below(daemon.process.pid)}
    return {pid: process[0] for pid, process in processes.items() if process}


def kill_launcher(daemon, session):
    def launchers():
        return [pid for pid, name in parts_of(daemon).items() if name.startswith("sandglass-launc")]
    os.kill(wait_for(launchers, f"there is a launcher: {parts_of(daemon)}")[0], signal.SIGKILL)


def kill_init(daemon, session):
    sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]
    if sandbox and sandbox.get("pid"):
        os.kill(sandbox["pid"], signal.SIGKILL)


def is_usable(daemon, session):
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/echo", "up"]}, timeout=30)
    return answer.status == 201 and (answer.json["state"], answer.json["stdout"]) == ("exited", "up\n")


def test_a_session_can_be_used_after_the_death_of_any_part(daemon):
    chance = random.Random(SEED)
    sessions = [daemon.session() for _ in range(2)]
    parts = [kill_daemon, pause_and_kill_daemon, kill_launcher, kill_init] * max(KILLS // 12, 1)
    chance.shuffle(parts)
    for session in sessions:
        daemon.execute(session, command="true")
    for part in parts:
        part(daemon, chance.choice(sessions))
        for session in sessions:
            wait_for(lambda: is_usable(daemon, session), f"seed {SEED}: a use after {part.__name__}", 30)
            assert state_of(daemon, session) == "open"


class Survivor(Caller):
    """What runs in a sandbox that is killed ends with it and says so; everything else works."""

    def use(self):
        word = f"word {self.random.random()}"
        answer = self.ask("POST", f"/sessions/{self.pick()}/executions", {"argv": ["/bin/echo", word]})
        if answer is None:
            return
        if answer.status == 502 and answer.json["error"]["code"] in ("supervisor_killed", "sandbox_connection_lost"):
            return  # between the request and the start: whether its program had begun is not known, so nobody else may run it again
        run = answer.json if answer.status == 201 else {}
        if run.get("signal") == signal.SIGKILL and not run["stdout_bytes"]:
            return  # until it becomes the program, the child of init has its name, and was the one to be killed
        if (run.get("state"), run.get("stdout")) != ("exited", word + "\n") and not (run.get("state") == "crashed" and run["reason"]):
            self.problems.append(f"use: {answer.status} {answer.body[:600]!r}")


def kill_one_part(daemon, chance):
    """Any process of ours; a daemon is started again."""
    time.sleep(0.2 * chance.random())
    names = parts_of(daemon)
    name = chance.choice(sorted({name for name in names.values() if name.startswith("sandglass-")} | {"daemon"}))
    # Without its launcher and the keeper that would replace it only a restart of the daemon helps (docs/reference/backends.md): that is made.
    # A launcher that the keeper has not handed over yet is none.
    last = {"sandglass-launc": "sandglass-keepe", "sandglass-keepe": "sandglass-launc"}.get(name)
    if name == "daemon" or last and (last not in names.values() or not daemon.is_ready()):
        daemon.kill()
        daemon.start()
        return "daemon"
    victim = chance.choice([pid for pid, other in sorted(names.items()) if other == name])
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if last:
        wait_for(lambda: not read_process(victim), f"{name} is dead")  # the next round does not count on it
    return name


def test_whatever_part_is_killed_under_load_the_others_go_on(make_daemon):
    chance = random.Random(SEED)
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": POOL}, "shutdown": {"policy": "destroy", "timeout": 20}})
    stop = threading.Event()
    callers = [Survivor(daemon, number, stop) for number in range(3)]
    killed = []
    for caller in callers:
        caller.start()
    try:
        while len(killed) < 2 * KILLS and not any(caller.problems for caller in callers):
            killed.append(kill_one_part(daemon, chance))
    finally:
        stop.set()
        for caller in callers:
            caller.join(60)
    log = daemon.log()
    assert not any(caller.is_alive() for caller in callers), f"seed {SEED}, {killed}\n{log[-4000:]}"
    assert not (problems := [p for caller in callers for p in caller.problems]), f"seed {SEED}, {killed}: {problems[:5]}\n{log[-6000:]}"
    for session in [session for caller in callers for session in caller.live]:
        wait_for(lambda: is_usable(daemon, session), f"seed {SEED}: a use of {session}")
    wait_for(lambda: not unaccounted(daemon), f"seed {SEED}: no orphans: {unaccounted(daemon)}")
    daemon.api("DELETE", "/sessions", expect=200, timeout=60)
    daemon.stop()
    wait_for(lambda: not groups_of_sandboxes(), f"seed {SEED}: no control group left")
    wait_for(lambda: not daemon.sandboxes(), f"seed {SEED}: no sandbox left")
