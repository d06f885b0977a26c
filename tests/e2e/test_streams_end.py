# SPDX-License-Identifier: Apache-2.0
"""Every stream ends, with the reason, when what it tells of ends: by a deletion, and by the end of the daemon."""
import http.client
import json
import socket

import pytest

from conftest import UnixConnection, wait_for

KINDS = ["output", "execution events", "terminal", "watch", "session events", "all events", "logs of two"]


def executions(daemon, session):
    return daemon.api("GET", f"/sessions/{session}/executions", expect=200).json["executions"]


def open_stream(daemon, session, kind):
    """A connection whose answer has begun; so has the program that it tells of."""
    where = f"/api/v1/sessions/{session}"
    connection = UnixConnection(str(daemon.socket), timeout=30)
    if kind in ("output", "terminal", "logs of two"):
        body = {"command": "echo begun; exec sleep 600", "background": True, **({"tty": True} if kind == "terminal" else {})}
        execution = daemon.api("POST", f"/sessions/{session}/executions", body, expect=201).json["id"]
        stream = "stream=stdout&" if kind != "logs of two" else ""
        connection.request("GET", f"{where}/executions/{execution}/output?{stream}follow=1")
    elif kind == "execution events":
        connection.request("POST", f"{where}/executions", body=json.dumps({"command": "echo begun; exec sleep 600"}),
                           headers={"Content-Type": "application/json", "Accept": "text/event-stream"})
    elif kind == "watch":
        connection.request("GET", f"{where}/files/watch?path=.")
    else:
        connection.request("GET", (where if kind == "session events" else "/api/v1") + "/events")
    answer = connection.getresponse()
    assert answer.status in (200, 201), answer.read()
    wait_for(lambda: all(record["state"] == "running" and record["stdout_bytes"] for record in executions(daemon, session)), "its program runs")
    return connection, answer


def read_to_the_end(answer):
    try:
        return answer.read().decode(errors="replace")
    except socket.timeout:
        pytest.fail("the stream stays open")


def events_in(text):
    """(event, data) of Server-Sent Events."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in text.split("\n\n")]
    return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "all events"])
def test_a_stream_ends_with_its_session_and_tells_why(daemon, kind):
    session = daemon.session()
    connection, answer = open_stream(daemon, session, kind)
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    text = read_to_the_end(answer)
    connection.close()
    if "events" in kind or kind == "watch":
        assert "deleted" in events_in(text)[-1][1].get("data", events_in(text)[-1][1])["reason"], text
    else:  # bytes of a program have no room for it: its record has
        assert [(record["state"], record["reason"]) for record in executions(daemon, session)] == [("cancelled", "deleted")]


def test_a_watch_ends_with_its_sandbox(daemon):
    session = daemon.session()
    connection, answer = open_stream(daemon, session, "watch")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    assert events_in(read_to_the_end(answer))[-1] == ("end", {"reason": "teardown"})
    connection.close()


@pytest.mark.parametrize("policy", ["keep", "destroy"])
def test_streams_end_with_the_daemon_and_tell_what_becomes_of_sessions(make_daemon, backend, policy):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "shutdown": {"policy": policy}})
    session = daemon.session()
    streams = {kind: open_stream(daemon, session, kind) for kind in KINDS}
    daemon.process.terminate()
    for kind, (connection, answer) in streams.items():
        try:
            text = read_to_the_end(answer)
        except http.client.IncompleteRead as cut:  # what goes on is not told to be over
            text = cut.partial.decode()
            assert policy == "keep" or kind == "all events", kind
        connection.close()
        if "events" in kind or kind == "watch":
            assert ("shutdown", {"type": "shutdown", "reason": "shutdown", "sessions": policy}) in events_in(text), (kind, text)
    assert daemon.process.wait(30) == 0
    if policy == "keep":
        daemon.start()
        assert {record["state"] for record in executions(daemon, session)} == {"running"}
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
