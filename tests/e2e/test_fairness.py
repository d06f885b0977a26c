# SPDX-License-Identifier: Apache-2.0
"""However much one session writes, the daemon goes on: timeouts, requests of other owners, deletes."""
import contextlib
import os
import signal
import threading

import pytest

from conftest import BACKENDS, UnixConnection, wait_for

WRITERS = 60
LOUD = {"X-Sandglass-On-Behalf-Of": "loud"}
OTHER = {"X-Sandglass-On-Behalf-Of": "other"}


@pytest.fixture(params=BACKENDS)
def crowded(request, make_daemon):
    """A daemon, and a session of another owner in which sixty programs write without end."""
    daemon = make_daemon(backend=request.param, settings={"exec": {"max_concurrent": WRITERS + 4}})
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=LOUD).json["id"]
    path = f"/sessions/{session}/executions"
    runs = [daemon.api("POST", path, {"command": "while :; do cat /usr/bin/bash; done", "background": True,
                                      "timeout": 3}, expect=201, headers=LOUD).json["id"] for _ in range(WRITERS)]
    yield daemon, session, runs


def test_timeouts_fire_and_others_are_served_while_sixty_programs_write(crowded):
    daemon, session, runs = crowded
    for number in range(5):
        mine = daemon.api("POST", "/sessions", {}, expect=201, headers=OTHER).json["id"]
        answer = daemon.api("POST", f"/sessions/{mine}/executions", {"argv": ["/bin/echo", str(number)]}, expect=201,
                            headers=OTHER).json
        assert answer["stdout"] == f"{number}\n"
        daemon.api("DELETE", f"/sessions/{mine}", expect=200, headers=OTHER)
    for run in runs:
        path = f"/sessions/{session}/executions/{run}?wait=5"
        ended = wait_for(lambda: (seen := daemon.api("GET", path, headers=LOUD).json)["state"] not in ("queued", "running") and seen, "the end of a program")
        assert ended["state"] == "timeout", ended
    daemon.api("DELETE", f"/sessions/{session}", expect=200, headers=LOUD)


def test_a_session_that_writes_without_end_is_deleted_at_once(crowded):
    daemon, session, _ = crowded
    assert daemon.api("DELETE", f"/sessions/{session}", expect=200, headers=LOUD).json["state"] == "ended"


def test_readers_that_take_everything_hold_nobody_up(crowded):
    daemon, session, runs = crowded
    path = f"/api/v1/sessions/{session}/executions/{runs[0]}/output?follow=1"
    readers, ended = [], threading.Event()

    def read(response):
        while not ended.is_set() and response.read1(1 << 16):
            pass

    for _ in range(20):
        connection = UnixConnection(str(daemon.socket))
        connection.request("GET", path, headers=LOUD)
        thread = threading.Thread(target=read, args=(connection.getresponse(),), daemon=True)
        thread.start()
        readers.append((connection, thread))
    mine = daemon.api("POST", "/sessions", {}, expect=201, headers=OTHER).json["id"]
    assert daemon.api("POST", f"/sessions/{mine}/executions", {"argv": ["/bin/echo", "x"]}, expect=201,
                      headers=OTHER).json["stdout"] == "x\n"
    daemon.api("DELETE", f"/sessions/{session}", expect=200, headers=LOUD)
    wait_for(lambda: not any(thread.is_alive() for _, thread in readers), "the readers are told of the end")
    ended.set()
    for connection, _ in readers:
        connection.close()



def test_every_one_of_many_event_streams_gets_all_events_in_order(make_daemon):
    """They are served in turn, and find in the store what happened meanwhile."""
    daemon = make_daemon(backend="direct")
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=LOUD).json["id"]
    streams = []
    for number in range(200):
        connection = UnixConnection(str(daemon.socket))
        path = "/api/v1/events" if number % 2 else f"/api/v1/sessions/{session}/events"
        connection.request("GET", path, headers=LOUD)
        streams.append((connection, connection.getresponse()))
    for _ in range(20):
        daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/true"]}, expect=201, headers=LOUD)
    daemon.api("DELETE", f"/sessions/{session}", expect=200, headers=LOUD)
    ends = set()
    for connection, stream in streams:
        numbers, line = [], b""
        while line != b"event: session.ended\n":
            line = stream.readline()
            assert line, "the stream ended before its session"
            if line.startswith(b"id: "):
                numbers.append(int(line[4:]))
        assert len(numbers) > 20 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        ends.add(numbers[-1])
        connection.close()
    assert len(ends) == 1, ends


def test_an_execution_in_a_sandbox_that_does_not_answer_ends_as_timeout(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"grace": "0.2s"}})
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    init = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"]
    os.kill(init, signal.SIGSTOP)
    try:
        run = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/echo", "never"], "timeout": 1}, expect=201, timeout=90).json
        assert run["state"] == "timeout" and "timeout" in run["reason"], run
        again = daemon.execute(session, ["/bin/echo", "again"])
        assert again["stdout"] == "again\n" and again["files_were_reset"], again
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGCONT)
    told = daemon.cli("exec", "--timeout", "0.2", session, "--", "sleep", "60")
    assert told.returncode == 124 and "timeout" in told.stderr, told
