# SPDX-License-Identifier: Apache-2.0
"""Podman's service instead of Docker's engine: the same sandboxes, what is done to them behind the daemon's back, and nothing that is left."""
import os
import pathlib

import pytest

from conftest import wait_for
from engine import podman as rig
from engine import private
from walls import begin, container_of, ours, result, says_up, show

MIB = 1 << 20
HOG = "python3 -c 'x = [bytearray(1 << 20) for _ in range(400)]'"


@pytest.fixture(scope="module")
def service():
    if reason := rig.missing():
        pytest.skip(reason)
    made = rig.Podman(f"podman-{os.getpid()}")
    try:
        made.start()
        made.load_images()
        yield made
    finally:
        made.end()
        assert private.leftovers(made.directory) == {}


def left_in(service):
    """What a container that is gone has left: itself, its parent, its control groups, its mounts, its files."""
    mounts = pathlib.Path(f"/proc/{service.pid}/mountinfo").read_text().splitlines()
    found = {"containers": ours(service), "processes": service.conmons(), "cgroups": private.our_cgroups(service.directory),
             "mounts": [line for line in mounts if str(service.directory) in line and ("/merged " in line or "/userdata/" in line)],
             "files": [*(service.data / "root/overlay-containers").glob("[0-9a-f]" * 64), *(service.directory / "state").glob("*")]}
    return {kind: items for kind, items in found.items() if items}


@pytest.fixture
def podman(service):
    """The service, with nothing of ours in it before and after."""
    assert left_in(service) == {}
    yield service
    wait_for(lambda: left_in(service) == {}, f"nothing is left: {left_in(service)}", 30)


@pytest.fixture
def daemon(podman, make_daemon):
    return make_daemon(backend="docker", settings={"pool": {"size": 0}, "docker": {"host": podman.host, "pull": "never"}})


def test_programs_run_and_files_are_kept(daemon, podman):
    session = daemon.session(memory="100m", cpus=0.5, pids=50)
    run = daemon.execute(session, command="cat; echo $IMAGE_VARIABLE $(id -un) $PWD; echo e >&2; exit 3", stdin="in\n")
    assert (run["stdout"], run["stderr"], run["exit_code"]) == ("in\nfrom-the-image user /home/user\n", "e\n", 3), run
    daemon.api("PUT", f"/sessions/{session}/files?path=a/note", b"kept" * 50000, expect=201)
    assert daemon.execute(session, command="wc -c <a/note; rm a/note; echo new >b")["stdout"] == "200000\n"
    assert daemon.api("GET", f"/sessions/{session}/files?path=b", expect=200).body == b"new\n"
    isolation = show(daemon, session)["sandbox"]["isolation"]
    limits = isolation["limits"]
    assert (limits["memory_bytes"], limits["cpu_millis"], limits["pids"]) == (100 * MIB, 500, 50) and limits["cgroup"] != "declared", limits
    assert isolation["container"]["reached_by"] == "socket" and isolation["syscalls"] == "host"
    assert isolation["no_new_privs"] and isolation["seccomp"] == "filter" and isolation["network"] == "none"
    assert not {"seccomp", "capabilities", "no_new_privs", "memory", "cpu", "pids", "network"} & set(isolation["missing"]), isolation
    assert len(podman.conmons()) == 1
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    wait_for(lambda: left_in(podman) == {}, f"nothing is left: {left_in(podman)}")
    wait_for(lambda: not list((daemon.state / "docker/doors").glob("*")), "its door is gone")


def may_raise_limits():
    """Whether root has CAP_SYS_RESOURCE, and so the service."""
    status = pathlib.Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> 24 & 1)


def test_limits_that_the_service_may_not_set_are_those_of_the_daemon(daemon, podman):
    """Where root lacks CAP_SYS_RESOURCE; elsewhere they are the service's own. A second sandbox is made at the first attempt."""
    for _ in range(2):
        session = daemon.session()
        files, processes = map(int, daemon.execute(session, command="ulimit -Hn; ulimit -Hu")["stdout"].split())
        assert files >= 1024 and processes >= 1024
    failed = [line for line in daemon.log().splitlines() if "error setting rlimit" in line]
    assert len(failed) == (0 if may_raise_limits() else 1), failed


def test_a_paused_session_stands_still_and_goes_on(daemon, podman):
    session = daemon.session()
    path = begin(daemon, session, "while sleep 0.05; do echo x; done")
    box = container_of(daemon, session)
    daemon.api("POST", f"/sessions/{session}/pause", expect=200)
    assert podman.api.inspect(box)["State"]["Paused"] and show(daemon, session)["state"] == "paused"
    assert says_up(daemon, session), "a use thaws it"
    size = len(daemon.api("GET", path + "/output?stream=stdout").body)
    wait_for(lambda: len(daemon.api("GET", path + "/output?stream=stdout").body) > size, "its programs go on")
    assert show(daemon, session)["generation"] == 1 and container_of(daemon, session) == box


def test_a_memory_hog_ends_and_its_sandbox_does_not(daemon):
    session = daemon.session(memory="64m")
    run = daemon.execute(session, command=HOG)
    assert "oom" in (run["state"], run["reason"]) or "memory" in (run["reason"] or ""), run
    assert says_up(daemon, session) and show(daemon, session)["generation"] == 1


DEATHS = {
    "removed": (lambda podman, box: podman.api.remove(box), "crashed: removed"),
    "killed": (lambda podman, box: podman.api.kill(box), "crashed: killed through the engine"),
    # Podman does not say on control groups of version 1 whether the kernel did it for memory.
    "its init is killed": (lambda podman, box: os.kill(podman.api.inspect(box)["State"]["Pid"], 9),
                           "crashed: signal 9" + (" (perhaps memory)" if pathlib.Path("/sys/fs/cgroup/memory").is_dir() else "")),
}


@pytest.mark.parametrize("how", DEATHS)
def test_what_is_done_behind_the_daemons_back_is_told(daemon, podman, how):
    act, cause = DEATHS[how]
    session = daemon.session()
    path = begin(daemon, session)
    act(podman, container_of(daemon, session))
    run = result(daemon, path)
    assert (run["state"], run["reason"]) == ("crashed", cause), run
    assert says_up(daemon, session), "the next use makes another one"
    shown = show(daemon, session)
    assert (shown["generation"], shown["sandbox"]["previous_end"]) == (2, cause)
    wait_for(lambda: len(ours(podman)) == 1, "the dead one is removed")


def test_sandboxes_survive_daemon_and_service(daemon, podman):
    session = daemon.session()
    path = begin(daemon, session, "n=0; while sleep 0.02; do echo $n; n=$((n + 1)); done")
    box = container_of(daemon, session)
    daemon.kill()
    podman.signal(9)
    wait_for(lambda: not podman.is_running(), "the service is gone")
    podman.start()
    daemon.start()
    assert container_of(daemon, session) == box and says_up(daemon, session)
    wait_for(lambda: daemon.api("GET", path + "/output?stream=stdout").body.count(b"\n") > 20, "its program goes on")
    lines = daemon.api("GET", path + "/output?stream=stdout").body.decode().split("\n")[:-1]
    assert lines == [str(n) for n in range(len(lines))], "no byte is missing"
    assert show(daemon, session)["generation"] == 1
