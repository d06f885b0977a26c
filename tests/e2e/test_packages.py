# SPDX-License-Identifier: Apache-2.0
"""Root of a sandbox installs packages into its own root file system: dpkg, apt from a repository, pip from a wheel."""
import io
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changing /usr of the host template needs root")

CONTROL = """Package: {name}
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.org>
Depends: {depends}
Description: for a test
"""

# What maintainer scripts do: make a user, give files away, set a file capability.
POSTINST = """#!/bin/sh
set -e
adduser --system --group --quiet --home /var/lib/sgsvc sgsvc
touch /var/lib/sgsvc/data
chown sgsvc:sgsvc /var/lib/sgsvc/data
chmod 4750 /usr/bin/sg-service
"""


def make_package(directory, name, depends="", postinst=None):
    """A .deb with one program that prints its name."""
    tree = directory / name
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL.format(name=name, depends=depends or "base-files"))
    program = tree / "usr/bin" / name
    program.write_text(f"#!/bin/sh\necho this is {name}\n")
    program.chmod(0o755)
    if postinst:
        (tree / "DEBIAN/postinst").write_text(postinst)
        (tree / "DEBIAN/postinst").chmod(0o755)
    package = directory / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, stdout=subprocess.DEVNULL)
    return package


def describe(package):
    """The entry of a repository's index."""
    fields = subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True, text=True).stdout
    digest = subprocess.run(["sha256sum", package], check=True, capture_output=True, text=True).stdout.split()[0]
    return f"{fields}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n"


def make_wheel():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("sgwheel.py", "def hello():\n    return 'this is a wheel'\n")
        wheel.writestr("sgwheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sgwheel\nVersion: 1.0\n")
        wheel.writestr("sgwheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("sgwheel-1.0.dist-info/RECORD", "")
    return content.getvalue()


@pytest.fixture
def box(make_daemon):
    daemon = make_daemon(backend="native")
    session = daemon.session()

    class Box:
        def put(self, path, content):
            daemon.api("PUT", f"/sessions/{session}/files?path={path}", content)

        def run(self, command, user="root"):
            body = {"command": command, "user": user, "timeout": 120}
            ended = daemon.api("POST", f"/sessions/{session}/executions", body, expect=201, timeout=150).json
            assert ended["exit_code"] == 0, ended["stdout"] + ended["stderr"]
            return ended["stdout"] + ended["stderr"]

    return Box()


def test_apt_installs_from_a_repository(box, work):
    packages = [make_package(work, "sg-tool"), make_package(work, "sg-service", "sg-tool, adduser", POSTINST)]
    for package in packages:
        box.put(f"/tmp/repo/{package.name}", package.read_bytes())
    box.put("/tmp/repo/Packages", "".join(map(describe, packages)))
    box.run("rm -rf /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] file:/tmp/repo ./' > /etc/apt/sources.list; "
            "apt-get update")
    output = box.run("apt-get install -y sg-service")
    assert "warning" not in output.replace("dpkg-preconfigure", ""), output
    assert box.run("sg-tool; stat -c %U /var/lib/sgsvc/data; dpkg-query -W -f '${Status}\\n' sg-service", "user") == \
        "this is sg-tool\nsgsvc\ninstall ok installed\n"
    box.run("apt-get remove -y sg-tool && ! test -e /usr/bin/sg-service")
    assert not pathlib.Path("/usr/bin/sg-tool").exists()
    shutil.rmtree(work / "sg-tool")


def test_dpkg_installs_a_file_and_removes_it(box, work):
    box.put("/tmp/a.deb", make_package(work, "sg-tool").read_bytes())
    box.run("dpkg -i /tmp/a.deb && sg-tool && dpkg -r sg-tool && ! test -e /usr/bin/sg-tool")


@pytest.mark.parametrize("user", ["root", "user"])
def test_pip_installs_a_wheel(box, user):
    name = "sgwheel-1.0-py3-none-any.whl"
    box.put(f"/tmp/{name}", make_wheel())
    box.run(f"python3 -m pip install --no-index --break-system-packages /tmp/{name}", user)
    assert box.run("python3 -c 'import sgwheel; print(sgwheel.hello())'", user) == "this is a wheel\n"
