# SPDX-License-Identifier: Apache-2.0
"""sandglass top, and what sandboxes use by the API."""
import json
import os

import pytest

from conftest import ONLY_ENGINE, SANDGLASS, WALLS, wait_for
from terminal import Terminal

COLUMNS = ["id", "key", "state", "sandbox", "cpu_seconds", "memory_bytes", "memory_peak_bytes", "pids", "disk_bytes", "running",
           "ends_by", "ends_in"]


def rows(text):
    return [dict(zip(COLUMNS, line.split("\t"))) for line in text.splitlines()]


def busy(daemon, session):
    """A program that computes until it is cancelled, and has begun to."""
    run = daemon.api("POST", f"/sessions/{session}/executions", {"command": "while :; do :; done", "background": True}, expect=201).json["id"]
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{run}", expect=200).json["state"] == "running", "the program runs")
    return run


def test_usage_is_measured_when_it_is_asked_for(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/dd", "if=/dev/zero", "of=big", "bs=1M", "count=8"])
    assert daemon.api("GET", f"/sessions/{session}", expect=200).json["usage"] is None
    usage = daemon.api("GET", f"/sessions/{session}?usage=1", expect=200).json["usage"]
    assert set(usage) == {"cpu_seconds", "memory_bytes", "memory_peak_bytes", "disk_bytes", "pids", "oom_kills", "measured_at"}
    assert usage["oom_kills"] == 0
    again = daemon.api("GET", f"/sessions/{session}", expect=200).json["usage"]
    assert again == usage, "looking without asking does not measure"
    listed = daemon.api("GET", "/sessions?usage=1", expect=200).json["sessions"]
    assert [entry["id"] for entry in listed] == [session]
    assert listed[0]["usage"]["measured_at"] >= usage["measured_at"]
    assert daemon.api("GET", f"/sessions/{session}?usage=maybe").status == 400
    assert daemon.api("GET", "/sessions?usage=maybe").status == 400


def test_usage_tells_what_a_sandbox_does(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = daemon.session()
    daemon.execute(session, ["/bin/dd", "if=/dev/zero", "of=big", "bs=1M", "count=8"])
    busy(daemon, session)

    def measured():
        usage = daemon.api("GET", f"/sessions/{session}?usage=1", expect=200).json["usage"]
        return usage["cpu_seconds"] > 0.2 and usage

    usage = wait_for(measured, "the program computes")
    assert usage["pids"] >= 1
    assert usage["disk_bytes"] >= 8 << 20 or ONLY_ENGINE  # which does not count files
    assert usage["memory_peak_bytes"] >= usage["memory_bytes"] > 0


def test_usage_belongs_to_one_sandbox(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    assert daemon.api("GET", f"/sessions/{session}?usage=1", expect=200).json["usage"]
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "none", "the sandbox is gone")
    assert daemon.api("GET", f"/sessions/{session}?usage=1", expect=200).json["usage"] is None


def test_a_page_is_measured_and_the_rest_is_not(daemon):
    sessions = [daemon.session() for _ in range(3)]
    for session in sessions:
        daemon.execute(session, ["/bin/true"])
    page = daemon.api("GET", "/sessions?usage=1&limit=2", expect=200).json
    assert [bool(entry["usage"]) for entry in page["sessions"]] == [True, True]
    assert daemon.api("GET", f"/sessions/{sessions[2]}", expect=200).json["usage"] is None
    rest = daemon.api("GET", f"/sessions?usage=1&limit=2&cursor={page['next_cursor']}", expect=200).json
    assert [entry["id"] for entry in rest["sessions"]] == [sessions[2]] and rest["sessions"][0]["usage"]


def test_top_in_a_pipe_has_stable_columns(daemon):
    quiet = daemon.session(key="quiet", idle_timeout=600)
    loud = daemon.session(key="loud")
    execution = busy(daemon, loud)
    result = daemon.cli("top")
    assert result.returncode == 0 and result.stderr == ""
    by_key = {row["key"]: row for row in rows(result.stdout)}
    assert set(by_key) == {"quiet", "loud"}
    assert by_key["quiet"]["id"] == quiet and by_key["quiet"]["running"] == "0" and by_key["quiet"]["ends_by"] == "idle"
    assert 0 < int(by_key["quiet"]["ends_in"]) <= 600
    assert by_key["loud"]["running"] == "1" and by_key["loud"]["state"] == "open"
    assert all(len(line.split("\t")) == len(COLUMNS) for line in result.stdout.splitlines())
    daemon.api("DELETE", f"/sessions/{loud}/executions/{execution}", expect=200)


def test_top_sorts_and_filters(make_daemon):
    daemon = make_daemon(backend=WALLS)
    small, large = daemon.session(labels={"a": "1"}), daemon.session()
    daemon.execute(small, ["/bin/true"])
    daemon.execute(large, ["/bin/dd", "if=/dev/zero", "of=big", "bs=1M", "count=8"])
    assert [row["id"] for row in rows(daemon.cli("top", "--sort", "disk").stdout)] == [large, small] or ONLY_ENGINE  # which does not count files
    assert [row["id"] for row in rows(daemon.cli("top", "--sort", "age").stdout)] == [small, large]
    assert [row["id"] for row in rows(daemon.cli("top", "--label", "a=1").stdout)] == [small]


def test_top_as_json_is_one_document(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    document = json.loads(daemon.cli("top", "--json").stdout)
    assert document["sessions"][0]["id"] == session and document["sessions"][0]["usage"]


@pytest.mark.parametrize("arguments", [["extra"], ["--sort", "name"], ["--interval", "soon"], ["--interval", "1ms"]])
def test_top_says_what_is_wrong(daemon, arguments):
    result = daemon.cli("top", *arguments)
    assert result.returncode in (1, 2) and result.stdout == "" and result.stderr.startswith("sandglass: ")


def test_top_on_a_terminal_looks_again_and_restores_it(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = daemon.session(key="mine")
    terminal = Terminal([SANDGLASS, "top", "--interval", "100ms"], {**os.environ, "SANDGLASS_URL": daemon.url}, columns=60, rows=10)
    terminal.expect(b"\x1b[?1049h", 30)
    terminal.expect(b"1 session, 0 executions running", 30)
    terminal.expect(session[:12].encode(), 30)
    busy(daemon, session)
    terminal.expect(b"1 execution running", 30)
    terminal.expect(b"% of a core", 30)
    terminal.type(b"q")
    assert terminal.wait(30) == 0
    assert b"\x1b[?1049l" in terminal.seen
    assert not terminal.is_raw()


def test_top_ends_with_its_daemon_and_says_so(make_daemon):
    daemon = make_daemon(backend=WALLS)
    terminal = Terminal([SANDGLASS, "top", "--interval", "100ms"], {**os.environ, "SANDGLASS_URL": daemon.url})
    terminal.expect(b"0 sessions", 30)
    daemon.stop()
    assert terminal.wait(30) == 1
    assert b"no daemon" in terminal.seen and not terminal.is_raw()
