# SPDX-License-Identifier: Apache-2.0
"""sandbox_create and what a model is told when its sandbox changes under it."""
import threading

import pytest
from conftest import wait_for
from toolbox import call, fails, ok, text_of

SETTINGS = {"flavors": [{"name": "cpu-basic"}, {"name": "cpu-upgrade", "memory": "1g", "price_per_hour": 0},
                        {"name": "cpu-xl", "memory": "512m", "price_per_hour": 0},
                        {"name": "gpu", "memory": "1g", "price_per_hour": 4.0, "needs_approval": True}]}


@pytest.fixture
def daemon(make_daemon, backend):
    return make_daemon(backend=backend, settings=SETTINGS)


@pytest.fixture
def session(daemon):
    return daemon.session()


def test_the_one_there_is_will_do(daemon, session):
    ok(daemon, session, "bash", command="touch mine")
    assert "Nothing changes" in ok(daemon, session, "sandbox_create")
    assert "Nothing changes" in ok(daemon, session, "sandbox_create", flavor="cpu-basic")
    assert ok(daemon, session, "bash", command="ls") == "mine\n"


def test_a_chosen_flavor_takes_the_place_of_the_automatic_one(daemon, session):
    ok(daemon, session, "bash", command="touch mine")
    text = ok(daemon, session, "sandbox_create", flavor="cpu-upgrade")
    assert "replaces cpu-basic" in text and text.endswith("It is ready: use bash, python, read, write and edit.")
    shown = daemon.api("GET", f"/sessions/{session}").json
    assert (shown["flavor"], shown["generation"], shown["limits"]["memory_bytes"]) == ("cpu-upgrade", 2, 1 << 30)
    # It was said that files are gone: not again, and only of the shell that went with them.
    text = ok(daemon, session, "bash", command="ls")
    assert "The sandbox of this session was reset" not in text and "mine" not in text


def test_a_chosen_one_is_not_changed_by_asking_again(daemon, session):
    ok(daemon, session, "sandbox_create", flavor="cpu-upgrade")
    text = ok(daemon, session, "sandbox_create", flavor="cpu-xl")
    assert "cannot be changed" in text and "cpu-xl" in text and "delete" in text
    assert daemon.api("GET", f"/sessions/{session}").json["flavor"] == "cpu-upgrade"
    assert "cannot be changed" not in ok(daemon, session, "sandbox_create")
    text = fails(daemon, session, "sandbox_create", flavor="huge")
    assert "unknown flavor" in text and "cpu-xl" in text


def test_an_approval_is_asked_for_and_nothing_changes_until_then(daemon, session):
    ok(daemon, session, "bash", command="touch mine")
    result = call(daemon, session, "sandbox_create", flavor="gpu")
    approval = result["structured"]["approval"]
    assert not result["is_error"] and "needs an approval" in text_of(result) and approval["state"] == "pending"
    assert ok(daemon, session, "bash", command="ls") == "mine\n"
    daemon.api("POST", f"/approvals/{approval['id']}", {"decision": "deny", "reason": "too dear"}, expect=200)
    assert ok(daemon, session, "bash", command="ls") == "mine\n"


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_decision_can_be_waited_for(daemon, session, decision):
    ok(daemon, session, "bash", command="true")
    results = []
    thread = threading.Thread(target=lambda: results.append(call(daemon, session, "sandbox_create", flavor="gpu", wait=60)))
    thread.start()
    pending = wait_for(lambda: daemon.api("GET", "/approvals").json["approvals"], "it is asked")
    daemon.api("POST", f"/approvals/{pending[0]['id']}", {"decision": decision, "reason": "because"}, expect=200)
    thread.join(30)
    text = text_of(results[0])
    if decision == "approve":
        assert not results[0]["is_error"] and "It is ready" in text
        assert daemon.api("GET", f"/sessions/{session}").json["flavor"] == "gpu"
    else:
        assert results[0]["is_error"] and "because" in text
        assert daemon.api("GET", f"/sessions/{session}").json["flavor"] == "cpu-basic"


def test_patience_has_an_end_and_an_interrupt_ends_it_at_once(daemon, session):
    result = call(daemon, session, "sandbox_create", flavor="gpu", wait=1)
    assert not result["is_error"] and result["structured"]["approval"]["state"] == "pending"
    results = []
    thread = threading.Thread(target=lambda: results.append(call(daemon, session, "sandbox_create", flavor="gpu", wait=600)))
    thread.start()
    wait_for(lambda: daemon.api("POST", f"/sessions/{session}/interrupt", {}).json["interrupted"], "it waits")
    thread.join(30)
    assert results[0]["is_error"] and "interrupted" in text_of(results[0])


def test_a_crash_is_told_with_the_next_call(daemon, session):
    ok(daemon, session, "bash", command="touch mine; x=1")
    before = daemon.api("GET", f"/sessions/{session}").json["generation"]
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    text = ok(daemon, session, "ls")
    assert text.startswith("[notice] The sandbox of this session was reset") and "(the workspace is empty)" in text
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == before + 1
    assert "was reset" not in ok(daemon, session, "ls")


def test_a_sandbox_that_is_lost_in_a_call_is_told(daemon, session):
    results = []
    thread = threading.Thread(target=lambda: results.append(call(daemon, session, "bash", command="echo so far; touch begun; sleep 60")))
    thread.start()
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/files/stat?path=begun").status == 200, "it runs")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    thread.join(30)
    text = text_of(results[0])
    assert results[0]["is_error"] and text.startswith("so far\n") and "next call starts a new one" in text
    assert "was reset" in ok(daemon, session, "bash", command="ls")


def test_every_tool_waits_for_a_sandbox_that_is_starting(daemon):
    session = daemon.session()  # its sandbox is being made meanwhile
    threads = [threading.Thread(target=lambda name=name, arguments=arguments: ok(daemon, session, name, **arguments))
               for name, arguments in (("bash", {"command": "true"}), ("ls", {}), ("write", {"path": "x", "content": "y"}))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == 1
