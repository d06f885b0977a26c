# SPDX-License-Identifier: Apache-2.0
"""Every route, tried by everybody who might.

The routes come from the daemon's own OpenAPI document; ROWS says for each who may use it. A new route without a row
fails here: add one, and think about whose data it shows.
"""
import os
import socket
import subprocess
import sys

import pytest

from conftest import Answer, UnixConnection, wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)

SESSION = "/api/v1/sessions/{session}"
EXECUTION = SESSION + "/executions/{execution}"
APPROVAL = "/api/v1/approvals/{approval}"
CONTEXT = SESSION + "/contexts/{context}"


class Row:
    """Who may use a route, and what a request for it looks like."""

    def __init__(self, who, query="", body=None, data=None, last=0, streams=False):
        # "session": its owner; "caller": everybody, about himself; "anybody"; "admin"; "delegate"; "approver"; "approval":
        # who asked may look, an approver decides; "client": who holds an id of MCP, see test_mcp_http.py; "program" in a
        # sandbox, and "url": who has a signed one, see test_storage.py and test_ports.py; "page": browsers that log in, see
        # tests/unit/web
        self.who = who
        self.query = query
        self.body = body
        self.data = data    # bytes instead of JSON
        self.last = last    # the owner tries those with a higher number later: they end things
        self.streams = streams  # an answer that does not end: only its head is read


ROWS = {
    ("POST", "/api/v1/sessions"): Row("caller", body={}),
    ("GET", "/api/v1/sessions"): Row("caller"),
    ("DELETE", "/api/v1/sessions"): Row("caller", query="?dry_run=1"),
    ("GET", SESSION): Row("session"),
    ("PATCH", SESSION): Row("session", body={"labels": {"tried": "yes"}}),
    ("DELETE", SESSION): Row("session", last=5),
    ("POST", SESSION + "/keepalive"): Row("session", body={"timeout": 600}),
    ("POST", SESSION + "/pause"): Row("session", body={}, last=2),
    ("POST", SESSION + "/resume"): Row("session", body={}, last=3),
    ("POST", SESSION + "/sandbox"): Row("session", body={}, last=4),
    ("POST", SESSION + "/sandbox/teardown"): Row("session", body={}, last=4),
    ("POST", SESSION + "/teardown-token"): Row("session", body={}),
    ("POST", "/api/v1/teardown/{token}"): Row("anybody"),
    ("GET", SESSION + "/budget"): Row("session"),
    ("PATCH", SESSION + "/budget"): Row("session", body={"cap_usd": 1}),
    ("GET", "/api/v1/budget"): Row("caller"),
    ("PATCH", "/api/v1/budget"): Row("approver", body={"cap_usd": 50}),
    ("GET", "/api/v1/approvals"): Row("caller"),
    ("GET", APPROVAL): Row("approval"),
    ("POST", APPROVAL): Row("approval", body={"decision": "deny"}, last=1),
    ("POST", SESSION + "/executions"): Row("session", body={"argv": ["true"]}),
    ("GET", SESSION + "/executions"): Row("session"),
    ("GET", EXECUTION): Row("session"),
    ("DELETE", EXECUTION): Row("session", last=1),
    ("POST", EXECUTION + "/stdin"): Row("session", data=b"x"),
    ("PUT", EXECUTION + "/stdin"): Row("session", data=b"x"),
    ("POST", EXECUTION + "/signal"): Row("session", body={"signal": "CONT"}),
    ("POST", EXECUTION + "/resize"): Row("session", body={"cols": 80, "rows": 24}),
    ("GET", EXECUTION + "/output"): Row("session", query="?stream=stdout"),
    ("GET", EXECUTION + "/stream"): Row("session", streams=True),
    ("GET", EXECUTION + "/displays/{display}"): Row("session"),
    ("GET", EXECUTION + "/wait"): Row("session", query="?output=x&timeout=0"),
    ("POST", "/api/v1/execute"): Row("caller", body={"code": "true", "language": "bash"}),
    ("GET", SESSION + "/files"): Row("session", query="?path=note"),
    ("PUT", SESSION + "/files"): Row("session", query="?path=other", data=b"x"),
    ("DELETE", SESSION + "/files"): Row("session", query="?path=note", last=1),
    ("GET", SESSION + "/files/stat"): Row("session", query="?path=note"),
    ("GET", SESSION + "/files/list"): Row("session", query="?path=."),
    ("GET", SESSION + "/files/glob"): Row("session", query="?pattern=*"),
    ("GET", SESSION + "/files/grep"): Row("session", query="?pattern=x"),
    ("POST", SESSION + "/files/mkdir"): Row("session", body={"path": "folder"}),
    ("POST", SESSION + "/files/move"): Row("session", body={"from": "note", "to": "moved"}, last=1),
    ("POST", SESSION + "/files/edit"): Row("session", body={"path": "note", "old": "x", "new": "y"}),
    ("GET", SESSION + "/files/watch"): Row("session", query="?path=.", streams=True),
    ("POST", SESSION + "/contexts"): Row("session", body={"language": "python"}),
    ("GET", SESSION + "/contexts"): Row("session"),
    ("GET", CONTEXT): Row("session"),
    ("DELETE", CONTEXT): Row("session", last=1),
    ("POST", CONTEXT + "/interrupt"): Row("session", body={}),
    ("POST", CONTEXT + "/restart"): Row("session", body={}),
    ("POST", CONTEXT + "/run"): Row("session", body={"code": "1"}),
    ("GET", "/api/v1/tools"): Row("caller"),
    ("POST", "/api/v1/tools/{tool}"): Row("caller", body={"operation": "list"}),
    ("POST", SESSION + "/tools/{tool}"): Row("session", body={"command": "true"}),
    ("POST", SESSION + "/interrupt"): Row("session", body={}),
    ("GET", SESSION + "/archive"): Row("session", query="?path=."),
    ("PUT", SESSION + "/archive"): Row("session", query="?path=unpacked", data=b"\0" * 1024),
    ("GET", SESSION + "/events"): Row("session", query="?follow=0"),
    ("GET", SESSION + "/history"): Row("session"),
    ("GET", SESSION + "/audit"): Row("admin"),
    ("GET", SESSION + "/kept"): Row("session"),
    ("GET", SESSION + "/kept/archive"): Row("session"),
    ("GET", SESSION + "/kept/file"): Row("session", query="?path=note"),
    ("GET", SESSION + "/storage"): Row("session"),
    ("GET", SESSION + "/storage/{name}"): Row("session"),
    ("DELETE", SESSION + "/storage/{name}"): Row("session", last=1),
    ("POST", SESSION + "/storage/{name}/url"): Row("session", body={}),
    ("GET", "/api/v1/shared/{id}/{name}"): Row("url"),
    ("GET", SESSION + "/ports"): Row("session"),
    ("GET", SESSION + "/ports/{port}"): Row("session"),
    ("POST", SESSION + "/ports/{port}/url"): Row("session", body={}),
    ("GET", SESSION + "/ports/{port}/{path}"): Row("session"),
    ("GET", "/api/v1/ports/{token}/{path}"): Row("url"),
    ("GET", SESSION + "/usage"): Row("session"),
    ("PUT", "/storage/{name}"): Row("program", data=b"x"),
    ("GET", "/storage/{name}"): Row("program"),
    ("GET", "/storage"): Row("program"),
    ("GET", "/api/v1/events"): Row("caller", query="?follow=0"),
    ("POST", "/api/v1/scopes"): Row("delegate", body={}),
    ("POST", "/mcp"): Row("caller", body={"jsonrpc": "2.0", "id": 1, "method": "initialize",
                                          "params": {"protocolVersion": "2025-11-25"}}),
    ("GET", "/mcp"): Row("client"),
    ("DELETE", "/mcp"): Row("client"),
    ("GET", "/"): Row("anybody"),
    ("GET", "/ui/{file}"): Row("anybody"),
    ("POST", "/ui/login"): Row("caller"),
    ("POST", "/ui/tokens"): Row("page"),
    ("POST", "/ui/exchange"): Row("page"),
    ("POST", "/ui/logout"): Row("page"),
    ("GET", "/healthz"): Row("anybody"),
    ("GET", "/readyz"): Row("anybody"),
    ("GET", "/openapi.json"): Row("anybody"),
    ("GET", "/metrics"): Row("admin"),
    ("GET", "/api/v1/keys"): Row("admin"),
    ("GET", "/api/v1/nodes"): Row("caller"),
    ("POST", "/api/v1/nodes/{node}/drain"): Row("admin"),
    ("DELETE", "/api/v1/nodes/{node}/drain"): Row("admin", last=1),
    ("GET", "/api/v1/whoami"): Row("caller"),
    ("GET", "/api/v1/capacity"): Row("caller"),
    ("GET", "/api/v1/backends"): Row("caller"),
    ("GET", "/api/v1/templates"): Row("caller"),
    ("GET", "/api/v1/flavors"): Row("caller"),
}


# With one that somebody has to approve.
FLAVORS = [{"name": "cpu-basic"}, {"name": "big", "price_per_hour": 1, "needs_approval": True}]


def routes_of(daemon):
    paths = daemon.request("GET", "/openapi.json").json["paths"]
    routes = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    missing = [route for route in routes if route not in ROWS]
    assert not missing, f"these routes have no row in {__file__}: {missing}"
    return routes


class Scene:
    """A session of ann's with an execution and a file, and everybody else."""

    def __init__(self, daemon, callers, **options):
        self.daemon = daemon
        self.callers = callers
        self.routes = routes_of(daemon)
        owner = {"headers": callers["owner"]}
        self.session = daemon.api("POST", "/sessions", {"key": "shown", "labels": {"a": "b"}, **options}, expect=201, **owner).json["id"]
        self.execution = daemon.api("POST", f"/sessions/{self.session}/executions",
                                    {"argv": ["sleep", "1000"], "background": True, "stdin": True}, expect=201, **owner).json["id"]
        wait_for(lambda: daemon.api("GET", f"/sessions/{self.session}/executions/{self.execution}", **owner).json["state"] == "running", "it runs")
        self.approval = daemon.api("POST", f"/sessions/{self.session}/sandbox", {"flavor": "big"}, expect=202, **owner).json["id"]
        daemon.request("PUT", f"/api/v1/sessions/{self.session}/files?path=note", b"x",
                       {**callers["owner"], "Content-Type": "application/octet-stream"})

    def ask(self, route, headers, session=None, approval=None):
        method, path = route
        row = ROWS[route]
        path = path.replace("{session}", session or self.session).replace("{execution}", self.execution)
        path = path.replace("{approval}", approval or self.approval)
        path = path.replace("{context}", "ctx_" + "0" * 26).replace("{display}", "0" * 64)
        path = path.replace("{tool}", "bash" if "{session}" in route[1] else "manage_session")
        path = path.replace("{name}", "stored").replace("{id}", self.session).replace("{node}", "a")
        path = path.replace("{port}", "0").replace("{path}", "x")  # no port: the session is looked for all the same
        headers = dict(headers)
        if row.streams:
            return self.ask_head(method, path + row.query, headers)
        if row.data is not None:
            headers["Content-Type"] = "application/octet-stream"
        return self.daemon.request(method, path + row.query, row.data if row.data is not None else row.body, headers)

    def ask_head(self, method, path, headers):
        """The answer without its body, unless it is a failure."""
        connection = UnixConnection(str(self.daemon.socket))
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        if response.status < 400:
            response.read = lambda: b""
        answer = Answer(response)
        connection.close()
        return answer

    def of(self, *kinds):
        return sorted((route for route in self.routes if ROWS[route].who in kinds), key=lambda route: ROWS[route].last)


def check_strangers(scene, strangers, deciding=()):
    """A stranger's answer is that for a session which does not exist, whatever the route."""
    missing = "ses_" + "0" * 26
    for route in scene.of("session"):
        for name in strangers:
            if name in deciding and route[1].endswith("/budget"):
                continue  # they see and raise the caps of everybody
            theirs = scene.ask(route, scene.callers[name])
            nowhere = scene.ask(route, scene.callers[name], missing)
            assert theirs.status == 404, (route, name, theirs.status, theirs.body[:300])
            assert theirs.body == nowhere.body.replace(missing.encode(), scene.session.encode()), (route, name)
            by_key = scene.ask(route, scene.callers[name], "key:shown")
            assert by_key.status == 404, (route, name)
    nothing = "apr_" + "0" * 26
    for route in scene.of("approval"):
        for name in strangers:
            if name in deciding:
                continue
            theirs = scene.ask(route, scene.callers[name])
            assert theirs.status == 404, (route, name, theirs.status)
            nowhere = scene.ask(route, scene.callers[name], approval=nothing)
            assert theirs.body == nowhere.body.replace(nothing.encode(), scene.approval.encode()), (route, name)
    for route in scene.of("program"):
        for name in scene.callers:
            assert scene.ask(route, scene.callers[name]).json["error"]["code"] == "route_not_found", (route, name)
    for route in scene.of("caller"):
        for name in strangers:
            if name in deciding and route[1].startswith("/api/v1/approvals"):
                continue  # they see what everybody asks for
            answer = scene.ask(route, scene.callers[name])
            assert answer.status < 400, (route, name, answer.status, answer.body[:300])
            assert scene.session.encode() not in answer.body, (route, name)
            assert scene.execution.encode() not in answer.body, (route, name)


def check_session_is_untouched(scene):
    answer = scene.ask(("GET", SESSION), scene.callers["owner"])
    assert answer.status == 200 and answer.json["state"] == "open" and answer.json["labels"] == {"a": "b"}
    assert scene.ask(("GET", EXECUTION), scene.callers["owner"]).json["state"] == "running"
    assert scene.ask(("GET", SESSION + "/files"), scene.callers["owner"]).body == b"x"


def check_may_use(scene, name, routes):
    for route in routes:
        answer = scene.ask(route, scene.callers[name])
        assert answer.status not in (401, 403), (route, name, answer.body[:300])
        assert answer.status != 404 or b"session_not_found" not in answer.body, (route, name)
        assert answer.status < 500, (route, name, answer.body[:300])


def check_refused(scene, name, status, *kinds):
    for route in scene.of(*kinds):
        answer = scene.ask(route, scene.callers[name])
        assert answer.status == status, (route, name, answer.status, answer.body[:300])


def test_with_keys_everybody_has_what_is_his(keys, keyed):
    callers = {
        "owner": bearer(keys.create("ann")["key"]),
        "other": bearer(keys.create("bob")["key"]),
        "approver": bearer(keys.create("cem", "approver")["key"]),
        "delegate": bearer(keys.create("hub", "delegate")["key"]),
        "admin": bearer(keys.create("root", "admin")["key"]),
        "nobody": {},
        "wrong": bearer("sg_" + "0" * 64),
    }
    callers["spoofer"] = {**callers["other"], "X-Sandglass-On-Behalf-Of": "ann"}
    callers["delegate for the owner"] = {**callers["delegate"], "X-Sandglass-On-Behalf-Of": "ann"}
    daemon = keyed(flavors=FLAVORS)
    scene = Scene(daemon, callers)

    check_strangers(scene, ["other", "approver", "delegate", "spoofer", "delegate for the owner"], deciding=["approver"])
    for name in ("nobody", "wrong"):
        check_refused(scene, name, 401, "session", "caller", "client", "admin", "delegate", "approver", "approval")
        check_may_use(scene, name, scene.of("anybody"))
    for name in ("owner", "other", "approver", "delegate"):
        check_refused(scene, name, 403, "admin")
    for name in ("owner", "other", "delegate"):
        check_refused(scene, name, 403, "approver")
    assert scene.ask(("GET", APPROVAL), callers["owner"]).json["state"] == "pending"
    assert scene.ask(("POST", APPROVAL), callers["owner"]).json["error"]["code"] == "approver_required"
    assert scene.ask(("PATCH", SESSION + "/budget"), callers["owner"]).status == 200  # less than before
    wider = daemon.api("PATCH", f"/sessions/{scene.session}/budget", {"cap_usd": 1000}, headers=callers["owner"])
    assert (wider.status, wider.json["error"]["code"]) == (403, "approver_required")
    for name in ("owner", "other", "admin"):
        check_refused(scene, name, 403, "delegate")
    check_session_is_untouched(scene)

    check_may_use(scene, "admin", scene.of("admin", "caller", "anybody"))
    check_may_use(scene, "admin", [route for route in scene.of("session") if route[0] == "GET"])
    check_session_is_untouched(scene)
    check_may_use(scene, "approver", scene.of("approver", "approval"))
    check_may_use(scene, "owner", scene.of("session", "caller"))
    assert scene.ask(("GET", SESSION), callers["owner"]).status in (200, 410)


def test_without_authentication_the_header_decides(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False}, "flavors": FLAVORS})
    callers = {
        "owner": {"X-Sandglass-On-Behalf-Of": "ann"},
        "other": {"X-Sandglass-On-Behalf-Of": "bob"},
        "other case": {"X-Sandglass-On-Behalf-Of": "Ann"},
        "part of it": {"X-Sandglass-On-Behalf-Of": "an"},
        "ownerless": {},
        "empty": {"X-Sandglass-On-Behalf-Of": "  "},
    }
    scene = Scene(daemon, callers)
    check_strangers(scene, ["other", "other case", "part of it", "ownerless", "empty"], deciding=["ownerless", "empty"])
    check_session_is_untouched(scene)
    check_may_use(scene, "owner", scene.of("admin", "anybody", "caller", "approver", "approval", "session"))


def test_an_owner_sees_nothing_of_an_ownerless_session(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False}, "flavors": FLAVORS})
    scene = Scene(daemon, {"owner": {}, "other": {"X-Sandglass-On-Behalf-Of": "ann"}})
    check_strangers(scene, ["other"])
    check_session_is_untouched(scene)


def test_an_administrator_means_his_own_sessions_unless_he_names_others(keys, keyed):
    admin, ann = bearer(keys.create("root", "admin")["key"]), bearer(keys.create("ann")["key"])
    daemon = keyed()
    hers = daemon.api("POST", "/sessions", {}, expect=201, headers=ann).json["id"]
    assert daemon.api("GET", "/sessions", headers=admin).json["total"] == 0
    assert daemon.api("DELETE", "/sessions", headers=admin).json["destroyed"] == []
    assert daemon.api("GET", f"/sessions/{hers}", headers=admin).json["owner"] == "ann"
    assert [row["id"] for row in daemon.api("GET", "/sessions?owner=ann", headers=admin).json["sessions"]] == [hers]
    assert [row["id"] for row in daemon.api("GET", "/sessions?owner=*", headers=admin).json["sessions"]] == [hers]
    assert daemon.api("DELETE", "/sessions?owner=ann", headers=admin).json["destroyed"] == [hers]


def test_a_delegate_has_an_owner_for_each_value_of_the_header(keys, keyed):
    hub = bearer(keys.create("hub", "delegate")["key"])
    daemon = keyed()
    for_ann, for_bob = ({**hub, "X-Sandglass-On-Behalf-Of": name} for name in ("ann", "bob"))
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=for_ann).json
    assert session["owner"] == "hub/ann" and session["on_behalf_of"] == "ann"
    assert daemon.api("GET", f"/sessions/{session['id']}", headers=for_ann).status == 200
    assert daemon.api("GET", f"/sessions/{session['id']}", headers=for_bob).status == 404
    assert daemon.api("GET", f"/sessions/{session['id']}", headers=hub).status == 404
    assert daemon.api("DELETE", "/sessions", headers=for_bob).json["destroyed"] == []
    assert daemon.api("DELETE", "/sessions", headers=for_ann).json["destroyed"] == [session["id"]]


def test_a_delegate_may_hold_a_scope_of_its_own_owners(keys, keyed):
    hub = keys.create("hub", "delegate")["key"]
    daemon = keyed()
    with socket.socket(socket.AF_UNIX) as lease:
        lease.settimeout(60)
        lease.connect(str(daemon.socket))
        lease.sendall(f"POST /api/v1/scopes HTTP/1.1\r\nHost: x\r\nX-API-Key: {hub}\r\nContent-Type: application/json\r\n"
                      f"Content-Length: 17\r\n\r\n{{\"owner\":\"run-1\"}}".encode())
        assert lease.recv(65536).startswith(b"HTTP/1.1 201")
        headers = {**bearer(hub), "X-Sandglass-On-Behalf-Of": "run-1"}
        assert daemon.api("POST", "/sessions", {}, expect=201, headers=headers).json["owner"] == "hub/run-1"
        keeps = daemon.api("POST", "/sessions", {}, expect=201, headers=bearer(hub)).json["id"]
    wait_for(lambda: daemon.api("GET", "/sessions", headers=headers).json["total"] == 0, "the scope's sessions are gone")
    assert daemon.api("GET", f"/sessions/{keeps}", headers=bearer(hub)).status == 200


def test_strange_identifiers_are_refused_alike(make_daemon):
    daemon = make_daemon(backend="none", settings={"pool": {"size": 0}})
    for identifier in ("ses_x", "ses_" + "0" * 26, "..", "%2e%2e", "a%2Fb", "x" * 5000, "ses_%F0%9F%8E%89", "key:", "key:%00",
                       "%25n%25s"):
        assert daemon.request("GET", f"/api/v1/sessions/{identifier}").status in (400, 404), identifier


def test_what_cannot_be_read_for_sure_is_refused(make_daemon):
    daemon = make_daemon(backend="none", settings={"pool": {"size": 0}})
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert daemon.request("POST", "/api/v1/sessions", "{}", headers).status == 415
    assert daemon.request("GET", "/api/v1/sessions?label=a%3D%ff").status == 400
    assert daemon.request("GET", "/api/v1/sessions").json["total"] == 0


# --- the operator of a daemon without authentication --------------------------------------------

def test_an_operator_sees_and_removes_the_sessions_of_all_owners(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    ids = {owner: daemon.api("POST", "/sessions", {"preload": False}, expect=201,
                             headers={"X-Sandglass-On-Behalf-Of": owner} if owner else {}).json["id"]
           for owner in ("", "ann", "bob", "svc/u1")}
    assert daemon.cli("ls", "-q").stdout.split() == [ids[""]]
    assert set(daemon.cli("ls", "-q", "--owner", "*").stdout.split()) == set(ids.values())
    rows = [line.split("\t") for line in daemon.cli("ls", "--owner", "*").stdout.splitlines()]
    assert {row[0]: row[-1] for row in rows} == {session: owner or "-" for owner, session in ids.items()}
    assert [line.split("\t")[-1] for line in daemon.cli("top", "--owner", "svc/u1").stdout.splitlines()] == ["svc/u1"]
    assert daemon.cli("rm", "--owner", "ann", ids["ann"]).returncode == 0
    assert daemon.cli("rm", "--owner", "*", ids["bob"]).returncode != 0
    assert daemon.cli("rm", "--owner", "bob", "--all").stdout.split() == [ids["bob"]]
    assert set(daemon.cli("ls", "-q", "--owner", "*").stdout.split()) == {ids[""], ids["svc/u1"]}
    assert daemon.cli("rm", "--owner", "*", "--all").returncode == 0
    assert daemon.api("GET", "/sessions?owner=*").json["total"] == 0


def test_others_in_the_group_of_the_socket_are_no_operators(make_daemon):
    if os.geteuid() != 0:
        pytest.skip("becomes another user, which needs root")
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    daemon.session(preload=False)
    daemon.socket.parent.chmod(0o755)
    daemon.socket.chmod(0o666)
    code = f"""
from conftest import Daemon
daemon = Daemon("{daemon.directory}")
for method, path in (("GET", "?owner=*"), ("GET", "?owner=ann"), ("DELETE", "?owner=*"), ("GET", "")):
    print(daemon.api(method, "/sessions" + path).status)
"""
    done = subprocess.run([sys.executable, "-c", code], user=65533, group=65533, extra_groups=[], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)})
    assert done.stdout.split() == ["403", "403", "403", "200"], done.stderr
