# SPDX-License-Identifier: Apache-2.0
"""Certificates of the API server and of the daemon that are replaced on disk, over an API server that the test plays and in a real cluster."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes import settings as rig  # noqa: E402
from kubernetes.api_server import ApiServer, make_certificate  # noqa: E402
from kubernetes.cluster import Cluster  # noqa: E402

CLUSTER = os.environ.get("SANDGLASS_TEST_CLUSTER", "")


@pytest.fixture
def server(work):
    made = ApiServer(work / "api")
    yield made
    made.close()


def put(source, target):
    """As tools that rotate certificates do: whole, under the name of the old one."""
    shutil.copy(source, f"{target}.new")
    os.chmod(f"{target}.new", 0o644)
    os.rename(f"{target}.new", target)


def write(path, **document):
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "one", "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
                                **document}))
    path.chmod(0o644)
    return str(path)


def run(daemon, session, command):
    return daemon.api("POST", f"/sessions/{session}/executions", {"command": command}, expect=201, timeout=180).json["stdout"]


def test_a_new_ca_is_used_without_a_restart(server, make_daemon, work):
    put(server.directory / "server.crt", work / "ca.crt")
    path = write(work / "kubeconfig", users=[{"name": "one", "user": {"token": server.token}}],
                 clusters=[{"name": "one", "cluster": {"server": server.url, "certificate-authority": str(work / "ca.crt")}}])
    daemon = make_daemon(backend="kubernetes", settings={"pool": {"size": 0}, "kubernetes": {"kubeconfig": path, "image": "played:1"}})
    session = daemon.session()
    assert run(daemon, session, "echo before") == "before\n"
    make_certificate(server.directory)
    server.server.socket.context.load_cert_chain(server.directory / "server.crt", server.directory / "server.key")
    server.cut_streams()
    wait_for(lambda: "the Kubernetes API server does not answer" in daemon.log(), "the old CA does not know the new certificate", 60)
    put(server.directory / "server.crt", work / "ca.crt")
    assert run(daemon, session, "echo after") == "after\n"
    assert run(daemon, daemon.session(), "echo new") == "new\n"


def test_a_new_certificate_of_the_daemon_is_used_without_a_restart(make_daemon, work):
    """First a user who may only look, then one with all rights; the pair is replaced one file after the other."""
    if not CLUSTER:
        pytest.skip("no cluster runs: scripts/test --kubernetes starts one")
    cluster = Cluster(CLUSTER)
    cluster.make_namespace("certificates")

    def kubectl(*arguments):
        subprocess.run(["kubectl", *arguments], env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, check=True, capture_output=True)
    kubectl("--namespace", "certificates", "create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer")
    pki = work / "pki"
    shutil.copytree(cluster.plan.certificates, pki)
    rig.sign(pki, "viewer", "/CN=viewer")
    put(pki / "ca.crt", work / "ca.crt")
    for end in ("crt", "key"):
        put(pki / f"viewer.{end}", work / f"client.{end}")
    path = write(work / "kubeconfig", users=[{"name": "one", "user": {"client-certificate": str(work / "client.crt"), "client-key": str(work / "client.key")}}],
                 clusters=[{"name": "one", "cluster": {"server": cluster.plan.url, "certificate-authority": str(work / "ca.crt")}}])
    daemon = make_daemon(backend="kubernetes", settings={"pool": {"size": 0}, "kubernetes": {"kubeconfig": path, "namespace": "certificates"}})

    def refusal():
        return daemon.api("POST", f"/sessions/{daemon.session()}/executions", {"command": "true"}, timeout=60).json["error"]
    refused = refusal()
    assert refused["code"] == "kubernetes_forbidden" and "viewer" in refused["message"], refused
    put(pki / "admin.crt", work / "client.crt")
    assert refusal()["code"] == "kubernetes_forbidden"
    put(pki / "admin.key", work / "client.key")
    session = daemon.session()
    assert run(daemon, session, "echo with rights") == "with rights\n"
    daemon.api("DELETE", f"/sessions/{session}")
    wait_for(lambda: not cluster.api.request("GET", "/api/v1/namespaces/certificates/pods").json["items"], "the pod is gone", 90)
    kubectl("delete", "namespace", "certificates", "--wait=false")
