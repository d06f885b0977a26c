# SPDX-License-Identifier: Apache-2.0
"""Variables given as secrets: programs have them, and nobody else is shown their values."""
import contextlib
import json
import os
import sqlite3
import urllib.parse

import pytest

import mcp_client
from conftest import wait_for

VALUE = "hunter22-of-the-session"
OWN = "token77-of-one-run"


@pytest.fixture
def secretive(make_daemon):
    """A daemon that writes down all it may."""
    return make_daemon(backend="direct", settings={"pool": {"size": 0}, "log": {"level": "debug"},
                                                   "audit": {"code": True, "output": True}})


def run(daemon, session, command, **options):
    return daemon.execute(session, ["sh", "-c", command], **options)


def everything_kept(daemon):
    """All bytes in the state directory but those of the workspaces and of programs' own output."""
    kept = b""
    for folder, folders, names in os.walk(daemon.state):
        folders[:] = [name for name in folders if name not in ("sandboxes", "output")]
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        kept += file.read()
    return kept + daemon.log().encode()


def test_programs_have_them_and_nobody_is_shown_their_values(secretive):
    daemon = secretive
    made = daemon.api("POST", "/sessions", {"env": {"PLAIN": "1"}, "secrets": {"API": VALUE}}, expect=201)
    session = made.json["id"]
    assert made.json["secrets"] == ["API"]
    done = run(daemon, session, 'echo "$PLAIN $API $OWN"', secrets={"OWN": OWN})
    assert done["stdout"] == f"1 {VALUE} {OWN}\n"
    assert done["request"]["secrets"] == ["OWN"]
    assert run(daemon, session, f"echo {VALUE}; test -z \"$OWN\"")["request"]["argv"][2] == 'echo [redacted]; test -z "$OWN"'
    execution = done["id"]

    code = daemon.api("POST", "/execute", {"code": f"echo {VALUE} $OWN", "language": "bash", "session_id": session,
                                           "secrets": {"OWN": OWN}}, expect=200)
    assert code.json["stdout"] == f"{VALUE} {OWN}\n"

    looks = [daemon.api("GET", path, expect=200).body.decode() for path in
             (f"/sessions/{session}", "/sessions", f"/sessions/{session}/executions", "/capacity")]
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    looks.append(daemon.api("GET", "/sessions?state=ended", expect=200).body.decode())
    assert json.loads(looks[-1])["sessions"][0]["secrets"] == ["API"]
    shown = json.loads(looks[2])["executions"]
    assert any(row["id"] == execution for row in shown)
    for look in looks:
        assert VALUE not in look.replace(f'"stdout":"1 {VALUE}', "") and OWN not in look

    wait_for(lambda: b"session.ended" in (daemon.state / "audit.log").read_bytes(), "the end is in the audit log")
    kept = everything_kept(daemon)
    assert b"API" in kept and b"[redacted]" in kept
    assert VALUE.encode() not in kept and OWN.encode() not in kept
    assert (daemon.state / "secret.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", [VALUE, "of two words/and + more"])
def test_they_are_masked_where_a_request_names_them(secretive, value):
    daemon = secretive
    session = daemon.api("POST", "/sessions", {"secrets": {"API": value}}, expect=201).json["id"]
    path = f"/sessions/{session}/executions"
    for body in ({"argv": ["/" + value]}, {"argv": ["true"], "cwd": "/" + value}, {"argv": ["true"], "user": value},
                 {"argv": ["/" + OWN], "secrets": {"OWN": OWN}}):
        answer = daemon.api("POST", path, body)
        assert value not in answer.body.decode() and OWN not in answer.body.decode(), body
    assert value not in daemon.api("GET", path, expect=200).body.decode()

    files = f"/sessions/{session}/files?path="
    for name in {urllib.parse.quote(value, safe=""), urllib.parse.quote(value), urllib.parse.quote_plus(value)}:
        daemon.api("PUT", files + name, b"x")
        daemon.api("DELETE", files + name)
        daemon.api("POST", f"/sessions/{session}/executions?nothing={name}", {}, expect=400)
    daemon.api("DELETE", f"/sessions/{session}?why=" + urllib.parse.quote(value), expect=400)
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    wait_for(lambda: b"session.ended" in (daemon.state / "audit.log").read_bytes(), "the end is in the audit log")
    kept = urllib.parse.unquote_plus(everything_kept(daemon).decode("latin-1"))
    assert "nothing=[redacted]" in kept and value.replace("+", " ") not in kept and value not in kept and OWN not in kept


def test_names_that_a_caller_made_up_are_masked_in_the_history(secretive):
    made = secretive.api("POST", "/sessions", {"secrets": {"API": VALUE, "WORD": "open"}, "key": f"k-{VALUE}", "labels": {"l": f"x{VALUE}", VALUE: "y"}},
                         expect=201).json
    done = secretive.api("POST", f"/sessions/{made['id']}/executions",
                         {"argv": ["true"], "key": f"run-{OWN}", "env": {VALUE.replace("-", "_"): "1"}, "secrets": {"OWN": OWN, "NAME": VALUE.replace("-", "_")}},
                         expect=201)
    assert done.json["key"] == f"run-{OWN}"
    for state in ("open", "ended"):
        for form in ("json", "jsonl"):
            history = secretive.api("GET", f"/sessions/{made['id']}/history?format={form}", expect=200).body.decode()
            assert [value for value in (VALUE, OWN, VALUE.replace("-", "_")) if value in history] == []
            assert "run-[redacted]" in history
        session = secretive.api("GET", f"/sessions/{made['id']}/history", expect=200).json["session"]
        assert (session["key"], session["labels"]) == ("k-[redacted]", {"l": "x[redacted]", "[redacted]": "y"})
        assert session["state"] == state, "a word of ours is not a secret"
        secretive.api("DELETE", f"/sessions/{made['id']}", expect=200)


def by_key(daemon, session, value):
    daemon.api("POST", "/execute", {"code": f"echo {value}", "language": "bash", "key": "mine"}, expect=200)


def by_key_of_a_tool(daemon, session, value):
    mcp_client.Http(daemon).ask("tools/call", {"name": "bash", "arguments": {"command": f"echo {value}", "key": "mine"}})


def in_the_session_of_a_client(daemon, session, value):
    client = mcp_client.Http(daemon)
    client.ask("tools/call", {"name": "bash", "arguments": {"command": "true"}})
    own = next(found["id"] for found in daemon.api("GET", "/sessions").json["sessions"] if found["id"] != session)
    daemon.api("PATCH", f"/sessions/{own}", {"secrets": {"API": value}}, expect=200)
    client.ask("tools/call", {"name": "bash", "arguments": {"command": f"echo {value}"}})


def opened_again(daemon, session, value):
    daemon.api("POST", "/sessions", {"key": "mine", "labels": {"of": value}}, expect=200)


def of_an_e2b_client(daemon, session, value):
    made = daemon.request("POST", "/v2/sandboxes", {"templateID": "base"}).json
    own = next(found["id"] for found in daemon.api("GET", "/sessions").json["sessions"] if found["id"] != session)
    daemon.api("PATCH", f"/sessions/{own}", {"secrets": {"API": value}}, expect=200)
    daemon.request("POST", f"/files?path={value}", b"x", headers={
        "E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": made["envdAccessToken"],
        "Content-Type": "application/octet-stream"})


def of_an_ended_session(daemon, session, value):
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    daemon.api("POST", f"/sessions/{session}/executions", {"command": f"echo {value}", "cwd": f"/{value}"}, expect=410)
    daemon.api("PUT", f"/sessions/{session}/files?path=/{value}", b"x", expect=410)


def in_the_place_of_a_session(daemon, session, value):
    daemon.api("POST", f"/sessions/{value}/executions", {"command": "true"}, expect=404)


@pytest.mark.parametrize("ask", [by_key, by_key_of_a_tool, in_the_session_of_a_client, opened_again, of_an_e2b_client, of_an_ended_session,
                                 in_the_place_of_a_session])
def test_the_audit_log_masks_them_however_a_request_names_its_session(make_daemon, ask):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "audit": {"code": True}, "e2b": {"enabled": True}})
    session = daemon.api("POST", "/sessions", {"key": "mine", "secrets": {"API": VALUE}}, expect=201).json["id"]
    ask(daemon, session, VALUE)
    daemon.session(labels={"is": "last"})
    wait_for(lambda: any(line.get("body", {}).get("labels") == {"is": "last"} for line in daemon.audit_lines()), "all of it is in the audit log")
    assert VALUE not in json.dumps(daemon.audit_lines())


def test_they_survive_the_daemon_and_not_its_key(secretive):
    daemon = secretive
    session = daemon.session(secrets={"API": VALUE})
    run(daemon, session, "true")
    daemon.kill()
    daemon.start()
    assert run(daemon, session, "echo $API")["stdout"] == VALUE + "\n"

    daemon.kill()
    (daemon.state / "secret.key").unlink()
    daemon.start()
    refused = daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo $API"}, expect=409).json["error"]
    assert refused["code"] == "secrets_lost" and "PATCH" in refused["hint"]
    assert VALUE not in daemon.log()
    assert daemon.api("PATCH", f"/sessions/{session}", {"secrets": {"API": OWN}}, expect=200).json["secrets"] == ["API"]
    assert run(daemon, session, "echo $API")["stdout"] == OWN + "\n"
    assert daemon.api("PATCH", f"/sessions/{session}", {"secrets": {}}, expect=200).json["secrets"] == []
    assert run(daemon, session, "echo ${API-none}")["stdout"] == "none\n"


def test_the_store_holds_them_sealed(secretive):
    session = secretive.session(secrets={"API": VALUE})
    secretive.stop()
    with sqlite3.connect(next(secretive.state.glob("*.db"))) as store:
        spec = json.loads(store.execute("select spec_json from sessions where id = ?", [session]).fetchone()[0])
    assert spec["secrets"] == ["API"] and VALUE not in json.dumps(spec) and len(spec["sealed"]) > 40


@pytest.mark.parametrize("field, code", [
    ({"secrets": {"A=B": VALUE}}, "invalid_field"),
    ({"secrets": {"": VALUE}}, "invalid_field"),
    ({"secrets": {"A": 5}}, "invalid_field"),
    ({"secrets": [VALUE]}, "invalid_field"),
    ({"secrets": {"A": VALUE * 10000}}, None),
])
def test_bad_ones_are_refused_without_being_told(secretive, field, code):
    for method, path in (("POST", "/sessions"), ("POST", "/execute")):
        answer = secretive.api(method, path, {**field, **({"code": "1"} if path == "/execute" else {})})
        assert answer.status in (400, 413), (path, answer.body)
        assert VALUE not in answer.body.decode()
    broken = secretive.request("POST", "/api/v1/sessions", '{"secrets":{"A":"x" "%s"}}' % VALUE,
                               headers={"Content-Type": "application/json"})
    assert broken.status == 400 and VALUE not in broken.body.decode()


def test_the_cli_takes_them_from_its_environment_and_from_files(secretive, work):
    path = work / "token"
    path.write_text(OWN + "\n")
    environment = {"API": VALUE}
    made = secretive.cli("session", "create", "--json", "--secret", "API", "--secret-file", f"TOKEN={path}", environment=environment)
    session = json.loads(made.stdout)["id"]
    done = secretive.cli("exec", "--secret", "MORE=more-of-it", session, "--", "sh", "-c", "echo $API $TOKEN $MORE")
    assert (done.returncode, done.stdout) == (0, f"{VALUE} {OWN} more-of-it\n")
    done = secretive.cli("execute", "--session", session, "--language", "bash", "--secret", "API=other-value", "--code", "echo $API")
    assert done.stdout == "other-value\n"
    assert secretive.cli("run", "--secret", "API", "--", "sh", "-c", "echo $API", environment=environment).stdout == VALUE + "\n"
    assert secretive.cli("exec", "--secret", "NO_SUCH_THING", session, "--", "true").returncode == 125
    assert secretive.cli("exec", "--secret-file", f"A={work}/missing", session, "--", "true").returncode == 125
