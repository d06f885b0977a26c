# SPDX-License-Identifier: Apache-2.0
"""The command line and the page use the names of today: no answer to them has a Deprecation header (src/api/renames.c)."""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest

from conftest import ROOT, SANDGLASS
from mcp_client import Stdio

HEADER = b"\r\ndeprecation:"


class Recorder:
    """A socket in front of the daemon's that keeps every byte of the answers."""

    def __init__(self, directory, daemon):
        self.path = directory / "recorded.sock"
        self.target = str(daemon.socket)
        self.answers = bytearray()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            threading.Thread(target=self.copy, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, self.answers), daemon=True).start()

    @staticmethod
    def copy(source, target, record):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if record is not None:
                    record += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def recorded(make_daemon, work):
    daemon = make_daemon(backend="native", settings={
        "flavors": [{"name": "small"}, {"name": "big", "needs_approval": True, "memory": "512m"}]})
    recorder = Recorder(work, daemon)
    yield daemon, recorder
    recorder.close()


def test_the_proof_would_notice_an_old_name(recorded):
    daemon, recorder = recorded
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(recorder.path))
    body = b'{"timeout": 60}'
    connection.sendall(b"POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                       b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    while connection.recv(65536):
        pass
    assert HEADER in recorder.answers.lower()


def test_no_command_uses_an_old_name(recorded, tmp_path):
    daemon, recorder = recorded
    (tmp_path / "file").write_text("text")
    (tmp_path / "code.py").write_text("print(1)")

    def cli(*arguments, stdin=None, code=0):
        done = subprocess.run([SANDGLASS, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "SANDGLASS_URL": f"unix:{recorder.path}"})
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout

    cli("session", "create", "--key", "k", "--memory", "256m", "--disk", "64m", "--cpus", "1", "--pids", "64", "--timeout", "1h",
        "--idle-timeout", "1h", "--max-lifetime", "2h", "--on-timeout", "kill", "--label", "a=b", "--env", "A=B", "--keep-files", "--auto-restart", "on")
    cli("session", "extend", "--timeout", "2h", "--exact", "k")
    cli("run", "--memory", "256m", "--lease", "10m", "--timeout", "30s", "--copy", tmp_path / "file", "--", "true")
    cli("exec", "--timeout", "30s", "k", "--", "true")
    cli("exec", "-i", "k", "--", "cat", stdin="x")
    execution = cli("exec", "-d", "k", "--", "sleep", "0.2").strip()
    cli("logs", "-f", "k", execution)
    cli("execute", "--timeout", "30s", "--session", "key:k", "--code", "print(1)")
    cli("execute", tmp_path / "code.py")
    cli("cp", tmp_path / "file", "k:file")
    cli("cp", "k:file", tmp_path / "again")
    cli("storage", "ls", "k")
    cli("storage", "url", "--valid-for", "5m", "k", "file", code=1)  # there is none
    cli("port", "k")
    cli("port", "--sign", "--expires", "5m", "k", "8000")
    cli("session", "sandbox", "--flavor", "big", "--wait", "100ms", "k", code=1)
    for words in (["ls"], ["ps", "k"], ["inspect", "k"], ["why", "k"], ["history", "k"], ["top", "--once"], ["approvals", "ls", "--session", "k"],
                  ["budget", "k"], ["flavors"], ["template", "ls"], ["tools", "ls"], ["session", "pause", "k"], ["session", "resume", "k"]):
        cli(*words)
    client = Stdio({"SANDGLASS_URL": f"unix:{recorder.path}"}, arguments=["--memory", "256m", "--idle-timeout", "5m", "--max-lifetime", "1h", "--disk", "64m"])
    assert client.bash("echo hi") == "hi\n"
    assert client.close() == 0
    cli("rm", "--all")
    assert len(recorder.answers) > 10000
    answers = bytes(recorder.answers).lower()
    at = answers.find(HEADER)
    assert at < 0, answers[max(0, at - 300):at + 300].decode(errors="replace")


def test_the_page_sends_no_old_name():
    """By its source: bodies and queries of requests."""
    table = (ROOT / "src" / "api" / "renames.c").read_text()
    old = set(re.findall(r'^    \{ "(\w+)", "', table, re.M)) - {"session"}
    assert {"timeout", "memory", "wait"} <= old
    for path in sorted(pathlib.Path(ROOT / "web" / "src").rglob("*.ts")):
        text = path.read_text()
        for name in old:
            for pattern in (rf"[?&]{name}=", rf"body: \{{[^}}]*\b{name}:", rf'name: "{name}"'):
                assert not re.search(pattern, text), (path.name, name)
        assert "approvals?session=" not in text
