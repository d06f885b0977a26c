# SPDX-License-Identifier: Apache-2.0
"""A daemon of this host and a real cluster that fails: streams that are cut, pods that others end, a drained node, a dead API server. They disturb the whole cluster, and so run
one after the other."""
import contextlib
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

from kubernetes import api, cluster, settings

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import real_cluster  # noqa: E402
from conftest import make_daemon, wait_for, work  # noqa: E402, F401  (fixtures)

REAL = os.environ.get("SANDGLASS_TEST_CLUSTER")
pytestmark = pytest.mark.skipif(not REAL, reason="another backend: no cluster runs")  # counted as not chosen


@pytest.fixture(scope="module", autouse=True)
def namespace():
    yield
    real_cluster.release()


class Gate:
    """A listener before the API server, whose connections a test cuts: TLS goes through it as it is."""

    def __init__(self, target):
        self.target = target
        self.pairs, self.cuts = [], 0
        self.is_over = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                try:
                    far = socket.create_connection(self.target, 10)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self.pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    def copy(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        pairs, self.pairs = self.pairs, []
        self.cuts += bool(pairs)
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def cut_every(self, seconds):
        def work():
            while not self.is_over.wait(seconds):
                self.cut()
        threading.Thread(target=work, daemon=True).start()

    def close(self):
        self.is_over.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


@pytest.fixture
def gate(work):  # noqa: F811
    """`gate.kubeconfig` leads through it."""
    real_cluster.the_api()
    config = json.loads(cluster.Cluster(REAL).kubeconfig.read_text())
    address = config["clusters"][0]["cluster"]["server"].removeprefix("https://").split(":")
    made = Gate((address[0], int(address[1])))
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{made.port}"
    made.kubeconfig = work / "kubeconfig"
    made.kubeconfig.write_text(json.dumps(config))
    made.kubeconfig.chmod(0o644)
    yield made
    made.close()


def daemon_of(make, **own):
    """Without a pool, so that every pod is a session's."""
    return make(backend="kubernetes", settings={"pool": {"size": 0}, "exec": {"output_spool": "256m"}, **({"kubernetes": own} if own else {})})


@pytest.fixture
def daemon(make_daemon):  # noqa: F811
    return daemon_of(make_daemon)


def start(daemon, session, command):
    path = f"/sessions/{session}/executions/" + daemon.api("POST", f"/sessions/{session}/executions", {"command": command, "background": True}, expect=201, timeout=120).json["id"]
    wait_for(lambda: daemon.api("GET", path, expect=200).json["state"] != "queued", "the program runs", 120)
    return path


def result(daemon, path, seconds=180):
    return wait_for(lambda: (record := daemon.api("GET", path, expect=200).json)["state"] != "running" and record, "the program has ended", seconds)


def run(daemon, session, command):
    return daemon.api("POST", f"/sessions/{session}/executions", {"command": command}, expect=201, timeout=120).json


def pod_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pod"]


def names(daemon):
    return {pod["metadata"]["name"] for pod in real_cluster.pods(daemon.settings["instance"])}


def test_no_byte_of_100_mb_is_missing_when_all_connections_are_cut_every_second(gate, make_daemon):  # noqa: F811
    """Of the exec, of the watch and of every request; the pod stays the same."""
    daemon = daemon_of(make_daemon, kubeconfig=str(gate.kubeconfig), namespace=real_cluster.NAMESPACE)
    session = daemon.session(auto_restart=False)
    run(daemon, session, "true")
    pod = pod_of(daemon, session)
    gate.cut_every(1)
    path = start(daemon, session, "i=0; while [ $i -lt 26 ]; do seq $((i * 500000)) $((i * 500000 + 499999)); sleep 0.4; i=$((i + 1)); done")
    record = result(daemon, path)
    gate.is_over.set()
    assert (record["state"], record["exit_code"]) == ("exited", 0), record
    wanted, size = hashlib.sha256(), 0
    for first in range(0, 13_000_000, 500_000):
        piece = "".join(f"{number}\n" for number in range(first, first + 500_000)).encode()
        wanted.update(piece)
        size += len(piece)
    print(f"{size} bytes, {gate.cuts} cuts")
    assert record["stdout_bytes"] == size > 100_000_000 and gate.cuts >= 8
    got = daemon.api("GET", path + "/output?stream=stdout", timeout=300).body
    assert hashlib.sha256(got).digest() == wanted.digest()
    assert pod_of(daemon, session) == pod and names(daemon) == {pod}


def test_a_pod_that_others_delete_is_replaced_once(daemon):
    session = daemon.session()
    path = start(daemon, session, "sleep 1000")
    pod = pod_of(daemon, session)
    real_cluster.the_api().call("DELETE", f"/api/v1/namespaces/{real_cluster.NAMESPACE}/pods/{pod}")
    assert result(daemon, path)["reason"] == "crashed: deleted"
    assert run(daemon, session, "echo again")["stdout"] == "again\n"
    assert pod_of(daemon, session) != pod
    wait_for(lambda: names(daemon) == {pod_of(daemon, session)}, "the session has one pod", 60)


def kubectl(*arguments):
    return subprocess.run(["kubectl", "--kubeconfig", str(cluster.Cluster(REAL).kubeconfig), *arguments], check=True, capture_output=True, text=True, timeout=180).stdout


def test_a_drained_node_is_told_and_waited_for(make_daemon):  # noqa: F811
    """The only node: nothing can be made before it takes pods again, and the caller hears the scheduler's reason."""
    daemon = daemon_of(make_daemon, schedule_timeout="3s")
    session = daemon.session()
    path = start(daemon, session, "sleep 1000")
    try:
        kubectl("drain", settings.NODE, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s", "--pod-selector", f"sandglass.io/instance={daemon.settings['instance']}")
        assert result(daemon, path)["reason"] == "crashed: evicted"
        answer = daemon.api("POST", f"/sessions/{session}/executions", {"command": "true"}, timeout=120)
        assert answer.status == 429 and answer.json["error"]["code"] == "unschedulable" and "unschedulable" in answer.json["error"]["message"], answer.body
    finally:
        kubectl("uncordon", settings.NODE)
    assert wait_for(lambda: (answer := daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo back"}, timeout=120)).status == 201 and answer.json, "a pod is made again",
                    120)["stdout"] == "back\n"
    wait_for(lambda: names(daemon) == {pod_of(daemon, session)}, "the session has one pod", 60)


def test_an_api_server_that_is_killed_ends_nothing(daemon):
    """kill -9, and it comes back: programs go on meanwhile, and every byte is there."""
    session = daemon.session(auto_restart=False)
    path = start(daemon, session, "for i in $(seq 1 400); do echo $i; sleep 0.05; done")
    pod = pod_of(daemon, session)
    wait_for(lambda: daemon.api("GET", path, expect=200).json["stdout_bytes"] > 20, "it writes", 60)
    machine = cluster.Cluster(REAL)
    machine.order("stop", "kube-apiserver", signal=9)
    try:
        assert daemon.api("GET", path, expect=200).json["state"] == "running"
    finally:
        machine.order("start", "kube-apiserver")
        api.wait_for(machine.api.is_ready, "the API server is back", 120)
    record = result(daemon, path)
    assert (record["state"], record["exit_code"]) == ("exited", 0), record
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 401))
    assert run(daemon, session, "echo same")["stdout"] == "same\n"
    assert pod_of(daemon, session) == pod and names(daemon) == {pod}
    other = daemon.session()
    assert run(daemon, other, "echo new")["stdout"] == "new\n"


def test_by_the_address_of_a_pod_output_flows_while_the_api_server_is_dead(make_daemon):  # noqa: F811
    daemon = daemon_of(make_daemon, transport="address")
    session = daemon.session(auto_restart=False)
    path = start(daemon, session, "for i in $(seq 1 2000); do echo $i; sleep 0.02; done")
    pod = pod_of(daemon, session)
    assert daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]["pod"]["reached_by"] == "address"
    machine = cluster.Cluster(REAL)
    machine.order("stop", "kube-apiserver", signal=9)
    try:
        before = daemon.api("GET", path, expect=200).json["stdout_bytes"]
        wait_for(lambda: daemon.api("GET", path, expect=200).json["stdout_bytes"] > before + 500, "bytes come without the API server", 60)
        assert run(daemon, session, "echo and programs start")["stdout"] == "and programs start\n"
    finally:
        machine.order("start", "kube-apiserver")
        api.wait_for(machine.api.is_ready, "the API server is back", 120)
    record = result(daemon, path)
    assert (record["state"], record["exit_code"]) == ("exited", 0), record
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 2001))
    assert pod_of(daemon, session) == pod and names(daemon) == {pod}
