# SPDX-License-Identifier: Apache-2.0
"""Hosts that refuse one system call, as old kernels and the seccomp profiles of containers do: it works, or the call is named at the start with a remedy.
Nothing is left."""
import errno
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import SANDGLASS, wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can refuse a call and leave the rest as it is")


def refusing(call, number):
    return [sys.executable, pathlib.Path(__file__).with_name("refuse_call.py"), call, str(int(number))]


def run(work, refuse, *command):
    environment = {**os.environ, "SANDGLASS_URL": "", "SANDGLASS_CONFIG": "", "TMPDIR": str(work), "HOME": str(work), "XDG_RUNTIME_DIR": str(work)}
    return subprocess.run([*refuse, SANDGLASS, *command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=environment)


def users_of(work):
    """Processes that have a file below the directory open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            paths = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if any(path.startswith(str(work)) for path in paths):
            found.append(pid)
    return found


def nothing_is_left(work):
    wait_for(lambda: os.listdir(work) == [] and users_of(work) == [], "nothing is left of the private daemon")


@as_root
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM], ids=["ENOSYS", "EPERM"])
@pytest.mark.parametrize("call", ["pidfd_send_signal", "pidfd_open", "close_range", "execveat", "eventfd2", "epoll_create1", "accept4", "openat2"])
def test_a_call_that_a_daemon_needs_is_named_at_the_start(work, call, number):
    refuse = refusing(call, number)
    for backend in ("native", "direct"):
        result = run(work, refuse, "run", "--backend", backend, "--", "true")
        assert result.returncode == 125 and f"refuses the system call {call}," in result.stderr, result
        assert f"allow {call} in its seccomp profile" in result.stderr, result
    nothing_is_left(work)


@as_root
def test_doctor_names_a_call_that_a_daemon_needs(work):
    result = run(work, refusing("pidfd_send_signal", errno.ENOSYS), "doctor")
    assert result.returncode == 1 and "fail  system calls     this host refuses the system call pidfd_send_signal" in result.stdout, result
    assert "→ use Linux 5.11 or later; in a container: allow pidfd_send_signal" in result.stdout, result
    nothing_is_left(work)


@as_root
@pytest.mark.parametrize("call", ["setns", "chroot"])
def test_a_call_that_walls_need_is_named_and_direct_sandboxes_work(work, call):
    refuse = refusing(call, errno.EPERM)
    result = run(work, refuse, "run", "--", "true")
    assert result.returncode == 125 and "native sandboxes: " in result.stderr and f"({call})" in result.stderr, result
    result = run(work, refuse, "doctor")
    assert result.returncode == 1 and f"({call})" in result.stdout and f"{call}, " in result.stdout, result
    result = run(work, refuse, "run", "--backend", "direct", "--", "echo", "hello")
    assert (result.returncode, result.stdout) == (0, "hello\n"), result
    nothing_is_left(work)


@as_root
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM], ids=["ENOSYS", "EPERM"])
@pytest.mark.parametrize("backend", ["native", "direct"])
def test_output_comes_without_splice(work, backend, number):
    result = run(work, refusing("splice", number), "run", "--backend", backend, "--", "sh", "-c", "seq 100000; echo bad >&2; exit 3")
    assert (result.returncode, result.stderr) == (3, "bad\n"), result.stderr
    assert result.stdout == "".join(f"{i}\n" for i in range(1, 100001))
    nothing_is_left(work)


@as_root
@pytest.mark.parametrize("backend", ["native", "direct"])
def test_files_are_kept_without_splice(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}}, prefix=refusing("splice", errno.ENOSYS))
    session = daemon.session(keep_files=True)
    assert daemon.execute(session, command="head -c 3000000 /dev/zero >big; echo end >>big; sha256sum <big")["exit_code"] == 0
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "none", "the sandbox is gone")
    assert daemon.execute(session, command="stat -c %s big; tail -n 1 big | tr -d '\\0'")["stdout"] == "3000004\nend\n"
