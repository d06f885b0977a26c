# SPDX-License-Identifier: Apache-2.0
"""Usage over time: samples of what a sandbox uses."""
import pytest

from conftest import wait_for


@pytest.fixture
def sampled(make_daemon, backend):
    return make_daemon(backend=backend, settings={"usage": {"interval": 1, "samples": 4}})


def usage(daemon, session, **query):
    parameters = "&".join(f"{name}={value}" for name, value in query.items())
    return daemon.api("GET", f"/sessions/{session}/usage?{parameters}", expect=200).json


def latest(daemon, session):
    """All samples and those behind the second, asked for while no new one came: None when one did."""
    before = usage(daemon, session)["samples"]
    part = usage(daemon, session, since=before[1]["time"])["samples"]
    return (before, part) if usage(daemon, session)["samples"] == before else None


def test_samples_tell_what_a_sandbox_has_used(sampled):
    session = sampled.session()
    sampled.api("POST", f"/sessions/{session}/executions", {"background": True, "command":
                "exec python3 -c 'x = bytearray(b\"x\") * 80_000_000\nwhile True: pass'"}, expect=201)
    first = wait_for(lambda: (seen := usage(sampled, session))["samples"] and seen, "the first sample")
    assert (first["session_id"], first["generation"], first["interval"]) == (session, 1, 1)
    busy = wait_for(lambda: [row for row in usage(sampled, session)["samples"] if row["cpu_percent"] > 10 and row["memory_bytes"] > 80_000_000],
                    "a sample of the work", 60)[0]
    assert set(busy) == {"time", "cpu_seconds", "cpu_percent", "memory_bytes", "disk_bytes", "pids"}
    assert busy["cpu_seconds"] > 0 and busy["pids"] >= 1
    rows = wait_for(lambda: len(rows := usage(sampled, session)["samples"]) == 4 and rows, "the ring is full")
    later = wait_for(lambda: (rows2 := usage(sampled, session)["samples"])[-1]["time"] > rows[-1]["time"] and rows2, "another sample")
    assert len(later) == 4 and [row["time"] for row in later] == sorted(row["time"] for row in later)
    rows, part = wait_for(lambda: latest(sampled, session), "a moment without a new sample")
    assert part == rows[2:]
    assert usage(sampled, session, since="4000000000")["samples"] == []


def test_looking_is_no_use(sampled):
    session = sampled.session(idle_timeout=300)
    sampled.execute(session, ["true"])
    sampled.api("PATCH", f"/sessions/{session}", {"idle_timeout_seconds": 3}, expect=200)
    wait_for(lambda: usage(sampled, session)["generation"] is None and sampled.ended(session), "the session ends although its usage is looked at", 30)
    assert usage(sampled, session)["samples"] == []


def test_strangers_and_wrong_times_are_refused(sampled):
    session = sampled.session(preload=False)
    assert usage(sampled, session) == {"session_id": session, "generation": None, "interval": 1, "interval_seconds": 1, "samples": []}
    for since in ("yesterday", "-1", "nan", "inf", "1e99", ""):
        assert sampled.api("GET", f"/sessions/{session}/usage?since={since}").status == 400, since
    assert sampled.api("GET", "/sessions/ses_00000000000000000000000000/usage").status == 404
    assert sampled.api("GET", f"/sessions/{session}/usage", headers={"X-Sandglass-On-Behalf-Of": "eve"}).status == 404


def test_it_can_be_switched_off(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"usage": {"interval": 0}})
    session = daemon.session()
    daemon.execute(session, ["sleep", "2"])
    assert usage(daemon, session) == {"session_id": session, "generation": 1, "interval": 0, "interval_seconds": 0, "samples": []}
