# SPDX-License-Identifier: Apache-2.0
"""What an operator decides by settings: rules for commands, one-shot runs only, the interpreter, slots above the cap."""
import os

import pytest

from conftest import wait_for
from toolbox import call, ok, text_of

RULES = [
    {"name": "harmless", "pattern": "^rm -rf /tmp/mine$", "verdict": "pass"},
    {"name": "no-wipe", "pattern": r"rm +-[a-z]*r[a-z]*f? +/", "message": "use a safer way"},
    {"name": "installs", "pattern": r"\bpip3? install\b", "verdict": "warn", "message": "there is no network"},
]


@pytest.fixture
def ruled(make_daemon):
    return make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False}, "exec": {"rules": RULES}})


def audited(daemon, **wanted):
    def find():
        return next((line for line in daemon.audit_lines() if all(line.get(k) == v for k, v in wanted.items())), None)
    return wait_for(find, f"an audited {wanted}")


def assert_blocked(answer):
    assert answer.status == 403, answer.body
    error = answer.json["error"]
    assert (error["code"], error["retryable"]) == ("command_blocked", False)
    assert "rule no-wipe: use a safer way" in error["message"] and error["hint"]


def test_a_blocked_command_is_refused_by_the_name_of_its_rule_and_audited(ruled):
    session = ruled.session()
    where = f"/sessions/{session}/executions"
    for body in ({"command": "cd /; rm -rf /home"}, {"argv": ["rm", "-rf", "/"]}, {"argv": ["sh", "-c", "rm -fr /x"]},
                 {"code": "import os\n\nos.system('rm -rf /')\n", "language": "python"}, {"command": "x" * 200000 + "; rm -rf /"}):
        assert_blocked(ruled.api("POST", where, body))
    assert ruled.api("GET", where).json["executions"] == []
    assert audited(ruled, type="command.blocked")["data"] == {"rule": "no-wipe", "message": "use a safer way", "session_id": session}
    context = ruled.api("POST", f"/sessions/{session}/contexts", {"language": "bash"}, expect=201).json["id"]
    assert_blocked(ruled.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": "rm -rf /"}))
    assert "blocked by rule no-wipe" in text_of(call(ruled, session, "bash", command="rm -rf /"))
    told = ruled.cli("exec", session, "--", "rm", "-rf", "/")
    assert told.returncode == 125 and "rule no-wipe" in told.stderr


def test_a_blocked_one_shot_makes_no_session(ruled):
    assert_blocked(ruled.api("POST", "/execute", {"code": "rm -rf /", "language": "bash"}))
    assert ruled.api("GET", "/sessions").json["total"] == 0
    assert audited(ruled, type="command.blocked")["data"]["session_id"] is None


def test_the_first_rule_that_matches_decides_and_a_warning_comes_with_the_result(ruled):
    session = ruled.session()
    assert ruled.execute(session, command="rm -rf /tmp/mine")["warning"] is None
    result = ruled.execute(session, command="echo pip install x")
    assert (result["exit_code"], result["warning"]) == (0, "rule installs: there is no network")
    assert ruled.api("GET", f"/sessions/{session}/executions/{result['id']}").json["warning"] == result["warning"]
    assert audited(ruled, type="command.warned")["data"]["rule"] == "installs"
    assert ok(ruled, session, "bash", command="echo pip install x").startswith("[warning] rule installs")
    assert "warning: rule installs" in ruled.cli("exec", session, "--", "echo", "pip", "install").stderr
    answer = ruled.api("POST", "/execute", {"code": "print('pip install')", "session_id": session}, expect=200).json
    assert answer["warning"] == result["warning"]


def test_a_wrong_pattern_stops_the_start_by_the_name_of_its_rule(make_daemon):
    daemon = make_daemon(backend="direct", settings={"exec": {"rules": [{"name": "broken", "pattern": "("}]}}, start=False)
    with pytest.raises(BaseException):
        daemon.start()
    assert 'exec.rules: invalid pattern of "broken"' in daemon.log()


# --- one-shot only ---


def test_without_sessions_every_run_is_one_shot(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"sessions": {"enabled": False}})
    answer = daemon.api("POST", "/execute", {"code": "print(6 * 7)"}, expect=200).json
    assert answer["stdout"] == "42\n" and answer["session_ended"] is True
    assert daemon.api("GET", "/sessions").json["total"] == 0
    for method, path, body in (("POST", "/sessions", {}), ("POST", "/execute", {"code": "1", "key": "mine"}),
                               ("POST", "/execute", {"code": "1", "session_id": answer["session_id"]})):
        refused = daemon.api(method, path, body)
        assert (refused.status, refused.json["error"]["code"]) == (403, "sessions_disabled"), refused.body
        assert "sessions.enabled" in refused.json["error"]["message"]
    assert daemon.cli("execute", "--code", "print(1)").stdout == "1\n"
    refused = daemon.cli("session", "create")
    assert refused.returncode != 0 and "sessions.enabled" in refused.stderr


# --- the interpreter ---


def test_the_interpreter_of_the_settings_runs_python(make_daemon, backend):
    path = os.path.realpath("/usr/bin/python3")
    daemon = make_daemon(backend=backend, settings={"python": {"path": path}})
    session = daemon.session()
    for _ in range(2):  # the second may be a warm one
        assert daemon.execute(session, code="import sys; print(sys.executable)", language="python")["stdout"].strip() == path
    context = daemon.api("POST", f"/sessions/{session}/contexts", {"language": "python"}, expect=201).json["id"]
    answer = daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": "import sys; print(sys.executable)"}, expect=200).json
    assert answer["stdout"].strip() == path


@pytest.mark.parametrize("kind", ["missing", "a directory", "not executable", "not shown"])
def test_an_interpreter_that_sandboxes_do_not_have_stops_the_start(make_daemon, work, backend, kind):
    path = {"missing": "/usr/bin/no-such-python", "a directory": "/usr/bin", "not executable": "/etc/passwd"}.get(kind, str(work / "python"))
    if kind == "not shown":
        (work / "python").write_text("#!/bin/sh\n")
        (work / "python").chmod(0o755)
    daemon = make_daemon(backend=backend, settings={"python": {"path": path}}, start=False)
    with pytest.raises(BaseException):
        daemon.start()
    assert f"python.path: sandboxes of the template \"host\" have no program {path}" in daemon.log()


# --- burst ---


def test_burst_gives_slots_above_the_cap_when_nothing_can_be_evicted(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "capacity": {"max_sandboxes": 1, "burst": 1, "overflow": "reject"}})
    sessions = [daemon.session(preload=False) for _ in range(3)]
    for session in sessions[:2]:
        daemon.execute(session, ["sleep", "60"], background=True)
    refused = daemon.api("POST", f"/sessions/{sessions[2]}/executions", {"argv": ["true"]})
    assert (refused.status, refused.json["error"]["code"]) == (429, "capacity") and "2 of 2" in refused.json["error"]["message"]
    capacity = daemon.api("GET", "/capacity").json
    assert (capacity["max_sandboxes"], capacity["burst"], capacity["sandboxes"]) == (1, 1, 2)
    daemon.api("DELETE", f"/sessions/{sessions[0]}", expect=200)
    assert daemon.execute(sessions[2], ["true"])["exit_code"] == 0
