# SPDX-License-Identifier: Apache-2.0
"""A daemon that comes back serves at once, whatever state its sandboxes are in, and forgets nothing that it has acknowledged."""
import ctypes
import hashlib
import http.client
import json
import os
import signal
import threading
import time

import real_engine
from conftest import ELSEWHERE, RELAY, UnixConnection, wait_for

SERVES_WITHIN = 20.0  # promised are 2 s; the machines that run this are busy


def init_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pid"]


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[1]


def kill_and_stop(daemon, init):
    """Kills the daemon and stops the init. The kernel continues what is stopped when the last of its group's parents ends, so not before that;
    the parent of a container or a pod stays."""
    parent = parent_of(init)
    stays = parent == "1" or daemon.settings["sandbox"]["backend"] in ELSEWHERE
    daemon.kill()
    wait_for(lambda: stays or parent_of(init) != parent, "its launcher has ended")
    os.kill(init, signal.SIGSTOP)


def restart(daemon):
    """Killed, unless it is dead already, and started again: it serves soon."""
    daemon.kill()
    before = time.monotonic()
    daemon.start()
    assert time.monotonic() - before < SERVES_WITHIN, daemon.log()[-4000:]


def in_background(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_stopped_init_delays_nobody_and_its_session_says_so(daemon):
    stuck, other = daemon.session(), daemon.session()
    for session in (stuck, other):
        daemon.execute(session, command="echo kept > file")
    init = init_of(daemon, stuck)
    kill_and_stop(daemon, init)
    try:
        restart(daemon)
        assert daemon.execute(other, command="cat file")["stdout"] == "kept\n"
        assert daemon.api("GET", f"/sessions/{stuck}").json["sandbox"]["state"] == "unknown"
        answer = daemon.api("POST", f"/sessions/{stuck}/executions", {"command": "cat file"}, timeout=60)
        assert (answer.status, answer.json["error"]["code"]) == (504, "sandbox_unknown"), answer.body
        assert answer.json["error"]["retryable"] is True
    finally:
        os.kill(init, signal.SIGCONT)
    wait_for(lambda: daemon.api("GET", f"/sessions/{stuck}").json["sandbox"]["state"] == "ready", "it answers again")
    assert daemon.execute(stuck, command="cat file")["stdout"] == "kept\n"


def test_a_silent_sandbox_is_replaced_after_its_time(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"sandbox": {"silence_timeout": 1}})
    session = daemon.session()
    daemon.execute(session, command="echo x > file")
    kill_and_stop(daemon, init_of(daemon, session))
    restart(daemon)
    result = daemon.execute(session, command="cat file; echo up")
    assert (result["stdout"], result["generation"]) == ("up\n", 2)


def test_a_pause_and_a_kill_at_any_moment_leave_a_session_that_can_be_used(daemon):
    session = daemon.session()
    daemon.execute(session, command="echo kept > file")
    for delay in (0, 0.001, 0.003, 0.01):
        asked = in_background(lambda: pause_quietly(daemon, session))
        time.sleep(delay)
        restart(daemon)
        asked.join(30)
        assert daemon.api("GET", f"/sessions/{session}").json["state"] in ("open", "paused")
        assert daemon.execute(session, command="cat file")["stdout"] == "kept\n"


def pause_quietly(daemon, session):
    try:
        daemon.api("POST", f"/sessions/{session}/pause")
    except Exception:  # it was killed meanwhile
        pass


def test_a_session_paused_before_a_restart_is_paused_and_resumes(daemon):
    session = daemon.session()
    daemon.execute(session, command="echo kept > file")
    assert daemon.api("POST", f"/sessions/{session}/pause", expect=200).json["state"] == "paused"
    restart(daemon)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "frozen", "it is still frozen")
    assert daemon.api("GET", f"/sessions/{session}").json["state"] == "paused"
    assert daemon.api("POST", f"/sessions/{session}/resume", expect=200).json["state"] == "open"
    assert daemon.execute(session, command="cat file")["stdout"] == "kept\n"


def test_resume_right_behind_the_creation_is_answered(daemon):
    for _ in range(5):
        session = daemon.session()
        assert daemon.api("POST", f"/sessions/{session}/resume", expect=200).json["state"] == "open"


def test_resume_is_answered_by_a_daemon_that_stood_still(daemon):
    session = daemon.session()
    daemon.execute(session, command="true")
    daemon.api("POST", f"/sessions/{session}/pause", expect=200)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.api("POST", f"/sessions/{session}/resume", expect=200).json["state"] == "open"


def test_what_opening_again_has_changed_is_there_after_a_kill(daemon):
    session = daemon.session(key="again", lease_seconds=100)
    for round in range(6):
        daemon.api("POST", "/sessions", {"key": "again", "labels": {"round": str(round)}, "lease_seconds": 1000 * (round + 1)}, expect=200)
        daemon.kill()
        daemon.start()
        found = daemon.api("GET", f"/sessions/{session}", expect=200).json
        assert found["labels"] == {"round": str(round)} and found["lease_remaining_seconds"] > 1000 * round + 500, found


def test_what_was_acknowledged_is_there_after_a_kill(daemon):
    session = daemon.session()
    daemon.execute(session, command="echo x > file")
    for round in range(3):
        daemon.api("PATCH", f"/sessions/{session}", {"labels": {"round": str(round)}, "idle_timeout": 1000 + round}, expect=200)
        restart(daemon)
        now = daemon.api("GET", f"/sessions/{session}").json
        assert (now["labels"], now["idle_timeout"]) == ({"round": str(round)}, 1000 + round)
        daemon.api("POST", f"/sessions/{session}/keepalive", {"timeout": 5000 * (round + 1)}, expect=200)
        restart(daemon)
        assert daemon.api("GET", f"/sessions/{session}").json["lease_remaining"] > 5000 * (round + 1) - 100
        daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
        restart(daemon)
        assert daemon.execute(session, command="cat file; echo x > file; echo up")["stdout"] == "up\n"


def test_an_execution_that_was_answered_is_known_after_a_kill(daemon):
    """Each answer is followed by kill -9 at once: the one with the whole result, and the head of a stream."""
    session = daemon.session()
    daemon.execute(session, ["true"])
    for round in range(4):
        answer = daemon.execute(session, ["sh", "-c", f"echo {round}; exit {round}"])
        restart(daemon)
        known = daemon.api("GET", f"/sessions/{session}/executions/{answer['id']}", expect=200).json
        assert (known["state"], known["exit_code"], known["stdout"]) == ("exited", round, f"{round}\n")

        head = begin_stream(daemon, session, ["sleep", "1000"])
        restart(daemon)
        known = daemon.api("GET", f"/sessions/{session}/executions/{head}", expect=200).json
        # Killed before its program was asked for, or before the program has answered: then it says so.
        assert known["state"] in ("queued", "running") or known["state"] == "crashed" and known["reason"], known
        daemon.api("DELETE", f"/sessions/{session}/executions/{head}", expect=200)


def begin_stream(daemon, session, argv):
    """The id of an execution whose stream has begun; the connection is left open and nothing more is read."""
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{session}/executions", json.dumps({"argv": argv, "cancel_on_disconnect": False}),
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    return connection.getresponse().getheader("X-Sandglass-Execution-Id")


def test_a_run_in_a_context_that_was_answered_is_in_the_history_after_a_kill(daemon):
    session = daemon.session()
    context = daemon.api("POST", f"/sessions/{session}/contexts", {"language": "bash"}, expect=201).json["id"]
    for round in range(3):
        daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": f"echo {round}"}, expect=200)
        restart(daemon)
        ran = [event["data"]["stdout"] for event in daemon.api("GET", f"/sessions/{session}/history", expect=200).json["entries"]
               if event["type"] == "context.ran"]
        assert ran[-1] == f"{round}\n" and len(ran) == round + 1


def test_a_use_right_behind_a_death_gets_a_new_sandbox(daemon):
    session = daemon.session()
    for generation in (1, 2):
        result = daemon.execute(session, command="true")
        assert (result["state"], result["generation"]) == ("exited", generation), (result["reason"], result["error"])
        os.kill(init_of(daemon, session), signal.SIGKILL)
    restart(daemon)  # the last one died with the daemon, as good as
    wait_for(lambda: daemon.api("POST", f"/sessions/{session}/executions", {"command": "true"}).status == 201, "a third one")


def adopt_orphans(adopts):
    """This process is what PID 1 is in many containers: the parent of orphans, which it does not reap."""
    PR_SET_CHILD_SUBREAPER = 36
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0) == 0


def test_a_dead_sandbox_that_nobody_reaps_is_dead(daemon):
    adopt_orphans(True)
    try:
        session = daemon.session()
        daemon.execute(session, command="true")
        init = init_of(daemon, session)
        folder = daemon.state / "sandboxes" / daemon.api("GET", f"/sessions/{session}").json["sandbox"]["id"]
        daemon.kill()
        wait_for(lambda: parent_of(init) == str(os.getpid()), "it is ours")
        os.kill(init, signal.SIGKILL)
        wait_for(lambda: open(f"/proc/{init}/stat").read().rsplit(")", 1)[1].split()[0] == "Z", "it is a zombie")
        restart(daemon)
        result = daemon.execute(session, command="echo up")
        assert (result["stdout"], result["generation"]) == ("up\n", 2)
        wait_for(lambda: not folder.exists(), "the dead one is gone")
        assert open(f"/proc/{init}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
    finally:
        adopt_orphans(False)
        os.waitpid(init, 0)


def test_dead_members_of_the_pool_are_not_handed_out(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 3}})
    known = wait_for(lambda: len(found := inits_of(daemon)) >= 3 and found, "the pool is filled")
    time.sleep(0.2)
    for pid in inits_of(daemon):
        kill_quietly(pid)
    assert daemon.execute(daemon.session(), command="echo fine")["stdout"] == "fine\n", known


def kill_quietly(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was being replaced
        pass


def inits_of(daemon):
    """The first processes of all its sandboxes, by the state directory that their sockets are in."""
    if daemon.settings["sandbox"]["backend"] in real_engine.ENGINE_BACKENDS:
        return real_engine.inits_of(daemon.settings["instance"])
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if open(f"/proc/{entry}/comm").read().strip() != "sandglass-init":
                continue
            if str(daemon.directory) in open(f"/proc/{entry}/cgroup").read() or daemon.settings["instance"] in open(f"/proc/{entry}/cgroup").read():
                status = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
                if status[0] != "Z":
                    found.append(int(entry))
        except OSError:
            pass
    return found


def test_executions_that_had_just_begun_say_what_became_of_them(daemon):
    """However far a start had come when the daemon was killed: a record never claims an end that nobody has seen."""
    session = daemon.session()
    daemon.execute(session, ["sh", "-c", "exit 3"])
    known = set()

    def ask(argv):
        try:
            known.add(daemon.api("POST", f"/sessions/{session}/executions", {"argv": argv, "background": True}).json["id"])
        except (OSError, KeyError, ValueError, http.client.HTTPException):
            pass  # killed before it could answer

    for wait in (0.0, 0.001, 0.002, 0.006):
        callers = [in_background(lambda argv=argv: ask(argv))
                   for argv in (["sh", "-c", "exit 3"], ["sleep", "1000"], ["/nowhere/program"], ["sh", "-c", "kill -9 $$"])]
        time.sleep(wait)
        daemon.kill()
        for caller in callers:
            caller.join()
        daemon.start()

    def settled():
        records = daemon.api("GET", f"/sessions/{session}/executions?limit=200", expect=200).json["executions"]
        return all(record["state"] not in ("queued", "running") or (record["state"], record["request"]["argv"][0]) == ("running", "sleep")
                   for record in records) and records

    records = wait_for(settled, "all but the sleepers have ended")
    assert known <= {record["id"] for record in records}
    for record in records:
        ran = record["request"]["argv"][-1]
        if record["state"] == "exited":
            assert (record["exit_code"], record["signal"]) in {"exit 3": [(3, None)], "/nowhere/program": [(127, None)],
                                                              "kill -9 $$": [(None, 9), (137, 9), (-1, 9)]}.get(ran, []), record
        elif record["state"] == "running":
            assert record["started_at"], record
        else:
            assert record["state"] == "crashed" and record["reason"], record
    events = daemon.api("GET", f"/sessions/{session}/events?follow=0").body.decode()
    for record in records:
        assert record["state"] != "running" or f'"execution_id":"{record["id"]}"' in events, record
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_input_goes_on_where_it_had_arrived_before_a_crash(daemon):
    """Where a bridge counts it. In the program's own pipe nobody can count bytes of an earlier daemon, and nothing is told."""
    session = daemon.session()
    data = os.urandom(4 << 20)
    octets = {"Content-Type": "application/octet-stream"}
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": "mkfifo go; read go < go; exec sha256sum", "background": True, "stdin": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"

    def feed():
        try:
            daemon.request("POST", f"/api/v1{path}/stdin", data, octets)
        except (OSError, http.client.HTTPException):
            pass  # the daemon is killed under it

    feeding = in_background(feed)
    wait_for(lambda: daemon.api("GET", path).json.get("stdin_bytes", 0) > 0, "some input has arrived")
    restart(daemon)
    feeding.join(30)
    wait_for(lambda: daemon.api("GET", path).json["state"] == "running", "it goes on")
    if not RELAY:
        assert "stdin_bytes" not in daemon.api("GET", path).json
        return
    wait_for(lambda: "stdin_bytes" in daemon.api("GET", path).json, "its input is counted")
    shown = daemon.api("GET", path).json
    assert 0 < shown["stdin_bytes"] < len(data) and shown["stdin_pending"] == 0
    daemon.execute(session, command="echo > go")
    assert daemon.request("POST", f"/api/v1{path}/stdin?eof=1", data[shown["stdin_bytes"]:], octets).status == 200
    assert daemon.api("GET", path + "?wait=20").json["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body.split()[0].decode() == hashlib.sha256(data).hexdigest()
