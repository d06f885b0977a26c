# SPDX-License-Identifier: Apache-2.0
"""The daemon reports its state to the service manager that started it, as Type=notify of systemd expects."""
import os
import socket
import struct

import pytest

WORK_OF_ONE_MESSAGE = 4096


class Manager:
    """The end of a service manager: a datagram socket that learns who sends."""

    def __init__(self, name):
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(30)
        self.socket.bind(name.replace("@", "\0"))

    def next(self):
        """The fields of the next message and the process that has sent it."""
        message, control, *_ = self.socket.recvmsg(WORK_OF_ONE_MESSAGE, socket.CMSG_SPACE(12))
        pid, *_ = struct.unpack("iii", control[0][2])
        return dict(line.split("=", 1) for line in message.decode().splitlines()), pid


@pytest.fixture(params=["path", "abstract"])
def manager(request, work):
    # A name of each test: daemons of others run at the same time.
    manager = Manager(str(work / "notify") if request.param == "path" else f"@sandglass-notify-{os.getpid()}-{work.name}")
    yield manager
    manager.socket.close()


def test_ready_reloading_and_stopping_are_reported_by_the_main_process(make_daemon, manager):
    daemon = make_daemon(backend="native", environment={"NOTIFY_SOCKET": manager.name})
    ready, sender = manager.next()
    assert ready["READY"] == "1" and sender == daemon.process.pid
    assert ready["STATUS"] == f"serving on {daemon.url}"
    inside = daemon.execute(daemon.session(), command="env")
    assert "NOTIFY_SOCKET" not in inside["stdout"]

    daemon.process.send_signal(1)
    reloading, _ = manager.next()
    assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) > 0
    assert manager.next()[0]["READY"] == "1"

    daemon.stop()
    stopping, sender = manager.next()
    assert stopping == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "30000000"} and sender == daemon.process.pid


@pytest.mark.parametrize("name", ["relative", "/nowhere/notify", "/" + "x" * 200])
def test_a_service_manager_that_cannot_be_reached_hinders_nothing(make_daemon, name):
    daemon = make_daemon(backend="native", environment={"NOTIFY_SOCKET": name})
    assert "the service manager cannot be reached" in daemon.log()
    assert daemon.execute(daemon.session(), command="echo fine")["stdout"] == "fine\n"
