# SPDX-License-Identifier: Apache-2.0
"""The database and its log: damage is told, backups are complete, restoring works."""
import json
import os
import re
import sqlite3
import threading

import pytest

from conftest import wait_for


def database(daemon):
    return str(daemon.state / "sandglass.db")


def store(daemon, *arguments):
    return daemon.cli("store", arguments[0], "--state", daemon.state, *arguments[1:])


def flip(path, at, bit=1):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


def refused_start(daemon):
    daemon.spawn()
    assert daemon.process.wait(30) != 0
    return daemon.log()


def is_in_database(daemon, session):
    with sqlite3.connect(database(daemon)) as connection:
        return connection.execute("SELECT count(*) FROM sessions WHERE id = ?", (session,)).fetchone()[0]


def kill_with_a_log(daemon):
    """The last session was answered and is not in the database yet."""
    sessions = []
    for _ in range(20):
        sessions += [daemon.session() for _ in range(2)]
        daemon.kill()
        if not is_in_database(daemon, sessions[-1]):
            return sessions
        daemon.start()
    pytest.fail("the database is up to date all the time")


@pytest.fixture
def plain(make_daemon):
    return make_daemon(backend="direct", settings={"pool": {"size": 0}})


def test_a_flipped_bit_of_the_redo_log_is_refused_and_can_be_accepted(plain):
    sessions = kill_with_a_log(plain)
    log = database(plain) + "-redo0"
    with open(log, "rb") as file:
        at = file.read().index(sessions[-1].encode())
    flip(log, at + 6)
    said = refused_start(plain)
    assert log in said and "--accept-loss" in said
    checked = store(plain, "check")
    assert checked.returncode == 1 and "damaged" in checked.stdout
    assert store(plain, "repair").returncode == 2
    repaired = store(plain, "repair", "--accept-loss")
    assert repaired.returncode == 0, repaired.stderr
    plain.start()
    assert plain.api("GET", f"/sessions/{sessions[0]}").status == 200
    plain.stop()
    plain.cli("sweep", "--state", plain.state, "--older-than", "0s")  # sandboxes that the lost commits told of


def test_a_redo_log_that_is_gone_is_missed(plain):
    kill_with_a_log(plain)
    log = database(plain) + "-redo0"
    os.rename(log, log + ".away")
    assert "is missing" in refused_start(plain)
    os.rename(log + ".away", log)
    plain.start()


def test_a_damaged_record_is_named(plain):
    sessions = [plain.session(labels={"nr": str(n)}) for n in range(3)]
    plain.stop()
    with open(database(plain), "rb") as file:
        places = [found.start() for found in re.finditer(rb'\{"nr":"1"\}', file.read())]  # an old one may be left in free space
    assert places
    for at in places:
        flip(database(plain), at + 7)
    checked = store(plain, "check")
    assert checked.returncode == 1 and sessions[1] in checked.stdout
    doctor = plain.cli("doctor", "--store", "--config", plain.directory / "sandglass.yaml", "--json")
    found = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert found["store"]["status"] == "fail"
    plain.start()
    assert "store record damaged" in plain.log() and sessions[1] in plain.log()
    assert plain.api("GET", f"/sessions/{sessions[0]}").status != 404


def test_a_backup_under_load_has_everything_that_was_answered(plain, work):
    answered = []
    stop = threading.Event()

    def make_sessions():
        while not stop.is_set():
            answer = plain.api("POST", "/sessions", {"idle_timeout": 3600})
            if answer.status == 201:
                answered.append(answer.json["id"])

    thread = threading.Thread(target=make_sessions)
    thread.start()
    try:
        for number in range(3):
            wait_for(lambda: len(answered) > 5 * (number + 1), "sessions")
            before = list(answered)
            copy = os.path.join(work, f"copy{number}")
            made = store(plain, "backup", copy)
            assert made.returncode == 0, made.stderr
            checked = plain.cli("store", "check", copy)
            assert checked.returncode == 0, checked.stdout + checked.stderr
            with sqlite3.connect(copy) as connection:
                there = {row[0] for row in connection.execute("SELECT id FROM sessions")}
            assert set(before) <= there
    finally:
        stop.set()
        thread.join()
    assert store(plain, "backup", copy).returncode != 0  # it is there already
    assert store(plain, "restore", copy).returncode != 0  # the daemon runs
    assert store(plain, "check").returncode == 0
    for session in answered[:3] + answered[len(before):]:
        plain.api("DELETE", f"/sessions/{session}")
    plain.stop()
    restored = store(plain, "restore", copy)
    assert restored.returncode == 0, restored.stderr
    assert store(plain, "check").returncode == 0
    plain.start()
    for session in before:
        assert plain.api("GET", f"/sessions/{session}").status == 200


def output_error(daemon, session, execution):
    return daemon.api("GET", f"/sessions/{session}/executions/{execution}", expect=200).json["error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root takes the file from the daemon")
def test_output_that_cannot_be_opened_is_not_called_lost(plain):
    session = plain.session()
    execution = plain.execute(session, ["seq", "100"])["id"]
    plain.api("DELETE", f"/sessions/{session}", expect=200)
    plain.stop()
    spool = plain.state / "output" / f"{execution}.out"
    owner = spool.stat()
    os.chown(spool, 0, 0)
    plain.start()
    error = output_error(plain, session, execution)
    assert error["code"] == "output_incomplete" and "Permission denied" in error["message"], error
    os.chown(spool, owner.st_uid, owner.st_gid)
    assert output_error(plain, session, execution) is None
    spool.unlink()
    error = output_error(plain, session, execution)
    assert error["code"] == "output_incomplete" and "bytes are missing" in error["message"], error
