# SPDX-License-Identifier: Apache-2.0
"""What the idle clock takes for work, and what it takes away."""
import time

import pytest

from conftest import WALLS, wait_for


def state_of(daemon, session):
    answer = daemon.api("GET", f"/sessions/{session}")
    return answer.json["state"] if answer.status == 200 else "ended"


def set_idle(daemon, session, seconds):
    """The clocks of these tests are short, and begin when there is something for them to find."""
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": seconds}, expect=200)


def wait_for_worker(daemon, session, process):
    """Until it is seen as what keeps the session; a Python that starts may have been busier at the first look."""
    def find():
        keeper = daemon.api("GET", f"/sessions/{session}", expect=200).json["kept_alive_by"]
        return keeper if keeper and keeper["process"] == process else None
    return wait_for(find, f"the work of {process} was seen")


def test_a_job_in_the_background_keeps_its_session_while_it_works(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session, asleep = daemon.session(idle_timeout=60), daemon.session(idle_timeout=60)
    daemon.execute(session, command="(while :; do :; done) >/dev/null 2>&1 & echo $! >pid")
    daemon.execute(asleep, command="sleep 300 >/dev/null 2>&1 &")
    set_idle(daemon, session, 1)
    set_idle(daemon, asleep, 1)
    wait_for(lambda: state_of(daemon, asleep) == "ended", "a job that only sleeps is idle")
    time.sleep(2.5)
    assert state_of(daemon, session) == "open"
    keeper = wait_for_worker(daemon, session, "bash")
    assert keeper["kind"] == "background" and keeper["cpu_seconds"] > 0, keeper
    assert keeper["since"] < keeper["until"]
    told = daemon.cli("why", session).stdout
    assert 'The process "bash" works in the background' in told and "session.background_limit" in told, told
    assert daemon.execute(session, command="kill $(cat pid)")["exit_code"] == 0
    wait_for(lambda: state_of(daemon, session) == "ended", "without its job it is idle")


def test_a_job_that_works_keeps_its_session_over_a_restart(make_daemon, backend):
    """Also when the idle clock has run out while there was no daemon to look at the job."""
    daemon = make_daemon(backend=backend)
    session, asleep = daemon.session(idle_timeout=60), daemon.session(idle_timeout=60)
    daemon.execute(session, command="(while :; do :; done) >/dev/null 2>&1 & echo $! >pid")
    daemon.execute(asleep, command="sleep 300 >/dev/null 2>&1 &")
    set_idle(daemon, session, 2)
    set_idle(daemon, asleep, 2)
    daemon.kill()
    time.sleep(2.5)
    daemon.start()
    wait_for_worker(daemon, session, "bash")
    wait_for(lambda: state_of(daemon, asleep) == "ended", "a job that only sleeps is idle")
    assert state_of(daemon, session) == "open"
    assert daemon.execute(session, command="kill $(cat pid)")["exit_code"] == 0


def test_why_names_what_runs_and_is_not_fooled_by_a_name(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session(idle_timeout=60)
    running = daemon.execute(session, ["sleep", "61"], background=True)["id"]
    assert daemon.api("GET", f"/sessions/{session}").json["kept_alive_by"]["execution_id"] == running
    assert f"Execution {running} is running" in daemon.cli("why", session).stdout
    assert "sleep 61" in daemon.cli("why", session).stdout
    daemon.api("DELETE", f"/sessions/{session}/executions/{running}", expect=200)
    assert daemon.api("GET", f"/sessions/{session}").json["kept_alive_by"] is None

    daemon.execute(session, command=r"cp /bin/bash $'\x1b[31m) x'; (exec ./$'\x1b[31m) x' -c 'while :; do :; done') >/dev/null 2>&1 &")
    set_idle(daemon, session, 1)
    wait_for_worker(daemon, session, "\x1b[31m) x")
    told = daemon.cli("why", session).stdout
    assert '"?[31m) x"' in told and "\x1b" not in told
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_work_in_the_background_counts_only_up_to_its_limit(make_daemon):
    daemon = make_daemon(backend=WALLS, settings={"session": {"background_limit": "2s"}})
    session = daemon.session(idle_timeout=60)
    daemon.execute(session, command="(while :; do :; done) >/dev/null 2>&1 &")
    set_idle(daemon, session, 1)
    wait_for(lambda: state_of(daemon, session) == "ended", "a busy loop does not keep it for ever")


@pytest.mark.parametrize("backend", [WALLS, "direct"])
def test_idle_may_take_the_sandbox_and_leave_the_session(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"session": {"on_idle": "release", "idle_timeout": 60}})
    session = daemon.session()
    daemon.execute(session, ["true"])
    set_idle(daemon, session, 0.5)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "none", "the sandbox goes")
    shown = daemon.api("GET", f"/sessions/{session}").json
    assert shown["state"] == "open" and shown["next_end"]["reason"] == "lifetime"
    again = daemon.execute(session, ["true"])
    assert again["exit_code"] == 0 and again["generation"] == 2 and again["reset_reason"] == "idle"
    assert len(daemon.api("GET", f"/sessions/{session}/executions").json["executions"]) == 2
