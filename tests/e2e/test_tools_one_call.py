# SPDX-License-Identifier: Apache-2.0
"""execute_python and manage_session, with the texts that their users know."""
import json
import re
import shutil
import threading

from conftest import wait_for
from toolbox import text_of


def call(daemon, name, headers=None, **arguments):
    return daemon.api("POST", f"/tools/{name}", arguments, expect=200, headers=headers or {}).json


def execute(daemon, code, **arguments):
    return call(daemon, "execute_python", code=code, **arguments)


def test_the_parts_of_a_result(daemon):
    result = execute(daemon, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a.csv', 'w').write('x' * 1500)")
    text = text_of(result)
    session = result["structured"]["session_id"]
    lines = text.split("\n")
    assert lines[:5] == ["[stdout]", "out", "[stderr]", "err", "[files] a.csv"]
    assert re.fullmatch(r"\[session\] id=" + session + r" ttl=[0-9hms.]+ → REUSE THIS session_id IN ALL SUBSEQUENT CALLS "
                        r"workspace=\[a\.csv\(1\.5 KB\)\]", lines[5])
    assert re.fullmatch(r"\[exit=0 duration=\d+\.\d\ds\]", lines[6]) and lines[7].startswith("TIP: ")
    link = [content for content in result["content"] if content["type"] == "file"]
    assert [(item["name"], item["mime_type"], item["size"]) for item in link] == [("a.csv", "text/csv", 1500)]
    assert not result["is_error"]


def test_files_stay_and_variables_do_not(daemon):
    session = execute(daemon, "x = 1; open('kept', 'w').write('here')")["structured"]["session_id"]
    result = execute(daemon, "print(open('kept').read(), 'x' in globals())", session_id=session)
    assert text_of(result).startswith("[stdout]\nhere False\n") and f"[session] id={session}" in text_of(result)
    assert "TIP" not in text_of(result)


def test_empty_parts_are_left_out_and_failures_are_told(daemon):
    text = text_of(execute(daemon, "pass"))
    assert text.startswith("[session] ")
    result = execute(daemon, "raise SystemExit(3)")
    assert result["is_error"] and "[exit=3 " in text_of(result)
    result = execute(daemon, "print(1)", session_id="ses_unknown")
    assert result["is_error"] and text_of(result).startswith("ERROR: execution error: ")
    session = execute(daemon, "pass")["structured"]["session_id"]
    result = execute(daemon, "import time; print('so far', flush=True); time.sleep(60)", session_id=session, timeout=8)
    assert result["is_error"] and "[stdout]\nso far" in text_of(result) and "timed out after 8s" in text_of(result)


def test_an_interrupt_ends_it_and_keeps_the_session(daemon):
    session = execute(daemon, "pass")["structured"]["session_id"]
    results = []
    thread = threading.Thread(target=lambda: results.append(execute(daemon, "open('begun', 'w'); import time; time.sleep(60)",
                                                                    session_id=session)))
    thread.start()
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/files/stat?path=begun").status == 200, "it runs")
    assert daemon.api("POST", f"/sessions/{session}/interrupt", {}, expect=200).json == {"interrupted": 1}
    thread.join(30)
    assert results[0]["is_error"] and "interrupted by the user" in text_of(results[0])
    assert "begun" in text_of(execute(daemon, "import os; print(os.listdir())", session_id=session))


def test_sessions_are_listed_created_and_destroyed(daemon):
    ann, bob = ({"X-Sandglass-On-Behalf-Of": name} for name in ("ann", "bob"))
    made = json.loads(text_of(call(daemon, "manage_session", ann, operation="create")))
    assert set(made) == {"session_id", "ttl_remaining", "message"}
    listed = json.loads(text_of(call(daemon, "manage_session", ann, operation="list")))
    assert [item["session_id"] for item in listed["sessions"]] == [made["session_id"]]
    assert listed["total"] == 1 and listed["max_sessions"] > 1 and listed["sessions"][0]["ttl_remaining"]
    assert json.loads(text_of(call(daemon, "manage_session", bob, operation="list")))["total"] == 0
    result = call(daemon, "manage_session", bob, operation="destroy", session_id=made["session_id"])
    assert result["is_error"] and "not found" in text_of(result)
    result = call(daemon, "manage_session", ann, operation="destroy")
    assert "session_id is required for destroy operation" in text_of(result)
    result = call(daemon, "manage_session", ann, operation="destroy", session_id=made["session_id"])
    assert text_of(result) == f"Session {made['session_id']} has been destroyed."
    assert daemon.api("POST", "/tools/manage_session", {"operation": "explode"}, expect=400).json["error"]["code"] == "invalid_field"
    assert daemon.api("POST", "/tools/bash", {"command": "ls"}, expect=400).json["error"]["code"] == "session_needed"


def test_a_session_of_ones_own_is_used_by_its_route(daemon):
    session = daemon.session()
    result = daemon.api("POST", f"/sessions/{session}/tools/execute_python", {"code": "print(7)"}, expect=200).json
    assert result["structured"]["session_id"] == session


def test_output_that_cannot_be_kept_is_told(daemon):
    session = execute(daemon, "pass")["structured"]["session_id"]
    spool = daemon.state / "output"
    if spool.exists():
        shutil.rmtree(spool)
    spool.write_text("no directory")
    result = execute(daemon, "print(1)", session_id=session)
    assert "[exit=0" in text_of(result) and "[notice] The output is incomplete: create the spool" in text_of(result), result
    assert result["is_error"]
