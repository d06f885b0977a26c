# SPDX-License-Identifier: Apache-2.0
"""Many at once on a real engine, and a daemon that is killed again and again meanwhile: nothing is lost, left or doubled.

SANDGLASS_DOCKER_KILLS sets how often it is killed, SANDGLASS_SEED repeats the moments of an earlier run."""
import contextlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import wait_for
from test_relay_chaos import SEED, Files, Input, Output, Terminal
from walls import ours, own_engine, remote_engine, show, skip_without, watched

KILLS = int(os.environ.get("SANDGLASS_DOCKER_KILLS", "6"))
CROWD = int(os.environ.get("SANDGLASS_DOCKER_CROWD", "50"))
CAP = 8


@pytest.fixture(scope="module")
def engines():
    with contextlib.ExitStack() as stack:
        made = {}

        def get(carrier):
            is_remote = carrier == "tls"
            if is_remote not in made:
                made[is_remote] = stack.enter_context(remote_engine() if is_remote else own_engine("crowd"))
            return made[is_remote]
        yield get


def sessions_left(daemon):
    return daemon.api("GET", "/sessions?state=open", expect=200).json["total"]


def test_a_crowd_at_the_cap_is_served_or_told(make_daemon, work, engines):
    """Each request gets a session or the reason why not; what was made is what was promised."""
    with watched(engines("door")) as engine:
        daemon = make_daemon(backend="docker", settings={"pool": {"size": 0}, "docker": {"host": engine.host},
                                                         "capacity": {"max_sessions": CAP}})
        with ThreadPoolExecutor(CROWD) as crowd:
            answers = list(crowd.map(lambda n: daemon.api("POST", "/sessions", {"key": f"crowd-{n}"}, timeout=120), range(CROWD)))
        made = [answer.json["id"] for answer in answers if answer.status == 201]
        refused = [answer for answer in answers if answer.status != 201]
        assert len(made) == CAP and {answer.status for answer in refused} == {429}, [answer.body for answer in refused][:3]
        with ThreadPoolExecutor(CAP) as crowd:
            runs = list(crowd.map(lambda session: daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo $HOSTNAME"}, timeout=120), made))
        assert [run.status for run in runs] == [201] * CAP, [run.body for run in runs if run.status != 201]
        boxes = {show(daemon, session)["sandbox"]["container"] for session in made}
        assert len(boxes) == CAP == len(ours(engine))
        with ThreadPoolExecutor(CAP) as crowd:
            assert {answer.status for answer in crowd.map(lambda session: daemon.api("DELETE", f"/sessions/{session}", timeout=120), made)} <= {200, 202}
        wait_for(lambda: not ours(engine) and not sessions_left(daemon), "all are gone", 60)
        daemon.session(preload=False)
        daemon.stop()


class Maker(threading.Thread):
    """Makes and ends sessions while the daemon dies: a request without an answer is repeated with its key."""

    def __init__(self, daemon, stop):
        super().__init__(daemon=True)
        self.server, self.stop = daemon, stop
        self.made, self.problems = 0, []

    def insist(self, *arguments):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, Exception):
                answer = self.server.api(*arguments, timeout=60)
                if answer.status not in (429, 503):
                    return answer
            time.sleep(0.02)
        raise AssertionError(f"{arguments[:2]}: not answered")

    def run(self):
        try:
            while not self.stop.is_set():
                answer = self.insist("POST", "/sessions", {"key": f"made-{self.made}"})
                assert answer.status in (200, 201), answer.body
                assert self.insist("DELETE", f"/sessions/{answer.json['id']}").status in (200, 202, 404)
                self.made += 1
        except Exception as problem:
            self.problems.append(repr(problem))


@pytest.mark.parametrize("backend,carrier", [("docker", "door"), ("gvisor", "exec"), ("docker", "tls")])
def test_no_byte_is_missing_or_doubled_when_the_daemon_is_killed(make_daemon, work, engines, backend, carrier):
    skip_without(backend)
    chance = random.Random(SEED)
    with watched(engines(carrier)) as engine:
        client = engine.client if carrier == "tls" else {"host": engine.host}
        daemon = make_daemon(backend=backend, settings={"pool": {"size": 1}, "docker": client, "exec": {"output_spool": "64m"},
                                                        "sandbox": {"auto_restart": False, "backend": backend}})
        session = daemon.session(idle_timeout=3600)
        daemon.execute(session, command="true")
        stop = threading.Event()
        workers = [kind(daemon, session, number, stop) for number, kind in enumerate((Output, Terminal, Input, Files))]
        workers.append(Maker(daemon, stop))
        for worker in workers:
            worker.start()
        try:
            for _ in range(KILLS):
                time.sleep(chance.choice((0.05, 0.3, 1.0)) * chance.random())
                daemon.kill()
                daemon.start()
                if any(worker.problems for worker in workers):
                    break
        finally:
            stop.set()
            for worker in workers:
                worker.join(300)
        problems = [problem for worker in workers for problem in worker.problems]
        problems += [f"{type(worker).__name__} does not end" for worker in workers if worker.is_alive()]
        print({type(worker).__name__: getattr(worker, "rounds", None) or worker.__dict__.get("made") for worker in workers})
        assert not problems, f"SANDGLASS_SEED={SEED}: {problems[:5]}\n{daemon.log()[-3000:]}"
        assert show(daemon, session)["generation"] == 1
        daemon.settings["pool"] = {"size": 0}
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
        daemon.stop()
        wait_for(lambda: not ours(engine), f"SANDGLASS_SEED={SEED}: no orphans: {ours(engine)}", 30)
