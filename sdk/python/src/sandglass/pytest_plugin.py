# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for tests, and none of them left afterwards.

Fixtures: `sandbox` (a fresh session for each test), `sandbox_session` (one for each worker process) and
`sandglass_client`. Each worker process has an owner of its own, exported to the code under test in
`SANDGLASS_ON_BEHALF_OF`; sessions that a test leaves are destroyed after it, and everything of the owner at the end of
the run, also when the worker crashes or is killed: the daemon watches a lease.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from typing import Any, Dict, Iterator, List, Optional, Set

import pytest

from .client import Client
from .errors import SandglassError, Unavailable
from .scope import Scope, mint_owner
from .session import Session

PROPERTY = "destroyed_sandbox_sessions"
LABEL = "pytest"
KEY_LIMIT = 200
GONE_SECONDS = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sandglass", "sandboxes")
    group.addoption("--sandglass-url", metavar="URL", default=None,
                    help="the daemon: unix:PATH or http://HOST:PORT; else $SANDGLASS_URL, else the default socket, "
                         "else a private one is started when a fixture needs it")
    group.addoption("--sandglass-private", action="store_true",
                    help="start a private daemon for this run, for all workers together")
    group.addoption("--sandglass-backend", metavar="NAME", default=None, help="backend of a private daemon")
    parser.addini("sandglass_cleanup", default="test",
                  help="when sessions that the code under test leaves are destroyed: after each 'test' (default), or at "
                       "the end of the 'run'")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sandbox(**options): create options for the session of the fixture 'sandbox'")
    config.pluginmanager.register(_Plugin(config), "sandglass-run")


class PrivateDaemon:
    """A daemon that ends, with everything it made, when it is stopped or when this process dies."""

    def __init__(self, backend: Optional[str] = None) -> None:
        binary = os.environ.get("SANDGLASS_BIN") or shutil.which("sandglass")
        if not binary:
            raise Unavailable("no daemon of Sandglass, and no 'sandglass' in PATH to start one",
                              hint="start 'sandglass serve', or set SANDGLASS_BIN")
        command = [binary, "scope", *(["--backend", backend] if backend else []), "--",
                   "sh", "-c", 'echo "$SANDGLASS_URL"; exec cat >/dev/null']
        # In its own process group: Ctrl-C is for the tests, whose sessions are needed until they are torn down.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        if not self.url:
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip()
            self.stop()
            raise Unavailable(f"a private daemon could not be started: {said}")

    def stop(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        process.stdout.close()
        process.stderr.close()


class _Plugin:
    """One run of pytest in one process: the only one, a worker of xdist, or the controller of such workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.input: Dict[str, Any] = getattr(config, "workerinput", {})
        self.is_worker = bool(self.input)
        self.exported = {name: os.environ.get(name) for name in ("SANDGLASS_URL", "SANDGLASS_ON_BEHALF_OF")}
        self.daemon: Optional[PrivateDaemon] = None
        self.client: Optional[Client] = None  # of nobody: to ask for any owner
        self.scope: Optional[Scope] = None
        self.owners: List[str] = []  # of the controller: all that workers have had
        self.kept: Set[str] = set()  # sessions that outlive a test
        self.before: Optional[Set[str]] = None  # at the beginning of the test itself; None when it has none
        self.destroyed = 0
        self.leaked: List[str] = []
        self.problems: List[str] = []

    # --- the daemon and the owner of this process -------------------------------------------------

    def connect(self) -> Client:
        """The daemon, found or started when it is first needed."""
        if self.client is None:
            given = self.config.getoption("sandglass_url")
            client = Client(given, owner="")
            is_private = self.config.getoption("sandglass_private") and not self.is_worker
            if is_private or not _answers(client):
                if not is_private and (given or os.environ.get("SANDGLASS_URL")):
                    raise pytest.UsageError(f"no daemon of Sandglass at {client.url}")
                self.daemon = PrivateDaemon(self.config.getoption("sandglass_backend"))
                client = Client(self.daemon.url, owner="")
            os.environ["SANDGLASS_URL"] = client.url
            self.client = client
        return self.client

    def is_wanted(self) -> bool:
        """Whether to begin at once: a run without sandboxes must not need a daemon."""
        if self.client is None and not self.config.getoption("sandglass_private"):
            given = self.config.getoption("sandglass_url")
            return bool(given or os.environ.get("SANDGLASS_URL")) or _answers(Client(owner=""))
        return True

    def enter(self) -> Client:
        """Takes the owner of this process; what it makes from now on goes with it."""
        if self.scope is None:
            self.scope = self.connect().scope(self.input.get("sandglass_owner"))
            self.scope.open()
            self.scope.export()
        return self.scope.client

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        is_controller = self.config.pluginmanager.hasplugin("dsession")
        if not is_controller and not self.config.getoption("collectonly") and self.is_wanted():
            self.enter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """xdist starts a worker, also in place of a crashed one: it gets an owner that we know."""
        if self.is_wanted():
            self.connect()
            self.owners.append(mint_owner())
            node.workerinput["sandglass_owner"] = self.owners[-1]

    # --- each test ----------------------------------------------------------------------------------

    def cleans_tests(self) -> bool:
        return bool(self.config.getini("sandglass_cleanup") != "run")

    def ids(self) -> Set[str]:
        return {session.id for session in self.enter().sessions()}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.before = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        if self.cleans_tests():
            self.before = self.ids() if self.scope is not None else set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """After all fixtures: what the test itself has made and left goes, too."""
        yield
        own: List[str] = item.stash.get(_own, [])
        try:
            destroyed = own + self.destroy_left()
        except SandglassError as problem:
            self.problems.append(f"{item.nodeid}: {problem}")
            destroyed = own
        if destroyed:
            self.destroyed += len(destroyed)
            item.user_properties.append((PROPERTY, destroyed))

    def destroy_left(self) -> List[str]:
        if self.scope is None or self.before is None:
            return []
        client = self.enter()
        left = self.ids() - self.before - self.kept
        for name in left:
            Session(client, {"id": name}).close()
        return sorted(left)

    # --- the end ------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        try:
            if self.scope is not None:
                owner = self.scope.owner
                self.scope.close()
                if not self.is_worker:
                    self.owners.append(owner)
            if not self.is_worker:
                for owner in self.owners:
                    self.leaked += self.find_leaks(owner)
        except SandglassError as problem:
            self.problems.append(str(problem))
        if self.is_worker:
            self.config.workeroutput["sandglass"] = {  # type: ignore[attr-defined]
                "destroyed": self.destroyed, "problems": self.problems}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        told: Dict[str, Any] = getattr(node, "workeroutput", {}).get("sandglass", {})
        self.destroyed += told.get("destroyed", 0)
        self.problems += told.get("problems", [])

    def find_leaks(self, owner: str) -> List[str]:
        """Sessions of a worker that is gone; the daemon ends those of a killed worker right now."""
        client = self.connect().with_owner(owner)
        deadline = time.monotonic() + GONE_SECONDS
        try:
            while True:
                left = [found.id for found in client.sessions()]
                if not left:
                    return []
                if time.monotonic() > deadline:
                    client.delete_all()
                    return left
                time.sleep(0.05)
        finally:
            client.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.is_worker or self.client is None:
            return
        terminalreporter.write_sep("-", "sandglass")
        terminalreporter.write_line(f"{self.destroyed} session(s) destroyed after tests, {len(self.leaked)} leaked")
        for name in self.leaked:
            terminalreporter.write_line(f"leaked: {name}")
        for problem in self.problems:
            terminalreporter.write_line(f"problem: {problem}")

    def pytest_unconfigure(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.daemon is not None:
            self.daemon.stop()
        for name, value in self.exported.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_own = pytest.StashKey[List[str]]()


def _answers(client: Client) -> bool:
    try:
        client.whoami()
    except Unavailable:
        return False
    return True


def _key(nodeid: str) -> str:
    """The name of a test as a key: unique, however long it is."""
    if len(nodeid.encode()) <= KEY_LIMIT:
        return nodeid
    digest = hashlib.sha256(nodeid.encode()).hexdigest()[:16]
    return f"{nodeid.encode()[:KEY_LIMIT - 17].decode(errors='ignore')}-{digest}"


def _plugin(request: pytest.FixtureRequest) -> _Plugin:
    plugin = request.config.pluginmanager.get_plugin("sandglass-run")
    assert isinstance(plugin, _Plugin)
    return plugin


@pytest.fixture(scope="session")
def sandglass_client(request: pytest.FixtureRequest) -> Client:
    """A client whose sessions belong to this worker process and go with it."""
    return _plugin(request).enter()


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, sandglass_client: Client) -> Iterator[Session]:
    """A fresh session, named after the test and destroyed after it. `@pytest.mark.sandbox(memory_bytes="512m")` and the like
    are its create options."""
    marker = request.node.get_closest_marker("sandbox")
    options: Dict[str, Any] = dict(marker.kwargs) if marker else {}
    name = _key(request.node.nodeid)
    options.setdefault("key", name)
    options["labels"] = {LABEL: name, **options.get("labels", {})}
    session = sandglass_client.session(**options)
    try:
        yield session
    finally:
        session.close()
        request.node.stash.setdefault(_own, []).append(session.id)


@pytest.fixture(scope="session")
def sandbox_session(request: pytest.FixtureRequest, sandglass_client: Client) -> Iterator[Session]:
    """One session for all tests of this worker process."""
    worker = _plugin(request).input.get("workerid", "main")
    session = sandglass_client.session(key=f"pytest-worker-{worker}", labels={LABEL: f"worker {worker}"})
    _plugin(request).kept.add(session.id)
    try:
        yield session
    finally:
        session.close()
