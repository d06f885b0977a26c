# SPDX-License-Identifier: Apache-2.0
"""Nodes that share a Redis server: reports and leases, a node that stops or dies, drain, a server that is away."""
import json
import signal

import pytest

import walls
from cluster import LEASE, Door, cluster, needs_redis, pair, redis  # noqa: F401  (fixtures)
from conftest import wait_for

pytestmark = needs_redis


def node_of(daemon, name):
    return next(node for node in daemon.api("GET", "/nodes", expect=200).json["nodes"] if node["id"] == name)


def home_of(cluster, session):
    """The node that has the session in memory, None while no node has."""
    for name, daemon in cluster.nodes.items():
        if daemon.process.poll() is None:
            rows = daemon.api("GET", f"/sessions?node={name}")
            if rows.status == 200 and any(row["id"] == session for row in rows.json["sessions"]):
                return name
    return None


def sessions_at(daemon, name):
    """Those that a node has in memory; none while it does not serve."""
    return daemon.api("GET", f"/sessions?node={name}").json.get("sessions", [])


def events_of(daemon, session):
    """Types and reasons of what happened to a session, oldest first."""
    return [(event["type"], (event.get("data") or {}).get("reason"))
            for event in daemon.api("GET", f"/sessions/{session}/history?events=1", expect=200).json.get("events", [])]


def wait_until_running(daemon, session, execution):
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{execution}").json["state"] == "running", "it runs")


def end_all(cluster):
    for daemon in cluster.nodes.values():
        if daemon.process.poll() is None:
            assert daemon.api("DELETE", "/sessions", expect=200).json["failed"] == []


def make_here(daemon, **options):
    """A session whose home is this node."""
    return daemon.session(node=daemon.settings["node"]["id"], **options)


def test_nodes_know_each_other(pair):
    node = node_of(pair["a"], "b")
    assert node["state"] == "up" and not node["self"] and node["backends"] == ["native"] and 0 < node["lease_remaining"] <= LEASE
    assert node_of(pair["b"], "b")["self"] and node["address"] == pair["b"].settings["node"]["address"]
    table = pair["a"].cli("nodes")
    assert [line.split("\t")[0] for line in table.stdout.splitlines()] == ["a*", "b"], table.stdout
    assert {node["id"] for node in json.loads(pair["a"].cli("nodes", "--json").stdout)["nodes"]} == {"a", "b"}


def test_a_daemon_alone_is_its_only_node(make_daemon):
    daemon = make_daemon()
    answer = daemon.api("GET", "/nodes", expect=200).json
    assert not answer["clustered"] and [node["state"] for node in answer["nodes"]] == ["up"]
    refusal = daemon.api("POST", f"/nodes/{answer['nodes'][0]['id']}/drain", {}, expect=409).json["error"]
    assert refusal["code"] == "not_clustered"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_sessions_of_a_lost_node_get_a_new_home(pair, how):
    first, second = pair["a"], pair["b"]
    session = make_here(first, key="mine", labels={"k": "v"})
    assert first.execute(session, ["sh", "-c", "echo kept >file; cat file"])["stdout"] == "kept\n"
    running = first.execute(session, ["sleep", "1000"], background=True)["id"]
    wait_until_running(first, session, running)
    first.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    if how == "kill":
        first.process.wait()
    wait_for(lambda: sessions_at(second, "b"), "the session is there")
    shown = second.api("GET", "/sessions/key:mine", expect=200).json
    assert shown["id"] == session and shown["state"] == "open" and shown["labels"] == {"k": "v"}
    assert shown["sandbox"]["previous_end"] == "node lost" and shown["generation"] == 1
    ended = second.api("GET", f"/sessions/{session}/executions/{running}", expect=200).json
    assert (ended["state"], ended["reason"]) == ("crashed", "crashed: node lost")
    again = second.execute(session, ["sh", "-c", "cat file || echo none"])
    assert again["stdout"] == "none\n" and again["generation"] == 2 and again["files_were_reset"] and again["reset_reason"] == "node lost"
    if how == "kill":
        first.start()
    else:
        first.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "beginning anew" in first.log(), "it learns that it was taken over")
    # What it comes back with is not its own any more: its sandboxes go, the session is the other's alone.
    wait_for(lambda: first.is_ready() and first.api("GET", "/sessions?node=a").json.get("sessions") == [], "it has none")
    wait_for(lambda: len(first.sandboxes()) <= 1, f"only the pool is left: {first.sandboxes()}")
    assert second.execute(session, ["echo", "still"])["stdout"] == "still\n"
    end_all(pair)


def test_a_node_that_begins_anew_waits_for_a_server_that_goes_away_again(cluster, redis, work):
    """A failover comes while the records are read, right after the name of the node was taken."""
    door = Door(work / "door", redis)
    store = {"kind": "redis", "redis": {"url": f"unix://{work / 'door'}", "prefix": "c:"}}
    first, second = cluster.add("a", store=store), cluster.add("b")
    cluster.wait_until_known()
    session = make_here(first)
    first.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: sessions_at(second, "b"), "the session is there")
    door.is_for_openings = True
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: "cannot begin anew yet" in first.log(), "it cannot read the records")
    assert "open the store" not in first.log()
    door.is_for_openings = False
    wait_for(lambda: first.is_ready() and cluster.up(first) == ["a", "b"], "it serves again")
    assert first.process.poll() is None and first.execute(session, ["echo", "relayed"])["stdout"] == "relayed\n"
    end_all(cluster)
    door.close()


def test_a_daemon_that_is_back_within_its_lease_has_lost_nothing(cluster):
    first, second = cluster.add("a", lease="30s"), cluster.add("b", lease="30s")
    cluster.wait_until_known()
    session = make_here(first)
    running = first.execute(session, ["sh", "-c", "sleep 2; echo done"], background=True)["id"]
    wait_until_running(first, session, running)
    first.kill()
    first.start()
    done = first.api("GET", f"/sessions/{session}/executions/{running}?wait=20", expect=200).json
    assert done["state"] == "exited" and home_of(cluster, session) == "a"
    assert second.api("GET", "/sessions?node=b").json["sessions"] == []
    end_all(cluster)


def test_a_node_that_cannot_report_stops_serving_before_its_lease_is_over(cluster, redis):
    daemon = cluster.add("a")
    cluster.wait_until_known()
    session = make_here(daemon)
    redis.process.send_signal(signal.SIGSTOP)
    try:
        def refusal():
            answer = daemon.api("GET", f"/sessions/{session}")
            return answer.status == 503 and answer
        answer = wait_for(refusal, "it stops serving")
        assert answer.json["error"]["code"] == "node_isolated" and answer.json["error"]["retryable"] and "retry-after" in answer.headers
    finally:
        redis.process.send_signal(signal.SIGCONT)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").status == 200, "it serves again")
    assert daemon.execute(session, ["echo", "on"])["stdout"] == "on\n"
    end_all(cluster)


def test_what_needs_a_record_is_refused_at_once_while_redis_is_away(redis, make_daemon):
    """A daemon alone: reading goes on for as long as it takes."""
    store = {"kind": "redis", "redis": {"url": f"unix://{redis.socket}", "prefix": "one:"}}
    daemon = make_daemon(settings={"store": store})
    session = daemon.session()
    running = daemon.execute(session, ["cat"], background=True, stdin=True)["id"]
    wait_until_running(daemon, session, running)
    redis.stop()
    def refused():
        answer = daemon.api("POST", "/sessions", {})
        return answer.status == 503 and answer
    answer = wait_for(refused, "it is refused")
    assert answer.json["error"]["code"] == "store_away" and answer.json["error"]["retryable"] and "retry-after" in answer.headers
    assert daemon.api("GET", f"/sessions/{session}").json["state"] == "open"
    daemon.api("POST", f"/sessions/{session}/executions/{running}/stdin", "over\n", headers={"Content-Type": "application/octet-stream"})
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{running}/output").body == b"over\n", "the program goes on")
    redis.socket.unlink(missing_ok=True)
    redis.start()
    wait_for(lambda: daemon.api("DELETE", "/sessions").status == 200, "it goes on")


def test_a_draining_node_takes_none_and_gives_up_what_can_move(pair):
    first, second = pair["a"], pair["b"]
    fresh = make_here(first, preload=False)
    used = make_here(first)
    first.execute(used, ["true"])
    assert first.cli("node", "drain", "a", "--no-wait").returncode == 0
    wait_for(lambda: node_of(second, "a")["state"] == "draining", "the other node knows it")
    wait_for(lambda: home_of(pair, fresh) == "b", "the session that was never used moves")
    assert home_of(pair, used) == "a"
    assert second.execute(fresh, ["echo", "here"])["stdout"] == "here\n"
    first.api("DELETE", f"/sessions/{used}", expect=200)
    waited = first.cli("node", "drain", "a")
    assert waited.returncode == 0 and "no sessions left" in waited.stderr
    assert first.cli("node", "drain", "--undo", "a").returncode == 0
    wait_for(lambda: node_of(second, "a")["state"] == "up", "it is back")
    unknown = first.cli("node", "drain", "nobody")
    assert unknown.returncode == 1 and "is not known" in unknown.stderr
    end_all(pair)


def test_a_container_that_all_nodes_reach_is_adopted_with_its_programs(cluster):
    with walls.remote_engine() as engine, walls.watched(engine):
        first, second = (cluster.add(name, backend="docker", docker=engine.client) for name in "ab")
        cluster.wait_until_known()
        session = make_here(first)
        assert first.execute(session, ["sh", "-c", "echo kept >file"])["exit_code"] == 0
        running = first.execute(session, ["sh", "-c", "for i in $(seq 600); do echo line $i; sleep 0.05; done"], background=True)["id"]
        wait_for(lambda: b"line 5\n" in first.api("GET", f"/sessions/{session}/executions/{running}/output").body, "it writes")
        box = walls.container_of(first, session)
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: sessions_at(second, "b"), "the session is there")
        wait_for(lambda: walls.show(second, session)["sandbox"]["state"] == "ready", "its sandbox is adopted", 30)
        assert walls.container_of(second, session) == box and walls.show(second, session)["generation"] == 1
        first.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "beginning anew" in first.log(), "the first learns that it was taken over")
        wait_for(first.is_ready, "the first is back")
        assert second.execute(session, ["cat", "file"])["stdout"] == "kept\n"
        done = second.api("GET", f"/sessions/{session}/executions/{running}?wait=25", expect=200, timeout=60).json
        while done["state"] == "running":
            done = second.api("GET", f"/sessions/{session}/executions/{running}?wait=25", expect=200, timeout=60).json
        assert (done["state"], done["exit_code"]) == ("exited", 0)
        output = second.api("GET", f"/sessions/{session}/executions/{running}/output?offset={done['stdout_bytes'] - 9}", expect=200).body
        assert output == b"line 600\n"
        end_all(cluster)
        for daemon in cluster.nodes.values():
            daemon.stop()


def test_a_daemon_whose_name_another_takes_leaves(pair, make_daemon):
    other = make_daemon(backend="native", settings={**pair["a"].settings, "state_dir": None}, start=False)
    other.settings["state_dir"] = str(other.state)
    other.settings["node"] = {**pair["a"].settings["node"]}
    other.start()
    assert pair["a"].process.wait(30) == 1 and "another daemon has the name of this node" in pair["a"].log()
    wait_for(lambda: node_of(other, "a")["self"], "the other one has the name")
    end_all(pair)
