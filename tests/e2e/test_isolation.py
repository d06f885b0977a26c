# SPDX-License-Identifier: Apache-2.0
"""What the daemon tells about the walls of a sandbox is what is in force, also when the daemon itself has dropped root."""
import json
import os
import pathlib

import pytest

from conftest import WALLS, wait_for
from test_launcher import keeper_of, launcher_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups and loop devices need root")

GIB = 1 << 30


def isolation(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]


def test_the_limits_that_were_asked_for_are_read_back(make_daemon):
    daemon = make_daemon(backend="native", settings={"sandbox": {"require": ["limits", "seccomp", "landlock", "disk"]}})
    session = daemon.session(memory="512m", pids=99, disk="128m")
    assert daemon.execute(session, ["cat", "/proc/self/status"])["exit_code"] == 0
    report = isolation(daemon, session)
    assert report["missing"] == [], report
    limits = report["limits"]
    assert (limits["memory_bytes"], limits["pids"], limits["cpu_millis"], limits["disk_bytes"]) == \
        (512 << 20, 99, 1000, 128 << 20)


@pytest.mark.parametrize("pool", [0, 2])
def test_whoever_asks_for_a_large_disk_has_it(make_daemon, pool):
    daemon = make_daemon(backend="native", settings={"pool": {"size": pool}})
    small, large = daemon.session(), daemon.session(disk="6g", memory="128m")
    for session, size, kind in ((small, GIB, "tmpfs"), (large, 6 * GIB, "image")):
        shown = daemon.execute(session, command="df -B1 --output=size /home/user | tail -1")["stdout"]
        assert abs(int(shown) - size) < size // 10
        limits = isolation(daemon, session)["limits"]
        assert (limits["disk_bytes"], limits["disk_kind"]) == (size, kind)
        assert daemon.api("GET", f"/sessions/{session}").json["limits"]["disk_bytes"] == size
    assert {flavor["disk_bytes"] for flavor in daemon.api("GET", "/flavors").json["flavors"]} <= {GIB}
    filled = daemon.execute(large, command="head -c 300M /dev/zero > big && stat -c %s big")
    assert filled["stdout"] == f"{300 << 20}\n", filled


def test_a_program_that_needs_too_much_memory_is_told_the_limit(make_daemon):
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": 0}})
    session = daemon.session(memory="128m")
    result = daemon.cli("exec", session, "--", "python3", "-c", "x = bytearray(1 << 30)")
    assert "killed: out of memory (limit 128 MB); see --memory" in result.stderr, result.stderr
    assert "ended with its sandbox" not in result.stderr
    assert daemon.execute(session, ["true"])["exit_code"] == 0


def test_a_change_of_the_users_holds_for_the_next_execution(make_daemon):
    daemon = make_daemon(backend=WALLS)
    session = daemon.session()
    home = ["/bin/sh", "-c", "echo $HOME; id -G"]
    before = daemon.execute(session, home)["stdout"]
    assert daemon.execute(session, home)["stdout"] == before == "/home/user\n1000\n"
    for place, change in (("/tmp", "s,:/home/user:,:/tmp:,"), ("/var", "s,:/tmp:,:/var:,")):
        changed = daemon.execute(session, command=f"sed '{change}' /etc/passwd > /root/passwd && cat /root/passwd > /etc/passwd", user="root")
        assert changed["exit_code"] == 0, changed
        assert daemon.execute(session, home)["stdout"] == f"{place}\n1000\n"
    changed = daemon.execute(session, command="echo 'more:x:1234:user' >> /etc/group", user="root")
    assert changed["exit_code"] == 0, changed
    assert daemon.execute(session, home)["stdout"] == "/var\n1000 1234\n"


def test_no_two_sandboxes_have_an_id_in_common(make_daemon):
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}})
    ranges = []
    for _ in range(6):
        inside, first, count = map(int, daemon.execute(daemon.session(), ["cat", "/proc/self/uid_map"])["stdout"].split())
        assert (inside, count) == (0, 65536)
        ranges.append((first, first + count))
    ranges.sort()
    assert all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:])), ranges


SOCKETS = """import socket
server, held = socket.create_server(('127.0.0.1', 0)), []
while True:
    left = socket.create_connection(server.getsockname())
    right = server.accept()[0]
    for one in (left, right):
        one.setblocking(False)
        try:
            while True:
                one.send(b'x' * (1 << 20))
        except BlockingIOError:
            pass
    held += [left, right]
"""


NETLINK = r"""
import socket, struct, time
links = struct.pack("IHHII", 20, 18, 0x301, 1, 0) + bytes(4)
held = []
while len(held) < 1000:
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    one.setblocking(False)
    held.append(one)
    try:
        for _ in range(300):
            one.send(links)
    except BlockingIOError:
        pass
time.sleep(60)
"""


@pytest.mark.parametrize("hoard", [SOCKETS, NETLINK], ids=["tcp", "netlink"])
def test_memory_in_buffers_of_sockets_counts(make_daemon, hoard):
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": 0}})
    session, other = daemon.session(memory="64m"), daemon.session()
    daemon.execute(other, ["true"])
    daemon.execute(session, ["true"])
    execution = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["python3", "-c", hoard], "background": True}, expect=201).json
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{execution['id']}", expect=200).json["state"] not in ("queued", "running"),
             "a sandbox whose sockets hold more than its memory is ended", 60)
    crashed = wait_for(lambda: [json.loads(line) for line in daemon.log().split("\n")[:-1] if '"sandbox crashed"' in line], "the log says why")
    assert [line["cause"] for line in crashed] == ["oom"]
    assert daemon.execute(other, ["true"])["exit_code"] == 0


def test_terminals_of_one_sandbox_leave_the_hosts_pool_to_others(make_daemon):
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}})
    take = "import os\nheld = []\ntry:\n    while True: held.append(os.openpty())\nexcept OSError: print(len(held))"
    assert 8 <= int(daemon.execute(daemon.session(), ["python3", "-c", take])["stdout"]) <= 16
    assert int(pathlib.Path("/proc/sys/kernel/pty/max").read_text()) >= 65536


def test_the_strict_filter_hides_what_hands_on_pages_of_files(make_daemon):
    use = """import ctypes, os, shutil, sys
libc = ctypes.CDLL(None, use_errno=True)
left, right = os.pipe()
source = os.open('/usr/bin/env', os.O_RDONLY)
print(libc.splice(source, None, right, None, 1, 0), libc.vmsplice(right, None, 0, 0), libc.sendfile(right, source, None, 1))
print(shutil.copyfile('/usr/bin/env', 'copy'), os.path.getsize('copy') == os.path.getsize('/usr/bin/env'))
"""
    for tier, expected in (("default", "1 0 1"), ("strict", "-1 -1 -1")):
        daemon = make_daemon(backend="native", settings={"pool": {"size": 0}, "sandbox": {"seccomp": tier}})
        assert daemon.execute(daemon.session(), ["python3", "-c", use])["stdout"] == f"{expected}\ncopy True\n"
        daemon.stop()


def has_resources():
    """CAP_SYS_RESOURCE, which root of a container or of a small virtual machine may lack."""
    rows = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return bool(int(rows["CapEff"], 16) >> 24 & 1)


def test_a_program_stays_easier_to_take_than_the_host_when_memory_is_short(daemon, backend):
    """It may lower its score, but not below what the launcher gave to the sandbox; the daemon and its helpers keep theirs."""
    lower = "cd /proc/self; cat oom_score_adj; for n in -1000 0 449; do (echo $n > oom_score_adj) 2>/dev/null && echo lowered to $n; done; " \
            "echo 450 > oom_score_adj; cat oom_score_adj"
    session = daemon.session()
    for user in ["user", "root"] if backend == "native" else [None]:
        done = daemon.execute(session, command=lower, **({"user": user} if user else {}))
        told = done["stdout"].splitlines()
        assert told[0] == "500", done
        # Landlock keeps a direct one from writing to /proc at all.
        assert told[1:] == (["500"] if backend == "direct" else ["450"]) or not (backend == "direct" or has_resources()), done
    own = pathlib.Path("/proc/self/oom_score_adj").read_text()
    for pid in (daemon.process.pid, keeper_of(daemon), launcher_of(daemon)):
        assert pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text() == own
