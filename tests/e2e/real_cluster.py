# SPDX-License-Identifier: Apache-2.0
"""The backend kubernetes in the end-to-end tests: the cluster that SANDGLASS_TEST_CLUSTER names by its directory, with a namespace for each test process."""
import contextlib
import functools
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine.private import daemon_ids  # noqa: E402
from kubernetes import api, cluster  # noqa: E402

BACKEND = "kubernetes"
IMAGE = "sandglass-test:1"
DIRECTORY = os.environ.get("SANDGLASS_TEST_CLUSTER", "")
NAMESPACE = f"e2e-{os.getpid()}"
held = []  # the API, once a test has needed it, and the directory of the daemons' kubeconfig


def why_not():
    return None if DIRECTORY else "no cluster runs: scripts/test --kubernetes starts one"


@functools.cache
def the_cluster():
    return cluster.Cluster(DIRECTORY)


def the_api():
    """Makes the namespace at first use."""
    if not held:
        client = the_cluster().api
        the_cluster().make_namespace(NAMESPACE, **{"pod-security.kubernetes.io/enforce": "restricted"})
        place = pathlib.Path(tempfile.mkdtemp(prefix="sgk-"))
        place.chmod(0o711)
        shutil.copy(the_cluster().kubeconfig, place / "kubeconfig")
        os.chown(place / "kubeconfig", *daemon_ids())
        held.extend([client, place])
    return held[0]


def release():
    if held:
        client, place = held
        held.clear()
        with contextlib.suppress(OSError):
            client.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        shutil.rmtree(place)


def settings_for(backend, settings):
    """The settings with the cluster and an image in them, unless the test has its own."""
    if backend != BACKEND:
        return settings
    own = settings.get("kubernetes", {})
    if why_not() and "kubeconfig" not in own:
        pytest.skip(why_not())
    if "kubeconfig" not in own:
        the_api()
        own = {"kubeconfig": str(held[1] / "kubeconfig"), "namespace": NAMESPACE, **own}
    if own.get("kind") == "claim":  # a template of the cluster says the rest
        return settings
    # There is no registry to pull from; and a processor for each sandbox is more than this host has.
    return {**settings, "kubernetes": {"image": IMAGE, "pull": "never", "cpu_request": 0.01, **own}}


def pods(instance):
    """Of the daemons of that instance, or with a name below it."""
    found = held[0].pods(NAMESPACE, "sandglass.io/sandbox") if held else []
    return [pod for pod in found if f"{pod['metadata']['labels'].get('sandglass.io/instance', '')}-".startswith(f"{instance}-")]


def sandboxes_of(instance):
    return {pod["metadata"]["labels"]["sandglass.io/sandbox"] for pod in pods(instance)}


def init_of(pod):
    """The process number of what runs first in a pod: the node is this host, which knows more than the daemon."""
    found = held[0].request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}").json if held else {}
    uid = found.get("metadata", {}).get("uid")
    for pid in filter(str.isdigit, os.listdir("/proc")) if uid else []:
        with contextlib.suppress(OSError):
            entry = pathlib.Path("/proc") / pid
            if uid in (entry / "cgroup").read_text() and (entry / "comm").read_text().strip() == "sandglass-init" and (entry / "status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1] == "1":
                return int(pid)
    return None


def add_pid(document):
    """To the answer about a session: tests kill that process behind the daemon's back."""
    sandbox = document.get("sandbox") if isinstance(document, dict) else None
    if isinstance(sandbox, dict) and sandbox.get("pid") is None and sandbox.get("pod"):
        sandbox["pid"] = init_of(sandbox["pod"])
    return document


def leftovers(instance):
    try:
        return {"pods": [pod["metadata"]["name"] for pod in pods(instance)]}
    except (OSError, api.ApiError) as problem:
        return {"pods": f"the API server does not answer: {problem!r}"}


def remove_pods(instance):
    """So that what one test has left does not fail those behind it."""
    for pod in pods(instance):
        with contextlib.suppress(OSError):
            held[0].request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 1})
