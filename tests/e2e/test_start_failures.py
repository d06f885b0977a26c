# SPDX-License-Identifier: Apache-2.0
"""A sandbox that cannot be made: what will not pass is said at once, with its stage, and the same each time."""
import io
import subprocess
import tarfile

import pytest

from conftest import SANDGLASS


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(backend="native", settings={"pool": {"size": 0}})


def template(daemon, verb, *arguments, stdin=None):
    return subprocess.run([SANDGLASS, "template", verb, "--state", daemon.state, *arguments], input=stdin, capture_output=True, timeout=30,
                          check=True)


def archive():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("etc")
        member.type = tarfile.DIRTYPE
        member.mode = 0o755
        tar.addfile(member)
    return packed.getvalue()


def test_an_unknown_template_is_refused_when_it_is_asked_for(daemon):
    template(daemon, "import", "tiny", "-", stdin=archive())
    assert daemon.api("GET", "/templates", expect=200).json["templates"] == [{"name": "host", "default": True},
                                                                            {"name": "tiny", "default": False}]
    for preload in (True, False):
        error = daemon.api("POST", "/sessions", {"template": "nope", "preload": preload}, expect=400).json["error"]
        assert (error["code"], error["retryable"]) == ("template_unknown", False)
        assert '"nope"' in error["message"] and "host, tiny" in error["message"] and "template import" in error["hint"]
    assert daemon.api("GET", "/sessions", expect=200).json["total"] == 0


def test_a_start_that_cannot_work_fails_the_same_each_time(daemon):
    template(daemon, "import", "tiny", "-", stdin=archive())
    session = daemon.session(template="tiny", preload=False)
    template(daemon, "rm", "tiny")
    errors = [daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]}).json["error"] for _ in range(3)]
    assert errors[0]["message"].startswith("build the sandbox: ") and "template" in errors[0]["message"]
    assert all((error["code"], error["message"], error["retryable"]) == (errors[0]["code"], errors[0]["message"], False) for error in errors)
    assert "trying again" not in daemon.log()


def test_a_daemon_without_sandboxes_says_so_at_once(make_daemon):
    daemon = make_daemon(backend="none", settings={"pool": {"size": 0}})
    session = daemon.session()
    for _ in range(3):
        answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]})
        assert (answer.status, answer.json["error"]["code"], answer.json["error"]["retryable"]) == (503, "sandboxes_disabled", False)
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    assert "trying again" not in daemon.log()
