# SPDX-License-Identifier: Apache-2.0
"""Port 49983 of a sandbox, as E2B's clients use it: processes, files and changes, by the protocol itself."""
import base64
import concurrent.futures
import gzip
import hashlib
import json
import os
import struct

import pytest

from conftest import UnixConnection, wait_for


class Box:
    """A sandbox of E2B, and what its clients send."""

    def __init__(self, daemon, **options):
        answer = daemon.request("POST", "/v2/sandboxes", {"templateID": "base", **options})
        assert answer.status == 201, answer.body
        self.daemon, self.id, self.token = daemon, answer.json["sandboxID"], answer.json["envdAccessToken"]
        self.headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.token}

    def request(self, method, path, body=None, **headers):
        return self.daemon.request(method, path, body, headers={**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}})

    def call(self, method, message, user=None, **headers):
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return self.request("POST", "/" + method, json.dumps(message), **{"Content_Type": "application/json", **headers})

    def stat(self, path, **options):
        return self.call("filesystem.Filesystem/Stat", {"path": path}, **options)

    def stream(self, method, message, **headers):
        return Stream(self, method, json.dumps(message).encode(), headers)

    def start(self, command, **more):
        return self.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-c", command]}, **more})

    def run(self, command, **more):
        """Everything that it wrote, and its end."""
        events = self.start(command, **more).all()
        return b"".join(base64.b64decode(e["data"]["stdout"]) for e in events if "stdout" in e.get("data", {})), events[-1]["end"]

    def put(self, path, content, **headers):
        return self.request("POST", f"/files?path={path}", content, **{"Content_Type": "application/octet-stream", **headers})


class Stream:
    """An answer that is a stream: events until its end."""

    def __init__(self, box, method, message, headers):
        self.connection = UnixConnection(str(box.daemon.socket), 30)
        self.connection.request("POST", "/" + method, struct.pack(">BI", 0, len(message)) + message,
                                {**box.headers, "Content-Type": "application/connect+json", **headers})
        self.response = self.connection.getresponse()
        assert self.response.status == 200

    def next(self):
        """The next event; None at the end. An error of the stream is raised."""
        flags, length = struct.unpack(">BI", self.response.read(5))
        message = json.loads(self.response.read(length))
        if not flags & 2:
            return message.get("event", message)
        self.connection.close()
        if "error" in message:
            raise RuntimeError(message["error"]["code"])
        return None

    def all(self):
        return list(iter(self.next, None))

    def close(self):
        self.connection.close()


@pytest.fixture
def box(make_daemon, backend):
    return Box(make_daemon(backend=backend, settings={"e2b": {"enabled": True}}))


# --- processes --------------------------------------------------------------------------------------------------------------------


def test_a_process_tells_its_start_its_output_and_its_end(box):
    events = box.start("echo out; echo err >&2; exit 3").all()
    assert events[0]["start"]["pid"] > 0
    assert {"data": {"stdout": base64.b64encode(b"out\n").decode()}} in events
    assert {"data": {"stderr": base64.b64encode(b"err\n").decode()}} in events
    assert events[-1]["end"] == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}


def test_the_pid_is_that_inside(box):
    stream = box.start("echo $$; exec sleep 100")
    pid = stream.next()["start"]["pid"]
    assert int(base64.b64decode(stream.next()["data"]["stdout"])) == pid
    assert box.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}).json == {}
    assert stream.next()["end"]["status"] == "signal: killed" and stream.next() is None
    assert box.run(f"kill -0 {pid} 2>/dev/null; echo $?")[0] == b"1\n"


def test_a_login_shell_starts_no_program_of_its_own(make_daemon):
    """Clients of E2B run every command as `bash -l -c`. Pids count up inside, so that a command with the next one was the first that was started.
    An interpreter that is kept ready would take one, too."""
    box = Box(make_daemon(backend="native", settings={"e2b": {"enabled": True}, "python": {"warm": False}}))
    command = ["-l", "-c", "true & echo $(($! - $$)) $PATH"]
    for user, path in (("user", "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"), ("root", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")):
        basic = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        events = box.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": command}}, Authorization=basic).all()
        assert base64.b64decode(events[1]["data"]["stdout"]).decode() == f"1 {path}\n", events


def test_much_output_comes_complete(box):
    out, end = box.run("head -c 20000000 /dev/zero | tr '\\0' x")
    assert len(out) == 20000000 and set(out) == {ord("x")} and end["exitCode"] == 0


def test_a_client_that_reads_nothing_costs_little_memory(box):
    stream = box.start("head -c 200000000 /dev/zero")
    stream.next()
    before = box.daemon.resident_kib()
    other = box.run("echo still here")
    assert other[0] == b"still here\n" and box.daemon.resident_kib() - before < 20000
    stream.close()


def test_a_process_outlives_client_and_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"e2b": {"enabled": True}})
    box = Box(daemon)
    first = box.start("read line; echo got $line", tag="mine")
    pid = first.next()["start"]["pid"]
    first.close()
    daemon.kill()
    daemon.start()
    wait_for(lambda: box.call("process.Process/List", {}).json.get("processes"), "the process is known again")
    again = box.stream("process.Process/Connect", {"process": {"tag": "mine"}})
    assert again.next()["start"]["pid"] == pid
    line = base64.b64encode(b"hello\n").decode()
    assert box.call("process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": line}}).json == {}
    assert base64.b64decode(again.next()["data"]["stdout"]) == b"got hello\n"
    assert again.next()["end"]["exitCode"] == 0
    daemon.request("DELETE", f"/sandboxes/{box.id}")


def test_a_stream_is_cut_without_an_end_when_its_sandbox_is_killed(box):
    stream = box.start("sleep 100")
    stream.next()
    assert box.daemon.request("DELETE", f"/sandboxes/{box.id}").status == 204
    with pytest.raises(Exception):
        while stream.next() is not None:
            pass
    assert box.request("GET", "/health").status == 502


def test_a_directory_to_start_in_may_be_relative(box):
    box.call("filesystem.Filesystem/MakeDir", {"path": "sub"})
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", "basename $PWD"], "cwd": "~/sub"}}
    events = box.stream("process.Process/Start", start).all()
    assert base64.b64decode(events[1]["data"]["stdout"]) == b"sub\n"
    start["process"]["cwd"] = "nowhere"
    with pytest.raises(RuntimeError, match="invalid_argument"):
        box.stream("process.Process/Start", start).all()


# --- files ------------------------------------------------------------------------------------------------------------------------


def test_a_file_goes_in_and_out_whole_and_in_part(box):
    content = os.urandom(3 << 20)
    written = box.put("dir/big", content)
    assert written.status == 200 and written.json[0]["name"] == "big" and written.json[0]["path"].endswith("/dir/big")
    answer = box.request("GET", "/files?path=dir/big")
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(content).digest()
    part = box.request("GET", "/files?path=dir/big", Range="bytes=100-199")
    assert part.status == 206 and part.body == content[100:200]
    assert gzip.decompress(box.request("GET", "/files?path=dir/big", Accept_Encoding="gzip").body) == content


def test_a_compressed_upload_is_undone_and_a_broken_one_refused(box):
    packed = gzip.compress(b"hello" * 1000)
    assert box.put("a", packed, Content_Encoding="gzip").status == 200
    assert box.request("GET", "/files?path=a").body == b"hello" * 1000
    for broken in (packed[:-4], b"rubbish", packed[:20] + b"x" * 20):
        assert box.put("a", broken, Content_Encoding="gzip").status == 400
    assert box.request("GET", "/files?path=a").body == b"hello" * 1000


def form(*files, boundary="XX", end=True):
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n"
             for name, content in files]
    return b"".join(parts) + (f"--{boundary}--\r\n".encode() if end else b"")


def post_form(box, body):
    return box.request("POST", "/files", body, Content_Type="multipart/form-data; boundary=XX")


def test_a_form_has_many_files(box):
    files = [(f"many/{i}/ä %22{i}", os.urandom(i * 1000) + b"\r\n--X") for i in range(40)]
    answer = post_form(box, form(*files))
    assert answer.status == 200 and len(answer.json) == 40
    assert answer.json[7]["path"].endswith('/many/7/ä "7')
    entries = box.call("filesystem.Filesystem/ListDir", {"path": "many", "depth": 2}).json["entries"]
    assert sorted(int(e["size"]) for e in entries if e["type"] == "FILE_TYPE_FILE") == [i * 1000 + 5 for i in range(40)]


def test_forms_that_make_no_sense_are_refused(box):
    assert post_form(box, form(("a", b"1"), ("a", b"2"))).status == 400
    assert post_form(box, form()).status == 400
    assert post_form(box, form(("cut", b"1"), end=False)).status == 400
    assert post_form(box, b"rubbish").status == 400
    assert box.request("GET", "/files?path=cut").status == 404


def test_files_that_are_no_files(box):
    assert box.request("GET", "/files?path=.").status == 400
    assert box.request("GET", "/files?path=nothing").status == 404
    assert box.put(".", b"x").status == 400
    assert box.request("GET", "/files?path=/dev/zero").status >= 400
    assert box.request("GET", "/files?path=~root/x").status == 400


def test_directories_are_made_moved_and_removed(box):
    entry = box.call("filesystem.Filesystem/MakeDir", {"path": "a/b"}).json["entry"]
    assert entry["type"] == "FILE_TYPE_DIRECTORY" and entry["permissions"] == "drwxr-xr-x" and entry["mode"] == 0o755
    assert box.call("filesystem.Filesystem/MakeDir", {"path": "a/b"}).json["code"] == "already_exists"
    moved = box.call("filesystem.Filesystem/Move", {"source": "a/b", "destination": "c/d/e"}).json["entry"]
    assert moved["name"] == "e" and moved["path"].endswith("/c/d/e")
    assert box.call("filesystem.Filesystem/Move", {"source": "a/b", "destination": "x"}).json["code"] == "not_found"
    assert box.call("filesystem.Filesystem/Remove", {"path": "c"}).json == {}
    assert box.stat("c").json["code"] == "not_found"
    assert box.call("filesystem.Filesystem/Remove", {"path": "c"}).json == {}
    assert box.call("filesystem.Filesystem/ListDir", {"path": "nothing"}).json["code"] == "not_found"


def test_links_are_told_with_their_end(box):
    box.run("mkdir t; ln -s t one; ln -s one two; ln -s nowhere three")
    two = box.stat("two").json["entry"]
    assert two["type"] == "FILE_TYPE_DIRECTORY" and two["symlinkTarget"].endswith("/t") and two["permissions"].startswith("L")
    assert box.stat("three").json["entry"]["type"] == "FILE_TYPE_UNSPECIFIED"


def test_many_questions_at_once_are_all_answered(box):
    box.put("f", b"x")
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: box.stat("f").status, range(200)))
    assert set(answers) == {200}


def test_metadata_stays_with_a_file_until_it_is_written_again(box):
    written = box.put("f", b"x", X_Metadata_Author="me")
    if written.status == 500:
        pytest.skip("the file system has no extended attributes")
    assert written.json[0]["metadata"] == {"author": "me"}
    assert box.stat("f").json["entry"]["metadata"] == {"author": "me"}
    box.put("f", b"y")
    assert "metadata" not in box.stat("f").json["entry"]


@pytest.mark.parametrize("backend", ["native"])
def test_root_works_for_the_user_that_is_named(make_daemon, backend):
    box = Box(make_daemon(backend=backend, settings={"e2b": {"enabled": True}}))
    assert box.put("/opt/app/main", b"x").status == 200
    entry = box.stat("/opt/app/main").json["entry"]
    assert (entry["owner"], entry["group"]) == ("user", "user")
    assert box.stat("/opt/app").json["entry"]["owner"] == "user"
    assert box.put("/opt/root", b"x").status == 200
    assert box.request("POST", "/files?path=mine&username=root", b"x", Content_Type="application/octet-stream").json[0]["path"] == "/root/mine"
    assert box.stat("/root/mine").json["entry"]["owner"] == "root"
    assert box.stat("x", user="nobody-knows").json["code"] == "unauthenticated"
    assert box.run("whoami; echo $HOME; pwd")[0] == b"user\n/home/user\n/home/user\n"


# --- changes ----------------------------------------------------------------------------------------------------------------------


def kinds(events):
    return [(e["type"].removeprefix("EVENT_TYPE_"), e["name"]) for e in events]


def test_changes_are_followed(box):
    box.call("filesystem.Filesystem/MakeDir", {"path": "w/sub"})
    stream = box.stream("filesystem.Filesystem/WatchDir", {"path": "w", "recursive": True, "includeEntry": True})
    assert stream.next() == {"start": {}}
    box.put("w/sub/f", b"x")
    seen = [stream.next()["filesystem"] for _ in range(3)]
    assert kinds(seen) == [("CREATE", "sub/f"), ("CHMOD", "sub/f"), ("WRITE", "sub/f")]
    assert seen[2]["entry"]["path"].endswith("/w/sub/f") and seen[2]["entry"]["size"] == "1"
    box.call("filesystem.Filesystem/Move", {"source": "w/sub/f", "destination": "w/g"})
    assert sorted(kinds([stream.next()["filesystem"], stream.next()["filesystem"]])) == [("CREATE", "g"), ("RENAME", "sub/f")]
    box.call("filesystem.Filesystem/Remove", {"path": "w/g"})
    assert kinds([stream.next()["filesystem"]]) == [("REMOVE", "g")]
    stream.close()


def test_changes_are_kept_until_they_are_asked_for(box):
    box.call("filesystem.Filesystem/MakeDir", {"path": "w"})
    watcher = box.call("filesystem.Filesystem/CreateWatcher", {"path": "w"}).json
    assert box.call("filesystem.Filesystem/GetWatcherEvents", watcher).json == {"events": []}
    box.put("w/f", b"x")
    events = []

    def have_come():
        """On a busy machine an answer may have only the first of them."""
        events.extend(box.call("filesystem.Filesystem/GetWatcherEvents", watcher).json["events"])
        return len(events) >= 3

    wait_for(have_come, "the events")
    assert kinds(events) == [("CREATE", "f"), ("CHMOD", "f"), ("WRITE", "f")]
    assert box.call("filesystem.Filesystem/GetWatcherEvents", watcher).json == {"events": []}
    other = Box(box.daemon)
    assert other.call("filesystem.Filesystem/GetWatcherEvents", watcher).json["code"] == "not_found"
    assert box.call("filesystem.Filesystem/RemoveWatcher", watcher).json == {}
    assert box.call("filesystem.Filesystem/GetWatcherEvents", watcher).json["code"] == "not_found"


def test_what_cannot_be_watched(box):
    box.put("f", b"x")
    assert box.call("filesystem.Filesystem/CreateWatcher", {"path": "nothing"}).json["code"] == "not_found"
    assert box.call("filesystem.Filesystem/CreateWatcher", {"path": "f"}).json["code"] == "invalid_argument"
    with pytest.raises(RuntimeError, match="not_found"):
        box.stream("filesystem.Filesystem/WatchDir", {"path": "nothing"}).all()
    watchers = [box.call("filesystem.Filesystem/CreateWatcher", {"path": "."}) for _ in range(5)]
    assert [w.json.get("code") for w in watchers] == [None] * 4 + ["resource_exhausted"]


# --- who --------------------------------------------------------------------------------------------------------------------------


def test_a_stranger_reaches_nothing(box):
    other = Box(box.daemon)
    for token in (other.token, "", "x" * 64):
        box.headers["X-Access-Token"] = token
        assert box.stat("/").status == 401
        assert box.call("process.Process/List", {}).status == 401
        assert box.request("GET", "/files?path=/etc/passwd").status == 401
        assert box.request("POST", "/files?path=x", b"x", Content_Type="application/octet-stream").status == 401
        assert box.request("GET", "/metrics").status == 401
    assert box.request("GET", "/health").status == 204


def test_usage_and_variables_are_told(make_daemon, backend):
    box = Box(make_daemon(backend=backend, settings={"e2b": {"enabled": True}}), envVars={"A": "b"})
    box.run("true")
    assert box.request("GET", "/envs").json["A"] == "b"
    assert box.request("GET", "/metrics").json["mem_total"] > 0
