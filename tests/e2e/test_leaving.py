# SPDX-License-Identifier: Apache-2.0
"""A client that leaves stops the code that it started, and nothing else does."""
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import SANDGLASS, UnixConnection, wait_for

LONG = "echo begun; exec sleep 600"


@pytest.fixture
def daemon(make_daemon, backend):
    return make_daemon(backend=backend, settings={"pool": {"size": 0}, "session": {"preload": False}})


def ask(daemon, path, body, accept="application/json"):
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", "/api/v1" + path, body=json.dumps(body),
                       headers={"Content-Type": "application/json", "Accept": accept})
    return connection


def executions(daemon, session):
    return daemon.api("GET", f"/sessions/{session}/executions", expect=200).json["executions"]


def wait_for_state(daemon, session, state):
    return wait_for(lambda: next((row for row in executions(daemon, session) if row["state"] == state), None), f"it is {state}")


def wait_until_begun(daemon, session):
    def find():
        return next((row for row in executions(daemon, session) if row["state"] == "running" and row["stdout_bytes"] > 0), None)
    return wait_for(find, "it runs")["id"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_who_waits_for_an_execution_stops_it_by_leaving(daemon, accept):
    session = daemon.session()
    connection = ask(daemon, f"/sessions/{session}/executions", {"command": LONG}, accept)
    wait_until_begun(daemon, session)
    connection.close()
    wait_for_state(daemon, session, "cancelled")


def test_who_waits_for_code_stops_it_by_leaving(daemon):
    session = daemon.session()
    code = {"code": LONG, "language": "bash", "session_id": session}
    connection = ask(daemon, "/execute", code)
    wait_until_begun(daemon, session)
    connection.close()
    wait_for_state(daemon, session, "cancelled")
    assert daemon.execute(session, ["true"])["generation"] == 1

    connection = ask(daemon, "/execute", {**code, "cancel_on_disconnect": False})
    wait_for_state(daemon, session, "running")
    connection.close()
    daemon.execute(session, ["true"])
    wait_for_state(daemon, session, "running")


def test_it_goes_on_when_its_client_may_come_back(daemon):
    session = daemon.session()
    path = f"/sessions/{session}/executions"
    for body in ({"cancel_on_disconnect": False}, {"key": "mine"}):
        connection = ask(daemon, path, {"command": LONG, **body})
        execution = wait_until_begun(daemon, session)
        connection.close()
        # Neither does somebody else who waits for it, or follows its output, stop it.
        for method, target in (("GET", f"{path}/{execution}?wait=60"), ("GET", f"{path}/{execution}/stdout?follow=1")):
            other = UnixConnection(str(daemon.socket))
            other.request(method, "/api/v1" + target)
            other.close()
        if "key" in body:  # nor who repeats the request
            ask(daemon, path, {"command": LONG, "cancel_on_disconnect": True, **body}).close()
        daemon.execute(session, ["true"])
        assert daemon.api("GET", f"{path}/{execution}", expect=200).json["state"] == "running"
        daemon.api("DELETE", f"{path}/{execution}")
        wait_for(lambda: daemon.api("GET", f"{path}/{execution}").json["state"] == "cancelled", "it is over")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_restarts_is_no_client_that_leaves(make_daemon, backend, how):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "shutdown": {"policy": "keep"}})
    session = daemon.session()
    with_json = ask(daemon, f"/sessions/{session}/executions", {"command": LONG})
    execution = wait_until_begun(daemon, session)
    daemon.process.send_signal(how)
    daemon.process.wait(30)
    daemon.start()
    with_json.close()
    assert daemon.api("GET", f"/sessions/{session}/executions/{execution}", expect=200).json["state"] == "running"
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


@pytest.mark.parametrize("command, number", [("execute", signal.SIGINT), ("execute", signal.SIGTERM), ("execute", signal.SIGKILL),
                                             ("exec", signal.SIGTERM), ("exec", signal.SIGKILL), ("exec -t", signal.SIGKILL)])
def test_the_cli_takes_its_code_along(daemon, command, number):
    session = daemon.session()
    arguments = {"execute": ["execute", "--session", session, "--language", "bash", "--code", LONG],
                 "exec": ["exec", session, "--", "sh", "-c", LONG], "exec -t": ["exec", "-t", session, "--", "sh", "-c", LONG]}
    process = subprocess.Popen([SANDGLASS, *arguments[command]], env={**os.environ, "SANDGLASS_URL": daemon.url},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    execution = wait_until_begun(daemon, session)
    process.send_signal(number)
    process.wait(30)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] in ("cancelled", "exited"), "it is stopped")
    assert daemon.execute(session, ["true"])["generation"] == 1


def test_the_code_of_the_cli_survives_the_daemon_but_not_the_client(make_daemon, backend):
    """A client that comes back after a restart of the daemon still is its client."""
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "session": {"preload": False}})
    session = daemon.session()
    client = subprocess.Popen([SANDGLASS, "exec", session, "--", "sh", "-c", LONG], env={**os.environ, "SANDGLASS_URL": daemon.url},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    execution = wait_until_begun(daemon, session)
    daemon.kill()
    daemon.start()
    time.sleep(2.5)  # longer than a client may be away while the daemon serves
    assert daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "running"
    client.kill()
    client.wait()
    wait_for_state(daemon, session, "cancelled")


@pytest.mark.parametrize("backend", ["direct"])
def test_detached_code_of_the_cli_goes_on(daemon):
    session = daemon.session()
    execution = daemon.cli("exec", "-d", session, "--", "sh", "-c", LONG).stdout.strip()
    wait_until_begun(daemon, session)
    time.sleep(2.5)
    assert daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "running"
