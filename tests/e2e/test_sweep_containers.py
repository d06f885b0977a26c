# SPDX-License-Identifier: Apache-2.0
"""`sandglass sweep` and containers: those of dead daemons of this host go, all others stay."""
import json
import os
import shutil
import socket
import subprocess

import pytest

from conftest import INSTANCE, SANDGLASS

SETTINGS = {"pool": {"size": 0}}


def sweep(engine, *arguments, prefix=(), environment=None):
    """With settings that name the engine of this test session."""
    settings = {"DOCKER_HOST": engine.host, "SANDGLASS_SANDBOX_BACKENDS": "docker", "SANDGLASS_CONFIG": ""}
    result = subprocess.run([*prefix, SANDGLASS, "sweep", "--json", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                            env={**os.environ, **settings, **(environment or {})})
    return result.returncode, [json.loads(line) for line in result.stdout.splitlines()]


def swept(engine, *arguments, **options):
    """The containers that were looked at."""
    code, found = sweep(engine, "--older-than", "0s", *arguments, **options)
    assert code == 0, found
    return [(item["id"], item["outcome"]) for item in found if item["kind"] == "container"]


def container_of(engine, daemon, session):
    sandbox = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["id"]
    return sandbox, engine.api.containers(sandglass_sandbox=sandbox)[0]["Id"]


def is_there(engine, container):
    return any(one["Id"] == container for one in engine.api.containers())


@pytest.fixture
def make_container(engine):
    """make_container(label=value, …) is one that nobody serves, with the labels of a sandbox: `_` for `.`, None to leave one out."""
    made = []

    def make(name=None, **changed):
        number = len(made)
        labels = {"sandglass": "1", "sandglass.instance": INSTANCE, "sandglass.sandbox": f"sbx_{number:026d}", "sandglass.backend": "docker",
                  "sandglass.state": "/nowhere/at/all", "sandglass.host": socket.gethostname(),
                  **{key.replace("_", "."): value for key, value in changed.items()}}
        made.append(engine.api.create("sandglass-test:1", ["sleep", "1000"], name=name,
                                      Labels={key: value for key, value in labels.items() if value is not None}))
        engine.api.start(made[-1])
        return made[-1]

    yield make
    for container in made:
        if is_there(engine, container):
            engine.api.remove(container)


@pytest.fixture
def killed(make_daemon, engine):
    """A daemon that was killed while a session had a container."""
    daemon = make_daemon(backend="docker", settings=SETTINGS)
    session = daemon.session()
    assert daemon.execute(session, ["/bin/echo", "up"])["stdout"] == "up\n"
    daemon.box, daemon.container = container_of(engine, daemon, session)
    daemon.kill()
    return daemon


def test_the_container_of_a_state_directory_that_is_gone_is_removed(killed, engine):
    labels = engine.api.inspect(killed.container)["Config"]["Labels"]
    assert (labels["sandglass.state"], labels["sandglass.host"]) == (str(killed.state), socket.gethostname())
    shutil.rmtree(killed.state)
    assert swept(engine, "--instance", INSTANCE, "--dry-run") == [(killed.box, "would_remove")]
    assert is_there(engine, killed.container)
    code, found = sweep(engine, "--instance", INSTANCE)
    assert (code, [item["outcome"] for item in found]) == (0, ["skipped"]), "it is not old enough"
    code, found = sweep(engine, "--instance", INSTANCE, "--older-than", "0s")
    assert (code, found) == (0, [{"kind": "container", "id": killed.box, "instance": INSTANCE, "path": str(killed.state), "outcome": "removed",
                                  "detail": None}])
    assert not is_there(engine, killed.container)
    assert swept(engine, "--instance", INSTANCE) == []


def test_the_container_of_a_daemon_that_was_killed_is_removed(killed, engine):
    assert swept(engine, "--state", killed.state) == [(killed.box, "removed")]
    assert not is_there(engine, killed.container)
    killed.start()
    [session] = killed.api("GET", "/sessions").json["sessions"]
    assert killed.execute(session["id"], ["/bin/echo", "again"])["stdout"] == "again\n"


def test_a_daemon_that_may_come_back_is_given_time(killed, engine):
    code, found = sweep(engine, "--state", killed.state)
    assert (code, [item["outcome"] for item in found]) == (0, ["skipped"])
    assert is_there(engine, killed.container)
    killed.start()


def test_nothing_of_a_running_daemon_is_touched(make_daemon, engine):
    daemon = make_daemon(backend="docker", settings=SETTINGS)
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    assert swept(engine, "--state", daemon.state, "--instance", INSTANCE) == []
    assert daemon.execute(session, ["/bin/echo", "still here"])["stdout"] == "still here\n"
    assert daemon.api("GET", f"/sessions/{session}").json["generation"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts of one's own need root")
def test_a_daemon_whose_files_only_it_can_see_is_not_touched(make_daemon, work, engine):
    """As with PrivateTmp= of systemd: for everybody else its state directory is not there, the engine included."""
    hidden = work / "hidden"
    hidden.mkdir()
    own_view = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o mode=711 hidden {hidden} && exec "$@"', "sh"]
    daemon = make_daemon(backend="docker", settings={**SETTINGS, "state_dir": str(hidden / "state")}, prefix=own_view)
    assert list(hidden.iterdir()) == []
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    assert swept(engine, "--instance", INSTANCE) == []
    assert daemon.execute(session, ["/bin/echo", "still here"])["stdout"] == "still here\n"


def test_containers_of_other_hosts_and_of_others_stay(make_container, engine):
    orphan = make_container()
    others = [make_container(sandglass_host="another-host"), make_container(sandglass_host=None), make_container(sandglass_state=None),
              make_container(sandglass=None), make_container(sandglass_sandbox="mine"),
              make_container(name=f"sandglass-sbx_{os.getpid():026d}", sandglass=None, sandglass_instance=None, sandglass_sandbox=None,
                             sandglass_state=None, sandglass_host=None)]
    assert swept(engine, "--instance", INSTANCE) == [("sbx_" + "0" * 26, "removed")]
    assert not is_there(engine, orphan)
    assert all(is_there(engine, container) for container in others)


def test_what_the_options_do_not_name_stays(make_container, engine):
    first, second = make_container(), make_container(sandglass_instance=INSTANCE + "-b", sandglass_state="/nowhere/else")
    assert swept(engine, "--state", "/nowhere/else") == [("sbx_" + "0" * 25 + "1", "removed")]
    assert is_there(engine, first) and not is_there(engine, second)
    make_container()
    assert sorted(outcome for _, outcome in swept(engine, "--instance", INSTANCE, "--max", "1")) == ["removed", "skipped"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_does_not_decide_about_another_user_s_daemon(killed, make_container, engine):
    user = ["setpriv", "--reuid", str(os.stat(engine.socket).st_uid), "--regid", "62421", "--clear-groups"]
    killed.state.chmod(0o700)
    os.chown(killed.state, 62422, 62422)
    assert swept(engine, "--state", killed.state, prefix=user) == [(killed.box, "skipped")]
    assert is_there(engine, killed.container)
    os.chown(killed.state, os.stat(engine.socket).st_uid, os.stat(engine.socket).st_gid)
    killed.start()


def test_an_engine_that_is_away_is_no_error(work):
    environment = {**os.environ, "DOCKER_HOST": f"unix://{work}/nobody.sock", "SANDGLASS_CONFIG": ""}
    only = [SANDGLASS, "sweep", "--json", "--instance", INSTANCE]
    result = subprocess.run(only, capture_output=True, text=True, timeout=60, env=environment)
    assert (result.returncode, result.stdout) == (0, ""), "no backend needs one"
    result = subprocess.run(only, capture_output=True, text=True, timeout=60, env={**environment, "SANDGLASS_SANDBOX_BACKENDS": "docker"})
    item = json.loads(result.stdout)
    assert (result.returncode, item["kind"], item["path"], item["outcome"]) == (0, "engine", f"unix://{work}/nobody.sock", "skipped")


def test_the_socket_of_the_settings_is_enough(make_container, engine, work):
    make_container()
    config = work / "sandglass.yaml"  # with no backend that needs an engine
    config.write_text(json.dumps({"state_dir": str(work / "state"), "docker": {"host": engine.host}}))
    arguments = [SANDGLASS, "sweep", "--config", config, "--older-than", "0s", "--instance", INSTANCE]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert result.stdout == f"removed      container sbx_{'0' * 26} in /nowhere/at/all\n1 removed, 0 skipped, 0 failed\n", result


def test_two_daemons_with_one_instance_name_leave_each_other_s_containers_alone(make_daemon, engine):
    """The name is that of the host where it is not set: root's daemon and a user's have the same."""
    first = make_daemon(backend="docker", settings=SETTINGS)
    session = first.session()
    first.execute(session, ["/bin/true"])
    second = make_daemon(backend="docker", settings=SETTINGS)
    assert second.execute(second.session(), ["/bin/echo", "up"])["stdout"] == "up\n"
    assert first.execute(session, ["/bin/echo", "still here"])["generation"] == 1
