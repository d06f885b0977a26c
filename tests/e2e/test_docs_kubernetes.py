# SPDX-License-Identifier: Apache-2.0
"""What docs/how-to/kubernetes-backend.md says, in a real cluster: its commands, its settings, and no more rights than its Role has."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from conftest import ROOT, SANDGLASS, wait_for

CLUSTER = os.environ.get("SANDGLASS_TEST_CLUSTER", "")
PAGE = ROOT / "docs" / "how-to" / "kubernetes-backend.md"

pytestmark = pytest.mark.skipif(not CLUSTER, reason="no cluster runs: scripts/test --kubernetes starts one")
ADMIN = pathlib.Path(CLUSTER) / "admin.conf"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def run(command, **options):
    return subprocess.run(command, shell=isinstance(command, str), env={**os.environ, "KUBECONFIG": str(ADMIN)}, check=True, capture_output=True, text=True, **options)


@pytest.fixture
def commands():
    """The page's own: those that make the namespace have run, those that remove all are left."""
    first, last = blocks("sh")
    run(first)
    yield last
    run("kubectl delete namespace boxes --wait=true", timeout=120)


def account(work):
    """A kubeconfig of a service account that has the Role of the page and nothing else."""
    role = next(block for block in blocks("yaml") if "kind: Role" in block)
    run("kubectl apply -f -", input=role)
    run("kubectl -n boxes create serviceaccount sandglass && kubectl -n boxes create rolebinding sandglass --role=sandglass --serviceaccount=boxes:sandglass")
    admin = json.loads(run("kubectl config view --raw -o json").stdout)
    admin["users"] = [{"name": "account", "user": {"token": run("kubectl -n boxes create token sandglass").stdout.strip()}}]
    admin["contexts"] = [{"name": "account", "context": {"cluster": admin["clusters"][0]["name"], "user": "account"}}]
    path = work / "kubeconfig"
    path.write_text(json.dumps({**admin, "current-context": "account"}))
    path.chmod(0o644)
    return path


def test_the_page_is_true(commands, make_daemon, work):
    kubeconfig = str(account(work))
    example = work / "example.yaml"
    example.write_text(next(block for block in blocks("yaml") if "kubeconfig:" in block).replace("/etc/sandglass/kubeconfig", kubeconfig))
    run([SANDGLASS, "config", "check", str(example)])
    settings = {"kubeconfig": kubeconfig, "namespace": "boxes", "image": "sandglass-test:1", "pull": "never", "cpu_request": 0.01}
    daemon = make_daemon(backend="kubernetes", settings={"instance": "demo", "pool": {"size": 0}, "kubernetes": settings})
    session = daemon.session()
    assert daemon.execute(session, ["id", "-u"])["stdout"] == "1000\n"
    path = f"/sessions/{session}/executions/" + daemon.execute(session, ["sleep", "300"], background=True)["id"]
    wait_for(lambda: daemon.api("GET", path).json["state"] == "running", "it runs")
    run(commands)
    ended = wait_for(lambda: (record := daemon.api("GET", path).json)["state"] != "running" and record, "the pod is gone with its owner", 60)
    assert ended["reason"] == "crashed: deleted", ended
    daemon.api("DELETE", f"/sessions/{session}")
