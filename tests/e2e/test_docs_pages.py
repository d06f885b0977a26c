# SPDX-License-Identifier: Apache-2.0
"""The rooms "Start" and "How to": each page does what it says when its commands are typed in their order."""
import contextlib
import fcntl
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

import doc_page
from conftest import ROOT, SANDGLASS, free_port, wait_for
from registry import PROGRAM as REGISTRY
from registry import Registry, layer
from test_network_open import HOST, NFT, OUTSIDE, network_of, run

START = ROOT / "docs" / "start"
HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture
def reader(work, make_daemon):
    """reader(daemon, {text of a page: what it is here}) is somebody who reads pages."""
    made = []

    def make(daemon=None, replace=None):
        made.append(doc_page.Reader(work, daemon or make_daemon(backend="native"), replace))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("page", ["cost", "keep-files", "secrets", "streaming", "restart", "delete-everything", "why-did-it-die", "non-root"])
def test_a_page_that_needs_nothing_but_a_daemon(reader, page):
    reader().read(HOW_TO / f"{page}.md")


@pytest.mark.parametrize("page", ["first-session", "from-docker"])
def test_the_first_pages(reader, page):
    reader().read(START / f"{page}.md")


@pytest.fixture
def internet(work):
    """The pid of a process in the network of a host, behind which a web server is."""
    own = os.readlink("/proc/self/ns/net")
    processes = [subprocess.Popen(["unshare", "--net", "sleep", "1000"]) for _ in range(2)]
    for process in processes:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own, "it has a network of its own")
    machine, world = (process.pid for process in processes)
    with network_of(machine):
        run(f"ip link set lo up && ip link add w0 type veth peer name w1 netns {world} && ip addr add {HOST}/24 dev w0 && "
            f"ip link set w0 up && ip route add default via {OUTSIDE}")
    with network_of(world):
        run(f"ip link set lo up && ip addr add {OUTSIDE}/24 dev w1 && ip link set w1 up")
        processes.append(subprocess.Popen([sys.executable, "-m", "http.server", "8000"], cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_for(lambda: socket.socket().connect_ex((OUTSIDE, 8000)) == 0, "the web server answers")
    yield machine
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() != 0 or not NFT.exists(), reason="network open needs root and nft")
def test_internet(reader, make_daemon, internet):
    daemon = make_daemon(backend="native", start=False, settings={"pool": {"size": 0}})
    with network_of(internet):
        daemon.start()
    reader(daemon, {"https://example.com": f"http://{OUTSIDE}:8000"}).read(HOW_TO / "internet.md")


def test_mount(reader, work):
    models = work / "models"
    models.mkdir(mode=0o755)
    (models / "weights").touch()
    for name in ("data", "results"):
        (work / name).mkdir(mode=0o755)
    reader(replace={"/srv/models": str(models), "/srv/data": f"{work}/data", "/srv/results": f"{work}/results"}).read(HOW_TO / "mount.md")
    assert (work / "results" / "report").read_text() == "done\n"


def test_packages(reader, work):
    try:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-qd", work / "probe", "six"], check=True, timeout=60, capture_output=True)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("PyPI cannot be reached")
    one = reader(replace={"host_path: /srv/python": f"host_path: {work}/python", "venv /srv/python": f"venv --copies {work}/python",
                          "/srv/python/bin/pip": f"{work}/python/bin/pip"})
    one.read(HOW_TO / "packages.md")
    assert one.noted == ["apt-get install -y python3-numpy"]


def closure(program):
    """A program with its libraries: {path: (content, mode)}."""
    linked = subprocess.check_output(["ldd", program], text=True).split()
    return {path.lstrip("/"): (pathlib.Path(path).read_bytes(), 0o755) for path in [program, *[word for word in linked if word.startswith("/")]]}


@pytest.mark.skipif(not REGISTRY, reason="docker-registry is not installed")
def test_images(reader, work):
    server = Registry(work / "registry").start()
    try:
        server.push("library/python", "3.12-slim", [layer({**closure("/bin/cat"), "etc/os-release": b"NAME=Page\n"})], {})
        one = reader(replace={"template pull python": f"template pull --insecure --name python-3.12-slim {server.host}/library/python"})
        one.read(HOW_TO / "images.md")
        assert "NAME=Page" in (work / "out1").read_text()
    finally:
        server.stop()


def test_ports(reader):
    port = str(free_port())
    reader(replace={"8080": port}).read(HOW_TO / "ports.md")


def test_many_users(reader, work):
    one = reader(replace={"--keys-file keys": f"--keys-file {work}/etc/keys"})
    one.read(HOW_TO / "many-users.md")


def test_many_machines(work):
    """The settings; tests/cluster runs the commands of the long page."""
    [settings] = [text for language, text, _ in doc_page.blocks(HOW_TO / "many-machines.md") if language == "yaml"]
    for name in ("keys", "secret"):
        (work / name).write_text("0" * 64)
        (work / name).chmod(0o600)
    file = work / "settings.yaml"
    file.write_text(settings.replace("/etc/sandglass", str(work)))
    checked = subprocess.run([SANDGLASS, "config", "check", file], capture_output=True, text=True, timeout=60)
    assert "unknown setting" not in checked.stderr and "expected" not in checked.stderr, checked.stderr


def test_ci(reader):
    reader().read(HOW_TO / "ci.md")


def test_coming_from_e2b(reader):
    port = str(free_port())
    reader(replace={"127.0.0.1:3000": f"127.0.0.1:{port}"}).read(START / "from-e2b.md")


def test_install(reader, work):
    """As in a clone in which the scripts were run: they leave the program that is tested here."""
    one = reader()
    (one.here / "scripts").mkdir()
    (one.here / "build").mkdir()
    (one.here / "build" / "sandglass").symlink_to(SANDGLASS)
    for name in ("quickstart", "install"):
        doc_page.write_program(one.here / "scripts" / name, "#!/bin/sh\nexit 0\n")
        assert os.access(ROOT / "scripts" / name, os.X_OK)
    one.read(START / "install.md")
    assert one.noted == ["adduser ann sandglass"]


class Readme(doc_page.Reader):
    """Somebody who begins with a clone: the scripts have left the program that is tested here, and no daemon runs before `serve`."""

    def __init__(self, work, daemon):
        super().__init__(work, daemon)
        (self.here / "build").mkdir()
        (self.here / "build" / "sandglass").symlink_to(SANDGLASS)
        (self.here / "scripts").mkdir()
        for name in ("quickstart", "install"):
            doc_page.write_program(self.here / "scripts" / name, "#!/bin/sh\nexit 0\n")

    def environment(self, programs):
        return {name: value for name, value in super().environment(programs).items() if name != "SANDGLASS_URL"}

    def type(self, commands):
        printed = super().type(commands)
        if "sandglass serve" in commands:
            wait_for(self.daemon.answers, "the daemon answers")
        return printed

    def has_ended(self):
        """Whether no daemon has the lock of the state directory."""
        lock = self.daemon.state / "lock"
        with contextlib.suppress(BlockingIOError), open(lock if lock.exists() else os.devnull) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def close(self):
        """The daemon of the page writes to its files until it has ended."""
        super().close()
        wait_for(self.has_ended, "the daemon has ended")


def test_the_readme_from_its_first_line_to_its_last(work, make_daemon):
    daemon = make_daemon(backend="native", start=False)
    (daemon.directory / "sandglass.yaml").write_text(json.dumps({**daemon.settings, "listen": [daemon.url]}))
    daemon.answers = lambda: daemon.socket.exists() and daemon.cli("ls").returncode == 0
    one = Readme(work, daemon)
    try:
        one.read(ROOT / "README.md")
        assert '"stdout":"42\\n"' in "".join(file.read_text() for file in work.glob("out*")).replace('": "', '":"')
    finally:
        one.close()  # the daemon, too


HERE = {"ci", "cost", "delete-everything", "first-session", "from-docker", "from-e2b", "images", "install", "internet", "keep-files", "many-machines", "many-users", "mount",
        "non-root", "packages", "ports", "restart", "secrets", "streaming", "why-did-it-die"}
ELSEWHERE = {"chat-page": "test_chat_page.py", "cluster": "tests/cluster/test_docs_cluster.py", "containers": "test_docs_docker.py", "docker": "test_docs_docker.py",
             "gvisor": "test_docs_docker.py", "kubernetes": "tests/kubernetes", "kubernetes-backend": "test_docs_kubernetes.py",
             "kubernetes-claims": "test_kubernetes_claims.py"}


def test_every_page_with_commands_is_read_by_a_test():
    with_commands = {path.stem for room in (START, HOW_TO) for path in room.glob("*.md") if any(language == "sh" for language, _, _ in doc_page.blocks(path))}
    assert with_commands <= HERE | set(ELSEWHERE)
