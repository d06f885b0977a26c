# SPDX-License-Identifier: Apache-2.0
"""The pages about Docker and gVisor: their commands run, their settings are accepted, and what they say about containers is so."""
import json
import os
import re
import shutil
import subprocess

import pytest

import daemon_image
import real_engine
from conftest import ROOT, SANDGLASS, wait_for
from engine import private

IMAGE = "python:3.12-slim"  # of the pages; here another name of the test image
CHANGE_THE_HOST = ("adduser", "apt-get", "systemctl")  # noted, not run

# `docker compose` is a program of its own in Debian 12, whose exec has to be told that there is no terminal.
COMPOSE = """#!/bin/bash
[ "$1" = compose ] || exec {docker} "$@"
shift
for word; do words+=("$word"); [ "$word" != exec ] || words+=(-T); done
exec docker-compose "${{words[@]}}"
"""


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "how-to" / page).read_text(), re.M | re.S)


@pytest.fixture
def image(engine):
    repository, tag = IMAGE.split(":")
    engine.api.request("POST", "/images/sandglass-test:1/tag", repo=repository, tag=tag)


def run_commands(page, engine, work, **environment):
    """All commands of a page in one shell, as an operator with the engine of this test session would type them."""
    if daemon_image.missing():
        pytest.skip(daemon_image.missing())
    programs = work / "programs"
    programs.mkdir()
    (programs / "sandglass").symlink_to(SANDGLASS)
    write_program(programs / "docker", COMPOSE.format(docker=shutil.which("docker")))
    for name in CHANGE_THE_HOST:
        write_program(programs / name, f'#!/bin/sh\necho {name} "$@" >>{work}/noted\n')
    script = "\n".join(["set -euo pipefail", *blocks(page, "sh")])
    environment = {**daemon_image.environment(engine), "PATH": f"{programs}:{os.environ['PATH']}", "SANDGLASS_CONFIG": "", "TMPDIR": str(work), **environment}
    environment.pop("SANDGLASS_URL", None)
    result = subprocess.run(["bash", "-c", script], cwd=work, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, (result.stdout, result.stderr)
    noted = (work / "noted").read_text().splitlines() if (work / "noted").exists() else []
    return result.stdout, noted


def test_the_commands_of_the_page_about_docker(engine, image, work):
    lost = engine.api.create("sandglass-test:1", ["sleep", "1000"], Labels={"sandglass": "1", "sandglass.host": "old-host"})
    output, noted = run_commands("docker.md", engine, work)
    assert output.startswith("42\n")
    assert lost not in [container["Id"] for container in engine.api.containers()]
    assert noted == ["adduser sandglass docker", "systemctl restart sandglass", "systemctl --user enable --now podman.socket"]


def test_the_commands_of_the_page_about_gvisor(engine, image, work):
    if real_engine.why_not("gvisor"):
        pytest.skip(real_engine.why_not("gvisor"))
    output, noted = run_commands("gvisor.md", engine, work)
    assert "runsc" in output.splitlines()[0].split() and "Starting gVisor" in output
    assert noted == ["apt-get install runsc", "systemctl restart docker"]


def test_the_commands_of_the_page_about_containers(engine, image, work):
    """As in a clone in which nothing was built yet: scripts/build leaves the program that is tested here."""
    daemon_image.make_base(engine)
    repository, tag = "debian", "12-slim"
    engine.api.request("POST", f"/images/{daemon_image.BASE}/tag", repo=repository, tag=tag)
    daemon_image.make_context(work)
    (work / "scripts").mkdir()
    write_program(work / "scripts" / "build", "#!/bin/sh\nexit 0\n")
    dockerfile = work / "packaging" / "docker" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(" ".join(daemon_image.packages()), ""))
    project = f"pages{os.getpid()}"
    try:
        output, _ = run_commands("containers.md", engine, work, DOCKER_SOCKET=str(engine.socket), COMPOSE_PROJECT_NAME=project,
                                 SANDGLASS_INSTANCE=project, SANDGLASS_IMAGE=IMAGE)
    finally:
        for container in engine.api.containers(com_docker_compose_project=project):
            engine.api.remove(container["Id"])
    assert output.count("uid=1000(user)") == 2 and output.count("uid=62420(sandglass)") == 1, output
    assert engine.api.containers(sandglass_instance=project) == []
    assert engine.api.json("GET", "/volumes", filters={"label": [f"com.docker.compose.project={project}"]})["Volumes"] in (None, [])


@pytest.mark.parametrize("page", ["docker.md", "gvisor.md"])
def test_the_settings_of_the_pages_are_accepted(page, work):
    files = work / "files"
    files.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (files / name).touch()
    found = blocks(page, "yaml")
    assert found
    for number, block in enumerate(found):
        config = work / f"{number}.yaml"
        config.write_text(block.replace("/etc/sandglass/engine", str(files)))
        result = subprocess.run([SANDGLASS, "config", "check", config], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (block, result.stdout, result.stderr)


def test_the_runtime_of_the_page_is_that_of_the_tests():
    [block] = blocks("gvisor.md", "json")
    [(name, runtime)] = json.loads(block)["runtimes"].items()
    assert name == "runsc" and set(runtime["runtimeArgs"]) <= set(private.RUNTIMES["runsc"])


# What the pages say.


@pytest.fixture
def docker(make_daemon, engine):
    return make_daemon(backend="docker", settings={"pool": {"size": 0}})


def container_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}").json["sandbox"]["container"]


def test_a_container_has_what_the_page_lists(docker, engine):
    session = docker.session()
    assert docker.execute(session, command="pwd; echo $IMAGE_VARIABLE; id -un")["stdout"] == "/home/user\nfrom-the-image\nuser\n"
    inspected = engine.api.inspect(container_of(docker, session))
    host = inspected["HostConfig"]
    page = (ROOT / "docs" / "how-to" / "docker.md").read_text()
    row = re.search(r"^\| capabilities \| (.*?) for root", page, re.M)[1]
    assert sorted(name.removeprefix("CAP_") for name in host["CapAdd"]) == sorted(re.split(r", | and ", row))
    assert (host["CapDrop"], host["NetworkMode"], host["ReadonlyRootfs"], host["LogConfig"]["Type"]) == (["ALL"], "none", False, "none")
    labels = set(re.findall(r"`(sandglass[a-z.]*)`", re.search(r"^\| label \| value \|\n(.*?)\n\n", page, re.M | re.S)[1]))
    assert set(inspected["Config"]["Labels"]) == labels
    report = docker.api("GET", f"/sessions/{session}").json["sandbox"]["isolation"]
    assert set(report["missing"]) == {"disk", "uid_range", "landlock", "landlock_scope"}
    assert (report["container"]["reached_by"], report["seccomp"]) == ("socket", "filter")


def test_a_read_only_container_writes_to_its_memory_alone(make_daemon):
    daemon = make_daemon(backend="docker", settings={"pool": {"size": 0}, "docker": {"read_only": True}})
    session = daemon.session(memory="256m")
    result = daemon.execute(session, command="pwd; echo $HOME; touch a /tmp/a && echo written; touch /home/user/a; df -B1 --output=size . | tail -1")
    assert result["stdout"].split() == ["/workspace", "/workspace", "written", str(128 << 20)], result
    assert "Read-only file system" in result["stderr"]
    seen = daemon.api("GET", f"/sessions/{session}").json
    assert seen["limits"]["disk_bytes"] == 128 << 20 and "disk" not in seen["sandbox"]["isolation"]["missing"]


def test_an_image_that_must_not_be_pulled_is_refused_with_those_that_are_there(make_daemon):
    daemon = make_daemon(backend="docker", settings={"pool": {"size": 0}, "docker": {"pull": "never"}})
    wait_for(lambda: b"sandglass-test:1" in daemon.api("GET", "/templates", expect=200).body, "it has asked for the images")
    error = daemon.api("POST", "/sessions", {"template": "nope:1"}, expect=400).json["error"]
    assert error["code"] == "image_not_found" and "sandglass-test:1" in error["message"]


def test_a_network_that_the_settings_do_not_name_is_refused(docker):
    error = docker.api("POST", "/sessions", {"network": "open"}, expect=400).json["error"]
    assert error["code"] == "backend_unable"


def kill(engine, container):
    engine.api.kill(container)


def remove(engine, container):
    engine.api.remove(container)


def restart(engine, container):
    engine.api.request("POST", f"/containers/{container}/restart", t="0")


def kill_process(engine, container):
    os.kill(engine.api.inspect(container)["State"]["Pid"], 9)


@pytest.mark.parametrize("end, reasons", [
    (kill, ["crashed: killed through the engine"]),
    (remove, ["crashed: removed", "crashed: killed through the engine"]),
    (restart, ["crashed: restarted", "crashed: killed through the engine"]),
    (kill_process, ["crashed: signal 9"]),
])
def test_the_reasons_of_the_page(docker, engine, end, reasons):
    session = docker.session()
    docker.execute(session, ["/bin/true"])
    end(engine, container_of(docker, session))
    result = wait_for(lambda: next((one for one in [docker.execute(session, ["/bin/true"])] if one["generation"] == 2), None), "a new sandbox")
    assert result["reset_reason"] in reasons


def test_gvisor_is_as_its_page_says(make_daemon, engine):
    daemon = make_daemon(backend="gvisor", settings={"pool": {"size": 0}, "docker": {"read_only": True}})
    session = daemon.session()
    assert "gVisor" in daemon.execute(session, ["dmesg"])["stdout"]
    report = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["isolation"]
    assert (report["syscalls"], report["container"]["reached_by"], report["limits"]["cgroup"]) == ("gvisor", "relay", "declared")
    assert {"seccomp", "landlock", "uid_range"} <= set(report["missing"])
    limits = daemon.api("GET", f"/sessions/{session}").json["limits"]
    assert engine.api.inspect(container_of(daemon, session))["HostConfig"]["PidsLimit"] == 8 * limits["pids"] + 512
    daemon.api("POST", f"/sessions/{session}/pause", expect=200)
    daemon.api("POST", f"/sessions/{session}/resume", expect=200)
    assert daemon.execute(session, ["/bin/echo", "thawed"])["generation"] == 1


def test_a_runtime_that_the_engine_lacks_is_named_at_the_start(make_daemon):
    daemon = make_daemon(backend="gvisor", start=False, settings={"docker": {"runtime": "runsc-nowhere"}})
    daemon.spawn()
    assert daemon.process.wait(60) != 0
    assert 'has no runtime "runsc-nowhere"' in daemon.log().replace("\\", "")


def test_an_engine_that_is_away_is_reported_and_the_daemon_serves(make_daemon, work):
    daemon = make_daemon(backend="docker", start=False, settings={
        "pool": {"size": 0}, "docker": {"host": f"unix://{work}/nobody.sock"}, "sandbox": {"start_timeout": "1s"}, "shutdown": {"timeout": "1s"}})
    daemon.spawn()
    wait_for(lambda: '"listening"' in daemon.log(), "it serves")
    assert daemon.request("GET", "/readyz").status == 503
    [backend] = daemon.api("GET", "/backends").json["backends"]
    assert backend["healthy"] is False and "nobody.sock" in backend["reason"]
    session = daemon.session()
    error = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/true"]}, expect=504).json["error"]
    assert error["code"] == "sandbox_not_ready" and "nobody.sock" in error["message"]
