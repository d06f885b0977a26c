# SPDX-License-Identifier: Apache-2.0
"""`run` without a daemon: a private one that leaves nothing, however it ends."""
import os
import signal
import subprocess

import pytest

from conftest import SANDGLASS, wait_for


@pytest.fixture
def environment(work):
    return {**os.environ, "TMPDIR": str(work), "SANDGLASS_URL": f"unix:{work}/nobody-listens.sock",
            "SANDGLASS_CONFIG": ""}


def start(environment, *command):
    return subprocess.Popen([SANDGLASS, "run", "--", *command], env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, text=True)


def test_it_is_gone_when_run_returns(work, environment):
    environment.pop("SANDGLASS_URL")
    environment["XDG_RUNTIME_DIR"] = str(work)
    program = start(environment, "/bin/sh", "-c", "echo alone; exit 3")
    assert program.communicate(timeout=60)[0] == "alone\n"
    assert program.returncode == 3
    assert os.listdir(work) == []


@pytest.mark.parametrize("name", ["two words", "a,b", "."])
def test_its_directory_may_have_any_name(work, environment, name):
    environment.pop("SANDGLASS_URL")
    (work / "t" / name).mkdir(parents=True)
    os.chmod(work / "t", 0o711)
    environment |= {"XDG_RUNTIME_DIR": str(work), "TMPDIR": name}
    result = subprocess.run([SANDGLASS, "run", "--", "echo", "alone"], env=environment, cwd=work / "t", capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "alone\n"), result
    assert os.listdir(work / "t" / name) == []


def test_a_directory_with_a_long_path_is_refused_with_a_remedy(work, environment):
    environment.pop("SANDGLASS_URL")
    place = work / ("x" * 100)
    place.mkdir()
    environment |= {"XDG_RUNTIME_DIR": str(work), "TMPDIR": str(place)}
    result = subprocess.run([SANDGLASS, "run", "--", "true"], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 125 and "shorter path" in result.stderr, result
    assert os.listdir(place) == []


def test_it_is_no_node_of_a_cluster(work, environment):
    """Where the settings of a daemon are in the environment, as in a pod."""
    environment.pop("SANDGLASS_URL")
    environment |= {"XDG_RUNTIME_DIR": str(work), "SANDGLASS_STORE_KIND": "redis", "SANDGLASS_STORE_REDIS_URL": "redis://127.0.0.1:1/0", "SANDGLASS_NODE_ID": "a",
                    "SANDGLASS_NODE_ADDRESS": "http://127.0.0.1:1", "SANDGLASS_NODE_SECRET_FILE": "/nowhere"}
    program = start(environment, "/bin/sh", "-c", "echo alone")
    assert program.communicate(timeout=60)[0] == "alone\n"
    assert program.returncode == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_it_is_gone_when_run_is_killed(work, environment, how):
    environment.pop("SANDGLASS_URL")
    environment["XDG_RUNTIME_DIR"] = str(work)
    program = start(environment, "/bin/sh", "-c", "echo up; exec sleep 1000")
    assert program.stdout.readline() == "up\n"
    program.send_signal(how)
    program.wait(30)
    program.stdout.close()
    wait_for(lambda: os.listdir(work) == [], "nothing is left of the private daemon")


@pytest.mark.parametrize("closed, code, output, message", [("<&-", 0, "out\n", "err\n"), (">&-", 125, "", "write stdout: Bad file descriptor"),
                                                           ("2>&-", 0, "out\n", ""), ("<&- >&- 2>&-", 125, "", "")])
def test_standard_descriptors_may_be_closed(work, environment, closed, code, output, message):
    """Their numbers do not go to sockets and files of the command, which the output would then be written to."""
    environment.pop("SANDGLASS_URL")
    environment["XDG_RUNTIME_DIR"] = str(work)
    result = subprocess.run(["sh", "-c", f'exec "$0" run -- sh -c "echo out; echo err >&2" {closed}', SANDGLASS], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (code, output) and message in result.stderr, result
    assert os.listdir(work) == []
