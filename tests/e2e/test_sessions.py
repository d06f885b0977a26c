# SPDX-License-Identifier: Apache-2.0
"""Sessions over the API: what a caller owns, and how it ends."""
import concurrent.futures
import time

import pytest

from conftest import SLOWER, WALLS, wait_for


def test_a_new_session_has_an_id_clocks_and_no_end(daemon):
    session = daemon.api("POST", "/sessions", {}, expect=201).json
    assert session["id"].startswith("ses_")
    assert session["state"] == "open"
    assert session["created_at"].endswith("Z")
    assert session["idle_remaining"] > 0
    assert session["lifetime_remaining"] > session["idle_remaining"]
    assert session["time_remaining"] is None or session["time_remaining"] > 0


def test_the_same_key_opens_the_same_session(daemon):
    first = daemon.api("POST", "/sessions", {"key": "notebook"}, expect=201).json
    again = daemon.api("POST", "/sessions", {"key": "notebook"}, expect=200).json
    assert first["id"] == again["id"]
    assert daemon.api("GET", "/sessions/key:notebook", expect=200).json["id"] == first["id"]


def test_other_limits_under_the_same_key_are_a_conflict(daemon):
    daemon.api("POST", "/sessions", {"key": "k", "memory": "256m"}, expect=201)
    answer = daemon.api("POST", "/sessions", {"key": "k", "memory": "512m"}, expect=409)
    assert answer.json["error"]["code"] == "parameters_differ"


def test_sixteen_callers_with_one_key_get_one_session(daemon):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: daemon.api("POST", "/sessions", {"key": "race"}), range(16)))
    assert sorted(answer.status for answer in answers) == [200] * 15 + [201]
    assert len({answer.json["id"] for answer in answers}) == 1


def test_an_idempotency_key_makes_a_repeated_create_harmless(daemon):
    headers = {"Idempotency-Key": "once"}
    first = daemon.api("POST", "/sessions", {}, headers=headers, expect=201).json
    again = daemon.api("POST", "/sessions", {}, headers=headers)
    assert again.status in (200, 201) and again.json["id"] == first["id"]


def test_a_deleted_session_is_gone_with_its_reason(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    final = daemon.api("DELETE", f"/sessions/{session}", expect=200).json
    assert (final["state"], final["end_reason"]) == ("ended", "deleted")
    assert daemon.api("GET", f"/sessions/{session}", expect=200).json == final
    assert daemon.api("GET", f"/sessions/{session}?usage=1", expect=200).json == final
    assert daemon.api("DELETE", f"/sessions/{session}", expect=200).json == final, "and again"
    for method, path, body in (("POST", "/executions", {"argv": ["/bin/true"]}), ("PATCH", "", {"labels": {}}),
                               ("POST", "/keepalive", {"timeout": 5}), ("POST", "/pause", {})):
        used = daemon.api(method, f"/sessions/{session}{path}", body, expect=410).json
        assert used["error"]["reason"] == "deleted" and used["session"]["id"] == session
    daemon.api("GET", f"/sessions/{session}", expect=404, headers={"X-Sandglass-On-Behalf-Of": "somebody else"})
    daemon.api("DELETE", f"/sessions/{session}", expect=404, headers={"X-Sandglass-On-Behalf-Of": "somebody else"})


def test_an_unknown_session_is_not_found(daemon):
    answer = daemon.api("GET", "/sessions/ses_00000000000000000000000000", expect=404)
    assert answer.json["error"]["code"] == "session_not_found"
    assert "not found" in answer.json["error"]["message"]


def test_the_list_has_only_the_callers_own(daemon):
    ann, bob = {"X-Sandglass-On-Behalf-Of": "ann"}, {"X-Sandglass-On-Behalf-Of": "bob"}
    mine = daemon.api("POST", "/sessions", {}, headers=ann, expect=201).json["id"]
    daemon.api("POST", "/sessions", {}, headers=bob, expect=201)
    listed = daemon.api("GET", "/sessions", headers=ann, expect=200).json
    assert [session["id"] for session in listed["sessions"]] == [mine]
    assert listed["total"] == 1
    assert daemon.api("GET", "/sessions", expect=200).json["total"] == 0
    daemon.api("GET", f"/sessions/{mine}", headers=bob, expect=404)
    daemon.api("DELETE", f"/sessions/{mine}", headers=bob, expect=404)
    daemon.api("GET", f"/sessions/{mine}", expect=404)


def test_delete_all_removes_exactly_the_callers_sessions(daemon):
    ann, bob = {"X-Sandglass-On-Behalf-Of": "ann"}, {"X-Sandglass-On-Behalf-Of": "bob"}
    mine = {daemon.api("POST", "/sessions", {}, headers=ann, expect=201).json["id"] for _ in range(3)}
    other = daemon.api("POST", "/sessions", {}, headers=bob, expect=201).json["id"]
    assert set(daemon.api("DELETE", "/sessions", headers=ann, expect=200).json["destroyed"]) == mine
    assert daemon.api("GET", f"/sessions/{other}", headers=bob, expect=200).json["state"] == "open"


def test_an_idle_session_ends_and_says_so(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 1}, expect=200)
    answer = wait_for(lambda: daemon.ended(session), "idle end")
    assert "idle" in answer.body.decode()


def test_a_running_execution_keeps_its_session_from_being_idle(daemon):
    session = daemon.session()
    run = daemon.execute(session, ["/bin/sleep", "3.5"], background=True)["id"]
    daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 1}, expect=200)
    path = f"/sessions/{session}/executions/{run}"
    result = wait_for(lambda: (seen := daemon.api("GET", path, expect=200).json)["state"] not in ("queued", "running") and seen, "the end of the program", 60)
    assert result["state"] == "exited" and result["exit_code"] == 0


def test_looking_does_not_keep_a_session_alive(daemon):
    session = daemon.session(idle_timeout=1.5)
    wait_for(lambda: daemon.ended(session), "the end while being looked at", 25 + SLOWER)  # its sandbox is gone by then, which takes long elsewhere


def test_times_name_their_clocks_and_limits_stay_what_was_in_force(daemon):
    session = daemon.session(timeout=3000, idle_timeout=50, max_lifetime=9000)
    shown = daemon.api("GET", f"/sessions/{session}", expect=200).json
    assert (shown["expires_at_clock"], shown["time_remaining_clock"]) == ("lease", "idle")
    assert shown["time_remaining"] <= 50 < shown["lease_remaining"] <= 3000
    assert shown["next_end"]["reason"] == "idle" and shown["sandbox"]["error"] is None and shown["sandbox"]["last_error"] is None
    patched = daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 5000}, expect=200).json
    assert (patched["time_remaining_clock"], patched["next_end"]["reason"]) == ("lease", "lease")
    ended = daemon.api("DELETE", f"/sessions/{session}", expect=200).json
    assert ended["limits"] == shown["limits"] == daemon.api("GET", f"/sessions/{session}", expect=200).json["limits"]
    assert ended["time_remaining_clock"] is None
    bare = daemon.api("GET", f"/sessions/{daemon.session()}", expect=200).json
    assert (bare["expires_at"], bare["expires_at_clock"]) == (None, None) and bare["time_remaining_clock"] == "idle"


def test_a_lease_ends_the_session_unless_it_is_extended(daemon):
    kept = daemon.session(timeout=25)
    daemon.api("POST", f"/sessions/{kept}/keepalive", {"timeout": 120}, expect=200)
    lost = daemon.session(timeout=2)
    answer = wait_for(lambda: daemon.ended(lost), "lease end")
    assert "lease" in answer.body.decode()
    assert daemon.api("GET", f"/sessions/{kept}", expect=200).json["time_remaining"] > 30


def test_a_lifetime_ends_even_a_busy_session_after_the_grace(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"session": {"grace": "1s"}})
    session = daemon.session()
    started = daemon.api("POST", f"/sessions/{session}/executions",
                         {"argv": ["/bin/sleep", "100"], "background": True}, expect=201).json
    assert started["state"] in ("queued", "running")
    daemon.api("PATCH", f"/sessions/{session}", {"max_lifetime": 1}, expect=200)
    answer = wait_for(lambda: daemon.ended(session), "lifetime end")
    assert "lifetime" in answer.body.decode()


@pytest.mark.parametrize("body, field", [
    ({"nonsense": 1}, "nonsense"),
    ({"memory": "much"}, "memory"),
    ({"memory": -1}, "memory"),
    ({"timeout": "soon"}, "timeout"),
    ({"timeout": -5}, "timeout"),
    ({"idle_timeout": 1e300}, "idle_timeout"),
    ({"pids": 1.5}, "pids"),
    ({"labels": {"a": 1}}, "labels"),
    ({"env": ["A=1"]}, "env"),
    ({"key": "x" * 5000}, "key"),
    ({"network": "wide"}, "network"),
    ({"template": "../../etc"}, "template"),
])
def test_a_wrong_field_is_named_and_changes_nothing(make_daemon, body, field):
    daemon = make_daemon(backend="direct")
    answer = daemon.api("POST", "/sessions", body, expect=400)
    assert field in answer.json["error"]["message"]
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_pause_stops_a_program_and_resume_lets_it_go_on(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = daemon.session()
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": "i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done", "background": True},
                     expect=201).json["id"]
    output = f"/sessions/{session}/executions/{run}/output?stream=stdout"
    wait_for(lambda: daemon.api("GET", output).body, "first output")
    paused = daemon.api("POST", f"/sessions/{session}/pause", expect=200).json
    assert paused["state"] == "paused"

    def stands_still():
        """What was on its way when the program stopped may still arrive."""
        before = daemon.api("GET", output).body
        time.sleep(0.5)
        return daemon.api("GET", output).body == before

    wait_for(stands_still, "no more output")
    before = daemon.api("GET", output).body
    assert daemon.api("POST", f"/sessions/{session}/resume", expect=200).json["state"] == "open"
    wait_for(lambda: len(daemon.api("GET", output).body) > len(before) + 8, "output goes on")
