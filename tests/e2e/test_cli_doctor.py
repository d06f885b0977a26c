# SPDX-License-Identifier: Apache-2.0
"""sandglass doctor: a real sandbox with each backend, and --fix for what belongs to Sandglass."""
import json
import os
import subprocess

import pytest

from conftest import INSTANCE, SANDGLASS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def doctor(work, *arguments, settings="", **environment):
    config = work / "settings.yaml"
    config.write_text(f"state_dir: {work}/state\nruntime_dir: {work}/run\ninstance: {INSTANCE}-doctor\n{settings}")
    result = subprocess.run([SANDGLASS, "doctor", "--json", "--config", config, *arguments], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "SANDGLASS_URL": "", "TMPDIR": str(work), **environment})
    document = json.loads(result.stdout)
    return result, {row["name"]: row for row in document["checks"]}


def test_a_backend_that_is_not_enabled_is_tried_and_is_no_failure(work):
    result, checks = doctor(work, settings="sandbox.backend: direct\n")
    assert result.returncode == 0, result.stdout
    assert checks["sandbox"]["status"] == "ok" and checks["sandbox: native"]["status"] == "info"
    assert "not enabled" in checks["sandbox: native"]["detail"]


@as_root
def test_the_reason_of_a_backend_that_fails_is_told(work):
    result, checks = doctor(work, settings=f"sandbox.mounts: [{{host_path: {work}, path: /data}}]\n")
    assert result.returncode == 0 and checks["sandbox"]["status"] == "ok"
    assert checks["sandbox: direct"]["status"] == "info" and "does not support mounts" in checks["sandbox: direct"]["detail"]


SILENT_ECHO = """
mount --bind /usr/bin/true /usr/bin/echo
exec "$1" doctor --config "$2/settings.yaml"
"""


@as_root
def test_the_output_of_the_program_in_the_sandbox_has_to_come_back(work):
    (work / "settings.yaml").write_text(f"state_dir: {work}/state\nruntime_dir: {work}/run\ninstance: {INSTANCE}-doctor\nsandbox.backend: direct\n")
    result = subprocess.run(["unshare", "-m", "sh", "-c", SILENT_ECHO, "sh", SANDGLASS, work], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "SANDGLASS_URL": "", "TMPDIR": str(work)})
    assert result.returncode == 1 and "fail  sandbox          the backend direct cannot create one: output of a program in it is lost" in result.stdout, result


def limited(work, limit, *command, user=()):
    return subprocess.run(["prlimit", limit, *user, SANDGLASS, *command], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "SANDGLASS_URL": "", "TMPDIR": str(work), "HOME": str(work), "XDG_RUNTIME_DIR": str(work), "SANDGLASS_CONFIG": ""})


def test_too_few_open_files_are_told_with_a_remedy(work):
    result = limited(work, "--nofile=64:64", "run", "--", "true")
    assert result.returncode == 125 and "open files is 64" in result.stderr and "LimitNOFILE" in result.stderr, result
    result = limited(work, "--nofile=64:64", "doctor")
    assert result.returncode == 1 and "fail  open files" in result.stdout and "LimitNOFILE" in result.stdout, result


@as_root
def test_too_few_processes_are_told_with_a_remedy(work):
    os.chmod(work, 0o777)
    user = ["setpriv", "--reuid", "54325", "--regid", "54325", "--clear-groups"]
    result = limited(work, "--nproc=8:8", "run", "--", "true", user=user)
    assert result.returncode == 125 and "raise the limit of processes" in result.stderr, result
    result = limited(work, "--nproc=8:8", "doctor", user=user)
    assert result.returncode == 1 and "raise the limit of processes" in result.stdout, result


def test_a_remedy_is_told_once(work):
    result = limited(work / "nowhere", "--nofile=1024:20000", "doctor")
    assert result.returncode == 1 and "→ set TMPDIR to a writable directory" in result.stdout and "hint:" not in result.stdout, result


FIX = """
set -e
mkdir -p "$2/etc" && cp -a /etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/login.defs /etc/nsswitch.conf /etc/subuid /etc/subgid "$2/etc/" 2>/dev/null || true
mkdir -p "$2/etc/default" "$2/etc/pam.d" "$2/etc/security"
mount --bind "$2/etc" /etc
exec "$1" doctor --json --config "$2/settings.yaml" --fix
"""


@as_root
def test_fix_makes_the_user_the_ids_and_the_directories(work):
    """In a mount namespace with accounts of its own."""
    (work / "settings.yaml").write_text(f"state_dir: {work}/state\nruntime_dir: {work}/run\ninstance: {INSTANCE}-doctor\nuser: sandglass-e2e\n")
    environment = {**os.environ, "SANDGLASS_URL": "", "TMPDIR": str(work), "SUDO_USER": "daemon"}
    command = ["unshare", "-m", "sh", "-c", FIX, "sh", SANDGLASS, work]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    document = json.loads(first.stdout)
    fixed = [row["detail"] for row in document["checks"] if row["detail"].startswith("fixed: ")]
    assert any("created the system user sandglass-e2e" in each for each in fixed), first
    assert any("gave daemon the subordinate ids" in each for each in fixed), first
    assert f"fixed: created {work}/state" in fixed and f"fixed: created {work}/run" in fixed
    checks = {row["name"]: row for row in document["checks"]}
    assert "sandglass-e2e (uid" in checks["user"]["detail"] and checks["subordinate ids"]["status"] == "ok"
    assert "sandglass-e2e" in (work / "etc" / "passwd").read_text() and "sandglass-e2e" not in open("/etc/passwd").read()
    assert "daemon:" in (work / "etc" / "subuid").read_text()


def test_without_fix_nothing_is_made(work):
    _, checks = doctor(work)
    assert sorted(path.name for path in work.iterdir()) == ["settings.yaml"]
    assert not any(row["detail"].startswith("fixed") for row in checks.values())


def test_run_private_uses_no_daemon_that_runs(daemon):
    assert daemon.cli("run", "--private", "--", "echo", "alone").stdout == "alone\n"
    assert daemon.cli("run", "--private", "--keep", "--", "true").returncode == 125
