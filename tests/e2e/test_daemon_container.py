# SPDX-License-Identifier: Apache-2.0
"""The daemon in a container, as packaging/docker has it: with the engine's socket, and with native sandboxes inside."""
import json
import os
import re
import subprocess

import pytest

import daemon_image
import real_engine
from conftest import SANDGLASS, wait_for

IMAGE = "sandglass:latest"
PATIENTLY = ["-t", "60"]  # a daemon that is killed leaves what it has made
OWN = ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]


@pytest.fixture(scope="module")
def daemon_engine(tmp_path_factory):
    """The engine of this test session, with the image of the daemon."""
    if daemon_image.missing():
        pytest.skip(daemon_image.missing())
    engine = real_engine.the_engine()
    daemon_image.make_base(engine)
    context = daemon_image.make_context(tmp_path_factory.mktemp("context"))
    build = ["docker", "build", "-f", "packaging/docker/Dockerfile", "--build-arg", f"BASE={daemon_image.BASE}", "--build-arg", "PACKAGES=", "-t",
             "sandglass", "."]
    subprocess.run(build, cwd=context, env=daemon_image.environment(engine), check=True, capture_output=True, text=True, timeout=300)
    engine.context = context
    return engine


class Compose:
    """One service of compose.yaml, in a project of its own."""

    def __init__(self, engine, service, **environment):
        self.engine, self.service = engine, service
        self.project = f"sgt{os.getpid()}{service}"
        socket = os.stat(engine.socket)
        self.environment = daemon_image.environment(engine, DOCKER_SOCKET=str(engine.socket), DOCKER_GID=str(socket.st_gid),
                                                    SANDGLASS_IMAGE="sandglass-test:1", SANDGLASS_INSTANCE=self.project, **environment)

    def __call__(self, *arguments, check=True):
        command = ["docker-compose", "-f", "packaging/docker/compose.yaml", "-p", self.project, "--profile", self.service, *arguments]
        result = subprocess.run(command, cwd=self.engine.context, env=self.environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0 or not check, (command, result.stdout, result.stderr, self.logs())
        return result

    def logs(self):
        return subprocess.run(["docker", "logs", f"{self.project}_{self.service}_1"], env=self.environment, capture_output=True, text=True).stderr

    def up(self, *options):
        self("up", "-d", "--no-build", *PATIENTLY, *options)
        wait_for(lambda: self("exec", "-T", self.service, "sandglass", "ls", check=False).returncode == 0, "the daemon serves", 60)

    def cli(self, *arguments):
        return self("exec", "-T", self.service, "sandglass", *arguments).stdout

    def session(self, key):
        return json.loads(self.cli("inspect", f"key:{key}"))

    def containers(self):
        return self.engine.api.containers(sandglass_instance=self.project)


@pytest.fixture
def compose(daemon_engine):
    started = []

    def start(service, **environment):
        started.append(Compose(daemon_engine, service, **environment))
        started[-1].up()
        return started[-1]

    yield start
    for one in started:
        one("exec", "-T", one.service, "sandglass", "rm", "--all", check=False)
        one("down", "-v", *PATIENTLY, check=False)
        left = one.containers()
        for container in left:
            daemon_engine.api.remove(container["Id"])
        assert left == []


def test_the_dockerfile_installs_what_the_program_is_linked_with():
    linked = {name for name in daemon_image.libraries() if not name.startswith("libc6")}
    assert linked and linked <= set(daemon_image.packages())


def test_the_image_runs_programs_without_any_option(daemon_engine):
    run = subprocess.run(["docker", "run", "--rm", "--network", "none", IMAGE, "run", "--backend", "direct", "--", "id", "-un"],
                         env=daemon_image.environment(daemon_engine), capture_output=True, text=True, timeout=60)
    assert run.stdout == "sandglass\n", run


def test_native_sandboxes_without_root_in_the_container(daemon_engine):
    options = [part for option in OWN for part in ("--security-opt", option)]
    run = subprocess.run(["docker", "run", "--rm", "--network", "none", *options, IMAGE, "run", "--backend", "native", "--", "sh", "-c",
                          "id -un; hostname; ls /proc | grep -c '^1$'"],
                         env=daemon_image.environment(daemon_engine), capture_output=True, text=True, timeout=60)
    assert run.stdout == "user\nsandbox\n1\n", run


def test_with_the_socket_of_the_engine(compose):
    """Sandboxes are containers beside that of the daemon, which outlive it: the engine does not see the daemon's files."""
    daemon = compose("engine")
    daemon.cli("session", "create", "--key", "a")
    assert daemon.cli("exec", "key:a", "--", "sh", "-c", "id -un; hostname; echo kept >file") == "user\nsandbox\n"
    session = daemon.session("a")
    report = session["sandbox"]["isolation"]
    assert (report["backend"], report["container"]["reached_by"], report["container"]["image"]) == ("docker", "relay", "sandglass-test:1")
    assert (report["network"], report["limits"]["memory_bytes"], report["limits"]["cgroup"]) == ("none", session["limits"]["memory_bytes"], "declared")
    assert session["sandbox"]["container"] in [container["Id"] for container in daemon.containers()]
    assert "init is uploaded, and reached through the engine" in daemon.logs()

    before = daemon.engine.api.inspect(f"{daemon.project}_engine_1")
    daemon.up("--force-recreate")
    assert daemon.engine.api.inspect(f"{daemon.project}_engine_1")["Id"] != before["Id"]
    assert daemon.cli("exec", "key:a", "--", "cat", "file") == "kept\n"
    assert daemon.session("a")["generation"] == 1

    user = before["Config"]["User"], before["HostConfig"]["CapDrop"], before["HostConfig"]["ReadonlyRootfs"]
    assert user == ("sandglass", ["ALL"], True)
    daemon.cli("rm", "--all")
    daemon("stop", *PATIENTLY)
    assert daemon.containers() == [], "its pool ends with it"


def test_with_native_sandboxes_inside(compose):
    daemon = compose("native")
    daemon.cli("session", "create", "--key", "a")
    assert daemon.cli("exec", "key:a", "--", "python3", "-c", "print(6 * 7)") == "42\n"
    report = daemon.session("a")["sandbox"]["isolation"]
    assert (report["backend"], report["seccomp"], report["no_new_privs"], report["network"]) == ("native", "filter", True, "none")
    assert {"user", "pid", "mnt", "net", "ipc", "uts"} <= set(report["namespaces"])
    assert report["uids"]["count"] == 65536 and report["limits"]["disk_bytes"] > 0
    assert {"memory", "cpu"} <= set(report["missing"]), "cgroups are not writable in a container"
    users = dict(re.findall(r"^(\S+)\s+(sandglass\S*)$", daemon("exec", "-T", "native", "ps", "axo", "user:16,comm").stdout, re.M)[::-1])
    assert users["sandglass"] == "sandglass", "the daemon is not root"
    daemon("stop", *PATIENTLY)
    assert daemon.engine.api.inspect(f"{daemon.project}_native_1")["State"]["ExitCode"] == 0
    assert daemon.containers() == []


def test_the_program_of_the_image_is_the_one_that_was_built(daemon_engine):
    run = subprocess.run(["docker", "run", "--rm", "--network", "none", IMAGE, "version"], env=daemon_image.environment(daemon_engine),
                         capture_output=True, text=True, timeout=60)
    assert run.stdout == subprocess.run([SANDGLASS, "version"], capture_output=True, text=True, check=True).stdout
