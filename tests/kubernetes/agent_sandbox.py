# SPDX-License-Identifier: Apache-2.0
"""Warm pools of agent-sandbox: its own controller beside a real cluster, and one that is played for the API server of api_server.py.

    with Real(cluster, namespace) as pools: pools.apply(template, pool)
    pools = Played(server); pools.apply(template, pool)
"""
import copy
import fcntl
import json
import os
import pathlib
import subprocess
import threading
import uuid

import yaml

from kubernetes import programs

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "agent-sandbox"
RESOURCES = {"SandboxTemplate": "sandboxtemplates", "SandboxWarmPool": "sandboxwarmpools"}


def documents(image, init_image, init_program=None, pull="Never", replicas=1):
    """The SandboxTemplate and the SandboxWarmPool of deploy/, with images that the test has."""
    template, pool = (yaml.safe_load((DEPLOY / name).read_text()) for name in ("template.yaml", "pool.yaml"))
    spec = template["spec"]["podTemplate"]["spec"]
    (first,), (main,) = spec["initContainers"], spec["containers"]
    first["image"], main["image"] = init_image, image
    first["imagePullPolicy"] = main["imagePullPolicy"] = pull
    if init_program:
        first["command"][0] = str(init_program)
    main["resources"] = {"limits": {"memory": "256Mi", "cpu": "500m", "ephemeral-storage": "128Mi"}, "requests": {"memory": "64Mi", "cpu": "10m"}}
    first["resources"] = {"limits": {"memory": "64Mi", "cpu": "100m"}, "requests": {"memory": "16Mi", "cpu": "10m"}}
    pool["spec"]["replicas"] = replicas
    return template, pool


class Real:
    """The controller of agent-sandbox as a process of this host, and its resources in the cluster, without the webhook that converts old versions. One at a time: a second
    controller would work on the same objects."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace, self.process, self.lock = cluster, namespace, None, None

    def __enter__(self):
        self.lock = open(self.cluster.directory / "agent-sandbox.lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            self.start()
        except BaseException:
            self.lock.close()
            raise
        return self

    def start(self):
        program, descriptions = programs.agent_sandbox(lambda text: None)
        for path in sorted(descriptions.glob("*.yaml")):
            item = yaml.safe_load(path.read_text())
            item["spec"].pop("conversion", None)
            item["spec"]["versions"] = [row for row in item["spec"]["versions"] if row["name"] == "v1beta1"]
            self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(item))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/sandboxclaims.extensions.agents.x-k8s.io", "crd/sandboxes.agents.x-k8s.io")
        with open(self.cluster.directory / "logs" / "agent-sandbox.log", "a") as log:
            self.process = subprocess.Popen([program, "--extensions", "--enable-webhook=false", "--manage-webhook-certs=false", "--leader-elect=false",
                                             "--metrics-bind-address=0", "--health-probe-bind-address=0", f"--kubeconfig={self.cluster.kubeconfig}"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __exit__(self, *_):
        try:
            for kind in ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates"):
                self.kubectl("delete", "--namespace", self.namespace, kind, "--all", "--wait=true", "--timeout=90s")
        finally:
            self.process.terminate()
            self.process.wait(30)
            self.lock.close()

    def kubectl(self, *arguments, **options):
        return subprocess.run(["kubectl", *arguments], env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}, check=True, capture_output=True, text=True, **options)

    def apply(self, *items):
        for item in items:
            self.kubectl("apply", "--namespace", self.namespace, "-f", "-", input=json.dumps(item))

    def list(self, resource):
        group = "agents.x-k8s.io/v1beta1" if resource == "sandboxes" else EXTENSIONS
        path = f"/api/v1/namespaces/{self.namespace}/pods" if resource == "pods" else f"/apis/{group}/namespaces/{self.namespace}/{resource}"
        return self.cluster.api.request("GET", path).json["items"]

    def delete_pod(self, name):
        self.cluster.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}", {"gracePeriodSeconds": 1})


class Played:
    """What the controller does to pods and claims, without the Sandbox objects between them: a pod has the name of its Sandbox."""

    def __init__(self, server, namespace="default"):
        self.server, self.store, self.namespace = server, server.store, namespace
        self.is_closing = False
        server.groups[EXTENSIONS] = ("sandboxclaims", *RESOURCES.values())
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self.is_closing = True
        self.thread.join(10)

    def apply(self, *items):
        for item in items:
            self.store.create(RESOURCES[item["kind"]], self.namespace, item, EXTENSIONS)

    def list(self, resource):
        return self.store.list(resource, self.namespace, "")[0]

    def delete_pod(self, name):
        self.server.delete_pod(self.namespace, name, {"gracePeriodSeconds": 0})

    def run(self):
        seen = 0
        while not self.is_closing:
            with self.store.changed:
                if self.store.version == seen:
                    self.store.changed.wait(0.2)
                seen = self.store.version
            for claim in self.list("sandboxclaims"):
                self.reconcile(claim)
            for pool in self.list("sandboxwarmpools"):
                self.fill(pool)

    def fill(self, pool):
        name = pool["metadata"]["name"]
        waiting = [pod for pod in self.list("pods") if pod["metadata"]["labels"].get("agents.x-k8s.io/warm-pool-sandbox") == name]
        for _ in range(pool["spec"]["replicas"] - len(waiting)):
            self.make(pool, f"{name}-{uuid.uuid4().hex[:5]}", {"agents.x-k8s.io/warm-pool-sandbox": name})

    def make(self, pool, name, labels, annotations=None):
        template = self.store.get("sandboxtemplates", self.namespace, pool["spec"]["sandboxTemplateRef"]["name"])
        self.server.create_pod(self.namespace, {"metadata": {"name": name, "labels": dict(labels), "annotations": annotations or {}},
                                                "spec": copy.deepcopy(template["spec"]["podTemplate"]["spec"])})

    def reconcile(self, claim):
        name, pods = claim["metadata"]["name"], {pod["metadata"]["name"]: pod for pod in self.list("pods")}
        bound = claim.get("status", {}).get("sandbox", {}).get("name")
        if "deletionTimestamp" in claim["metadata"]:
            if bound in pods and "deletionTimestamp" not in pods[bound]["metadata"]:
                self.server.delete_pod(self.namespace, bound, {})
            elif bound not in pods:
                self.store.remove("sandboxclaims", self.namespace, name)
            return
        pools = {pool["metadata"]["name"]: pool for pool in self.list("sandboxwarmpools")}
        wanted = claim["spec"]["warmPoolRef"]["name"]
        if wanted not in pools:
            self.say(name, None, "False", "WarmPoolNotFound", f"SandboxWarmPool \"{wanted}\" not found")
        elif bound and bound not in pods:
            self.make(pools[wanted], bound, claim["spec"]["additionalPodMetadata"]["labels"])
        elif not bound:
            self.bind(claim, wanted, pods.values())

    def bind(self, claim, pool, pods):
        ready = [pod for pod in pods if pod["metadata"]["labels"].get("agents.x-k8s.io/warm-pool-sandbox") == pool and pod["status"].get("phase") == "Running"]
        if not ready:
            return
        name = ready[0]["metadata"]["name"]

        def take(pod):
            del pod["metadata"]["labels"]["agents.x-k8s.io/warm-pool-sandbox"]
            pod["metadata"]["labels"].update(claim["spec"]["additionalPodMetadata"]["labels"])
        self.store.change("pods", self.namespace, name, take)
        self.say(claim["metadata"]["name"], name, "True", "DependenciesReady", "")

    def say(self, claim, sandbox, status, reason, message):
        def change(item):
            item["status"] = {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]} | ({"sandbox": {"name": sandbox}} if sandbox else {})
        self.store.change("sandboxclaims", self.namespace, claim, change)


