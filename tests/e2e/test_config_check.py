# SPDX-License-Identifier: Apache-2.0
"""`config check` refuses what `serve` would refuse, in the same words, and `serve` refuses what it could not keep."""
import json
import os
import subprocess

import pytest

from conftest import INSTANCE, SANDGLASS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's daemon does not change its user")


def both(work, settings):
    file = work / "sandglass.yaml"
    file.write_text(json.dumps({"state_dir": str(work / "state"), "instance": INSTANCE, "pool": {"size": 0},
                                "listen": [f"unix:{work}/run/s.sock"], **settings}))
    environment = {**os.environ, "HOME": str(work)}
    checked = subprocess.run([SANDGLASS, "config", "check", file], capture_output=True, text=True, timeout=30, env=environment)
    served = subprocess.run([SANDGLASS, "serve", "--config", file], capture_output=True, text=True, timeout=30, env=environment)
    assert served.returncode == 1, served
    return checked, [line for line in served.stderr.splitlines() if line.startswith("sandglass: ")]


@pytest.mark.parametrize("settings, words", [
    ({"sandbox": {"require": ["seccomp", "moat"]}}, 'sandbox.require: "moat" is not one of namespaces'),
    ({"sandbox": {"template": "nope"}}, 'sandbox.template: unknown template "nope"'),
    ({"sandbox": {"mounts": [{"host_path": "/nope", "path": "/x"}]}}, 'sandbox.mounts: "/nope" does not exist on the host'),
    ({"tls": {"certificate": "/nope", "key": "/nope"}}, "tls.certificate: read /nope: No such file"),
    ({"audit": {"file": "/nope/audit.log"}}, "audit.file: directory /nope does not exist"),
    pytest.param({"listen": ["127.0.0.1:22"]}, "listen: 127.0.0.1:22: ports below 1024 need root", marks=as_root),
    pytest.param({"audit": {"file": "/etc/audit.log"}}, "cannot keep the audit log in /etc", marks=as_root),
])
def test_what_cannot_be_is_refused_by_both(work, settings, words):
    checked, served = both(work, settings)
    assert checked.returncode == 1 and words in checked.stderr, checked
    assert served == checked.stderr.replace("hint: ", "").splitlines()
    assert not (work / "state" / "sandglass.db").exists(), "nothing was begun"


@pytest.mark.parametrize("wall", ["namespaces", "net", "uid_range", "disk", "network"])
def test_walls_that_are_required_and_cannot_be_had_stop_the_start(work, wall):
    _, served = both(work, {"sandbox": {"backend": "direct", "require": ["no_new_privs", wall]}})
    assert f'sandbox.require names "{wall}", which the backend direct cannot provide on this host' in served[0], served


def test_an_io_limit_that_is_required_and_not_set_stops_the_start(work):
    _, served = both(work, {"sandbox": {"require": ["io"]}})
    assert 'sandbox.require names "io"' in served[0], served


def test_walls_that_are_there_may_be_required(make_daemon):
    walls = ["seccomp", "no_new_privs", "namespaces", "cgroup", "disk", "network"]
    daemon = make_daemon(backend="native", settings={"sandbox": {"backend": "native", "require": walls}})
    assert daemon.execute(daemon.session(), ["true"])["exit_code"] == 0
