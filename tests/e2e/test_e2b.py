# SPDX-License-Identifier: Apache-2.0
"""The API of E2B by itself: who may, what is refused, and what a caller is told. The published clients are in test_e2b_clients.py."""
import http.client
import json
import os
import signal
import time

import pytest

from conftest import Answer, wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)
from test_ports import WebSocket, connect, serve


@pytest.fixture
def face(keys, keyed):  # noqa: F811
    """A daemon with the keys of two principals."""
    ann, bob = (keys.create(name)["key"] for name in ("ann", "bob"))
    daemon = keyed()
    daemon.ann, daemon.bob = ann, bob
    daemon.e2b = lambda method, path, body=None, key=daemon.ann, **headers: daemon.request(
        method, path, body, headers={"X-API-Key": key, **{name.replace("_", "-"): value for name, value in headers.items()}})
    return daemon


def make(face, expect=201, **fields):
    answer = face.e2b("POST", "/v2/sandboxes", {"templateID": "base", **fields})
    assert answer.status == expect, answer.body
    return answer.json


def inside(face, sandbox, method, path, port=49983, body=None, **headers):
    return face.request(method, path, body, headers={"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": str(port),
                                                     **{name.replace("_", "-"): value for name, value in headers.items()}})


# --- a server inside -----------------------------------------------------------------------------


def test_a_server_inside_is_reached_by_headers_with_its_websockets(face):
    """A port that the sandbox serves is public, one of a private sandbox wants its traffic token, and a stranger's key opens nothing."""
    for public, token in ((True, False), (False, True)):
        sandbox = make(face, network={"allowPublicTraffic": public})
        port = serve(face, "ses_" + sandbox["sandboxID"][1:], headers=bearer(face.ann))
        headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": str(port)}
        if token:
            for wrong in ({}, {"X-API-Key": face.bob}, {"E2b-Traffic-Access-Token": make(face)["trafficAccessToken"]}):
                assert WebSocket(connect(face), "/ws", {**headers, **wrong}).status in (401, 403, 404), wrong
            headers["E2b-Traffic-Access-Token"] = sandbox["trafficAccessToken"]
        answer = face.request("GET", "/dev?x=1", headers=headers)
        assert answer.status == 200 and answer.json["path"] == "/dev?x=1", answer.body
        talk = WebSocket(connect(face), "/ws", {**headers, "Sec-WebSocket-Protocol": "vite-hmr", "Origin": "http://localhost"})
        assert talk.status == 101 and talk.headers["sec-websocket-protocol"] == "vite-hmr"
        talk.say(b"hot")
        assert talk.hear() == b"hot"
        talk.close()


def test_an_idle_timeout_that_the_operator_demands_holds_for_sandboxes(keys, keyed):  # noqa: F811
    """A client cannot ask for an idle timeout, so the ceiling is a default for it and no reason to refuse."""
    ann = keys.create("ann")["key"]
    daemon = keyed(sandbox={"max": {"idle_timeout": "10m"}})
    for path in ("/sandboxes", "/v2/sandboxes"):
        made = daemon.request("POST", path, {"templateID": "base", "timeout": 60}, headers={"X-API-Key": ann})
        assert made.status == 201, made.body
        session = daemon.api("GET", "/sessions/ses_" + made.json["sandboxID"][1:], headers=bearer(ann), expect=200).json
        assert session["idle_timeout_seconds"] == 600 and session["lease_seconds"] == 60


# --- who may -------------------------------------------------------------------------------------

ROUTES = [("GET", ""), ("DELETE", ""), ("POST", "/connect"), ("POST", "/resume"), ("POST", "/pause"), ("POST", "/timeout"), ("POST", "/refreshes"),
          ("GET", "/metrics"), ("GET", "/logs"), ("POST", "/snapshots"), ("POST", "/fork"), ("PUT", "/network")]


def test_a_stranger_finds_nothing(face):
    sandbox = make(face)["sandboxID"]
    for version in ("", "/v2"):
        for method, rest in ROUTES:
            body = {"timeout": 60} if method in ("POST", "PUT") else None
            answer = face.e2b(method, f"{version}/sandboxes/{sandbox}{rest}", body, key=face.bob)
            assert answer.status in (404, 405), (method, rest, answer.body)
            if answer.status == 404:
                assert answer.json["code"] == 404
            answer = face.request(method, f"{version}/sandboxes/{sandbox}{rest}", body)
            assert answer.status == 401 and answer.json["code"] == 401
    assert face.e2b("GET", "/v2/sandboxes", key=face.bob).json == []
    assert face.e2b("GET", f"/sandboxes/metrics?sandbox_ids={sandbox}", key=face.bob).json == {"sandboxes": {}}
    assert face.e2b("GET", f"/sandboxes/{sandbox}").json["state"] == "running"


def test_a_sandbox_wants_its_own_token(face):
    one, other = make(face), make(face)
    for path in ("/envs", "/metrics", "/files?path=x", "/process.Process/List"):
        method = "POST" if "Process" in path else "GET"
        for headers in ({}, {"X_Access_Token": "x"}, {"X_Access_Token": other["envdAccessToken"]}, {"X_API_Key": face.ann}):
            assert inside(face, one, method, path, **headers).status == 401, (path, headers)
    assert inside(face, one, "GET", "/health").status == 204
    for headers in ({}, {"X_Access_Token": other["envdAccessToken"]}, {"E2b_Traffic_Access_Token": other["trafficAccessToken"]}):
        assert inside(face, one, "GET", "/contexts", 49999, **headers).status == 401
    assert inside(face, one, "GET", "/contexts", 49999, E2b_Traffic_Access_Token=one["trafficAccessToken"]).status == 200


def test_an_unsecured_sandbox_of_the_first_version_wants_none(face):
    answer = face.e2b("POST", "/sandboxes", {"templateID": "base", "secure": False, "timeout": 300})
    assert answer.status == 201 and "envdAccessToken" not in answer.json
    assert inside(face, answer.json, "GET", "/envs").status == 200


def test_a_sandbox_that_is_not_there_is_a_bad_gateway(face):
    for name in ("i" + "0" * 26, "nonsense", "../../etc/passwd"):
        answer = inside(face, {"sandboxID": name}, "GET", "/health")
        assert answer.status == 502
        assert answer.json["code"] == 502 and answer.json["message"] == "The sandbox was not found"
    for headers in ({"E2b-Sandbox-Id": "i" + "0" * 26}, {"E2b-Sandbox-Port": "80"}, {"E2b-Sandbox-Id": "x", "E2b-Sandbox-Port": "70000"}):
        answer = face.request("GET", "/health", headers=headers)
        assert answer.status == 400 and "header" in answer.json["message"]


def test_the_face_is_there_where_keys_are(make_daemon):
    plain = make_daemon(backend="direct")
    assert plain.request("GET", "/v2/sandboxes").status == 404
    switched = make_daemon(backend="direct", settings={"e2b": {"enabled": True}}, tcp=True)
    assert switched.request("GET", "/v2/sandboxes").json == []
    connection = http.client.HTTPConnection("127.0.0.1", switched.port, timeout=30)
    connection.request("GET", "/v2/sandboxes", headers={"X-API-Key": switched.token().replace("sgt_", "e2b_")})
    assert Answer(connection.getresponse()).status == 200
    connection.close()


def test_the_face_can_be_switched_off(keys, keyed):  # noqa: F811
    key = keys.create("ann")["key"]
    daemon = keyed(e2b={"enabled": False})
    assert daemon.request("GET", "/v2/sandboxes", headers={"X-API-Key": key}).status == 404


# --- creating ------------------------------------------------------------------------------------

@pytest.mark.parametrize("fields, word", [
    ({"templateID": None}, "templateID"), ({"templateID": 3}, "templateID"), ({"timeout": 0}, "Timeout"), ({"timeout": "x"}, "timeout"),
    ({"metadata": []}, "metadata"), ({"metadata": {"a": 1}}, "metadata"), ({"metadata": {"a=b": "c"}}, "metadata"),
    ({"envVars": {"A": 1}}, "envVars"), ({"envVars": {"": "x"}}, "envVars"), ({"envVars": {"A": "x" * 200000}}, "envVars"),
    ({"autoPause": "x"}, "autoPause"), ({"autoResume": True}, "autoResume"), ({"autoPauseMemory": False}, "autoPauseMemory"),
    ({"network": 1}, "network"), ({"network": {"allowOut": ["1.1.1.1"]}}, "allowOut"), ({"network": {"denyOut": ["1.1.1.1"]}}, "denyOut"),
    ({"network": {"maskRequestHost": "a b"}}, "maskRequestHost"), ({"volumeMounts": [{"name": "a", "path": "/a"}]}, "volumeMounts"),
    ({"iam": {"tokens": {}, "x": 1}}, "iam")])
def test_what_cannot_be_is_refused_by_name(face, fields, word):
    answer = face.e2b("POST", "/v2/sandboxes", {"templateID": "base", **fields})
    assert answer.status == 400 and answer.json["code"] == 400
    assert word in answer.json["message"]


def test_what_is_unknown_is_ignored_or_not_found(face):
    make(face, unknown={"x": [1]}, metadata=None, network=None, autoResume=None)
    assert face.e2b("POST", "/v2/sandboxes", {"templateID": "nobodys"}).json["code"] == 404
    assert face.e2b("POST", "/v2/sandboxes", "[1]", Content_Type="application/json").status == 400
    assert face.e2b("GET", "/sandboxes/nonsense").json["code"] == 404
    assert face.e2b("GET", "/volumes").json == [] and face.e2b("GET", "/secrets").json == [] and face.e2b("GET", "/snapshots").json == []


def test_a_sandbox_is_a_session(face):
    sandbox = make(face, metadata={"a": "b"}, envVars={"C": "d"}, timeout=120)
    session = "ses_" + sandbox["sandboxID"][1:]
    shown = face.api("GET", f"/sessions/{session}", expect=200, headers={"X-API-Key": face.ann}).json
    assert shown["labels"] == {"a": "b"} and 100 < shown["time_remaining"] <= 120
    assert face.e2b("DELETE", f"/sandboxes/{sandbox['sandboxID']}").status == 204
    assert face.e2b("DELETE", f"/sandboxes/{sandbox['sandboxID']}").json["code"] == 404
    assert face.ended(session, headers={"X-API-Key": face.ann}).json["end_reason"] == "deleted"


def test_both_versions_have_their_own_time(face):
    def time_of(path):
        """The least and the most that it can have had at first."""
        begin = time.monotonic()
        sandbox = face.e2b("POST", path, {"templateID": "base"}).json["sandboxID"]
        left = face.api("GET", f"/sessions/ses_{sandbox[1:]}", headers={"X-API-Key": face.ann}).json["time_remaining"]
        return left, left + time.monotonic() - begin
    for path, seconds in (("/sandboxes", 15), ("/v2/sandboxes", 300)):
        least, most = time_of(path)
        assert least <= seconds <= most + 0.01, path


def test_a_sandbox_is_known_after_a_restart(face):
    sandbox = make(face, network={"allowPublicTraffic": False}, autoPause=True)
    before = face.e2b("GET", f"/sandboxes/{sandbox['sandboxID']}").json
    face.kill()
    face.start()
    after = face.e2b("GET", f"/sandboxes/{sandbox['sandboxID']}").json
    assert after == before and after["envdAccessToken"] == sandbox["envdAccessToken"]
    assert after["lifecycle"] == {"autoResume": False, "onTimeout": "pause"} and after["network"] == {"allowPublicTraffic": False}
    assert inside(face, sandbox, "GET", "/", 8000).status == 403


def test_a_time_that_was_acknowledged_is_kept_after_a_kill(face):
    sandbox = make(face, timeout=100)["sandboxID"]
    changes = [("timeout", {"timeout": 1000}, 204), ("refreshes", {"duration": 2000}, 204), ("connect", {"timeout": 3000}, 200)]
    for round, (verb, body, status) in enumerate(changes + [("timeout", {"timeout": 4000}, 204)]):
        assert face.e2b("POST", f"/sandboxes/{sandbox}/{verb}", body).status == status
        face.kill()
        face.start()
        left = face.api("GET", f"/sessions/ses_{sandbox[1:]}", expect=200, headers={"X-API-Key": face.ann}).json["lease_remaining_seconds"]
        assert left > 1000 * round + 500, verb


def test_a_sandbox_that_crashed_is_gone(face):
    sandbox = make(face)
    init = face.api("GET", f"/sessions/ses_{sandbox['sandboxID'][1:]}", headers={"X-API-Key": face.ann}).json["sandbox"]
    assert inside(face, sandbox, "GET", "/health").status == 204
    os.kill(init["pid"], signal.SIGKILL)
    wait_for(lambda: inside(face, sandbox, "GET", "/health").status == 502, "the crash is noticed")
    assert face.e2b("GET", f"/sandboxes/{sandbox['sandboxID']}").json["code"] == 404
    assert face.e2b("GET", "/v2/sandboxes").json == []
    assert face.e2b("POST", f"/v2/sandboxes/{sandbox['sandboxID']}/connect", {}).json["code"] == 404


# --- lists ---------------------------------------------------------------------------------------

def test_lists_page_in_both_orders(face):
    made = [make(face, metadata={"n": str(n)})["sandboxID"] for n in range(3)]
    for order, wanted in (("asc", made), ("desc", made[::-1])):
        token, found = "", []
        while True:
            answer = face.e2b("GET", f"/v2/sandboxes?limit=2&order={order}&nextToken={token}")
            found += [one["sandboxID"] for one in answer.json]
            token = answer.headers.get("x-next-token", "")
            if not token:
                break
        assert found == wanted and answer.headers["x-total-running"] == "3"
    assert face.e2b("GET", "/v2/sandboxes?order=asc&nextToken=d5").status == 400
    for query in ("limit=0", "limit=101", "order=up", "state=dead", "startedAfter=now", "metadata=a"):
        assert face.e2b("GET", f"/v2/sandboxes?{query}").json["code"] == 400, query
    assert [one["metadata"] for one in face.e2b("GET", "/v2/sandboxes?metadata=n%253D1").json] == [{"n": "1"}]
    assert face.e2b("GET", "/v2/sandboxes?template=other").json == []
    assert len(face.e2b("GET", "/v2/sandboxes?startedAfter=2026-01-01T00:00:00.000001%2B00:00").json) == 3


# --- signed URLs ---------------------------------------------------------------------------------

def test_a_signature_is_for_one_file_and_one_direction(face):
    import base64
    import hashlib
    sandbox = make(face)

    def sign(path, operation, expiration=None):
        text = ":".join([path, operation, "", sandbox["envdAccessToken"]] + ([str(expiration)] if expiration else []))
        signature = "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        query = f"path={path}&signature={signature.replace('+', '%2B').replace('/', '%2F')}"
        return query + (f"&signature_expiration={expiration}" if expiration else "")
    assert face.request("POST", "/files?" + sign("a", "write"), b"secret", headers={"Content-Type": "application/octet-stream"}).status == 200
    assert face.request("GET", "/files?" + sign("a", "read")).body == b"secret"
    assert face.request("GET", "/files?" + sign("a", "read", int(time.time()) + 60)).body == b"secret"
    assert face.request("GET", "/files?" + sign("a", "write")).status == 401
    assert face.request("GET", "/files?" + sign("a", "read", int(time.time()) - 60)).json["message"] == "signature is already expired"
    assert face.request("GET", "/files?" + sign("b", "read").replace("path=b", "path=a")).status == 401
    assert inside(face, sandbox, "GET", "/files?path=a").json["message"] == "missing signature query parameter"


# --- the code interpreter ------------------------------------------------------------------------

def run_code(face, sandbox, **body):
    answer = inside(face, sandbox, "POST", "/execute", 49999, body=json.dumps(body), Content_Type="application/json",
                    X_Access_Token=sandbox["envdAccessToken"])
    lines = [json.loads(line) for line in answer.body.splitlines()] if answer.status == 200 else []
    return answer, [line for line in lines if line["type"] != "keepalive"]  # which come while it starts slowly


def test_code_answers_line_by_line(face):
    sandbox = make(face)
    answer, lines = run_code(face, sandbox, code="print(1)\n'a'")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [line["type"] for line in lines] == ["stdout", "result", "number_of_executions", "end_of_execution"]
    assert lines[0]["text"] == "1\n" and lines[1]["text"] == "a" and lines[1]["is_main_result"] and lines[2]["execution_count"] == 1
    _, lines = run_code(face, sandbox, code="1 / 0", env_vars={"A": "b"})
    assert lines[0]["type"] == "error" and lines[0]["name"] == "ZeroDivisionError" and lines[1]["execution_count"] == 2
    assert run_code(face, sandbox, code="import os; os.environ.get('A')", context_id=None, language=None, env_vars=None)[1][0]["type"] != "result"


@pytest.mark.parametrize("body, status", [
    ({}, 400), ({"code": 3}, 400), ({"code": "1", "language": "python", "context_id": "x"}, 400), ({"code": "1", "language": "cobol"}, 400),
    ({"code": "1", "context_id": "ctx_no"}, 404), ({"code": "1", "env_vars": {"a=b": "c"}}, 400), ({"code": "1", "env_vars": {"a": 1}}, 400)])
def test_code_that_cannot_run_is_refused(face, body, status):
    answer, _ = run_code(face, make(face), **body)
    assert answer.status == status and answer.headers["content-type"].startswith("text/plain")


PILLOW = """
import os
os.mkdir("PIL")
open("PIL/__init__.py", "w").close()
open("PIL/Image.py", "w").write('class Image:\\n'
                                '    def save(self, fp, format=None, **options): print("saved", fp, format, options)\\n'
                                '    def _repr_png_(self): return b"picture"\\n')
from PIL import Image
import io
Image.Image().save("a.png", quality=3)
Image.Image().save(io.BytesIO(), "PNG") and None
"""


def test_a_picture_that_is_saved_to_a_file_is_shown(face):
    """As in E2B's own image. A stand-in for Pillow, which the host may not have, shows what is done to it."""
    _, lines = run_code(face, make(face), code=PILLOW)
    assert [line["png"] for line in lines if line["type"] == "result"] == ["cGljdHVyZQ=="], lines
    assert "saved a.png None {'quality': 3}" in "".join(line["text"] for line in lines if line["type"] == "stdout")


def test_a_client_that_leaves_interrupts_its_code(face):
    sandbox = make(face)
    connection = http.client.HTTPConnection("localhost")
    import socket
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(face.socket))
    connection.request("POST", "/execute", json.dumps({"code": "print('begun', flush=True)\nimport time\ntime.sleep(600)"}), headers={
        "Content-Type": "application/json", "E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49999",
        "X-Access-Token": sandbox["envdAccessToken"]})
    response = connection.getresponse()
    wait_for(lambda: b"begun" in response.readline(), "the code has begun")
    connection.close()
    response.close()
    wait_for(lambda: any(line.get("text") == "2" for line in run_code(face, sandbox, code="2")[1]), "the next code runs")


# --- templates -----------------------------------------------------------------------------------

def test_a_name_for_a_template_is_its_owners(face):
    begun = face.e2b("POST", "/v3/templates", {"name": "mine:v1"}).json
    build = f"/v2/templates/{begun['templateID']}/builds/{begun['buildID']}"
    assert face.e2b("POST", build, {"fromTemplate": "base"}, key=face.bob).json["code"] == 404
    assert face.e2b("POST", build, {"fromTemplate": "base"}).status == 202
    assert face.e2b("GET", f"/templates/mine/builds/{begun['buildID']}/status").json["status"] == "ready"
    assert face.e2b("POST", "/v2/sandboxes", {"templateID": "mine:v1"}).json["templateID"] == "mine:v1"
    assert face.e2b("POST", "/v2/sandboxes", {"templateID": "mine:v1"}, key=face.bob).json["code"] == 404
    assert face.e2b("GET", "/templates/aliases/mine:v1", key=face.bob).json["code"] == 404
    assert face.e2b("DELETE", "/templates/mine", key=face.bob).json["code"] == 404
    assert face.e2b("DELETE", "/templates/host").json["code"] == 403
    assert face.e2b("DELETE", "/templates/mine").status == 204


def test_a_build_that_needs_more_fails_with_the_reason(face):
    for body in ({"fromTemplate": "base", "steps": [{"type": "RUN", "args": ["true"]}]}, {"fromTemplate": "base", "startCmd": "x"},
                 {"fromImage": "nobody/knows"}, {}):
        begun = face.e2b("POST", "/v3/templates", {"name": "other"}).json
        assert face.e2b("POST", f"/v2/templates/other/builds/{begun['buildID']}", body).status == 202
        status = face.e2b("GET", f"/templates/other/builds/{begun['buildID']}/status").json
        assert status["status"] == "error" and status["reason"]["message"]
    for name in ("", "A b", None, "x" * 200):
        assert face.e2b("POST", "/v3/templates", {"name": name}).json["code"] == 400
