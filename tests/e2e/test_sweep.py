# SPDX-License-Identifier: Apache-2.0
"""`sandglass sweep`: what dead instances left goes, what lives or is not ours stays."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from conftest import INSTANCE, SANDGLASS, WALLS, our_cgroups, our_processes, wait_for


def sweep(*arguments, environment=None, prefix=()):
    result = subprocess.run([*prefix, SANDGLASS, "sweep", "--json", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                            env={**os.environ, **(environment or {})})
    return result.returncode, [json.loads(line) for line in result.stdout.splitlines()]


def outcomes(found):
    return sorted(item["outcome"] for item in found)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def launchers(daemon, names=("sandglass-launc", "sandglass-build", "sandglass-tdown")):
    """Process numbers of its launcher, and of those that help it and end a moment later."""
    return [pid for pid, name in our_processes(daemon.directory).items() if name.startswith(names)]


@pytest.fixture
def dead(make_daemon, backend):
    """A daemon that was killed while two sessions had sandboxes."""
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}})
    daemon.pids = []
    for _ in range(2):
        session = daemon.session()
        daemon.api("POST", f"/sessions/{session}/executions", {"command": "sleep 1000 & sleep 1000", "background": True}, expect=201)
        wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "ready", "a sandbox")
        daemon.pids.append(daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"])
    daemon.kill()
    yield daemon
    daemon.start()


def sandboxes(daemon):
    return sorted(entry.name for entry in (daemon.state / "sandboxes").iterdir())


def test_sandboxes_of_a_dead_daemon_are_removed(dead):
    expected = sandboxes(dead)
    wait_for(lambda: outcomes(sweep("--dry-run", "--older-than", "0s", "--state", dead.state)[1]) == ["would_remove"] * 2,
             "its launcher is gone too")
    twice = sweep("--dry-run", "--older-than", "0s", "--state", dead.state, "--state", dead.state)[1]
    assert outcomes(twice) == ["would_remove"] * 2, "each is reported once"
    assert sandboxes(dead) == expected
    code, found = sweep("--older-than", "0s", "--state", dead.state)
    assert code == 0
    assert sorted(item["id"] for item in found) == expected
    assert {(item["kind"], item["outcome"], item["instance"]) for item in found} == {("sandbox", "removed", INSTANCE)}
    assert sandboxes(dead) == []
    assert our_cgroups() == []
    wait_for(lambda: not any(is_alive(pid) for pid in dead.pids), "their first processes are gone")
    assert sweep("--older-than", "0s", "--state", dead.state) == (0, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_sweeps_what_its_own_daemon_left(make_daemon, backend):
    """Whose init without walls may not be looked at by the user either."""
    user = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
    daemon = make_daemon(backend=backend, start=False, prefix=user, settings={"pool": {"size": 0}})
    for path in (daemon.directory, *daemon.directory.rglob("*")):
        os.chown(path, 1001, 1001)
    daemon.start()
    session = daemon.session()
    daemon.api("POST", f"/sessions/{session}/executions", {"command": "sleep 1000 & sleep 1000", "background": True}, expect=201)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "ready", "a sandbox")
    pid = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"]
    daemon.kill()
    at_once = ("--older-than", "0s", "--state", daemon.state)
    wait_for(lambda: outcomes(sweep("--dry-run", *at_once, prefix=user)[1]) == ["would_remove"], "its launcher is gone too")
    code, found = sweep(*at_once, prefix=user)
    assert (code, outcomes(found)) == (0, ["removed"]), found
    assert sandboxes(daemon) == []
    wait_for(lambda: not is_alive(pid), "its first process is gone")
    daemon.start()


def test_a_daemon_that_may_come_back_is_given_time(dead):
    wait_for(lambda: outcomes(sweep("--state", dead.state)[1]) == ["skipped"] * 2, "it is dead, and not for long")
    assert all(is_alive(pid) for pid in dead.pids)


def test_no_more_than_the_maximum_is_removed(dead):
    wait_for(lambda: outcomes(sweep("--dry-run", "--older-than", "0s", "--state", dead.state)[1]) == ["would_remove"] * 2,
             "its launcher is gone too")
    assert outcomes(sweep("--older-than", "0s", "--max", "1", "--state", dead.state)[1]) == ["removed", "skipped"]
    assert len(sandboxes(dead)) == 1


def test_nothing_of_a_living_daemon_is_touched(daemon):
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    code, found = sweep("--older-than", "0s", "--state", daemon.state, "--instance", INSTANCE)
    assert (code, found) == (0, [])
    assert daemon.execute(session, ["/bin/echo", "still here"])["stdout"] == "still here\n"


def test_what_has_no_mark_stays(dead):
    stranger = dead.state / "sandboxes" / "sbx_00000000000000000000000000"
    stranger.mkdir()
    (stranger / "precious").write_text("mine")
    other = dead.state / "sandboxes" / "something"
    other.mkdir()
    wait_for(lambda: outcomes(sweep("--dry-run", "--older-than", "0s", "--state", dead.state)[1]) == ["skipped", "would_remove", "would_remove"],
             "it is dead")
    assert outcomes(sweep("--older-than", "0s", "--state", dead.state)[1]) == ["removed", "removed", "skipped"]
    assert (stranger / "precious").read_text() == "mine"
    shutil.rmtree(stranger)
    other.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_control_groups_go_when_their_state_directory_is_gone(make_daemon):
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}, "instance": INSTANCE + "-gone"})
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    pid = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"]
    assert sweep("--older-than", "0s", "--instance", INSTANCE + "-gone") == (0, [])
    daemon.kill()
    wait_for(lambda: not launchers(daemon), "its launcher is gone too")
    shutil.rmtree(daemon.state)
    code, found = sweep("--older-than", "0s", "--instance", INSTANCE + "-gone", environment={"TMPDIR": str(daemon.directory)})
    assert code == 0
    assert list(daemon.directory.glob("sandglass-sweep.*")) == []
    assert {(item["kind"], item["outcome"]) for item in found} == {("cgroup", "removed")}
    wait_for(lambda: not is_alive(pid), "its first process is gone: it leaves its control group before it is reaped")
    assert our_cgroups() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_groups_that_a_killed_launcher_had_ready_go(make_daemon):
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}, "instance": INSTANCE + "-ready"})
    found = lambda: [path for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass.{INSTANCE}-ready")]  # noqa: E731
    daemon.execute(daemon.session(), ["/bin/true"])
    wait_for(lambda: any(list(path.glob("kit-*")) for path in found()), "something is ready")
    for pid in launchers(daemon, ("sandglass-launc",)):
        with contextlib.suppress(ProcessLookupError):  # one that it had forked, and that has ended
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "the launcher was replaced" in daemon.log(), "the operator is told")
    daemon.kill()
    wait_for(lambda: not launchers(daemon), "its launcher is gone")
    assert sweep("--older-than", "0s", "--state", daemon.state)[0] == 0
    wait_for(lambda: sweep("--older-than", "0s", "--instance", INSTANCE + "-ready") == (0, []) and not found(), "nothing is left")


def test_the_directory_of_a_private_daemon_that_was_killed_goes(work):
    environment = {**os.environ, "TMPDIR": str(work), "XDG_RUNTIME_DIR": str(work), "SANDGLASS_CONFIG": ""}
    environment.pop("SANDGLASS_URL", None)
    program = subprocess.Popen([SANDGLASS, "run", "--", "/bin/sh", "-c", "echo up; exec sleep 1000"], env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "up\n"
    directory = next(work.glob("sandglass.*"))
    state = directory / "state"
    daemon = int((state / "lock").read_text().split()[1])
    guardian = int(pathlib.Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
    for pid in (guardian, daemon):  # so that neither of them notices that the others die
        os.kill(pid, signal.SIGSTOP)
    for pid in (program.pid, guardian, daemon):
        os.kill(pid, signal.SIGKILL)
    program.wait(30)
    program.stdout.close()
    only = ("--older-than", "0s", "--state", state)
    wait_for(lambda: outcomes(sweep("--dry-run", *only, environment=environment)[1]) == ["would_remove"] * 2, "its launcher is gone too")
    code, found = sweep(*only, environment=environment)
    assert (code, sorted(item["kind"] for item in found), outcomes(found)) == (0, ["directory", "sandbox"], ["removed"] * 2)
    assert list(work.glob("sandglass.*")) == []
    assert list(pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass.private-{daemon}")) == []


def test_it_speaks_plainly_and_refuses_what_it_does_not_know(work):
    result = subprocess.run([SANDGLASS, "sweep", "--state", work / "nowhere"], capture_output=True, text=True, timeout=20)
    assert (result.returncode, result.stdout) == (0, "0 removed, 0 skipped, 0 failed\n")
    assert subprocess.run([SANDGLASS, "sweep", "everything"], capture_output=True, timeout=20).returncode == 2
    assert subprocess.run([SANDGLASS, "sweep", "--older-than", "soon"], capture_output=True, timeout=20).returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_a_paused_sandbox_is_removed_like_any_other(make_daemon):
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": 0}})
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    daemon.api("POST", f"/sessions/{session}/pause", expect=200)
    pid = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"]
    daemon.kill()
    wait_for(lambda: outcomes(sweep("--dry-run", "--older-than", "0s", "--state", daemon.state)[1]) == ["would_remove"],
             "its launcher is gone too")
    code, found = sweep("--older-than", "0s", "--state", daemon.state)
    assert (code, outcomes(found)) == (0, ["removed"])
    wait_for(lambda: not is_alive(pid), "its first process is gone")
    assert our_cgroups() == []
    daemon.start()


def test_sessions_whose_sandboxes_were_swept_survive_as_crashed(dead):
    wait_for(lambda: outcomes(sweep("--dry-run", "--older-than", "0s", "--state", dead.state)[1]) == ["would_remove"] * 2,
             "its launcher is gone too")
    assert outcomes(sweep("--older-than", "0s", "--state", dead.state)[1]) == ["removed"] * 2
    dead.start()
    listed = dead.api("GET", "/sessions", expect=200).json["sessions"]
    assert [session["state"] for session in listed] == ["open"] * 2
    for session in listed:
        run = dead.api("GET", f"/sessions/{session['id']}/executions", expect=200).json["executions"][0]
        wait_for(lambda: dead.api("GET", f"/sessions/{session['id']}/executions/{run['id']}").json["state"] == "crashed", "its end is told")
        result = dead.execute(session["id"], command="echo up")
        assert (result["stdout"], result["generation"]) == ("up\n", 2)
    dead.kill()
