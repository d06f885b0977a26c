# SPDX-License-Identifier: Apache-2.0
"""Who may do what: keys, tokens, rates, and a daemon that web pages cannot reach."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time

import pytest

import issuer
from conftest import SANDGLASS, Answer, free_port, wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)


# --- keys ----------------------------------------------------------------------------------------

def status(daemon, headers, path="/api/v1/whoami"):
    return daemon.request("GET", path, headers=headers).status


def test_a_key_opens_the_door_in_each_form(keys, keyed):
    key = keys.create("ann")["key"]
    daemon = keyed()
    for headers in (bearer(key), {"X-API-Key": key}, {"X-API-Key": "e2b_" + key[3:]}, {**bearer(key), "X-API-Key": key}):
        answer = daemon.request("GET", "/api/v1/whoami", headers=headers)
        assert answer.status == 200
        assert answer.json["owner"] == answer.json["principal"] == "ann"
        assert answer.json["roles"] == ["user"]


def test_missing_and_wrong_keys_are_refused(keys, keyed):
    key = keys.create("ann")["key"]
    daemon = keyed()
    missing = daemon.request("GET", "/api/v1/whoami")
    assert missing.status == 401
    assert missing.headers["www-authenticate"] == 'Bearer realm="sandglass"'
    bodies = set()
    for wrong in ("x", "sg_" + "0" * 64, key[:-1], key + "0", key.upper(), "sg_" + "z" * 64):
        answer = daemon.request("GET", "/api/v1/whoami", headers=bearer(wrong))
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        bodies.add(answer.body)
    assert len(bodies) == 1, "how a key is wrong must not be told"
    assert status(daemon, {**bearer(key), "X-API-Key": "sg_other"}) == 400
    assert status(daemon, {"Authorization": "Basic YTpi"}) == 401


def test_no_header_query_cookie_or_body_chooses_the_owner(keys, keyed):
    ann, bob = keys.create("ann")["key"], keys.create("bob")["key"]
    daemon = keyed()
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=bearer(bob)).json["id"]
    spoofs = [{"X-Sandglass-On-Behalf-Of": "bob"}, {"X-Sandglass-Owner": "bob"}, {"X-Forwarded-User": "bob"},
              {"Cookie": "owner=bob"}, {"Authorization-Owner": "bob"}]
    for spoof in spoofs:
        headers = {**bearer(ann), **spoof}
        assert daemon.request("GET", "/api/v1/whoami", headers=headers).json["owner"] == "ann"
        assert daemon.request("GET", f"/api/v1/sessions/{session}", headers=headers).status == 404
    assert status(daemon, {**bearer(ann), "X_Sandglass_On_Behalf_Of": "bob"}) == 400
    assert daemon.request("GET", "/api/v1/sessions?owner=bob", headers=bearer(ann)).status == 403
    assert daemon.request("POST", "/api/v1/sessions", {"owner": "bob"}, headers=bearer(ann)).status == 400
    twice = raw(daemon, f"GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {ann}\r\nX-API-Key: {bob}\r\n\r\n")
    assert twice.startswith(b"HTTP/1.1 400 ")


def raw(daemon, text):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(daemon.socket))
        connection.sendall(text.encode())
        return connection.recv(65536)


def test_new_and_revoked_keys_are_noticed(keys, keyed):
    first = keys.create("ann")
    daemon = keyed()
    assert status(daemon, bearer(first["key"])) == 200
    second = keys.create("bob")
    wait_for(lambda: status(daemon, bearer(second["key"])) == 200, "the new key is taken")
    assert keys.command("revoke", first["id"]).returncode == 0
    wait_for(lambda: status(daemon, bearer(first["key"])) == 401, "the revoked key is refused")
    assert status(daemon, bearer(second["key"])) == 200
    third = keys.create("cem")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: status(daemon, bearer(third["key"])) == 200, "SIGHUP reads keys")


def test_keys_are_stored_hashed_and_listed_with_their_last_use(keys, keyed):
    made = keys.create("ann", "admin")
    unused = keys.create("bob", expires="1h")
    assert keys.path.stat().st_mode & 0o777 == 0o600
    assert made["key"][3:] not in keys.path.read_text()
    daemon = keyed()
    assert status(daemon, bearer(made["key"])) == 200
    listed = subprocess.run([SANDGLASS, "key", "ls", "--json", "--keys-file", keys.path], capture_output=True, text=True,
                            env={**os.environ, "SANDGLASS_URL": daemon.url, "SANDGLASS_API_KEY": made["key"]}, timeout=30)
    rows = {row["id"]: row for row in json.loads(listed.stdout)["keys"]}
    assert rows[made["id"]]["last_used_at"] and rows[made["id"]]["roles"] == ["user", "admin"]
    assert rows[unused["id"]]["last_used_at"] is None and rows[unused["id"]]["expires_at"]
    assert made["key"] not in listed.stdout and made["key"] not in daemon.log()


def test_the_last_use_of_a_key_survives_a_restart(keys, keyed):
    made = keys.create("ann", "admin")
    daemon = keyed()

    def last_use():
        rows = daemon.request("GET", "/api/v1/keys", headers=bearer(made["key"])).json["keys"]
        return next(row["last_used_at"] for row in rows if row["id"] == other["id"])

    other = keys.create("bob")
    wait_for(lambda: status(daemon, bearer(other["key"])) == 200, "the key is taken")
    before = last_use()
    daemon.stop()
    daemon.start()
    assert before and wait_for(last_use, "the last use is known again") == before


def test_wrong_credentials_are_throttled_for_their_address_only(keys, keyed):
    key, fresh = keys.create("ann")["key"], keys.create("bob")["key"]
    daemon = keyed(failure_limit=2)  # in a minute: the next one is half a minute away
    assert status(daemon, bearer(key)) == 200
    seen = [status(daemon, bearer(f"sg_{i:064x}")) for i in range(8)]
    assert seen == [401] * 2 + [429] * 6
    limited = daemon.request("GET", "/api/v1/whoami", headers=bearer(fresh))
    assert limited.status == 429 and int(limited.headers["retry-after"]) >= 1
    assert status(daemon, bearer(key)) == 200, "a caller who is known does not wait"


def test_a_principal_has_a_rate_and_is_told_when_to_come_back(keys, keyed):
    ann, bob = keys.create("ann")["key"], keys.create("bob")["key"]
    daemon = keyed(http={"rate_limit": 1, "rate_burst": 5})
    assert [status(daemon, bearer(ann)) for _ in range(5)] == [200] * 5
    limited = wait_for(lambda: (a := daemon.request("GET", "/api/v1/whoami", headers=bearer(ann))).status == 429 and a,
                       "the rate is over")
    assert limited.json["error"]["code"] == "rate_limited" and limited.json["error"]["retryable"]
    assert int(limited.headers["retry-after"]) >= 1
    assert status(daemon, bearer(bob)) == 200
    assert daemon.request("GET", "/healthz").status == 200


def test_open_answers_go_on_when_their_key_is_revoked(keys, keyed):
    made = keys.create("ann")
    daemon = keyed()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    connection.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nX-API-Key: {made['key']}\r\n\r\n".encode())
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert keys.command("revoke", made["id"]).returncode == 0
    wait_for(lambda: status(daemon, bearer(made["key"])) == 401, "the revoked key is refused")
    connection.settimeout(0.2)
    with pytest.raises(socket.timeout):  # which the end of the stream does not raise
        while connection.recv(65536):
            pass
    connection.close()


def test_a_keys_file_that_others_may_write_stops_the_start(keys, make_daemon):
    keys.create("ann")
    keys.path.chmod(0o666)
    daemon = make_daemon(start=False, backend="direct",
                         settings={"auth": {"mode": "keys", "keys_file": str(keys.path)}})
    with pytest.raises(pytest.fail.Exception, match="written by others"):
        daemon.start()


# --- tokens --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def signing():
    return {name: issuer.Key(name, f"key-{name}") for name in ("RS256", "ES256", "EdDSA")}


@pytest.fixture
def with_tokens(make_daemon, work):
    """with_tokens(text or url) starts a daemon that checks tokens."""
    def make(text=None, url=None, environment=None, **more):
        jwt = {"issuer": issuer.ISSUER, "audience": issuer.AUDIENCE, **more}
        if text:
            path = work / "jwks.json"
            path.write_text(text)
            jwt["jwks_file"] = str(path)
        else:
            jwt["jwks_url"] = url
        return make_daemon(backend="direct", environment=environment, settings={
            "pool": {"size": 0}, "auth": {"mode": "jwt", "jwt": jwt, "failure_limit": 0}})
    return make


@pytest.fixture
def serve_keys():
    servers = []

    def serve(*arguments):
        servers.append(issuer.KeyServer(*arguments))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def test_tokens_of_every_algorithm_are_taken(signing, with_tokens):
    daemon = with_tokens(issuer.jwks(*signing.values()))
    for key in signing.values():
        answer = daemon.request("GET", "/api/v1/whoami", headers=bearer(issuer.token(key, sub=f"user|{key.algorithm}")))
        assert answer.status == 200, answer.body
        assert answer.json["owner"] == f"user|{key.algorithm}"


def test_roles_come_from_their_claim(signing, with_tokens):
    daemon = with_tokens(issuer.jwks(signing["ES256"]))
    for roles, expected in (["admin", "painter"], ["user", "admin"]), ("approver admin", ["user", "approver", "admin"]), (7, ["user"]):
        answer = daemon.request("GET", "/api/v1/whoami", headers=bearer(issuer.token(signing["ES256"], roles=roles)))
        assert answer.json["roles"] == expected


def wrong_tokens(keys):
    good = keys["RS256"]
    stranger = issuer.Key("RS256", good.kid)
    now = time.time()
    yield "another issuer", issuer.token(good, iss="https://other.example")
    yield "no issuer", issuer.token(good, iss=None)
    yield "another audience", issuer.token(good, aud="other")
    yield "other audiences", issuer.token(good, aud=["other", "more"])
    yield "no audience", issuer.token(good, aud=None)
    yield "expired", issuer.token(good, exp=now - 61)
    yield "no expiry", issuer.token(good, exp=None)
    yield "expiry as text", issuer.token(good, exp=str(now + 300))
    yield "not yet valid", issuer.token(good, nbf=now + 90)
    yield "no subject", issuer.token(good, sub=None)
    yield "a subject of two lines", issuer.token(good, sub="a\nb")
    yield "a subject that is too long", issuer.token(good, sub="a" * 257)
    yield "algorithm none", issuer.token_without_signature(good)
    yield "algorithm None", issuer.token_without_signature(good, "None")
    yield "no signature", issuer.token_without_signature(good, "RS256")
    yield "HS256 with the public key", issuer.token_by_public_key(good)
    yield "an unknown kid", issuer.token(good, header={"kid": "other"})
    yield "no kid among several keys", issuer.token(good, header={"kid": None})
    yield "the kid of another key", issuer.token(good, header={"kid": keys["ES256"].kid})
    yield "a stranger's key", issuer.token(stranger)
    yield "a stranger's key in the header", issuer.token(stranger, header={"jwk": stranger.jwk()})
    yield "a critical header", issuer.token(good, header={"crit": ["exp"]})
    yield "an altered payload", issuer.token(good).replace(".", ".e", 1)
    yield "a token and more", issuer.token(good) + ".e30"
    yield "nonsense", "a.b.c"


def test_wrong_tokens_are_refused(signing, with_tokens):
    daemon = with_tokens(issuer.jwks(*signing.values()))
    assert status(daemon, bearer(issuer.token(signing["RS256"]))) == 200
    accepted = [name for name, token in wrong_tokens(signing) if status(daemon, bearer(token)) != 401]
    assert not accepted


def test_clocks_may_differ_by_a_minute(signing, with_tokens):
    daemon = with_tokens(issuer.jwks(signing["EdDSA"]))
    now = time.time()
    assert status(daemon, bearer(issuer.token(signing["EdDSA"], exp=now - 50))) == 200
    assert status(daemon, bearer(issuer.token(signing["EdDSA"], nbf=now + 50))) == 200


def test_a_known_token_still_expires(signing, with_tokens):
    daemon = with_tokens(issuer.jwks(signing["EdDSA"]), skew=0)

    def known():
        """A token that was taken; the machine may be slower than one lives."""
        token = issuer.token(signing["EdDSA"], exp=time.time() + 1.5)
        return status(daemon, bearer(token)) == 200 and token

    token = wait_for(known, "a token is taken")
    wait_for(lambda: status(daemon, bearer(token)) == 401, "the token has expired")


def test_a_rotated_file_of_keys_is_read_again(signing, with_tokens, work):
    old, fresh = issuer.Key("ES256", "old"), issuer.Key("ES256", "fresh")
    daemon = with_tokens(issuer.jwks(old))
    assert status(daemon, bearer(issuer.token(old))) == 200
    (work / "jwks.new").write_text(issuer.jwks(fresh))
    os.replace(work / "jwks.new", work / "jwks.json")
    wait_for(lambda: status(daemon, bearer(issuer.token(fresh))) == 200, "the new key is known")
    assert status(daemon, bearer(issuer.token(old))) == 401


def test_an_unknown_key_is_fetched_at_once_and_never_more_often_than_the_cooldown(with_tokens, serve_keys):
    old, fresh = issuer.Key("ES256", "old"), issuer.Key("ES256", "fresh")
    server = serve_keys(issuer.jwks(old))
    daemon = with_tokens(url=server.url, cooldown=1)
    assert status(daemon, bearer(issuer.token(old))) == 200
    server.text = issuer.jwks(old, fresh)
    time.sleep(1.1)  # the cooldown, which is what is tested
    assert status(daemon, bearer(issuer.token(fresh))) == 200, "the request waits for the fetch"
    fetched, begin = server.requests, time.monotonic()
    for i in range(20):
        assert status(daemon, bearer(issuer.token(fresh, header={"kid": f"made-up-{i}"}))) == 401
    assert server.requests <= fetched + 2 + int(time.monotonic() - begin), "one in each cooldown"


def test_while_the_issuer_is_away_its_keys_go_on(with_tokens, serve_keys):
    key = issuer.Key("ES256", "a")
    server = serve_keys(issuer.jwks(key))
    daemon = with_tokens(url=server.url, cooldown=0.1, cache=1)
    assert status(daemon, bearer(issuer.token(key))) == 200
    server.status = 500
    before = server.requests
    wait_for(lambda: status(daemon, bearer(issuer.token(key))) == 200 and server.requests > before, "old keys are fetched again")
    assert status(daemon, bearer(issuer.token(key))) == 200


def test_without_any_keys_of_the_issuer_the_daemon_says_so(with_tokens, serve_keys):
    key = issuer.Key("ES256", "a")
    server = serve_keys("not json")
    daemon = with_tokens(url=server.url, cooldown=0.2)
    answer = daemon.request("GET", "/api/v1/whoami", headers=bearer(issuer.token(key)))
    assert answer.status == 503 and answer.json["error"]["code"] == "issuer_unavailable"
    assert daemon.request("GET", "/healthz").status == 200
    server.text = issuer.jwks(key)
    wait_for(lambda: status(daemon, bearer(issuer.token(key))) == 200, "the keys are there")


def test_keys_come_over_tls_from_whom_the_certificate_names(with_tokens, serve_keys, work):
    certificate, other = issuer.Certificate(work), issuer.Certificate(work, "another")
    certificate.chain.chmod(0o644)
    key = issuer.Key("EdDSA", "a")
    server = serve_keys(issuer.jwks(key), certificate)
    trusting = with_tokens(url=server.url, environment={"SSL_CERT_FILE": str(certificate.chain)})
    assert status(trusting, bearer(issuer.token(key))) == 200
    doubting = with_tokens(url=server.url, environment={"SSL_CERT_FILE": str(other.chain)})
    assert status(doubting, bearer(issuer.token(key))) == 503
    wait_for(lambda: "certificate" in doubting.log(), "the log says why")


# --- web pages -----------------------------------------------------------------------------------

class TcpDaemon:
    """A running daemon asked over TCP, with headers as they are given."""

    def __init__(self, port, context=None, token=None):
        self.port = port
        self.context = context
        self.token = token  # sent unless the headers have credentials of their own

    def request(self, method, path, headers=None, body=None):
        if self.context:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in (headers or {}))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if self.token and "Authorization" not in (headers or {}):
                connection.putheader("Authorization", f"Bearer {self.token}")
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()


def over_tcp(daemon, context=None):
    """Lets a daemon that has not been started listen on a TCP port too."""
    port = free_port()
    daemon.url += f" 127.0.0.1:{port}"
    daemon.start()
    daemon.url = daemon.url.split()[0]
    return TcpDaemon(port, context, daemon.token(port))


@pytest.fixture
def local(make_daemon):
    return over_tcp(make_daemon(start=False, backend="direct", settings={"pool": {"size": 0}, "http": {"hosts": ["sand.test"]}}))


def test_only_names_of_the_daemon_are_answered_over_tcp(local):
    good = ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "sand.test", "sand.test:8080"]
    bad = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.sand.test", "0.0.0.0", "169.254.1.1",
           "[::ffff:127.0.0.1]"]
    for path in ("/api/v1/sessions", "/healthz", "/openapi.json"):
        assert [host for host in good if local.request("GET", path, {"Host": host}).status != 200] == []
        assert [host for host in bad if local.request("GET", path, {"Host": host}).status != 403] == []


def test_web_pages_of_others_are_refused(local):
    own = {"Host": f"127.0.0.1:{local.port}"}
    assert local.request("GET", "/api/v1/sessions", {**own, "Origin": f"http://127.0.0.1:{local.port}"}).status == 200
    for origin in ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", "http://localhost",
                   "file://", "", f"http://127.0.0.1:{local.port}.evil.example"):
        for method in ("GET", "POST", "DELETE"):
            answer = local.request(method, "/api/v1/sessions", {**own, "Origin": origin})
            assert answer.status == 403, (method, origin)
            assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_page_of_another_site_changes_nothing_even_without_an_origin(local):
    changes = [("POST", "/api/v1/sessions"), ("POST", "/api/v1/execute"), ("POST", "/mcp"), ("DELETE", "/mcp"),
               ("DELETE", "/api/v1/sessions/x"), ("PUT", "/api/v1/storage/x"), ("PATCH", "/api/v1/sessions/x")]
    for site in ("cross-site", "same-site", "Cross-Site", "", "something-new"):
        for method, path in changes:
            answer = local.request(method, path, {"Sec-Fetch-Site": site})
            assert (answer.status, answer.json["error"]["code"]) == (403, "origin_not_allowed"), (site, method, path)
    assert local.request("GET", "/api/v1/sessions", {"Sec-Fetch-Site": "cross-site"}).json["total"] == 0
    for site in ("same-origin", "none"):
        assert local.request("POST", "/api/v1/sessions", {"Sec-Fetch-Site": site}).status == 201


def test_a_browser_cannot_send_a_change_without_asking(local):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
        headers = {"Content-Type": content_type} if content_type else {}
        assert local.request("POST", "/api/v1/sessions", headers, b'{"key":"x"}').status == 415
    assert local.request("OPTIONS", "/api/v1/sessions", {"Origin": "http://evil.example",
                                                         "Access-Control-Request-Method": "POST"}).status == 403
    assert local.request("GET", "/api/v1/sessions").json["total"] == 0


def test_without_authentication_only_this_machine_is_served(make_daemon):
    for address in ("0.0.0.0:0", "[::]:0", "10.1.2.3:80"):
        daemon = make_daemon(start=False, backend="direct")
        daemon.url = address
        with pytest.raises(pytest.fail.Exception, match="reachable from other hosts"):
            daemon.start()
