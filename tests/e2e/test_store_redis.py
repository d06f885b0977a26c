# SPDX-License-Identifier: Apache-2.0
"""A daemon whose records are in a Redis server that it reaches over TCP, with a password, inside of its own confinement."""
import shutil
import subprocess
import time

import pytest

from conftest import free_port, wait_for

PASSWORD = "open-sesame"

pytestmark = pytest.mark.skipif(not shutil.which("redis-server"), reason="there is no redis-server here")


class Server:
    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.process = None

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--requirepass", PASSWORD, "--dir", self.directory, "--save", "",
                                         "--appendonly", "yes", "--appendfsync", "always", "--logfile", self.directory / "log"],
                                        stdin=subprocess.DEVNULL)
        wait_for(lambda: "PONG" in self.ask("PING"), "the server answers")

    def ask(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), "-a", PASSWORD, "--no-auth-warning", *words], capture_output=True, text=True).stdout

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server(work):
    directory = work / "redis"
    directory.mkdir()
    server = Server(directory)
    server.start()
    yield server
    server.stop()


def settings_for(server, password=PASSWORD):
    return {"store": {"kind": "redis", "redis": {"url": f"redis://:{password}@127.0.0.1:{server.port}/3", "prefix": "test:"}}}


def test_sessions_outlive_the_daemon_and_the_server(server, make_daemon):
    daemon = make_daemon(backend="native", settings=settings_for(server))
    session = daemon.session(key="k")
    daemon.execute(session, command="echo kept > file")
    daemon.kill()
    server.stop()
    server.start()
    daemon.start()
    assert daemon.api("POST", "/sessions", {"key": "k"}, expect=200).json["id"] == session
    assert daemon.execute(session, command="cat file")["stdout"] == "kept\n"
    assert PASSWORD not in daemon.log()
    assert f"test:s:{session}" in server.ask("-n", "3", "KEYS", "test:s:*")


def test_while_the_server_is_away_running_work_goes_on(server, make_daemon):
    daemon = make_daemon(backend="native", settings=settings_for(server))
    session = daemon.session()
    daemon.execute(session, command="true")
    server.stop()
    wait_for(lambda: daemon.request("GET", "/readyz").status != 200, "it says that its store is away")
    assert daemon.api("GET", f"/sessions/{session}", expect=200).json["state"] == "open"
    assert daemon.api("GET", "/sessions?state=ended").status == 503
    server.start()
    wait_for(lambda: daemon.request("GET", "/readyz").status == 200, "the store is back")
    assert daemon.execute(session, command="echo on")["stdout"] == "on\n"
    daemon.api("DELETE", f"/sessions/{session}")
    assert daemon.ended(session)
    assert "redis is back" in daemon.log() and "has lost" not in daemon.log()


def test_a_wrong_password_ends_the_start_and_is_not_shown(server, make_daemon):
    daemon = make_daemon(backend="native", settings=settings_for(server, "shut-sesame"), start=False)
    daemon.spawn()
    assert daemon.process.wait(30) != 0
    assert "store.redis.url" in daemon.log() and "sesame" not in daemon.log()


def test_a_second_daemon_with_the_same_name_takes_over(server, make_daemon):
    impatient = {"shutdown": {"policy": "destroy", "timeout": "1s"}}  # it cannot record that its sessions end
    # Without a sandbox it writes nothing by itself, which would be refused before the request below is.
    first = make_daemon(backend="native", settings={**settings_for(server), **impatient, "pool": {"size": 0}})
    first.session(key="k", preload=False)
    second = make_daemon(backend="native", settings=settings_for(server))
    answer = first.api("POST", "/sessions", {})
    assert answer.status == 503 and answer.json["error"]["code"] == "store_fenced"
    assert "store fenced" in first.log()
    time.sleep(0.1)
    assert second.request("GET", "/readyz").status == 200
