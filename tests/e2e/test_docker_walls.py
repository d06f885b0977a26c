# SPDX-License-Identifier: Apache-2.0
"""Containers as sandboxes: images, limits, walls and names are what was asked for, and whatever somebody does to a container is told."""
import json
import os
import pathlib
import shutil

import pytest

import real_engine
from conftest import BUILD, INSTANCE, wait_for
from walls import Tap, begin, behind_the_back, container_of, result, says_up, show, skip_without

MIB = 1 << 20
BOTH = pytest.mark.parametrize("backend", real_engine.ENGINE_BACKENDS)
HOG = "python3 -c 'import sys\nprint(1, flush=True)\nx = [bytearray(1 << 20) for _ in range(%d)]\nprint(len(x))'"


def daemon_with(make_daemon, engine, backend="docker", pool=0, **settings):
    skip_without(backend)
    return make_daemon(backend=backend, settings={"pool": {"size": pool}, **settings})


def error_of(answer):
    return answer.json["error"]


def refused_use(daemon, session):
    """The error of a use for which no sandbox could be made."""
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"command": "true"}, timeout=60)
    assert answer.status >= 400, answer.body
    return error_of(answer)


# --- images -------------------------------------------------------------------------------------


@pytest.fixture
def tap(work, engine):
    made = Tap(work, engine)
    yield made
    made.close()


NOWHERE = "127.0.0.1:9/nowhere:7"  # nothing listens there


@pytest.mark.parametrize("pull", ["never", "missing", "always"])
def test_an_image_that_is_missing_is_told_at_once_and_asked_for_once(make_daemon, tap, pull):
    daemon = daemon_with(make_daemon, None, docker={"pull": pull, "host": tap.host}, capacity={"max_sessions": 1})
    wait_for(lambda: tap.requests("/images/json"), "the daemon knows the images")
    wait_for(lambda: "sandglass-test:1" in [each["name"] for each in daemon.api("GET", "/templates").json["templates"]], "and tells them")
    before = len(tap.requests("/images/.*nowhere|/images/create"))
    error = error_of(daemon.api("POST", "/sessions", {"template": NOWHERE}, expect=400, timeout=60))
    assert error["code"] == "image_not_found" and NOWHERE in error["hint"] and "sandglass-test:1" in error["message"], error
    assert error["retryable"] == (pull != "never"), "a registry may answer the next time"
    assert len(tap.requests("/images/.*nowhere|/images/create")) - before <= 2, tap.requests()
    assert daemon.api("GET", "/sessions?state=open").json["total"] == 0
    daemon.session(preload=False)  # the slot was given back
    assert not tap.requests("/containers/create"), "nothing was made, so nothing has to go"


def test_an_image_without_programs_works(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, docker={"image": "sandglass-empty:1"})
    session = daemon.session()
    program = (BUILD / "sandglass-init").read_bytes()  # a static one
    daemon.api("PUT", f"/sessions/{session}/files?path=program&mode=755", program)
    assert daemon.api("GET", f"/sessions/{session}/files?path=program", expect=200).body == program
    run = daemon.execute(session, ["./program", "--no-such-option"])
    assert (run["state"], run["reason"]) == ("exited", None) and run["started_at"], run
    missing = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/sh", "-c", "true"]})
    assert "/bin/sh" in missing.body.decode() and b"internal" not in missing.body, missing.body


def test_an_image_for_another_processor_says_so(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, docker={"image": "sandglass-foreign:1"})
    session = daemon.session()
    error = refused_use(daemon, session)
    assert error["code"] == "image_architecture" and "sandglass-foreign:1" in error["message"] and not error["retryable"], error
    wait_for(lambda: real_engine.containers_of(INSTANCE) == {}, "none stays in the state `created`")


def test_an_image_whose_user_is_missing_says_so(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, docker={"image": "sandglass-nobody:1"})
    run = daemon.execute(daemon.session(), command="true")
    assert (run["exit_code"], run["error"]["message"]) == (126, "the user of the image: the sandbox has no such user"), run


@pytest.mark.parametrize("name", ["../x", "-v", "a b", "x" * 300, "UPPER", "with\nnewline", "a?b=c", "a/../b", "a%2fb", "ubuntu:", "x@sha256:12", "/abs", "\u00e9"])
def test_a_template_that_is_no_reference_is_refused(walled, name):
    error = error_of(walled.api("POST", "/sessions", {"template": name}, expect=400))
    assert not error["retryable"] and walled.api("GET", "/sessions").json["total"] == 0


@pytest.fixture(scope="module")
def references():
    """One and the same image, as people write it."""
    engine = real_engine.the_engine()
    image = engine.api.json("GET", "/images/sandglass-test:1/json")["Id"]
    for repository, tag in (("localhost:5000/team/image", "1.0_x-y"), ("registry.example/a/b/c", "latest")):
        engine.api.request("POST", f"/images/{image}/tag", repo=repository, tag=tag)
    yield ["localhost:5000/team/image:1.0_x-y", "registry.example/a/b/c", "sandglass-test:1"]
    for name in ("localhost:5000/team/image:1.0_x-y", "registry.example/a/b/c:latest"):
        engine.api.request("DELETE", f"/images/{name}")


def test_a_reference_with_a_registry_and_a_port_is_taken_exactly(make_daemon, engine, references):
    daemon = daemon_with(make_daemon, engine, docker={"pull": "never"})
    for name in references:
        session = daemon.session(template=name)
        assert daemon.execute(session, command="echo $IMAGE_VARIABLE")["stdout"] == "from-the-image\n"
        assert engine.api.inspect(container_of(daemon, session))["Config"]["Image"] == name
        daemon.api("DELETE", f"/sessions/{session}", expect=200)


@pytest.fixture
def walled(make_daemon, engine):
    return daemon_with(make_daemon, engine)


def test_odd_owners_and_values_arrive_exactly(walled, engine):
    owner = "team/\"quoted\" \\ it's {}"
    answer = walled.api("POST", "/sessions", {"key": "k", "labels": {"note": "a\"b\\c\n\u00e9\u2603"}}, headers={"X-Sandglass-On-Behalf-Of": owner})
    if answer.status == 201:
        session = answer.json["id"]
        walled.api("POST", f"/sessions/{session}/executions", {"command": "true"}, headers={"X-Sandglass-On-Behalf-Of": owner}, expect=201)
        labels = [row["Labels"] for row in engine.api.containers(sandglass_session=session)]
        assert len(labels) == 1 and labels[0]["sandglass.owner"] == answer.json["owner"]
    else:
        assert answer.status == 400, answer.body
    session = walled.session()
    values = {"QUOTES": "\"'\\ $x `id`", "LINES": "a\nb\t", "WORD": "\u2603 \u00e9", "EMPTY": ""}
    run = walled.execute(session, ["python3", "-c", "import json, os; print(json.dumps({k: os.environ[k] for k in %r}))" % (list(values),)], env=values)
    assert run["stdout"] and json.loads(run["stdout"]) == values
    for bad in ({"X": "a\0b"}, {"A=B": "x"}, {"": "x"}):
        assert walled.api("POST", f"/sessions/{session}/executions", {"command": "true", "env": bad}).status == 400, bad
    raw = b'{"command": "true", "env": {"X": "\xff\xfe"}}'
    assert walled.api("POST", f"/sessions/{session}/executions", raw, headers={"Content-Type": "application/json"}).status == 400


# --- limits and walls ---------------------------------------------------------------------------


def cgroup_value(pid, controller, file):
    """Of the cgroup that a process is in, on either version."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(","):
            return (pathlib.Path("/sys/fs/cgroup") / controller / path.lstrip("/") / file).read_text().strip()
    pytest.skip("the values are read on control groups of version 1")
    return None


def test_limits_are_what_was_asked_for(walled, engine):
    session = walled.session(memory="100m", cpus=0.5, pids=50)
    walled.execute(session, command="true")
    inspected = engine.api.inspect(container_of(walled, session))
    host, pid = inspected["HostConfig"], inspected["State"]["Pid"]
    assert (host["Memory"], host["MemorySwap"], host["CpuQuota"], host["CpuPeriod"]) == (100 * MIB, 100 * MIB, 50000, 100000)
    report = show(walled, session)["sandbox"]["isolation"]["limits"]
    assert (report["memory_bytes"], report["cpu_millis"], report["pids"]) == (100 * MIB, 500, 50) and report["cgroup"] != "declared"
    assert cgroup_value(pid, "memory", "memory.limit_in_bytes") == str(100 * MIB)
    assert cgroup_value(pid, "cpu", "cpu.cfs_quota_us") == "50000"
    assert int(cgroup_value(pid, "pids", "pids.max")) == host["PidsLimit"] in range(50, 53)


def test_limits_of_gvisor_are_declared(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, "gvisor")
    session = daemon.session(memory="300m", cpus=0.5, pids=50)
    daemon.execute(session, command="true")
    host = engine.api.inspect(container_of(daemon, session))["HostConfig"]
    assert (host["Memory"], host["PidsLimit"], host["Runtime"]) == (300 * MIB, 8 * 50 + 512, "runsc")
    isolation = show(daemon, session)["sandbox"]["isolation"]
    assert isolation["limits"]["cgroup"] == "declared" and isolation["limits"]["memory_bytes"] == 300 * MIB and isolation["syscalls"] == "gvisor"
    assert "seccomp" in isolation["missing"]


@pytest.mark.parametrize("asked", [{"memory": "5m"}, {"disk": "1g"}])
def test_a_limit_that_cannot_hold_is_refused_by_its_name(walled, asked):
    answer = walled.api("POST", "/sessions", asked, timeout=60)
    error = error_of(answer) if answer.status >= 400 else refused_use(walled, answer.json["id"])
    assert next(iter(asked)) in error["message"].lower() and not error["retryable"], error
    wait_for(lambda: real_engine.containers_of(INSTANCE) == {}, "none stays")


def test_a_memory_hog_ends_and_its_sandbox_does_not(walled):
    session = walled.session(memory="128m")
    neighbour = walled.session()
    path = begin(walled, neighbour)
    run = walled.execute(session, command=HOG % 400)
    assert run["state"] in ("crashed", "oom") and "memory" in (run["reason"] or "") or "oom" in (run["reason"] or ""), run
    assert says_up(walled, session) and show(walled, session)["generation"] == 1
    assert walled.api("GET", path).json["state"] == "running"


def test_a_memory_hog_under_gvisor_is_told(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, "gvisor")
    session = daemon.session(memory="200m")
    run = result(daemon, begin(daemon, session, HOG % 400))
    assert run["state"] == "crashed" and "oom" in run["reason"], run
    assert says_up(daemon, session)
    assert show(daemon, session)["sandbox"]["previous_end"] == "crashed: oom" and show(daemon, session)["generation"] == 2


BOMB = """python3 -c '
import os, time
print("begun", flush=True)
for n in range(%d):
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        pass
print("done", flush=True)
time.sleep(1000)'"""


def explode(daemon, session, count):
    """The path of a bomb that has forked as often as it could, or has ended its sandbox."""
    path = begin(daemon, session, BOMB % count)
    wait_for(lambda: b"done" in daemon.api("GET", path + "/output?stream=stdout").body or daemon.api("GET", path).json["state"] != "running", "the bomb")
    return path


def test_a_fork_bomb_meets_its_limit_and_nobody_else_does(walled, engine):
    session, neighbour = walled.session(pids=64), walled.session()
    path = explode(walled, session, 200)
    assert int(cgroup_value(engine.api.inspect(container_of(walled, session))["State"]["Pid"], "pids", "pids.current")) <= 66
    assert says_up(walled, neighbour)
    walled.api("DELETE", path)
    assert result(walled, path)["state"] != "running"
    wait_for(lambda: says_up(walled, session), "it works again")
    assert show(walled, session)["generation"] == 1, show(walled, session)["sandbox"]


def test_gvisor_lives_with_as_many_programs_as_were_asked_for(make_daemon, engine):
    """The limit counts threads of its own. Beyond it the whole sandbox may end, which is told; nobody else notices."""
    daemon = daemon_with(make_daemon, engine, "gvisor")
    session, neighbour = daemon.session(pids=24), daemon.session()
    path = explode(daemon, session, 20)
    assert daemon.api("GET", path).json["state"] == "running" and show(daemon, session)["generation"] == 1
    daemon.api("DELETE", path)
    result(daemon, path)
    path = explode(daemon, session, 150)
    assert says_up(daemon, neighbour) and show(daemon, neighbour)["generation"] == 1
    daemon.api("DELETE", path)
    run = result(daemon, path)
    assert run["state"] != "crashed" or run["reason"].startswith("crashed: "), run
    wait_for(lambda: says_up(daemon, session), "it works again")


def test_a_read_only_root_takes_files_where_programs_need_them(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, docker={"read_only": True})
    session = daemon.session(memory="256m", disk="20m")
    run = daemon.execute(session, command="touch /etc/x /usr/x; echo a >/tmp/f && echo b >$HOME/f && echo c >f && cat /tmp/f ~/f; head -c 40M /dev/zero >big; rm big")
    assert "Read-only file system" in run["stderr"] and "No space left" in run["stderr"], run
    assert run["stdout"].splitlines()[:2] == ["a", "c"] or run["stdout"].splitlines()[:2] == ["a", "b"], run
    isolation = show(daemon, session)["sandbox"]["isolation"]
    assert isolation["container"]["read_only"] and isolation["limits"]["disk_bytes"] == 20 * MIB and "disk" not in isolation["missing"]
    daemon.api("PUT", f"/sessions/{session}/files?path=note", b"kept", expect=201)
    assert daemon.api("GET", f"/sessions/{session}/files?path=note", expect=200).body == b"kept"


@pytest.mark.parametrize("image,told", [("sandglass-numeric:1", "4242 4242 /srv/work"), ("sandglass-test:1", "1000 1000 /home/user"),
                                        ("sandglass-root:1", "0 0 /workspace")])
def test_the_user_of_the_image_is_the_user_of_programs(make_daemon, engine, image, told):
    daemon = daemon_with(make_daemon, engine, docker={"image": image})
    session = daemon.session()
    assert daemon.execute(session, command="echo $(id -u) $(id -g) $PWD; touch mine")["stdout"] == told + "\n"
    isolation = show(daemon, session)["sandbox"]["isolation"]
    assert isolation["no_new_privs"] and isolation["seccomp"] == "filter"
    status = daemon.execute(session, command="grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status")["stdout"].split()
    assert status[3] == "1" and status[5] == "2"
    if told[0] != "0":
        assert int(status[1], 16) == 0, "a user has no capability"


SERVER = "python3 -u -c 'import http.server\nprint(1)\nhttp.server.HTTPServer((\"127.0.0.1\", 8123), http.server.SimpleHTTPRequestHandler).serve_forever()'"
ROUTES = "python3 -c 'import socket\ntry: print(socket.getaddrinfo(\"example.com\", 80))\nexcept OSError: print(\"no name\")'; cat /proc/net/route | wc -l; ls /sys/class/net"


@BOTH
def test_no_network_has_no_route_and_no_name(make_daemon, engine, backend):
    daemon = daemon_with(make_daemon, engine, backend)
    session = daemon.session()
    told = daemon.execute(session, command=ROUTES)["stdout"].split("\n")
    assert told[0] == "no name" and int(told[1]) <= 1, told
    assert show(daemon, session)["sandbox"]["isolation"]["network"] == "none"


def test_an_open_network_is_the_one_of_the_settings(make_daemon, engine):
    daemon = daemon_with(make_daemon, engine, docker={"network": "bridge"})
    closed, opened = daemon.session(), daemon.session(network="open")
    assert "eth0" not in daemon.execute(closed, command=ROUTES)["stdout"]
    assert "eth0" in daemon.execute(opened, command=ROUTES)["stdout"]
    assert show(daemon, opened)["sandbox"]["isolation"]["network"] == "open"
    assert engine.api.inspect(container_of(daemon, opened))["HostConfig"]["NetworkMode"] == "bridge"


# --- behind our back ----------------------------------------------------------------------------


def crash_of(daemon, path, act):
    """What a running program's end says after something was done to its container."""
    act()
    run = result(daemon, path)
    assert run["state"] == "crashed", run
    return run["reason"]


@BOTH
def test_a_container_that_somebody_removes_is_noticed_at_once(make_daemon, engine, backend):
    daemon = daemon_with(make_daemon, engine, backend)
    session = daemon.session()
    assert "removed" in crash_of(daemon, begin(daemon, session), lambda: engine.api.remove(container_of(daemon, session)))
    assert says_up(daemon, session), "the next use makes another one"
    shown = show(daemon, session)
    assert (shown["generation"], shown["sandbox"]["previous_end"]) == (2, "crashed: removed")


@pytest.mark.parametrize("frozen", [False, True])
def test_an_idle_or_frozen_container_that_somebody_removes_is_noticed(walled, engine, frozen):
    session = walled.session()
    walled.execute(session, command="true")
    box = container_of(walled, session)
    if frozen:
        walled.api("POST", f"/sessions/{session}/pause", expect=200)
    engine.api.remove(box)
    wait_for(lambda: (show(walled, session)["sandbox"] or {}).get("state") not in ("ready", "frozen"), "it is noticed")
    wait_for(lambda: says_up(walled, session), "the next use makes another one")
    shown = show(walled, session)
    assert (shown["generation"], shown["sandbox"]["previous_end"]) == (2, "crashed: removed")


def test_a_container_that_was_given_up_ends_by_itself(make_daemon, engine):
    """An engine that dies at the wrong moment may leave one that nobody can remove any more."""
    daemon = daemon_with(make_daemon, engine)
    session = daemon.session()
    begin(daemon, session)
    box = container_of(daemon, session)
    daemon.kill()
    shutil.rmtree(daemon.state / "docker" / "doors")
    wait_for(lambda: not engine.api.inspect(box)["State"]["Running"], "it has ended")
    daemon.start()
    assert says_up(daemon, session), "the next use makes another one"


KILLED = "crashed: killed through the engine"
DEATHS = {
    "stop": (lambda engine, box: engine.api.request("POST", f"/containers/{box}/stop"), KILLED),
    "kill": (lambda engine, box: engine.api.kill(box), KILLED),
    "restart": (lambda engine, box: engine.api.request("POST", f"/containers/{box}/restart"), "crashed: restarted"),
    "kill -9 of its init": (lambda engine, box: os.kill(engine.api.inspect(box)["State"]["Pid"], 9), "crashed: signal 9"),
}


@pytest.mark.parametrize("how", DEATHS)
@BOTH
def test_a_container_that_somebody_ends_is_dead_with_the_cause(make_daemon, engine, backend, how):
    daemon = daemon_with(make_daemon, engine, backend)
    session = daemon.session()
    act, cause = DEATHS[how]
    path = begin(daemon, session)
    box = container_of(daemon, session)
    assert crash_of(daemon, path, lambda: act(engine, box)) == cause
    assert says_up(daemon, session)
    assert show(daemon, session)["generation"] == 2
    wait_for(lambda: len(real_engine.containers_of(INSTANCE)) == 1, "the dead one is removed")


def sandbox_state(daemon, session):
    return show(daemon, session)["sandbox"]["state"]


def pause(daemon, engine, session):
    """By hand; the id of the container."""
    box = container_of(daemon, session)
    engine.api.request("POST", f"/containers/{box}/pause")
    wait_for(lambda: sandbox_state(daemon, session) == "frozen_by_others", "it is told")
    return box


@BOTH
def test_a_container_that_others_pause_is_told_and_goes_on_when_they_let_it(make_daemon, engine, backend):
    daemon = daemon_with(make_daemon, engine, backend)
    session = daemon.session()
    path = begin(daemon, session, "while sleep 0.05; do echo x; done")
    box = pause(daemon, engine, session)
    waits = daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo after", "background": True, "timeout": 60}, expect=201).json["id"]
    assert daemon.api("GET", f"/sessions/{session}/executions/{waits}").json["state"] == "queued"
    engine.api.request("POST", f"/containers/{box}/unpause")
    assert result(daemon, f"/sessions/{session}/executions/{waits}")["stdout"] == "after\n"
    size = len(daemon.api("GET", path + "/output?stream=stdout").body)
    wait_for(lambda: len(daemon.api("GET", path + "/output?stream=stdout").body) > size, "its programs go on")
    assert (sandbox_state(daemon, session), show(daemon, session)["generation"]) == ("ready", 1)
    events = daemon.api("GET", f"/sessions/{session}/events?follow=0").body.decode()
    assert events.count("event: sandbox.frozen") == events.count("event: sandbox.thawed") == 1, events


def test_programs_in_a_container_that_others_pause_time_out_with_the_reason(walled, engine):
    session = walled.session()
    runs = [begin(walled, session, timeout=10)]
    box = pause(walled, engine, session)
    waits = walled.api("POST", f"/sessions/{session}/executions", {"command": "true", "background": True, "timeout": 1}, expect=201).json["id"]
    runs.append(f"/sessions/{session}/executions/{waits}")
    for run in runs:
        ended = result(walled, run, 60)
        assert (ended["state"], ended["reason"]) == ("timeout", "timeout: the sandbox is frozen by others"), ended
    answer = walled.api("POST", f"/sessions/{session}/executions", {"command": "true"}, timeout=60)
    assert (answer.status, error_of(answer)["code"]) == (504, "sandbox_frozen") and "frozen by others" in error_of(answer)["message"], answer.body
    engine.api.request("POST", f"/containers/{box}/unpause")
    wait_for(lambda: says_up(walled, session), "it goes on")
    assert show(walled, session)["generation"] == 1


def test_a_pause_by_others_outlives_the_daemon_and_can_be_taken_over(walled, engine):
    session = walled.session()
    begin(walled, session)
    box = pause(walled, engine, session)
    walled.kill()
    walled.start()
    wait_for(lambda: sandbox_state(walled, session) == "frozen_by_others", "the next daemon leaves it alone")
    assert engine.api.inspect(box)["State"]["Paused"]
    walled.api("POST", f"/sessions/{session}/pause", expect=200)
    assert sandbox_state(walled, session) == "frozen"
    walled.api("POST", f"/sessions/{session}/resume", expect=200)
    assert says_up(walled, session) and show(walled, session)["generation"] == 1
    pause(walled, engine, session)
    walled.api("DELETE", f"/sessions/{session}", expect=200)
    assert real_engine.containers_of(INSTANCE) == {}


# --- owners -------------------------------------------------------------------------------------


def test_what_a_lost_state_directory_leaves_goes_with_its_instance_and_no_other(make_daemon, engine):
    first = daemon_with(make_daemon, engine, pool=1)
    other = daemon_with(make_daemon, engine, instance=f"{INSTANCE}-other")
    foreign = engine.api.create("sandglass-test:1", ["sleep", "1000"], name=f"sandglass-not-ours-{os.getpid()}")
    try:
        engine.api.start(foreign)
        kept = other.session()
        path = begin(other, kept)
        for daemon in (first,):
            begin(daemon, daemon.session())
        first.kill()
        boxes = {row["Id"] for row in engine.api.containers(sandglass_instance=INSTANCE)}
        assert boxes
        shutil.rmtree(first.state)
        first.settings["pool"] = {"size": 0}
        first.start()
        wait_for(lambda: not engine.api.containers(sandglass_instance=INSTANCE), "what no record has is removed")
        assert other.api("GET", path).json["state"] == "running" and says_up(other, kept)
        assert engine.api.inspect(foreign)["State"]["Running"]
    finally:
        behind_the_back(engine.api.remove, foreign)
