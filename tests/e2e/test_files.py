# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox: what comes in and out whole, and every trap that a payload or a client can set."""
import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from urllib.parse import quote, unquote_to_bytes

import pytest

from conftest import INSTANCE, SANDGLASS, WALLS, Daemon, UnixConnection, leftovers, wait_for

PYTHON = "/usr/bin/python3"


def assert_small(daemon, mebibytes=64):
    """The daemon's memory stays small; a sanitizer's own memory says nothing about that."""
    if "asan" not in str(SANDGLASS):
        assert daemon.resident_kib() < mebibytes * 1024


def is_ours(path):
    """The directory that sessions have for interpreters."""
    return path == ".sandglass" or path.startswith(".sandglass/")


class Box:
    """A session, with what the tests do to it."""

    def __init__(self, daemon, **options):
        self.daemon = daemon
        self.id = daemon.session(**options)
        self.work = self.run("import os; print(os.getcwd())").strip()

    def api(self, method, route, body=None, expect=None, **options):
        parameters = {name: value for name, value in options.items() if name not in ("headers", "timeout")}
        rest = {name: value for name, value in options.items() if name in ("headers", "timeout")}
        query = "&".join(f"{name}={quote(os.fsencode(value) if isinstance(value, str) else str(value), safe='')}"
                         for name, value in parameters.items())
        return self.daemon.api(method, f"/sessions/{self.id}/{route}" + (f"?{query}" if query else ""), body, expect, **rest)

    def get(self, path, expect=200, **options):
        return self.api("GET", "files", path=path, expect=expect, **options)

    def put(self, path, data=b"content", expect=201, **options):
        return self.api("PUT", "files", data, path=path, expect=expect, **options)

    def run(self, code, *arguments):
        """Python inside."""
        done = self.daemon.execute(self.id, [PYTHON, "-c", code, *arguments])
        assert done["exit_code"] == 0, done
        return done["stdout"]

    def names(self, path=".", depth=1):
        entries = self.api("GET", "files/list", path=path, depth=depth, expect=200).json["entries"]
        return [entry["path"] for entry in entries if not is_ours(entry["path"])]

    def nothing_is_half_done(self, path="."):
        def is_clean():
            return not [name for name in self.names(path, 8) if ".sandglass-" in name]
        wait_for(is_clean, "temporary files are gone")


@pytest.fixture(scope="module")
def daemons():
    """daemons(backend) is one daemon for all tests here: each has a session of its own."""
    directory = tempfile.mkdtemp(prefix="sgt-")
    os.chmod(directory, 0o711)
    made = {}

    def get(name, **settings):
        if name not in made:
            place = pathlib.Path(directory) / name
            place.mkdir(mode=0o711)
            settings.setdefault("instance", f"{INSTANCE}-{name}")
            settings.setdefault("pool", {"size": 0})  # whose descriptors would come and go
            made[name] = Daemon(place, settings, name.partition("-")[0]).start()
        return made[name]

    yield get
    for daemon in made.values():
        daemon.stop()
    wait_for(lambda: not any(leftovers(directory).values()), "nothing is left behind")
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def work():
    """Instead of a directory and a look at the whole machine for each test."""


@contextlib.contextmanager
def a_session(daemon):
    box = Box(daemon)
    yield box
    daemon.api("DELETE", f"/sessions/{box.id}")


@pytest.fixture
def box(daemons, backend):
    with a_session(daemons(backend)) as box:
        yield box


@pytest.fixture
def one(daemons):
    """For what is the same in every backend."""
    with a_session(daemons(WALLS)) as box:
        yield box


@pytest.fixture(scope="module")
def shared(daemons):
    """One session for archives that do not meet."""
    with a_session(daemons(WALLS)) as box:
        yield box


def code_of(answer):
    return answer.json["error"]["code"]


# --- in and out -------------------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_went_in(box):
    data = bytes(range(256)) * 41
    made = box.put("d/e/f.bin", data, mode="0640").json
    assert made["size"] == len(data) and made["mode"] == "0640"
    answer = box.get("d/e/f.bin")
    assert answer.body == data
    assert answer.headers["etag"] == made["etag"] and answer.headers["accept-ranges"] == "bytes"
    head = box.api("HEAD", "files", path="d/e/f.bin", expect=200)
    assert head.body == b"" and head.headers["content-length"] == str(len(data))
    assert box.put("d/e/f.bin", b"", fsync=1).json["mode"] == "0640"  # a replaced file keeps its mode
    assert box.get("d/e/f.bin").body == b""
    assert box.put("keeps", b"x", mode="6755").json["mode"] == "0755"  # no set-ID by an upload
    for mode in ("999", "-1", "+7", "", " 644", "77777"):
        box.put("x", b"", expect=400, mode=mode)
    box.nothing_is_half_done()


def test_ranges_and_tags(one):
    data = b"0123456789"
    tag = one.put("f", data).json["etag"]
    for header, status, body, told in [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"), ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=5-100", 206, b"56789", "bytes 5-9/10"),
        ("bytes=-100", 206, data, "bytes 0-9/10"), ("bytes=9-9", 206, b"9", "bytes 9-9/10"),
        ("bytes=10-", 416, None, "bytes */10"), ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=99999999999999999999-", 416, None, "bytes */10"), ("bytes=0-1,4-5", 200, data, None),
        ("bytes=3-1", 200, data, None), ("bytes=x-", 200, data, None), ("lines=0-1", 200, data, None), ("bytes=", 200, data, None),
    ]:
        answer = one.get("f", expect=status, headers={"Range": header})
        assert answer.headers.get("content-range") == told, header
        assert body is None or answer.body == body, header
    one.get("f", expect=304, headers={"If-None-Match": tag})
    one.get("f", expect=304, headers={"If-None-Match": f'"other", W/{tag}'})
    one.get("f", expect=304, headers={"If-None-Match": "*"})
    one.get("f", expect=200, headers={"If-None-Match": '"other"'})
    assert one.get("f", expect=206, headers={"Range": "bytes=0-0", "If-Range": tag}).body == b"0"
    assert one.get("f", expect=200, headers={"Range": "bytes=0-0", "If-Range": '"other"'}).body == data
    one.put("empty", b"")
    assert one.get("empty", expect=416, headers={"Range": "bytes=0-"}).headers["content-range"] == "bytes */0"


def test_uploads_on_conditions(one):
    tag = one.put("f", b"one", expect=201, headers={"If-None-Match": "*"}).json["etag"]
    assert code_of(one.put("f", b"two", expect=412, headers={"If-None-Match": "*"})) == "precondition_failed"
    one.put("f", b"two", expect=412, headers={"If-Match": '"other"'})
    one.put("missing", b"two", expect=412, headers={"If-Match": tag})
    one.put("missing", b"two", expect=412, headers={"If-Match": "*"})
    assert one.get("f").body == b"one"
    newer = one.put("f", b"two", expect=201, headers={"If-Match": tag}).json["etag"]
    assert newer != tag
    one.put("f", b"three", expect=412, headers={"If-Match": tag})
    one.put("f", b"three", expect=201, headers={"If-Match": f'"a", {newer}'})
    assert one.get("f").body == b"three" and one.names() == ["f"]


def test_a_file_that_changes_during_a_conditional_upload_is_kept(one):
    tag = one.put("f", b"one").json["etag"]
    with raw(one.daemon) as connection:
        connection.sendall(f"PUT /api/v1/sessions/{one.id}/files?path=f HTTP/1.1\r\nHost: localhost\r\nIf-Match: {tag}\r\n"
                           "Content-Length: 4\r\n\r\nab".encode())
        wait_for(lambda: len(one.names()) == 2, "the upload has begun")
        one.run("open('f', 'w').write('inside')")
        connection.sendall(b"cd")
        assert b" 412 " in connection.recv(4096).split(b"\r\n")[0]
    assert one.get("f").body == b"inside"
    one.nothing_is_half_done()


@contextlib.contextmanager
def raw(daemon, seconds=30):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(seconds)
    connection.connect(str(daemon.socket))
    try:
        yield connection
    finally:
        connection.close()


def test_what_is_too_large_is_refused_before_it_is_sent(daemons):
    box = Box(daemons("native-small", http={"body_limit": "64m"}, sandbox={"disk": "32m"}))
    for size in (33 << 20, 65 << 20, 1 << 60):
        for expectation in ("Expect: 100-continue\r\n", ""):
            with raw(box.daemon) as connection:
                connection.sendall(f"PUT /api/v1/sessions/{box.id}/files?path=f HTTP/1.1\r\nHost: localhost\r\n{expectation}"
                                   f"Content-Length: {size}\r\n\r\n".encode())
                assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
    answer = box.daemon.request("PUT", f"/api/v1/sessions/{box.id}/files?path=f", iter([b"x" * (1 << 20)] * 40))
    assert answer.status in (413, 507)
    box.nothing_is_half_done()
    assert box.names() == []
    wait_for(lambda: box.put("small", b"fits", expect=None).status == 201, "there is room again")


def test_cut_and_lying_uploads_leave_nothing(one):
    one.put("f", b"before")
    for body, length in [(b"abc", 10), (b"", 10)]:
        with raw(one.daemon) as connection:
            connection.sendall(f"PUT /api/v1/sessions/{one.id}/files?path=f HTTP/1.1\r\nHost: localhost\r\n"
                               f"Content-Length: {length}\r\n\r\n".encode() + body)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
    with raw(one.daemon) as connection:  # gone without a word
        connection.sendall(f"PUT /api/v1/sessions/{one.id}/files?path=g HTTP/1.1\r\nHost: localhost\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode())
        wait_for(lambda: len(one.names()) == 2, "the upload has begun")
    one.nothing_is_half_done()
    with raw(one.daemon) as connection:  # a second request hides in what is too much
        connection.sendall(f"PUT /api/v1/sessions/{one.id}/files?path=g HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Length: 2\r\n\r\nabTOO MUCH\r\n\r\n".encode())
        assert b" 201 " in connection.recv(4096)
    assert one.get("f").body == b"before" and one.get("g").body == b"ab"


def test_a_hundred_megabytes_both_ways(box):
    block = os.urandom(1 << 20)
    expected = hashlib.sha256()
    for _ in range(100):
        expected.update(block)
    inside = "import hashlib; print(hashlib.sha256(open('big', 'rb').read()).hexdigest())"
    connection = UnixConnection(str(box.daemon.socket))
    connection.request("PUT", f"/api/v1/sessions/{box.id}/files?path=big", (block for _ in range(100)),
                       {"Content-Length": str(100 << 20)})
    assert connection.getresponse().read() and box.run(inside).strip() == expected.hexdigest()
    connection.request("GET", f"/api/v1/sessions/{box.id}/files?path=big")
    response, received = connection.getresponse(), hashlib.sha256()
    while piece := response.read(1 << 20):
        received.update(piece)
    connection.close()
    assert received.hexdigest() == expected.hexdigest()
    assert_small(box.daemon)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_of_every_byte(one):
    for name in ["a b", "ä", "日本", "a%2fb", "%2e%2e", "a\\b", "..\\..\\x", "...", "-rf", "a\nb", "a\tb", "*", "?", "~", "$HOME",
                 "a;b", "a|b", "\x01", "\x7f", "a'b\"c", "&x=1", "#", "a+b", "x" * 255]:
        one.put(name, name.encode())
        assert one.get(name).body == name.encode(), name
    assert len(one.names()) == 24
    one.run("import os\nfor i in range(1, 256):\n if i != 47: open(b'byte-' + bytes([i]), 'w').close()")
    for byte in (1, 10, 127, 128, 255):
        answer = one.daemon.api("GET", f"/sessions/{one.id}/files?path=byte-%{byte:02x}")
        assert answer.status in (200, 400), (byte, answer.body)
    entries = one.api("GET", "files/list", path=".", expect=200).json["entries"]
    assert len([entry for entry in entries if entry["path"].startswith("byte-")]) == 254
    one.api("DELETE", "files", path="x" * 255, expect=200)


@pytest.mark.parametrize("path", ["%00", "a%00b", "%zz", "%", ""])
def test_bad_encodings_are_refused(shared, path):
    daemon, session = shared.daemon, shared.id
    for method in ("GET", "PUT", "DELETE"):
        answer = daemon.api(method, f"/sessions/{session}/files?path={path}", b"" if method == "PUT" else None)
        assert answer.status in (400, 404), (method, answer.status)
    assert daemon.api("POST", f"/sessions/{session}/files/mkdir", {"path": "a\0b"}).status == 400


@pytest.mark.parametrize("path", ["%c0%ae%c0%ae", "%252e%252e", "%ff%fe", "..%5c..%5cx", "%e0%80%ae"])
def test_names_are_decoded_once_and_mean_nothing_else(shared, path):
    name = os.fsdecode(unquote_to_bytes(path))
    shared.put(name, b"here")
    assert shared.get(name).body == b"here" and shared.api("GET", "files/stat", path="../" + name).status == 404


def test_paths_that_lead_elsewhere(one):
    """Nothing of the host is ever seen, whatever the path: /etc/hostname of the sandbox is the sandbox's."""
    for path in ["../../../../etc/passwd", "/../../etc/passwd", "/proc/1/root/etc/shadow", "/proc/self/root/etc/passwd",
                 "/proc/self/cwd/x", "/proc/self/fd/3", "/proc/self/exe", "/proc/self/mem", "/proc/self/environ", "/proc/1/environ",
                 "/proc/1/mem", "/dev/mem", "/dev/kmsg", *(["/sys/kernel/notes"] if WALLS == "native" else [])]:  # an engine shows /sys
        answer = one.api("GET", "files", path=path)
        if answer.status == 200:
            assert "etc/passwd" in path and answer.body == one.run("print(open('/etc/passwd').read(), end='')").encode()
        else:
            assert 400 <= answer.status < 500, (path, answer.status, answer.body)
    for path in ["/proc/self/root/tmp/x", "/proc/self/cwd/x", "/proc/sys/kernel/core_pattern", "/etc/passwd/x", "/", "..", ".", "a/.."]:
        answer = one.put(path, b"x", expect=None)
        assert 400 <= answer.status < 500, (path, answer.status, answer.body)


def test_links(box):
    outside = pathlib.Path(box.daemon.directory) / "canary"
    outside.write_text("canary")
    box.run("""import os, sys
os.symlink('loop', 'loop'); os.symlink('b', 'a'); os.symlink('a', 'b')
for i in range(45): os.symlink(f'chain{i + 1}', f'chain{i}')
open('chain45', 'w').write('end')
os.symlink('nowhere', 'dangling'); os.symlink('/proc/self/root', 'root'); os.symlink('real', 'way')
os.mkdir('real'); open('real/f', 'w').write('inside'); os.symlink('real/f', 'link')
os.symlink(sys.argv[1], 'out')""", str(outside))
    for path in ("loop", "a", "chain0", "root/etc/passwd", "loop/x", "dangling/x"):
        answer = box.get(path, expect=None)
        assert 400 <= answer.status < 500, (path, answer.status)
    assert box.get("way/f").body == b"inside" and box.get("link").body == b"inside"
    if box.daemon.settings["sandbox"]["backend"] != "direct":
        assert box.get("out", expect=None).status == 404
    box.put("dangling", b"new")  # the link is replaced, its target not made
    box.put("link", b"new")
    assert box.get("real/f").body == b"inside" and "nowhere" not in box.names()
    entries = {entry["path"]: entry for entry in box.api("GET", "files/list", expect=200).json["entries"]}
    assert entries["way"]["type"] == "link" and entries["way"]["target"] == "real"
    assert box.api("GET", "files/stat", path="way", follow=0, expect=200).json["type"] == "link"
    assert box.api("GET", "files/stat", path="way", expect=200).json["type"] == "directory"
    assert outside.read_text() == "canary"


# --- what is not a file -----------------------------------------------------------------------------------------------


def test_special_files_are_refused_at_once(box):
    box.run("""import os, socket
os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock'); os.mkdir('dir')
os.symlink('/dev/zero', 'zero'); os.symlink('/dev/tty', 'tty')""")
    began = time.monotonic()
    for path in ("fifo", "sock", "zero", "tty", "/dev/zero", "/dev/null", "dir", "fifo/below", "sock/below"):
        for method, route in (("GET", "files"), ("HEAD", "files"), ("GET", "archive"), ("GET", "files/watch"), ("GET", "files/grep")):
            extra = {"pattern": "x"} if route == "files/grep" else {}
            if path == "dir" and route != "files":
                continue
            answer = box.api(method, route, path=path, timeout=20, **extra)
            assert 400 <= answer.status < 500, (method, route, path, answer.status, answer.body)
    for path in ("dir", "fifo/below"):
        assert 400 <= box.put(path, expect=None, timeout=20).status < 500
    assert box.api("POST", "files/edit", {"path": "fifo", "old": "a", "new": "b"}).status == 400
    box.put("fifo", b"a file now")  # the name is replaced, nobody writes into the pipe
    assert box.get("fifo").body == b"a file now"
    assert len(box.names()) == 5
    assert time.monotonic() - began < 30


def test_busy_closed_and_read_only_targets(one):
    one.run("""import os, shutil, subprocess
shutil.copy('/bin/sleep', 'prog'); subprocess.Popen(['./prog', '30'], stdout=-3, stderr=-3, start_new_session=True)
open('ro', 'w').write('x'); os.chmod('ro', 0o444)
os.mkdir('closed'); open('closed/f', 'w').close(); os.chmod('closed', 0)
open('none', 'w').write('x'); os.chmod('none', 0)""")
    assert one.put("prog", b"replaced", expect=None).status in (201, 409)
    assert one.put("ro", b"replaced", expect=None).status in (201, 403)
    for path in ("closed/f", "none"):
        assert one.get(path, expect=None).status in (200, 403)  # root inside may
    assert one.get("missing", expect=404) and one.get("ro/below", expect=404)
    assert 400 <= one.put("ro/below", b"", expect=None).status < 500
    assert one.api("DELETE", "files", path="closed", recursive=1).status == 200
    one.api("DELETE", "files", path="missing", expect=404)
    one.put("full/f", b"")
    assert one.api("DELETE", "files", path="full", expect=409).json["error"]["code"] == "directory_not_empty"
    assert code_of(one.put("full", b"", expect=409)) == "is_a_directory"
    one.nothing_is_half_done()


# --- large and deep ---------------------------------------------------------------------------------------------------


def test_a_sparse_file_of_terabytes(one):
    made = one.run("""import sys
try: open('sparse', 'wb').truncate(8 << 40); print('yes')
except OSError: open('sparse', 'wb').truncate(1 << 40); print('less')""").strip()
    size = 8 << 40 if made == "yes" else 1 << 40
    assert one.api("GET", "files/stat", path="sparse", expect=200).json["size"] == size
    assert one.get("sparse", expect=206, headers={"Range": f"bytes={size - 2}-"}).body == b"\0\0"
    connection = UnixConnection(str(one.daemon.socket))
    connection.request("GET", f"/api/v1/sessions/{one.id}/files?path=sparse")
    response = connection.getresponse()
    assert response.headers["Content-Length"] == str(size) and response.read(1 << 20) == bytes(1 << 20)
    connection.close()
    assert tar_of(one.api("GET", "archive", path=".", expect=200).body).getnames() == ["."]  # left out, and a comment says so
    assert one.api("GET", "files/grep", pattern="x", expect=200).json["files_skipped"] == 1
    assert code_of(one.api("POST", "files/edit", {"path": "sparse", "old": "a", "new": "b"}, expect=413)) == "file_too_large"
    assert_small(one.daemon)


def test_four_hundred_levels(one):
    one.run("""import os
for i in range(400):
    os.mkdir('d' * 20); os.chdir('d' * 20)
open('deepest', 'w').write('needle')""")
    names = one.names(depth=512)
    assert len(names) == 401 and names[-1].endswith("/deepest")
    found = one.api("GET", "files/glob", pattern="**/deepest", expect=200).json
    assert len(found["entries"]) == 1 and not found["truncated"]
    assert one.api("GET", "files/grep", pattern="needle", expect=200).json["matches"] == 1
    tar = tar_of(one.api("GET", "archive", path=".", expect=200).body)
    assert tar.getnames()[-1] == names[-1]
    assert one.get(names[-1], expect=None).status in (400, 414)  # over PATH_MAX
    one.api("GET", "files/list", path=".", depth=513, expect=400)
    one.api("DELETE", "files", path="d" * 20, recursive=1, expect=200)
    assert one.names() == []


def test_very_many_entries_are_bounded(one):
    one.run("import os; os.mkdir('many')\nfor i in range(100000): os.mknod(f'many/{i:06}')")
    first = one.api("GET", "files/list", path="many", limit=1000, expect=200).json
    assert first["total"] == 100000 and len(first["entries"]) == 1000 and first["next_cursor"] == "1000"
    assert [entry["path"] for entry in first["entries"][:2]] == ["000000", "000001"]
    last = one.api("GET", "files/list", path="many", limit=1000, cursor=99999, expect=200).json
    assert [entry["path"] for entry in last["entries"]] == ["099999"] and last["next_cursor"] is None
    assert one.api("GET", "files/list", path="many", cursor=100000, expect=200).json["entries"] == []
    found = one.api("GET", "files/glob", path="many", pattern="*", expect=200).json
    assert len(found["entries"]) == 1000 and found["truncated"]
    assert_small(one.daemon, 128)


# --- races ------------------------------------------------------------------------------------------------------------


SWAP = """import ctypes, os, sys, time
libc = ctypes.CDLL(None)
os.makedirs('real/d', exist_ok=True); open('real/d/f', 'w').write('inside' * 100)
os.symlink(sys.argv[1], 'trap')
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(1000): libc.renameat2(-100, b'real', -100, b'trap', 2)
"""


def test_a_directory_that_is_swapped_with_a_link_never_shows_the_host(one):
    outside = pathlib.Path(one.daemon.directory) / "victim"
    (outside / "d").mkdir(parents=True)
    (outside / "d" / "f").write_text("canary")
    os.chmod(outside, 0o777)
    os.chmod(outside / "d", 0o777)
    one.daemon.execute(one.id, [PYTHON, "-c", SWAP, str(outside), "1.5"], background=True)
    wait_for(lambda: "trap" in one.names(), "the race has begun")
    archive = tar_with(("real/d/g", b"x"))
    deadline = time.monotonic() + 1.2
    while time.monotonic() < deadline:
        for path in ("real/d/f", "trap/d/f"):
            answer = one.get(path, expect=None)
            assert answer.status in (200, 404, 409, 400) and b"canary" not in answer.body
            one.put(path, b"inside" * 100, expect=None)
        assert b"canary" not in one.api("GET", "archive", path="real").body
        assert b"canary" not in one.api("GET", "files/grep", pattern="canary").body.replace(b'"canary"', b"")
        assert one.api("PUT", "archive", archive, path=".").status == 200
        assert one.api("GET", "files/list", path="real", depth=3).status in (200, 404)
    assert (outside / "d" / "f").read_text() == "canary" and os.listdir(outside / "d") == ["f"]


def test_a_file_that_becomes_a_directory(one):
    one.daemon.execute(one.id, [PYTHON, "-c", """import os, time
end = time.monotonic() + 0.8
while time.monotonic() < end:
    open('x', 'w').write('file'); os.unlink('x'); os.mkdir('x'); os.rmdir('x')"""], background=True)
    deadline = time.monotonic() + 0.7
    while time.monotonic() < deadline:
        answer = one.get("x", expect=None)
        assert answer.status in (200, 404, 409) and answer.body in (b"", b"file") or answer.status != 200


# --- finding ----------------------------------------------------------------------------------------------------------


def found(box, pattern, **options):
    entries = box.api("GET", "files/glob", pattern=pattern, expect=200, **options).json["entries"]
    return [entry["path"] for entry in entries if not is_ours(entry["path"])]


def test_glob(box):
    for path in ("a.py", "b.txt", "s/c.py", "s/t/d.py", "s/t/.hidden.py", ".venv/e.py", "s/[x].py"):
        box.put(path, b"")
    assert found(box, "*.py") == ["a.py"]
    assert found(box, "**/*.py") == ["a.py", "s/[x].py", "s/c.py", "s/t/d.py"]
    assert found(box, "s/**") == ["s/[x].py", "s/c.py", "s/t", "s/t/d.py"]
    assert found(box, "**/*.py", hidden=1) == [".venv/e.py", "a.py", "s/[x].py", "s/c.py", "s/t/.hidden.py", "s/t/d.py"]
    assert found(box, "?.[pt]*") == ["a.py", "b.txt"] and found(box, "[!a].*") == ["b.txt"]
    assert found(box, "s/\\[x].py") == ["s/[x].py"] and found(box, ".venv/*") == [".venv/e.py"]
    assert found(box, "*.py", path="s") == ["[x].py", "c.py"]
    cut = box.api("GET", "files/glob", pattern="**", limit=2, expect=200).json
    assert len(cut["entries"]) == 2 and cut["truncated"]
    for bad in ("/etc/*", "../*", "a/../b", "[", "a//b", "", "**/" * 70 + "x"):
        assert box.api("GET", "files/glob", pattern=bad).status == 400, bad
    box.api("GET", "files/glob", pattern="*", path="missing", expect=404)
    box.api("GET", "files/glob", pattern="*", path="a.py", expect=404)
    began = time.monotonic()
    box.put("a" * 200, b"")
    assert found(box, "*a" * 40 + "b") == [] and time.monotonic() - began < 20


def test_grep(box):
    box.put("a.py", b"one\ntwo needle\nthree\nfour\nNEEDLE five\r\nsix")
    box.put("s/b.txt", b"x" * 5000 + b"needle" + b"y" * 5000 + b"\nneedle")
    box.put("s/bin", b"needle\n\0needle\n")
    box.put(".hidden", b"needle")
    lines = box.api("GET", "files/grep", pattern="needle", expect=200).json
    assert [(line["path"], line["line"]) for line in lines["lines"]] == [("a.py", 2), ("s/b.txt", 1), ("s/b.txt", 2)]
    assert lines["lines"][1]["cut"] and len(lines["lines"][1]["text"]) == 500
    assert lines["matches"] == 3 and lines["files_skipped"] == 1 and not lines["truncated"]

    def search(pattern, **options):
        answer = box.api("GET", "files/grep", pattern=pattern, expect=200, **options).json
        return [(line["line"], line["match"]) for line in answer["lines"] if line["path"] == "a.py"]
    assert search("needle", ignore_case=1) == [(2, True), (5, True)]
    assert search("needle", glob="*.py", context=1) == [(1, False), (2, True), (3, False)]
    assert search("NEEDLE FIVE", fixed=1, ignore_case=1, context=2) == [(3, False), (4, False), (5, True), (6, False)]
    assert search("^(one|six)$") == [(1, True), (6, True)]
    assert search("five$") == [(5, True)]  # a line ends before its CR
    assert search("o.e", fixed=1) == [] and search("needle", hidden=1, glob="**/*.py") == [(2, True)]
    cut = box.api("GET", "files/grep", pattern="needle", limit=1, expect=200).json
    assert cut["matches"] == 1 and cut["truncated"]
    for bad in ("(", "[", "a{1", "(()"):
        assert code_of(box.api("GET", "files/grep", pattern=bad, expect=400)) == "invalid_pattern", bad
    box.api("GET", "files/grep", pattern="x", context=21, expect=400)
    box.api("GET", "files/grep", pattern="x", glob="[", expect=400)
    assert box.api("GET", "files/grep", pattern="(((((((a{1,250}){1,250}){1,250})))))").status in (200, 400, 504)
    assert box.get("a.py").status == 200


def test_edit(box):
    box.put("f", b"one two two\xff\n", mode="0755")

    def edit(expect, **body):
        return box.api("POST", "files/edit", {"path": "f", **body}, expect=expect).json
    done = edit(200, old="one", new="1")
    assert done["replacements"] == 1 and done["mode"] == "0755"
    assert edit(409, old="two", new="2")["error"]["count"] == 2
    assert edit(409, old="three", new="3")["error"]["count"] == 0
    assert edit(409, old="three", new="3", replace_all=True)["error"]["code"] == "match_count"
    assert box.get("f").body == b"1 two two\xff\n"
    assert edit(200, old="two", new="", replace_all=True)["replacements"] == 2
    assert box.get("f").body == b"1  \xff\n"
    for bad in ({"old": "", "new": "x"}, {"old": "x", "new": "x"}, {"old": "x"}, {"old": 1, "new": "x"}, {"old": "a", "new": "b", "path": ""}):
        edit(400, **bad)
    box.run("import os; os.symlink('f', 'l'); os.mkdir('d')")
    assert edit(409, path="l", old="1", new="2")["error"]["code"] == "is_a_link"
    edit(409, path="d", old="1", new="2")
    edit(404, path="missing", old="1", new="2")
    assert box.names() == ["d", "f", "l"]


def test_edits_at_the_same_time_lose_nothing(one):
    one.put("f", b"".join(b"<%d>" % i for i in range(40)))
    results = []

    def change(i):
        while True:
            status = one.api("POST", "files/edit", {"path": "f", "old": f"<{i}>", "new": f"[{i}]"}).status
            if status != 412:
                results.append(status)
                return
    threads = [threading.Thread(target=change, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [200] * 40
    one.nothing_is_half_done()


# --- archives ---------------------------------------------------------------------------------------------------------


def tar_of(data):
    return tarfile.open(fileobj=io.BytesIO(data))


def member(name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar_with(*members, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for item in members:
            info, data = member(*item) if isinstance(item[0], str) else item
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return out.getvalue()


def unpack(box, data, path="in", expect=200, **options):
    answer = box.api("PUT", "archive", data, path=path, expect=expect, **options).json
    return answer, {item["path"]: item["reason"] for item in answer.get("refused", [])}


def test_a_directory_travels_as_a_tar(box):
    long = "n" * 150 + "/" + "m" * 200
    box.run(f"""import os
os.makedirs('t/sub/empty'); open('t/a', 'w').write('A' * 1000); os.chmod('t/a', 0o754)
os.makedirs(os.path.dirname('t/{long}')); open('t/{long}', 'w').write('long'); os.symlink('../a', 't/sub/link')
os.mkfifo('t/fifo'); open('t/none', 'w'); os.chmod('t/none', 0); os.utime('t/a', (0, 1234567890))""")
    plain = box.api("GET", "archive", path="t", expect=200)
    assert plain.headers["content-type"] == "application/x-tar" and "content-encoding" not in plain.headers
    tar = tar_of(plain.body)
    assert {"a", "sub", "sub/empty", "sub/link", long} <= set(tar.getnames()) and "fifo" not in tar.getnames()
    assert tar.getmember("a").mode == 0o754 and tar.getmember("a").mtime == 1234567890
    assert tar.extractfile(long).read() == b"long" and tar.getmember("sub/link").linkname == "../a"
    packed = box.api("GET", "archive", path="t", expect=200, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert packed.headers["content-encoding"] == "gzip" and gzip.decompress(packed.body) == plain.body
    assert "content-encoding" not in box.api("GET", "archive", path="t", headers={"Accept-Encoding": "gzip;q=0"}).headers
    assert box.api("HEAD", "archive", path="t", expect=200).body == b""
    answer, refused = unpack(box, packed.body, "copy/here", headers={"Content-Encoding": "gzip"})
    assert not refused and answer["unpacked"] == len(set(tar.getnames()) - {"."})  # which ends it when what is left out comes last
    assert box.get(f"copy/here/{long}").body == b"long" and box.get("copy/here/sub/link").body == b"A" * 1000
    stat = box.api("GET", "files/stat", path="copy/here/a", expect=200).json
    assert stat["mode"] == "0754" and stat["modified"].startswith("2009-02-13T")
    box.api("GET", "archive", path="missing", expect=404)
    box.api("GET", "archive", path="t/a", expect=404)
    assert unpack(box, packed.body, "t/a", expect=409)[0]["error"]["code"] == "not_a_directory"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_all_formats(one, format):
    long = "/".join(["d" * 50] * 3) + "/f"
    answer, refused = unpack(one, tar_with(("./",), ("./x", b"1"), (long, b"2"), ("e/", b""), format=format))
    assert not refused and one.get("in/x").body == b"1" and one.get("in/" + long).body == b"2"
    if format != tarfile.USTAR_FORMAT:
        longer = "q" * 120 + "/" + "r" * 130
        assert not unpack(one, tar_with((longer, b"3"), format=format))[1] and one.get("in/" + longer).body == b"3"


HOSTILE = {
    "goes up": (("../evil", b"x"), ("a/../../evil", b"x"), ("..", b"x")),
    "absolute": (("/tmp/evil", b"x"), ("//tmp/evil", b"x")),
    "link out": (member("l", type=tarfile.SYMTYPE, linkname="/etc"), member("m", type=tarfile.SYMTYPE, linkname="../.."),
                 member("d/n", type=tarfile.SYMTYPE, linkname="../../x")),
    "through a link": (member("l", type=tarfile.SYMTYPE, linkname="."), ("l/evil", b"x"), ("l/d/evil", b"x")),
    "through a link to a link": (member("a", type=tarfile.SYMTYPE, linkname="b"), member("b", type=tarfile.SYMTYPE, linkname="."), ("a/evil", b"x")),
    "hard link out": (member("h", type=tarfile.LNKTYPE, linkname="../../etc/passwd"), member("i", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
                      member("j", type=tarfile.LNKTYPE, linkname="missing")),
    "hard link to a link": (member("s", type=tarfile.SYMTYPE, linkname="ok"), member("h", type=tarfile.LNKTYPE, linkname="s")),
    "devices": (member("c", type=tarfile.CHRTYPE, devmajor=1, devminor=5), member("b", type=tarfile.BLKTYPE), member("p", type=tarfile.FIFOTYPE)),
    "twice": (("f", b"first"), ("f", b"second"), ("./f", b"third")),
    "odd types": (member("v", type=b"V"), member("m", type=b"M"), member("z", type=b"z")),
    "empty names": ((".", b"x"), ("./.", b"x")),
    "directory in the way": (("d/",), ("d", b"x")),
    "file in the way": (("f", b"x"), ("f/g", b"x")),
    "long name": (("x" * 300, b"x"), ("y/" * 3000 + "z", b"x")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_members_are_refused_one_by_one(shared, kind):
    data = tar_with(("ok", b"fine"), *(item if isinstance(item[0], tarfile.TarInfo) else (item[0], *item[1:]) for item in HOSTILE[kind]),
                    ("last", b"fine"))
    path = kind.replace(" ", "-")
    answer, refused = unpack(shared, data, path)
    assert refused or kind == "directory in the way", answer
    assert shared.get(f"{path}/ok").body == b"fine" and shared.get(f"{path}/last").body == b"fine"
    everything = shared.names(".", 8)
    assert not [name for name in everything if name.endswith("evil")] and "evil" not in everything
    assert shared.api("GET", "files/stat", path="/tmp/evil").status == 404
    if kind == "twice":
        assert shared.get(f"{path}/f").body == b"first"


def patched(data, offset, value):
    """A tar whose first header has other bytes, and the right checksum."""
    header = bytearray(data[:512])
    header[offset:offset + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


def test_archives_that_lie_about_themselves(shared):
    good = tar_with(("f", b"content"))
    for name, data, status in [
        ("negative size", patched(good, 124, b"\xff" * 12), 400),
        ("size in letters", patched(good, 124, b"zzzzzzzzzzzz"), 400),
        ("huge size", patched(good, 124, b"\x80\0\0\0\x7f" + b"\xff" * 7), 413),
        ("exabytes", patched(good, 124, b"\x80" + b"\xff" * 11), 400),
        ("wrong checksum", good[:148] + b"000000\0 " + good[156:], 400),
        ("cut in a content", tar_with(("f", b"x" * 5000))[:2000], 400),
        ("cut in a header", good[:300], 400),
        ("no tar at all", os.urandom(4096), 400),
        ("gzip, but not told", gzip.compress(good), 400),
        ("long header", patched(tar_with(("f" * 200, b"x")), 124, b"77777777777\0"), 400),
    ]:
        answer = shared.api("PUT", "archive", data, path="lies")
        assert answer.status == status, (name, answer.status, answer.body)
    assert "lies/f" not in shared.names(".", 3)
    shared.nothing_is_half_done()
    assert unpack(shared, b"", "lies")[0]["unpacked"] == 0
    assert unpack(shared, tar_with(member("s", b"x", mode=0o7777)), "bits")[0]["unpacked"] == 1
    assert shared.api("GET", "files/stat", path="bits/s", expect=200).json["mode"] == "0777"


def test_compressed_archives_that_lie(shared):
    headers = {"Content-Encoding": "gzip"}
    good = gzip.compress(tar_with(("f", b"content")))
    for data in (good[:-9], good + b"rubbish", b"rubbish", good[:40]):
        assert shared.api("PUT", "archive", data, path="g", headers=headers).status == 400
    assert shared.api("PUT", "archive", good, path="g", headers={"Content-Encoding": "br"}).status == 415
    assert unpack(shared, good, "g2", headers=headers)[0]["unpacked"] == 1
    info, _ = member("bomb")
    info.size = 100 << 20
    bomb = gzip.compress(info.tobuf() + bytes(100 << 20), 6)
    answer = shared.api("PUT", "archive", bomb, path="bomb", headers=headers)
    assert answer.status == 413 and code_of(answer) == "archive_too_large"
    wait_for(lambda: not [name for name in shared.names(".", 3) if "sandglass-" in name], "the bomb is gone")
    assert shared.names("bomb") == []
    assert_small(shared.daemon)


def test_an_archive_of_many_members_and_one_that_is_cut(shared):
    data = tar_with(*((f"d{i % 50}/f{i}", b"%d" % i) for i in range(5000)))
    assert unpack(shared, data, "many")[0]["unpacked"] == 5000
    assert len(shared.names("many", 2)) == 5050
    with raw(shared.daemon) as connection:
        connection.sendall(f"PUT /api/v1/sessions/{shared.id}/archive?path=cut HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Length: 1000000\r\n\r\n".encode() + tar_with(("a", b"whole"), ("b", b"x" * 100000))[:3000])
        wait_for(lambda: len([n for n in shared.names() if n == "cut"]) == 1 and "a" in shared.names("cut"), "it has begun")
    wait_for(lambda: shared.names("cut") == ["a"], "only what is whole is left")


# --- watching ---------------------------------------------------------------------------------------------------------


class Watch:
    def __init__(self, box, **options):
        self.connection = UnixConnection(str(box.daemon.socket))
        query = "&".join(f"{name}={value}" for name, value in options.items())
        self.connection.request("GET", f"/api/v1/sessions/{box.id}/files/watch?{query}")
        self.response = self.connection.getresponse()

    def next(self):
        event = None
        while line := self.response.readline().decode():
            if line.startswith("event: "):
                event = line[7:].strip()
            elif line.startswith("data: "):
                return event, json.loads(line[6:])
        return None, None

    def until(self, event, path):
        seen = []
        while True:
            name, data = self.next()
            assert name, f"ended before {event} {path}: {seen}"
            seen.append((name, data.get("path")))
            if (name, data.get("path")) == (event, path):
                return seen

    def close(self):
        self.connection.close()


def test_changes_are_told_as_they_happen(box):
    box.put("d/old", b"")
    watch = Watch(box, path=".", recursive=1)
    event, told = watch.next()
    assert watch.response.status == 200 and event == "watching" and told["directories"] >= 2 and not told["truncated"]
    box.run("open('f', 'w').write('x')")
    assert ("created", "f") in watch.until("written", "f")  # the daemon may close d/old only now, which is told before it
    box.run("import os; os.rename('f', 'd/g'); os.makedirs('n/m'); open('n/m/late', 'w').close()")
    watch.until("moved_to", "d/g")
    watch.until("created", "n/m/late")
    box.run("import os; os.rename('n', 'd/n'); open('d/n/m/later', 'w').close(); os.unlink('d/g')")
    seen = watch.until("deleted", "d/g")
    assert ("created", "d/n/m/later") in seen
    box.put("up", b"x")
    assert ("created", "up") not in watch.until("moved_to", "up")  # atomic: it is there at once
    flat = Watch(box, path="d")
    flat.next()
    box.run("open('d/n/below', 'w').close(); open('d/here', 'w').close()")
    assert all("below" not in path for _, path in flat.until("created", "here"))
    flat.close()
    watch.close()


def test_watches_are_bounded_and_end_with_the_client(one):
    before = one.daemon.descriptors()
    watches = [Watch(one, path=".") for _ in range(4)]
    assert all(watch.next()[0] == "watching" for watch in watches)
    assert code_of(one.api("GET", "files/watch", path=".", expect=429)) == "too_many_file_operations"
    assert one.names() == []  # lists go on
    for watch in watches:
        watch.close()
    wait_for(lambda: one.daemon.descriptors() <= before, "nothing is held for clients that left")

    def is_free():
        watch = Watch(one, path=".")
        watch.close()
        return watch.response.status == 200
    wait_for(is_free, "their places are free again")


def test_a_watch_ends_with_the_sandbox(one):
    watch = Watch(one, path=".")
    watch.next()
    one.daemon.api("DELETE", f"/sessions/{one.id}", expect=200)
    assert watch.next() == ("end", {"reason": "deleted"})
    assert watch.next() == (None, None)
    watch.close()


def test_changes_that_nobody_reads_are_told_as_lost(one):
    one.run("import os; os.mkdir('w')")
    watch = Watch(one, path="w")
    watch.next()
    one.run("import os\nfor i in '01': open(f'w/{i}', 'w').close()\nfor i in range(80000): os.utime(f'w/{i % 2}')")
    seen = set()
    while "overflow" not in seen:
        event, _ = watch.next()
        assert event
        seen.add(event)
    watch.close()


# --- what a run has made ----------------------------------------------------------------------------------------------


def test_files_of_a_run(box):
    box.put("old", b"")
    box.put("changed", b"")
    box.run("import time; time.sleep(0.05)")  # those are older than the run by more than a tick of the kernel's clock
    answer = box.daemon.api("POST", "/execute", {"session_id": box.id, "code": "import os; os.mkdir('out')\n"
                            "open('changed', 'a').write('x'); open('out/new.png', 'w').write('xy'); open('.secret', 'w')\n"}, expect=200).json
    assert sorted(item["name"] for item in answer["session_files"]) == ["changed", "out/new.png"]
    assert {item["name"]: item["size"] for item in answer["session_files"]} == {"changed": 1, "out/new.png": 2}
    assert sorted(answer["output_files"]) == ["changed", "out/new.png"]


# --- the command line -------------------------------------------------------------------------------------------------


def test_directories_are_copied_both_ways(box, tmp_path):
    source = tmp_path / "src"
    long = "n" * 120 + "/" + "m" * 120
    for name, data in (("a.txt", b"A"), ("sub/b.bin", bytes(range(256)) * 1000), (long, b"long")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    (source / "empty").mkdir()
    (source / "a.txt").chmod(0o750)
    (source / "sub" / "link").symlink_to("../a.txt")
    (source / "out").symlink_to("/etc/passwd")
    copied = box.daemon.cli("cp", source, f"{box.id}:dst")
    assert copied.returncode == 0 and copied.stdout == "" and "out: the link leads to an absolute path" in copied.stderr
    assert box.get("dst/sub/link").body == b"A" and box.get(f"dst/{long}").body == b"long" and "dst/empty" in box.names(".", 2)
    assert box.daemon.cli("cp", f"{source}/", f"{box.id}:into/").returncode == 0
    assert box.get("into/src/a.txt").body == b"A"
    back = tmp_path / "back"
    assert box.daemon.cli("cp", f"{box.id}:dst", back).returncode == 0
    assert (back / "sub" / "b.bin").read_bytes() == bytes(range(256)) * 1000 and (back / long).read_bytes() == b"long"
    assert (back / "a.txt").stat().st_mode & 0o777 == 0o750 and os.readlink(back / "sub" / "link") == "../a.txt"
    assert box.daemon.cli("cp", f"{box.id}:dst", back).returncode == 0 and (back / "dst" / "a.txt").exists()
    out = box.daemon.cli("cp", f"{box.id}:dst", "-", text=False)
    assert "a.txt" in tar_of(out.stdout).getnames()
    assert box.daemon.cli("cp", "-", f"{box.id}:again", stdin=out.stdout, text=False).returncode == 0
    assert box.get("again/a.txt").body == b"A"
    assert box.daemon.cli("cp", f"{box.id}:missing", tmp_path / "x").returncode == 1


def test_a_file_is_copied_to_stdout_as_it_is(box, tmp_path):
    box.put("plain.bin", bytes(range(256)))
    for stdout in ("-", "/dev/stdout"):
        assert box.daemon.cli("cp", f"{box.id}:plain.bin", stdout, text=False).stdout == bytes(range(256))
    with open(tmp_path / "out", "wb") as out:  # a regular file, which cp would replace by its name
        subprocess.run([SANDGLASS, "cp", f"{box.id}:plain.bin", "/dev/stdout"], stdout=out, env={**os.environ, "SANDGLASS_URL": box.daemon.url}, check=True)
    assert os.path.islink("/dev/stdout") and (tmp_path / "out").read_bytes() == bytes(range(256))


def test_a_hostile_directory_is_copied_out_without_harm(box, tmp_path):
    box.run("import os; os.mkdir('h'); os.symlink('/etc', 'h/l'); os.symlink('../../x', 'h/m'); open('h/ok', 'w').write('ok'); os.mkfifo('h/p')")
    (tmp_path / "dst").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "dst" / "h").mkdir()
    (tmp_path / "dst" / "h" / "ok").symlink_to(tmp_path / "victim" / "f")
    copied = box.daemon.cli("cp", f"{box.id}:h", tmp_path / "dst")
    assert copied.returncode == 0 and copied.stderr.count("refused: ") == 2
    assert (tmp_path / "dst" / "h" / "ok").read_text() == "ok" and os.listdir(tmp_path / "victim") == []
