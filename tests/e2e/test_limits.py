# SPDX-License-Identifier: Apache-2.0
"""What a caller may ask for at most: the host's size, the operator's ceiling, and shares of one owner."""
import contextlib
import gzip
import json
import os
import select
import socket

import pytest

from conftest import LIMITED_DISK, SANDGLASS, WALLS, UnixConnection, wait_for

SANITIZED = "asan" in str(SANDGLASS)  # whose own memory says nothing

MAX = {"memory": "1g", "cpus": 1, "pids": 512, "disk": "2g", "lifetime": "2h", "timeout": "1h", "idle_timeout": "1h",
       "network": "none"}
OVER = [("memory", "1000g"), ("cpus", 1000), ("pids", 4000001), ("max_lifetime", 0), ("timeout", 7200),
        ("idle_timeout", 0), ("network", "open")]


def on_behalf_of(owner):
    return {"X-Sandglass-On-Behalf-Of": owner}


@pytest.fixture
def limited(make_daemon):
    return make_daemon(backend="direct", settings={
        "sandbox": {"max": MAX},
        "flavors": [{"name": "small"}, {"name": "big", "memory": "2g", "price_per_hour": 0, "max": {"memory": "2g"}}],
        "owners": [{"name": "ci", "max": {"pids": 600, "network": "open"}}]})


def assert_over_limit(answer, field):
    assert answer.status in (400, 403), answer.body
    error = answer.json["error"]
    assert error["code"] == "over_limit" and not error["retryable"]
    assert error["message"].startswith(field) and "limit of" in error["message"] and "at most" in error["hint"]


@pytest.mark.parametrize("field,value", OVER)
def test_more_than_the_ceiling_is_refused_and_makes_nothing(limited, field, value):
    answer = limited.api("POST", "/sessions", {field: value})
    assert_over_limit(answer, field)
    assert limited.api("GET", "/sessions").json["total"] == 0


def test_the_ceiling_holds_for_changes(limited):
    session = limited.session(preload=False)
    shown = limited.api("GET", f"/sessions/{session}").json
    assert shown["limits"]["memory_bytes"] == 1 << 30 and shown["max_lifetime"] == 7200
    for field, value in OVER[3:6]:
        assert_over_limit(limited.api("PATCH", f"/sessions/{session}", {field: value}), field)
    assert_over_limit(limited.api("POST", f"/sessions/{session}/keepalive", {"timeout": 3601}), "timeout")
    for field, value in OVER[:3]:
        assert_over_limit(limited.api("POST", f"/sessions/{session}/sandbox", {field: value}), field)
    assert limited.api("POST", f"/sessions/{session}/sandbox", {"flavor": "big"}).status == 202


def test_an_owner_may_have_a_ceiling_of_its_own(limited):
    limited.api("POST", "/sessions", {"pids": 600, "preload": False}, headers=on_behalf_of("ci/7"), expect=201)
    assert_over_limit(limited.api("POST", "/sessions", {"pids": 601}, headers=on_behalf_of("ci/7")), "pids")
    assert_over_limit(limited.api("POST", "/sessions", {"pids": 600}, headers=on_behalf_of("else")), "pids")


def test_a_cap_on_sessions_is_told_and_holds_until_one_ends(make_daemon):
    daemon = make_daemon(backend="direct", settings={
        "capacity": {"max_sessions": 4, "max_sessions_per_owner": 2}, "owners": [{"name": "svc", "sessions": 1}]})
    ids = [daemon.session(preload=False) for _ in range(2)]
    assert daemon.api("GET", "/sessions").json["max_sessions"] == 2
    for path, body in (("/sessions", {}), ("/execute", {"code": "1"})):
        refused = daemon.api("POST", path, body, expect=429)
        assert refused.json["error"]["code"] == "too_many_sessions" and "2 of 2" in refused.json["error"]["message"]
        assert "retry-after" in refused.headers
    daemon.api("DELETE", f"/sessions/{ids[0]}", expect=200)
    daemon.session(preload=False)
    for owner, status in (("svc/a", 201), ("svc/b", 429), ("ann", 201), ("bob", 429)):  # the row's, then all together
        daemon.api("POST", "/sessions", {"preload": False}, headers=on_behalf_of(owner), expect=status)
    daemon.kill()
    daemon.start()
    daemon.api("POST", "/sessions", {"preload": False}, expect=429)


def test_streams_and_terminals_of_one_owner_leave_room_for_others(make_daemon):
    daemon = make_daemon(backend="direct", settings={
        "capacity": {"max_requests_per_owner": 3, "max_terminals_per_owner": 1, "max_executions_per_owner": 2}})
    streams = []
    for _ in range(3):
        stream = UnixConnection(str(daemon.socket))
        stream.request("GET", "/api/v1/events", headers=on_behalf_of("ann"))
        streams.append((stream, stream.getresponse()))
    refused = daemon.api("GET", "/sessions", headers=on_behalf_of("ann"), expect=429).json["error"]
    assert refused["code"] == "too_many_requests" and "3 of 3" in refused["message"]
    session = daemon.session()
    for stream, _ in streams:
        stream.close()
    wait_for(lambda: daemon.api("GET", "/sessions", headers=on_behalf_of("ann")).status == 200, "its share is free again")
    shell = {"argv": ["cat"], "tty": {"cols": 80, "rows": 24}, "background": True}
    daemon.api("POST", f"/sessions/{session}/executions", shell, expect=201)
    refused = daemon.api("POST", f"/sessions/{session}/executions", shell, expect=429).json["error"]
    assert refused["code"] == "too_many_terminals" and "1 of 1" in refused["message"]
    daemon.execute(session, ["sleep", "60"], background=True)
    refused = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]}, expect=429).json["error"]
    assert refused["code"] == "too_many_executions" and "2 of 2" in refused["message"]
    other = daemon.api("POST", "/sessions", {}, headers=on_behalf_of("bob"), expect=201).json["id"]
    daemon.api("POST", f"/sessions/{other}/executions", {"argv": ["true"]}, headers=on_behalf_of("bob"), expect=201)


def test_more_disk_than_the_ceiling_is_refused(make_daemon):
    daemon = make_daemon(backend=WALLS, settings={"sandbox": {"max": MAX}, "pool": {"size": 0}, **LIMITED_DISK})
    assert_over_limit(daemon.api("POST", "/sessions", {"disk": "900g"}), "disk")
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_more_than_the_host_has_is_refused_without_any_setting(make_daemon):
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": 0}, **LIMITED_DISK})
    for option, value in (("--memory", "99t"), ("--cpus", "999"), ("--pids", "4000001"), ("--disk", "15t")):
        made = daemon.cli("session", "create", option, value)
        assert made.returncode != 0 and "above the limit" in made.stderr and "of this host" in made.stderr
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_a_flavor_above_the_ceiling_does_not_start(make_daemon, work):
    config = work / "sandglass.yaml"
    config.write_text(json.dumps({"sandbox": {"max": {"memory": "1g"}},
                                  "flavors": [{"name": "small"}, {"name": "big", "memory": "2g"}]}))
    daemon = make_daemon(start=False)
    checked = daemon.cli("config", "check", "--config", config)
    assert checked.returncode != 0 and 'memory of "big" is above sandbox.max.memory' in checked.stderr


def test_what_does_not_fit_is_told_with_units_and_a_remedy(make_daemon, tmp_path):
    daemon = make_daemon(backend=WALLS, settings=LIMITED_DISK)
    result = daemon.cli("session", "create", "--memory", "1m")
    assert result.returncode == 1 and '--memory must be between 4.0 MB and' in result.stderr
    half = 16 if WALLS != "gvisor" else 128  # MiB; its kernel takes some of it for itself
    session = daemon.session(memory=f"{2 * half}m")
    assert daemon.api("GET", f"/sessions/{session}").json["limits"]["disk_bytes"] == half << 20
    (tmp_path / "large").write_bytes(bytes(half + 4 << 20))
    result = daemon.cli("cp", tmp_path / "large", f"{session}:large")
    assert result.returncode == 1 and "no space is left" in result.stderr and "limits.disk_bytes" in result.stderr


@pytest.mark.parametrize("backend", ["direct", "native"])
@pytest.mark.skipif(os.geteuid() != 0, reason="starts the daemon of an ordinary user")
def test_limits_that_would_not_hold_are_neither_taken_nor_claimed(make_daemon, work, backend):
    """An ordinary user has no control groups of version 1; where they are of version 2, only delegated ones."""
    daemon = make_daemon(backend=backend, start=False, prefix=["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"],
                         settings={"pool": {"size": 0}, "flavors": [{"name": "basic"}, {"name": "roomy", "memory": "1g", "price_per_hour": 0}]})
    os.chown(daemon.directory, 1001, 1001)
    daemon.log_path.touch()
    daemon.start()
    for field, value in (("memory", "64m"), ("cpus", 0.5)):
        answer = daemon.api("POST", "/sessions", {field: value}, expect=400)
        error = answer.json["error"]
        assert error["code"] == "backend_unable" and error["message"].startswith(field) and not error["retryable"]
        assert "delegated cgroup" in error["hint"]
    session = daemon.session()
    answer = daemon.api("POST", f"/sessions/{session}/sandbox", {"memory": "64m"}, expect=400)
    assert answer.json["error"]["code"] == "backend_unable"
    limits = daemon.api("GET", f"/sessions/{session}").json["limits"]
    assert limits["memory_bytes"] is None and limits["cpus"] is None and limits["pids"] == 256
    assert (limits["disk_bytes"] is None) == (backend == "direct")
    for flavor in daemon.api("GET", "/flavors").json["flavors"]:
        assert flavor["memory_bytes"] is None and flavor["cpus"] is None and flavor["pids"] == 256
    status = daemon.api("POST", f"/sessions/{session}/tools/sandbox_status", {}).json["content"][0]["text"]
    assert "unlimited CPUs, unlimited memory" in status
    ended = daemon.api("DELETE", f"/sessions/{session}", expect=200).json["limits"]
    assert ended == daemon.api("GET", f"/sessions/{session}").json["limits"] == limits


# --- bodies of requests ---------------------------------------------------------------------------


def peak_kib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1])


def send(daemon, path, body, length=None, owner="ann"):
    """Sends a request and does not wait for its answer."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length or len(body)}\r\n"
                       f"Accept: application/json, text/event-stream\r\nX-Sandglass-On-Behalf-Of: {owner}\r\n\r\n".encode() + body)
    return connection


def test_a_large_body_holds_nobody_up_while_it_is_parsed(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    for path in ("/api/v1/sessions", "/mcp"):
        large = send(daemon, path, json.dumps({"labels": "x" * (20 << 20)}).encode())
        assert daemon.api("GET", "/whoami", headers=on_behalf_of("bob")).status == 200
        assert not select.select([large], [], [], 0)[0], "the large one was answered first"
        assert b" 400 " in large.recv(4096)
        large.close()


def test_a_body_of_many_values_is_refused(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    many = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[' + b"0," * (10 << 20) + b"0]}"
    for path in ("/api/v1/sessions", "/mcp"):
        answer = daemon.request("POST", path, many, headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
        assert answer.status == 413 and answer.json["error"]["code"] == (-32700 if path == "/mcp" else "request_too_large"), answer.body
    assert SANITIZED or peak_kib(daemon) < 200 * 1024


def test_the_bodies_of_one_owner_take_a_bounded_part_of_the_memory(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    size, unfinished = 20 << 20, []
    while len(unfinished) < 20:
        connection = send(daemon, ("/api/v1/sessions", "/mcp")[len(unfinished) % 2], b"{", size)
        unfinished.append(connection)
        daemon.api("GET", "/whoami", expect=200)
        if select.select([connection], [], [], 0)[0]:
            break
    assert b" 429 " in unfinished[-1].recv(4096) and 5 <= len(unfinished) <= 8
    daemon.api("POST", "/sessions", {"preload": False, "labels": {"a": "b" * 60}}, headers=on_behalf_of("bob"), expect=201)
    for connection in unfinished:
        connection.close()
    wait_for(lambda: daemon.api("POST", "/sessions", " " * size, headers={**on_behalf_of("ann"), "Content-Type": "application/json"}).status == 400,
             "its share is free again")


def test_bodies_in_chunks_count_for_what_has_come_of_them(make_daemon):
    """Their length is not known: many short ones may be open at a time, and long ones are bounded like the others."""
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})

    def begin(data):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        connection.connect(str(daemon.socket))
        with contextlib.suppress(OSError):  # it may be refused while it is sent
            connection.sendall(b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(data), data))
        return connection

    short = [begin(b'{"preload"') for _ in range(40)]
    for connection in short:
        connection.sendall(b"8\r\n: false}\r\n0\r\n\r\n")
        assert b" 201 " in connection.recv(4096)
        connection.close()
    long = []
    while len(long) < 20:
        long.append(begin(b" " * (20 << 20)))
        daemon.api("GET", "/whoami", expect=200)
        if select.select([long[-1]], [], [], 0)[0]:
            break
    assert b" 429 " in long[-1].recv(4096) and 5 <= len(long) <= 8
    for connection in long:
        connection.close()


def test_bodies_whose_clients_have_left_take_a_bounded_part_of_the_memory(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    large = json.dumps({"labels": "x" * (20 << 20)}).encode()
    for round in range(40):
        with contextlib.suppress(ConnectionError):  # refused: the ones before are still parsed
            send(daemon, ("/api/v1/sessions", "/mcp")[round % 2], large).close()
    daemon.api("GET", "/whoami", expect=200)
    assert SANITIZED or peak_kib(daemon) < 260 * 1024, "128 MiB of texts, and the document of one"

    def is_free():
        connection = send(daemon, "/api/v1/sessions", b"{", len(large))
        daemon.api("GET", "/whoami", expect=200)
        with connection:
            return not select.select([connection], [], [], 0)[0]
    wait_for(is_free, "its share is free again")


def test_the_large_bodies_of_one_owner_do_not_delay_that_of_another(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    large = json.dumps({"labels": "x" * (20 << 20)}).encode()
    of_ann = [send(daemon, "/api/v1/sessions", large) for _ in range(5)]
    of_bob = send(daemon, "/api/v1/sessions", json.dumps({"labels": "x" * (100 << 10)}).encode(), owner="bob")
    assert b" 400 " in of_bob.recv(4096)
    assert len(select.select(of_ann, [], [], 0)[0]) < 4, "it had to wait for all of them"
    for connection in (*of_ann, of_bob):
        connection.close()


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_message_of_an_e2b_client_holds_nobody_up_while_it_is_parsed(make_daemon, packed):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "e2b": {"enabled": True}})
    made = daemon.request("POST", "/v2/sandboxes", {"templateID": "base"}).json
    text = json.dumps({"path": ["x" * (20 << 20)]}).encode()
    large = UnixConnection(str(daemon.socket))
    large.request("POST", "/filesystem.Filesystem/Stat", gzip.compress(text, 1) if packed else text, {
        "E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": made["envdAccessToken"],
        "Content-Type": "application/json", **({"Content-Encoding": "gzip"} if packed else {})})
    daemon.api("GET", "/whoami", expect=200)
    assert not select.select([large.sock], [], [], 0)[0], "the large one was answered first"
    assert large.getresponse().status == 400
    large.close()


# --- messages on a pipe of MCP ----------------------------------------------------------------------


def pipe(daemon, owner="ann"):
    """What `sandglass mcp` has: a line for each message, both ways."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    connection.sendall(f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: mcp-lines\r\nX-Sandglass-On-Behalf-Of: {owner}\r\n\r\n".encode())
    assert b" 101 " in connection.recv(4096)
    return connection


def ping(number, size=0):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"_meta": {"x": "y" * size}}}).encode() + b"\n"


def test_a_large_message_on_a_pipe_holds_nobody_up_and_keeps_its_place(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    with pipe(daemon) as client:
        client.sendall(ping(1, 20 << 20) + ping(2))
        daemon.api("GET", "/whoami", expect=200, headers=on_behalf_of("bob"))
        assert not select.select([client], [], [], 0)[0], "the large one was answered first"
        client.sendall(ping(3) + ping(4, 1 << 20) + b'{"x": "' + b"y" * (1 << 20) + b"\n" + ping(5))
        answers = b""
        while answers.count(b"\n") < 6:
            answers += client.recv(4096)
    assert [json.loads(line)["id"] for line in answers.splitlines()] == [1, 2, 3, 4, None, 5]


def test_the_unfinished_messages_of_one_owner_take_a_bounded_part_of_the_memory(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    clients = [pipe(daemon) for _ in range(12)]
    for client in clients:
        client.sendall(b'{"x": "' + b"y" * (20 << 20))
    daemon.api("GET", "/whoami", expect=200)
    assert SANITIZED or peak_kib(daemon) < 200 * 1024
    clients[-1].sendall(b'"}\n' + ping(1))
    answers = b""
    while answers.count(b"\n") < 2:
        answers += clients[-1].recv(4096)
    refused, answered = map(json.loads, answers.splitlines())
    assert "bodies of open requests" in refused["error"]["message"] and answered["result"] == {}
    for client in clients:
        client.close()
