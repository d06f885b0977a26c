# SPDX-License-Identifier: Apache-2.0
"""One name for one thing: new names in requests and answers, old ones for one more release."""
import re

import pytest

DURATION = re.compile(r"timeout|remaining|lifetime|grace|interval|lease|wait|valid|longer_than|duration|uptime")
SIZE = re.compile(r"memory|disk|size|bytes")
OTHERS = {"remaining_usd", "waiting"}  # numbers with one of these words that are neither a duration nor a size
NUMBERS = {"number", "integer"}


def kinds_of(schema):
    kind = schema.get("type", [])
    return set([kind] if isinstance(kind, str) else kind) - {"null"}


def names(document):
    """(where, name, schema) of everything in requests and answers."""
    for name, schema in document["components"]["schemas"].items():
        for field, part in schema["properties"].items():
            yield name, field, part
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            for parameter in (one for one in operation["parameters"] if one["in"] == "query"):
                yield where, parameter["name"], {**parameter["schema"], "deprecated": parameter.get("deprecated", False)}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for field, part in body.get("properties", {}).items():
                yield where, field, part


def test_durations_end_in_seconds_and_sizes_in_bytes(make_daemon):
    document = make_daemon(backend="direct").request("GET", "/openapi.json").json
    wrong = [f"{where}: {name}" for where, name, schema in names(document)
             if kinds_of(schema) & NUMBERS and not schema.get("deprecated") and name not in OTHERS
             and ((DURATION.search(name) and not name.endswith("_seconds")) or (SIZE.search(name) and not name.endswith("_bytes")))]
    assert not wrong, wrong


def test_an_error_is_an_object_wherever_it_is(make_daemon):
    document = make_daemon(backend="direct").request("GET", "/openapi.json").json
    for where, name, schema in names(document):
        if name == "error":
            assert "$ref" in schema or any("$ref" in one for one in schema["anyOf"]), where


def test_every_old_name_of_the_document_is_deprecated_and_says_the_new_one(make_daemon):
    document = make_daemon(backend="direct").request("GET", "/openapi.json").json
    known = {}
    for where, name, _ in names(document):
        known.setdefault(where, set()).add(name)
    old = [(where, name, schema) for where, name, schema in names(document) if schema.get("deprecated")]
    assert {"timeout", "memory", "size", "sandbox"} <= {name for _, name, _ in old}
    for where, name, schema in old:
        if "description" in schema:
            assert schema["description"].removeprefix("the old name of ") in known[where], (where, name)


def old_names(answer):
    """What the daemon says of old names that a request has used."""
    assert ("deprecation" in answer.headers) == ("x-sandglass-deprecated" in answer.headers)
    assert re.fullmatch(r"@\d+", answer.headers.get("deprecation", "@0"))
    return answer.headers.get("x-sandglass-deprecated", "")


def test_new_names_mean_the_same_as_old_ones(make_daemon):
    daemon = make_daemon(backend="direct")
    old = daemon.api("POST", "/sessions", {"timeout": 600, "idle_timeout": "2m", "max_lifetime": 7200}, expect=201)
    assert old_names(old) == "timeout=lease_seconds, idle_timeout=idle_timeout_seconds, max_lifetime=max_lifetime_seconds"
    new = daemon.api("POST", "/sessions", {"lease_seconds": 600, "idle_timeout_seconds": "2m", "max_lifetime_seconds": 7200}, expect=201)
    assert old_names(new) == ""
    for answer in (old.json, new.json):
        assert (answer["lease_seconds"], answer["idle_timeout_seconds"], answer["max_lifetime_seconds"]) == (600, 120, 7200)
        assert (answer["timeout"], answer["idle_timeout"], answer["max_lifetime"]) == (600, 120, 7200)
        assert answer["time_remaining_seconds"] == answer["time_remaining"] and 0 < answer["idle_remaining_seconds"] <= 120
    path = f"/sessions/{new.json['id']}"
    assert old_names(daemon.api("POST", path + "/keepalive", {"timeout": 900}, expect=200)) == "timeout=lease_seconds"
    assert daemon.api("POST", path + "/keepalive", {"lease_seconds": 1200}, expect=200).json["lease_remaining_seconds"] > 900
    assert daemon.api("PATCH", path, {"idle_timeout_seconds": 60}, expect=200).json["idle_timeout_seconds"] == 60
    ended = daemon.api("DELETE", path, expect=200).json
    assert ended["lease_seconds"] == ended["timeout"] and ended["time_remaining_seconds"] is None


def test_old_names_of_programs_and_waiting(make_daemon):
    daemon = make_daemon(backend="direct")
    path = f"/sessions/{daemon.session()}"
    old = daemon.api("POST", path + "/executions", {"argv": ["true"], "timeout": 5}, expect=201)
    new = daemon.api("POST", path + "/executions", {"argv": ["true"], "timeout_seconds": 5}, expect=201)
    assert (old_names(old), old_names(new)) == ("timeout=timeout_seconds", "")
    assert old.json["timeout_seconds"] == new.json["timeout_seconds"] == new.json["timeout"] == 5
    one = f"{path}/executions/{new.json['id']}"
    assert old_names(daemon.api("GET", one + "?wait=1", expect=200)) == "wait=wait_seconds"
    assert old_names(daemon.api("GET", one + "?wait_seconds=1", expect=200)) == ""
    run = daemon.api("POST", "/execute", {"code": "open('a', 'w').write('xyz')", "timeout": 30, "idle_timeout": 60, "lease_seconds": 600}, expect=200)
    assert old_names(run) == "timeout=timeout_seconds, idle_timeout=idle_timeout_seconds"
    assert run.json["session_files"][0]["size_bytes"] == run.json["session_files"][0]["size"] == 3
    assert run.json["session_time_remaining_seconds"] == run.json["session_ttl_remaining"] <= 60
    assert daemon.api("GET", f"/sessions/{run.json['session_id']}", expect=200).json["lease_seconds"] == 600
    files = f"/sessions/{run.json['session_id']}/files"
    assert old_names(daemon.api("GET", files + "/grep?pattern=x.z&fixed=1", expect=200)) == "fixed=literal"
    assert daemon.api("GET", files + "/grep?pattern=x.z&literal=1", expect=200).json["matches"] == 0
    assert daemon.api("GET", files + "/grep?pattern=x.z", expect=200).json["matches"] == 1
    timed_out = daemon.api("POST", "/execute", {"code": "import time; time.sleep(60)", "timeout_seconds": 0.5}, expect=200).json
    assert timed_out["error"]["code"] == "execution_timeout" and "timed out" in timed_out["error"]["message"]


def test_urls_are_valid_for_seconds(make_daemon):
    daemon = make_daemon(backend="direct")
    path = f"/sessions/{daemon.session()}"
    old = daemon.api("POST", path + "/teardown-token", {"valid_for": 60, "grace": 5}, expect=201)
    assert old_names(old) == "grace=grace_seconds, valid_for=valid_seconds" and old.json["grace_seconds"] == old.json["grace"] == 5
    assert old_names(daemon.api("POST", path + "/teardown-token", {"valid_seconds": 60, "grace_seconds": 5}, expect=201)) == ""
    assert old_names(daemon.api("POST", path + "/ports/8000/url", {"expires": 60}, expect=201)) == "expires=valid_seconds"


@pytest.mark.parametrize("body, word", [
    ({"timeout": -1}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"memory": "1k"}, "memory"),
    ({"memory_bytes": "1k"}, "memory_bytes"),
    ({"lease_seconds": -1}, "lease_seconds"),
    ({"memory": "64m", "memory_bytes": "64m"}, "two names"),
    ({"session": "x"}, 'unknown field "session"'),
    ({"memroy": "1g"}, "memroy"),
])
def test_an_error_names_the_field_that_was_sent(make_daemon, body, word):
    daemon = make_daemon(backend="direct")
    error = daemon.api("POST", "/sessions", body, expect=400).json["error"]
    assert word in error["message"], error
    assert "lease_seconds" in body or "lease_seconds" not in error["message"]
    assert daemon.api("GET", "/sessions", expect=200).json["total"] == 0


def test_two_names_of_a_parameter_are_refused(make_daemon):
    daemon = make_daemon(backend="direct")
    path = f"/sessions/{daemon.session()}/executions/exe_x"
    error = daemon.api("GET", path + "?wait=1&wait_seconds=1", expect=400).json["error"]
    assert error["code"] == "invalid_parameter" and "wait_seconds" in error["message"]


def test_events_and_history_have_the_names_of_answers(daemon):
    session = daemon.session()
    path = f"/sessions/{session}"
    context = daemon.api("POST", path + "/contexts", {}, expect=201).json["id"]
    run = daemon.api("POST", f"{path}/contexts/{context}/run", {"code": "6 * 7", "timeout_seconds": 30}, expect=200).json
    entries = daemon.api("GET", path + "/history", expect=200).json["entries"]
    ran = next(entry["data"] for entry in entries if entry["type"] == "context.ran")
    assert (ran["number"], ran["results"]) == (run["number"], run["results"])
    ready = next(entry["data"] for entry in entries if entry["type"] == "sandbox.ready")
    assert ready["sandbox_id"] == ready["sandbox"] and ready["sandbox_id"]
    assert daemon.api("GET", path + "/budget", expect=200).json["session_id"] == session
    assert daemon.api("GET", "/approvals?session_id=" + session, expect=200).json["approvals"] == []


def test_an_idempotency_key_makes_a_post_repeatable(daemon):
    key = {"Idempotency-Key": "once"}
    session = daemon.api("POST", "/sessions", {}, headers=key, expect=201).json["id"]
    assert daemon.api("POST", "/sessions", {}, headers=key, expect=200).json["id"] == session
    assert daemon.api("POST", "/sessions", {"labels": {"a": "b"}}, headers=key, expect=409).json["error"]["code"] == "idempotency_key_reused"
    path = f"/sessions/{session}"
    program = {"command": "echo x >> made; cat made"}
    first = daemon.api("POST", path + "/executions", program, headers=key, expect=201).json
    again = daemon.api("POST", path + "/executions", program, headers=key, expect=200).json
    assert (again["id"], again["stdout"], again["key"]) == (first["id"], "x\n", "once")
    assert daemon.api("POST", path + "/executions", {**program, "key": "once"}, expect=200).json["id"] == first["id"]
    context = daemon.api("POST", path + "/contexts", {"language": "bash", "env": {"A": "b"}}, headers=key, expect=201).json
    assert daemon.api("POST", path + "/contexts", {"language": "bash"}, headers=key, expect=200).json["id"] == context["id"]
    assert daemon.api("POST", f"{path}/contexts/{context['id']}/run", {"code": "echo $A"}, expect=200).json["stdout"] == "b\n"
    assert daemon.api("POST", path + "/contexts", {"language": "bash"}, expect=201).json["id"] != context["id"]
    for route, body in (("/executions", program), ("/contexts", {})):
        for wrong in ("", "x" * 257):
            refused = daemon.api("POST", path + route, body, headers={"Idempotency-Key": wrong}, expect=400).json["error"]
            assert refused["code"] == "invalid_header", (route, wrong[:5])
    assert "same" in daemon.api("POST", path + "/executions", {**program, "key": "other"}, headers=key, expect=400).json["error"]["message"]
