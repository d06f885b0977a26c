# SPDX-License-Identifier: Apache-2.0
"""POST /execute with an Idempotency-Key: code runs once, however often the request comes."""
import threading

from conftest import wait_for

KEY = {"Idempotency-Key": "once"}
COUNT = "import pathlib; p = pathlib.Path('runs'); p.write_text(p.read_text() + 'x' if p.exists() else 'x'); print('ran', len(p.read_text()))"


def execute(daemon, expect=200, headers=None, **body):
    return daemon.api("POST", "/execute", {"code": COUNT, **body}, headers=headers or KEY, expect=expect, timeout=120).json


def test_code_runs_once_and_the_answer_is_the_same(daemon):
    first = execute(daemon)
    assert first["stdout"] == "ran 1\n" and first["exit_code"] == 0 and first["output_files"] == ["runs"]
    again = execute(daemon)
    for name in set(first) - {"session_files", "output_files", "session_time_remaining_seconds", "session_ttl_remaining", "duration_seconds"}:
        assert again[name] == first[name], name
    assert set(again) == set(first) and again["session_files"] == [] and again["duration_seconds"] > 0
    assert execute(daemon, headers={"Idempotency-Key": "other"})["session_id"] != first["session_id"]
    assert len(daemon.api("GET", "/sessions").json["sessions"]) == 2


def test_the_key_counts_in_the_session_that_is_named(daemon):
    session = daemon.session(key="k")
    assert execute(daemon, session_id=session)["stdout"] == "ran 1\n"
    assert execute(daemon, session_id=session)["stdout"] == "ran 1\n"
    assert execute(daemon, key="k")["stdout"] == "ran 1\n"
    assert execute(daemon, session_id=session, headers={"Idempotency-Key": "next"})["stdout"] == "ran 2\n"
    assert execute(daemon, key="new")["stdout"] == "ran 1\n"
    assert execute(daemon, key="new")["stdout"] == "ran 1\n"


def test_a_failure_is_repeated_as_well(daemon):
    session = daemon.session()
    first = execute(daemon, session_id=session, code="raise SystemExit(3)")
    again = execute(daemon, session_id=session, code="raise SystemExit(3)")
    assert first["exit_code"] == again["exit_code"] == 3 and again["error"] == first["error"]
    assert execute(daemon, session_id=session)["execution_id"] == first["execution_id"]


def test_a_second_caller_waits_for_the_first(daemon):
    session = daemon.session()
    answers = []
    slow = "import time; time.sleep(1.5); print('over')"
    threads = [threading.Thread(target=lambda: answers.append(execute(daemon, session_id=session, code=slow))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3 and {one["stdout"] for one in answers} == {"over\n"} and len({one["execution_id"] for one in answers}) == 1


def test_a_caller_that_leaves_finds_the_answer_later(daemon):
    try:
        daemon.api("POST", "/execute", {"code": "import time; time.sleep(2); print('late')"}, headers=KEY, timeout=1)
    except OSError:
        pass
    answer = execute(daemon, code="import time; time.sleep(2); print('late')")
    assert answer["stdout"] == "late\n" and len(daemon.api("GET", "/sessions").json["sessions"]) == 1


def test_another_session_for_the_same_key_is_refused(daemon):
    execute(daemon)
    refused = execute(daemon, expect=409, labels={"a": "b"})
    assert refused["error"]["code"] == "idempotency_key_reused"


def test_what_has_ended_is_not_run_again(daemon):
    first = execute(daemon, ephemeral=True)
    assert first["stdout"] == "ran 1\n" and first["session_ended"]
    gone = execute(daemon, expect=410, ephemeral=True)
    assert gone["error"]["code"] == "session_ended"
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_answers_outlive_the_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}})
    first = execute(daemon)
    daemon.kill()
    daemon.start()
    assert wait_for(lambda: execute(daemon), "an answer")["execution_id"] == first["execution_id"]
    daemon.api("DELETE", f"/sessions/{first['session_id']}", expect=200)


def test_wrong_code_leaves_no_session(daemon):
    assert daemon.api("POST", "/execute", {"code": "x", "language": "cobol"}, headers=KEY).status == 400
    assert daemon.api("POST", "/execute", {"code": "x"}, headers={"Idempotency-Key": "x" * 300}).status == 400
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_code_that_cannot_be_started_leaves_no_session(daemon):
    answer = daemon.api("POST", "/execute", {"code": "print(1)", "cwd": "/nowhere"}, expect=200).json
    assert answer["exit_code"] == 126 and answer["session_ended"] is True, answer
    assert daemon.api("GET", "/sessions").json["sessions"] == []

    made = daemon.session(key="stays")
    answer = daemon.api("POST", "/execute", {"code": "print(1)", "cwd": "/nowhere", "key": "stays"}, expect=200).json
    assert answer["exit_code"] == 126 and answer["session_ended"] is False, answer
    assert [entry["id"] for entry in daemon.api("GET", "/sessions").json["sessions"]] == [made]
