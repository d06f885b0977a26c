# SPDX-License-Identifier: Apache-2.0
"""TLS on TCP listeners: what is spoken, what is not, and new certificates without a restart."""
import json
import os
import signal
import socket
import ssl
import time

import pytest

import issuer
from conftest import free_port, wait_for
from test_auth import TcpDaemon


class SecureDaemon:
    def __init__(self, daemon, work, key_mode=0o644):
        self.certificate = issuer.Certificate(work)
        os.chmod(self.certificate.key, key_mode)
        self.daemon = daemon
        self.port = free_port()
        daemon.settings["tls"] = {"certificate": str(self.certificate.chain), "key": str(self.certificate.key)}
        daemon.url += f" 127.0.0.1:{self.port}"
        daemon.start()
        daemon.url = daemon.url.split()[0]

    def context(self, certificate=None, **changes):
        context = ssl.create_default_context(cafile=(certificate or self.certificate).chain)
        for name, value in changes.items():
            setattr(context, name, value)
        return context

    def client(self):
        return TcpDaemon(self.port, self.context(), self.daemon.token(self.port))

    def connect(self, context=None):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return (context or self.context()).wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture
def secure(make_daemon, work):
    return SecureDaemon(make_daemon(start=False, backend="direct", settings={"pool": {"size": 0}}), work)


def test_tcp_speaks_tls_and_the_unix_socket_does_not(secure):
    assert secure.client().request("GET", "/healthz").status == 200
    assert secure.daemon.request("GET", "/healthz").status == 200
    with socket.create_connection(("127.0.0.1", secure.port), timeout=30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            assert not plain.recv(65536).startswith(b"HTTP")
        except ConnectionResetError:
            pass


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_and_other_protocols_are_refused(secure):
    old = secure.context()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        secure.connect(old).close()
    other = secure.context()
    other.set_alpn_protocols(["h2"])
    with pytest.raises((ssl.SSLError, OSError)):
        with secure.connect(other) as connection:
            connection.recv(1)
    both = secure.context()
    both.set_alpn_protocols(["h2", "http/1.1"])
    with secure.connect(both) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() in ("TLSv1.2", "TLSv1.3")


def test_requests_follow_each_other_on_one_connection(secure):
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with secure.connect() as connection:
        connection.sendall(request * 20)
        received = b""
        while received.count(b'"status":"ok"') < 20:
            data = connection.recv(65536)
            assert data, received[-500:]
            received += data


def test_a_large_body_goes_both_ways(secure):
    client = secure.client()
    json_type = {"Content-Type": "application/json"}
    session = client.request("POST", "/api/v1/sessions", json_type, b"{}").json["id"]
    content = os.urandom(3 << 20)
    path = f"/api/v1/sessions/{session}/files?path=large"
    put = client.request("PUT", path, {"Content-Type": "application/octet-stream"}, content)
    assert put.status in (200, 201), put.body
    assert client.request("GET", path).body == content
    argv = json.dumps({"argv": ["head", "-c", "2000000", "/dev/zero"]}).encode()
    execution = client.request("POST", f"/api/v1/sessions/{session}/executions", json_type, argv).json["id"]
    output = client.request("GET", f"/api/v1/sessions/{session}/executions/{execution}/output?stream=stdout")
    assert output.body == b"\0" * 2000000


def test_a_reader_that_is_slow_gets_everything(secure):
    client = secure.client()
    session = client.request("POST", "/api/v1/sessions", {"Content-Type": "application/json"}, b"{}").json["id"]
    content = os.urandom(4 << 20)
    path = f"/api/v1/sessions/{session}/files?path=large"
    client.request("PUT", path, {"Content-Type": "application/octet-stream"}, content)
    with secure.connect() as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-API-Key: {secure.daemon.token(secure.port)}\r\n\r\n"
        connection.sendall(head.encode())
        received = b""
        while data := connection.recv(65536):
            received += data
            time.sleep(0.001)
    assert received.partition(b"\r\n\r\n")[2] == content


def test_clients_that_leave_at_any_point_leave_nothing(secure):
    client = secure.client()
    assert client.request("GET", "/healthz").status == 200
    before = secure.daemon.descriptors()
    for i in range(30):
        plain = socket.create_connection(("127.0.0.1", secure.port), timeout=30)
        if i % 3 == 1:
            plain.sendall(os.urandom(100))
        if i % 3 == 2:
            plain = secure.context().wrap_socket(plain, server_hostname="127.0.0.1")
            plain.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        plain.close()
    wait_for(lambda: secure.daemon.descriptors() <= before, "their descriptors are closed")
    assert client.request("GET", "/healthz").status == 200


def test_silent_clients_are_closed_after_the_time_for_a_head(make_daemon, work):
    daemon = make_daemon(start=False, backend="direct", settings={"pool": {"size": 0}, "http": {"head_timeout": 0.3}})
    secure = SecureDaemon(daemon, work)
    with socket.create_connection(("127.0.0.1", secure.port), timeout=30) as silent:
        assert silent.recv(1) == b""


def test_sighup_brings_a_new_certificate_and_keeps_open_connections(secure, work):
    old = secure.connect()
    fresh = issuer.Certificate(work, "fresh")
    os.chmod(fresh.key, 0o644)
    os.replace(fresh.chain, secure.certificate.chain)
    os.replace(fresh.key, secure.certificate.key)
    secure.daemon.process.send_signal(signal.SIGHUP)

    def serves_the_fresh_one():
        try:
            return secure.client().request("GET", "/healthz").status == 200
        except ssl.SSLError:
            return False

    wait_for(serves_the_fresh_one, "the new certificate is shown")
    old.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert old.recv(65536).startswith(b"HTTP/1.1 200")
    old.close()

    secure.certificate.chain.write_text("broken")
    secure.daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "was not reloaded" in secure.daemon.log(), "the broken one is refused")


def test_a_key_that_only_root_may_read_is_read_before_power_is_dropped(make_daemon, work):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    secure = SecureDaemon(make_daemon(start=False, backend="direct", settings={"pool": {"size": 0}}), work, key_mode=0o600)
    assert secure.client().request("GET", "/healthz").status == 200

    # The daemon may not read it again: it says so, and goes on with what it has.
    secure.daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "was not reloaded" in secure.daemon.log() and "Permission denied" in secure.daemon.log(), "the reload is refused")
    assert secure.client().request("GET", "/healthz").status == 200


def test_a_key_that_does_not_fit_stops_the_start(make_daemon, work):
    one, other = issuer.Certificate(work, "one"), issuer.Certificate(work, "other")
    os.chmod(other.key, 0o644)
    daemon = make_daemon(start=False, backend="direct",
                         settings={"tls": {"certificate": str(one.chain), "key": str(other.key)}})
    with pytest.raises(pytest.fail.Exception, match="key"):
        daemon.start()


def test_the_command_line_speaks_tls_with_whom_it_trusts(secure, work):
    url = f"https://127.0.0.1:{secure.port}"
    trusted = {"SSL_CERT_FILE": str(secure.certificate.chain), "SANDGLASS_STATE_DIR": str(secure.daemon.state)}
    created = secure.daemon.cli("--url", url, "session", "create", "--json", environment=trusted)
    assert created.returncode == 0, created.stderr
    done = secure.daemon.cli("--url", url, "exec", json.loads(created.stdout)["id"], "--", "head", "-c", "1000000", "/dev/zero",
                             environment=trusted)
    assert done.returncode == 0 and done.stdout == "\0" * 1000000, done.stderr
    doubted = secure.daemon.cli("--url", url, "ls", environment={"SSL_CERT_FILE": str(issuer.Certificate(work, "other").chain)})
    assert doubted.returncode != 0 and "not trusted" in doubted.stderr
    named = secure.daemon.cli("--url", f"https://localhost:{secure.port}", "ls", environment=trusted)
    assert named.returncode == 0, named.stderr
