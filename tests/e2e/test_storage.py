# SPDX-License-Identifier: Apache-2.0
"""Files that programs store from inside the sandbox: through a socket, with the execution as the only credential."""
import json
import os
import shutil
import sqlite3
import urllib.parse

import pytest

from conftest import wait_for

# What a program does: HTTP over the abstract socket that SANDGLASS_STORAGE names.
PROGRAM = """
import http.client, json, os, socket, sys
class Storage(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("\\0" + os.environ["SANDGLASS_STORAGE"])
def ask(method, path, body=None):
    connection = Storage("sandbox", timeout=20)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()
"""


@pytest.fixture
def keeper(make_daemon, backend):
    return make_daemon(backend=backend, settings={
        "pool": {"size": 0},
        "storage": {"max_file": "1m", "max_files": 3, "max_session": "2m", "max_owner": "3m", "url": "https://files.example"}})


def run(daemon, session, code, **options):
    result = daemon.execute(session, ["python3", "-c", PROGRAM + code], **options)
    assert result["exit_code"] == 0, result
    return result["stdout"]


def store(daemon, session, name, content="print(1)"):
    body = f"{content[0]!r} * {len(content)}" if len(set(content)) == 1 else repr(content)
    out = run(daemon, session, f"s, b = ask('PUT', '/storage/{name}', {body}); print(s); print(b.decode())")
    status, body = out.split("\n", 1)
    return int(status), json.loads(body)


def test_a_program_stores_a_file_that_outlives_its_sandbox(keeper):
    session = keeper.session()
    status, stored = store(keeper, session, "my%20plot.txt", "the plot")
    assert status == 201 and stored["name"] == "my plot.txt" and stored["size"] == 8
    assert run(keeper, session, "print(ask('GET', '/storage/my%20plot.txt')[1].decode(), end='')") == "the plot"

    keeper.api("DELETE", f"/sessions/{session}", expect=200)
    files = keeper.api("GET", f"/sessions/{session}/storage", expect=200).json["files"]
    assert [(entry["name"], entry["size"]) for entry in files] == [("my plot.txt", 8)]
    answer = keeper.api("GET", f"/sessions/{session}/storage/my%20plot.txt", expect=200)
    assert answer.body == b"the plot" and answer.headers["content-disposition"] == "attachment"

    url = urllib.parse.urlsplit(stored["url"])
    assert (url.scheme, url.netloc) == ("https", "files.example")
    assert keeper.request("GET", f"{url.path}?{url.query}").body == b"the plot"
    keeper.api("DELETE", f"/sessions/{session}/storage/my%20plot.txt", expect=200)
    assert keeper.request("GET", f"{url.path}?{url.query}").status == 404


def test_a_url_is_good_for_one_file_and_one_time(keeper):
    session = keeper.session()
    store(keeper, session, "a", "aaa")
    store(keeper, session, "b", "bbb")
    given = keeper.api("POST", f"/sessions/{session}/storage/a/url", {"valid_for": 60}, expect=201).json
    url = urllib.parse.urlsplit(given["url"])
    assert keeper.request("GET", f"{url.path}?{url.query}").body == b"aaa"
    expires = urllib.parse.parse_qs(url.query)["expires"][0]
    for forged in (url.path.replace("/a", "/b") + "?" + url.query, url.path + "?" + url.query.replace(expires, str(int(expires) + 1)),
                   url.path + "?" + url.query[:-1] + ("0" if url.query[-1] != "0" else "1"), url.path, url.path + "?expires=99999999999"):
        assert keeper.request("GET", forged).status == 404, forged
    keeper.api("POST", f"/sessions/{session}/storage/nothing/url", {}, expect=404)


def test_nobody_else_gets_in(keeper):
    session, other = keeper.session(), keeper.session()
    store(keeper, session, "mine")
    # The routes of programs are not on the daemon's listeners, and the daemon's are not on the programs' socket.
    assert keeper.request("PUT", "/storage/x", b"x", headers={"Content-Type": "application/octet-stream"}).status == 404
    assert run(keeper, session, "print(ask('GET', '/api/v1/sessions')[0])").strip() == "404"
    assert run(keeper, session, "print(ask('DELETE', '/api/v1/sessions')[0])").strip() == "404"
    # Another session has a storage of its own, and does not reach this one's socket.
    assert json.loads(run(keeper, other, "print(ask('GET', '/storage')[1].decode())"))["files"] == []
    name = run(keeper, session, "print(os.environ['SANDGLASS_STORAGE'])").strip()
    attempt = run(keeper, other, f"""
os.environ['SANDGLASS_STORAGE'] = {name!r}
try:
    print(ask('GET', '/storage')[1].decode())
except OSError as problem:
    print('refused')
except http.client.HTTPException as problem:
    print('refused')
""")
    assert "mine" not in attempt
    # An owner sees only what is theirs.
    stranger = {"X-Sandglass-On-Behalf-Of": "stranger"}
    assert keeper.request("GET", f"/api/v1/sessions/{session}/storage", headers=stranger).status == 404
    assert keeper.request("GET", f"/api/v1/sessions/{session}/storage/mine", headers=stranger).status == 404


def test_a_program_that_outlives_its_execution_has_no_credential(keeper):
    session = keeper.session()
    keeper.execute(session, ["sh", "-c", "mkfifo go; (read line < go; python3 store.py > out 2>&1; echo done > ended) & "],
                   timeout=20)
    code = PROGRAM + "print(ask('PUT', '/storage/late', 'x')[0])"
    keeper.api("PUT", f"/sessions/{session}/files?path=store.py", code.encode(), headers={"Content-Type": "application/octet-stream"})
    keeper.execute(session, ["sh", "-c", "echo > go; while [ ! -e ended ]; do sleep 0.05; done"], timeout=30)
    out = keeper.execute(session, ["cat", "out"])["stdout"]
    assert "201" not in out.split(), out
    assert keeper.api("GET", f"/sessions/{session}/storage").json["files"] == []


def test_limits_hold_and_name_themselves(keeper):
    session = keeper.session()
    status, refused = store(keeper, session, "large", "x" * (1024 * 1024 + 1))
    assert status == 413 and "storage.max_file" in refused["error"]["message"]
    assert store(keeper, session, "one", "x" * 1000000)[0] == 201
    assert store(keeper, session, "one", "y" * 1000000)[0] == 201  # in its place
    assert store(keeper, session, "two", "x" * 1000000)[0] == 201
    status, refused = store(keeper, session, "three", "x" * 1000000)
    assert status == 429 and "storage.max_session" in refused["error"]["message"]
    assert store(keeper, session, "three", "x")[0] == 201
    status, refused = store(keeper, session, "four", "x")
    assert status == 429 and "storage.max_files" in refused["error"]["message"]

    second = keeper.session()
    assert store(keeper, second, "one", "x" * 1000000)[0] == 201
    status, refused = store(keeper, second, "two", "x" * 1000000)
    assert status == 429 and "storage.max_owner" in refused["error"]["message"]
    for name in ("..", ".hidden", "a%2Fb", "a%00b", "%0A", "x" * 201):
        assert store(keeper, second, name, "x")[0] in (400, 404), name
    assert [entry["name"] for entry in keeper.api("GET", f"/sessions/{second}/storage").json["files"]] == ["one"]


def test_a_killed_daemon_loses_no_stored_file_and_leaves_no_part(keeper):
    session = keeper.session()
    store(keeper, session, "kept", "kept")
    began = keeper.api("POST", f"/sessions/{session}/executions", {"background": True, "argv": ["python3", "-c", PROGRAM + """
connection = Storage("sandbox", timeout=20)
connection.putrequest("PUT", "/storage/half")
connection.putheader("Content-Length", "1000000")
connection.endheaders()
connection.send(b"x" * 500000)
import time; time.sleep(600)
"""]}, expect=201).json["id"]
    directory = keeper.directory / "state" / "storage" / session
    wait_for(lambda: any(path.stat().st_size > 100000 for path in directory.glob(".part-*")), "half of the file is there")
    keeper.kill()
    keeper.start()
    assert not list(directory.glob(".part-*"))
    assert keeper.api("GET", f"/sessions/{session}/storage/kept", expect=200).body == b"kept"
    # What was half written is not counted.
    keeper.api("DELETE", f"/sessions/{session}/executions/{began}")
    assert store(keeper, session, "one", "x" * 1000000)[0] == 201
    assert store(keeper, session, "two", "x" * 1000000)[0] == 201


def test_stored_files_go_with_the_record(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "session": {"retention": "1s"}})
    session = daemon.session()
    store(daemon, session, "file", "content")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    wait_for(lambda: not (daemon.directory / "state" / "storage" / session).exists(), "the stored files are gone")
    with sqlite3.connect(daemon.state / "sandglass.db") as connection:
        wait_for(lambda: not connection.execute("SELECT count(*) FROM documents WHERE kind = 'stored-file'").fetchone()[0],
                 "their documents are gone")


def listed(daemon, session):
    files = daemon.api("GET", f"/sessions/{session}/storage", expect=200).json["files"]
    return {entry["name"]: (entry["size"], entry.get("damage")) for entry in files}


def read(daemon, session, name):
    answer = daemon.api("GET", f"/sessions/{session}/storage/{name}")
    return answer.status, answer.body if answer.status == 200 else answer.json["error"]["code"]


@pytest.mark.parametrize("restart", ["running", "killed", "stopped"])
def test_a_stored_file_that_is_cut_or_gone_is_told(make_daemon, restart):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "shutdown": {"policy": "keep"}})
    session, other = daemon.session(), daemon.session()
    for name in ("b", "a", "c"):
        store(daemon, session, name, "first")
    store(daemon, session, "c", "second one")
    store(daemon, other, "all", "content")
    daemon.api("DELETE", f"/sessions/{session}/storage/a", expect=200)
    store(daemon, session, "a", "again")
    if restart == "killed":
        daemon.kill()
    elif restart == "stopped":
        daemon.stop()
    directory = daemon.state / "storage" / session
    (directory / "a").unlink()
    os.truncate(directory / "c", 4)
    shutil.rmtree(daemon.state / "storage" / other)
    checked = daemon.cli("store", "check", "--state", daemon.state)
    assert checked.returncode == 1, checked.stdout
    for name in (f"{session}/a", f"{session}/c", f"{other}/all"):
        assert name in checked.stdout
    assert f"{session}/b" not in checked.stdout
    if restart != "running":
        daemon.start()
    assert listed(daemon, session) == {"a": (0, "it is missing"), "b": (5, None), "c": (4, "it has 4 bytes instead of 10")}
    assert listed(daemon, other) == {"all": (0, "it is missing")}
    assert read(daemon, session, "b") == (200, b"first")
    for damaged, name in ((session, "a"), (session, "c"), (other, "all")):
        assert read(daemon, damaged, name) == (500, "store_damaged")

    # A file that is stored again is whole again, and damaged ones can be removed.
    assert store(daemon, session, "c", "third")[0] == 201
    daemon.api("DELETE", f"/sessions/{session}/storage/a", expect=200)
    daemon.api("DELETE", f"/sessions/{other}/storage/all", expect=200)
    daemon.kill()
    daemon.start()
    assert listed(daemon, session) == {"b": (5, None), "c": (5, None)} and not listed(daemon, other)
    assert read(daemon, other, "all") == (404, "file_not_found")
    checked = daemon.cli("store", "check", "--state", daemon.state)
    assert checked.returncode == 0, checked.stdout
    for used in (session, other):
        daemon.api("DELETE", f"/sessions/{used}", expect=200)


@pytest.mark.skipif(os.geteuid() != 0, reason="root takes the directory from the daemon")
def test_stored_files_that_cannot_be_read_are_not_none(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    session = daemon.session()
    store(daemon, session, "file", "content")
    directory = daemon.state / "storage" / session
    owner = directory.stat()
    os.chown(directory, 0, 0)
    for path in ("storage", "storage/file"):
        answer = daemon.api("GET", f"/sessions/{session}/{path}")
        assert answer.status not in (200, 404), answer.body
    os.chown(directory, owner.st_uid, owner.st_gid)
    assert read(daemon, session, "file") == (200, b"content")
