# SPDX-License-Identifier: Apache-2.0
"""The backend kubernetes when the cluster does what it does seldom, over an API server that the test plays (tests/kubernetes/api_server.py)."""
import concurrent.futures
import hashlib
import pathlib
import sys
import threading
import time

import pytest

from conftest import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes.api_server import ApiServer  # noqa: E402


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


@pytest.fixture
def make(server, make_daemon, work):
    """make(**settings of kubernetes) starts a daemon at the server; without a pool, so that each pod is asked for."""
    def start(token_file=None, **settings):
        path = work / f"kubeconfig-{len(list(work.glob('kubeconfig-*')))}"
        server.write_kubeconfig(path, token_file)
        path.chmod(0o644)
        return make_daemon(backend="kubernetes", settings={"pool": {"size": 0},
                                                           "kubernetes": {"kubeconfig": str(path), "image": "played:1", **settings}})
    return start


def pods(server):
    return server.store.list("pods", "default", "")[0]


def pod_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pod"]


def run(daemon, session, command, **options):
    return daemon.api("POST", f"/sessions/{session}/executions", {"command": command, **options}, expect=201, timeout=120).json


def start(daemon, session, command):
    """The path of a program that goes on, and runs."""
    path = f"/sessions/{session}/executions/" + run(daemon, session, command, background=True)["id"]
    wait_for(lambda: daemon.api("GET", path, expect=200).json["state"] != "queued", "the program runs")
    return path


def result(daemon, path):
    return wait_for(lambda: (record := daemon.api("GET", path, expect=200).json)["state"] != "running" and record, "the program has ended", 120)


def crash_of(daemon, path):
    """Why the pod of a program has ended."""
    record = result(daemon, path)
    assert record["state"] in ("crashed", "oom"), record
    return record["reason"]


def test_a_pod_is_made_as_promised_and_removed(make, server):
    """What Pod Security's level restricted demands, nothing of the cluster inside, and nothing left."""
    daemon = make()
    session = daemon.session()
    assert run(daemon, session, "id -u; pwd; touch /workspace/x && echo $HOME")["stdout"] == "1000\n/workspace\n/workspace\n"
    (pod,) = pods(server)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and container["securityContext"]["allowPrivilegeEscalation"] is False
    assert spec["restartPolicy"] == "Never" and spec["automountServiceAccountToken"] is False and spec["activeDeadlineSeconds"] == 7 * 24 * 3600
    assert container["resources"]["limits"]["memory"] == str(2 << 30)
    owner = pod["metadata"]["ownerReferences"][0]
    assert owner["kind"] == "ConfigMap" and server.store.get("configmaps", "default", owner["name"])["metadata"]["uid"] == owner["uid"]
    policies = server.store.list("networkpolicies", "default", "")[0]
    assert sorted(policy["metadata"]["name"].rsplit("-", 1)[1] for policy in policies) == ["none", "open"]
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert "network" in report["missing"] and "pids" in report["missing"] and report["pod"]["name"] == pod["metadata"]["name"]
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not pods(server), "the pod is gone")


ENDS = [
    (dict(terminated={"reason": "OOMKilled", "exitCode": 137}), "crashed: oom"),
    (dict(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of containers 64Mi."), "crashed: evicted: disk"),
    (dict(reason="Evicted", message="The node was low on resource: memory."), "crashed: evicted: memory of the node"),
    (dict(reason="Preempting", message="Preempted in order to admit critical pod"), "crashed: preempted"),
    (dict(reason="NodeLost", message="Node which was running pod is unresponsive"), "crashed: node lost"),
    (dict(reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline"), "crashed: deadline of the pod"),
    (dict(terminated={"reason": "Error", "exitCode": 70}), "crashed: relay"),
]


@pytest.mark.parametrize("status, text", ENDS, ids=[text for _, text in ENDS])
def test_the_cause_of_an_end_is_told(make, server, status, text):
    daemon = make()
    session = daemon.session()
    path = start(daemon, session, "sleep 300")
    server.end_pod(pod_of(daemon, session), **status)
    assert crash_of(daemon, path) == text


def test_a_pod_that_others_delete_is_noticed(make, server):
    daemon = make()
    session = daemon.session()
    path = start(daemon, session, "sleep 300")
    server.delete_pod("default", pod_of(daemon, session), {"gracePeriodSeconds": 0})
    assert crash_of(daemon, path) == "crashed: deleted"
    assert run(daemon, session, "echo again")["stdout"] == "again\n"


def test_an_end_during_an_expired_watch_is_noticed(make, server):
    """410 Gone: the list is read again, and what it does not have is looked at."""
    daemon = make()
    session = daemon.session()
    path = start(daemon, session, "sleep 300")
    name = pod_of(daemon, session)
    fault = server.fail(r"GET .*/pods\?.*watch", 503, times=1000)
    server.cut_streams()
    wait_for(lambda: fault.times < 1000, "the watch has failed")
    server.delete_pod("default", name, {"gracePeriodSeconds": 0})
    wait_for(lambda: not pods(server), "the pod is gone")
    server.store.expire()
    fault.times = 0
    assert crash_of(daemon, path) == "crashed: deleted"


def test_programs_go_on_while_the_daemon_is_dead(make, server):
    """kill -9: the next daemon adopts the pod, and every byte is there."""
    daemon = make()
    session = daemon.session()
    path = start(daemon, session, "for i in $(seq 1 300); do echo $i; sleep 0.01; done")
    wait_for(lambda: daemon.api("GET", path, expect=200).json["stdout_bytes"] > 100, "it writes")
    daemon.kill()
    daemon.start()
    assert result(daemon, path)["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 301))
    assert len(pods(server)) == 1


def test_no_byte_is_lost_when_streams_are_cut(make, server):
    daemon = make()
    session = daemon.session()
    run(daemon, session, "true")
    server.cut_streams(after=400_000)
    path = start(daemon, session, "seq 1 600000")
    assert result(daemon, path)["exit_code"] == 0
    server.cut_streams(None)
    assert daemon.api("GET", path + "/output?stream=stdout", timeout=60).body == b"".join(b"%d\n" % i for i in range(1, 600001))
    assert sum("/exec?" in line for line in server.requests) > 5


class Cutter(threading.Thread):
    """Breaks every stream of the server, watches as well, in an interval, until it is told to end."""

    def __init__(self, server, seconds):
        super().__init__(daemon=True)
        self.server, self.seconds, self.is_over, self.cuts = server, seconds, threading.Event(), 0

    def run(self):
        while not self.is_over.wait(self.seconds):
            self.server.cut_streams()
            self.cuts += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()


def test_no_byte_is_missing_when_streams_are_cut_in_an_interval(make, server):
    """tests/kubernetes/test_faults.py does it in a real cluster, every second with 100 MB."""
    daemon = make()
    session = daemon.session(auto_restart=False)
    run(daemon, session, "true")
    with Cutter(server, 0.5) as cutter:
        path = start(daemon, session, "i=0; while [ $i -lt 20 ]; do seq $((i * 150000)) $((i * 150000 + 149999)); sleep 0.3; i=$((i + 1)); done")
        record = result(daemon, path)
    assert (record["state"], record["exit_code"]) == ("exited", 0), record
    assert cutter.cuts > 4
    wanted = "".join(f"{i}\n" for i in range(3_000_000)).encode()
    assert record["stdout_bytes"] == len(wanted) > 20_000_000
    got = daemon.api("GET", path + "/output?stream=stdout", timeout=120).body
    assert hashlib.sha256(got).digest() == hashlib.sha256(wanted).digest()
    assert len(pods(server)) == 1


def test_a_storm_of_429_makes_no_pod_twice(make, server):
    """Whatever is asked for is refused for two seconds: afterwards everything is there once, and the server was not asked more often than it wants."""
    daemon = make()
    run(daemon, daemon.session(), "true")
    asked, begin = len(server.requests), time.monotonic()
    fault = server.fail(r".*/pods(\?|/|$)", 429, times=10**6, retry_after=1)
    server.cut_streams()

    def use(number):
        session = daemon.session()
        return run(daemon, session, f"echo {number}")["stdout"]
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        used = [executor.submit(use, number) for number in range(6)]
        time.sleep(2)  # for which the storm goes on
        during, lasted = len(server.requests) - asked, time.monotonic() - begin
        fault.times = 0
        assert [one.result() for one in used] == [f"{number}\n" for number in range(6)]
    assert during <= 6 * (2 + lasted), server.requests[asked:]
    assert len(pods(server)) == 7 and len({pod["metadata"]["labels"]["sandglass.io/sandbox"] for pod in pods(server)}) == 7


def test_requests_are_repeated_as_the_server_asks(make, server):
    """429 with Retry-After: nobody notices, but for the time."""
    daemon = make()
    server.fail(r"POST .*/pods$", 429, times=2, retry_after=1)
    begin = time.monotonic()
    session = daemon.session()
    run(daemon, session, "true")
    assert time.monotonic() - begin >= 2 and len(pods(server)) == 1


def test_a_create_whose_answer_is_lost_is_found(make, server):
    daemon = make()
    server.fail(r"POST .*/pods$", 0, times=1, after=True)
    session = daemon.session()
    assert run(daemon, session, "echo here")["stdout"] == "here\n"
    assert len(pods(server)) == 1 and sum(line.startswith("POST") and line.endswith("/pods") for line in server.requests) == 1


@pytest.mark.parametrize("network", ["none", "open"])
def test_a_network_is_declared_as_it_is_asked_for(make, server, network):
    """The policies exist before the pod, choose it by its label, and let in or out what their names say; nothing says that they are enforced."""
    daemon = make()
    session = daemon.session(network=network)
    run(daemon, session, "true")
    (pod,) = pods(server)
    assert pod["metadata"]["labels"]["sandglass.io/network"] == network
    policies = {item["metadata"]["name"].rsplit("-", 1)[1]: item for item in server.store.list("networkpolicies", "default", "")[0]}
    chosen = [name for name, item in policies.items() if item["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()]
    assert chosen == [network]
    spec = policies[network]["spec"]
    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"] and not spec.get("ingress")
    assert spec.get("egress", []) == ([{}] if network == "open" else [])
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert (report["network"], report["network_policy"]) == (network, "declared") and "network" in report["missing"]


def test_a_network_that_nobody_enforces_is_refused_where_it_is_required(server, make_daemon, work):
    """sandbox.require: [network] fails closed, until the operator says that the cluster's plugin enforces policies."""
    path = work / "kubeconfig"
    server.write_kubeconfig(path)
    path.chmod(0o644)
    settings = {"kubeconfig": str(path), "image": "played:1"}
    refused = make_daemon(backend="kubernetes", start=False, settings={"sandbox": {"require": ["network"]}, "pool": {"size": 0}, "kubernetes": settings})
    refused.spawn()
    assert refused.process.wait(60) != 0
    assert "kubernetes.network_enforced" in refused.log(), refused.log()
    daemon = make_daemon(backend="kubernetes", settings={"sandbox": {"require": ["network"]}, "pool": {"size": 0},
                                                         "kubernetes": {**settings, "network_enforced": True}})
    session = daemon.session()
    assert run(daemon, session, "echo walled")["stdout"] == "walled\n"
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert report["network_policy"] == "enforced" and "network" not in report["missing"]


def refusal(daemon):
    answer = daemon.api("POST", "/sessions", {"preload": True}, timeout=60)
    if answer.status == 201:
        answer = daemon.api("POST", f"/sessions/{answer.json['id']}/executions", {"command": "true"}, timeout=60)
    assert answer.status >= 400, answer.body
    return answer.status, answer.json["error"]


def test_an_image_that_no_node_has_is_named(make, server):
    daemon = make()
    server.missing_images.add("played:1")
    status, error = refusal(daemon)
    assert status == 400 and error["code"] == "image_not_found" and "ErrImageNeverPull" in error["message"] and "played:1" in error["message"]
    wait_for(lambda: not pods(server), "the pod is gone")


def test_the_schedulers_message_is_told(make, server):
    daemon = make(schedule_timeout="5s")
    server.unschedulable = "0/3 nodes are available: 3 Insufficient memory."
    status, error = refusal(daemon)
    assert status == 429 and error["code"] == "unschedulable" and "3 Insufficient memory" in error["message"], error
    wait_for(lambda: not pods(server), "the pod is gone")


def test_a_quota_is_told(make, server):
    daemon = make()
    server.fail(r"POST .*/pods$", 403, times=100, message='pods "sbx" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4')
    status, error = refusal(daemon)
    assert status == 429 and error["code"] == "quota_exceeded" and "used: pods=4" in error["message"]


@pytest.mark.parametrize("verb", ["create pods", "get configmaps", "get networkpolicies"])
def test_a_missing_verb_is_named(make, server, verb):
    daemon = make()
    server.denied.add(verb)
    _, error = refusal(daemon)
    assert error["code"] == "kubernetes_forbidden" and f"cannot {verb.split()[0]} resource \"{verb.split()[1]}\"" in error["message"], error


def test_a_rotated_token_is_read_again(make, server, work):
    token = work / "token"
    token.write_text(server.token + "\n")
    token.chmod(0o644)
    daemon = make(token_file=token)
    session = daemon.session()
    run(daemon, session, "true")
    token.write_text("another-token\n")
    server.rotate("another-token")
    server.cut_streams()
    assert run(daemon, session, "echo still here")["stdout"] == "still here\n"
    other = daemon.session()
    assert run(daemon, other, "echo new")["stdout"] == "new\n"


def test_an_api_server_that_is_away_ends_nothing(make, server):
    daemon = make()
    session = daemon.session(auto_restart=False)
    path = start(daemon, session, "for i in $(seq 1 100); do echo $i; sleep 0.03; done")
    fault = server.fail(r".*", 0, times=10**6)
    server.cut_streams()
    time.sleep(1.5)  # for which it is away
    fault.times = 0
    assert result(daemon, path)["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 101))


@pytest.mark.parametrize("user, words", [
    ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}, "an exec plugin"),
    ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
    ({"username": "a", "password": "b"}, "password"),
])
def test_credentials_that_need_programs_are_refused(make, server, work, make_daemon, user, words):
    import json
    path = work / "kubeconfig"
    server.write_kubeconfig(path)
    document = json.loads(path.read_text())
    document["users"][0]["user"] = user
    path.write_text(json.dumps(document))
    path.chmod(0o644)
    daemon = make_daemon(backend="kubernetes", start=False, settings={"kubernetes": {"kubeconfig": str(path), "image": "played:1"}})
    daemon.spawn()
    assert daemon.process.wait(60) != 0
    assert words in daemon.log() and "not supported" in daemon.log(), daemon.log()
