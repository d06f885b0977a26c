# SPDX-License-Identifier: Apache-2.0
"""Any node of a cluster serves any request: it finds the home of a session and relays to it."""
import concurrent.futures
import http.client
import json
import os
import select
import signal
import socket
import time
import urllib.parse

import pytest

import issuer
from cluster import cluster, needs_redis, pair, redis  # noqa: F401
from conftest import UnixConnection, our_processes, wait_for
from key_file import Keys, bearer
from mcp_client import META, STATELESS, Http, Stdio, events, message, text_of
from test_e2b_envd import Box
from test_owners import FLAVORS, Scene, check_may_use, check_refused, check_session_is_untouched, check_strangers
from test_ports import WebSocket, connect, receive_all, serve, tunnel
from test_storage import store

pytestmark = needs_redis


def lines_of(daemon, path, headers=None):
    """An open answer of Server-Sent Events: (connection, response)."""
    connection = UnixConnection(str(daemon.socket))
    connection.request("GET", "/api/v1" + path, headers=headers or {})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return connection, response


def next_event(response, kind):
    """The next event of this kind: its fields. Comments keep the connection alive, and do not count."""
    fields = {}
    deadline = time.monotonic() + 60
    while True:
        line = response.readline().decode()
        assert line, "the stream has ended"
        assert time.monotonic() < deadline, f"no event {kind} came"
        if line == "\n":
            if fields.get("event") == kind:
                return fields
            fields = {}
        elif not line.startswith(":"):
            name, value = line.rstrip("\n").split(": ", 1)
            fields[name] = value


# --- finding the home ----------------------------------------------------------------------------


def test_a_session_is_used_from_another_node(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a", key="k")
    assert b.execute(session, command="echo over > file; cat file")["stdout"] == "over\n"
    assert b.execute("key:k", command="cat file")["stdout"] == "over\n"
    seen = b.api("GET", f"/sessions/{session}", expect=200)
    assert seen.json["id"] == session and seen.headers["x-request-id"].startswith("req_")
    assert seen.headers["cache-control"] == "no-store"
    assert b.api("PATCH", f"/sessions/{session}", {"labels": {"x": "y"}}, expect=200).json["labels"] == {"x": "y"}
    assert b.api("GET", f"/sessions/{session}/files?path=nothing").status == 404
    assert b.api("DELETE", f"/sessions/{session}", expect=200).json["state"] == "ended"
    assert a.ended(session) and b.ended(session)


def test_output_of_an_ended_session_comes_from_its_last_home(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    execution = a.execute(session, command="seq 1000")["id"]
    a.api("DELETE", f"/sessions/{session}", expect=200)
    answer = b.api("GET", f"/sessions/{session}/executions/{execution}/output?stream=stdout", expect=200)
    assert answer.body.decode().splitlines() == [str(number) for number in range(1, 1001)]
    assert b.api("POST", f"/sessions/{session}/executions", {"command": "true"}).status == 410


def test_large_files_go_both_ways(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    content = os.urandom(3 << 20) * 4
    answer = b.api("PUT", f"/sessions/{session}/files?path=big", content, headers={"Content-Type": "application/octet-stream"}, timeout=60)
    assert answer.status in (200, 201, 204), answer.body
    assert b.api("GET", f"/sessions/{session}/files?path=big", expect=200, timeout=60).body == content
    part = b.api("GET", f"/sessions/{session}/files?path=big", headers={"Range": "bytes=5-14"})
    assert part.status == 206 and part.body == content[5:15] and part.headers["content-length"] == "10"


def test_a_stream_of_output_comes_as_it_is_written_and_ends_with_its_client(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    execution = a.execute(session, command="echo one; read line; echo $line; sleep 1000", background=True, stdin=True)["id"]
    connection = UnixConnection(str(b.socket))
    connection.request("GET", f"/api/v1/sessions/{session}/executions/{execution}/output?stream=stdout&follow=1")
    response = connection.getresponse()
    assert response.read(4) == b"one\n"
    assert b.api("POST", f"/sessions/{session}/executions/{execution}/stdin?eof=1", b"more\n",
                 headers={"Content-Type": "application/octet-stream"}).status in (200, 202, 204)
    assert response.read(5) == b"more\n"
    connection.close()
    assert b.api("DELETE", f"/sessions/{session}/executions/{execution}").status == 200


def test_a_terminal_is_attached_through_another_node(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    done = b.cli("exec", "-i", session, "--", "cat", stdin="through\n")
    assert (done.returncode, done.stdout) == (0, "through\n"), done.stderr
    done = b.cli("exec", session, "--", "sh", "-c", "exit 7")
    assert done.returncode == 7


def test_a_stranger_learns_nothing(cluster, keys_for_all):
    a, b = cluster["a"], cluster["b"]
    alice, bob, admin = keys_for_all
    session = a.api("POST", "/sessions", {"node": "a", "key": "k"}, expect=201, headers=alice).json["id"]
    unknown = "ses_" + session[4:][::-1]
    for reference in (session, unknown, "key:k"):
        answer = b.api("GET", f"/sessions/{reference}", headers=bob)
        assert answer.status == 404 and answer.json["error"]["code"] == "session_not_found", answer.body
    assert b.api("GET", f"/sessions/{session}", headers=alice, expect=200).json["owner"] == "alice"
    assert b.api("GET", f"/sessions/{session}", headers=admin, expect=200).json["owner"] == "alice"
    assert b.api("DELETE", f"/sessions/{session}", headers=bob).status == 404
    assert b.api("GET", "/sessions", headers=bob, expect=200).json["total"] == 0
    assert b.api("GET", "/sessions?owner=*", headers=admin, expect=200).json["total"] == 1
    assert b.api("GET", "/sessions", headers=alice, expect=200).json["sessions"][0]["id"] == session


def test_every_route_is_as_closed_as_at_home(cluster, work):
    """What test_owners.py tries on one daemon, on a node that does not have the session."""
    callers = {}
    callers["owner"], callers["other"], callers["approver"], callers["admin"], callers["delegate"] = start_with_keys(
        cluster, work, ("ann",), ("bob",), ("cem", "approver"), ("root", "admin"), ("hub", "delegate"), flavors=FLAVORS)
    callers.update({"nobody": {}, "spoofer": {**callers["other"], "X-Sandglass-On-Behalf-Of": "ann"},
                    "delegate for the owner": {**callers["delegate"], "X-Sandglass-On-Behalf-Of": "ann"}})
    scene = Scene(cluster["a"], callers, node="a")
    scene.daemon = cluster["b"]
    check_strangers(scene, ["other", "approver", "delegate", "spoofer", "delegate for the owner"], deciding=["approver"])
    check_refused(scene, "nobody", 401, "session", "caller", "client", "admin", "delegate", "approver", "approval")
    check_refused(scene, "other", 403, "admin")
    check_refused(scene, "other", 403, "approver")
    assert scene.ask(("GET", "/api/v1/approvals/{approval}"), callers["owner"]).json["state"] == "pending"
    check_session_is_untouched(scene)
    check_may_use(scene, "admin", [route for route in scene.of("session") if route[0] == "GET"])
    check_may_use(scene, "approver", scene.of("approver", "approval"))
    check_may_use(scene, "owner", scene.of("session", "caller"))


@pytest.fixture
def keys_for_all(cluster, work):
    """Two nodes with one file of keys; headers of alice, bob and an administrator."""
    return start_with_keys(cluster, work, ("alice",), ("bob",), ("root", "admin"))


def start_with_keys(cluster, work, *principals, **settings):
    """Starts the nodes a and b; the headers of each principal, which comes with its roles."""
    directory = work / "etc"
    directory.mkdir(mode=0o755)
    keys = Keys(directory / "keys")
    headers = [bearer(keys.create(*principal)["key"]) for principal in principals]
    admin = bearer(keys.create("operator", "admin")["key"])
    for name in "ab":
        cluster.add(name, auth={"mode": "keys", "keys_file": str(keys.path)}, **settings)
    for name in "ab":
        wait_for(lambda: [node["state"] for node in cluster[name].api("GET", "/nodes", headers=admin).json.get("nodes", [])] == ["up", "up"], "they know each other")
    return headers


def test_urls_that_are_permissions_work_on_any_node(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    _, stored = store(b, session, "plot", "the plot")
    url = urllib.parse.urlsplit(stored["url"])
    for daemon in (a, b):
        assert daemon.request("GET", f"{url.path}?{url.query}").body == b"the plot"
        assert daemon.request("GET", f"{url.path}?{url.query}0").status == 404
    token = b.api("POST", f"/sessions/{session}/teardown-token", {"grace": 0}, expect=201).json["url"]
    assert b.request("POST", token + "0", "bye").status == 404
    assert b.request("POST", token, "bye").status == 202
    wait_for(lambda: a.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["state"] == "none", "the sandbox is gone")


def test_nodes_speak_tls_with_each_other(cluster, work):
    certificate = issuer.Certificate(work)
    os.chmod(certificate.key, 0o644)
    secure = {"scheme": "https", "ca": certificate.chain, "tls": {"certificate": str(certificate.chain), "key": str(certificate.key)}}
    cluster.add("a", **secure)
    cluster.add("b", **secure)
    cluster.wait_until_known()
    session = cluster["a"].session(node="a")
    assert cluster["b"].execute(session, command="echo sealed")["stdout"] == "sealed\n"
    assert cluster["b"].api("GET", "/sessions", expect=200).json["sessions"][0]["id"] == session


def test_the_home_writes_the_audit_log_and_counts_for_the_caller(pair):
    a, b = pair["a"], pair["b"]
    headers = {"X-Sandglass-On-Behalf-Of": "ann"}
    session = a.api("POST", "/sessions", {"node": "a"}, expect=201, headers=headers).json["id"]
    answer = b.api("POST", f"/sessions/{session}/keepalive", {"timeout": 100}, expect=200, headers=headers)
    told = wait_for(lambda: [line for line in a.audit_lines() if line.get("request_id") == answer.headers["x-request-id"]], "it is in the log")
    assert [(line["owner"], line["status"], line["relayed_by"], line["session"]) for line in told] == [("ann", 200, "b", session)]
    assert not [line for line in b.audit_lines() if line.get("request_id") == answer.headers["x-request-id"]]


# --- who may say that a request was relayed --------------------------------------------------------


def test_a_forged_header_is_refused(pair):
    a = pair["a"]
    for value in ("", "1;b;1;a;1;1;o;p;;;4;3;" + "0" * 64, "x" * 9000):
        answer = a.api("GET", "/sessions", headers={"X-Sandglass-Relay": value})
        assert answer.status == 403 and answer.json["error"]["code"] == "relay_refused", answer.body
    connection = http.client.HTTPConnection("127.0.0.1", a.port)
    connection.request("GET", "/api/v1/sessions")
    assert connection.getresponse().status == 401  # the listener for nodes is for callers with a token, as ever
    connection.close()


# --- placement -------------------------------------------------------------------------------------


def homes(daemon, sessions):
    listed = daemon.api("GET", "/sessions?limit=1000", expect=200).json["sessions"]
    return {entry["id"]: entry["node"] for entry in listed if entry["id"] in sessions}


def test_new_sessions_are_spread_over_the_nodes(pair):
    a, b = pair["a"], pair["b"]
    made = [(a, b)[number % 2].api("POST", "/sessions", {"preload": False}, expect=201).json["id"] for number in range(40)]
    found = homes(a, made)
    assert len(found) == 40
    assert 5 <= list(found.values()).count("a") <= 35


def test_a_key_leads_to_one_session_from_all_nodes_at_once(pair):
    a, b = pair["a"], pair["b"]
    for number in range(4):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda at: (a, b)[at % 2].api("POST", "/sessions", {"key": f"k{number}"}), range(8)))
        assert {answer.status for answer in answers} <= {200, 201}, [answer.body for answer in answers]
        assert len({answer.json["id"] for answer in answers}) == 1
        assert [answer.status for answer in answers].count(201) == 1


def test_a_session_goes_where_it_is_asked_for(cluster):
    cluster.add("a", labels={"zone": "east"})
    cluster.add("b", labels={"zone": "west"}, backend="direct")
    cluster.wait_until_known()
    a, b = cluster["a"], cluster["b"]
    made = {a.session(node_labels={"zone": "west"}, preload=False): "b", b.session(node="a", preload=False): "a",
            a.session(backend="direct", preload=False): "b", b.session(backend="native", preload=False): "a"}
    assert homes(b, made) == made
    answer = a.api("POST", "/sessions", {"node": "z"})
    assert answer.status == 404 and answer.json["error"]["code"] == "node_not_found"
    answer = a.api("POST", "/sessions", {"node_labels": {"zone": "north"}})
    assert answer.status == 503 and answer.json["error"]["code"] == "node_unavailable"


def test_execute_finds_the_session_that_it_names(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    body = {"code": "print(6 * 7)", "session_id": session}
    assert b.api("POST", "/execute", body, expect=200).json["stdout"] == "42\n"
    first = a.api("POST", "/execute", {"code": "x = 1", "key": "mine"}, expect=200).json["session_id"]
    assert b.api("POST", "/execute", {"code": "print(1)", "key": "mine"}, expect=200).json["session_id"] == first


# --- the whole cluster -----------------------------------------------------------------------------


def test_lists_are_of_all_nodes_and_come_in_pages(pair):
    a, b = pair["a"], pair["b"]
    made = [a.session(node="ab"[number % 2], preload=False, labels={"n": str(number % 3)}) for number in range(9)]
    for daemon in (a, b):
        listed = daemon.api("GET", "/sessions", expect=200).json
        assert sorted(entry["id"] for entry in listed["sessions"]) == sorted(made)
        assert listed["total"] == 9 and listed["next_cursor"] is None and "missing_nodes" not in listed
    for limit in (1, 2, 3, 4, 5, 8, 9):
        found, cursor = [], ""
        while cursor is not None:
            page = b.api("GET", f"/sessions?limit={limit}" + (f"&cursor={cursor}" if cursor else ""), expect=200).json
            assert page["total"] == 9 and len(page["sessions"]) <= limit
            found += [entry["id"] for entry in page["sessions"]]
            cursor = page["next_cursor"]
        assert sorted(found) == sorted(made) and len(found) == 9, limit
    assert len(a.api("GET", "/sessions?node=b", expect=200).json["sessions"]) == 4
    assert len(b.api("GET", "/sessions?node=b&label=n=1", expect=200).json["sessions"]) == 2
    assert a.api("GET", "/sessions?node=z").status == 404
    assert a.api("GET", "/sessions?limit=x").status == 400
    assert a.api("GET", "/sessions?state=nonsense").status == 400
    gone = a.api("DELETE", "/sessions?label=n=0", expect=200).json
    assert len(gone["destroyed"]) == 3 and not gone["failed"]
    assert b.api("GET", "/sessions", expect=200).json["total"] == 6
    assert b.api("GET", "/sessions?state=ended", expect=200).json["total"] == 3


def test_capacity_and_metrics_are_of_all_nodes(pair):
    a, b = pair["a"], pair["b"]
    b.session(node="a")
    whole = wait_for(lambda: (told := b.api("GET", "/capacity", expect=200).json)["own"] == 1 and told, "its sandbox is counted")
    assert [entry["node"] for entry in whole["nodes"]] == ["a", "b"]
    assert whole["max_sandboxes"] == sum(entry["capacity"]["max_sandboxes"] for entry in whole["nodes"])
    assert b.api("GET", "/capacity?node=b", expect=200).json["own"] == 0
    text = b.request("GET", "/metrics").body.decode()
    assert 'sandglass_sessions_created_total{node="a"} 1' in text and 'sandglass_sessions_created_total{node="b"} 0' in text
    assert text.count("# TYPE sandglass_sessions_created_total") == 1
    assert "node=" not in b.request("GET", "/metrics?node=b").body.decode()


def test_events_are_of_all_nodes_and_can_be_resumed(pair):
    a, b = pair["a"], pair["b"]
    connection, response = lines_of(b, "/events")
    on_a = a.session(node="a", preload=False)
    first = next_event(response, "session.created")
    assert json.loads(first["data"])["session_id"] == on_a
    on_b = a.session(node="b", preload=False)
    assert json.loads(next_event(response, "session.created")["data"])["session_id"] == on_b
    connection.close()
    connection, response = lines_of(a, "/events", {"Last-Event-ID": first["id"]})
    assert json.loads(next_event(response, "session.created")["data"])["session_id"] == on_b
    connection.close()
    connection, response = lines_of(b, f"/sessions/{on_a}/events")
    assert json.loads(next_event(response, "session.created")["data"])["session_id"] == on_a
    connection.close()


def test_the_events_begin_when_each_node_has_said_where_it_is(pair):
    """Otherwise an event of another node could be missed by a client that has its answer already."""
    a, b = pair["a"], pair["b"]
    connection = UnixConnection(str(b.socket))
    a.process.send_signal(signal.SIGSTOP)
    try:
        connection.request("GET", "/api/v1/events")
        assert not select.select([connection.sock], [], [], 0.3)[0], "a node that does not answer is not waited for"
    finally:
        a.process.send_signal(signal.SIGCONT)
    response = connection.getresponse()
    session = a.session(node="a", preload=False)
    assert json.loads(next_event(response, "session.created")["data"])["session_id"] == session
    connection.close()


# --- nodes that go ---------------------------------------------------------------------------------


def test_a_home_that_dies_is_told_and_its_session_moves(cluster):
    cluster.add("a")
    cluster.add("b")
    cluster.wait_until_known()
    a, b = cluster["a"], cluster["b"]
    session = b.session(node="a")
    connection = UnixConnection(str(b.socket), 60)
    body = json.dumps({"command": "sleep 1000"})
    connection.request("POST", f"/api/v1/sessions/{session}/executions", body=body, headers={"Content-Type": "application/json"})
    wait_for(lambda: a.api("GET", f"/sessions/{session}/executions").json["executions"], "it runs")
    stream, response = lines_of(b, f"/sessions/{session}/events")
    a.kill()
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    assert answer.status in (502, 503) and error["retryable"], error
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        while response.read(1):
            pass
    answer = b.api("GET", f"/sessions/{session}")
    if answer.status != 200:
        assert answer.status == 503 and answer.json["error"]["retryable"] and answer.headers["retry-after"], answer.body
    missing = b.api("GET", "/sessions", expect=200)
    assert missing.json["total"] == 1 or missing.json["missing_nodes"] == ["a"]
    wait_for(lambda: b.api("GET", f"/sessions/{session}").status == 200, "the session has a new home", 60)
    assert b.execute(session, command="echo back")["stdout"] == "back\n"
    connection.close()
    stream.close()
    a.start()  # and ends what is no longer its own
    wait_for(lambda: not any("sleep 1000" in line for line in our_processes(a.directory).values()), "its sandbox is gone")


# --- MCP -------------------------------------------------------------------------------------------


def test_an_mcp_client_may_talk_to_any_node(pair):
    a, b = pair["a"], pair["b"]
    client = Http(a)
    assert client.id.startswith("mcp_") and client.id.split(".")[1] in ("a", "b")
    assert "one" in client.bash("echo one > file; cat file")
    client.daemon = b
    assert "one" in client.bash("cat file")
    connection, response = client.open("GET")
    assert response.status == 200 and response.headers["content-type"] == "text/event-stream"
    connection.close()
    stranger = client.daemon.request("POST", "/mcp", message("ping", None, 1), headers={**client.common, "X-Sandglass-On-Behalf-Of": "bob"})
    assert stranger.status == 404
    assert client.end().status == 204
    client.daemon = a
    assert client.post(message("ping", None, 9)).status == 404


def test_tools_work_in_sessions_of_other_nodes(pair):
    a, b = pair["a"], pair["b"]
    sessions = {name: a.session(node=name, key=f"at-{name}") for name in "ab"}
    client = Http(a)
    for name, session in sessions.items():
        assert client.bash(f"echo at-{name} > /tmp/where; cat /tmp/where", session_id=session).startswith(f"at-{name}")
        assert client.bash("cat /tmp/where", key=f"at-{name}").startswith(f"at-{name}")
        assert b.execute(session, command="cat /tmp/where")["stdout"] == f"at-{name}\n"
    client.bash("export GREETING=hello", session_id=sessions["b"])
    assert "hello" in client.bash("echo $GREETING", session_id=sessions["b"])  # the client has its shell there
    answer, _ = client.call("bash", {"command": "true", "session_id": "ses_" + "0" * 26})
    assert answer["result"]["isError"] and "not found" in text_of(answer)


def test_a_client_on_a_pipe_is_told_the_home(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    client = Stdio(environment={"SANDGLASS_URL": b.url})
    try:
        answer = client.ask("tools/call", {"name": "bash", "arguments": {"command": "true", "session_id": session}})
        assert answer["result"]["isError"] and "is on node a" in text_of(answer)
        answer = client.ask("tools/call", {"name": "bash", "arguments": {"command": "true", "session_id": "ses_" + "0" * 26}})
        assert answer["result"]["isError"] and "not found" in text_of(answer)
    finally:
        client.close()


def test_stateless_calls_find_their_session(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    for daemon in (a, b):
        answer = stateless_call(daemon, "bash", {"command": "echo $0 works", "session_id": session})
        assert "works" in text_of(answer)
    answer = stateless_call(b, "bash", {"command": "echo new"})
    made = text_of(answer).split("id=")[1].split(" ")[0]
    assert "again" in text_of(stateless_call(a, "bash", {"command": "echo again", "session_id": made}))


def stateless_call(daemon, tool, arguments):
    params = {"name": tool, "arguments": arguments,
              "_meta": {META + "protocolVersion": STATELESS, META + "clientInfo": {"name": "test", "version": "1"}, META + "clientCapabilities": {}}}
    answer = daemon.request("POST", "/mcp", message("tools/call", params, 1), timeout=60,
                            headers={"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": STATELESS, "Mcp-Method": "tools/call",
                                     "Mcp-Name": tool})
    assert answer.status == 200, answer.body
    if answer.headers["content-type"] == "application/json":
        return answer.json
    return json.loads(events(answer.body.decode())[-1][1])


# --- ports and E2B ---------------------------------------------------------------------------------


def test_ports_are_reached_through_any_node(cluster):
    cluster.add("a", ports={"domain": "sandboxes.test"})
    cluster.add("b", ports={"domain": "sandboxes.test"})
    cluster.wait_until_known()
    a, b = cluster["a"], cluster["b"]
    session = a.session(node="a")
    a.execute(session, command="mkdir -p /tmp/web; echo hi > /tmp/web/page; cd /tmp/web; python3 -m http.server 8000", background=True)
    path = f"/sessions/{session}/ports/8000"
    wait_for(lambda: b.api("GET", f"{path}/page").status == 200, "the server listens")
    assert b.api("GET", f"{path}/page").body == b"hi\n"
    assert b.api("GET", f"{path}/other").status == 404
    url = urllib.parse.urlsplit(b.api("POST", f"{path}/url", {}, expect=201).json["url"])
    assert url.netloc == f"8000-{session}.sandboxes.test"
    for daemon in (a, b):
        assert daemon.request("GET", f"/page?{url.query}", headers={"Host": url.netloc}).body == b"hi\n"
        assert daemon.request("GET", f"/page?{url.query}0", headers={"Host": url.netloc}).status in (403, 404)


def test_websockets_and_tunnels_pass_through_any_node(pair):
    a, b = pair["a"], pair["b"]
    session = a.session(node="a")
    talk = WebSocket(connect(b), f"/api/v1/sessions/{session}/ports/{serve(b, session)}/ws", {"Origin": "http://localhost"})
    assert talk.status == 101 and talk.headers["sec-websocket-accept"] == "ICX+Yqv66kxgM0FcWaLWlFLwTAI="
    for text in (b"one", b"x" * 5000):
        talk.say(text)
        assert talk.hear() == text
    talk.close()
    connection = tunnel(b, session, serve(b, session, "echo"))
    connection.sendall(b"hello")
    assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
    connection.shutdown(socket.SHUT_WR)
    assert receive_all(connection).startswith(b"\n5 ")  # what the server says at the end of its input
    connection.close()


def test_sandboxes_of_e2b_are_used_through_any_node(cluster):
    cluster.add("a", e2b={"enabled": True})
    cluster.add("b", e2b={"enabled": True})
    cluster.wait_until_known()
    a, b = cluster["a"], cluster["b"]
    box = Box(a)
    for daemon in (a, b):
        box.daemon = daemon
        assert box.run("echo works")[0] == b"works\n"
        assert box.put("/tmp/file", b"content").status == 200
        assert daemon.request("GET", f"/sandboxes/{box.id}").json["sandboxID"] == box.id
        wrong = daemon.request("POST", "/filesystem.Filesystem/Stat", json.dumps({"path": "/tmp"}),
                               headers={**box.headers, "X-Access-Token": "wrong", "Content-Type": "application/json"})
        assert wrong.status == 401
    assert b.request("DELETE", f"/sandboxes/{box.id}").status == 204
    assert a.request("GET", f"/sandboxes/{box.id}").status == 404
