# SPDX-License-Identifier: Apache-2.0
"""Network `open`: the world outside, and neither the host nor other sandboxes nor private addresses, whatever happens to the host's own rules."""
import contextlib
import ctypes
import os
import pathlib
import subprocess

import pytest

from conftest import read_process, wait_for

NFT = pathlib.Path("/usr/sbin/nft")
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not NFT.exists(), reason="network open needs root and nft")

OUTSIDE = "198.51.100.2"
HOST = "198.51.100.1"
PRIVATE = ("10.77.0.2", "172.20.0.2", "192.168.77.2", "100.100.100.200", "100.99.0.2", "169.254.169.254")

CONNECT = """import socket, sys
for address in sys.argv[1:]:
    host, port = address.lstrip('!').rsplit(':', 1)
    s = socket.socket()
    s.settimeout(1 if address[0] == '!' else 20)  # the first packet may be lost, and is sent again after a second
    try:
        s.connect((host, int(port)))
        print(address, 'reached')
    except OSError:
        print(address, 'not')
"""

SERVE = """import select, socket, sys
servers = []
for address in sys.argv[1:]:
    host, port = address.rsplit(':', 1)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_IP, 15, 1)  # also at addresses that come later
    s.bind((host, int(port)))
    s.listen(100)
    servers.append(s)
print('up', flush=True)
while True:
    for s in select.select(servers, [], [])[0]:
        s.accept()[0].close()
"""


@contextlib.contextmanager
def network_of(pid):
    """The rest of this thread's work happens in the network of that process; children that it starts are in it, too."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    assert libc.setns(other, 0x40000000) == 0
    try:
        yield
    finally:
        assert libc.setns(own, 0x40000000) == 0
        os.close(own)
        os.close(other)


def run(command):
    subprocess.run(command, shell=True, check=True, timeout=20)


@pytest.fixture
def host():
    """A host of its own with a machine behind it, so that nobody else's rules are touched. Gives the pid of a process in it."""
    processes = [subprocess.Popen(["unshare", "--net", "sleep", "1000"]) for _ in range(2)]
    own = os.readlink("/proc/self/ns/net")
    for process in processes:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own, "it has a network of its own")
    host, world = (process.pid for process in processes)
    with network_of(host):
        run(f"ip link set lo up && ip link add w0 type veth peer name w1 netns {world} && ip addr add {HOST}/24 dev w0 && "
            f"ip link set w0 up && ip route add default via {OUTSIDE}")
        processes.append(serve("0.0.0.0:7000"))
    with network_of(world):
        run(f"ip link set lo up && ip addr add {OUTSIDE}/24 dev w1 && ip link set w1 up")
        for address in PRIVATE:
            run(f"ip addr add {address}/32 dev w1")
        processes.append(serve("0.0.0.0:80"))
    yield host
    for process in processes:
        process.kill()
        process.wait()


def serve(*addresses):
    process = subprocess.Popen(["python3", "-c", SERVE, *addresses], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.stdout.close()
    return process


@pytest.fixture
def open_daemon(host, make_daemon):
    def make(**settings):
        daemon = make_daemon(backend="native", start=False, settings={"pool": {"size": 0}, **settings})
        with network_of(host):
            daemon.start()
        daemon.host = host
        return daemon

    return make


def reached(daemon, session, *addresses, never=()):
    """Those of all these addresses that answer; where `never` should answer nobody is waited for long."""
    result = daemon.execute(session, ["python3", "-c", CONNECT, *addresses, *(f"!{address}" for address in never)])
    assert result["exit_code"] == 0, result
    return [line.split()[0].lstrip("!") for line in result["stdout"].splitlines() if line.endswith(" reached")]


def address_of(daemon, session):
    found = daemon.execute(session, command="ip -4 -o addr show eth0 2>/dev/null || python3 -c \"import socket; s = socket.socket(2, 2); "
                           f"s.connect(('{OUTSIDE}', 9)); print('x x x', s.getsockname()[0] + '/30')\"")
    return found["stdout"].split()[3].split("/")[0]


def on_host(daemon, command):
    with network_of(daemon.host):
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def launcher_of(daemon):
    """The child of its keeper, which is the daemon's child."""
    keeper = children_of(daemon.process.pid)[0]
    return wait_for(lambda: next((pid for pid in children_of(keeper) if (read_process(pid) or [""])[0] == "sandglass-launc"), None), "it has a launcher")


WORLD = f"{OUTSIDE}:80"
NEVER = [f"{HOST}:7000", "100.127.0.1:7000", *(f"{address}:80" for address in PRIVATE)]


def test_the_world_is_reached_and_neither_the_host_nor_what_is_private(open_daemon):
    daemon = open_daemon()
    session = daemon.session(network="open")
    assert reached(daemon, session, WORLD, never=NEVER) == [WORLD]
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert (report["network"], report["missing"]) == ("open", [])


def test_flushing_the_hosts_rules_opens_nothing(open_daemon):
    daemon = open_daemon()
    old = daemon.session(network="open")
    assert reached(daemon, old, WORLD) == [WORLD]
    launcher = launcher_of(daemon)
    os.kill(launcher, 19)  # SIGSTOP: nobody is there who could repair it
    on_host(daemon, [NFT, "flush", "ruleset"])
    sibling = address_of(daemon, old)
    assert reached(daemon, old, never=[*NEVER, f"{sibling[:-1]}1:7000"]) == []
    os.kill(launcher, 18)
    new = daemon.session(network="open")
    listener = daemon.api("POST", f"/sessions/{new}/executions", {"argv": ["python3", "-c", SERVE, "0.0.0.0:8000"], "background": True}, expect=201).json["id"]
    wait_for(lambda: daemon.api("GET", f"/sessions/{new}/executions/{listener}/output").body == b"up\n", "it listens")
    assert reached(daemon, old, WORLD, never=[f"{address_of(daemon, new)}:8000", *NEVER]) == [WORLD], "what was flushed is set again"
    assert reached(daemon, new, WORLD, never=[f"{sibling}:8000", *NEVER]) == [WORLD]


def test_rules_that_were_flushed_come_back_by_themselves(open_daemon):
    daemon = open_daemon()
    session = daemon.session(network="open")
    daemon.execute(session, ["true"])
    on_host(daemon, [NFT, "flush", "ruleset"])
    wait_for(lambda: "masquerade" in on_host(daemon, [NFT, "list", "ruleset"]), "the table is there again")
    assert reached(daemon, session, WORLD, never=NEVER) == [WORLD]


def test_private_addresses_can_be_allowed_and_the_host_cannot(open_daemon):
    daemon = open_daemon(network={"allow_private": True})
    session = daemon.session(network="open")
    allowed = ["10.77.0.2:80", "172.20.0.2:80", "192.168.77.2:80", "100.99.0.2:80"]
    assert reached(daemon, session, WORLD, *allowed, never=[one for one in NEVER if one not in allowed]) == [WORLD, *allowed]


def test_the_payload_cannot_change_the_rules(open_daemon):
    daemon = open_daemon()
    session = daemon.session(network="open")
    for command in ("nft flush ruleset", "nft list ruleset", "ip route add 10.0.0.0/8 dev eth0", "ip link set eth0 down"):
        assert daemon.execute(session, command=command, user="root")["exit_code"] != 0, command
    bound = "import socket; s = socket.socket(); s.setsockopt(1, 25, b'eth0'); s.settimeout(1); s.connect(('10.77.0.2', 80))"
    assert daemon.execute(session, ["python3", "-c", bound])["exit_code"] != 0


def test_one_sandbox_cannot_fill_the_hosts_table_of_connections(open_daemon):
    daemon = open_daemon()
    session = daemon.session(network="open")
    flood = f"import socket\nfor port in range(1, 20000):\n    s = socket.socket(2, 2)\n    try: s.sendto(b'x', ('{OUTSIDE}', port))\n    except OSError: pass\n"
    assert daemon.execute(session, ["python3", "-c", flood])["exit_code"] == 0
    with network_of(daemon.host):
        assert int(pathlib.Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text()) < 4000


def test_a_wall_that_is_gone_is_missing(open_daemon):
    daemon = open_daemon()
    session = daemon.session(network="open")
    daemon.execute(session, ["true"])
    sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pid"]
    with network_of(sandbox):
        subprocess.run([NFT, "flush", "ruleset"], check=True, timeout=20)
    daemon.kill()
    with network_of(daemon.host):
        daemon.start()
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"].get("isolation"), "it is looked at again")
    report = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert report["missing"] == ["network"]
