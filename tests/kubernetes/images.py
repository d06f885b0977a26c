# SPDX-License-Identifier: Apache-2.0
"""Images of a test cluster, without a registry: those of tests/engine, the pause container, Redis, and the daemon itself as packaging/docker makes it."""
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from engine import image  # noqa: E402

PAUSE, REDIS, SANDGLASS = "localhost/pause:1", "docker.io/library/redis:7-alpine", "docker.io/library/sandglass:latest"  # as deploy/ names them
TEST = "docker.io/library/sandglass-test:1"
ALSO = "docker.io/library/python:3.12-slim"  # of the pages; here another name of the test image
PAUSE_SOURCE = """#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { _exit(number == SIGTERM ? 0 : 1); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) { } }
int main(void)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    for (;;) { pause(); }
}
"""
DAEMON_ID = 62420  # as the Dockerfile says


def compile_pause(directory):
    program = pathlib.Path(directory) / "pause"
    subprocess.run(["gcc", "-static", "-Os", "-s", "-o", program, "-x", "c", "-"], input=PAUSE_SOURCE, text=True, check=True)
    return program.read_bytes()


def write_pause(stream):
    with tempfile.TemporaryDirectory() as place:
        archive = image.Archive(stream)
        archive.add("pause", compile_pause(place), mode=0o755)
        archive.close()


def write_redis(stream):
    image.write_debian(stream, ["base-files", "dash", "coreutils", "libc-bin", "redis-server", "redis-tools"])


def dockerfile_packages():
    return re.search(r'ARG PACKAGES="([^"]*)"', (ROOT / "packaging/docker/Dockerfile").read_text())[1].split()


def write_base(stream):
    """What the daemon's image has without the program."""
    image.write_debian(stream, [*image.PACKAGES, *dockerfile_packages()])


def program_writer(program):
    """The layer with the program, its user and its directories, as the Dockerfile makes them."""
    def write(stream):
        archive = image.Archive(stream)
        row = f"sandglass:x:{DAEMON_ID}:{DAEMON_ID}::/var/lib/sandglass:/usr/sbin/nologin\n"
        archive.add("etc/passwd", image.PASSWD + row)
        archive.add("etc/group", image.GROUP + f"sandglass:x:{DAEMON_ID}:\n")
        archive.add("usr/local/bin/sandglass", pathlib.Path(program).read_bytes(), mode=0o755)
        archive.add("var/lib/sandglass", mode=0o711, owner=DAEMON_ID)
        archive.add("run/sandglass", mode=0o711, owner=DAEMON_ID)
        archive.close()
    return write


def daemon_config():
    """What the Dockerfile says below its last FROM."""
    text = (ROOT / "packaging/docker/Dockerfile").read_text().replace("\\\n", " ")
    variables = re.search(r"^ENV (.*)$", text, re.M)[1].split()
    return {"User": str(DAEMON_ID), "Env": [f"PATH={image.PATH}", *variables], "Entrypoint": json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1]),
            "Cmd": json.loads(re.search(r"^CMD (.*)$", text, re.M)[1])}


def write_archive(path, name, layers, config):
    """One image as `docker save` writes it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place, tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        digests = []
        for number, write in enumerate(layers):
            layer = pathlib.Path(place) / str(number)
            with open(layer, "wb") as stream:
                write(stream)
            with open(layer, "rb") as stream:
                digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
            tar.add(layer, f"{digests[-1]}.tar")
        content = image.configuration(name, digests, config)
        file = hashlib.sha256(content).hexdigest() + ".json"
        image.add_bytes(tar, file, content)
        manifest = [{"Config": file, "RepoTags": [name], "Layers": [f"{digest}.tar" for digest in digests]}]
        image.add_bytes(tar, "manifest.json", json.dumps(manifest).encode())


def ctr(socket, *arguments):
    subprocess.run(["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", *map(str, arguments)], capture_output=True, check=True)


def load(socket, path):
    ctr(socket, "import", "--all-platforms", path)


def load_own(socket, name, layers, config):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        path = pathlib.Path(place) / "image.tar"
        write_archive(path, name, layers, config)
        load(socket, path)


def load_pause(socket):
    load_own(socket, PAUSE, [write_pause], {"Entrypoint": ["/pause"]})


def load_redis(socket):
    load_own(socket, REDIS, [write_redis], {"User": "65534", "WorkingDir": "/tmp", "Env": [f"PATH={image.PATH}"], "Entrypoint": ["/usr/bin/redis-server"],
                                            "Cmd": ["--protected-mode", "no", "--save", ""]})


def load_daemon(socket, program, name=SANDGLASS):
    load_own(socket, name, [write_base, program_writer(program)], daemon_config())


def load_tests(socket):
    """Those of tests/engine: sandglass-test:1 and its variants, in the cluster docker.io/library/sandglass-test:1."""
    load(socket, image.archive_of_images())
    ctr(socket, "tag", "--force", TEST, ALSO)
