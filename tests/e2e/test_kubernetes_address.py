# SPDX-License-Identifier: Apache-2.0
"""kubernetes.transport: address, over an API server that the test plays: pods are reached by TCP to their addresses, sealed."""
import hashlib
import os
import pathlib
import socket
import sys
import threading
import time

import pytest

from conftest import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes.api_server import ApiServer  # noqa: E402
from test_kubernetes_faults import crash_of, pod_of, pods, refusal, result, run, start  # noqa: E402

PORT = 4247


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


@pytest.fixture
def make(server, make_daemon, work):
    """make(**settings of kubernetes) starts a daemon that reaches pods by their addresses."""
    def begin(**settings):
        path = work / f"kubeconfig-{len(list(work.glob('kubeconfig-*')))}"
        server.write_kubeconfig(path)
        path.chmod(0o644)
        return make_daemon(backend="kubernetes", settings={"pool": {"size": 0}, "kubernetes": {
            "kubeconfig": str(path), "image": "played:1", "transport": "address", **settings}})
    return begin


def address_of(server, daemon, session):
    return server.pods["default", pod_of(daemon, session)].address


def execs(server):
    return sum("/exec?" in line for line in server.requests)


def test_a_session_runs_by_the_address_of_its_pod(make, server):
    """No exec is asked for; the pod names the port, the report the way, and the list of ports has no gate in it."""
    daemon = make()
    session = daemon.session()
    assert run(daemon, session, "id -u; pwd")["stdout"] == "1000\n/workspace\n"
    assert execs(server) == 0 and address_of(server, daemon, session).accepted
    (pod,) = pods(server)
    container = pod["spec"]["containers"][0]
    assert container["ports"] == [{"name": "sandglass-gate", "containerPort": PORT, "protocol": "TCP"}] and f"--gate={PORT}" in container["command"]
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert report["pod"]["reached_by"] == "address"
    assert PORT not in [row["port"] for row in daemon.api("GET", f"/sessions/{session}/ports", expect=200).json["ports"]]
    daemon.api("PUT", f"/sessions/{session}/files?path=/workspace/a", b"x" * 3_000_000)
    assert daemon.api("GET", f"/sessions/{session}/files?path=/workspace/a", expect=200).body == b"x" * 3_000_000
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not pods(server), "the pod is gone")


def test_a_policy_admits_the_port_and_nothing_else(make, server):
    """The two others stay as they are: a third one adds the port of the gate."""
    daemon = make()
    run(daemon, daemon.session(network="none"), "true")
    policies = {item["metadata"]["name"]: item for item in server.store.list("networkpolicies", "default", "")[0]}
    others = [item for name, item in policies.items() if name.endswith(("-none", "-open"))]
    (gate,) = [item for name, item in policies.items() if name.endswith(f"-address-{PORT}")]
    assert len(policies) == 3 and not any(item["spec"].get("ingress") for item in others)
    assert gate["spec"]["policyTypes"] == ["Ingress"] and gate["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": PORT}]}]
    (pod,) = pods(server)
    assert gate["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_no_byte_is_missing_when_connections_are_cut(make, server):
    daemon = make()
    session = daemon.session(auto_restart=False)
    run(daemon, session, "true")
    address = address_of(server, daemon, session)
    is_over = threading.Event()
    cuts = []

    def cut():
        while not is_over.wait(0.3):
            cuts.append(address.cut())
    cutter = threading.Thread(target=cut, daemon=True)
    cutter.start()
    wanted = "".join(f"{i}\n" for i in range(3_000_000)).encode()
    path = start(daemon, session, "i=0; while [ $i -lt 20 ]; do seq $((i * 150000)) $((i * 150000 + 149999)); sleep 0.15; i=$((i + 1)); done; "
                 "while [ ! -e /workspace/enough ]; do sleep 0.05; done")
    wait_for(lambda: sum(cuts) > 4 and address.accepted > 4 and daemon.api("GET", path, expect=200).json["stdout_bytes"] >= len(wanted),
             "all of it has arrived, over many connections", 120)
    is_over.set()
    cutter.join()
    run(daemon, session, "touch /workspace/enough")
    record = result(daemon, path)
    assert (record["state"], record["exit_code"]) == ("exited", 0), record
    got = daemon.api("GET", path + "/output?stream=stdout", timeout=120).body
    assert hashlib.sha256(got).digest() == hashlib.sha256(wanted).digest()
    assert len(pods(server)) == 1 and execs(server) == 0


def test_a_connection_that_ends_within_a_record_loses_nothing(make, server):
    daemon = make()
    session = daemon.session()
    run(daemon, session, "true")
    address = address_of(server, daemon, session)
    address.cut_after = 333_333
    address.cut()
    path = start(daemon, session, "seq 1 400000")
    assert result(daemon, path)["exit_code"] == 0
    address.cut_after = None
    assert daemon.api("GET", path + "/output?stream=stdout", timeout=60).body == b"".join(b"%d\n" % i for i in range(1, 400001))
    assert address.accepted > 5


def test_programs_go_on_while_the_daemon_is_dead(make, server):
    daemon = make()
    session = daemon.session()
    path = start(daemon, session, "for i in $(seq 1 300); do echo $i; sleep 0.01; done")
    wait_for(lambda: daemon.api("GET", path, expect=200).json["stdout_bytes"] > 100, "it writes")
    daemon.kill()
    daemon.start()
    assert result(daemon, path)["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 301))
    assert len(pods(server)) == 1 and execs(server) == 0


def test_strangers_do_not_keep_the_daemon_out(make, server):
    """Two hundred silent connections and a flood of garbage, while the daemon has to connect again and again."""
    daemon = make()
    session = daemon.session(auto_restart=False)
    run(daemon, session, "true")
    address = address_of(server, daemon, session)
    silent = [socket.create_connection((address.text, PORT)) for _ in range(200)]
    is_over = threading.Event()
    attacks = []

    def flood():
        while not is_over.wait(0.005):
            with socket.create_connection((address.text, PORT)) as stranger:
                stranger.settimeout(5)
                try:
                    stranger.recv(24)
                    stranger.sendall(os.urandom(4096))
                    attacks.append(stranger.recv(4096))
                except OSError:
                    attacks.append(b"")
    flooder = threading.Thread(target=flood, daemon=True)
    flooder.start()
    for number in range(10):
        assert run(daemon, session, f"echo {number}")["stdout"] == f"{number}\n"
        address.cut()
    wait_for(lambda: len(attacks) > 5, "it was attacked", 60)
    is_over.set()
    flooder.join()
    for one in silent:
        one.close()
    assert not any(attacks)
    assert daemon.api("GET", f"/sessions/{session}", expect=200).json["generation"] == 1 and len(pods(server)) == 1


def test_an_address_that_does_not_answer_is_an_error_with_a_remedy(make, server, monkeypatch):
    """No exec takes its place."""
    from kubernetes import pod_network
    made = pod_network.PodAddress.__init__

    def block(self, *arguments):
        made(self, *arguments)
        self.is_blocked = True
    monkeypatch.setattr(pod_network.PodAddress, "__init__", block)
    daemon = make()
    begin = time.monotonic()
    status, error = refusal(daemon)
    assert status == 502 and error["code"] == "pod_unreachable" and f":{PORT} does not answer" in error["message"], error
    assert "kubernetes.transport" in error["message"] and "kubernetes.transport: exec" in error["hint"], error
    assert time.monotonic() - begin < 40 and execs(server) == 0
    wait_for(lambda: not pods(server), "the pod is gone", 30)


def test_a_network_that_is_away_ends_nothing(make, server):
    """Unknown is never dead: the program goes on, and its output is there when the network is."""
    daemon = make()
    session = daemon.session(auto_restart=False)
    path = start(daemon, session, "for i in $(seq 1 100); do echo $i; sleep 0.03; done; while [ ! -e /workspace/back ]; do sleep 0.05; done")
    address = address_of(server, daemon, session)
    address.is_blocked = True
    address.cut()
    time.sleep(5)  # for which it is away: longer than an attempt
    assert daemon.api("GET", path, expect=200).json["state"] == "running"
    address.is_blocked = False
    address.cut()
    run(daemon, session, "touch /workspace/back")
    assert result(daemon, path)["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 101))
    assert execs(server) == 0


def test_a_program_that_kills_the_gate_ends_its_sandbox(make, server):
    """It has the user of the gate, as it has that of the relay."""
    daemon = make()
    session = daemon.session(auto_restart=False)
    path = start(daemon, session, "sleep 0.3; for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = sandglass-gate ] && kill -9 ${p#/proc/}; done; sleep 60")
    assert crash_of(daemon, path) == "crashed: relay"


def test_the_key_is_in_no_process_that_a_program_can_read(make, server):
    daemon = make()
    session = daemon.session()
    run(daemon, session, "true")
    (pod,) = pods(server)
    key = next(row["value"] for row in pod["spec"]["containers"][0]["env"] if row["name"] == "SANDGLASS_KEY")
    output = run(daemon, session, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/[0-9]*/comm; for p in /proc/[0-9]*; do "
                 "[ \"$(cat $p/comm 2>/dev/null)\" = sandglass-gate ] && head -c 1 $p/mem 2>&1; done; true")["stdout"]
    assert key not in output and "sandglass-gate" in output and "Permission denied" in output


def test_pods_that_were_made_for_exec_are_reached_by_exec(make, server):
    """A changed setting is for pods that are made from then on; those that have no gate are not lost."""
    daemon = make(transport="exec")
    session = daemon.session()
    run(daemon, session, "echo here > /workspace/file")
    asked = execs(server)
    daemon.kill()
    daemon.settings["kubernetes"]["transport"] = "address"
    daemon.start()
    assert run(daemon, session, "cat /workspace/file")["stdout"] == "here\n"
    assert execs(server) > asked
    asked = execs(server)
    other = daemon.session()
    assert run(daemon, other, "echo new")["stdout"] == "new\n"
    assert execs(server) == asked and address_of(server, daemon, other).accepted


def test_claims_are_refused_with_it(server, make_daemon, work):
    path = work / "kubeconfig"
    server.write_kubeconfig(path)
    path.chmod(0o644)
    daemon = make_daemon(backend="kubernetes", start=False, settings={"kubernetes": {
        "kubeconfig": str(path), "kind": "claim", "warm_pool": "pool", "transport": "address"}})
    daemon.spawn()
    assert daemon.process.wait(60) != 0
    assert "kubernetes.transport: address does not go with kubernetes.kind: claim" in daemon.log(), daemon.log()
