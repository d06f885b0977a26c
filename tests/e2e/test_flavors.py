# SPDX-License-Identifier: Apache-2.0
"""Flavors, approvals and budgets with a real daemon. Prices are high and windows short, so that time is money soon."""
import concurrent.futures
import decimal
import json
import time

import pytest

from conftest import wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)

FLAVORS = [
    {"name": "cpu-basic"},
    {"name": "roomy", "price_per_hour": 0, "memory": "512m", "disk": "64m", "pids": 64},
    {"name": "fast", "price_per_hour": 3600, "needs_approval": True},      # a dollar a second
    {"name": "faster", "price_per_hour": 7200, "needs_approval": True},
    {"name": "mystery", "needs_approval": False},                          # without a price
    {"name": "gpu", "gpus": 1, "price_per_hour": 1, "needs_approval": True},
    {"name": "remote", "backend": "none"},
]


@pytest.fixture
def make(make_daemon, backend):
    def make(**settings):
        return make_daemon(backend=backend, settings={"pool": {"size": 1}, "flavors": FLAVORS, **settings})
    return make


def ask(daemon, session, flavor=None, expect=None, **options):
    return daemon.api("POST", f"/sessions/{session}/sandbox", {"flavor": flavor} if flavor else {}, expect=expect, **options).json


def decide(daemon, approval, decision="approve", expect=200, headers=None, **more):
    return daemon.api("POST", f"/approvals/{approval}", {"decision": decision, **more}, expect=expect, headers=headers).json


def session_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json


def money(daemon, session, headers=None):
    """As decimals: what JSON says, not what a float makes of it."""
    body = daemon.api("GET", f"/sessions/{session}/budget", expect=200, headers=headers).body
    return json.loads(body, parse_float=decimal.Decimal)


def ready(daemon, session, flavor):
    def look():
        now = session_of(daemon, session)
        return now if now["flavor"] == flavor and now["sandbox"]["state"] == "ready" else None
    return wait_for(look, f"the sandbox {flavor} is ready")


def events_of(daemon, session, *types, headers=None, times=False):
    """(type, data) of those events, and when they happened."""
    text = daemon.api("GET", f"/sessions/{session}/events?follow=0", headers={"Accept": "text/event-stream", **(headers or {})}).body.decode()
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line and not line.startswith(":"))
        if fields.get("event", "").strip() in types:
            event = json.loads(fields["data"], parse_float=decimal.Decimal)
            found.append((event["type"], event["data"], event["time"]) if times else (event["type"], event["data"]))
    return found


# --- flavors ---


def test_the_list_says_what_each_has_and_whether_it_can_be_had(make):
    daemon = make()
    flavors = {row["name"]: row for row in daemon.api("GET", "/flavors", expect=200).json["flavors"]}
    assert flavors["cpu-basic"]["default"] and flavors["cpu-basic"]["price_per_hour"] == 0
    assert not flavors["cpu-basic"]["needs_approval"]
    assert (flavors["roomy"]["memory_bytes"], flavors["roomy"]["pids"]) == (512 << 20, 64)
    assert flavors["mystery"]["price_per_hour"] is None and flavors["mystery"]["needs_approval"]
    assert not flavors["gpu"]["available"] and "GPU" in flavors["gpu"]["reason"]
    assert not flavors["remote"]["available"] and "none" in flavors["remote"]["reason"]


def test_a_free_flavor_replaces_the_automatic_sandbox_and_files_are_told_to_be_gone(make):
    daemon = make()
    session = daemon.session()
    daemon.execute(session, ["touch", "note"])
    answer = ask(daemon, session, "roomy", expect=202)
    assert "Files and processes are gone" in answer["message"] and answer["flavor"] == "roomy"
    assert answer["limits"]["memory_bytes"] == 512 << 20
    result = daemon.execute(session, ["ls", "note"])
    assert result["files_were_reset"] and result["exit_code"] != 0
    assert session_of(daemon, session)["generation"] == 2
    assert events_of(daemon, session, "sandbox.destroyed")[0][1]["reason"] == "replaced"


def test_m5_plain_words_when_nothing_changes_and_when_one_has_to_be_deleted_first(make):
    daemon = make()
    session = daemon.session()
    daemon.execute(session, ["true"])
    for flavor in (None, "cpu-basic"):
        answer = ask(daemon, session, flavor, expect=200)
        assert "Nothing changes" in answer["message"] and "cannot be changed" not in answer["message"]
    ask(daemon, session, "roomy", expect=202)
    error = ask(daemon, session, "cpu-basic", expect=409)["error"]
    assert error["code"] == "sandbox_chosen"
    assert "cannot be changed" in error["message"] and "cpu-basic" in error["message"] and "delete" in error["hint"]
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    daemon.execute(session, ["true"])
    assert session_of(daemon, session)["flavor"] == "cpu-basic"


def test_what_cannot_be_is_refused_before_anybody_is_asked(make):
    daemon = make()
    session = daemon.session()
    for body, code in (({"flavor": "none-such"}, "flavor_unknown"), ({"flavor": "gpu"}, "flavor_unavailable"),
                       ({"flavor": "remote"}, "flavor_unavailable"), ({"flavor": "fast", "memory": "1g"}, "invalid_field"),
                       ({"flavour": "fast"}, "unknown_field"), ({"flavor": 7}, "invalid_field")):
        answer = daemon.api("POST", f"/sessions/{session}/sandbox", body, expect=400)
        assert answer.json["error"]["code"] == code, body
    assert daemon.api("GET", "/approvals?state=all", expect=200).json["approvals"] == []
    assert daemon.api("POST", "/sessions", {"flavor": "fast"}, expect=409).json["error"]["code"] == "approval_required"


# --- approvals ---


def test_an_approval_is_asked_for_waited_for_and_followed_by_its_sandbox(make):
    daemon = make()
    session = daemon.session()
    daemon.execute(session, ["touch", "note"])
    approval = ask(daemon, session, "fast", expect=202)
    assert (approval["kind"], approval["state"], approval["flavor"]) == ("approval", "pending", "fast")
    assert approval["estimated_usd"] == 3600 and approval["expires_at"] > approval["created_at"]
    assert ask(daemon, session, "fast", expect=202)["id"] == approval["id"]
    assert session_of(daemon, session)["approval"] == approval["id"]
    assert daemon.execute(session, ["ls", "note"])["exit_code"] == 0  # nothing has changed
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(daemon.api, "GET", f"/approvals/{approval['id']}?wait=30")
        listed = daemon.api("GET", "/approvals").json["approvals"]
        assert [row["id"] for row in listed] == [approval["id"]]
        decided = decide(daemon, approval["id"], reason="go on")
        answer = waiting.result().json
    assert answer["state"] == decided["state"] == "approved" and answer["scope"] == "once"
    assert "files are gone" in answer["result"] and "go on" in answer["result"]
    ready(daemon, session, "fast")
    assert daemon.execute(session, ["ls", "note"])["files_were_reset"]
    types = [kind for kind, _ in events_of(daemon, session, "approval.requested", "approval.decided")]
    assert types == ["approval.requested", "approval.decided"]
    assert decide(daemon, approval["id"], "deny", expect=409)["error"]["code"] == "approval_decided"
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: session_of(daemon, session)["sandbox"]["state"] == "none", "it is gone")
    assert ask(daemon, session, "fast", expect=202)["kind"] == "approval"  # once is once


def test_an_approval_for_the_session_is_not_asked_again(make):
    daemon = make()
    session = daemon.session()
    decide(daemon, ask(daemon, session, "mystery", expect=202)["id"], session=True)
    ready(daemon, session, "mystery")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: session_of(daemon, session)["sandbox"]["state"] == "none", "it is gone")
    assert ask(daemon, session, "mystery", expect=202)["flavor"] == "mystery"
    ready(daemon, session, "mystery")
    assert money(daemon, session)["approved_flavors"] == ["mystery"]


def test_nobody_decides_and_nothing_happens_also_over_a_restart(make):
    daemon = make(approvals={"timeout": 3})
    session = daemon.session()
    approval = ask(daemon, session, "fast", expect=202)["id"]
    daemon.kill()
    daemon.start()
    assert daemon.api("GET", f"/approvals/{approval}").json["state"] in ("pending", "expired")
    answer = daemon.api("GET", f"/approvals/{approval}?wait=20", expect=200).json
    assert answer["state"] == "expired" and "nothing was changed" in answer["result"]
    assert session_of(daemon, session)["flavor"] == "cpu-basic"
    assert [kind for kind, _ in events_of(daemon, session, "approval.expired")] == ["approval.expired"]
    assert money(daemon, session)["spent_usd"] == 0
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_malformed_decisions_are_refused(make):
    daemon = make()
    approval = ask(daemon, daemon.session(), "fast", expect=202)["id"]
    for body in ({}, {"decision": "maybe"}, {"decision": "approve", "once": True, "session": True},
                 {"decision": "deny", "session": True}, {"decision": "approve", "scope": "once"}):
        assert daemon.api("POST", f"/approvals/{approval}", body).status == 400, body
    assert daemon.api("GET", f"/approvals/{approval}").json["state"] == "pending"
    assert daemon.api("GET", "/approvals?state=undecided").status == 400


def test_an_approver_raises_the_cap_of_a_session_of_somebody_else(keys, keyed):
    ann, eve = bearer(keys.create("ann")["key"]), bearer(keys.create("eve", "approver")["key"])
    bob = bearer(keys.create("bob")["key"])
    daemon = keyed()
    session = daemon.api("POST", "/sessions", {"preload": False}, headers=ann, expect=201).json["id"]
    path = f"/sessions/{session}/budget"
    assert daemon.api("PATCH", path, {"cap_usd": 50}, headers=bob).status == 404
    assert daemon.api("PATCH", path, {"cap_usd": 50}, headers=ann).status == 403
    assert daemon.api("PATCH", path, {"cap_usd": 50}, headers=eve, expect=200).json["cap_usd"] == 50
    assert daemon.api("GET", path, headers=eve, expect=200).json["cap_usd"] == 50
    assert daemon.api("GET", f"/sessions/{session}", headers=eve).status == 404  # nothing else of it is theirs


def test_with_keys_only_an_approver_decides(keys, keyed):
    ann, eve = bearer(keys.create("ann")["key"]), bearer(keys.create("eve", "approver")["key"])
    daemon = keyed(flavors=FLAVORS)
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=ann).json["id"]
    approval = ask(daemon, session, "fast", expect=202, headers=ann)
    assert approval["requested_by"] == "ann"
    assert decide(daemon, approval["id"], expect=403, headers=ann)["error"]["code"] == "approver_required"
    decided = decide(daemon, approval["id"], headers=eve)
    assert decided["decided_by"] == "eve"
    refused = daemon.api("PATCH", f"/sessions/{session}/budget", {"auto_approve": True}, headers=ann)
    assert (refused.status, refused.json["error"]["code"]) == (403, "approver_required")
    daemon.api("PATCH", "/budget?owner=ann", {"cap_usd": 10000}, expect=200, headers=eve)
    assert daemon.api("GET", "/budget", expect=200, headers=ann).json["cap_usd"] == 10000


def test_without_authentication_an_owner_decides_for_himself_and_nobody_for_all(make):
    daemon = make()
    ann, bob = ({"X-Sandglass-On-Behalf-Of": name} for name in ("ann", "bob"))
    session = daemon.api("POST", "/sessions", {}, expect=201, headers=ann).json["id"]
    approval = ask(daemon, session, "fast", expect=202, headers=ann)["id"]
    assert daemon.api("GET", "/approvals", headers=bob).json["approvals"] == []
    decide(daemon, approval, expect=404, headers=bob)
    assert [row["id"] for row in daemon.api("GET", "/approvals").json["approvals"]] == [approval]
    assert decide(daemon, approval, "deny", headers=ann)["decided_by"] == "ann"


def test_the_command_line_lists_approves_and_denies(make):
    daemon = make()
    first, second = daemon.session(), daemon.session()
    done = daemon.cli("session", "sandbox", "--flavor", "fast", first)
    assert done.returncode == 1 and "needs an approval" in done.stderr
    ask(daemon, second, "mystery", expect=202)
    rows = [line.split("\t") for line in daemon.cli("approvals", "ls").stdout.splitlines()]
    assert [row[1:3] for row in rows] == [["pending", first], ["pending", second]]
    assert (rows[0][5], rows[1][5]) == ("3600.00", "unknown")
    done = daemon.cli("approvals", "approve", "--session", "--reason", "it may", rows[0][0])
    assert done.returncode == 0 and "approved for this session: it may" in done.stderr
    ready(daemon, first, "fast")
    assert json.loads(daemon.cli("approvals", "deny", "--json", rows[1][0]).stdout)["state"] == "denied"
    done = daemon.cli("approvals", "deny", rows[1][0])
    assert done.returncode == 1 and "already" in done.stderr
    assert daemon.cli("approvals", "ls").stdout == ""
    assert len(daemon.cli("approvals", "ls", "--state", "all").stdout.splitlines()) == 2
    assert "cap           20.00 USD" in daemon.cli("budget", "--cap", "20", first).stdout
    assert daemon.cli("session", "sandbox", first).returncode == 0


# --- budgets ---


def test_e14_m18_the_replacement_is_reserved_and_what_is_not_used_comes_back(make):
    daemon = make(budget={"auto_approve": True, "session_cap": 4000})
    session = daemon.session()
    daemon.execute(session, ["true"])
    assert ask(daemon, session, "fast", expect=202)["flavor"] == "fast"
    before = money(daemon, session)
    assert before["spent_usd"] + before["reserved_usd"] == 3600
    assert ask(daemon, daemon.session(), "faster", expect=202)["kind"] == "approval"  # over its cap
    ready(daemon, session, "fast")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: session_of(daemon, session)["sandbox"]["state"] == "none", "it is gone")
    after = money(daemon, session)
    charged = events_of(daemon, session, "budget.charged")
    assert after["reserved_usd"] == 0 and 0 < after["spent_usd"] < 60
    assert [data["charged_usd"] for _, data in charged] == [after["spent_usd"]]
    assert after["owner"]["spent_usd"] == after["spent_usd"]


def test_m19_a_refused_renewal_ends_the_sandbox_and_the_session_stays(make):
    daemon = make(budget={"auto_approve": True, "session_cap": 8, "window": 5, "first_warning": 1})
    session = daemon.session()
    ask(daemon, session, "fast", expect=202)
    execution = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["sleep", "60"], "background": True}, expect=201).json["id"]
    wait_for(lambda: session_of(daemon, session)["flavor"] == "cpu-basic", "the budget ends it")
    ended = daemon.api("GET", f"/sessions/{session}/executions/{execution}?wait=25").json
    assert ended["state"] in ("crashed", "cancelled") and "budget" in json.dumps(ended)
    wait_for(lambda: "budget" in [data["reason"] for _, data in events_of(daemon, session, "sandbox.destroyed")], "it is gone")
    assert "cap" in events_of(daemon, session, "budget.exhausted")[0][1]["reason"]
    assert [data["threshold_usd"] for _, data in events_of(daemon, session, "budget.threshold")][0] == 1
    assert money(daemon, session)["spent_usd"] <= 8
    asked = daemon.api("GET", f"/approvals?session={session}", expect=200).json["approvals"][-1]
    assert (asked["state"], asked["flavor"], session_of(daemon, session)["approval"]) == ("pending", "fast", asked["id"])
    assert "cap" in asked["question"]
    again = daemon.execute(session, ["true"])
    assert (again["exit_code"], again["reset_reason"]) == (0, "budget")
    decide(daemon, asked["id"], expect=409)
    daemon.api("PATCH", f"/sessions/{session}/budget", {"cap_usd": 60}, expect=200)
    decide(daemon, asked["id"])
    ready(daemon, session, "fast")


def test_what_ran_while_the_daemon_was_down_is_charged_and_spend_survives(make):
    daemon = make(budget={"auto_approve": True, "session_cap": 100000})
    session = daemon.session()
    ask(daemon, session, "fast", expect=202)
    ready(daemon, session, "fast")
    daemon.kill()
    killed = time.monotonic()
    time.sleep(1)  # the time that is paid for
    daemon.start()
    down = time.monotonic() - killed
    wait_for(lambda: session_of(daemon, session)["sandbox"]["state"] == "ready", "its sandbox has answered")
    assert money(daemon, session)["spent_usd"] >= decimal.Decimal(down) * decimal.Decimal("0.9")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    spent = daemon.api("GET", "/budget").json["spent_usd"]
    final = daemon.api("GET", f"/sessions/{session}").json
    final = final.get("session", final)
    assert final["spent_usd"] == spent > 1
    daemon.kill()
    daemon.start()
    assert daemon.api("GET", "/budget").json["spent_usd"] == spent


def test_a_budget_is_checked_field_by_field(make):
    daemon = make()
    session = daemon.session()
    for body in ({"cap_usd": -1}, {"cap_usd": "5"}, {"spent_usd": 0}, {"auto_approve": 1}, {"cap_usd": 1e10}):
        assert daemon.api("PATCH", f"/sessions/{session}/budget", body).status == 400, body
    assert money(daemon, session)["cap_usd"] == 5 and not money(daemon, session)["auto_approve"]
    changed = daemon.api("PATCH", f"/sessions/{session}/budget", {"auto_approve": True, "cap_usd": 7.25}, expect=200).json
    assert (changed["auto_approve"], changed["cap_usd"], changed["remaining_usd"]) == (True, 7.25, 7.25)
