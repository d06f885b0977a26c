# SPDX-License-Identifier: Apache-2.0
"""Ports inside of sandboxes: what listens, HTTP, WebSocket and TCP to it, signed URLs, and what must not pass."""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time
import types
import urllib.parse

import pytest

import port_server
from conftest import ROOT, SANDGLASS, Answer, UnixConnection, free_port, wait_for
from test_tls import SecureDaemon
from key_file import bearer, keyed, keys  # noqa: F401 (fixtures)

SANITIZED = "asan" in str(SANDGLASS)  # whose own memory says nothing

SOURCE = pathlib.Path(port_server.__file__).read_text()


def serve(daemon, session, kind="http", headers=None, **options):
    """Starts a server inside; its port."""
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"argv": ["/usr/bin/python3", "-c", SOURCE, kind], "background": True, **options}, expect=201, headers=headers).json["id"]
    output = f"/sessions/{session}/executions/{run}/output?stream=stdout"
    line = wait_for(lambda: (out := daemon.api("GET", output, headers=headers).body).endswith(b"\n") and out, "the server has a port")
    return int(line.split()[1])


@pytest.fixture
def session(daemon):
    return daemon.session()


@pytest.fixture
def web(daemon, session):
    """A server inside, and the path to it."""
    return f"/api/v1/sessions/{session}/ports/{serve(daemon, session)}"


# --- what listens -----------------------------------------------------------------------------------------------------------------


def ports(daemon, session):
    return [row["port"] for row in daemon.api("GET", f"/sessions/{session}/ports", expect=200).json["ports"]]


def test_ports_that_are_served_are_listed(daemon, session):
    assert ports(daemon, session) == []
    first, second = serve(daemon, session), serve(daemon, session, "echo")
    assert ports(daemon, session) == sorted([first, second])
    row = daemon.api("GET", f"/sessions/{session}/ports").json
    assert row["truncated"] is False and row["ports"][0]["path"] == f"/api/v1/sessions/{session}/ports/{min(first, second)}/"


def test_looking_at_ports_is_no_use_and_starts_nothing(daemon):
    session = daemon.session(preload=False, idle_timeout=60)
    before = daemon.api("GET", f"/sessions/{session}").json
    time.sleep(0.05)
    assert ports(daemon, session) == []
    after = daemon.api("GET", f"/sessions/{session}").json
    assert (after["sandbox"], after["last_activity_at"]) == (before["sandbox"], before["last_activity_at"])


def test_a_port_of_a_session_without_a_sandbox_is_closed(daemon):
    session = daemon.session(preload=False)
    answer = daemon.api("GET", f"/sessions/{session}/ports/80/")
    assert (answer.status, answer.json["error"]["code"]) == (502, "port_closed")
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == 0


# --- HTTP -------------------------------------------------------------------------------------------------------------------------


def test_every_method_path_and_query_reaches_the_server(daemon, web):
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        target = "/a%20b//c/./d/e/f/g/h/i/j/k/l/m/n/o?x=1&x=2&y=%2F"
        answer = daemon.request(method, web + target, b"payload" if method in ("POST", "PUT", "PATCH") else None)
        assert answer.status == 200, answer.body
        assert (answer.json["method"], answer.json["path"]) == (method, target)
    assert daemon.request("HEAD", web + "/").status == 200
    bare = daemon.request("GET", web)
    assert (bare.status, bare.headers["location"]) == (308, web.rsplit("/", 1)[1] + "/")


def test_an_ipv6_server_is_reached(daemon, session):
    port = serve(daemon, session, "http6")
    assert daemon.request("GET", f"/api/v1/sessions/{session}/ports/{port}/x").json["path"] == "/x"


def test_bodies_pass_unchanged_in_both_framings(daemon, web):
    body = b"".join(port_server.pattern(3_000_000))
    plain = daemon.request("POST", web + "/p", body).json["body"]
    assert plain == {"length": len(body), "sha256": hashlib.sha256(body).hexdigest(), "chunked": False}
    chunked = daemon.request("POST", web + "/p", iter([body[:1000], body[1000:]])).json["body"]
    assert chunked == {**plain, "chunked": True}
    assert daemon.request("GET", web + "/old").body == b"until the end"
    for query in ("", "&chunked=1"):
        assert daemon.request("GET", web + f"/big?bytes=3000000{query}").body == body


def test_a_large_answer_streams_in_bounded_memory(daemon, web):
    total, read = 300_000_000, 0
    digest, expected = hashlib.sha256(), hashlib.sha256()
    connection = UnixConnection(str(daemon.socket), 60)
    connection.request("GET", web + f"/big?bytes={total}")
    response = connection.getresponse()
    before, most = daemon.resident_kib(), 0
    time.sleep(1)  # a reader that takes nothing for a while: the server inside is held back
    while piece := response.read(1 << 20):
        digest.update(piece)
        read += len(piece)
        if read % (50 << 20) == 0:
            most = max(most, daemon.resident_kib())
    connection.close()
    for piece in port_server.pattern(total):
        expected.update(piece)
    assert (read, digest.hexdigest()) == (total, expected.hexdigest())
    assert SANITIZED or max(most, daemon.resident_kib()) - before < 8 * 1024


def test_a_large_upload_streams_in_bounded_memory(daemon, web):
    total = 200_000_000
    expected = hashlib.sha256()
    for piece in port_server.pattern(total):
        expected.update(piece)
    before = daemon.resident_kib()
    connection = UnixConnection(str(daemon.socket), 120)
    connection.request("PUT", web + "/up", port_server.pattern(total), headers={"Content-Length": str(total)})
    answer = Answer(connection.getresponse())
    assert answer.json["body"] == {"length": total, "sha256": expected.hexdigest(), "chunked": False}
    assert SANITIZED or daemon.resident_kib() - before < 8 * 1024
    connection.close()


def test_many_requests_at_a_time(daemon, web):
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        bodies = list(pool.map(lambda i: daemon.request("GET", f"{web}/big?bytes={100_000 + i}").body, range(100)))
    assert [len(body) for body in bodies] == [100_000 + i for i in range(100)]


def test_answers_that_are_cut_or_malformed_are_told(daemon, web):
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        daemon.request("GET", web + "/cut")
    for text in ("nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "HTTP/1.1 101 Hello\r\nUpgrade: x\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"):
        answer = daemon.request("GET", web + "/raw?text=" + urllib.parse.quote(base64.b64encode(text.encode()).decode()))
        assert (answer.status, answer.json["error"]["code"]) == (502, "bad_answer"), text
    assert daemon.request("GET", web + "/").status == 200


def test_errors_name_what_is_wrong(daemon, session, web):
    closed = daemon.api("GET", f"/sessions/{session}/ports/1/")
    assert (closed.status, closed.json["error"]["code"]) == (502, "port_closed")
    for port in ("0", "65536", "080", "x", "-1", "123456"):
        assert daemon.api("GET", f"/sessions/{session}/ports/{port}/").json["error"]["code"] == "invalid_port", port
    assert daemon.api("GET", "/sessions/ses_00000000000000000000000000/ports/80/").status == 404
    wrong = daemon.request("GET", web + "/", headers={"X-Sandglass-Generation": "7"})
    assert (wrong.status, wrong.json["error"]["code"]) == (409, "generation_moved")
    assert daemon.request("GET", web + "/", headers={"X-Sandglass-Generation": "1"}).status == 200


# --- what must not pass -------------------------------------------------------------------------------------------------------------


def test_credentials_and_names_of_the_daemon_do_not_go_in(daemon, web):
    sent = {"Authorization": "Bearer sg_secret", "X-API-Key": "sg_secret", "Cookie": "a=b", "X-Sandglass-On-Behalf-Of": "", "Forwarded": "for=x",
            "X-Forwarded-For": "1.2.3.4", "Referer": "http://x/", "Connection": "close, X-Hop", "X-Hop": "1", "TE": "trailers", "X-Mine": "stays",
            "Proxy-Authorization": "x", "Keep-Alive": "5", "E2b-Sandbox-Port": "1"}
    got = daemon.request("GET", web + "/", headers=sent).json["headers"]
    port = web.rsplit("/", 1)[1]
    assert got["host"] == f"localhost:{port}" and got["x-mine"] == "stays" and got["connection"] == "close"
    assert got["x-forwarded-prefix"] == web
    for name in ("authorization", "x-api-key", "cookie", "x-sandglass-on-behalf-of", "forwarded", "x-forwarded-for", "referer", "x-hop", "te",
                 "proxy-authorization", "keep-alive", "e2b-sandbox-port"):
        assert name not in got, name


def fetch_headers(daemon, web, headers, status=200, **options):
    query = urllib.parse.urlencode({"set": json.dumps(headers), "status": status})
    return daemon.request("GET", f"{web}/headers?{query}", **options)


def test_what_concerns_the_whole_host_does_not_come_out(daemon, web):
    answer = fetch_headers(daemon, web, [("Set-Cookie", "a=b"), ("Clear-Site-Data", "*"), ("Strict-Transport-Security", "max-age=1"), ("X-Mine", "stays"),
                                         ("Service-Worker-Allowed", "/"), ("WWW-Authenticate", "Basic"), ("Refresh", "0;url=//evil"), ("NEL", "{}"),
                                         ("Access-Control-Allow-Origin", "*"), ("Connection", "X-Hop"), ("X-Hop", "1"), ("Alt-Svc", "h3"),
                                         ("Content-Security-Policy", "default-src *"), ("Cache-Control", "max-age=60")])
    assert answer.headers["x-mine"] == "stays" and answer.headers["cache-control"] == "max-age=60"
    for name in ("set-cookie", "clear-site-data", "strict-transport-security", "service-worker-allowed", "www-authenticate", "refresh", "nel",
                 "access-control-allow-origin", "x-hop", "alt-svc"):
        assert name not in answer.headers, name
    policies = answer.headers["content-security-policy"]  # the last of two that both hold
    assert policies.startswith("sandbox allow-scripts") and "allow-same-origin" not in policies


def test_redirects_stay_below_the_path(daemon, web):
    port = web.rsplit("/", 1)[1]
    for location, expected in (("/login?x=1", f"{web}/login?x=1"), (f"http://localhost:{port}/a", f"{web}/a"), (f"https://127.0.0.1:{port}", f"{web}/"),
                               ("next", "next"), ("?q", "?q"), (f"//localhost:{port}//evil.example/", f"{web}/evil.example/")):
        answer = fetch_headers(daemon, web, [("Location", location)], 302)
        assert (answer.status, answer.headers["location"]) == (302, expected), location
    for location in ("https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "data:text/html,x",
                     f"http://localhost:{port}@evil.example/"):
        answer = fetch_headers(daemon, web, [("Location", location)], 302)
        assert (answer.status, answer.json["error"]["code"]) == (502, "redirect_refused"), location
        assert "location" not in answer.headers


# --- WebSocket --------------------------------------------------------------------------------------------------------------------


class WebSocket:
    def __init__(self, connection, target, headers=None, host="localhost"):
        self.socket = connection
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while (line := self.file.readline().strip()):
            name, value = line.decode().split(": ", 1)
            self.headers[name.lower()] = value

    def say(self, text):
        size = bytes([128 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        self.socket.sendall(b"\x81" + size + bytes(4) + text)

    def hear(self):
        length = self.file.read(2)[1]
        return self.file.read(struct.unpack(">H", self.file.read(2))[0] if length == 126 else length)

    def close(self):
        self.file.close()
        self.socket.close()


def connect(daemon):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    return connection


def test_websockets_carry_messages_both_ways(daemon, web):
    talk = WebSocket(connect(daemon), web + "/ws", {"Sec-WebSocket-Protocol": "vite-hmr", "Origin": "http://localhost"})
    assert talk.status == 101 and talk.headers["upgrade"] == "websocket" and talk.headers["sec-websocket-protocol"] == "vite-hmr"
    assert talk.headers["sec-websocket-accept"] == "ICX+Yqv66kxgM0FcWaLWlFLwTAI="
    for text in (b"one", b"x" * 5000, "ö".encode()):
        talk.say(text)
        assert talk.hear() == text
    talk.say(b"bye")
    assert talk.hear() == b"bye"
    assert talk.socket.recv(1) == b""  # the server has ended it
    talk.close()


def test_a_server_that_knows_no_websocket_answers_as_usual(daemon, web):
    talk = WebSocket(connect(daemon), web + "/other")
    assert talk.status == 200 and talk.headers["content-type"] == "application/json"
    talk.close()


# --- raw TCP ----------------------------------------------------------------------------------------------------------------------


def tunnel(daemon, session, port, path="", headers=None):
    """A connection that is at the port inside."""
    connection = connect(daemon)
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    connection.sendall(f"GET /api/v1/sessions/{session}/ports/{port}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                       f"{lines}\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 101"), head
    return connection


def receive_all(connection):
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_bytes_pass_and_each_half_ends_by_itself(daemon, session):
    port = serve(daemon, session, "echo")
    for path in ("", "/"):
        connection = tunnel(daemon, session, port, path)
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection) == f"\n5 {hashlib.sha256(b'hello').hexdigest()}".encode()
        connection.close()


def test_a_server_that_closes_its_half_still_hears(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/usr/bin/python3", "-c", SOURCE, "count"], "background": True}, expect=201).json["id"]
    output = f"/sessions/{session}/executions/{run}/output?stream=stdout"
    port = int(wait_for(lambda: (out := daemon.api("GET", output).body).endswith(b"\n") and out, "the port").split()[1])
    connection = tunnel(daemon, session, port)
    assert receive_all(connection) == b"all of it"
    connection.sendall(b"x" * 1_000_000)
    connection.close()
    wait_for(lambda: b"counted 1000000" in daemon.api("GET", output).body, "everything has arrived")


def test_a_hundred_megabytes_go_through_and_back(daemon, session):
    port, total = serve(daemon, session, "echo"), 100_000_000
    connection = tunnel(daemon, session, port)
    connection.settimeout(120)
    digest = hashlib.sha256()

    def send():
        for piece in port_server.pattern(total):
            connection.sendall(piece)
            digest.update(piece)
        connection.shutdown(socket.SHUT_WR)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        sending = pool.submit(send)
        time.sleep(0.5)  # nothing is read meanwhile: the sender is held back
        received = receive_all(connection)
        sending.result()
    assert received[total:] == f"\n{total} {digest.hexdigest()}".encode()
    assert hashlib.sha256(received[:total]).hexdigest() == digest.hexdigest()
    connection.close()


def test_many_tunnels_at_a_time(daemon, session):
    port = serve(daemon, session, "echo")
    connections = [tunnel(daemon, session, port) for _ in range(60)]
    for i, connection in enumerate(connections):
        connection.sendall(b"%d" % i)
    for i, connection in enumerate(connections):
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection).startswith(b"%d\n" % i)
        connection.close()


def test_the_end_of_the_sandbox_ends_tunnels(daemon, session):
    port = serve(daemon, session, "echo")
    connection = tunnel(daemon, session, port)
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", expect=202)
    with pytest.raises(ConnectionError):
        assert connection.recv(1) == b""
        raise ConnectionError  # an end of the stream will do, too
    connection.close()
    assert daemon.api("GET", f"/sessions/{session}/ports/{port}/").status == 502
    daemon.execute(session, ["true"])  # a new sandbox, where nothing listens
    moved = daemon.api("GET", f"/sessions/{session}/ports/{port}/", headers={"X-Sandglass-Generation": "1"})
    assert (moved.status, moved.json["error"]["code"]) == (409, "generation_moved")


def serve_detached(daemon, session, kind):
    """As serve(), by a program that no execution waits for."""
    daemon.api("PUT", f"/sessions/{session}/files?path=server.py", SOURCE.encode(), expect=201)
    daemon.execute(session, command=f"setsid /usr/bin/python3 server.py {kind} >port.txt 2>&1 </dev/null & until grep -q port port.txt; do sleep 0.05; done")
    return int(daemon.api("GET", f"/sessions/{session}/files?path=port.txt", expect=200).body.split()[1])


def test_an_idle_tunnel_does_not_keep_a_session_and_bytes_do(daemon):
    session = daemon.session(idle_timeout=60)
    port = serve_detached(daemon, session, "echo")
    connection = tunnel(daemon, session, port)
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 5}, expect=200)
    for _ in range(9):
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        time.sleep(1)  # almost twice the idle timeout in all
        assert daemon.api("GET", f"/sessions/{session}").json["state"] == "open"
    wait_for(lambda: daemon.ended(session), "the session has ended although the tunnel is open", 30)
    connection.close()


# --- owners and signed URLs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(make_daemon, backend, keys):  # noqa: F811
    """A daemon with keys, on TCP; its domain for ports is *.localhost."""
    ann, bob = (keys.create(name)["key"] for name in ("ann", "bob"))
    daemon = make_daemon(backend=backend, tcp=True, settings={"auth": {"mode": "keys", "keys_file": str(keys.path)}, "ports": {"domain": "localhost"}})
    daemon.ann, daemon.bob = bearer(ann), bearer(bob)
    return daemon


def over_tcp(daemon, method, target, host=None, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        connection.request(method, target, body, headers={"Host": host or f"127.0.0.1:{daemon.port}", **(headers or {})})
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture
def owned(guarded):
    """A session of ann's with a server; both, and the port."""
    session = guarded.api("POST", "/sessions", {}, expect=201, headers=guarded.ann).json["id"]
    return guarded, session, serve(guarded, session, headers=guarded.ann)


def sign(daemon, session, port, **body):
    return daemon.api("POST", f"/sessions/{session}/ports/{port}/url", body, expect=201, headers=daemon.ann).json


def test_a_stranger_finds_nothing(owned):
    daemon, session, port = owned
    base = f"/api/v1/sessions/{session}/ports"
    assert over_tcp(daemon, "GET", f"{base}/{port}/", headers=daemon.ann).status == 200
    unknown = over_tcp(daemon, "GET", f"/api/v1/sessions/ses_00000000000000000000000000/ports/{port}/", headers=daemon.bob)
    for method, path in (("GET", ""), ("GET", f"/{port}"), ("GET", f"/{port}/"), ("POST", f"/{port}/x"), ("POST", f"/{port}/url")):
        answer = over_tcp(daemon, method, base + path, headers={**daemon.bob, "Content-Type": "application/json"}, body=b"{}" if method == "POST" else None)
        assert (answer.status, answer.json["error"]["code"]) == (404, "session_not_found"), path
    assert unknown.status == 404
    assert over_tcp(daemon, "GET", f"{base}/{port}/").status == 401
    host = f"{port}-{session}.localhost:{daemon.port}"
    assert over_tcp(daemon, "GET", "/", host, daemon.ann).status == 200
    assert over_tcp(daemon, "GET", "/", host, daemon.bob).status == 404
    assert over_tcp(daemon, "GET", "/", host).status == 404
    assert over_tcp(daemon, "GET", "/", f"{port}-ses_00000000000000000000000000.localhost").status == 404
    assert over_tcp(daemon, "GET", "/", host, bearer("sg_" + "0" * 64)).status == 401


def test_a_signed_path_opens_one_port_until_it_expires(owned):
    daemon, session, port = owned
    signed = sign(daemon, session, port, expires=3600)
    assert signed["port"] == port and signed["session_id"] == session
    path = signed["path"]
    answer = over_tcp(daemon, "GET", path + "a/b?c=d")
    assert (answer.status, answer.json["path"]) == (200, "/a/b?c=d")
    assert answer.headers["content-security-policy"].startswith("sandbox ") and answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["referrer-policy"] == "no-referrer" and "x-forwarded-prefix" not in answer.json["headers"]
    # Pages below the path have no origin: what their browser asks first is answered, and what it then sends arrives.
    asked = over_tcp(daemon, "OPTIONS", path, headers={"Origin": "null", "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-a"})
    assert (asked.status, asked.headers["access-control-allow-methods"], asked.headers["access-control-allow-headers"]) == (204, "PUT", "x-a")
    put = over_tcp(daemon, "PUT", path + "x", headers={"Origin": "null", "Sec-Fetch-Site": "cross-site"}, body=b"body")
    assert (put.status, put.json["headers"]["origin"], put.json["body"]["length"]) == (200, f"http://localhost:{port}", 4)
    for wrong in (path[:-2] + ("0" if path[-2] != "0" else "1") + "/", path.replace(f".{port}.", f".{port + 1}."), "/api/v1/ports/x/", "/api/v1/ports/a.b.c/"):
        assert over_tcp(daemon, "GET", wrong).json["error"]["code"] == "url_not_found", wrong
    before = time.monotonic()
    short = sign(daemon, session, port, expires=3)["path"]
    early = over_tcp(daemon, "GET", short)
    assert early.status == 200 or time.monotonic() - before > 2, "it ends with a whole second"
    expired = wait_for(lambda: (late := over_tcp(daemon, "GET", short)).status != 200 and late, "the URL has expired")
    assert (expired.status, expired.json["error"]["code"]) == (403, "url_expired")
    pinned = sign(daemon, session, port, generation=7)["path"]
    assert over_tcp(daemon, "GET", pinned).json["error"]["code"] == "generation_moved"
    daemon.api("DELETE", f"/sessions/{session}", expect=200, headers=daemon.ann)
    assert over_tcp(daemon, "GET", path).status == 410


def test_signed_urls_survive_a_restart_of_the_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}})
    session = daemon.session()
    port = serve(daemon, session)
    path = daemon.api("POST", f"/sessions/{session}/ports/{port}/url", {}, expect=201).json["path"]
    daemon.kill()
    daemon.start()
    assert wait_for(lambda: (answer := daemon.request("GET", path)).status == 200 and answer, "the port is reached again").json["path"] == "/"
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_a_host_name_is_opened_by_its_signature_and_keeps_a_cookie(owned):
    daemon, session, port = owned
    url = urllib.parse.urlsplit(sign(daemon, session, port)["url"])
    host = f"{port}-{session}.localhost"
    assert url.netloc == host
    host += f":{daemon.port}"
    first = over_tcp(daemon, "GET", f"//evil.example/?a=1&{url.query}&b=2", host, {"Accept": "text/html"})
    assert (first.status, first.headers["location"]) == (303, "/evil.example/?a=1&b=2")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Domain" not in cookie
    opened = {"Cookie": f"app=1; {cookie.split(';')[0]}; other=2"}
    page = over_tcp(daemon, "GET", "/a?b=c", host, {**opened, "Authorization": "Bearer of-the-app"})
    assert (page.status, page.json["path"]) == (200, "/a?b=c")
    assert page.json["headers"]["cookie"] == "app=1; other=2" and page.json["headers"]["authorization"] == "Bearer of-the-app"
    assert page.json["headers"]["x-forwarded-host"] == host and "content-security-policy" not in page.headers
    assert "authorization" not in over_tcp(daemon, "GET", "/", host, {**opened, **daemon.ann}).json["headers"]
    # Programs need no cookie.
    direct = over_tcp(daemon, "GET", f"/x?{url.query}&y=1", host)
    assert (direct.status, direct.json["path"]) == (200, "/x?y=1")
    # The same page on another port or of another session is another one.
    for other in (f"{port + 1}-{session}.localhost", f"{port}-ses_00000000000000000000000000.localhost"):
        assert over_tcp(daemon, "GET", "/", other, opened).status == 404
    # Pages of other hosts may open the page and nothing else, although the browser sends the cookie.
    sibling = {"Origin": "http://3000-ses_00000000000000000000000001.localhost", "Sec-Fetch-Site": "same-site"}
    assert over_tcp(daemon, "POST", "/", host, {**opened, **sibling}, b"x").status == 404
    assert over_tcp(daemon, "GET", "/", host, {**opened, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}).status == 404
    assert over_tcp(daemon, "GET", "/", host, {**opened, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}).status == 404
    assert over_tcp(daemon, "GET", "/", host, {**opened, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}).status == 200
    assert over_tcp(daemon, "POST", "/", host, {**opened, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}, b"x").status == 200


def test_a_server_with_a_host_name_sets_cookies_for_that_alone(owned):
    daemon, session, port = owned
    host = f"{port}-{session}.localhost:{daemon.port}"
    query = urllib.parse.urlencode({"set": json.dumps([["Set-Cookie", "sandglass-port=x; Path=/"]]), "status": 200})
    assert "set-cookie" not in over_tcp(daemon, "GET", f"/headers?{query}", host, daemon.ann).headers
    query = urllib.parse.urlencode({"set": json.dumps([["Set-Cookie", "a=b; Domain=localhost; Path=/"], ["Location", f"http://localhost:{port}/in"]]), "status": 302})
    answer = over_tcp(daemon, "GET", f"/headers?{query}", host, daemon.ann)
    assert (answer.headers["set-cookie"], answer.headers["location"]) == ("a=b; Path=/", "/in")


def test_an_expired_signature_is_forbidden_by_host_too(owned):
    daemon, session, port = owned
    host = f"{port}-{session}.localhost"
    query = urllib.parse.urlsplit(sign(daemon, session, port, expires=1)["url"]).query
    late = wait_for(lambda: (answer := over_tcp(daemon, "GET", f"/?{query}", host)).status != 200 and answer, "it has expired")
    assert (late.status, late.json["error"]["code"]) == (403, "url_expired")
    assert over_tcp(daemon, "GET", "/?sandglass=nonsense", host).status == 404


def test_websockets_work_by_signed_path_and_by_host(owned):
    daemon, session, port = owned
    signed = sign(daemon, session, port)
    query = urllib.parse.urlsplit(signed["url"]).query
    for target, host in ((signed["path"] + "ws", "localhost"), (f"/ws?{query}", f"{port}-{session}.localhost")):
        talk = WebSocket(socket.create_connection(("127.0.0.1", daemon.port), 30), target, {"Origin": "null"}, host)
        assert talk.status == 101
        talk.say(b"hot")
        assert talk.hear() == b"hot"
        talk.close()


# --- the command line -------------------------------------------------------------------------------------------------------------


class Tunnel:
    """`sandglass port` in the background; `port` is the one of this host."""

    def __init__(self, daemon, *arguments, environment=None):
        self.process = subprocess.Popen([SANDGLASS, "port", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "SANDGLASS_URL": daemon.url, **(environment or {})})
        line = self.process.stdout.readline()
        assert line.startswith("127.0.0.1:"), self.process.stderr.read()
        self.port = int(line.split(":")[1])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 60)

    def fetch(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 0, self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()


def test_the_command_lists_ports(daemon, session):
    assert daemon.cli("port", session).stdout == ""
    port = serve(daemon, session)
    assert daemon.cli("port", session).stdout == f"{port}\t/api/v1/sessions/{session}/ports/{port}/\n"
    assert [row["port"] for row in json.loads(daemon.cli("port", session, "--json").stdout)["ports"]] == [port]


def test_the_command_is_a_tunnel_for_many_connections(daemon, session):
    port = serve(daemon, session)
    tunnel = Tunnel(daemon, session, f"0:{port}")
    assert tunnel.fetch("/x").json["headers"]["host"] == f"127.0.0.1:{tunnel.port}"  # as it is, for whoever connects
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        sizes = list(pool.map(lambda i: len(tunnel.fetch(f"/big?bytes={1_000_000 + i}").body), range(40)))
    assert sizes == [1_000_000 + i for i in range(40)]
    tunnel.stop()


def test_a_tunnel_passes_half_closed_connections(daemon, session):
    tunnel = Tunnel(daemon, session, f"0:{serve(daemon, session, 'echo')}")
    connection = tunnel.connect()
    connection.sendall(b"x" * 1000)
    connection.shutdown(socket.SHUT_WR)
    assert receive_all(connection) == b"x" * 1000 + f"\n1000 {hashlib.sha256(b'x' * 1000).hexdigest()}".encode()
    connection.close()
    tunnel.stop()


def test_a_tunnel_survives_a_restart_of_the_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session()
    tunnel = Tunnel(daemon, session, f"0:{serve(daemon, session)}")
    assert tunnel.fetch("/before").status == 200
    daemon.kill()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(tunnel.fetch, "/meanwhile")  # it waits for the daemon
        daemon.start()
        assert waiting.result(60).json["path"] == "/meanwhile"
    assert tunnel.fetch("/after").status == 200
    tunnel.stop()


def test_a_tunnel_ends_with_its_session(daemon, session):
    port = serve(daemon, session)
    tunnel = Tunnel(daemon, session, f"0:{port}")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    with tunnel.connect() as connection:
        assert connection.recv(1) == b""
    assert tunnel.process.wait(20) == 1
    assert "has ended" in tunnel.process.stderr.read()
    tunnel.process.stdout.close()
    tunnel.process.stderr.close()


def test_a_port_that_nothing_serves_closes_connections_and_says_so(daemon, session):
    daemon.execute(session, ["true"])
    tunnel = Tunnel(daemon, session, "0:1")
    with tunnel.connect() as connection:
        assert connection.recv(1) == b""
    assert tunnel.process.poll() is None
    tunnel.process.send_signal(signal.SIGINT)
    assert "nothing listens on port 1" in tunnel.process.communicate(timeout=20)[1]


def test_wrong_uses_of_the_command_are_told(daemon, session):
    for arguments in ((), (session, "1", "2"), (session, "x"), (session, "1:2:3"), (session, "70000"), (session, "0"), (session, "--sign"),
                      (session, "80", "--expires", "1h")):
        assert daemon.cli("port", *arguments).returncode == 2, arguments
    assert daemon.cli("port", "ses_00000000000000000000000000", "80").returncode == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = daemon.cli("port", session, f"{taken.getsockname()[1]}:80")
    assert busy.returncode == 1 and "0:80" in busy.stderr


def test_the_command_signs_urls(daemon, session):
    port = serve(daemon, session)
    path = daemon.cli("port", session, port, "--sign", "--expires", "5m").stdout.strip()
    assert daemon.request("GET", path + "x").json["path"] == "/x"
    assert json.loads(daemon.cli("port", session, port, "--sign", "--json").stdout)["port"] == port


def test_the_commands_of_the_page_work(daemon, session):
    page = (ROOT / "docs" / "reference" / "ports.md").read_text()
    port, free = serve(daemon, session), free_port()
    commands = [re.split(r"\s{2,}", line)[0].split()[2:] for line in page.splitlines() if line.startswith("sandglass port ")]
    assert len(commands) == 4
    for words in commands:
        own = {"SESSION": session, "8080": str(free), "3000": str(port)}
        words = [re.sub("|".join(own), lambda found: own[found[0]], word) for word in words]
        if len(words) == 2 and ":" not in words[1]:
            words[1] = f"0:{port}"  # a direct sandbox has that port of this host itself
        if len(words) == 2:
            tunnel = Tunnel(daemon, *words)
            assert tunnel.fetch("/page-of-the-manual").status == 200
            tunnel.stop()
        else:
            assert daemon.cli("port", *words).stdout.strip()


def test_a_port_of_the_host_is_not_reached(daemon, session):
    daemon.execute(session, ["true"])
    with socket.create_server(("127.0.0.1", 0)) as host:
        answer = daemon.api("GET", f"/sessions/{session}/ports/{host.getsockname()[1]}/")
    assert (answer.status, answer.json["error"]["code"]) == (502, "port_closed")


def test_open_tunnels_do_not_hold_up_the_end_of_the_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session()
    connection = tunnel(daemon, session, serve(daemon, session, "echo"))
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    daemon.stop()
    connection.close()


def test_a_tunnel_goes_through_tls_and_ends_each_direction_by_itself(make_daemon, work):
    secure = SecureDaemon(make_daemon(start=False), work)
    session = secure.daemon.session()
    port = serve(secure.daemon, session, "echo")
    reached = types.SimpleNamespace(url=f"https://127.0.0.1:{secure.port}")
    keys = {"SSL_CERT_FILE": str(secure.certificate.chain), "SANDGLASS_API_KEY": secure.daemon.token(secure.port)}
    tunnel = Tunnel(reached, session, f"0:{port}", environment=keys)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def once(i):
            with tunnel.connect() as connection:
                body = b"%d" % i * 300_000
                sending = pool2.submit(lambda: (connection.sendall(body), connection.shutdown(socket.SHUT_WR)))
                received = receive_all(connection)
                sending.result()
                return received == body + f"\n{len(body)} {hashlib.sha256(body).hexdigest()}".encode()
        with concurrent.futures.ThreadPoolExecutor(8) as pool2:
            assert all(pool.map(once, range(16)))
    tunnel.stop()
