# SPDX-License-Identifier: Apache-2.0
"""Waiting for what an execution does: a text that it writes, a port that it serves."""
import concurrent.futures

import pytest

from conftest import wait_for


@pytest.fixture
def session(daemon):
    return daemon.session()


def start(daemon, session, **body):
    return daemon.api("POST", f"/sessions/{session}/executions", {**body, "background": True}, expect=201).json["id"]


def wait(daemon, session, execution, **query):
    parameters = "&".join(f"{name}={value}" for name, value in query.items())
    return daemon.api("GET", f"/sessions/{session}/executions/{execution}/wait?{parameters}", expect=200).json


SERVER = """
import socket, sys, time
server = socket.socket({family})
server.bind((sys.argv[1] if len(sys.argv) > 1 else "{address}", 0))
print("port", server.getsockname()[1], flush=True)
sys.stdin.readline()
server.listen()
time.sleep(60)
"""


@pytest.mark.parametrize("family, address", [("socket.AF_INET", "127.0.0.1"), ("socket.AF_INET6", "::1")])
def test_a_port_is_awaited(daemon, session, family, address):
    server = start(daemon, session, argv=["/usr/bin/python3", "-c", SERVER.format(family=family, address=address)], stdin=True)
    assert wait(daemon, session, server, output="port")["met"]
    line = wait_for(lambda: (out := daemon.api("GET", f"/sessions/{session}/executions/{server}/output?stream=stdout").body).endswith(b"\n") and out, "the line")
    port = int(line.split()[1])
    early = wait(daemon, session, server, port=port, timeout=0.1)
    assert (early["met"], early["reason"]) == (False, "timeout")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        later = pool.submit(wait, daemon, session, server, port=port, timeout=20)
        daemon.api("POST", f"/sessions/{session}/executions/{server}/stdin", b"go\n", headers={"Content-Type": "application/octet-stream"}, expect=200)
        assert (later.result()["met"], later.result()["execution"]["state"]) == (True, "running")
    daemon.api("DELETE", f"/sessions/{session}/executions/{server}", expect=200)
    assert wait(daemon, session, server, port=port, timeout=5)["reason"] == "ended"


def test_a_text_is_awaited_even_when_it_comes_in_pieces(daemon, session):
    run = start(daemon, session, command="printf before; printf 'rea'; sleep 0.1; printf 'dy to go' >&1; echo ready >&2; exec sleep 60")
    met = wait(daemon, session, run, output="ready%20to", timeout=25)
    assert (met["met"], met["stream"], met["offset"]) == (True, "stdout", 6)
    assert wait(daemon, session, run, output="ready", stream="stderr", timeout=25)["stream"] == "stderr"
    assert wait(daemon, session, run, output="ready", stream="stdout", offset=7, timeout=0.05) | {"waited_seconds": 0, "execution": 0} == {
        "met": False, "reason": "timeout", "stream": None, "offset": None, "waited_seconds": 0, "execution": 0}
    daemon.api("DELETE", f"/sessions/{session}/executions/{run}", expect=200)


def test_what_has_ended_is_searched_too(daemon, session):
    run = daemon.execute(session, command="echo one; echo two >&2")["id"]
    assert (wait(daemon, session, run, output="two")["offset"], wait(daemon, session, run, output="three")["reason"]) == (0, "ended")


def test_an_end_without_the_text_is_told_at_once(daemon, session):
    run = start(daemon, session, command="sleep 0.2; echo other; exit 4")
    missed = wait(daemon, session, run, output="never", timeout=28)
    assert (missed["met"], missed["reason"], missed["execution"]["exit_code"]) == (False, "ended", 4)
    assert missed["waited_seconds"] < 25


def test_wishes_that_make_no_sense_are_refused(daemon, session):
    run = daemon.execute(session, command="true")["id"]
    for query in ("", "port=0", "port=70000", "output=", "output=x&port=80", "output=x&stream=both", "outptu=x"):
        assert daemon.api("GET", f"/sessions/{session}/executions/{run}/wait?{query}").status == 400, query
    assert daemon.api("GET", f"/sessions/{session}/executions/exe_none/wait?output=x").status == 404
