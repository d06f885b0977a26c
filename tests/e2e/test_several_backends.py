# SPDX-License-Identifier: Apache-2.0
"""One daemon, several backends: who may name which, what each can do, and what a restart makes of their sandboxes."""
import json
import os
import subprocess

import pytest

from conftest import SANDGLASS, wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="without root a launcher has either native or direct sandboxes")

BOTH = {"backends": ["direct"]}
WHERE = ["readlink", "/proc/self/ns/pid"]


def settings(sandbox=BOTH, **others):
    return {"sandbox": dict(sandbox), **others}


def backend_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["backend"]


def rows_of(daemon):
    return {row["name"]: row for row in daemon.api("GET", "/backends", expect=200).json["backends"]}


def refusal(daemon, expect, **options):
    return daemon.api("POST", "/sessions", options, expect=expect).json["error"]


def end_all(daemon):
    assert daemon.api("DELETE", "/sessions", expect=200).json["failed"] == []


@as_root
def test_sessions_run_on_the_backend_that_they_name(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    walled, direct = daemon.session(), daemon.session(backend="direct")
    assert (backend_of(daemon, walled), backend_of(daemon, direct)) == ("native", "direct")
    inside, outside = (daemon.execute(session, WHERE)["stdout"].strip() for session in (walled, direct))
    assert inside != outside == os.readlink("/proc/self/ns/pid")
    assert daemon.api("GET", f"/sessions/{direct}", expect=200).json["network"] == "host"
    assert daemon.api("GET", f"/sessions/{walled}", expect=200).json["network"] == "none"
    end_all(daemon)


@as_root
def test_a_direct_sandbox_beside_native_ones_knows_its_working_directory(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    session = daemon.session(backend="direct")
    where = daemon.execute(session, ["sh", "-c", "pwd; echo $HOME"])
    place, home = where["stdout"].split()
    assert place == home and place.endswith("/workspace") and not where["stderr"], where
    script = daemon.execute(session, code="import os; print(os.getcwd())", language="python")
    assert script["stdout"] == f"{place}\n", script
    end_all(daemon)


@as_root
def test_backends_are_listed_with_what_they_can_do(make_daemon):
    rows = rows_of(make_daemon(backend="native", settings=settings()))
    assert set(rows) == {"native", "direct"}, "what the operator did not name is not there"
    assert [rows["native"][key] for key in ("default", "selectable", "active", "healthy", "templates")] == [True] * 5
    assert [rows["direct"][key] for key in ("default", "selectable", "active", "healthy", "templates")] == [False] + [True] * 3 + [False]
    assert rows["native"]["reason"] is None and rows["native"]["summary"]


def test_a_backend_that_the_operator_did_not_name_cannot_be_chosen(make_daemon):
    daemon = make_daemon(backend="native")
    for name in ("direct", "docker", "none"):
        error = refusal(daemon, 400, backend=name)
        assert error["code"] == "backend_unknown" and f'"{name}"' in error["message"] and "native" in error["message"], error
    assert set(rows_of(daemon)) == {"native"}


@as_root
def test_what_a_backend_lacks_is_refused_for_its_sessions_alone(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    error = refusal(daemon, 400, backend="direct", network="none")
    assert error["code"] == "backend_unable" and "direct" in error["message"], error
    error = refusal(daemon, 400, backend="direct", disk="64m")
    assert "disk" in error["message"], error
    assert backend_of(daemon, daemon.session(network="none", disk="64m")) == "native"
    end_all(daemon)


@as_root
def test_sandboxes_of_each_backend_survive_a_crash_of_the_daemon(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    sessions = {name: daemon.session(backend=name) for name in ("native", "direct")}
    for name, session in sessions.items():
        assert daemon.execute(session, ["sh", "-c", f"echo {name} > here"])["exit_code"] == 0
    daemon.kill()
    daemon.start()
    for name, session in sessions.items():
        assert backend_of(daemon, session) == name
        done = daemon.execute(session, ["cat", "here"])
        assert done["stdout"] == f"{name}\n" and done["generation"] == 1, done
    end_all(daemon)


@as_root
def test_no_byte_is_lost_on_either_backend_when_the_daemon_is_killed_again_and_again(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    sessions = {name: daemon.session(backend=name) for name in ("native", "direct")}
    count = "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i + 1)); sleep 0.005; done"
    running = {name: daemon.execute(session, ["sh", "-c", count], background=True)["id"] for name, session in sessions.items()}
    paths = {name: f"/sessions/{session}/executions/{running[name]}" for name, session in sessions.items()}
    for path in paths.values():
        wait_for(lambda path=path: daemon.api("GET", path).json["stdout_bytes"], "it has begun")
    for _ in range(4):
        daemon.kill()
        daemon.start()
    for name, path in paths.items():
        wait_for(lambda path=path: daemon.api("GET", f"{path}?wait=1").json["state"] == "exited", f"the program on {name} ends", 120)
        output = daemon.request("GET", f"/api/v1{path}/output?stream=stdout").body.decode()
        assert output == "".join(f"{i}\n" for i in range(400)), name
        assert backend_of(daemon, sessions[name]) == name
    end_all(daemon)


@as_root
def test_a_session_keeps_its_backend_when_its_sandbox_crashes(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    session = daemon.session(backend="direct")
    daemon.execute(session, ["true"])
    pid = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pid"]
    os.kill(pid, 9)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["id"] is None, "the crash is noticed")
    assert daemon.execute(session, WHERE)["stdout"].strip() == os.readlink("/proc/self/ns/pid")
    assert backend_of(daemon, session) == "direct"
    end_all(daemon)


@as_root
def test_a_backend_that_is_switched_off_leaves_its_sandboxes_alone(make_daemon):
    daemon = make_daemon(backend="native", settings=settings(shutdown={"policy": "keep"}, pool={"size": 0}))
    session, other = daemon.session(backend="direct"), daemon.session()
    daemon.execute(session, ["sh", "-c", "echo kept > here"])
    pid = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pid"]
    daemon.stop()
    daemon.settings["sandbox"].pop("backends")
    daemon.start()
    assert "of a backend that this daemon does not have" in daemon.log()
    state = daemon.api("GET", f"/sessions/{session}", expect=200).json
    assert (state["backend"], state["sandbox"]["state"]) == ("direct", "unknown"), state
    refused = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]}, expect=503).json["error"]
    assert refused["code"] == "backend_not_enabled" and "direct" in refused["message"] and "sandbox.backends" in refused["hint"]
    assert daemon.execute(other, ["true"])["exit_code"] == 0
    os.kill(pid, 0)
    daemon.stop()
    daemon.settings["sandbox"]["backends"] = ["direct"]
    daemon.start()
    assert daemon.execute(session, ["cat", "here"])["stdout"] == "kept\n"
    end_all(daemon)


@as_root
def test_a_flavor_brings_its_backend_and_opens_it_to_nobody_else(make_daemon):
    flavors = [{"name": "walls"}, {"name": "bare", "backend": "direct", "price_per_hour": 0}]
    daemon = make_daemon(backend="native", settings=settings({}, flavors=flavors))
    bare = daemon.session(flavor="bare")
    assert backend_of(daemon, bare) == "direct"
    assert daemon.execute(bare, WHERE)["stdout"].strip() == os.readlink("/proc/self/ns/pid")
    assert refusal(daemon, 400, backend="direct")["code"] == "backend_unknown"
    assert refusal(daemon, 400, backend="native", flavor="bare")["code"] == "backend_differs"
    assert rows_of(daemon)["direct"]["selectable"] is False
    changed = daemon.session()
    daemon.api("POST", f"/sessions/{changed}/sandbox", {"flavor": "bare"})
    assert daemon.execute(changed, WHERE)["stdout"].strip() == os.readlink("/proc/self/ns/pid")
    assert backend_of(daemon, changed) == "direct"
    end_all(daemon)


@as_root
def test_a_template_brings_its_backend(make_daemon):
    daemon = make_daemon(backend="native", settings=settings({}, templates=[{"name": "host", "backend": "direct"}]))
    assert backend_of(daemon, daemon.session()) == "direct"
    end_all(daemon)


@as_root
def test_the_key_of_a_session_belongs_to_its_backend(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    first = daemon.session(key="k", backend="direct")
    assert daemon.api("POST", "/sessions", {"key": "k"}, expect=200).json["id"] == first
    error = refusal(daemon, 409, key="k", backend="native")
    assert error["code"] == "parameters_differ" and "backend" in error["message"]
    end_all(daemon)


@as_root
def test_the_command_line_names_a_backend(make_daemon):
    daemon = make_daemon(backend="native", settings=settings())
    ran = daemon.cli("run", "--backend", "direct", "--", *WHERE)
    assert (ran.returncode, ran.stdout.strip()) == (0, os.readlink("/proc/self/ns/pid")), ran
    refused = daemon.cli("run", "--backend", "docker", "--", "true")
    assert refused.returncode == 125 and "may use native, direct" in refused.stderr, refused
    unknown = daemon.cli("run", "--backend", "qemu", "--", "true")
    assert unknown.returncode == 125 and "native direct docker gvisor kubernetes none" in unknown.stderr, unknown
    assert daemon.cli("session", "ls").returncode == 0


def test_a_backend_that_cannot_be_opened_is_listed_with_the_reason(make_daemon):
    daemon = make_daemon(backend="native", settings=settings({"backends": ["direct"], "require": ["net"]}))
    row = rows_of(daemon)["direct"]
    assert row["active"] is False and row["healthy"] is False and row["reason"], row
    error = refusal(daemon, 503, backend="direct")
    assert error["message"] == row["reason"] and not error["retryable"]
    assert daemon.execute(daemon.session(), ["true"])["exit_code"] == 0
    end_all(daemon)


def test_a_daemon_without_sandboxes_starts_no_launcher(make_daemon):
    daemon = make_daemon(backend="none", settings={"pool": {"size": 0}})
    children = open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read().split()
    assert children == []
    assert rows_of(daemon)["none"]["default"] is True
    assert daemon.api("GET", "/sessions", expect=200).json["sessions"] == []


def check(work, settings, command="check"):
    file = work / "sandglass.yaml"
    file.write_text(json.dumps({"state_dir": str(work / "state"), "runtime_dir": str(work / "run"), "instance": "e2e-several", **settings}))
    environment = {name: value for name, value in os.environ.items() if name != "SANDGLASS_URL"}
    command = ["config", "check", file] if command == "check" else [command, "--json", "--config", file]
    return subprocess.run([SANDGLASS, *command], capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize("settings, field", [
    ({"sandbox": {"backend": "qemu"}}, "sandbox.backend"),
    ({"sandbox": {"backends": ["direct", "qemu"]}}, "sandbox.backends"),
    ({"flavors": [{"name": "a", "backend": "qemu"}]}, "backend"),
    ({"templates": [{"name": "a", "backend": "qemu"}]}, "backend"),
])
def test_the_settings_refuse_a_backend_that_does_not_exist(work, settings, field):
    checked = check(work, settings)
    assert checked.returncode == 1 and f'{field}: "qemu" is not one of native, direct, docker, gvisor, kubernetes, none' in checked.stderr, checked


@pytest.mark.parametrize("backend", ["docker", "gvisor"])
def test_the_settings_refuse_an_image_that_cannot_exist(work, backend):
    checked = check(work, {"sandbox": {"backends": [backend]}, "docker": {"image": "Python 3"}})
    assert checked.returncode == 1 and 'docker.image: "Python 3" is not a reference to an image' in checked.stderr, checked
    assert check(work, {"docker": {"image": "Python 3"}}).returncode == 0, "no backend would use it"


@pytest.mark.parametrize("backend", ["docker", "gvisor"])
def test_the_settings_refuse_to_require_what_no_container_has(work, backend):
    checked = check(work, {"sandbox": {"backend": backend, "require": ["namespaces", "landlock"]}, "docker": {"image": "python"}})
    assert checked.returncode == 1 and f'sandbox.require names "landlock", which is not in force with the backend {backend}' in checked.stderr, checked
    assert "sandbox.require" not in check(work, {"sandbox": {"backend": backend, "require": ["namespaces"]}, "docker": {"image": "python"}}).stderr


@as_root
def test_doctor_tries_every_backend_that_a_session_may_name(work):
    report = json.loads(check(work, {"sandbox": BOTH}, "doctor").stdout)
    checks = {row["name"]: row for row in report["checks"]}
    assert checks["backends"]["detail"] == "enabled: native (default), direct; not enabled: docker, gvisor, kubernetes, none"
    assert [checks[name]["status"] for name in ("sandbox", "sandbox: direct")] == ["ok", "ok"]


def test_an_execution_that_could_not_start_says_the_remedy(make_daemon, work):
    daemon = make_daemon(backend="direct", settings={"sandbox": {"backends": ["docker"], "start_timeout": "1s"},
                                                     "docker": {"host": f"unix://{work}/nowhere.sock", "image": "python"}})
    session = daemon.api("POST", "/sessions", {"backend": "docker"}, expect=201).json["id"]
    execution = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"], "background": True}, expect=201).json["id"]
    ended = daemon.api("GET", f"/sessions/{session}/executions/{execution}?wait=30", expect=200).json
    assert ended["state"] == "crashed" and "No such file" in ended["error"]["message"] and "start it" in ended["error"]["message"], ended
