# SPDX-License-Identifier: Apache-2.0
"""Teardown: the sandbox goes and the session stays; also by a page that can send nothing but a URL."""
import pytest

from conftest import wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)

BEACON = {"Origin": "https://chat.example", "Content-Type": "text/plain;charset=UTF-8", "Sec-Fetch-Mode": "no-cors",
          "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def quick(make_daemon, backend):
    return make_daemon(backend=backend, settings={"pool": {"size": 0}, "session": {"preload": False}})


def look(daemon, session, **options):
    return daemon.api("GET", f"/sessions/{session}", expect=200, **options).json


def state_of(daemon, session):
    return look(daemon, session)["sandbox"]["state"]


def token_of(daemon, session, **options):
    return daemon.api("POST", f"/sessions/{session}/teardown-token", options, expect=201).json


def beacon(daemon, url, body="bye", **headers):
    return daemon.request("POST", url, body, {**BEACON, **headers})


def wait_for_no_sandbox(daemon, session):
    wait_for(lambda: state_of(daemon, session) == "none", "the sandbox is gone")


def events_of(daemon, session):
    text = daemon.api("GET", f"/sessions/{session}/events?follow=0").body.decode()
    return [line[7:] for line in text.splitlines() if line.startswith("event: ")]


def test_the_session_stays_and_the_next_use_is_told_once(quick):
    session = quick.session(labels={"a": "b"})
    assert quick.execute(session, ["sh", "-c", "echo one > note; echo one"])["stdout"] == "one\n"
    for _ in range(3):  # asked again it is the same
        answer = quick.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
        assert answer.json["state"] == "open"
    wait_for_no_sandbox(quick, session)

    after = look(quick, session)
    assert after["labels"] == {"a": "b"} and after["executions"] == {"running": 0, "total": 1}
    rows = quick.api("GET", f"/sessions/{session}/executions", expect=200).json["executions"]
    assert [row["state"] for row in rows] == ["exited"]
    assert events_of(quick, session).count("sandbox.destroyed") == 1

    again = quick.execute(session, ["sh", "-c", "cat note"])
    assert again["files_were_reset"] and again["exit_code"] != 0 and again["generation"] == 2
    assert not quick.execute(session, ["true"])["files_were_reset"]
    assert events_of(quick, session).count("sandbox.reset") == 1


def test_a_page_tears_down_with_nothing_but_a_url(quick):
    session = quick.session()
    quick.execute(session, ["true"])
    token = token_of(quick, session, grace=0)
    assert token["session_id"] == session and token["url"].startswith("/api/v1/teardown/") and token["grace"] == 0
    for _ in range(2):
        answer = beacon(quick, token["url"])
        assert (answer.status, answer.json) == (202, {"status": "teardown_requested"})
        assert "access-control-allow-origin" not in answer.headers
    wait_for_no_sandbox(quick, session)
    assert quick.execute(session, ["true"])["files_were_reset"]
    # Everything else stays closed to other origins, also beside the token.
    assert quick.request("POST", f"/api/v1/sessions/{session}/sandbox/teardown", "{}", BEACON).status == 403
    assert quick.request("POST", f"/api/v1/sessions/{session}/teardown-token", "{}", BEACON).status == 403
    assert quick.request("GET", token["url"], headers=BEACON).status in (403, 405)


def test_a_url_is_good_for_one_sandbox(quick):
    session = quick.session()
    quick.execute(session, ["true"])
    url = token_of(quick, session, grace=0)["url"]
    beacon(quick, url)
    wait_for_no_sandbox(quick, session)
    beacon(quick, url)  # again for the same one: nothing is left to do
    assert quick.execute(session, ["sh", "-c", "echo two > note"])["generation"] == 2
    for restart in (False, True):
        if restart:
            quick.kill()
            quick.start()
        for _ in range(3):
            assert beacon(quick, url).status == 202
        assert quick.execute(session, ["cat", "note"])["stdout"] == "two\n"
        assert state_of(quick, session) == "ready"
    assert events_of(quick, session).count("sandbox.destroyed") == 1

    # One that was used before there was a sandbox is used up as well.
    other = quick.session()
    early = token_of(quick, other, grace=0)["url"]
    beacon(quick, early)
    quick.execute(other, ["true"])
    beacon(quick, early)
    assert quick.execute(other, ["true"])["generation"] == 1 and state_of(quick, other) == "ready"
    # A new one works, also for a sandbox that was made after it was given out.
    last = token_of(quick, session, grace=0)["url"]
    quick.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for_no_sandbox(quick, session)
    assert quick.execute(session, ["true"])["generation"] == 3
    beacon(quick, last)
    wait_for_no_sandbox(quick, session)


@pytest.mark.parametrize("body, headers", [
    ("", {}), (None, {"Content-Type": ""}), ("a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("{}", {"Content-Type": "application/json"}), ("x" * 60000, {}), ("\xff\x00", {"Origin": "null"}),
])
def test_whatever_a_beacon_carries_is_not_read(make_daemon, body, headers):
    quick = make_daemon(backend="direct", settings={"pool": {"size": 0}})
    session = quick.session()
    quick.execute(session, ["true"])
    assert beacon(quick, token_of(quick, session, grace=0)["url"], body and body.encode("latin-1"), **headers).status == 202
    wait_for_no_sandbox(quick, session)


def test_a_page_that_is_reloaded_keeps_its_sandbox(quick):
    session = quick.session()
    quick.execute(session, ["sh", "-c", "echo one > note"])
    url = token_of(quick, session, grace=30)["url"]
    beacon(quick, url)
    # The page comes back: its server asks for a token again.
    token_of(quick, session, grace=30)
    assert quick.execute(session, ["cat", "note"])["stdout"] == "one\n"
    # Browsers send the last word of the old page when the new one is there already.
    assert beacon(quick, url).status == 202
    # A use within the grace keeps it as well.
    newer = token_of(quick, session, grace=30)["url"]
    beacon(quick, newer)
    assert quick.execute(session, ["cat", "note"])["stdout"] == "one\n"
    assert quick.execute(session, ["cat", "note"])["generation"] == 1
    assert state_of(quick, session) == "ready"
    stale = token_of(quick, session, grace=0)["url"]
    last = token_of(quick, session, grace=0)["url"]
    beacon(quick, stale)
    assert quick.execute(session, ["cat", "note"])["generation"] == 1
    beacon(quick, last)
    wait_for_no_sandbox(quick, session)


def test_a_teardown_in_its_grace_outlives_the_daemon(quick):
    session = quick.session()
    quick.execute(session, ["true"])
    beacon(quick, token_of(quick, session, grace=60)["url"])
    # An exact moment of the store: what was asked before a durable request is durable.
    quick.session()
    quick.kill()
    quick.start()
    wait_for_no_sandbox(quick, session)


def test_only_urls_that_were_given_out_work(quick):
    session, other = quick.session(), quick.session()
    for name in (session, other):
        quick.execute(name, ["true"])
    token = token_of(quick, session, grace=0)["url"]
    head, signature = token.rsplit(".", 1)
    forged = [token.replace(session, other), head + "." + "0" * 64, head, head + ".", head + "." + signature.upper(),
              token + "0", token[:-1], token.replace(".0.", ".1."), "/api/v1/teardown/x", "/api/v1/teardown/" + "." * 500,
              "/api/v1/teardown/%25n%25s", "/api/v1/teardown/" + "9" * 4000]
    for url in forged:
        answer = beacon(quick, url)
        assert answer.status == 404 and answer.json["error"]["code"] == "token_not_found", url
    assert state_of(quick, session) == "ready" and state_of(quick, other) == "ready"

    gone = token_of(quick, session, valid_for=1, grace=60)
    wait_for(lambda: beacon(quick, gone["url"]).status == 404, "the token expires")
    quick.api("DELETE", f"/sessions/{other}", expect=200)
    assert beacon(quick, token).status == 202  # also for what has ended: nothing is told
    for body in ({"valid_for": 0}, {"valid_for": 100000}, {"grace": -1}, {"grace": 61}, {"x": 1}):
        quick.api("POST", f"/sessions/{session}/teardown-token", body, expect=400)


def test_with_authentication_the_url_is_all_a_page_needs(keys, keyed):
    ann, bob = bearer(keys.create("ann")["key"]), bearer(keys.create("bob")["key"])
    daemon = keyed()
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=ann).json["id"]
    daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]}, expect=201, headers=ann)
    daemon.api("POST", f"/sessions/{session}/teardown-token", {}, expect=404, headers=bob)
    daemon.api("POST", f"/sessions/{session}/teardown-token", {}, expect=401)
    url = daemon.api("POST", f"/sessions/{session}/teardown-token", {"grace": 0}, expect=201, headers=ann).json["url"]
    assert beacon(daemon, url).status == 202
    wait_for(lambda: look(daemon, session, headers=ann)["sandbox"]["state"] == "none", "the sandbox is gone")
    wait_for(lambda: b"/api/v1/teardown/{token}" in (daemon.state / "audit.log").read_bytes(), "it is in the audit log")
    assert url.encode() not in (daemon.state / "audit.log").read_bytes()
