# SPDX-License-Identifier: Apache-2.0
"""A new daemon takes over from an old one: a program that counts in a session does not lose a tick, and old records are migrated.

Needs programs of older commits, which scripts/test --upgrade builds: SANDGLASS_OLD_PROGRAMS is a list of their paths."""
import os
import pathlib
import re
import sqlite3
import subprocess

import pytest

import conftest
from conftest import ROOT, SANDGLASS, wait_for

OLD = os.environ.get("SANDGLASS_OLD_PROGRAMS", "").split(":")

NEWEST_SCHEMA = int(re.search(r"STORE_SCHEMA_VERSION = (\d+)", (ROOT / "src/store/sqlite/db.h").read_text())[1])
COUNTER = "i=0; while [ ! -e stop ]; do i=$((i + 1)); echo $i; sleep 0.02; done; echo end $i"


def schema(daemon):
    with sqlite3.connect(daemon.state / "sandglass.db") as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def output_of(daemon, session, execution):
    answer = daemon.api("GET", f"/sessions/{session}/executions/{execution}/output?stream=stdout", expect=200)
    return answer.body.decode()


@pytest.mark.skipif(OLD == [""], reason="only with scripts/test --upgrade")
@pytest.mark.parametrize("old", OLD, ids=lambda path: pathlib.Path(path).name or "none")
@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_counter_does_not_lose_a_tick(make_daemon, monkeypatch, old, way):
    monkeypatch.setattr(conftest, "SANDGLASS", pathlib.Path(old))
    daemon = make_daemon(backend="native", settings={"shutdown": {"policy": "keep"}})
    session = daemon.session(key="counter", timeout=600, env={"KEPT": "yes"})
    daemon.execute(session, command="echo before >file")
    ended = daemon.session(key="ended")
    daemon.execute(ended, command="echo old output")
    daemon.api("DELETE", f"/sessions/{ended}")
    execution = daemon.api("POST", f"/sessions/{session}/executions", {"command": COUNTER, "background": True}).json["id"]
    wait_for(lambda: output_of(daemon, session, execution).count("\n") > 20, "it counts")
    before = daemon.api("GET", f"/sessions/{session}").json
    old_schema = schema(daemon)

    daemon.stop() if way == "stop" else daemon.kill()
    monkeypatch.setattr(conftest, "SANDGLASS", SANDGLASS)
    daemon.start()
    assert old_schema <= schema(daemon) == NEWEST_SCHEMA
    assert daemon.api("GET", "/sessions/key:counter").json["id"] == session

    count = output_of(daemon, session, execution).count("\n")
    wait_for(lambda: output_of(daemon, session, execution).count("\n") > count + 20, "it goes on")
    after = daemon.api("GET", f"/sessions/{session}").json
    assert (after["generation"], after["sandbox"]["id"]) == (before["generation"], before["sandbox"]["id"])
    assert daemon.execute(session, command="cat file; echo $KEPT; touch stop")["stdout"] == "before\nyes\n"
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "exited", "it ends")
    *ticks, last = output_of(daemon, session, execution).splitlines()
    assert ticks == [str(number + 1) for number in range(len(ticks))], "a tick was lost"
    assert re.fullmatch(r"end \d+", last) and int(last.split()[1]) == len(ticks)
    assert daemon.api("GET", f"/sessions/{ended}").json["state"] == "ended"
    assert daemon.execute(daemon.session(), command="echo new")["stdout"] == "new\n"
    checked = subprocess.run([SANDGLASS, "store", "check", "--state", daemon.state], capture_output=True, text=True)
    assert checked.returncode == 0, checked
    daemon.cli("rm", "--all")  # this daemon would leave them alone
