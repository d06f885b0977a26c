# SPDX-License-Identifier: Apache-2.0
"""What `sandglass doctor` says about the rights of the backend kubernetes, over the API server of tests/kubernetes/api_server.py and in a real cluster."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import SANDGLASS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes.api_server import ApiServer  # noqa: E402

CLUSTER = os.environ.get("SANDGLASS_TEST_CLUSTER", "")
RIGHTS = {"pod": "create pods, get pods, list pods, watch pods, delete pods, create pods/exec, get pods/exec, create configmaps, get configmaps, create networkpolicies, "
                 "get networkpolicies",
          "claim": "create sandboxclaims, get sandboxclaims, list sandboxclaims, delete sandboxclaims, get pods, list pods, watch pods, create pods/exec, get pods/exec, "
                   "create configmaps, get configmaps"}


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


def finding(work, kubeconfig, kind, namespace="default"):
    """The check of the rights; the daemon that doctor would start for a sandbox has no time for one."""
    kubeconfig.chmod(0o644)
    path = work / "settings.json"
    path.write_text(json.dumps({"state_dir": str(work / "state"), "runtime_dir": str(work / "run"), "sandbox": {"backend": "kubernetes"},
                                "kubernetes": {"kubeconfig": str(kubeconfig), "kind": kind, "namespace": namespace, "start_timeout": "1s"}}))
    result = subprocess.run([SANDGLASS, "doctor", "--json", "--config", path], capture_output=True, text=True, timeout=120, check=False)
    return next(check for check in json.loads(result.stdout)["checks"] if check["name"] == "kubernetes rights")


@pytest.mark.parametrize("kind", RIGHTS)
def test_every_missing_right_is_named(server, work, kind):
    kubeconfig = work / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    assert finding(work, kubeconfig, kind)["status"] == "ok"
    for right in [one for one in RIGHTS[kind].split(", ") if kind == "pod" or one.endswith("claims")]:  # the others are the same
        server.denied = {right}
        found = finding(work, kubeconfig, kind)
        assert found["status"] == "fail" and found["detail"].endswith(f"may not: {right}") and "Role" in found["remedy"], (right, found)
    server.denied = {"delete pods", "get pods/exec"} if kind == "pod" else {"delete sandboxclaims", "get pods/exec"}
    assert finding(work, kubeconfig, kind)["detail"].endswith("may not: " + ", ".join(sorted(server.denied)))


def test_a_server_that_does_not_answer_is_no_missing_right(server, work):
    kubeconfig = work / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    server.fail(r"POST .*/selfsubjectaccessreviews$", 500, times=1000)
    found = finding(work, kubeconfig, "pod")
    assert found["status"] == "fail" and "may not" not in found["detail"], found


def test_a_real_cluster_says_the_same(make_daemon, work):  # which takes it along where a cluster runs
    if not CLUSTER:
        pytest.skip("no cluster runs: scripts/test --kubernetes starts one")
    admin = pathlib.Path(CLUSTER) / "admin.conf"

    def kubectl(*arguments):
        return subprocess.run(["kubectl", *arguments], env={**os.environ, "KUBECONFIG": str(admin)}, check=True, capture_output=True, text=True).stdout
    kubectl("create", "namespace", "rights")
    try:
        kubectl("--namespace", "rights", "create", "serviceaccount", "daemon")
        kubectl("--namespace", "rights", "create", "role", "daemon", "--verb=create,get,list,watch", "--resource=pods,pods/exec,configmaps,networkpolicies.networking.k8s.io")
        kubectl("--namespace", "rights", "create", "rolebinding", "daemon", "--role=daemon", "--serviceaccount=rights:daemon")
        view = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
        view["users"] = [{"name": "daemon", "user": {"token": kubectl("--namespace", "rights", "create", "token", "daemon").strip()}}]
        view["contexts"] = [{"name": "daemon", "context": {"cluster": view["clusters"][0]["name"], "user": "daemon"}}]
        path = work / "kubeconfig"
        path.write_text(json.dumps({**view, "current-context": "daemon"}))
        found = finding(work, path, "pod", "rights")
        assert found["status"] == "fail" and found["detail"].endswith("may not: delete pods"), found
    finally:
        kubectl("delete", "namespace", "rights", "--wait=false")
