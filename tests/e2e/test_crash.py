# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon loses no session, no running program and no byte."""
import os
import signal
import subprocess
import time

from conftest import SANDGLASS, wait_for

COUNTER = "i=0; while [ $i -lt {n} ]; do echo $i; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.01; done; true"


def test_no_line_is_missing_after_the_daemon_was_killed(daemon):
    session = daemon.session(key="survivor")
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": COUNTER.format(n=20000), "background": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: len(daemon.api("GET", path + "/output?stream=stdout").body) > 1000, "some output")
    for _ in range(3):
        daemon.kill()
        time.sleep(0.1)
        daemon.start()
    result = daemon.api("GET", path + "?wait=30", timeout=60).json
    assert (result["state"], result["exit_code"]) == ("exited", 0)
    assert daemon.api("GET", path + "/output?stream=stdout").body == "".join(f"{n}\n" for n in range(20000)).encode()
    assert daemon.api("GET", "/sessions/key:survivor", expect=200).json["id"] == session
    assert daemon.execute(session, ["/bin/echo", "again"])["stdout"] == "again\n"


def test_a_program_that_ended_while_no_daemon_ran_is_accounted_for(daemon):
    session = daemon.session()
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": "sleep 0.5; echo finished; exit 9", "background": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: daemon.api("GET", path).json["started_at"], "it has begun")
    daemon.kill()
    time.sleep(1.0)
    daemon.start()
    result = daemon.api("GET", path + "?wait=30", timeout=60).json
    assert (result["state"], result["exit_code"], result["stdout"]) == ("exited", 9, "finished\n")


def test_clocks_go_on_through_a_restart(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 3}, expect=200)
    daemon.kill()
    daemon.start()
    shown = daemon.api("GET", f"/sessions/{session}", expect=200).json
    assert shown["state"] == "ended" or shown["idle_remaining"] <= 3
    wait_for(lambda: daemon.ended(session), "the idle end after the restart")


def test_a_crashed_sandbox_comes_back_with_a_new_generation(daemon):
    session = daemon.session()
    daemon.execute(session, command="echo x > file")
    before = daemon.api("GET", f"/sessions/{session}").json["generation"]
    pid = sandbox_pid(daemon, session)
    os.kill(pid, signal.SIGKILL)
    result = wait_for(lambda: (r := daemon.api("POST", f"/sessions/{session}/executions", {"command": "cat file; echo up"})).status == 201
                      and r.json["state"] == "exited" and r.json, "it comes back")
    assert result["stdout"] == "up\n"
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == before + 1


def sandbox_pid(daemon, session):
    """The host's pid of the sandbox's init: the one process whose socket is in that sandbox's directory."""
    sandbox = daemon.api("GET", f"/sessions/{session}").json["sandbox"]
    return sandbox["pid"]


def test_a_second_daemon_on_the_same_state_is_refused_and_names_the_first(daemon):
    result = subprocess.run([SANDGLASS, "serve", "--config", daemon.directory / "sandglass.yaml",
                             "--listen", f"unix:{daemon.directory}/run/other.sock"], capture_output=True, text=True, timeout=20)
    assert result.returncode != 0
    assert str(daemon.process.pid) in result.stderr


def test_sigterm_with_keep_leaves_the_sandbox_for_the_next_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}})
    session = daemon.session()
    daemon.execute(session, command="echo kept > file")
    daemon.stop()
    daemon.start()
    assert daemon.execute(session, command="cat file")["stdout"] == "kept\n"
    daemon.settings["shutdown"] = {"policy": "destroy"}
    daemon.stop()
    daemon.start()
