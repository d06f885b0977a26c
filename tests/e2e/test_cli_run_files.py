# SPDX-License-Identifier: Apache-2.0
"""Files of this machine for a program: run --copy, run --mount, execute FILE; and the options of other tools."""
import os
import subprocess

import pytest

from conftest import SANDGLASS


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "script.py").write_text("print(open('data/in.txt').read())\n")
    (tmp_path / "data" / "in.txt").write_text("brought along")
    for path in [tmp_path, *tmp_path.parents][:4]:
        if path.stat().st_uid == os.getuid() and path.name.startswith(("pytest", "test_", "popen-")):
            path.chmod(0o755)
    return tmp_path


@pytest.fixture
def private(work, project):
    """`run` with a daemon of its own, in the directory of the project."""
    environment = {**os.environ, "TMPDIR": str(work), "XDG_RUNTIME_DIR": str(work), "SANDGLASS_CONFIG": ""}
    environment.pop("SANDGLASS_URL", None)

    def run(*arguments):
        return subprocess.run([SANDGLASS, "run", *map(str, arguments)], cwd=project, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
    yield run
    assert os.listdir(work) == []


# --- copies ----------------------------------------------------------------------------------------


def test_run_copies_a_directory_into_the_workspace(daemon, project):
    result = daemon.cli("run", "--copy", project, "--", "python3", "script.py")
    assert (result.stdout, result.returncode) == ("brought along\n", 0), result.stderr
    result = daemon.cli("run", "--copy", f"{project}/data:deep", "--copy", project / "script.py", "--", "sh", "-c", "cat deep/in.txt; ls")
    assert result.stdout == "brought alongdeep\nscript.py\n"
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_a_copy_that_fails_leaves_no_session(daemon, project):
    refused = daemon.cli("run", "--copy", project / "missing", "--", "true")
    assert refused.returncode == 125 and "--copy" in refused.stderr and "missing" in refused.stderr
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_a_file_that_was_not_copied_gets_a_hint(daemon, project):
    command = [SANDGLASS, "run", "--", "python3", "script.py"]
    result = subprocess.run(command, cwd=project, env={**os.environ, "SANDGLASS_URL": daemon.url}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "--copy ." in result.stderr


# --- mounts ----------------------------------------------------------------------------------------



def test_run_mounts_a_directory_with_a_private_daemon(private, project):
    assert private("-v", ".:/work", "-w", "/work", "--", "python3", "script.py").stdout == "brought along\n"
    assert private("--mount", f"{project}/data:ro", "--", "cat", f"{project}/data/in.txt").stdout == "brought along"
    refused = private("--mount", "data:/d:ro", "--user", "root", "--", "touch", "/d/x")
    assert refused.returncode == 1 and "Read-only" in refused.stderr
    assert private("--mount", "data:/d", "--user", "root", "--", "sh", "-c", "echo out > /d/out.txt").returncode == 0
    assert (project / "data" / "out.txt").read_text() == "out\n"


def test_a_link_is_followed_once_and_by_the_caller(private, project):
    (project / "link").symlink_to("data")
    assert private("--mount", "link:/d:ro", "--", "ls", "/d").stdout == "in.txt\n"


def test_wrong_mounts_are_refused(private, project):
    for value, why in [("missing:/d", "missing"), ("script.py:/d", "not a directory"), (".:relative", "absolute"),
                       (".:/d:maybe", "not ro or rw"), (".:/a/../b", "not a valid mount point")]:
        refused = private("--mount", value, "--", "true")
        assert refused.returncode == 125 and why in refused.stderr, (value, refused.stderr)
    refused = private("--mount", ".:/d", "--backend", "direct", "--", "true")
    assert refused.returncode == 125 and "direct does not support mounts" in refused.stderr


def test_a_named_daemon_mounts_nothing_that_its_operator_does_not_allow(daemon, project):
    refused = daemon.cli("run", "--mount", f"{project}:/d", "--", "true")
    assert refused.returncode == 125 and "mounts" in refused.stderr and "copy" in refused.stderr


# --- names that other tools use --------------------------------------------------------------------


def test_names_of_other_tools_are_understood_or_answered(daemon):
    assert daemon.cli("run", "--rm", "--name", "bob", "--", "echo", "hi").stdout == "hi\n"
    assert "template" in daemon.cli("run", "--image", "no-such-template", "--", "true").stderr
    for option, advice in [("-P", "sandglass port"), ("--privileged", "no privileges"),
                           ("--entrypoint", "after --"), ("--memroy", "--memory")]:
        refused = daemon.cli("run", option, "1", "--", "true")
        assert refused.returncode == 125 and advice in refused.stderr, (option, refused.stderr)
    assert daemon.cli("run", "--rm", "--keep", "--", "true").returncode == 125
    assert "cp" in daemon.cli("exec", "-v", "/a:/b", "bob", "--", "true").stderr


# --- execute ---------------------------------------------------------------------------------------


def test_execute_takes_a_file_and_knows_its_language(daemon, tmp_path):
    for name, text in [("a.py", "print('one')"), ("b.sh", "echo one"), ("c.js", "console.log('one')")]:
        (tmp_path / name).write_text(text)
        if name == "c.js" and daemon.cli("run", "--", "sh", "-c", "command -v node").returncode:
            continue  # where programs run there is none
        assert daemon.cli("execute", tmp_path / name).stdout == "one\n", name
    assert daemon.cli("execute", "--lang", "bash", "-", stdin="echo two").stdout == "two\n"
    refused = daemon.cli("execute", "print(1)")
    assert refused.returncode == 125 and "--code" in refused.stderr
    assert daemon.cli("execute", tmp_path / "a.py", "--code", "1").returncode == 125


@pytest.mark.skipif(os.getuid() != 0, reason="changes to an ordinary user")
def test_an_ordinary_user_learns_why_a_mount_cannot_be_written(work, project):
    """Sandboxes of an ordinary user have ids that own none of the user's files."""
    (project / "own").mkdir()
    os.chown(project / "own", 65534, 65534)
    os.chown(work, 65534, 65534)
    (project / "own" / "in.txt").write_text("readable")
    environment = {**os.environ, "TMPDIR": str(work), "XDG_RUNTIME_DIR": str(work), "HOME": str(work), "SANDGLASS_CONFIG": ""}
    environment.pop("SANDGLASS_URL", None)

    def run(*arguments):
        return subprocess.run([SANDGLASS, "run", "--mount", *map(str, arguments)], cwd=project, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, user=65534, group=65534, extra_groups=[])
    read = run(f"{project}/own:/d:ro", "--", "cat", "/d/in.txt")
    if read.returncode == 125:
        pytest.skip("no sandbox without root here: " + read.stderr)
    assert read.stdout == "readable" and "hint" not in read.stderr
    written = run(f"{project}/own:/d", "--", "sh", "-c", "touch /d/new || exit 9")
    assert written.returncode in (0, 9)  # by whether there is a single id, which is the user's
    if written.returncode == 9:
        assert "only where everyone may" in written.stderr
