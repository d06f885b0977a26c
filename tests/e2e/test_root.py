# SPDX-License-Identifier: Apache-2.0
"""The root of the host template: /usr is the machine's own, everything else is made up, and all of it can be changed."""
import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="without root /usr cannot be changed")

SKELETON = set("bin dev etc home lib lib64 media mnt opt proc root run sbin srv sys tmp usr var".split())


@pytest.fixture
def shell(make_daemon):
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}})
    session = daemon.session()

    def run(command):
        result = daemon.execute(session, command=f"set -e\n{command}", user="root")
        assert result["exit_code"] == 0, result
        return result["stdout"]
    return run


def test_nothing_of_the_host_shows_but_usr(shell):
    assert set(shell("ls -A /").split()) == SKELETON
    assert set(shell("ls -A /usr").split()) == set(os.listdir("/usr"))
    for folder in ("bin", "lib", "share"):
        assert set(shell(f"ls -A /usr/{folder}").splitlines()) == set(os.listdir(f"/usr/{folder}"))
    assert not set(os.listdir("/usr/etc") if os.path.isdir("/usr/etc") else []) & set(shell("ls -A /etc").split())


def test_folders_look_like_those_of_the_host(shell):
    names = sorted(os.listdir("/usr"))
    status = [os.lstat(f"/usr/{name}") for name in names]
    seen = shell(f"cd /usr; stat -c '%f %u %g %Y' {' '.join(names)}").splitlines()
    assert seen == [f"{s.st_mode:x} {s.st_uid} {s.st_gid} {int(s.st_mtime)}" for s in status]


def test_folders_of_usr_can_be_moved(shell):
    perl = sorted(os.listdir("/usr/share/perl"))
    assert shell("touch /usr/share/new; mv /usr/share /usr/other; ls /usr/other/new /usr/other/perl").split() == \
        ["/usr/other/new", "/usr/other/perl:", *perl]
    assert shell("mv /usr/other/perl /opt/perl; ls /opt/perl").split() == perl
    assert shell("mv /usr/other /srv/share; ls /srv/share/new; test ! -e /srv/share/perl; test ! -e /usr/share").strip() == "/srv/share/new"


def test_folders_of_usr_can_be_removed_and_made(shell):
    assert shell("rm -r /usr/include; mkdir /usr/include; ls -A /usr/include") == ""
    assert shell("mkdir /include /share; ls -A /include /share").split() == ["/include:", "/share:"]
    assert shell("rmdir /share; ls -A /").split() == sorted(SKELETON | {"include"})


def test_files_of_usr_can_be_changed(shell):
    assert shell("ln /usr/bin/env /usr/local/bin/env2; stat -c %h /usr/bin/env").strip() == "2"
    assert shell("echo more >> /usr/lib/os-release; tail -1 /usr/lib/os-release").strip() == "more"
    assert shell("rm /usr/bin/env; test ! -e /bin/env; /usr/local/bin/env2 true; echo gone").strip() == "gone"
    assert "more" not in open("/usr/lib/os-release").read().splitlines()
