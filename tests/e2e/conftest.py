# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests: a daemon of one's own, its CLI and API, and a check that nothing is left."""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

import real_cluster
import real_engine
import real_redis

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("SANDGLASS_BUILD", ROOT / "build-gcc"))
SANDGLASS = BUILD / "sandglass"
BACKENDS = os.environ.get("SANDGLASS_BACKENDS", "direct native").split()  # which ones the tests for all of them run with
WALLS = next((name for name in BACKENDS if name != "direct"), "native")  # for tests that need walls and do not care which
ELSEWHERE = (*real_engine.ENGINE_BACKENDS, real_cluster.BACKEND)  # that make sandboxes through a server that is not ours
DEFAULT = WALLS if WALLS in ELSEWHERE else None  # of daemons for which a test names none
LIMITED_DISK = {"docker": {"read_only": True}} if DEFAULT in real_engine.ENGINE_BACKENDS else {}  # settings with which sandboxes have a limit for their files
WHOLE_FILES = os.environ["SANDGLASS_WHOLE_FILES"].split() if "SANDGLASS_WHOLE_FILES" in os.environ else None  # see is_of_this_part()
ONLY_ENGINE = set(BACKENDS) <= set(ELSEWHERE)
SLOWER = {"docker": 6, "gvisor": 12, "kubernetes": 20}.get(DEFAULT, 1)  # how much longer a sandbox and its programs take to start, for timeouts that have to come after that
RELEASE = os.environ.get("SANDGLASS_RELEASE") == "1"  # whether tests run that build the program again, see needs_release()
RELAY = os.environ.get("SANDGLASS_RELAY") == "1"  # whether daemons reach their sandboxes over the bridge, as if these were on other machines

# A suite that is started in the background inherits an ignored SIGINT, and one that nohup starts an ignored SIGHUP; so would every program
# that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def wait_for(condition, what, seconds=30.0):
    """Waits until condition() is true and returns its value; fails with `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    complete = staticmethod(lambda document: document)  # what a test knows beside the daemon

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return self.complete(json.loads(self.body))


claims = collections.deque()  # of the ports that were given out last


def free_port():
    """A TCP port of the loopback that nobody has at the moment, and that the kernel gives to nobody by itself: it is below the ephemeral ones.
    Other test processes of this host do not get it either, while the caller has not bound it yet."""
    while True:
        port = random.randrange(10000, 30000)
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            claim.bind(f"\0sandglass-test-port-{port}")
            probe.bind(("127.0.0.1", port))
            claims.append(claim)
            if len(claims) > 64:
                claims.popleft().close()
            return port
        claim.close()


class Daemon:
    """One daemon process with a temporary state directory."""

    def __init__(self, directory, settings=None, backend=None, environment=None, tcp=False, prefix=()):
        self.directory = pathlib.Path(directory)
        self.state = self.directory / "state"
        self.socket = self.directory / "run" / "sandglass.sock"
        self.url = f"unix:{self.socket}"
        # One ready sandbox is enough to be handed out; four for each daemon of a test would keep the machine busy.
        self.settings = {"state_dir": str(self.state), "instance": INSTANCE, "shutdown": {"policy": "destroy"},
                         "pool": {"size": 1}, **(settings or {})}
        backend = backend or self.settings.get("sandbox", {}).get("backend") or DEFAULT
        if ONLY_ENGINE and backend not in BACKENDS:
            pytest.skip(f"another backend: this is about {backend}")
        if backend:
            self.settings["sandbox"] = {**self.settings.get("sandbox", {}), "backend": backend}
        self.settings = real_engine.settings_for(backend, self.settings)
        self.settings = real_cluster.settings_for(backend, self.settings)
        self.settings = real_redis.settings_for(self.state, self.settings)
        if RELAY:
            self.settings["sandbox"] = {"relay": True, **self.settings.get("sandbox", {})}
        self.environment = environment or {}
        self.prefix = prefix  # a command that starts it with less power
        self.port = free_port() if tcp else None
        self.process = None
        self.log_path = self.directory / "daemon.log"

    def spawn(self):
        """Starts it without waiting until it serves."""
        config = self.directory / "sandglass.yaml"
        config.write_text(json.dumps(self.settings))  # JSON is YAML
        also = ["--listen", f"127.0.0.1:{self.port}"] if self.port else []
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, SANDGLASS, "serve", "--config", config, "--listen", self.url, *also],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **self.environment})

    def start(self):
        self.spawn()
        wait_for(self.is_ready, "the daemon is ready:\n" + self.log(), 60)
        return self

    def is_ready(self):
        if self.process.poll() is not None:
            pytest.fail(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
        try:
            return self.request("GET", "/readyz").status == 200
        except OSError:
            return False

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def request(self, method, path, body=None, headers=None, timeout=30):
        connection = UnixConnection(str(self.socket), timeout)
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def api(self, method, path, body=None, expect=None, **options):
        answer = self.request(method, "/api/v1" + path, body, **options)
        if self.settings.get("sandbox", {}).get("backend") == real_cluster.BACKEND:
            answer.complete = real_cluster.add_pid
        if expect is not None:
            assert answer.status == expect, f"{method} {path}: {answer.status} {answer.body[:2000]!r}"
        return answer

    def session(self, **options):
        return self.api("POST", "/sessions", options, expect=201).json["id"]

    def execute(self, session, argv=None, **options):
        body = {"argv": argv, **options} if argv else options
        return self.api("POST", f"/sessions/{session}/executions", body, expect=201).json

    def cli(self, *arguments, stdin=None, environment=None, timeout=60, text=True):
        return subprocess.run([SANDGLASS, *map(str, arguments)], input=stdin, capture_output=True, text=text,
                              timeout=timeout,
                              env={**os.environ, "SANDGLASS_URL": self.url, **(environment or {})})

    def sandboxes(self):
        """Ids of those that exist, of sessions or not, as whoever makes them knows it."""
        backend = self.settings.get("sandbox", {}).get("backend")
        if backend in real_engine.ENGINE_BACKENDS:
            return real_engine.sandboxes_of(self.state)
        if backend == real_cluster.BACKEND:
            return real_cluster.sandboxes_of(self.settings["instance"])
        return {entry.name for entry in (self.state / "sandboxes").glob("sbx_*")}

    def token(self, port=None):
        """What clients of this host send over TCP where authentication is off; None where it is on."""
        file = self.state / f"token-{port or self.port}"
        return file.read_text().strip() if file.exists() else None

    def ended(self, session, **options):
        """The final record of a session that has ended, None of one that has not."""
        answer = self.api("GET", f"/sessions/{session}", expect=200, **options)
        return answer if answer.json["state"] == "ended" else None

    def kill(self):
        """kill -9, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def audit_lines(self):
        """The complete lines of the audit log; the daemon may be writing another one behind them."""
        log = self.state / "audit.log"
        return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []

    def stop(self, seconds=30):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the daemon did not stop within {seconds} s:\n{self.log()[-4000:]}")
        # What it does by itself its own filter must not refuse.
        assert "refused a system call" not in self.log(), self.log()[-4000:]

    def resident_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def descriptors(self):
        """How many it has; the second file of the redo log is there from when the first is full."""
        count = 0
        for link in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += "-redo" not in os.readlink(link)
        return count


# Marks what this run makes: other daemons on the machine are not our business. No other mark begins with it.
INSTANCE = f"e2e-{os.getpid():07d}"


def read_process(pid):
    """Name, command line and cgroups of a process that still lives, or None."""
    entry = pathlib.Path("/proc") / str(pid)
    try:
        status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        cgroups = (entry / "cgroup").read_text()
        name = (entry / "comm").read_text().strip()
    except OSError:
        return None
    return None if status[0] == "Z" else (name, command, cgroups)


def has_open(pid, directory):
    """Whether a process has something below the directory open."""
    with contextlib.suppress(OSError):  # it has ended, or is not for us to look at
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if str(directory) in os.readlink(f"/proc/{pid}/fd/{name}"):
                    return True
    return False


def our_processes(directory):
    """Daemons and commands of this test, their launchers, and all that is in our cgroups."""
    found = {}
    for entry in os.listdir("/proc"):
        process = read_process(entry) if entry.isdigit() else None
        if not process or int(entry) == os.getpid():
            continue
        name, command, cgroups = process
        mine = "sandglass" in command and str(directory) in command
        if mine or INSTANCE in cgroups or (name.startswith("sandglass-") and has_open(entry, directory)):
            found[int(entry)] = f"{name}: {command}"
    return found


def our_mounts(directory):
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


def our_cgroups():
    """Only sandboxes count: the folder that holds them may stay."""
    found = []
    for controller in ("memory", "cpu", "pids", "freezer", "unified", "."):
        for holder in pathlib.Path("/sys/fs/cgroup").glob(f"{controller}/sandglass*{INSTANCE}*"):
            with contextlib.suppress(OSError):  # gone meanwhile, or not for us to look at
                found += [str(holder / name) for name in os.listdir(holder) if name.startswith("sbx_")]
    return found


def leftovers(directory):
    return {"processes": our_processes(directory), "mounts": our_mounts(directory), "cgroups": our_cgroups(),
            **real_engine.leftovers(INSTANCE), **real_cluster.leftovers(INSTANCE)}


def what_is_left(directory):
    """Of the leftovers what there is. Looked at twice before it is nothing: a process may fork and end while the others are looked at."""
    for _ in range(2):
        left = {kind: items for kind, items in leftovers(directory).items() if items}
        if left:
            return left
    return {}


def backend_of(item):
    """The backend that a test is for, or None when it says so only while it runs."""
    return item.callspec.params.get("backend") if hasattr(item, "callspec") else None


def is_for_engine(item):
    """Whether a test has anything to do with the backends of this run, when all of these need an engine."""
    return {"make_daemon", "daemons", "engine"} & set(item.fixturenames) and backend_of(item) in (None, *BACKENDS)


def needs_release(item):
    """Whether the program is built again for a test, as for a release, or a template from packages of the network."""
    return "dist" in item.fixturenames or item.get_closest_marker("release") is not None


def is_of_this_part(item):
    """Another part of the run has all tests but those with the backend direct and those of some files."""
    if needs_release(item) and not RELEASE:
        return False
    return WHOLE_FILES is None or backend_of(item) == "direct" or item.path.name in WHOLE_FILES


def pytest_configure(config):
    config.addinivalue_line("markers", "release: takes minutes; only with SANDGLASS_RELEASE=1, as scripts/test --release sets it")


def pytest_collection_modifyitems(config, items):
    """Leaves out what cannot hold over the bridge, or with a backend: relay-differences.txt and the like have a reason for each."""
    is_chosen = {item: is_of_this_part(item) and (not ONLY_ENGINE or is_for_engine(item)) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not is_chosen[item]])
    items[:] = [item for item in items if is_chosen[item]]
    for name in (["relay"] if RELAY else []) + [name for name in BACKENDS if name in ELSEWHERE]:
        different = real_engine.differences(name)
        for item in items:
            reason = different.get(item.name) or different.get(item.name.split("[")[0]) or different.get(item.path.name)
            if reason and (name == "relay" or (backend_of(item) or WALLS) == name):
                item.add_marker(pytest.mark.skip(reason=f"{'over the bridge' if name == 'relay' else f'with {name}'}: {reason}"))


def pytest_sessionstart(session):
    """Before the workers: their engine stays until the last of them has ended."""
    if ONLY_ENGINE and not session.config.option.collectonly and WALLS in real_engine.ENGINE_BACKENDS and not real_engine.why_not(WALLS):
        real_engine.the_engine()


@pytest.hookimpl(trylast=True)  # after the end of the workers
def pytest_sessionfinish():
    """The first process of a session that has had an engine of its own waits until it is gone."""
    real_engine.release()
    real_cluster.release()
    if real_engine.NAME == f"e2e-{os.getpid()}":
        real_engine.shared.wait_until_ended(real_engine.NAME)


def remove_leftovers(left):
    """One test has failed by them; the tests behind it in this process would, too."""
    real_engine.remove_containers(INSTANCE)
    real_cluster.remove_pods(INSTANCE)
    for pid in left.get("processes", {}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run([SANDGLASS, "sweep", "--older-than", "0s", "--instance", INSTANCE], capture_output=True, timeout=60)


@pytest.fixture(autouse=True)
def work():
    """A directory that other users may pass through, as the daemon drops root. Every test ends with no process, mount or cgroup
    of ours, and with this directory removable."""
    path = tempfile.mkdtemp(prefix="sgt-")
    os.chmod(path, 0o711)
    yield pathlib.Path(path)
    deadline = time.monotonic() + 30
    while (left := what_is_left(path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        remove_leftovers(left)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"left behind: {left}"
    assert not os.path.exists(path), f"{path} could not be removed"


@pytest.fixture
def make_daemon(work):
    """make_daemon(**options) starts one; all are stopped at the end."""
    made = []

    def make(**options):
        start = options.pop("start", True)
        directory = work / f"d{len(made)}"
        directory.mkdir(mode=0o711)
        daemon = Daemon(directory, **options)
        made.append(daemon)
        return daemon.start() if start else daemon

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def engine():
    """The Docker engine of this test session: `engine.host` is its address, `engine.api` asks it behind the daemon's back."""
    if real_engine.why_not():
        pytest.skip(real_engine.why_not())
    return real_engine.the_engine()


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def daemon(make_daemon, backend):
    """A daemon for each backend: what is promised holds in all of them."""
    return make_daemon(backend=backend)
