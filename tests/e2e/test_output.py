# SPDX-License-Identifier: Apache-2.0
"""Output: complete, by offset, at speed, and never at somebody else's cost."""
import hashlib
import json
import shutil
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
        assert time.monotonic() - begin < 25
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


# Writes and waits until that was taken out of the pipe: then its place in the order is certain.
PUT = """
import fcntl, os, time
def put(fd, data):
    while data:
        data = data[os.write(fd, data):]
    while any(fcntl.ioctl(fd, 0x541B, bytes(4))):
        time.sleep(0.0005)
"""
MIXED = PUT + """
for i in range(200):
    put(1 + i % 2, b"%d " % i * (1 + i % 7))
"""


def mixed_text():
    return b"".join(b"%d " % i * (1 + i % 7) for i in range(200))


def test_both_streams_are_readable_as_one_in_the_order_they_came(daemon):
    session = daemon.session()
    path = background(daemon, session, code=MIXED)
    live = daemon.api("GET", path + "/output?stream=merged&follow=1").body
    assert live == mixed_text()
    run = daemon.api("GET", path + "?wait=20").json
    assert run["stdout_bytes"] + run["stderr_bytes"] == len(live)
    whole = daemon.api("GET", path + "/output?stream=merged")
    assert whole.body == live and whole.headers["x-sandglass-length"] == str(len(live))
    for offset in (1, 7, 100, len(live) - 1, len(live)):
        assert daemon.api("GET", path + f"/output?stream=merged&offset={offset}&limit=50").body == live[offset:offset + 50]
    assert daemon.api("GET", path + f"/output?stream=merged&offset={len(live) + 1}").status == 416
    shown = daemon.cli("logs", "--merged", "--offset", "10", session)
    assert shown.stdout.encode() == live[10:] and shown.stderr == ""


def test_the_merged_order_survives_a_crash_of_the_daemon(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session()
    path = background(daemon, session, code=MIXED)
    wait_for(lambda: len(daemon.api("GET", path + "/output?stream=merged").body) > 300, "some output")
    daemon.kill()
    daemon.start()
    assert daemon.api("GET", path + "?wait=20").json["state"] == "exited"
    whole = daemon.api("GET", path + "/output?stream=merged").body
    # What came while nobody was there waited in two pipes: only its order between the streams is lost.
    assert sorted(whole.split()) == sorted(mixed_text().split())
    daemon.kill()
    daemon.start()
    assert daemon.api("GET", path + "/output?stream=merged").body == whole


def test_live_events_come_in_that_order_too(daemon):
    session = daemon.session()
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"code": MIXED}, headers={"Accept": "text/event-stream"})
    text = ""
    for event in answer.body.decode().split("\n\n"):
        if event.startswith(("event: stdout", "event: stderr")):
            text += json.loads(event.split("data: ", 1)[1])["text"]
    assert text.encode() == mixed_text()


def test_the_merged_output_leaves_one_gap_out(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "1m"}})
    session = daemon.session()
    path = background(daemon, session, code=PUT + """
put(2, b"first\\n")
put(1, b"".join(b"%d\\n" % n for n in range(1, 1000001)))
put(2, b"last\\n")
""")
    run = daemon.api("GET", path + "?wait=30").json
    answer = daemon.api("GET", path + "/output?stream=merged")
    start, end = map(int, answer.headers["x-sandglass-gap"].split("-"))
    total = run["stdout_bytes"] + run["stderr_bytes"]
    assert len(answer.body) == total - (end - start) and total == 6888896 + 11
    assert answer.body.startswith(b"first\n1\n") and answer.body.endswith(b"1000000\nlast\n")
    assert daemon.api("GET", path + f"/output?stream=merged&offset={end}").body == answer.body[start:]
    assert daemon.api("GET", path + f"/output?stream=merged&offset={start + 5}").headers["x-sandglass-offset"] == str(end)


def test_a_program_may_be_stopped_when_it_writes_too_much(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "1m", "output_full": "stop", "grace": "60s"}})
    session = daemon.session()
    result = daemon.execute(session, command="yes")
    assert result["state"] == "output_limit" and result["signal"] == 15 and result["stdout_bytes"] > 1 << 20
    fine = daemon.execute(session, command="head -c 1048576 /dev/zero")
    assert fine["state"] == "exited" and fine["stdout_bytes"] == 1 << 20
    other = daemon.execute(session, command="head -c 8000000 /dev/zero >&2", output_full="drop")
    assert other["state"] == "exited" and other["stderr_bytes"] == 8000000
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"command": "true", "output_full": "explode"})
    assert answer.status == 400 and "output_full" in answer.json["error"]["message"]


def test_a_program_may_wait_until_somebody_reads(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "1m"}})
    session = daemon.session()
    path = background(daemon, session, command="seq 1 1000000; touch done", output_full="block")
    wait_for(lambda: daemon.api("GET", path).json["stdout_bytes"] >= 1 << 20, "a full spool")
    daemon.kill()
    daemon.start()
    assert daemon.api("GET", path + "?wait=0.5").json["state"] == "running"
    assert daemon.api("GET", path).json["stdout_bytes"] == 1 << 20
    whole = b""
    while True:  # a reader that is cut off again and again
        piece = daemon.api("GET", path + f"/output?offset={len(whole)}&limit=300000&follow=1").body
        whole += piece
        if len(piece) < 300000:
            break
    assert whole == b"".join(b"%d\n" % n for n in range(1, 1000001))
    assert daemon.api("GET", path + "?wait=20").json["state"] == "exited"
    blocked = background(daemon, session, command="seq 1 1000000", output_full="block", timeout=0.5)
    assert daemon.api("GET", blocked + "?wait=20").json["state"] == "timeout"


def test_output_that_cannot_be_kept_is_told_everywhere(daemon):
    session = daemon.session()
    spool = daemon.state / "output"
    if spool.exists():
        shutil.rmtree(spool)
    spool.write_text("no directory")
    result = daemon.execute(session, command="seq 5000; echo e >&2")
    total = result["stdout_bytes"]
    assert total == sum(len(f"{n}\n") for n in range(1, 5001)) and result["exit_code"] == 0
    assert "output is incomplete" in result["error"]["message"] and result["output_error"] and result["truncated"], result
    assert f"{total} bytes left out" in result["stdout"]
    output = daemon.api("GET", f"/sessions/{session}/executions/{result['id']}/output")
    assert output.headers["x-sandglass-gap"] == f"0-{total}" and output.body == b""
    record = daemon.api("GET", f"/sessions/{session}/executions/{result['id']}").json
    assert "output is incomplete" in record["error"]["message"]
    told = daemon.cli("exec", session, "--", "seq", "5000")
    assert told.returncode == 125 and "output is incomplete" in told.stderr, told
    one_call = daemon.api("POST", "/execute", {"code": "print(1)", "session_id": session}).json
    assert "output is incomplete" in one_call["error"]["message"], one_call
    spool.unlink()
    assert daemon.execute(session, ["/bin/echo", "again"])["stdout"] == "again\n"


def test_the_oldest_output_goes_when_a_quota_is_reached_and_its_readers_are_told(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"spool_per_session": "1m"}})
    session = daemon.session()
    runs = [daemon.execute(session, ["/usr/bin/head", "-c", "700000", "/dev/zero"])["id"] for _ in range(2)]
    path = f"/sessions/{session}/executions"
    wait_for(lambda: "x-sandglass-gap" in daemon.api("GET", f"{path}/{runs[0]}/output").headers, "it is evicted")
    evicted = daemon.api("GET", f"{path}/{runs[0]}/output", expect=200)
    assert evicted.headers["x-sandglass-gap"] == "0-700000" and evicted.body == b""
    record = daemon.api("GET", f"{path}/{runs[0]}").json
    assert record["state"] == "exited" and record["stdout_bytes"] == 700000, record
    assert daemon.api("GET", f"{path}/{runs[1]}/output", expect=200).body == bytes(700000)
    loud = daemon.execute(session, command="for i in 1 2 3 4; do head -c 2000000 /dev/zero & done; wait")
    assert loud["stdout_bytes"] == 8000000 and loud["truncated"]
    kept = sum(file.stat().st_blocks * 512 for file in (daemon.state / "output").iterdir())
    assert kept <= (1 << 20) + (64 << 10), kept  # in whole pages, and with the order in which both streams were written
