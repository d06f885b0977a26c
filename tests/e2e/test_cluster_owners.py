# SPDX-License-Identifier: Apache-2.0
"""What an owner may have holds over all nodes of a cluster: sandboxes, money, Idempotency-Keys, scopes."""
import concurrent.futures
import json
import signal

import pytest

from cluster import cluster, needs_redis, redis  # noqa: F401
from conftest import UnixConnection, wait_for

pytestmark = needs_redis

OWNER = "X-Sandglass-On-Behalf-Of"
ANN = {OWNER: "ann"}
FLAVORS = [{"name": "cpu-basic"}, {"name": "paid", "price_per_hour": 1}]


@pytest.fixture
def make_pair(cluster):
    def make(**settings):
        for name in ("a", "b"):
            cluster.add(name, backend="direct", **settings)
        cluster.wait_until_known()
        return cluster["a"], cluster["b"]
    return make


def create(daemon, headers=ANN, **fields):
    return daemon.api("POST", "/sessions", fields, headers=headers, expect=201).json["id"]


def run(daemon, session, headers=ANN):
    return daemon.api("POST", f"/sessions/{session}/executions", {"command": "true"}, headers=headers)


# --- sandboxes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [0, 2])
def test_the_cap_of_sandboxes_holds_over_both_nodes(make_pair, pool):
    nodes = make_pair(capacity={"max_per_owner": 3, "overflow": "reject"}, pool={"size": pool})
    sessions = [(daemon, create(daemon, node=name)) for _ in range(3) for name, daemon in zip("ab", nodes)]
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        answers = list(executor.map(lambda pair: run(*pair), sessions))
    assert sorted(answer.status for answer in answers) == [201, 201, 201, 429, 429, 429], [answer.body for answer in answers]
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.json["error"]["code"] == "capacity" and refused.json["error"]["retryable"]
    assert run(nodes[0], create(nodes[0], {OWNER: "bob"}, node="a"), {OWNER: "bob"}).status == 201

    # What ends on one node is free on the other.
    had = next(pair for pair, answer in zip(sessions, answers) if answer.status == 201)
    lacked = next(pair for pair, answer in zip(sessions, answers) if answer.status == 429)
    had[0].api("DELETE", f"/sessions/{had[1]}", headers=ANN, expect=200)
    wait_for(lambda: run(*lacked).status == 201, "the slot is given back")


def test_the_sandboxes_of_a_lost_node_do_not_count(cluster, make_pair):
    a, b = make_pair(capacity={"max_per_owner": 2, "overflow": "reject"}, pool={"size": 0})
    for session in [create(a, node="a") for _ in range(2)]:
        assert run(a, session).status == 201
    mine = create(b, node="b")
    assert run(b, mine).status == 429
    a.process.send_signal(signal.SIGKILL)
    a.process.wait()
    wait_for(lambda: run(b, mine).status == 201, "the slots of the lost node are free", 60)
    a.start()  # it ends what is no longer its own
    cluster.wait_until_known()


# --- money ----------------------------------------------------------------------------------------


def test_the_budget_of_an_owner_holds_over_both_nodes(make_pair):
    a, b = make_pair(flavors=FLAVORS, budget={"auto_approve": True, "session_cap": 10, "owner_cap": 2}, pool={"size": 0})

    def pay(daemon, name):
        session = create(daemon, node=name)
        daemon.api("POST", f"/sessions/{session}/sandbox", {"flavor": "paid"}, headers=ANN)
        run(daemon, session)
        return daemon.api("GET", f"/sessions/{session}", headers=ANN, expect=200).json["flavor"]

    assert [pay(a, "a"), pay(b, "b")] == ["paid", "paid"]
    assert [pay(a, "a"), pay(b, "b")] == ["cpu-basic", "cpu-basic"]
    for daemon in (a, b):
        budget = daemon.api("GET", "/budget", headers=ANN, expect=200).json
        assert budget["cap_usd"] == 2 and 1.9 < budget["spent_usd"] + budget["reserved_usd"] <= 2, budget
    assert a.api("PATCH", "/budget?owner=ann", {"cap_usd": 4}, headers=ANN, expect=200).json["cap_usd"] == 4
    assert b.api("GET", "/budget", headers=ANN, expect=200).json["cap_usd"] == 4
    assert [pay(a, "a"), pay(b, "b")] == ["paid", "paid"]
    assert pay(b, "b") == "cpu-basic"


# --- Idempotency-Keys and scopes ------------------------------------------------------------------


def test_a_key_makes_one_session_on_whichever_node(make_pair):
    nodes = make_pair()

    def ask_once(daemon):
        answer = daemon.api("POST", "/sessions", {}, headers={**ANN, "Idempotency-Key": "same"})
        return None if answer.status == 409 and answer.json["error"]["retryable"] else answer

    def ask(number):
        return wait_for(lambda: ask_once(nodes[number % 2]), "an answer that is not about another request")

    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        answers = list(executor.map(ask, range(16)))
    assert {answer.status for answer in answers} <= {200, 201}, [answer.body for answer in answers]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert a_total(nodes[0]) == 1
    answer = nodes[1].api("POST", "/sessions", {"labels": {"x": "y"}}, headers={**ANN, "Idempotency-Key": "same"})
    assert answer.status == 409 and answer.json["error"]["code"] == "idempotency_key_reused"


def a_total(daemon):
    return daemon.api("GET", "/sessions", headers=ANN, expect=200).json["total"]


def open_scope(daemon, owner=None):
    """(connection, owner): the scope lasts as long as the connection."""
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", "/api/v1/scopes", json.dumps({"owner": owner} if owner else {}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 201, response.read()
    return connection, json.loads(response.readline())["owner"]


def test_the_end_of_a_scope_ends_its_sessions_on_both_nodes(make_pair):
    a, b = make_pair()
    connection, owner = open_scope(a)
    headers = {OWNER: owner}
    sessions = [create(daemon, headers, node=name) for name, daemon in (("a", a), ("b", b))]
    others = create(b, node="b")
    answer = b.api("POST", "/scopes", {"owner": owner})
    assert answer.status == 409 and answer.json["error"]["code"] == "scope_taken"
    connection.sock.shutdown(2)
    connection.close()
    for daemon, session in zip((a, b), sessions):
        record = wait_for(lambda: daemon.ended(session, headers=headers), "the session ends with its scope")
        assert record.json["end_reason"] == "deleted: scope"
    answer = b.api("POST", "/sessions", {"node": "b"}, headers=headers)
    assert answer.status == 410 and answer.json["error"]["code"] == "scope_ended"
    assert b.api("GET", f"/sessions/{others}", headers=ANN, expect=200).json["state"] == "open"
