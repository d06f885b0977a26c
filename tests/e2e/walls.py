# SPDX-License-Identifier: Apache-2.0
"""What tests of the backends docker and gvisor share: engines of their own, a listener between daemon and engine, and what a container is."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import tempfile
import threading

import pytest

import real_engine
from conftest import INSTANCE, free_port, wait_for
from engine import Engine, EngineError, certificates, private

SLEEP = "echo begun; sleep 1000"


def skip_without(backend):
    if real_engine.why_not(backend):
        pytest.skip(real_engine.why_not(backend))


@contextlib.contextmanager
def own_engine(name, **options):
    """An engine that a test may kill."""
    skip_without("docker")
    engine = Engine(f"{name}-{os.getpid()}", **options)
    try:
        engine.start()
        engine.load_images()
        yield engine
    finally:
        engine.end()
        assert private.leftovers(engine.directory) == {}


@contextlib.contextmanager
def remote_engine():
    """An engine on TCP that takes only clients with a certificate; `client` and `stranger` are the settings of daemons."""
    skip_without("docker")
    place = pathlib.Path(tempfile.mkdtemp(prefix="sgc-"))
    try:
        certificates.make(place)
        place.chmod(0o711)
        for path in place.iterdir():
            path.chmod(0o644)
        address = f"tcp://127.0.0.1:{free_port()}"
        with own_engine("remote", network=False, live_restore=True, hosts=[address], settings=certificates.settings(place)) as engine:
            for name in ("client", "stranger"):
                setattr(engine, name, {"host": address, "pull": "never", "tls": {
                    "ca": f"{place}/ca.pem", "cert": f"{place}/{name}.pem", "key": f"{place}/{name}-key.pem"}})
            yield engine
    finally:
        shutil.rmtree(place)


def ours(engine):
    """Containers of the daemons of this test session: name -> state."""
    return {row["Names"][0]: row["State"] for row in engine.api.containers(sandglass_instance=None)
            if row["Labels"]["sandglass.instance"].startswith(INSTANCE)}


def strays(engine):
    """Processes for containers that the engine does not have."""
    before = private.engine_processes(engine.directory)
    known = {row["Id"] for row in engine.api.containers()}
    after = private.engine_processes(engine.directory)
    return {pid: command for pid, command in before.items() if pid in after and pid not in getattr(engine, "forgotten", {})
            and (ids := set(real_engine.CONTAINER_ID.findall(command))) and not known & ids}


@contextlib.contextmanager
def watched(engine):
    """Runs the engine if a test has left it dead, and ends with nothing of ours in it. Others' containers are the test's business."""
    if not engine.is_running():
        engine.start()
    yield engine
    if not engine.is_running():
        engine.start()
    wait_for(lambda: not ours(engine) and not strays(engine), f"nothing is left: {ours(engine)} {strays(engine)}", 15)


def show(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json


def container_of(daemon, session):
    return show(daemon, session)["sandbox"]["container"]


def begin(daemon, session, command=SLEEP, **options):
    """The path of a program in the background that has written something."""
    run = daemon.api("POST", f"/sessions/{session}/executions", {"command": command, "background": True, **options}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: daemon.api("GET", path + "/output?stream=stdout").body, "the program runs")
    return path


def result(daemon, path, seconds=30):
    return wait_for(lambda: (run := daemon.api("GET", path, expect=200).json)["state"] not in ("queued", "running") and run, f"{path} ends", seconds)


def says_up(daemon, session):
    """Whether a new program runs in the session."""
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"command": "echo up"}, timeout=60)
    return answer.status == 201 and (answer.json["state"], answer.json["stdout"]) == ("exited", "up\n")


class Tap:
    """A socket before an engine's, which notes the first lines of requests and passes everything on."""

    def __init__(self, directory, engine):
        self.path = directory / "tap.sock"
        self.engine = engine
        self.bytes = bytearray()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.path.chmod(0o666)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def host(self):
        return f"unix://{self.path}"

    def requests(self, pattern=r".*"):
        lines = re.findall(rb"^((?:GET|POST|PUT|DELETE) \S+) HTTP/1", bytes(self.bytes), re.M)
        return [line.decode() for line in lines if re.search(pattern, line.decode())]

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self.engine.socket))
                threading.Thread(target=self.pump, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self.pump, args=(far, near, False), daemon=True).start()

    def pump(self, source, sink, is_noted):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_noted:
                    self.bytes += b"\n" + data if data[:5].split(b" ")[0] in (b"GET", b"POST", b"PUT", b"DELET") else data
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def behind_the_back(call, *arguments):
    """A request whose own answer does not matter: the daemon may be quicker with the same."""
    with contextlib.suppress(EngineError):
        call(*arguments)
