# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/ in a real, empty cluster: applied as the page says, used through their Service, replaced under load."""
import contextlib
import http.client
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading
import time
import uuid

import pytest

from kubernetes import api, cluster, programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SANDGLASS = pathlib.Path(os.environ.get("SANDGLASS_BUILD", ROOT / "build-gcc")) / "sandglass"
REAL = os.environ.get("SANDGLASS_TEST_CLUSTER")
OVERLAYS = ROOT / "deploy/kustomize/overlays"
CHART = ROOT / "deploy/helm/sandglass"

HAS_BACKEND = REAL and "kubernetes.image" in subprocess.run([SANDGLASS, "config", "show"], capture_output=True, text=True).stdout
SHAPES = ["native-root", "native", *(["pods"] if HAS_BACKEND else [])]
COMMANDS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/kubernetes.md").read_text(), re.M | re.S)  # secrets, apply, use

pytestmark = pytest.mark.skipif(not REAL, reason="another backend: no cluster runs")  # counted as not chosen


def kubectl(*arguments, check=True, **options):
    result = subprocess.run(["kubectl", "--kubeconfig", str(cluster.Cluster(REAL).kubeconfig), *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0 or not check, (arguments, result.stdout, result.stderr)
    return result


class Deployed:
    """A namespace with the Secrets of the page, and what was applied to it."""

    def __init__(self, place):
        self.api, self.place = cluster.Cluster(REAL).api, place
        (place / "sandglass").symlink_to(SANDGLASS)
        self.type(COMMANDS[0])
        self.key = (place / "operator.key").read_text().strip()

    def type(self, commands, **environment):
        """Commands of the page, as an operator would."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SANDGLASS_")}
        result = subprocess.run(["bash", "-euc", commands], cwd=self.place, capture_output=True, text=True, timeout=300, env={
            **variables, "PATH": f"{self.place}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.Cluster(REAL).kubeconfig), "CLONE": str(ROOT), **environment})
        assert result.returncode == 0, (result, self.describe())
        return result.stdout

    def apply(self, overlay):
        self.shape = overlay
        self.type(COMMANDS[1], OVERLAY=overlay)
        self.wait()

    def wait(self):
        result = kubectl("-n", "sandglass", "rollout", "status", "deployment/sandglass", "--timeout=120s", check=False)
        assert result.returncode == 0, (result, self.describe())

    def describe(self):
        return "\n".join(kubectl("-n", "sandglass", *words, check=False).stdout for words in (
            ("get", "pods,events"), ("logs", "-l", "app.kubernetes.io/name=sandglass", "--tail=30", "--prefix"), ("describe", "pods")))

    def address_of(self, service):
        return self.api.call("GET", f"/api/v1/namespaces/sandglass/services/{service}")["spec"]["clusterIP"], 7420

    @property
    def address(self):
        return self.address_of("sandglass")

    def request(self, method, path, body=None, timeout=60, **headers):
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}"), answer.headers
        finally:
            connection.close()

    def cli(self, *arguments, service="sandglass"):
        host, port = self.address_of(service)
        return subprocess.run([SANDGLASS, *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "SANDGLASS_URL": f"http://{host}:{port}", "SANDGLASS_API_KEY": self.key})

    def pods(self):
        found = self.api.pods("sandglass", "app.kubernetes.io/name=sandglass")
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pid_of(self, replica):
        """Of the daemon in that pod, as this host counts: the node is this host."""
        uid = self.api.pod(replica, "sandglass")["metadata"]["uid"]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                entry = pathlib.Path("/proc") / pid
                if uid in (entry / "cgroup").read_text() and (entry / "cmdline").read_bytes().split(b"\0")[1:2] == [b"serve"]:
                    return int(pid)
        return None

    def sandboxes(self):
        """Names of pods of sessions that nobody has deleted, by session; pods of the pool have none."""
        found = {}
        for pod in self.api.pods("sandglass-sandboxes", "sandglass.io/sandbox"):
            session = pod["metadata"].get("annotations", {}).get("sandglass.io/session")
            if session and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in ("Pending", "Running"):
                found.setdefault(session, []).append(pod["metadata"]["name"])
        return found

    def remove(self):
        kubectl("delete", "namespace", "sandglass", "sandglass-sandboxes", "--ignore-not-found", "--wait=true")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    made = Deployed(tmp_path_factory.mktemp("secrets"))
    yield made
    made.remove()


@pytest.fixture(scope="module", params=SHAPES)
def running(deployed, request):
    deployed.apply(request.param)
    return deployed


def test_two_replicas_are_one_cluster(running):
    assert len(running.pods()) == 2
    api.wait_for(lambda: len([node for node in running.request("GET", "/api/v1/nodes")[1]["nodes"] if node["state"] == "up"]) == 2, "both are nodes", 30)
    key = f"demo-{uuid.uuid4().hex[:8]}"
    session = running.cli("session", "create", "--key", key)
    assert session.returncode == 0, session
    assert running.cli("exec", f"key:{key}", "--", "sh", "-c", "echo hello >greeting").returncode == 0
    for _ in range(8):  # whichever replica answers
        assert running.cli("exec", f"key:{key}", "--", "cat", "greeting").stdout == "hello\n"
    assert running.cli("rm", f"key:{key}").returncode == 0


def test_the_commands_of_the_page(running):
    host, port = running.address
    assert running.type(COMMANDS[2], SANDGLASS_URL=f"http://{host}:{port}").endswith("42\n")
    assert len(COMMANDS) == 3


TOUR = next(block for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S) if "--key tour" in block)


def type_in_terminal(command, text, **environment):
    """What a person does who sees a prompt; the exit code."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe("bash", ["bash", "-c", command], {**os.environ, "TERM": "xterm", **environment})
    os.write(terminal, text)
    with contextlib.suppress(OSError):  # the end of a terminal
        while os.read(terminal, 65536):
            pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_tour_of_the_readme(running, tmp_path):
    """Each line as it is printed, with SANDGLASS_URL at the Service."""
    host, port = running.address
    environment = {"SANDGLASS_URL": f"http://{host}:{port}", "SANDGLASS_API_KEY": running.key, "PATH": f"{running.place}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    lines = [line.split(" #")[0].strip() for line in TOUR.splitlines()]
    assert len(lines) == 9
    for line in lines:
        if " -it " in line:
            assert type_in_terminal(line, b"exit\n", **environment) == 0, line
            continue
        result = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
        assert result.returncode == 0, (line, result, running.describe()[-3000:])
        assert "--code" not in line or result.stdout.strip() == "hi", result
    assert (tmp_path / "a.txt").read_text() == "hi\n"


def test_nobody_without_a_key(running):
    status, body, _ = running.request("GET", "/api/v1/sessions", Authorization="Bearer wrong")
    assert status == 401, body
    assert running.request("GET", "/readyz", Authorization="")[0] == 200


class Load:
    """Callers who do what a client should: repeat what may be repeated, with a key, until it is done. Everything else that fails is a finding."""

    def __init__(self, deployed, callers=4):
        self.deployed = deployed
        self.done, self.repeated, self.findings = 0, 0, []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.call, args=(number,)) for number in range(callers)]
        for thread in self.threads:
            thread.start()

    def ask(self, method, path, body=None, key=None):
        """The answer, after repetitions; None when the session was lost with its home, which a caller is told."""
        headers = {"Idempotency-Key": key} if key else {}
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                status, answer, _ = self.deployed.request(method, path, body, **headers)
                if status < 300:
                    return answer
                error = answer.get("error", answer)
                if not error.get("retryable"):
                    self.findings.append((method, path, status, answer))
                    return None
            except (OSError, http.client.HTTPException) as problem:
                if method == "POST" and not key:
                    self.findings.append((method, path, repr(problem)))
                    return None
            self.repeated += 1
            time.sleep(0.2)
        self.findings.append((method, path, "not within 90 s"))
        return None

    def call(self, number):
        round_number = 0
        while not self.is_over.is_set():
            round_number += 1
            name = f"load-{number}-{round_number}-{uuid.uuid4().hex[:6]}"
            session = self.ask("POST", "/api/v1/sessions", {"key": name}, key=name)
            if not session:
                return
            path = f"/api/v1/sessions/{session['id']}"
            for step in range(3):
                key = f"{name}-{step}"
                result = self.ask("POST", f"{path}/executions", {"command": f"echo {key}", "key": key}, key=key)
                if not result:
                    return
                # Lost with its home: the caller is told so, and by how much.
                if result["state"] == "exited" and result["stdout"] != f"{key}\n":
                    self.findings.append((path, result))
                self.done += 1
            self.ask("DELETE", path)

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(120)


def test_a_rolling_update_under_load_fails_nothing_that_could_not_be_repeated(running):
    before = running.pods()
    load = Load(running)
    api.wait_for(lambda: load.done > 20 or load.findings, "the load has begun", 60)
    kubectl("-n", "sandglass", "rollout", "restart", "deployment/sandglass")
    running.wait()
    api.wait_for(lambda: not set(before) & set(running.pods()), "the old replicas are gone", 120)
    reached = load.done
    api.wait_for(lambda: load.done > reached + 20 or load.findings, "the load goes on", 60)
    load.end()
    print(f"{load.done} programs, {load.repeated} repetitions")
    assert not load.findings, (load.findings[:5], running.describe()[-6000:])


def settle(running, load):
    """Nothing was lost that could not be repeated, no session has two pods, and none is left without a session."""
    load.end()
    assert not load.findings, (load.findings[:5], running.describe()[-6000:])
    def is_clean():
        """Of sessions that the callers have deleted nothing is left."""
        open_sessions = {row["id"] for row in running.request("GET", "/api/v1/sessions")[1].get("sessions", [])}
        return not set(running.sandboxes()) - open_sessions and all(len(names) == 1 for names in running.sandboxes().values())
    api.wait_for(is_clean, f"no double pod and no orphan: {running.sandboxes()}", 120)


def test_a_replica_that_is_killed_under_load_leaves_no_double_pod_and_no_orphan(running):
    if running.shape != "pods":
        pytest.skip("another backend: sandboxes of this shape end with their replica")
    load = Load(running)
    api.wait_for(lambda: load.done > 10 or load.findings, "the load has begun", 120)
    os.kill(running.pid_of(running.pods()[0]), signal.SIGKILL)
    reached = load.done
    api.wait_for(lambda: load.done > reached + 20 or load.findings, "the load goes on", 120)
    settle(running, load)


def states_of_nodes(running):
    """A replica that begins anew closes its port for a moment; a client asks again then."""
    with contextlib.suppress(OSError):
        return {row["id"]: row["state"] for row in running.request("GET", "/api/v1/nodes")[1].get("nodes", [])}
    return {}


def test_a_replica_that_loses_redis_makes_no_pod_twice(running):
    """Packets to Redis are dropped in the network of one replica, until the other one has its sessions."""
    if running.shape != "pods":
        pytest.skip("another backend: sandboxes of this shape end with their replica")
    load = Load(running)
    api.wait_for(lambda: load.done > 10 or load.findings, "the load has begun", 120)
    replica = running.pods()[0]
    route = ["nsenter", "-t", str(running.pid_of(replica)), "-n", "ip", "route"]
    redis = f"{running.address_of('sandglass-redis')[0]}/32"
    subprocess.run([*route, "add", "blackhole", redis], check=True)
    try:
        api.wait_for(lambda: states_of_nodes(running).get(replica, "up") != "up", "the other one gives it up", 90)
        reached = load.done
        api.wait_for(lambda: load.done > reached + 10 or load.findings, "the load goes on", 120)
    finally:
        subprocess.run(["nsenter", "-t", str(running.pid_of(replica)), "-n", "ip", "route", "del", "blackhole", redis], check=True)
    try:
        api.wait_for(lambda: all(states_of_nodes(running).get(pod) == "up" for pod in running.pods()), "both are nodes", 90)
    except TimeoutError:
        pytest.fail(f"not both are nodes: {states_of_nodes(running)}, {running.pods()}, {running.describe()[-6000:]}")
    settle(running, load)


def render(shape, *options):
    return subprocess.run([programs.helm(), "template", "chart", CHART, "--kube-version", programs.VERSION, "-n", "sandglass", "--set", f"shape={shape}", *options],
                          capture_output=True, text=True)


@pytest.mark.parametrize("shape", ["pods", "native", "native-root"])
def test_the_chart_says_the_same_as_the_overlay(shape):
    """Which objects, and the whole pod of the daemon but for names."""
    chart = parse(render(shape, "--set", "redis.enabled=true").stdout)
    overlay = parse(kubectl("kustomize", OVERLAYS / shape).stdout)
    assert sorted(item["kind"] for item in chart) == sorted(item["kind"] for item in overlay)
    pods = [next(item for item in items if item["kind"] == "Deployment")["spec"]["template"]["spec"] for items in (chart, overlay)]
    for pod in pods:
        container = pod["containers"][0]
        del pod["serviceAccountName"], pod["topologySpreadConstraints"], container["envFrom"], container["resources"]
        container["env"] = [row for row in container["env"] if row["name"] != "SANDGLASS_STORE_REDIS_URL"]
    assert without_nothing(pods[0]) == without_nothing(pods[1])
    settings = [next(item for item in items if item["kind"] == "ConfigMap")["data"] for items in (chart, overlay)]
    assert settings[0] == settings[1]
    roles = [[item["rules"] for item in items if item["kind"] == "Role"] for items in (chart, overlay)]
    assert roles[0] == roles[1]


def without_nothing(value):
    """runAsNonRoot: false is what is not said."""
    if isinstance(value, dict):
        return {key: without_nothing(item) for key, item in value.items() if item is not False}
    return [without_nothing(item) for item in value] if isinstance(value, list) else value


def parse(text):
    """By kubectl, which needs no library."""
    out = kubectl("create", "--dry-run=client", "-o", "json", "--validate=false", "-f", "-", input=text).stdout
    decoder, items, at = json.JSONDecoder(), [], 0
    while at < len(out.rstrip()):
        item, at = decoder.raw_decode(out, at)
        items += item["items"] if item["kind"] == "List" else [item]
        at += len(out[at:]) - len(out[at:].lstrip())
    return items


def test_the_chart_refuses_what_it_does_not_know():
    result = render("boxes")
    assert result.returncode != 0 and 'shape must be pods, native or native-root, not "boxes"' in result.stderr


def test_the_chart_runs(deployed):
    kubectl("apply", "-f", "-", input=render("native", "--set", "redis.enabled=true", "--set", "replicas=1").stdout)
    kubectl("-n", "sandglass", "rollout", "status", "deployment/chart", "--timeout=120s")
    assert deployed.cli("run", "--", "echo", "hello", service="chart").stdout == "hello\n"


def test_the_pod_is_the_wall(deployed):
    """overlays/direct, in a namespace that admits nothing with any power."""
    kubectl("label", "namespace", "sandglass", "pod-security.kubernetes.io/enforce=restricted")
    kubectl("apply", "-k", OVERLAYS / "direct")
    kubectl("-n", "sandglass", "wait", "--for=condition=Ready", "pod/agent", "--timeout=60s")
    assert kubectl("-n", "sandglass", "exec", "agent", "--", "sandglass", "run", "--", "sh", "-c", "echo $((6 * 7))").stdout == "42\n"
    checks = json.loads(kubectl("-n", "sandglass", "exec", "agent", "--", "sandglass", "doctor", "--json").stdout)["checks"]
    found = {check["name"]: check for check in checks}
    assert (found["pod: direct"]["status"], found["pod: native"]["status"]) == ("ok", "warn"), found
    assert "procMount: Unmasked" in found["pod: native"]["remedy"]
