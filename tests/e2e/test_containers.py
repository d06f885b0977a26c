# SPDX-License-Identifier: Apache-2.0
"""In a container with the defaults of the engines, and in a pod: sandboxes run, or the start and `doctor` name the one thing that is
missing and how to get it."""
import pytest

from conftest import SANDGLASS
from container import DOCKER_CAPABILITIES, Container, missing

@pytest.fixture(scope="module", autouse=True)
def containers_run_here(tmp_path_factory):
    if missing():
        pytest.skip(missing())
    result = Container(tmp_path_factory.mktemp("probe"), SANDGLASS, capabilities=DOCKER_CAPABILITIES).run("echo fine")
    if result.stdout != "fine\n":
        pytest.skip(f"crun cannot run containers here: {result.stderr.strip()}")


def refused(container):
    """Both say the same, and nothing was left running."""
    result = container.run("sandglass doctor; echo doctor $?; sandglass serve; echo serve $?; sandglass run -- true; echo run $?; "
                           "for i in $(seq 300); do n=$(ls /proc | grep -c '^[0-9]'); [ $n -gt 4 ] || break; sleep 0.1; done; echo $n")
    *_, doctor, served, ran, processes = result.stdout.splitlines()
    assert (doctor, served, ran) == ("doctor 1", "serve 1", "run 125"), result
    assert "Sandglass cannot run here" in result.stdout and int(processes) <= 4, result
    said = [line for line in result.stderr.splitlines() if line.startswith("sandglass: ")]
    for part in said[0], said[1]:
        assert part.removeprefix("sandglass: ") in result.stdout, "doctor says what the start said"
    return said[0], said[1]


def test_a_container_with_the_defaults_of_docker(work):
    container = Container(work, SANDGLASS, capabilities=DOCKER_CAPABILITIES)
    message, remedy = refused(container)
    assert "make a user namespace: Operation not permitted" in message
    assert "--privileged" in remedy and "--backend direct" in remedy
    result = container.run("sandglass run --backend direct -- sh -c 'id -u; touch file && echo written'; echo $?")
    uid, *rest = result.stdout.split()
    assert rest == ["written", "0"] and int(uid) > 65535, result


@pytest.mark.parametrize("options, step, remedy", [
    ({"capabilities": DOCKER_CAPABILITIES}, "mount /proc", "systempaths=unconfined"),
    ({"uid": 1000}, "mount /proc", "unmask=ALL"),
    ({"capabilities": [*DOCKER_CAPABILITIES, "SYS_ADMIN"]}, "SYS_PTRACE", "--cap-add SYS_PTRACE"),
])
def test_walls_that_hinder_only_inside_are_named_at_the_start(work, options, step, remedy):
    message, hint = refused(Container(work, SANDGLASS, filtered=False, **options))
    assert step in message and remedy in hint


@pytest.mark.parametrize("options", [
    {"uid": 1000, "masked": False},
    {"capabilities": DOCKER_CAPABILITIES, "masked": False},
    {"capabilities": [*DOCKER_CAPABILITIES, "SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN"]},
])
def test_the_remedies_help(work, options):
    result = Container(work, SANDGLASS, filtered=False, **options).run("sandglass run -- sh -c 'id -un; ls /proc | grep -c ^1$'")
    assert result.stdout.split() == ["user", "1"], result


POD = """
export SANDGLASS_CONFIG=$HOME/sandglass.yaml
echo 'sandbox: {backend: direct}' >$SANDGLASS_CONFIG
serve() {
    sandglass serve 2>>$HOME/log &
    for i in $(seq 600); do sandglass ls >/dev/null 2>&1 && break; sleep 0.05; done
}
serve
sandglass session create --key lives >/dev/null
sandglass session create --key dies >/dev/null
sandglass exec key:lives -- touch kept
sandglass exec key:dies -- touch lost
dying=$(sandglass inspect key:dies | sed -n 's/.*"pid": \\([0-9]*\\).*/\\1/p')
kill -9 $! $dying; wait $!
serve
sandglass exec key:lives -- ls
sandglass exec key:dies -- sh -c 'ls; echo again'
sandglass rm --all >/dev/null; echo gone $?
kill $!; wait $!; echo stopped $?
"""


def test_a_pod_of_an_ordinary_user_whose_first_process_reaps_nobody(work):
    """A sandbox that died while the daemon was away is a zombie there for good."""
    result = Container(work, SANDGLASS, uid=1000, no_new_privileges=True).run(POD, reaps=False)
    assert result.stdout.split() == ["kept", "again", "gone", "0", "stopped", "0"], result
