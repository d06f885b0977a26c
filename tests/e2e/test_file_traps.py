# SPDX-License-Identifier: Apache-2.0
"""What a stranger would try on the files of a sandbox: nothing of the host shows, nothing hangs, and no answer is a 500."""
import io
import struct
import tarfile
import time
from urllib.parse import quote

import pytest

from conftest import WALLS


@pytest.fixture
def box(make_daemon):
    """Behind real walls: without them these paths are the host's."""
    daemon = make_daemon(backend=WALLS)
    return daemon, f"/sessions/{daemon.session()}"


def ask(box, method, route, body=None, headers=None, **parameters):
    daemon, base = box
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
    begin = time.monotonic()
    answer = daemon.api(method, f"{base}/{route}?{query}", body, headers=headers, timeout=30)
    assert answer.status < 500 or answer.status == 507, (method, route, parameters, answer.status, answer.body[:300])
    assert time.monotonic() - begin < 25
    return answer


PATHS = ["/proc/self/root/etc/passwd", "/proc/1/root/etc/shadow", "/proc/self/fd/0", "/proc/self/fd/3", "/proc/self/cwd/../../etc", "/proc/kcore", "/proc/kmsg",
         "/proc/self/mem", "/proc/1/mem", "/proc/1/environ", "/proc/sysrq-trigger", "/dev/zero", "/dev/random", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/stdin",
         "/sys/kernel/debug", "..", "../../../../../../etc/shadow", "a/../../..", "./" * 2000, "/" * 4000, "a" * 255, "a" * 256, "a/" * 2040, "x" * 5000, ".", "/", "//", "~", "~root",
         "-rf", "--", "*", "\n", "\r\nX: y", "\x7f", "%2e%2e", "..%2f", "\u202e", "C:\\x", "fifo", "socket", "loop", "chain", "dangling", "/proc/self/attr/current", "/proc/sys/kernel/hostname"]

ROUTES = [("GET", "files", None), ("HEAD", "files", None), ("PUT", "files", b"data"), ("DELETE", "files", None), ("GET", "files/stat", None), ("GET", "files/list", None),
          ("GET", "archive", None), ("POST", "files/mkdir", {}), ("POST", "files/edit", {"old": "a", "new": "b"})]


def test_every_route_with_every_odd_path(box):
    daemon, base = box
    session = base.rsplit("/", 1)[1]
    daemon.execute(session, command="mkfifo fifo; ln -s loop loop; ln -s /nowhere dangling; ln -s fifo chain; "
                                    "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"")
    before = open("/etc/hostname", "rb").read()
    for path in PATHS:
        for method, route, body in ROUTES:
            if route == "archive" and set(path) <= set("/.~"):
                continue  # all that the template has: long, and right
            if isinstance(body, dict):
                ask(box, method, route, {"path": path, **body})
            elif method == "DELETE" and path in ("/", "//", ".", "./" * 2000, "/" * 4000, ".."):
                assert ask(box, method, route, path=path).status >= 400
            else:
                ask(box, method, route, body, path=path)
    assert open("/etc/hostname", "rb").read() == before
    assert daemon.execute(session, ["/bin/echo", "alive"])["stdout"] == "alive\n"


RANGES = ["bytes=0-", "bytes=-1", "bytes=-0", "bytes=5-2", "bytes=0-0,2-3", "bytes=99999999999999999999-", "bytes=-99999999999999999999", "bytes=a-b", "bytes", "items=0-1", "bytes=0-" + "9" * 4000,
          "bytes= 1-2", "bytes=1-2,", "bytes=--1", "bytes=+1-2", "bytes=0x1-0x2", ",".join(["bytes=0-1"] + ["0-1"] * 500)]


def test_odd_ranges_and_conditions(box):
    ask(box, "PUT", "files", b"0123456789", path="f")
    for value in RANGES:
        answer = ask(box, "GET", "files", headers={"Range": value}, path="f")
        assert answer.status in (200, 206, 400, 416), (value, answer.status)
        assert len(answer.body) <= 10 or answer.status >= 400
    for value in ['"', "*", 'W/"x"', '"a", "b"', "x" * 4000, '""', "\x01"[:0] + '"\\""']:
        for name in ("If-Match", "If-None-Match"):
            ask(box, "PUT", "files", b"new", headers={name: value}, path="f")
            ask(box, "GET", "files", headers={name: value}, path="f")
    for name, value in (("depth", "-1"), ("depth", "99999999999"), ("limit", "0"), ("limit", "x"), ("cursor", "\0"), ("cursor", "9" * 5000), ("mode", "7777777"), ("mode", "x"), ("mode", "-1")):
        ask(box, "GET", "files/list", path=".", **{name: value})
        ask(box, "PUT", "files", b"x", path="g", **{name: value})
    for pattern in ("(" * 3000, "[", "a" * 9000, "(a*)*b", "\\", "**/" * 300, "{a,b" * 50, "\0"):
        ask(box, "GET", "files/grep", path=".", pattern=pattern)
        ask(box, "GET", "files/glob", path=".", pattern=pattern)


def header(name, size=b"0000000", kind=b"0", link=b"", mode=b"0000644", magic=b"ustar\x0000"):
    block = bytearray(512)
    block[0:len(name[:100])] = name[:100]
    block[100:107] = mode
    block[108:115] = block[116:123] = b"0000000"
    block[124:124 + len(size)] = size
    block[136:147] = b"00000000000"
    block[156:157] = kind
    block[157:157 + len(link[:100])] = link[:100]
    block[257:265] = magic
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(**records):
    data = b""
    for name, value in records.items():
        body = b" " + name.replace("_", ".").encode() + b"=" + value + b"\n"
        length = len(body)
        while length != len(body) + len(str(length)):
            length = len(body) + len(str(length))
        data += str(length).encode() + body
    return header(b"pax", b"%011o" % len(data), b"x") + data.ljust(-(-len(data) // 512) * 512, b"\0")


END = bytes(1024)
ARCHIVES = {
    "absolute": header(b"/etc/owned") + END,
    "dot dot": header(b"a/../../../owned") + END,
    "pax path": pax(path=b"../../owned") + header(b"innocent") + END,
    "pax link": pax(linkpath=b"/etc/passwd") + header(b"l", kind=b"1", link=b"x") + END,
    "pax size": pax(size=b"18446744073709551615") + header(b"f") + END,
    "pax negative size": pax(size=b"-1") + header(b"f") + END,
    "pax of nothing": header(b"pax", b"00000000000", b"x") + header(b"f") + END,
    "pax that lies": header(b"pax", b"00000000020", b"x") + b"999999999 path=x\n".ljust(512, b"\0") + header(b"f") + END,
    "global pax": header(b"g", b"00000000000", b"g") + header(b"f") + END,
    "hard link out": header(b"h", kind=b"1", link=b"/etc/passwd") + END,
    "hard link up": header(b"h", kind=b"1", link=b"../../../../etc/passwd") + END,
    "write through a link": header(b"d", kind=b"2", link=b"/tmp") + header(b"d/owned", b"00000000001") + b"x".ljust(512, b"\0") + END,
    "through two links": header(b"p", kind=b"2", link=b"..") + header(b"q", kind=b"2", link=b"p/..") + header(b"q/owned") + END,
    "device": header(b"dev", kind=b"3") + header(b"blk", kind=b"4") + header(b"fifo", kind=b"6") + END,
    "unknown type": header(b"u", kind=b"Z") + END,
    "base 256 size": header(b"big", b"\x80" + b"\0" * 3 + struct.pack(">Q", 1 << 62)) + END,
    "negative base 256": header(b"neg", b"\xff" * 12) + END,
    "huge octal": header(b"big", b"77777777777") + END,
    "sparse of GNU": header(b"s", b"00000000000", b"S", magic=b"ustar  \0") + END,
    "long name without end": header(b"L", b"00000010000", b"L") + b"a" * 4096 + header(b"f") + END,
    "long name of gigabytes": header(b"L", b"77777777777", b"L") + END,
    "not UTF-8": header(b"\xff\xfe\x80name") + END,
    "same name twice": header(b"t", b"00000000001") + b"1".ljust(512, b"\0") + header(b"t", kind=b"5") + header(b"t/x") + header(b"t", kind=b"2", link=b"/etc") + header(b"t/owned") + END,
    "set-user-id": header(b"suid", mode=b"0006777") + END,
    "wrong sum": header(b"f").replace(b"ustar", b"ustaz") + END,
    "half a header": header(b"f")[:300],
    "no end": header(b"f"),
    "names of dots": header(b".") + header(b"..") + header(b"./././") + header(b"") + END,
    "deep": header(b"/".join([b"d"] * 49) + b"/f") * 3 + END,
}


def test_archives_of_a_stranger(box):
    daemon, base = box
    session = base.rsplit("/", 1)[1]
    passwd = open("/etc/passwd", "rb").read()
    for name, data in ARCHIVES.items():
        answer = ask(box, "PUT", "archive", data, path="in")
        assert answer.status in (200, 400, 413, 422), (name, answer.status, answer.body)
    look = {"command": "find / -xdev -name owned -not -path '*/in/*' 2>/dev/null; find . -perm /6000; find . -type b -o -type c"}
    found = daemon.api("POST", f"{base}/executions", look, expect=201, timeout=180).json["stdout"]
    assert found == "" and open("/etc/passwd", "rb").read() == passwd
    listing = ask(box, "GET", "archive", path="in")
    if listing.status == 200:
        tarfile.open(fileobj=io.BytesIO(listing.body)).getnames()
    assert daemon.execute(session, ["/bin/echo", "alive"])["stdout"] == "alive\n"
