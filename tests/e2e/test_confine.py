# SPDX-License-Identifier: Apache-2.0
"""The daemon confines itself; its launcher, the inits and the programs in sandboxes get none of that from it."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import SANDGLASS, wait_for
from key_file import Keys, bearer
from test_launcher import children_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# Starts a program on a kernel that has no Landlock, as far as it can tell.
WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""


def walls_of(pid):
    """How a process stands to new privileges and to filters, as the kernel tells it."""
    rows = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(rows.get(name, "0")) for name in ("NoNewPrivs", "Seccomp", "Seccomp_filters"))


def everybody(make_daemon, backend, confine):
    """What a daemon, its helpers and the init of a sandbox of its have, and whether a program inside is free to work."""
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "daemon": {"confine": confine}})  # no sandbox is half made
    session = daemon.session()
    # Each of these is refused to the daemon itself: programs, processes, connections, files of its own making.
    done = daemon.execute(session, command="python3 - <<'END'\n"
                          "import socket, subprocess\n"
                          "server = socket.create_server(('127.0.0.1', 0))\n"
                          "socket.create_connection(server.getsockname()).close()\n"
                          "open('file', 'w').write('text')\n"
                          "print(subprocess.run(['cat', 'file'], capture_output=True, text=True).stdout)\n"
                          "END")
    # The kernel may leave a child out of its list while others come and go.
    keeper = wait_for(lambda: children_of(daemon.process.pid).get("sandglass-keepe"), "the keeper")
    launcher = wait_for(lambda: children_of(keeper).get("sandglass-launc"), "the launcher")
    init = wait_for(lambda: children_of(launcher).get("sandglass-init"), "the init")
    return {"daemon": walls_of(daemon.process.pid), "keeper": walls_of(keeper), "launcher": walls_of(launcher),
            "init": walls_of(init), "inside": done["stdout"].strip() or done["stderr"]}


def test_only_the_daemon_is_confined(make_daemon, backend):
    found = everybody(make_daemon, backend, "required")
    free = everybody(make_daemon, backend, "off")
    assert found["daemon"][:2] == (1, 2)
    assert free["daemon"][1] == 0
    assert found["inside"] == "text"
    assert found["keeper"][1] == 0 and found["launcher"][1] == 0
    for who in ("keeper", "launcher", "init", "inside"):
        assert found[who] == free[who], who


@as_root
def test_an_ordinary_users_daemon_is_confined_too(make_daemon, work):
    daemon = make_daemon(backend="direct", settings={"daemon": {"confine": "required"}}, start=False,
                         prefix=["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"])
    for place in (daemon.state, daemon.socket.parent):
        place.mkdir(mode=0o755)
        os.chown(place, 1001, 1001)
    daemon.start()
    assert walls_of(daemon.process.pid)[:2] == (1, 2)
    assert daemon.execute(daemon.session(), ["echo", "hello"])["stdout"] == "hello\n"


def test_a_private_daemon_is_confined_too(work):
    """It is a grandchild of the command that wanted it."""
    with subprocess.Popen([SANDGLASS, "run", "--backend", "direct", "--", "sh", "-c", "echo ready; cat"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={**os.environ, "TMPDIR": str(work), "SANDGLASS_URL": ""}) as command:
        assert command.stdout.readline() == "ready\n"
        # The kernel may leave a child out of its list while others come and go.
        guardian = wait_for(lambda: children_of(command.pid).get("sandglass"), "the guardian")
        daemon = wait_for(lambda: children_of(guardian).get("sandglass"), "the daemon")
        assert walls_of(daemon)[:2] == (1, 2)
        assert walls_of(command.pid)[1] == 0 and walls_of(guardian)[1] == 0
        command.stdin.close()
        assert command.wait(30) == 0


def test_it_says_what_it_has(make_daemon):
    daemon = make_daemon(backend="direct")
    told = daemon.request("GET", "/healthz").json["confinement"]
    assert told["mode"] == "auto" and told["seccomp"] is True and told["landlock"] >= 1 and told["missing"] is None
    assert "the daemon is confined" in daemon.log()


def test_what_a_host_lacks_is_named(make_daemon, work):
    without = [sys.executable, "-c", WITHOUT_LANDLOCK]
    daemon = make_daemon(backend="direct", prefix=without, start=False)
    daemon.start()
    told = daemon.request("GET", "/healthz").json["confinement"]
    assert told["seccomp"] is True and told["landlock"] == 0 and "landlock" in told["missing"]
    assert "partly confined" in daemon.log()
    daemon.stop()

    daemon.settings["daemon"] = {"confine": "required"}
    daemon.spawn()
    assert daemon.process.wait(30) == 1
    assert "daemon.confine is required, and this host lacks landlock" in daemon.log()

    config = daemon.directory / "sandglass.yaml"
    doctor = subprocess.run([*without, SANDGLASS, "doctor", "--json", "--config", config], capture_output=True, text=True,
                            timeout=60, env={**os.environ, "TMPDIR": str(work), "SANDGLASS_URL": daemon.url})
    row = next(check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "confinement")
    assert row["status"] == "fail" and "landlock" in row["detail"] and row["remedy"], row


def take_new_keys(make_daemon, directory, replace):
    """A daemon whose keys lie in the directory finds the others that are there after replace()."""
    old = Keys(directory / "keys").create("old")["key"]
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "daemon": {"confine": "required"},
                                                     "auth": {"mode": "keys", "keys_file": str(directory / "keys")}})
    assert daemon.api("GET", "/whoami", headers=bearer(old)).status == 200
    new = replace()
    wait_for(lambda: daemon.api("GET", "/whoami", headers=bearer(new)).status == 200, "the new key is valid", 30)
    assert daemon.api("GET", "/whoami", headers=bearer(old)).status == 401


@as_root
def test_keys_are_found_when_their_directory_is_replaced(make_daemon, work):
    above = work / "public"
    directory = above / "etc"
    above.mkdir(mode=0o755)
    directory.mkdir(mode=0o755)

    def replace():
        directory.rename(above / "etc.old")
        directory.mkdir(mode=0o755)
        return Keys(directory / "keys").create("new")["key"]
    take_new_keys(make_daemon, directory, replace)


@pytest.mark.parametrize("link, first, second", [("etc", "one", "two"), ("etc", "sub/one", "sub/two"), ("secrets/..data", "..1", "..2")])
def test_keys_are_found_when_a_link_to_them_is_turned(make_daemon, work, link, first, second):
    link = work / link
    for target in (link.parent / first, link.parent / second):
        target.mkdir(parents=True, mode=0o755)
    link.symlink_to(first)

    def replace():
        new = Keys(link.parent / second / "keys").create("new")["key"]
        (work / "turned").symlink_to(second)
        (work / "turned").rename(link)
        return new
    take_new_keys(make_daemon, link, replace)
