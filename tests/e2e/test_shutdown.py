# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping as a process: an address in use, signals at any moment and in any number, what is said and what is left."""
import json
import signal
import socket

import pytest

from conftest import free_port, wait_for


def complete_lines(daemon):
    """Of its log; a helper that it has left may be writing another one behind them."""
    return daemon.log().split("\n")[:-1]


def events(daemon):
    """The names of the events in its log, in order."""
    return [json.loads(line)["event"] for line in complete_lines(daemon) if line.startswith("{")]


def start_load(daemon, sessions=3):
    for _ in range(sessions):
        daemon.execute(daemon.session(), ["sleep", "1000"], background=True)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_an_address_in_use_ends_the_start_before_anything_is_made(make_daemon, backend, kind, work):
    daemon = make_daemon(backend=backend, start=False)
    if kind == "tcp":
        taken = socket.socket()
        daemon.port = free_port()
        taken.bind(("127.0.0.1", daemon.port))
        address = f"127.0.0.1:{daemon.port}"
    else:
        taken = socket.socket(socket.AF_UNIX)
        daemon.socket.parent.mkdir(mode=0o777)
        daemon.socket.parent.chmod(0o777)
        taken.bind(str(daemon.socket))
        address = str(daemon.socket)
    with taken:
        taken.listen()
        daemon.spawn()
        assert daemon.process.wait(60) == 1
    assert address in daemon.log()
    reasons = ("in use", "another process listens", "belongs to another user")
    assert any(reason in daemon.log() for reason in reasons)
    assert not daemon.sandboxes(), "a sandbox was made for nobody"
    assert "listening" not in events(daemon)


def test_a_second_signal_stops_at_once_and_says_what_stays(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}})
    start_load(daemon)
    for _ in range(20):
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    assert "stopping: sandboxes continue, and the next daemon takes them over" in events(daemon)
    daemon.settings["shutdown"] = {"policy": "destroy"}
    daemon.start()
    assert len(daemon.api("GET", "/sessions", expect=200).json["sessions"]) == 3
    daemon.stop()
    assert "stopping: ending all sessions" in events(daemon)


def test_many_signals_while_sessions_end_leave_nothing_that_the_next_daemon_does_not_find(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        start_load(daemon)
        for _ in range(5):
            if daemon.process.poll() is None:
                daemon.process.send_signal(number)
        assert daemon.process.wait(60) in (0, 1), daemon.log()[-3000:]
        daemon.start()


def test_a_signal_while_the_daemon_starts_makes_no_sandboxes(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}, "pool": {"size": 4}})
    start_load(daemon)
    daemon.kill()
    seen = len(events(daemon))
    daemon.socket.unlink()  # which a killed daemon leaves
    daemon.spawn()
    # Its listeners are bound when signals are handled and what an earlier daemon left is still being looked at.
    wait_for(lambda: daemon.process.poll() is not None or daemon.socket.exists(), "the daemon has bound its socket")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) in (0, -signal.SIGTERM)
    assert "sandbox could not be created; trying again" not in events(daemon)[seen:]
    daemon.settings.update({"shutdown": {"policy": "destroy"}, "pool": {"size": 0}})
    daemon.start()
    assert len(daemon.api("GET", "/sessions", expect=200).json["sessions"]) == 3


def test_the_pool_is_not_among_the_sandboxes_that_stay(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"shutdown": {"policy": "keep"}, "pool": {"size": 2}})
    start_load(daemon, sessions=1)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    told = [json.loads(line) for line in complete_lines(daemon) if "stopping: sandboxes continue" in line]
    assert [line["sandboxes"] for line in told] == [1], told
    daemon.settings["shutdown"] = {"policy": "destroy"}
    daemon.start()
