# SPDX-License-Identifier: Apache-2.0
"""Sandboxes behind a relay: the first connection goes through the container's own input and output, later ones through an exec of the engine."""
import contextlib
import http.client
import random
import threading
import time

import pytest

import real_engine
from conftest import wait_for
from walls import begin, container_of, result, says_up, show, skip_without

COUNTER = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
COUNTED = "".join(f"line {i}\n" for i in range(20000)).encode()
KILL_PUMP = "for p in /proc/[0-9]*; do read name < $p/comm; [ \"$name\" = sandglass-pump ] && kill -9 ${p#/proc/}; done; true"
OPEN_STREAM = ("n=0; for p in /proc/[0-9]*; do read name < $p/comm; [ \"$name\" = sandglass-pump ] || continue; "
               "(: < $p/fd/0) 2>/dev/null || n=$((n+1)); (: > $p/fd/1) 2>/dev/null || n=$((n+1)); done; echo $n refused")
SEED = random.randrange(1 << 32)


@pytest.fixture
def daemon(make_daemon):
    skip_without("gvisor")
    return make_daemon(backend="gvisor", settings={"pool": {"size": 0}, "session": {"preload": False}, "sandbox": {"auto_restart": False}})


def execs_in(daemon, session):
    return real_engine.the_engine().api.inspect(container_of(daemon, session))["ExecIDs"] or []


def test_a_first_program_needs_no_exec_and_does_not_get_the_stream(daemon):
    """gVisor calls descriptors of the host `host:[N]`, and shows those of other users' processes. They cannot be opened."""
    session = daemon.session()
    assert daemon.execute(session, command="ls -l /proc/self/fd /proc/1/fd | grep -c host:")["stdout"] == "0\n"
    assert daemon.execute(session, command=OPEN_STREAM)["stdout"] == "2 refused\n"
    assert execs_in(daemon, session) == []
    log = real_engine.the_engine().api.inspect(container_of(daemon, session))["HostConfig"]["LogConfig"]
    assert log["Type"] == "none"


def test_output_goes_on_when_the_first_connection_is_cut(daemon):
    session = daemon.session()
    run = begin(daemon, session, COUNTER)
    daemon.execute(session, command=KILL_PUMP, user="root")
    wait_for(lambda: len(execs_in(daemon, session)) == 1, "the next connection comes by an exec")
    ended = result(daemon, run, 60)
    assert (ended["state"], ended["exit_code"]) == ("exited", 0)
    assert daemon.api("GET", run + "/output?stream=stdout").body == COUNTED
    assert says_up(daemon, session) and show(daemon, session)["generation"] == 1


def test_a_daemon_killed_right_after_a_create_loses_nothing(daemon):
    session = daemon.session()
    run = begin(daemon, session, COUNTER)
    box = container_of(daemon, session)
    daemon.kill()
    daemon.start()
    ended = result(daemon, run, 60)
    assert (ended["state"], ended["exit_code"]) == ("exited", 0)
    assert daemon.api("GET", run + "/output?stream=stdout").body == COUNTED
    assert container_of(daemon, session) == box
    wait_for(lambda: len(execs_in(daemon, session)) == 1, "the next connection comes by an exec")


def use(daemon, session):
    """By a client whose daemon may be killed before it answers."""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        daemon.api("POST", f"/sessions/{session}/executions", {"command": "true"})


def test_a_daemon_killed_at_any_moment_of_a_create_leaves_a_session_that_can_be_used(daemon):
    chance = random.Random(SEED)
    for _ in range(5):
        session = daemon.session()
        caller = threading.Thread(target=use, args=(daemon, session), daemon=True)
        caller.start()
        time.sleep(chance.uniform(0, 0.6))
        daemon.kill()
        caller.join()
        daemon.start()
        wait_for(lambda: says_up(daemon, session), f"seed {SEED}: it can be used\n{daemon.log()[-2000:]}", 30)
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
