# SPDX-License-Identifier: Apache-2.0
"""A client that is cut off again and again, and a daemon that is killed meanwhile: not a byte is lost, added or out of place."""
import hashlib
import http.client
import os
import random

import pytest

from conftest import SANDGLASS, WALLS, UnixConnection, wait_for

# The whole gigabyte takes half a minute: SANDGLASS_RECONNECT_MIB=1024
SIZE = int(os.environ.get("SANDGLASS_RECONNECT_MIB", 8 if "asan" in str(SANDGLASS) else 48)) << 20

WRITER = """
import hashlib, os, random, sys, time
size, pieces = %d, random.Random(5)
blocks = [pieces.randbytes(65536) for _ in range(64)]
digest = hashlib.sha256()
while size:
    data = blocks[pieces.randrange(64)][:min(size, pieces.choice([1, 100, 4096, 65536, 65536, 65536]))]
    digest.update(data)
    size -= len(data)
    while data:
        data = data[os.write(1, data):]
    while not os.path.exists("go"):
        time.sleep(0.02)
print(digest.hexdigest(), file=sys.stderr)
""" % SIZE


def read_some(daemon, path, offset, count):
    """Up to `count` bytes from the offset on, then hangs up; with whether that was the end."""
    connection = UnixConnection(str(daemon.socket), timeout=20)
    data = bytearray()
    try:
        connection.request("GET", f"/api/v1{path}/output?offset={offset}&follow=1")
        response = connection.getresponse()
        if response.status == 503:  # it is starting
            return b"", False
        assert response.status == 200, (response.status, response.read())
        assert "x-sandglass-gap" not in response.headers and response.headers["x-sandglass-offset"] == str(offset)
        while len(data) < count:
            piece = response.read1(min(count - len(data), 1 << 20))
            if not piece:
                return data, True
            data += piece
    except (http.client.HTTPException, OSError):
        pass  # the daemon was killed; what came is good
    finally:
        connection.close()
    return data, False


@pytest.mark.parametrize("backend", [WALLS])
def test_the_stream_is_the_same_however_often_it_breaks(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "16m", "stall_timeout": "2m"}})
    session = daemon.session()
    run = daemon.api("POST", f"/sessions/{session}/executions", {"background": True, "code": WRITER}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    sizes, digest, offset, kills = random.Random(7), hashlib.sha256(), 0, [SIZE // 3, SIZE * 2 // 3]
    while not offset:  # the program is held back from when it has had a reader
        data, ended = read_some(daemon, path, offset, 1)
        digest.update(data)
        offset += len(data)
    daemon.api("PUT", f"/sessions/{session}/files?path=go", b"", expect=201)
    while not ended:
        data, ended = read_some(daemon, path, offset, sizes.choice([1, 1000, 1 << 20, 5 << 20, 20 << 20]))
        digest.update(data)
        offset += len(data)
        if kills and offset > kills[0]:
            kills.pop(0)
            daemon.kill()
            daemon.start()
            ended = False
    result = wait_for(lambda: (record := daemon.api("GET", path).json)["state"] not in ("queued", "running") and record, "its end")
    assert result["state"] == "exited" and result["stdout_bytes"] == offset == SIZE
    assert daemon.api("GET", path + "/output?stream=stderr").body.decode().strip() == digest.hexdigest()
