# SPDX-License-Identifier: Apache-2.0
"""kubernetes.kind: claim: sandboxes from a warm pool of agent-sandbox. Its controller is played over the API server of tests/kubernetes/api_server.py; where a cluster
runs (SANDGLASS_TEST_CLUSTER), the real controller is used as well."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
import yaml

from conftest import ROOT, SANDGLASS, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes import agent_sandbox  # noqa: E402
from kubernetes.api_server import ApiServer  # noqa: E402
from kubernetes.cluster import Cluster  # noqa: E402
from kubernetes.images import SANDGLASS as DAEMON_IMAGE  # noqa: E402

CLUSTER = os.environ.get("SANDGLASS_TEST_CLUSTER", "")
NAMESPACE = "warm-pools"
LIMITS = {"memory": "256m", "cpus": 0.5, "disk": "128m"}
PREFIX = "sandglass.sandbox.users.io/"


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


@pytest.fixture
def played(server):
    """A warm pool `sandglass` with one pod, whose init container finds the program where pods of the played server can see it."""
    place = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
    place.chmod(0o755)
    shutil.copy(SANDGLASS, place / "sandglass")
    pools = agent_sandbox.Played(server)
    pools.kubeconfig = lambda path: server.write_kubeconfig(path)
    pools.apply(*agent_sandbox.documents("played:1", "played:1", place / "sandglass"))
    yield pools
    pools.close()
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def controller():
    if not CLUSTER:
        pytest.skip("no cluster runs: scripts/test --kubernetes starts one")
    cluster = Cluster(CLUSTER)
    cluster.make_namespace(NAMESPACE, **{"pod-security.kubernetes.io/enforce": "restricted"})
    with agent_sandbox.Real(cluster, NAMESPACE) as pools:
        pools.kubeconfig = lambda path: shutil.copy(cluster.kubeconfig, path)
        pools.apply(*agent_sandbox.documents("sandglass-test:1", DAEMON_IMAGE))
        yield pools


@pytest.fixture(params=["played", "controller"])
def pools(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def make(make_daemon, work):
    """make(pools, **settings of kubernetes) starts a daemon that claims from them; without a pool of its own."""
    def start(pools, start=True, **settings):
        path = work / "kubeconfig"
        pools.kubeconfig(path)
        path.chmod(0o644)
        return make_daemon(backend="kubernetes", settings={"pool": {"size": 0}, "sandbox": LIMITS, "kubernetes": {
            "kubeconfig": str(path), "namespace": pools.namespace, "kind": "claim", "warm_pool": "sandglass", **settings}}, start=start)
    return start


def run(daemon, session, command, **options):
    return daemon.api("POST", f"/sessions/{session}/executions", {"command": command, **options}, expect=201, timeout=180).json


def start(daemon, session, command):
    path = f"/sessions/{session}/executions/" + run(daemon, session, command, background=True)["id"]
    wait_for(lambda: daemon.api("GET", path, expect=200).json["state"] == "running", "the program runs", 60)
    return path


def result(daemon, path):
    return wait_for(lambda: (record := daemon.api("GET", path, expect=200).json)["state"] != "running" and record, "the program has ended", 90)


def refusal(daemon, **body):
    """What a session that cannot have its sandbox is told."""
    answer = daemon.api("POST", "/sessions", body, timeout=120)
    if answer.status == 201:
        answer = daemon.api("POST", f"/sessions/{answer.json['id']}/executions", {"command": "true"}, timeout=120)
    assert answer.status >= 400, answer.json
    return answer.json["error"]


def readiness(daemon):
    """What it answers to those who ask whether it is ready; None while nobody answers."""
    try:
        return daemon.request("GET", "/readyz").status
    except OSError:
        return None


def claimed(pools):
    return [pod for pod in pools.list("pods") if PREFIX + "sandbox" in pod["metadata"].get("labels", {})]


def test_a_sandbox_comes_from_the_warm_pool_and_leaves_nothing(pools, make):
    """The pod that waited is used as it is: no key, no variable and no volume in the claim."""
    waiting = wait_for(lambda: [pod["metadata"]["uid"] for pod in pools.list("pods") if pod["status"].get("phase") == "Running"], "the pool is filled", 90)
    daemon = make(pools)
    session = daemon.session()
    assert run(daemon, session, "id -u; pwd; touch /workspace/x && echo $HOME; hostname || cat /etc/hostname", env={"A": "b"})["stdout"].startswith("1000\n/workspace\n/workspace\n")
    (claim,), (pod,) = pools.list("sandboxclaims"), claimed(pools)
    assert pod["metadata"]["uid"] in waiting and pod["metadata"]["name"].startswith("sandglass-")
    assert not claim["spec"].keys() & {"env", "volumeClaimTemplates"} and claim["spec"]["lifecycle"]["shutdownPolicy"] == "DeleteForeground"
    assert "SANDGLASS_KEY" not in str(pod) + str(claim)
    sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]
    assert sandbox["pod"] == pod["metadata"]["name"] and sandbox["isolation"]["pod"]["kind"] == "claim"
    assert sandbox["isolation"]["limits"]["memory_bytes"] == 256 << 20
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not pools.list("sandboxclaims") and not claimed(pools), "claim and pod are gone", 90)


def test_programs_go_on_while_the_daemon_is_dead(pools, make):
    """kill -9: the next daemon finds the pod by its record, and gives no key a second time."""
    daemon = make(pools)
    session = daemon.session()
    path = start(daemon, session, "for i in $(seq 1 300); do echo $i; sleep 0.01; done")
    daemon.kill()
    daemon.start()
    assert result(daemon, path)["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"".join(b"%d\n" % i for i in range(1, 301))
    assert run(daemon, session, "echo on")["stdout"] == "on\n"
    assert len(pools.list("sandboxclaims")) == 1
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not pools.list("sandboxclaims") and not claimed(pools), "claim and pod are gone", 90)


def test_a_pod_that_the_controller_makes_again_is_not_used(pools, make):
    """It has the name and the labels of the one that was deleted, and is another incarnation."""
    daemon = make(pools)
    session = daemon.session()
    path = start(daemon, session, "touch /workspace/kept; sleep 300")
    (pod,) = claimed(pools)
    pools.delete_pod(pod["metadata"]["name"])
    assert result(daemon, path)["reason"] in ("crashed: deleted", "crashed: replaced")
    assert run(daemon, session, "ls /workspace; echo again")["stdout"] == "again\n"
    wait_for(lambda: len(pools.list("sandboxclaims")) == 1, "the first claim is gone", 90)
    assert pod["metadata"]["uid"] not in [one["metadata"]["uid"] for one in claimed(pools)]
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not pools.list("sandboxclaims") and not claimed(pools), "claim and pod are gone", 90)


def test_a_container_that_was_started_again_is_not_used(server, played, make):
    """With restartPolicy Always the pod stays what it was."""
    daemon = make(played)
    path = start(daemon, daemon.session(), "sleep 300")
    (pod,) = claimed(played)

    def restart(item):
        item["status"]["containerStatuses"][0]["restartCount"] = 1
    server.store.change("pods", "default", pod["metadata"]["name"], restart)
    assert result(daemon, path)["reason"] == "crashed: replaced"


def test_what_a_claim_cannot_have_is_refused_by_name(pools, make):
    daemon = make(pools)
    assert refusal(daemon, template="python:3.12")["code"] == "template_unknown"
    unknown = refusal(daemon, template="no-such-pool")
    assert unknown["code"] == "template_unknown" and "no-such-pool" in unknown["message"], unknown
    network = refusal(daemon, network="open")
    assert network["code"] == "backend_unable" and "network: a claim has" in network["message"], network
    memory = refusal(daemon, memory="128m")
    assert memory["code"] == "resources_differ" and "memory" in memory["message"], memory
    wait_for(lambda: not pools.list("sandboxclaims") and not claimed(pools), "no claim is left", 90)


def test_a_claim_whose_answer_is_lost_is_found(server, played, make):
    daemon = make(played)
    server.fail(r"POST .*/sandboxclaims$", 0, after=True)
    assert run(daemon, daemon.session(), "echo here")["stdout"] == "here\n"
    assert len(played.list("sandboxclaims")) == 1


def test_a_claim_of_a_dead_create_is_removed(server, played, make):
    """The pool is empty, so the claim waits; the daemon is killed and knows of no pod."""
    server.unschedulable = "0/1 nodes are available"
    for pod in played.list("pods"):
        server.delete_pod("default", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
    daemon = make(played)
    daemon.api("POST", "/sessions", {"wait": False})
    session = daemon.session()
    daemon.api("POST", f"/sessions/{session}/executions", {"command": "true", "background": True})
    wait_for(lambda: played.list("sandboxclaims"), "the claim is made")
    daemon.kill()
    daemon.start()
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not played.list("sandboxclaims"), "the claim is gone", 60)


def test_claims_and_pods_of_others_are_left_alone(played, make):
    foreign = {"kind": "SandboxClaim", "metadata": {"name": "foreign", "labels": {"sandglass.io/instance": "another"}},
               "spec": {"warmPoolRef": {"name": "sandglass"}, "additionalPodMetadata": {"labels": {PREFIX + "sandbox": "sbx_foreign", PREFIX + "instance": "another"}}}}
    played.store.create("sandboxclaims", "default", foreign, agent_sandbox.EXTENSIONS)
    daemon = make(played)
    session = daemon.session()
    assert run(daemon, session, "echo mine")["stdout"] == "mine\n"
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: [item["metadata"]["name"] for item in played.list("sandboxclaims")] == ["foreign"], "only ours is removed")


def test_a_cluster_without_agent_sandbox_says_so(server, make):
    server.namespace, server.kubeconfig = "default", server.write_kubeconfig
    daemon = make(server, start=False)
    daemon.spawn()
    wait_for(lambda: readiness(daemon) == 502, "it is known what the cluster lacks")  # before that it says that it is ready, or nothing yet
    error = refusal(daemon)
    assert error["code"] == "claims_not_installed" and "extensions.agents.x-k8s.io/v1beta1" in error["message"], error
    assert readiness(daemon) == 502
    assert "the cluster is not ready for kubernetes.kind: claim" in daemon.log()
    doctor = daemon.cli("doctor")
    assert "SandboxClaim" in doctor.stdout + doctor.stderr, doctor


@pytest.mark.parametrize("setting, value", [("image", "python:3.12"), ("runtime_class", "gvisor"), ("read_only", True), ("tolerations", ["a=b"]), ("warm_pool", "Not A Name")])
def test_settings_of_the_template_are_refused(work, setting, value):
    path = work / "claims.json"
    path.write_text(f'{{"sandbox": {{"backend": "kubernetes"}}, "kubernetes": {{"kind": "claim", "{setting}": {str(value).lower() if value is True else repr(value).replace(chr(39), chr(34))}}}}}')
    checked = subprocess.run([SANDGLASS, "config", "check", path], capture_output=True, text=True, check=False)
    assert checked.returncode != 0 and f"kubernetes.{setting}" in checked.stderr, checked


def test_what_only_a_template_promises_cannot_be_required(work):
    path = work / "claims.json"
    settings = {"sandbox": {"backend": "kubernetes", "require": ["seccomp"]}, "kubernetes": {"kind": "claim", "warm_pool": "sandglass"}}
    path.write_text(json.dumps(settings))
    refused = subprocess.run([SANDGLASS, "config", "check", path], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "seccomp" in refused.stderr and "SandboxTemplate" in refused.stderr, refused
    settings["sandbox"]["require"] = ["namespaces", "memory", "cpu"]
    path.write_text(json.dumps(settings))
    subprocess.run([SANDGLASS, "config", "check", path], check=True, capture_output=True)


# --- the page ---

PAGE = ROOT / "docs" / "how-to" / "kubernetes-claims.md"


def test_the_page_is_true(controller, make_daemon, work):
    """Its commands and settings as they are printed, and no more rights than the Role of deploy/ has."""
    page = PAGE.read_text()
    (commands,), (settings,) = (re.findall(rf"^```{kind}\n(.*?)^```", page, re.M | re.S) for kind in ("sh", "yaml"))
    subprocess.run(commands, shell=True, check=True, cwd=ROOT, env={**os.environ, "KUBECONFIG": str(controller.cluster.kubeconfig)}, capture_output=True)
    try:
        settings = yaml.safe_load(settings)
        settings["kubernetes"]["kubeconfig"] = account(controller, work)
        daemon = make_daemon(backend="kubernetes", settings={"pool": {"size": 0}, **settings})
        session = daemon.session()
        assert run(daemon, session, "echo $HOME; hostname")["stdout"] == "/workspace\nsandbox\n"
        daemon.api("DELETE", f"/sessions/{session}")
        claims = f"/apis/{agent_sandbox.EXTENSIONS}/namespaces/pools/sandboxclaims"
        wait_for(lambda: not controller.cluster.api.request("GET", claims).json["items"], "the claim is gone", 90)
    finally:
        controller.kubectl("delete", "namespace", "pools", "--wait=true", "--timeout=120s")


def account(controller, work):
    """A kubeconfig of a service account with the Role sandglass-claims alone."""
    controller.kubectl("--namespace", "pools", "create", "serviceaccount", "daemon")
    controller.kubectl("--namespace", "pools", "create", "rolebinding", "daemon", "--role=sandglass-claims", "--serviceaccount=pools:daemon")
    view = json.loads(controller.kubectl("config", "view", "--raw", "-o", "json").stdout)
    view["users"] = [{"name": "daemon", "user": {"token": controller.kubectl("--namespace", "pools", "create", "token", "daemon").stdout.strip()}}]
    view["contexts"] = [{"name": "daemon", "context": {"cluster": view["clusters"][0]["name"], "user": "daemon"}}]
    path = work / "account"
    path.write_text(json.dumps({**view, "current-context": "daemon"}))
    path.chmod(0o644)
    return str(path)
