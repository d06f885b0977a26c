# SPDX-License-Identifier: Apache-2.0
"""The API server that is played answers as the real one: the same requests, the same answers. Without a cluster (SANDGLASS_TEST_CLUSTER) only the played one is asked."""
import http.client
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import uuid

import pytest

from kubernetes import api, api_server, cluster

REAL = os.environ.get("SANDGLASS_TEST_CLUSTER")
PODS = "/api/v1/namespaces/{}/pods"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="pods are played as root")


class World:
    """An API server with a namespace of one's own."""

    def __init__(self, client, kubeconfig, image, server=None):
        self.api, self.kubeconfig, self.image, self.server = client, kubeconfig, image, server
        self.namespace = f"played-{uuid.uuid4().hex[:8]}"
        self.pods = PODS.format(self.namespace)

    def pod(self, name, command="sleep 1000", **spec):
        container = {"name": "main", "image": self.image, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", command]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"test": name}}, "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": [container], **spec}}

    def start(self, name, command="sleep 1000", phase="Running", **spec):
        self.api.call("POST", self.pods, self.pod(name, command, **spec))
        return self.wait(name, phase)

    def start_for_exec(self, name):
        """The played one says Running while its container is being made."""
        self.start(name)
        api.wait_for(lambda: self.kubectl("exec", name, "--", "true").returncode == 0, f"{name} takes programs", 60)

    def wait(self, name, phase):
        return api.wait_for(lambda: (pod := self.api.pod(name, self.namespace))["status"]["phase"] == phase and pod, f"{name} is {phase}", 60)

    def events(self, seconds, **query):
        """What a watch says in that time."""
        words = "&".join(f"{key}={value}" for key, value in {"watch": 1, "timeoutSeconds": seconds, **query}.items())
        answer = self.api.request("GET", f"{self.pods}?{words}", timeout=seconds + 20)
        assert answer.status == 200, answer.body
        return [json.loads(line) for line in answer.body.splitlines()]

    def kubectl(self, *arguments, **options):
        return subprocess.run(["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments], capture_output=True, timeout=60, **options)

    def delete(self, name):
        self.api.request("DELETE", f"{self.pods}/{name}", {"gracePeriodSeconds": 1})
        api.wait_for(lambda: self.api.request("GET", f"{self.pods}/{name}").status == 404, f"{name} is gone", 60)


@pytest.fixture(scope="module", params=["played", "real"])
def world(request):
    if request.param == "real":
        if not REAL:
            pytest.skip("another backend: no cluster runs")  # counted as not chosen
        real = cluster.Cluster(REAL)
        found = World(real.api, real.kubeconfig, "sandglass-test:1")
        found.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": found.namespace}})
        api.wait_for(lambda: found.api.request("GET", f"/api/v1/namespaces/{found.namespace}/serviceaccounts/default").status == 200, "the service account", 30)
        yield found
        found.api.request("DELETE", f"/api/v1/namespaces/{found.namespace}")
        return
    with tempfile.TemporaryDirectory() as place:
        server = api_server.ApiServer(pathlib.Path(place))
        kubeconfig = pathlib.Path(place) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield World(api.Api.of(kubeconfig), kubeconfig, "any:1", server)
        server.close()


@pytest.fixture
def played(world):
    if not world.server:
        pytest.skip("another backend: a real one does this seldom")
    yield world
    world.server.faults.clear()
    world.server.cut_streams()


def test_a_name_is_taken_once(world):
    world.start("once")
    answer = world.api.request("POST", world.pods, world.pod("once"))
    assert (answer.status, answer.json["kind"], answer.json["reason"], answer.json["code"]) == (409, "Status", "AlreadyExists", 409)
    assert answer.json["message"] == 'pods "once" already exists'
    world.delete("once")


def test_what_is_not_there(world):
    answer = world.api.request("GET", f"{world.pods}/nobody")
    assert (answer.status, answer.json["reason"], answer.json["message"]) == (404, "NotFound", 'pods "nobody" not found')
    assert world.api.request("DELETE", f"{world.pods}/nobody").status == 404


def test_a_name_that_is_no_name(world):
    answer = world.api.request("POST", world.pods, world.pod("Sbx_1"))
    assert (answer.status, answer.json["reason"]) == (422, "Invalid") and "RFC 1123" in answer.json["message"]


def test_another_pod_of_the_same_name_is_not_deleted(world):
    world.start("kept")
    answer = world.api.request("DELETE", f"{world.pods}/kept", {"preconditions": {"uid": str(uuid.uuid4())}})
    assert (answer.status, answer.json["reason"]) == (409, "Conflict"), answer.body
    assert "deletionTimestamp" not in world.api.pod("kept", world.namespace)["metadata"]
    world.delete("kept")


@pytest.mark.parametrize("command, phase, reason, code", [("exit 0", "Succeeded", "Completed", 0), ("exit 7", "Failed", "Error", 7), ("kill -9 $$; sleep 1", "Failed", "Error", 137)])
def test_how_a_pod_ends(world, command, phase, reason, code):
    name = f"end-{code}"
    if code == 137:  # a first process is not killed by itself
        command = "sh -c 'kill -9 $$'; exit 137"
    status = world.start(name, command, phase)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (status["reason"], status["exitCode"]) == (reason, code)
    world.delete(name)


def test_a_deadline(world):
    pod = world.start("late", phase="Failed", activeDeadlineSeconds=1)
    assert pod["status"]["reason"] == "DeadlineExceeded"
    world.delete("late")


def test_a_missing_image(world):
    if world.server:
        world.server.missing_images.add("no-such-image:1")
    body = world.pod("missing")
    body["spec"]["containers"][0]["image"] = "no-such-image:1"
    world.api.call("POST", world.pods, body)

    def waiting():
        status = world.api.pod("missing", world.namespace)["status"].get("containerStatuses")
        return status and status[0]["state"].get("waiting", {}).get("reason") == "ErrImageNeverPull" and status[0]["state"]["waiting"]
    assert "no-such-image:1" in api.wait_for(waiting, "the kubelet says so", 60)["message"]
    world.delete("missing")


def test_a_watch_tells_a_life(world):
    listed = world.api.call("GET", f"{world.pods}?labelSelector=test%3Dlife")
    assert listed["items"] == [] and listed["kind"] == "PodList"
    world.start("life")
    world.delete("life")
    events = world.events(5, labelSelector="test%3Dlife", resourceVersion=listed["metadata"]["resourceVersion"], allowWatchBookmarks="true")
    kinds = [event["type"] for event in events if event["type"] != "BOOKMARK"]
    assert kinds[0] == "ADDED" and kinds[-1] == "DELETED" and set(kinds[1:-1]) == {"MODIFIED"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert any("deletionTimestamp" in event["object"]["metadata"] for event in events if event["type"] == "MODIFIED")
    assert events[-1]["object"]["kind"] == "Pod"


def test_a_watch_from_too_long_ago_is_told_inside_of_the_stream(world):
    if world.server:
        world.server.store.expire()
    else:  # what it remembers of the past begins with its start
        real = cluster.Cluster(REAL)
        real.order("signal", "kube-apiserver", signal=9)
        api.wait_for(lambda: not world.api.is_ready(), "it has ended", 30)
        api.wait_for(world.api.is_ready, "it is back", 60)
    event, = world.events(5, resourceVersion=1)
    assert (event["type"], event["object"]["kind"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", "Status", 410, "Expired")


def test_a_list_comes_in_parts(world):
    for name in ("part-a", "part-b", "part-c"):
        world.api.call("POST", world.pods, world.pod(name))
    first = world.api.call("GET", f"{world.pods}?limit=2")
    rest = world.api.call("GET", f"{world.pods}?limit=2&continue={first['metadata']['continue']}")
    names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
    assert len(first["items"]) == 2 and {"part-a", "part-b", "part-c"} <= set(names) and not rest["metadata"].get("continue")
    for name in ("part-a", "part-b", "part-c"):
        world.delete(name)


def test_exec_carries_bytes_and_the_exit_status(world):
    world.start_for_exec("exec")
    data = os.urandom(300_000)
    assert world.kubectl("exec", "-i", "exec", "--", "cat", input=data).stdout == data
    result = world.kubectl("exec", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3", text=True)
    assert (result.returncode, result.stdout) == (3, "out\n") and "err\n" in result.stderr
    world.delete("exec")


def test_exec_where_nothing_runs(world):
    body = world.pod("over", "exit 0")
    world.api.call("POST", world.pods, body)
    world.wait("over", "Succeeded")
    assert world.kubectl("exec", "over", "--", "true").returncode != 0
    world.delete("over")


def test_objects_besides_pods(world):
    path = f"/api/v1/namespaces/{world.namespace}/configmaps"
    made = world.api.call("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "thing"}, "data": {"a": "b"}})
    assert made["metadata"]["uid"] and world.api.call("GET", f"{path}/thing")["data"] == {"a": "b"}
    old = dict(made, data={"a": "c"})
    assert world.api.call("PUT", f"{path}/thing", old)["data"] == {"a": "c"}
    stale = world.api.request("PUT", f"{path}/thing", dict(made, data={"a": "d"}))
    assert (stale.status, stale.json["reason"]) == (409, "Conflict")
    world.api.call("DELETE", f"{path}/thing")
    assert world.api.request("GET", f"{path}/thing").status == 404


def test_a_review_of_ones_own_power(world):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"namespace": world.namespace, "verb": "create", "resource": "pods"}}}
    assert world.api.call("POST", api_server.REVIEW, body)["status"]["allowed"] is True


def test_a_token_that_is_none(world):
    stranger = api.Api.of(world.kubeconfig)
    stranger.token = "wrong"
    if not world.server:  # a certificate would do
        stranger.context = ssl._create_unverified_context()
    answer = stranger.request("GET", world.pods)
    assert (answer.status, answer.json["reason"], answer.json["message"]) == (401, "Unauthorized", "Unauthorized")


# --- what a test can do to the played one ---


def test_faults_come_as_often_as_they_were_ordered(played):
    played.server.fail(r"GET .*/pods$", 429, times=2, retry_after=3)
    answers = [played.api.request("GET", played.pods) for _ in range(3)]
    assert [answer.status for answer in answers] == [429, 429, 200] and answers[0].headers["Retry-After"] == "3"
    played.server.fail(r"POST .*/pods$", 403, message='pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2')
    assert "exceeded quota" in played.api.request("POST", played.pods, played.pod("x")).json["message"]


def test_a_lost_answer_has_been_obeyed(played):
    played.server.fail(r"POST .*/pods$", 0, after=True)
    with pytest.raises((OSError, http.client.HTTPException)):
        played.api.request("POST", played.pods, played.pod("lost"))
    assert played.api.pod("lost", played.namespace)["metadata"]["name"] == "lost"
    played.delete("lost")


def test_a_cut_stream_leaves_the_program(played):
    played.start_for_exec("cut")
    played.server.cut_streams(after=1000)
    assert played.kubectl("exec", "cut", "--", "sh", "-c", "head -c 100000 /dev/zero").returncode != 0
    played.server.cut_streams()
    assert played.api.pod("cut", played.namespace)["status"]["phase"] == "Running"
    played.delete("cut")


def test_a_rotated_token(played):
    old = played.server.token
    played.server.rotate("another")
    assert played.api.request("GET", played.pods).status == 401
    played.server.rotate(old)
    assert played.api.request("GET", played.pods).status == 200


def test_verdicts_of_the_kubelet(played):
    played.start("oom")
    played.server.end_pod("oom", played.namespace, terminated={"reason": "OOMKilled", "exitCode": 137})
    status = played.wait("oom", "Failed")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"
    played.delete("oom")
