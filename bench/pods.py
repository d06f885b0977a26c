#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the backend kubernetes costs beside the cluster itself, in one run and in turn: a plain pod with the same containers until it runs, against a session until
its sandbox is ready; `kubectl exec` in a live pod, against an execution. Ratios below 1 are faster than the cluster's own.

    python3 tests/kubernetes/cluster.py up --dir /var/tmp/k8s
    SANDGLASS_BUILD=build SANDGLASS_TEST_CLUSTER=/var/tmp/k8s bench/pods.py [ROUNDS]
"""
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests")]
import real_cluster  # noqa: E402
from conftest import Daemon, wait_for  # noqa: E402

AIMS = {"create": 1.1, "exec": 0.2}


def timed(measured):
    before = time.monotonic()
    result = measured()
    return (time.monotonic() - before) * 1000, result


def template_of(api, name):
    """What the daemon has asked for, without what belongs to that one pod."""
    spec = api.pod(name, real_cluster.NAMESPACE)["spec"]
    for key in ("nodeName", "serviceAccount", "serviceAccountName", "priority", "preemptionPolicy", "tolerations"):
        spec.pop(key, None)
    return spec


def plain_create(api, spec, number):
    """Made, and watched until the kubelet says that it runs."""
    name = f"plain-{os.getpid()}-{number}"
    api.call("POST", f"/api/v1/namespaces/{real_cluster.NAMESPACE}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    connection = http.client.HTTPSConnection(api.address.hostname, api.address.port, context=api.context, timeout=120)
    with contextlib.closing(connection):
        connection.request("GET", f"/api/v1/namespaces/{real_cluster.NAMESPACE}/pods?watch=1&fieldSelector=metadata.name%3D{name}")
        for line in connection.getresponse():
            if json.loads(line)["object"].get("status", {}).get("phase") == "Running":
                return name
    raise RuntimeError(f"{name} does not run")


def our_create(daemon):
    session = daemon.api("POST", "/sessions", {"preload": True}, expect=201, timeout=120).json["id"]
    wait_for(lambda: json.loads(daemon.api("GET", f"/sessions/{session}", expect=200).body)["sandbox"]["state"] == "ready", "the sandbox is ready", 120)
    return session


def kubectl_exec(pod):
    subprocess.run(["kubectl", "--kubeconfig", str(real_cluster.the_cluster().kubeconfig), "-n", real_cluster.NAMESPACE, "exec", pod, "--", "/bin/true"], check=True,
                   capture_output=True, timeout=120)


def delete(api, pod):
    path = f"/api/v1/namespaces/{real_cluster.NAMESPACE}/pods/{pod}"
    api.call("DELETE", path, {"gracePeriodSeconds": 1})
    wait_for(lambda: api.request("GET", path).status == 404, f"{pod} is gone", 120)


def one_round(daemon, api, spec, number, rows):
    took, pod = timed(lambda: plain_create(api, spec, number))
    rows["plain pod until Running"].append(took)
    for _ in range(3):
        rows["kubectl exec"].append(timed(lambda: kubectl_exec(pod))[0])
    delete(api, pod)
    took, session = timed(lambda: our_create(daemon))
    rows["session until ready"].append(took)
    for _ in range(10):
        rows["execution"].append(timed(lambda: daemon.execute(session, ["/bin/true"]))[0])
    daemon.api("DELETE", f"/sessions/{session}", expect=200, timeout=120)


def measure(daemon, rounds):
    api = real_cluster.the_api()
    rows = {"plain pod until Running": [], "session until ready": [], "kubectl exec": [], "execution": []}
    session = our_create(daemon)
    spec = template_of(api, daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pod"])
    daemon.api("DELETE", f"/sessions/{session}", expect=200, timeout=120)
    for number in range(rounds):
        one_round(daemon, api, spec, number, rows)
    return {name: statistics.median(values) for name, values in rows.items()}


def show(medians):
    theirs, ours, their_exec, our_exec = medians.values()
    for name, value in medians.items():
        print(f"{name:32} {value:9.2f} ms")
    for name, ratio in (("create", ours / theirs), ("exec", our_exec / their_exec)):
        print(f"{name + ', beside the cluster':32} {ratio:9.3f}    aim {AIMS[name]}: {'met' if ratio <= AIMS[name] else 'missed'}")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    if real_cluster.why_not():
        sys.exit(real_cluster.why_not())
    try:
        with tempfile.TemporaryDirectory(prefix="sgt-bench-") as work:
            os.chmod(work, 0o755)
            daemon = Daemon(pathlib.Path(work), backend="kubernetes", settings={"pool": {"size": 0}, "session": {"preload": False}})
            daemon.start()
            try:
                show(measure(daemon, rounds))
            finally:
                daemon.stop(120)
    finally:
        real_cluster.release()


main()
