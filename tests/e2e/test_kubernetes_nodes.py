# SPDX-License-Identifier: Apache-2.0
"""Daemons of a cluster of Sandglass that share the pods of one Kubernetes cluster, over an API server that the test plays."""
import contextlib
import pathlib
import select
import socket
import sys
import threading
import time
import uuid

import pytest

from cluster import cluster, needs_redis, redis  # noqa: F401  (fixtures)
from conftest import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes.api_server import ApiServer  # noqa: E402

pytestmark = needs_redis


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


def show(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json


def has(daemon, name, session):
    """Whether the node with this name has the session; no, while it cannot be asked."""
    return any(row["id"] == session for row in daemon.api("GET", f"/sessions?node={name}").json.get("sessions", ()))


def test_the_pods_of_a_dead_node_go_on_with_their_programs(cluster, server, work):  # noqa: F811
    """kill -9 under load: the other node adopts the pod, every byte arrives, and there is one pod and no orphan."""
    path = work / "kubeconfig"
    server.write_kubeconfig(path)
    path.chmod(0o644)
    settings = {"kubeconfig": str(path), "image": "played:1"}
    first, second = (cluster.add(name, backend="kubernetes", kubernetes=settings, pool={"size": 0}) for name in "ab")
    cluster.wait_until_known()
    session = first.api("POST", "/sessions", {"node": "a"}, expect=201).json["id"]
    running = first.execute(session, ["sh", "-c", "for i in $(seq 600); do echo line $i; sleep 0.03; done"], background=True)["id"]
    output = f"/sessions/{session}/executions/{running}/output?stream=stdout"
    wait_for(lambda: b"line 5\n" in first.api("GET", output).body, "it writes", 30)
    pod = show(first, session)["sandbox"]["pod"]
    first.kill()
    wait_for(lambda: has(second, "b", session), "the session is there", 60)
    wait_for(lambda: show(second, session)["sandbox"]["state"] == "ready", "its sandbox is adopted", 60)
    assert show(second, session)["sandbox"]["pod"] == pod and show(second, session)["generation"] == 1
    done = wait_for(lambda: (record := second.api("GET", f"/sessions/{session}/executions/{running}", expect=200).json)["state"] != "running" and record, "it ends", 120)
    assert (done["state"], done["exit_code"]) == ("exited", 0), done
    assert second.api("GET", output + f"&offset={done['stdout_bytes'] - 9}").body == b"line 600\n"
    first.start()
    assert len(server.store.list("pods", "default", "")[0]) == 1
    second.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not server.store.list("pods", "default", "")[0], "the pod is gone", 30)


class Wire:
    """A socket before that of Redis. While it is parted nothing passes in either direction and nobody is told, as when packets are lost."""

    def __init__(self, directory, target):
        self.path = directory / f"wire-{uuid.uuid4().hex[:8]}"
        self.target = str(target)
        self.is_whole = threading.Event()
        self.is_whole.set()
        self.ends = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.path.chmod(0o777)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.target)
                self.ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=pair, daemon=True).start()

    def copy(self, source, sink):
        with contextlib.suppress(OSError, ValueError):
            while select.select([source], [], [])[0] and self.is_whole.wait() and (data := source.recv(65536)):
                self.is_whole.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def part(self):
        self.is_whole.clear()

    def mend(self):
        """What was connected before is lost, as after a partition that outlasted its connections."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.is_whole.set()

    def close(self):
        self.mend()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def wires(work, redis):  # noqa: F811
    made = []

    def make():
        made.append(Wire(work, redis.socket))
        return made[-1]
    yield make
    for wire in made:
        wire.close()


@pytest.fixture
def nodes(server, wires, cluster, work):  # noqa: F811
    """Two daemons that share one Redis and one Kubernetes cluster, each with a wire of its own to Redis; pods are made for sessions alone."""
    path = work / "kubeconfig"
    server.write_kubeconfig(path)
    path.chmod(0o644)
    made = {}
    for name in "ab":
        wire = wires()
        store = {"kind": "redis", "redis": {"url": f"unix://{wire.path}", "prefix": "c:"}}
        daemon = cluster.add(name, backend="kubernetes", kubernetes={"kubeconfig": str(path), "image": "played:1"}, pool={"size": 0}, store=store)
        made[name] = daemon, wire
    cluster.wait_until_known()
    return made


class Load:
    """Callers that make a session, run a program in it, and repeat with the same keys what may be repeated. `sessions` has what was confirmed."""

    def __init__(self, daemons, callers=3):
        self.daemons = daemons
        self.sessions, self.findings = [], []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.call, args=(number,), daemon=True) for number in range(callers)]
        for thread in self.threads:
            thread.start()

    def ask(self, turn, path, body):
        """Of one node and then of the other, until one of them has done it."""
        for attempt in range(600):
            daemon = self.daemons[(turn + attempt) % len(self.daemons)]
            with contextlib.suppress(OSError):
                answer = daemon.api("POST", path, body, headers={"Idempotency-Key": body["key"]}, timeout=60)
                if answer.status < 300:
                    return answer.json
                if not answer.json.get("error", {}).get("retryable"):
                    self.findings.append((path, answer.status, answer.body))
                    return None
            time.sleep(0.1)  # also when it is over: what was begun is brought to its end
        self.findings.append((path, "not done after 600 attempts"))
        return None

    def call(self, number):
        turn = number
        while not self.is_over.is_set() and not self.findings:
            turn += 1
            name = f"load-{uuid.uuid4().hex[:8]}"
            session = self.ask(turn, "/sessions", {"key": name})
            done = session and self.ask(turn, f"/sessions/{session['id']}/executions", {"command": f"echo {name}", "key": f"{name}-run"})
            if done and done["state"] == "exited" and done["stdout"] != f"{name}\n":
                self.findings.append(("output", done))
            if session:
                self.sessions.append(session["id"])

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(90)
        assert not any(thread.is_alive() for thread in self.threads)
        assert not self.findings, self.findings[:3]


def pods_of(server):
    """Sandboxes of pods that nobody has deleted, by session."""
    found = {}
    for pod in server.store.list("pods", "default", "")[0]:
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(pod["metadata"]["annotations"]["sandglass.io/session"], []).append(pod["metadata"]["name"])
    return found


def pods_by_record(daemon, session):
    """None while its home does not answer."""
    answer = daemon.api("GET", f"/sessions/{session}")
    if answer.status != 200:
        return None
    pod = answer.json["sandbox"].get("pod")
    return [pod] if pod else []


def check_and_remove(server, daemon, load):
    """One pod at most for each session, each of them the one that the session has; and none when the sessions are deleted."""
    def is_settled():
        return all(len(names) == 1 for names in pods_of(server).values()) and set(pods_of(server)) <= set(load.sessions)
    wait_for(is_settled, f"no session has two pods, and no pod is without a session: {pods_of(server)}", 60)
    for session in load.sessions:  # a sandbox that is just being made has no pod in its record yet
        wait_for(lambda session=session: pods_by_record(daemon, session) == pods_of(server).get(session, []), f"{session} has the pod of its record", 60)
    for session in load.sessions:
        wait_for(lambda session=session: daemon.api("DELETE", f"/sessions/{session}").status in (200, 204, 404, 410), f"{session} is deleted", 60)
    wait_for(lambda: not server.store.list("pods", "default", "")[0], f"no pod is left: {pods_of(server)}", 60)


def is_ready(daemon):
    with contextlib.suppress(OSError):
        return daemon.request("GET", "/readyz").status == 200
    return False


def test_a_node_that_is_killed_under_load_leaves_no_pod_twice_and_no_orphan(nodes, server):
    """kill -9 while pods are made: sessions that were confirmed are there, and pods that nobody has heard of are removed."""
    (first, _), (second, _) = nodes.values()
    load = Load([first, second])
    wait_for(lambda: len(load.sessions) >= 3 or load.findings, "the load has begun", 60)
    first.kill()
    before = len(load.sessions)
    wait_for(lambda: len(load.sessions) >= before + 3 or load.findings, "the other node goes on", 60)
    first.start()
    before = len(load.sessions)
    wait_for(lambda: len(load.sessions) >= before + 2 or load.findings, "both go on", 60)
    load.end()
    check_and_remove(server, second, load)


def test_a_node_that_loses_redis_makes_no_pod_twice(nodes, server):
    """It cannot know what the other one does with its sessions, and so does nothing: the other has them when the lease is over."""
    (first, wire), (second, _) = nodes.values()
    session = first.api("POST", "/sessions", {"node": "a", "key": "held"}, expect=201).json["id"]
    assert first.execute(session, ["sh", "-c", "echo kept >file"])["exit_code"] == 0
    pod = show(first, session)["sandbox"]["pod"]
    load = Load([first, second])
    load.sessions.append(session)
    wait_for(lambda: len(load.sessions) >= 4 or load.findings, "the load has begun", 60)
    wire.part()
    wait_for(lambda: has(second, "b", session), "the other node has the session", 60)
    assert second.execute(session, ["cat", "file"])["stdout"] == "kept\n"
    assert show(second, session)["sandbox"]["pod"] == pod and show(second, session)["generation"] == 1
    before = len(load.sessions)
    wait_for(lambda: len(load.sessions) >= before + 2 or load.findings, "the other node goes on", 60)
    wire.mend()
    wait_for(lambda: is_ready(first), "the node has dropped what it knew, and is back", 60)
    before = len(load.sessions)
    wait_for(lambda: len(load.sessions) >= before + 2 or load.findings, "both go on", 60)
    load.end()
    check_and_remove(server, second, load)
