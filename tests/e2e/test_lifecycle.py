# SPDX-License-Identifier: Apache-2.0
"""The life of a session with a real daemon: capacity, clocks, crashes, events and ends that hang."""
import concurrent.futures
import contextlib
import json
import os
import platform
import signal
import threading
import time

import pytest

from conftest import WALLS, UnixConnection, wait_for
from toolbox import ok
from test_launcher import launcher_of

KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


def small(make_daemon, overflow, **capacity):
    return make_daemon(backend=WALLS, settings={"pool": {"size": 0}, "capacity": {"max_sandboxes": 2, "overflow": overflow, **capacity}})


def sandbox(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"] or {"state": "none"}


def used(daemon, **options):
    session = daemon.session(**options)
    daemon.execute(session, ["/bin/true"])
    return session


def run_in_background(daemon, session, seconds=60):
    return daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/sleep", str(seconds)], "background": True}, expect=201).json["id"]


def running(daemon, session):
    execution = run_in_background(daemon, session)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "running", "it runs")
    return execution


class Events:
    """The events of a session, read until a condition holds."""

    def __init__(self, daemon, session, last=None):
        self.connection = UnixConnection(str(daemon.socket))
        self.connection.request("GET", f"/api/v1/sessions/{session}/events",
                                headers={"Accept": "text/event-stream", **({"Last-Event-ID": str(last)} if last else {})})
        self.response = self.connection.getresponse()
        assert self.response.status == 200

    def read(self, until):
        """Events as (id, type, data) up to and with the first of that type."""
        found, current = [], {}
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if line.startswith(("id:", "event:", "data:")):
                name, _, value = line.partition(":")
                current[name] = value.strip()
            elif not line and "event" in current:
                found.append((int(current["id"]), current["event"], json.loads(current.get("data", "{}"))))
                current = {}
                if found[-1][1] == until:
                    return found

    def close(self):
        self.connection.close()


# --- capacity ---


def test_reject_says_who_holds_the_slots_and_when_to_come_again(make_daemon):
    daemon = small(make_daemon, "reject")
    for _ in range(2):
        running(daemon, daemon.session())
    answer = daemon.api("POST", f"/sessions/{daemon.session(preload=False)}/executions", {"argv": ["/bin/true"]}, expect=429)
    error = answer.json["error"]
    assert (error["code"], error["retryable"]) == ("capacity", True)
    assert "2" in error["message"]
    assert int(answer.headers["retry-after"]) >= 1
    assert daemon.api("GET", "/capacity").json["sandboxes"] == 2


def test_evict_takes_the_coldest_idle_sandbox_and_its_session_comes_back(make_daemon):
    daemon = small(make_daemon, "evict")
    cold, warm = used(daemon), used(daemon)
    third = used(daemon)
    assert sandbox(daemon, cold)["state"] == "none"
    assert sandbox(daemon, warm)["state"] == "ready"
    assert daemon.api("GET", f"/sessions/{cold}").json["state"] == "open"
    result = daemon.execute(cold, ["/bin/echo", "back"])
    assert (result["stdout"], result["files_were_reset"]) == ("back\n", True)
    assert daemon.api("GET", f"/sessions/{cold}").json["generation"] == 2
    assert sandbox(daemon, third)["state"] == "ready"


def test_evict_never_takes_one_that_is_in_use(make_daemon):
    daemon = small(make_daemon, "evict")
    busy = [daemon.session() for _ in range(2)]
    executions = [running(daemon, session) for session in busy]
    daemon.api("POST", f"/sessions/{daemon.session(preload=False)}/executions", {"argv": ["/bin/true"]}, expect=429)
    for session, execution in zip(busy, executions):
        assert daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "running"


def test_wait_serves_in_the_order_of_arrival(make_daemon):
    daemon = small(make_daemon, "wait", wait_timeout=30)
    holders = [daemon.session() for _ in range(2)]
    for holder in holders:
        running(daemon, holder)
    waiting = [daemon.session(preload=False) for _ in range(3)]
    served = []

    def use(session):
        daemon.execute(session, ["/bin/true"])
        served.append(session)
        daemon.api("DELETE", f"/sessions/{session}", expect=200)

    threads = []
    for session in waiting:
        threads.append(threading.Thread(target=use, args=(session,)))
        threads[-1].start()
        wait_for(lambda: sandbox(daemon, session)["state"] == "creating", "it is in the queue")
    daemon.api("DELETE", f"/sessions/{holders[0]}", expect=200)
    for thread in threads:
        thread.join(60)
    assert served == waiting
    assert daemon.api("GET", "/capacity").json["sandboxes"] == 1


def test_who_leaves_the_queue_is_not_served(make_daemon):
    daemon = small(make_daemon, "wait", wait_timeout=30)
    holders = [daemon.session() for _ in range(2)]
    for holder in holders:
        running(daemon, holder)
    impatient, patient = daemon.session(preload=False), daemon.session(preload=False)
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{impatient}/executions", body=json.dumps({"argv": ["/bin/true"], "cancel_on_disconnect": True}),
                       headers={"Content-Type": "application/json"})
    wait_for(lambda: sandbox(daemon, impatient)["state"] == "creating", "the first is in the queue")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(daemon.execute, patient, ["/bin/echo", "served"])
        wait_for(lambda: sandbox(daemon, patient)["state"] == "creating", "the second is in the queue")
        connection.close()
        wait_for(lambda: sandbox(daemon, impatient)["state"] == "none", "the first has left it")
        daemon.api("DELETE", f"/sessions/{holders[0]}", expect=200)
        assert result.result(30)["stdout"] == "served\n"


def test_a_wait_that_takes_too_long_is_refused(make_daemon):
    daemon = small(make_daemon, "wait", wait_timeout=1)
    for _ in range(2):
        running(daemon, daemon.session())
    before = time.monotonic()
    daemon.api("POST", f"/sessions/{daemon.session(preload=False)}/executions", {"argv": ["/bin/true"]}, expect=429)
    assert 0.9 < time.monotonic() - before < 25


# --- clocks ---


@pytest.mark.parametrize("options,clock", [({"idle_timeout": 4}, "idle"), ({"timeout": 4, "idle_timeout": 60}, "lease"),
                                           ({"max_lifetime": 4}, "lifetime")])
def test_what_why_says_is_what_happens(make_daemon, options, clock):
    daemon = make_daemon(backend="direct")
    session = used(daemon, **options)
    before = time.monotonic()
    said = json.loads(daemon.cli("why", "--json", session).stdout)
    seen = time.monotonic()
    assert said["next_end"]["reason"] == clock
    assert clock in daemon.cli("why", session).stdout
    wait_for(lambda: daemon.ended(session), "its end")
    now = time.monotonic()
    assert now - before > said["next_end"]["in_seconds"] - 0.2  # the daemon has said it between `before` and `seen`
    assert now - seen < said["next_end"]["in_seconds"] + 20
    assert daemon.api("GET", f"/sessions/{session}").json["end_reason"] == clock


def test_at_its_timeout_a_session_may_be_paused_instead(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = used(daemon, timeout=60, on_timeout="pause")
    daemon.execute(session, command="echo kept > file")
    daemon.api("PATCH", f"/sessions/{session}", {"timeout": 1}, expect=200)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}", expect=200).json["state"] == "paused", "the pause")
    wait_for(lambda: sandbox(daemon, session)["state"] == "frozen", "its sandbox is frozen")
    daemon.api("PATCH", f"/sessions/{session}", {"timeout": 60}, expect=200)
    assert daemon.execute(session, command="cat file")["stdout"] == "kept\n"
    assert daemon.api("GET", f"/sessions/{session}").json["state"] == "open"


# --- crashes ---


def crash(daemon, session):
    before = sandbox(daemon, session)
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(lambda: sandbox(daemon, session).get("id") != before["id"], "the crash is noticed")


def test_without_auto_restart_a_crash_is_told_until_a_new_sandbox_is_asked_for(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = used(daemon, auto_restart=False)
    crash(daemon, session)
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/true"]}, expect=409)
    assert answer.json["error"]["code"] == "sandbox_crashed"
    daemon.kill()
    daemon.start()
    daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/true"]}, expect=409)
    assert daemon.api("POST", f"/sessions/{session}/sandbox", {}).status < 300
    assert daemon.execute(session, ["/bin/echo", "up"])["stdout"] == "up\n"


def test_the_reset_is_told_once(daemon):
    session = used(daemon)
    crash(daemon, session)
    assert daemon.execute(session, ["/bin/true"])["files_were_reset"] is True
    assert daemon.execute(session, ["/bin/true"])["files_were_reset"] is False
    events = Events(daemon, session)
    reset = events.read("sandbox.reset")[-1]
    events.close()
    assert '"generation": 2' in json.dumps(reset[2])


def test_the_reset_says_why(make_daemon, backend):
    """On every surface, and also when the daemon was killed in between."""
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "capacity": {"max_sandboxes": 1}})
    session = used(daemon)
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: sandbox(daemon, session)["state"] == "none", "it is gone")
    assert sandbox(daemon, session)["previous_end"] == "teardown"
    daemon.kill()
    daemon.start()
    again = daemon.execute(session, ["true"])
    assert (again["files_were_reset"], again["reset_reason"]) == (True, "teardown")
    assert daemon.execute(session, ["true"])["reset_reason"] is None

    crash(daemon, session)
    told = daemon.cli("exec", session, "--", "true").stderr
    assert "files were reset (the previous one ended: crashed: signal 9)" in told

    daemon.api("POST", f"/sessions/{session}/sandbox", {"memory": "64m"}, expect=202)
    assert ok(daemon, session, "bash", command="true").startswith("[notice] The sandbox of this session was reset (reason: replaced)")

    other = daemon.session()
    daemon.execute(other, ["true"])
    answer = daemon.api("POST", "/execute", {"code": "print(1)", "session_id": session}, expect=200).json
    assert (answer["files_were_reset"], answer["reset_reason"]) == (True, "evicted")
    events = [json.loads(line[len("data:"):]) for line in daemon.api("GET", f"/sessions/{session}/events?follow=0").body.decode().splitlines()
              if line.startswith("data:")]
    reasons = [event["data"]["reason"] for event in events if event["type"] == "sandbox.reset"]
    assert reasons == ["teardown", "crashed: signal 9", "replaced", "evicted"]


@pytest.mark.parametrize("adopted", [False, True])
def test_the_cause_of_a_crash_is_told(make_daemon, adopted):
    daemon = make_daemon(backend=WALLS)
    session = used(daemon)
    execution = running(daemon, session)
    if adopted:
        daemon.kill()
        daemon.start()
    os.kill(sandbox(daemon, session)["pid"], signal.SIGKILL)
    result = daemon.api("GET", f"/sessions/{session}/executions/{execution}?wait=25").json
    assert result["state"] == "crashed"
    if KERNEL >= (6, 15) and not adopted:
        assert result["reason"] == "crashed: signal 9"
    else:  # the kernel does not tell, or not before the host's own init has reaped it
        assert result["reason"] in ("crashed: signal 9", "crashed: unknown")


# --- events ---


def test_events_go_on_where_the_last_connection_ended_across_a_restart(make_daemon):
    daemon = make_daemon(backend="direct")
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    events = Events(daemon, session)
    first = events.read("execution.ended")
    events.close()
    assert [kind for _, kind, _ in first][:1] == ["session.created"]
    daemon.kill()
    daemon.start()
    daemon.execute(session, ["/bin/true"])
    events = Events(daemon, session, last=first[-1][0])
    more = events.read("execution.ended")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    more += events.read("session.ended")
    events.close()
    numbers = [number for number, _, _ in first + more]
    assert numbers == sorted(set(numbers))
    assert [kind for _, kind, _ in more].count("session.created") == 0
    assert [kind for _, kind, _ in more].count("execution.started") == 1
    assert "deleted" in json.dumps(more[-1][2])


# --- ends that hang ---


def test_a_launcher_that_hangs_does_not_keep_the_daemon_from_stopping(make_daemon):
    daemon = make_daemon(backend="direct", settings={"shutdown": {"policy": "destroy", "timeout": 1}})
    session = used(daemon)
    launcher = wait_for(lambda: launcher_of(daemon), "its launcher")
    os.kill(launcher, signal.SIGSTOP)
    before = time.monotonic()
    try:
        daemon.process.terminate()
        daemon.process.wait(30)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may be gone with its daemon
            os.kill(launcher, signal.SIGCONT)
    assert time.monotonic() - before < 25
    daemon.start()
    wait_for(lambda: daemon.ended(session), "the next daemon ends what was begun")


def test_the_events_of_a_session_end_with_it(daemon):
    session = daemon.session()
    connection = UnixConnection(str(daemon.socket))
    connection.request("GET", f"/api/v1/sessions/{session}/events", headers={"Host": "localhost"})
    answer = connection.getresponse()
    assert answer.status == 200
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    text = answer.read().decode()  # to the end of the stream, which comes by itself
    assert "event: session.ended" in text.split("\n\n")[-2] and '"deleted"' in text.split("\n\n")[-2]
