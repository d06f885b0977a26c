# SPDX-License-Identifier: Apache-2.0
"""The image of packaging/docker, built as the page says, with a base that has the packages of the Dockerfile already."""
import os
import re
import shutil
import subprocess
import tempfile

import real_engine
from conftest import BUILD, ROOT, SANDGLASS
from engine import image

BASE = "sandglass-base:1"
DOCKERFILE = ROOT / "packaging" / "docker" / "Dockerfile"


def packages():
    """What the Dockerfile installs."""
    return re.search(r'ARG PACKAGES="([^"]*)"', DOCKERFILE.read_text())[1].split()


def libraries():
    """Packages of the libraries that the program is linked with."""
    paths = re.findall(r"=> (/\S+)", subprocess.run(["ldd", SANDGLASS], capture_output=True, text=True, check=True).stdout)
    names = [os.path.basename(os.path.realpath(path)) for path in paths]
    out = subprocess.run(["dpkg-query", "-S", *(f"*/{name}" for name in names)], capture_output=True, text=True, check=True).stdout
    return {line.split(":")[0] for line in out.splitlines()}


def make_base(engine):
    if BASE in engine.api.images():
        return
    with tempfile.TemporaryFile(dir=engine.directory) as file:
        image.write_debian(file, [*image.PACKAGES, *packages()])
        file.seek(0)
        repository, tag = BASE.split(":")
        engine.api.request("POST", "/images/create", file, fromSrc="-", repo=repository, tag=tag)


def make_context(directory):
    """A clone in which scripts/build was run, as far as the Dockerfile looks at it."""
    shutil.copytree(ROOT / "packaging", directory / "packaging")
    shutil.copy(ROOT / ".dockerignore", directory)
    (directory / "build").mkdir()
    shutil.copy(BUILD / "sandglass", directory / "build")
    return directory


def environment(engine, **more):
    return {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0", "DOCKER_CONFIG": str(engine.directory), "COMPOSE_INTERACTIVE_NO_CLI": "1", **more}


def missing():
    """Why the image cannot be built here, or None."""
    if real_engine.why_not():
        return real_engine.why_not()
    return next((f"{program} is not installed" for program in ("docker", "docker-compose") if not shutil.which(program)), None)
