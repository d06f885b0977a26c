"""Output: complete, by offset, at speed, and never at somebody else's cost."""
import hashlib
import socket
import time

import pytest

from conftest import SANDGLASS, UnixConnection, wait_for

SANITIZED = "asan" in str(SANDGLASS)


def background(daemon, session, **body):
    run = daemon.api("POST", f"/sessions/{session}/executions", {"background": True, **body}, expect=201).json["id"]
    return f"/sessions/{session}/executions/{run}"


def test_inline_output_is_head_and_tail_with_exact_totals(daemon):
    session = daemon.session()
    result = daemon.execute(session, command="seq 1 200000")
    total = sum(len(f"{n}\n") for n in range(1, 200001))
    assert result["stdout_bytes"] == total and result["truncated"] is True
    assert result["stdout"].startswith("1\n2\n") and result["stdout"].endswith("199999\n200000\n")
    assert len(result["stdout"]) < 80 * 1024


def test_the_whole_output_is_readable_by_offset_after_the_end(daemon):
    session = daemon.session()
    path = background(daemon, session, command="seq 1 100000; echo e >&2")
    assert daemon.api("GET", path + "?wait=20").json["state"] == "exited"
    whole = daemon.api("GET", path + "/output?stream=stdout").body
    assert whole == "".join(f"{n}\n" for n in range(1, 100001)).encode()
    assert daemon.api("GET", path + "/output?stream=stdout&offset=1000").body == whole[1000:]
    assert daemon.api("GET", path + "/output?stream=stderr").body == b"e\n"


def test_output_stays_readable_after_the_session_has_ended(daemon):
    session = daemon.session()
    path = background(daemon, session, command="echo last words")
    daemon.api("GET", path + "?wait=20")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"last words\n"


def test_a_gigabyte_reaches_the_client_complete_in_little_memory(daemon):
    size = (128 if SANITIZED else 1024) << 20
    session = daemon.session()
    path = background(daemon, session, argv=["/usr/bin/head", "-c", str(size), "/dev/zero"])
    connection = UnixConnection(str(daemon.socket), timeout=60)
    connection.request("GET", f"/api/v1{path}/output?stream=stdout&follow=1")
    response = connection.getresponse()
    got, peak = 0, 0
    while True:
        data = response.read1(1 << 20)
        if not data:
            break
        got += len(data)
        if got % (64 << 20) < len(data):
            peak = max(peak, daemon.resident_kib())
    connection.close()
    assert got == size
    if not SANITIZED:
        assert peak < 64 * 1024


def test_a_client_that_never_reads_blocks_nobody_else(daemon):
    session = daemon.session()
    path = background(daemon, session, argv=["/usr/bin/head", "-c", str(512 << 20), "/dev/zero"])
    stuck = socket.socket(socket.AF_UNIX)
    stuck.connect(str(daemon.socket))
    stuck.sendall(f"GET /api/v1{path}/output?stream=stdout&follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    for _ in range(20):
        begin = time.monotonic()
        assert daemon.execute(session, ["/bin/echo", "still here"])["stdout"] == "still here\n"
        assert time.monotonic() - begin < 5
    stuck.close()
    daemon.api("DELETE", path)


def test_output_over_the_spool_cap_keeps_head_and_tail(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "1m"}})
    session = daemon.session()
    result = daemon.execute(session, command="seq 1 1000000")
    total = sum(len(f"{n}\n") for n in range(1, 1000001))
    assert result["stdout_bytes"] == total
    assert result["stdout"].startswith("1\n2\n") and result["stdout"].endswith("999999\n1000000\n")


def test_every_byte_value_survives(daemon):
    session = daemon.session()
    path = background(daemon, session, code="import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4096)", language="python")
    daemon.api("GET", path + "?wait=20")
    assert hashlib.sha256(daemon.api("GET", path + "/output?stream=stdout").body).digest() == \
        hashlib.sha256(bytes(range(256)) * 4096).digest()
