# SPDX-License-Identifier: Apache-2.0
"""sandglass run -p: ports of the sandbox at 127.0.0.1 while its program runs."""
import http.client
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from conftest import SANDGLASS, free_port, wait_for

SERVE = ["python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1"]


class Run:
    """A `run` that goes on, with what it says on stderr."""

    def __init__(self, daemon, *arguments):
        self.process = subprocess.Popen([SANDGLASS, "run", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "SANDGLASS_URL": daemon.url}, text=True)
        self.lines = []
        self.readers = [threading.Thread(target=self.read, args=(stream,), daemon=True) for stream in (self.process.stdout, self.process.stderr)]
        for reader in self.readers:
            reader.start()

    def read(self, stream):
        for line in stream:
            self.lines.append(line)

    @property
    def said(self):
        return "".join(self.lines)

    def port(self):
        return int(wait_for(lambda: re.search(r"127\.0\.0\.1:(\d+) leads to port 8000", self.said), "the port is named")[1])

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        code = self.process.wait(60)
        for reader in self.readers:
            reader.join(30)
        return code


def fetch(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            return answer.read()
    except (OSError, urllib.error.URLError, http.client.HTTPException):
        return None


def test_a_published_port_is_served_while_the_program_runs(daemon):
    run = Run(daemon, "-p", "0:8000", "--", *SERVE)
    port = run.port()
    assert b"Directory listing" in wait_for(lambda: fetch(port), "the server answers", 60)
    run.end()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 5)
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_a_chosen_port_is_taken_with_or_without_the_address(daemon):
    for prefix in ("", "127.0.0.1:"):
        port = free_port()
        run = Run(daemon, "--publish", f"{prefix}{port}:8000", "--", *SERVE)
        assert run.port() == port
        assert wait_for(lambda: fetch(port), "the server answers", 60)
        run.end()


def test_the_exit_code_is_that_of_the_program(daemon):
    done = daemon.cli("run", "-p", "0:8000", "--", "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n") and "leads to port 8000" in done.stderr


def test_a_port_that_cannot_be_had_leaves_no_session(daemon):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = daemon.cli("run", "-p", f"{taken.getsockname()[1]}:8000", "--", "true")
        assert refused.returncode == 125 and "--publish" in refused.stderr and "another port" in refused.stderr
    for wrong in ("x", "0", "70000", "1:2:3", "0.0.0.0:80:80", "80:0"):
        refused = daemon.cli("run", "-p", wrong, "--", "true")
        assert refused.returncode == 125 and "LOCAL:" in refused.stderr, (wrong, refused.stderr)
    refused = daemon.cli("run", "-d", "-p", "0:80", "--", "true")
    assert refused.returncode == 125 and "sandglass port" in refused.stderr
    assert daemon.api("GET", "/sessions").json["sessions"] == []
