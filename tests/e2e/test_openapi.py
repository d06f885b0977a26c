# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: complete, and true of the answers that the daemon gives."""
import io
import json
import tarfile

import pytest

from conftest import wait_for
from openapi import Judge

FLAVORS = [{"name": "cpu-basic"}, {"name": "big", "price_per_hour": 1, "needs_approval": True}]


@pytest.fixture
def judged(make_daemon, backend):
    """A daemon; each answer to `daemon.api` is held against its document."""
    daemon = make_daemon(backend=backend, settings={"flavors": FLAVORS})
    daemon.judge = Judge(daemon.request("GET", "/openapi.json").json)
    plain = daemon.request

    def request(method, path, *arguments, **options):
        answer = plain(method, path, *arguments, **options)
        daemon.judge.check(method, path, answer.status, answer.headers.get("content-type"), answer.body)
        return answer

    daemon.request = request
    return daemon


def test_every_operation_is_named_and_described(make_daemon):
    document = make_daemon(backend="direct").request("GET", "/openapi.json").json
    operations = [(f"{method} {path}", operation) for path, methods in document["paths"].items()
                  for method, operation in methods.items()]
    names = [operation["operationId"] for _, operation in operations]
    assert len(set(names)) == len(names)
    tags = {tag["name"] for tag in document["tags"]}
    for where, operation in operations:
        assert set(operation["tags"]) <= tags, where
        good = {status: answer for status, answer in operation["responses"].items() if status[0] == "2"}
        described = [status for status, answer in good.items() if answer.get("content")]
        assert described or set(operation["responses"]) & {"101", "204"}, \
            f"{where} says nothing about its answer: a row in src/api/document/operations.c, or .schema in the route"
    assert document["security"] and document["servers"]


def test_sessions_and_executions_answer_as_the_document_says(judged):
    session = judged.api("POST", "/sessions", {"key": "k", "labels": {"a": "b"}}, expect=201).json["id"]
    judged.api("POST", "/sessions", {"key": "k"}, expect=200)
    judged.api("POST", "/sessions", {"memroy": 1}, expect=400)
    path = f"/sessions/{session}"
    judged.api("POST", path + "/executions", {"command": "echo hi; exit 3"}, expect=201)
    running = judged.api("POST", path + "/executions", {"argv": ["cat"], "stdin": True, "background": True}, expect=201).json["id"]
    one = f"{path}/executions/{running}"
    judged.api("POST", one + "/stdin", b"hello\n", expect=200, headers={"Content-Type": "application/octet-stream"})
    judged.api("GET", one + "/wait?output=hello&timeout=25", expect=200)
    judged.api("GET", one + "/output", expect=200)
    judged.api("GET", one, expect=200)
    judged.api("GET", path, expect=200)
    judged.api("GET", path + "?usage=1", expect=200)
    judged.api("POST", one + "/signal", {"signal": "TERM"}, expect=200)
    judged.api("DELETE", one, expect=200)
    judged.api("POST", one + "/resize", {"cols": 1, "rows": 1}, expect=409)
    judged.api("GET", path + "/executions", expect=200)
    judged.api("GET", path + "/executions/exe_nope", expect=404)
    judged.api("PATCH", path, {"labels": {"c": "d"}}, expect=200)
    judged.api("POST", path + "/keepalive", {"timeout": 100}, expect=200)
    judged.api("POST", path + "/pause", {}, expect=200)
    judged.api("POST", path + "/resume", {}, expect=200)
    judged.api("POST", path + "/sandbox", {"flavor": "cpu-basic"})
    judged.api("POST", path + "/teardown-token", {}, expect=201)
    judged.api("GET", "/sessions", expect=200)
    judged.api("GET", path + "/history", expect=200)
    judged.api("GET", path + "/events?follow=0", expect=200)
    judged.api("POST", "/execute", {"code": "open('a.txt','w').write('x'); print(1)"}, expect=200)
    judged.api("POST", path + "/sandbox/teardown", {}, expect=202)
    judged.api("DELETE", path, expect=200)
    judged.api("GET", path, expect=200)
    judged.api("POST", path + "/executions", {"argv": ["true"]}, expect=410)
    judged.api("GET", path + "/history", expect=200)
    judged.api("DELETE", "/sessions", expect=200)
    assert len(judged.judge.seen) > 20


def test_contexts_and_tools_answer_as_the_document_says(judged):
    session = judged.session()
    path = f"/sessions/{session}"
    context = judged.api("POST", path + "/contexts", {"language": "python"}, expect=201).json["id"]
    one = f"{path}/contexts/{context}"
    assert judged.api("POST", one + "/run", {"code": "x = 6\nx * 7"}, expect=200).json["results"]
    judged.api("POST", one + "/run", {"code": "def f():\n    return 1 / 0\nf()"}, expect=200)
    judged.api("POST", one + "/run", {"code": "import os; os.kill(os.getpid(), 9)"}, expect=200)
    judged.api("GET", path + "/contexts", expect=200)
    judged.api("GET", one, expect=200)
    judged.api("POST", one + "/interrupt", {})
    judged.api("POST", one + "/restart", {}, expect=200)
    judged.api("DELETE", one, expect=200)
    judged.api("GET", "/tools", expect=200)
    judged.api("POST", path + "/tools/bash", {"command": "echo hi"}, expect=200)
    judged.api("POST", path + "/tools/nope", {}, expect=404)
    judged.api("POST", path + "/interrupt", {}, expect=200)


def test_files_answer_as_the_document_says(judged):
    session = judged.session(keep_files=True)
    path = f"/sessions/{session}"
    judged.api("PUT", path + "/files?path=a/b.txt", b"one\ntwo\n", expect=201)
    judged.api("GET", path + "/files?path=a/b.txt", expect=200)
    judged.api("GET", path + "/files?path=nope", expect=404)
    judged.api("GET", path + "/files?path=a/b.txt", headers={"Range": "bytes=0-1"}, expect=206)
    judged.api("GET", path + "/files/stat?path=a/b.txt", expect=200)
    judged.api("GET", path + "/files/list?depth=2", expect=200)
    judged.api("GET", path + "/files/glob?pattern=**/*.txt", expect=200)
    judged.api("GET", path + "/files/grep?pattern=two&context=1", expect=200)
    judged.api("POST", path + "/files/edit", {"path": "a/b.txt", "old": "two", "new": "2"}, expect=200)
    judged.api("POST", path + "/files/edit", {"path": "a/b.txt", "old": "nope", "new": "2"}, expect=409)
    judged.api("POST", path + "/files/mkdir", {"path": "c"}, expect=200)
    judged.api("POST", path + "/files/move", {"from": "a/b.txt", "to": "c/d.txt"}, expect=200)
    judged.api("GET", path + "/archive?path=.", expect=200)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("e.txt"))
        tar.addfile(tarfile.TarInfo("../f.txt"))
    judged.api("PUT", path + "/archive?path=.", archive.getvalue(), expect=200, headers={"Content-Type": "application/x-tar"})
    judged.api("DELETE", path + "/files?path=c/d.txt", expect=200)
    judged.api("GET", path + "/storage", expect=200)
    judged.api("POST", path + "/sandbox/teardown", {}, expect=202)
    wait_for(lambda: judged.api("GET", path).json["kept"], "the workspace is kept")
    judged.api("GET", path + "/kept", expect=200)
    judged.api("GET", path + "/kept/file?path=e.txt", expect=200)
    judged.api("GET", path + "/kept/archive", expect=200)


def test_the_daemon_and_money_answer_as_the_document_says(judged):
    for path in ("/whoami", "/keys", "/capacity", "/backends", "/templates", "/flavors", "/nodes", "/approvals", "/budget"):
        judged.api("GET", path, expect=200)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert judged.request("GET", path).status == 200
    session = judged.session(preload=False)
    judged.api("GET", f"/sessions/{session}/budget", expect=200)
    judged.api("PATCH", f"/sessions/{session}/budget", {"cap_usd": 1}, expect=200)
    approval = judged.api("POST", f"/sessions/{session}/sandbox", {"flavor": "big"}, expect=202).json["id"]
    judged.api("GET", "/approvals", expect=200)
    judged.api("GET", f"/approvals/{approval}", expect=200)
    judged.api("POST", f"/approvals/{approval}", {"decision": "deny", "reason": "no"}, expect=200)
    judged.api("PATCH", "/budget", {"cap_usd": 5}, expect=200)
    judged.api("POST", f"/nodes/{json.loads(judged.request('GET', '/api/v1/nodes').body)['nodes'][0]['id']}/drain", expect=409)
