# SPDX-License-Identifier: Apache-2.0
"""Displays in the history: pictures that code in a context has shown are there when the page is opened again, and go with the session."""
import base64
import hashlib
import os
import struct
import zlib

import pytest

from conftest import wait_for

VALUE = "hunter22-of-the-session"


@pytest.fixture
def quick(make_daemon):
    return make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False, "retention": "10s"}})


def picture(size):
    """A PNG of noise, so that it is as large as it looks."""
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + os.urandom(3 * size) for _ in range(size))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows, 0))
            + part(b"IEND", b""))


def context_of(daemon, session):
    context = daemon.api("POST", f"/sessions/{session}/contexts", {}, expect=201).json["id"]
    return lambda code: daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code}, expect=200, timeout=60).json


def ran(daemon, session):
    entries = daemon.api("GET", f"/sessions/{session}/history", expect=200).json["entries"]
    return [entry["data"] for entry in entries if entry["type"] == "context.ran"]


def show(daemon, session, name, content):
    daemon.api("PUT", f"/sessions/{session}/files?path={name}", content, expect=201)
    return f"from IPython.display import Image, HTML\ndisplay(Image('{name}'))\n"


def fetch(daemon, file, expect=200):
    answer = daemon.request("GET", file["path"])
    assert answer.status == expect, answer.body[:300]
    return answer


def test_pictures_and_tables_are_there_after_a_crash_and_go_with_the_session(quick):
    session = quick.session(secrets={"API": VALUE})
    large, small = picture(200), picture(2)
    run = context_of(quick, session)
    code = show(quick, session, "a.png", large) + show(quick, session, "b.png", small)
    assert run(code + f"display(HTML('<p>{VALUE}</p>' * 1000))\n6 * 7")["state"] == "ok"
    run("1 / 0")
    wait_for(lambda: len(ran(quick, session)) == 2, "both runs are recorded")
    quick.kill()
    quick.start()
    first, second = ran(quick, session)
    assert (first["number"], second["number"], second["results"]) == (1, 2, [])
    assert [item["type"] for item in first["results"]] == ["display", "display", "display", "result"]
    assert first["results"][1]["data"]["image/png"] == base64.b64encode(small).decode()
    assert first["results"][3]["data"]["text/plain"] == "42" and first["results_left_out"] == 0
    file = first["results"][0]["files"]["image/png"]
    assert (file["sha256"], file["size"]) == (hashlib.sha256(large).hexdigest(), len(large))
    answer = fetch(quick, file)
    assert answer.body == large and answer.headers["content-type"] == "image/png"
    table = fetch(quick, first["results"][2]["files"]["text/html"])
    assert table.headers["content-type"] == "application/octet-stream" and "sandbox" in table.headers["content-security-policy"]
    assert VALUE not in table.body.decode() and table.body.count(b"<p>") == 1000
    assert fetch(quick, {"path": file["path"][:-4] + "0000"}, expect=404).json["error"]["code"] == "display_not_found"

    quick.api("DELETE", f"/sessions/{session}", expect=200)
    assert fetch(quick, file).body == large
    wait_for(lambda: not list((quick.state / "output").glob("*.shown")), "the displays are gone with the records", 60)
    assert quick.request("GET", file["path"]).status == 404


def test_the_same_picture_is_kept_once_and_all_of_them_are_bounded(quick):
    session = quick.session()
    run = context_of(quick, session)
    code = show(quick, session, "a.png", picture(400))
    for _ in range(3):
        run(code * 3)
    files = list((quick.state / "output").glob("*.shown"))
    assert len(files) == 1 and 480000 < files[0].stat().st_size < 490000
    assert len({item["files"]["image/png"]["sha256"] for one in ran(quick, session) for item in one["results"]}) == 1
    huge = run("import os\ndisplay({'image/png': __import__('base64').b64encode(os.urandom(5 << 20)).decode(), 'text/plain': 'huge'}, raw=True)")
    assert huge["state"] == "ok" and len(huge["results"]) == 1
    last = ran(quick, session)[-1]
    assert last["results"] == [{"type": "display", "data": {"text/plain": "huge"}}] and last["results_left_out"] == 1
    for _ in range(10):
        run("import os, base64\nfor _ in range(2):\n    display({'image/png': base64.b64encode(os.urandom(3 << 20)).decode()}, raw=True)")
    assert files[0].stat().st_size <= 32 << 20 and ran(quick, session)[-1]["results_left_out"] == 2


def test_an_entry_that_a_crash_has_cut_short_is_overwritten(quick):
    session = quick.session()
    run = context_of(quick, session)
    first, second = picture(60), picture(60)
    run(show(quick, session, "a.png", first))
    file = next((quick.state / "output").glob("*.shown"))
    os.truncate(file, file.stat().st_size - 100)
    lost = ran(quick, session)[0]["results"][0]["files"]["image/png"]
    fetch(quick, lost, expect=404)
    run(show(quick, session, "b.png", second) + show(quick, session, "a.png", first))
    kept = [item["files"]["image/png"] for item in ran(quick, session)[1]["results"]]
    assert [fetch(quick, one).body for one in kept] == [second, first] and fetch(quick, lost).body == first


def test_other_owners_do_not_see_them(quick):
    session = quick.session()
    context_of(quick, session)(show(quick, session, "a.png", picture(60)))
    file = ran(quick, session)[0]["results"][0]["files"]["image/png"]
    answer = quick.request("GET", file["path"], headers={"X-Sandglass-On-Behalf-Of": "eve"})
    assert answer.status == 404
