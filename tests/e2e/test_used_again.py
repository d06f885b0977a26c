# SPDX-License-Identifier: Apache-2.0
"""Namespaces, control groups and folders are used again for later sandboxes: nothing of the earlier ones shows in them."""
import fcntl
import os
import pathlib
import signal
import socket
import struct

import pytest

from conftest import INSTANCE, has_open, read_process, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="without root everything is made anew")

ROUNDS = 24  # more than are kept ready
NETWORK = "cd /proc/net; cat snmp snmp6 unix ip6_flowlabel"

SEND = """import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
s.sendto(b'x', s.getsockname())
"""
NO_ROUTE = """import socket
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))
except OSError:
    pass
"""
CYCLE = """import array, socket
left, right = socket.socketpair()
named = socket.socket(socket.AF_UNIX)
named.bind('\\0left-behind')
named.listen()
fds = array.array('i', [right.fileno(), named.fileno()])
left.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
"""
LABEL = """import socket, struct
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
request = socket.inet_pton(socket.AF_INET6, '::1') + struct.pack('!I', 4711) + struct.pack('=BBHHH', 0, 1, 1, 60, 60) + bytes(4)
try:
    s.setsockopt(socket.IPPROTO_IPV6, 32, request)
except PermissionError:
    pass
"""


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(backend="native", settings={"pool": {"size": 0}})


def in_turn(daemon, command, rounds=ROUNDS, **options):
    """What the command prints in so many sandboxes, one after the other."""
    for _ in range(rounds):
        session = daemon.session(**options)
        result = daemon.execute(session, command=command)
        assert result["exit_code"] == 0, result
        yield session, result["stdout"]
        daemon.api("DELETE", f"/sessions/{session}", expect=200)


def groups(daemon, session, file):
    sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["id"]
    found = list(pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass.{INSTANCE}*/{sandbox}/{file}"))
    return [int(path.read_text()) for path in found]


def test_they_come_back(daemon):
    seen = [text for _, text in in_turn(daemon, "readlink /proc/self/ns/net /proc/self/ns/user", 2 * ROUNDS)]
    assert len(set(seen)) < len(seen)


@pytest.mark.parametrize("script", [SEND, NO_ROUTE, CYCLE, LABEL], ids=["packets", "no route", "sockets in a cycle", "flow label"])
def test_what_was_done_with_the_network_is_not_seen_later(daemon, script):
    unused = None
    for session, text in in_turn(daemon, NETWORK):
        # The storage socket is init's own, a new one each time.
        text = "".join(line for line in text.splitlines(True) if not line.rstrip().endswith("@sandglass-storage"))
        unused = unused or text
        assert text == unused
        result = daemon.execute(session, ["python3", "-c", script])
        assert result["exit_code"] == 0, result


def test_no_map_of_ids_is_left_to_be_written(daemon):
    write = "for map in uid gid projid; do (echo 0 4711 1 > /proc/self/${map}_map) 2>/dev/null && echo wrote $map; done; cat /proc/self/projid_map"
    for _, text in in_turn(daemon, "cat /proc/self/uid_map /proc/self/projid_map"):
        ids, projects = text.splitlines()
        assert ids.split() == projects.split()
    for _, text in in_turn(daemon, write, 2):
        assert "wrote" not in text and "4711" not in text
    session = daemon.session()
    assert "wrote" not in daemon.execute(session, command=write, user="root")["stdout"]


def test_terminals_that_were_used_are_not_seen_later(daemon):
    times = "stat -c '%x|%y|%z|%A' /dev/pts /dev/pts/ptmx"
    use = "import os, time\nheld = os.openpty()\nprint(os.ttyname(held[1]), os.listdir('/dev/pts'))\nos.write(held[0], b'x')"
    for session, text in in_turn(daemon, times, 2 * ROUNDS):
        seen = [line.split("|") for line in text.splitlines()]
        assert [len(set(line[:3])) for line in seen] == [1, 1], "nobody has touched them since they were made"
        assert [line[3] for line in seen] == ["drwxr-xr-x", "crw-rw-rw-"]
        result = daemon.execute(session, ["python3", "-SEc", use])
        assert result["stdout"].startswith("/dev/pts/0 ") and result["stdout"].count("'") == 4, result


def test_time_and_memory_are_counted_anew(daemon):
    burn = "import time\nbig = b'x' * (200 << 20)\nwhile time.process_time() < 0.6: pass"
    session = daemon.session()
    assert daemon.execute(session, ["python3", "-c", burn])["exit_code"] == 0
    usage = daemon.api("GET", f"/sessions/{session}?usage=true", expect=200).json["usage"]
    assert usage["cpu_seconds"] > 0.5 and usage["memory_peak_bytes"] > 200 << 20
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    for session, _ in in_turn(daemon, "true"):
        usage = daemon.api("GET", f"/sessions/{session}?usage=true", expect=200).json["usage"]
        assert usage["cpu_seconds"] < 0.5 and usage["memory_peak_bytes"] < 100 << 20 and usage["oom_kills"] == 0, usage


def test_files_that_were_left_are_nobodys_memory_later(daemon):
    for session, _ in in_turn(daemon, "head -c 20M /dev/zero > /tmp/left"):
        usage = daemon.api("GET", f"/sessions/{session}?usage=true", expect=200).json["usage"]
        assert usage["memory_bytes"] < 36 << 20, usage


def test_who_was_killed_for_memory_is_not_counted_later(daemon):
    session = daemon.session(memory="64m")
    killed = daemon.execute(session, ["python3", "-c", "x = b'x' * (1 << 30)"])
    assert killed["exit_code"] != 0
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    for session, _ in in_turn(daemon, "true"):
        usage = daemon.api("GET", f"/sessions/{session}?usage=true", expect=200).json["usage"]
        assert usage["oom_kills"] == 0


def test_limits_are_those_that_are_asked_for(daemon):
    if not pathlib.Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("version 2 of control groups has other names")
    for i in range(2 * ROUNDS):
        memory = 64 << i % 3
        session = daemon.session(memory=f"{memory}m", pids=50 + i % 4)
        daemon.execute(session, ["true"])
        assert groups(daemon, session, "memory.limit_in_bytes") == [memory << 20]
        assert groups(daemon, session, "pids.max") == [51 + i % 4]
        daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_a_connection_that_init_has_not_taken_is_not_for_the_next_one(daemon):
    session = daemon.session()
    daemon.execute(session, ["true"])
    sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]
    os.kill(sandbox["pid"], signal.SIGSTOP)
    late = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    late.connect(str(daemon.state / "sandboxes" / sandbox["id"] / "init.sock"))
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    late.settimeout(30)
    try:
        assert late.recv(1) == b""
    except ConnectionResetError:
        pass
    late.close()
    for _ in in_turn(daemon, "true"):
        pass


def test_no_more_are_kept_than_are_needed(daemon):
    sessions = [daemon.session() for _ in range(60)]
    for session in sessions:
        daemon.execute(session, ["true"])
    daemon.api("DELETE", "/sessions", expect=200)
    kept = pathlib.Path("/sys/fs/cgroup").glob
    wait_for(lambda: len(list(kept(f"memory/sandglass.{INSTANCE}*/kit-*"))) <= 16, "what nobody needs is gone")
    wait_for(lambda: not list((daemon.state / "sandboxes").iterdir()), "their folders are gone")


def child_of(daemon, name="sandglass-build"):
    """The child of the launcher that makes what sandboxes need."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if (read_process(entry) or [""])[0] == name and has_open(entry, daemon.state):
            return int(entry)
    return None


def test_a_teardown_process_that_dies_is_replaced_and_nothing_stays(daemon):
    for _ in in_turn(daemon, "true", 1):
        pass
    teardown = wait_for(lambda: child_of(daemon, "sandglass-tdown"), "there is a teardown process")
    sessions = [daemon.session() for _ in range(4)]
    for session in sessions:
        daemon.execute(session, ["true"])
    os.kill(teardown, signal.SIGKILL)

    def other():
        for _ in in_turn(daemon, "true", 1):
            pass
        return child_of(daemon, "sandglass-tdown") not in (None, teardown)

    wait_for(other, "there is another one", 30)
    daemon.api("DELETE", "/sessions", expect=200)
    wait_for(lambda: not list(pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass.{INSTANCE}*/kit-*-x*")), "what the first one had is gone")


def ahead(daemon):
    return len(list((daemon.state / "ahead").iterdir()))


def test_a_builder_that_dies_leaves_nothing_in_the_way_and_there_is_another(daemon):
    for _ in in_turn(daemon, "true", 1):
        pass
    builder = wait_for(lambda: child_of(daemon), "there is a builder")
    wait_for(lambda: ahead(daemon) >= 16, "it has made what is kept ready")
    os.kill(builder, signal.SIGSTOP)
    for _ in in_turn(daemon, "true"):  # those are used up, and it has orders
        pass
    os.kill(builder, signal.SIGKILL)
    wait_for(lambda: child_of(daemon) != builder, "it is dead")
    for _ in range(160):  # more than there are uid ranges in a block: each of them is used again
        daemon.api("DELETE", f"/sessions/{daemon.session()}", expect=200)
    wait_for(lambda: child_of(daemon), "there is another one")
    wait_for(lambda: ahead(daemon) == 16, "what the first one was making is gone, and as many are ready as before")
    assert daemon.log().count("sandboxes are not prepared in advance") == 1 and "the builder has died" in daemon.log()


def test_another_builder_keeps_nothing_of_those_that_were_made(daemon):
    builder = wait_for(lambda: child_of(daemon), "there is a builder")
    wait_for(lambda: ahead(daemon) >= 16, "it has made what is kept ready")
    os.kill(builder, signal.SIGKILL)
    other = wait_for(lambda: child_of(daemon) not in (None, builder) and child_of(daemon), "there is another one", 30)
    wait_for(lambda: not foreign_namespaces(other), "it has closed what it was born with")


def foreign_namespaces(pid):
    """Descriptors of network and user namespaces that are not the host's."""
    links = [read_link(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith(("net:", "user:")) and link != os.readlink("/proc/self/ns/net")]


def read_link(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def set_immutable(folder, immutable):
    fd = os.open(folder, os.O_RDONLY)
    flags = struct.unpack("i", fcntl.ioctl(fd, 0x80086601, bytes(4)))[0]  # FS_IOC_GETFLAGS
    fcntl.ioctl(fd, 0x40086602, struct.pack("i", flags | 0x10 if immutable else flags & ~0x10))
    os.close(fd)


def test_what_could_not_be_made_ahead_is_tried_again(daemon):
    wait_for(lambda: ahead(daemon) >= 16, "it has made what is kept ready")
    builder = wait_for(lambda: child_of(daemon), "there is a builder")
    os.kill(builder, signal.SIGSTOP)
    sessions = [daemon.session() for _ in range(12)]
    for session in sessions:
        daemon.execute(session, ["true"])
    try:
        set_immutable(daemon.state / "ahead", True)
    except OSError:
        pytest.skip("this file system has no immutable folders")
    try:
        os.kill(builder, signal.SIGCONT)
        wait_for(lambda: "sandboxes are not prepared in advance" in daemon.log(), "it is told")
    finally:
        set_immutable(daemon.state / "ahead", False)
    wait_for(lambda: ahead(daemon) == 16, "there are as many as before", 30)
    assert daemon.log().count("sandboxes are not prepared in advance") == 1
    assert child_of(daemon) == builder
