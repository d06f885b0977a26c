# SPDX-License-Identifier: Apache-2.0
"""Directories of the host in single sessions: sandbox.max.mounts, `mounts` of a session, run --mount with a daemon that is shared."""
import json
import os
import subprocess

import pytest

from conftest import SANDGLASS, wait_for
from mcp_client import Stdio

OWNER = {"X-Sandglass-On-Behalf-Of": "bob"}


@pytest.fixture
def tree(tmp_path):
    """data/ and its neighbour secret/, which only links lead to."""
    for path in [tmp_path, *tmp_path.parents][:4]:
        if path.stat().st_uid == os.getuid() and path.name.startswith(("pytest", "test_", "popen-")):
            path.chmod(0o755)
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "in.txt").write_text("brought along")
    (tmp_path / "data" / "sub" / "deep.txt").write_text("deep")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("not for you")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "up").symlink_to("../secret")
    (tmp_path / "data" / "near").symlink_to("sub")
    return tmp_path


def listing(tree):
    """Everything about the files below it that a mount could change."""
    found = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return found


@pytest.fixture
def allowing(make_daemon, tree):
    def make(*entries, **settings):
        return make_daemon(backend="native", settings={**settings, "sandbox": {"max": {"mounts": [str(entry) for entry in entries]}}})
    return make


def mount(path, inside="/d", **more):
    return {"mounts": [{"host_path": str(path), "path": inside, **more}]}


def refusal(daemon, body, **options):
    answer = daemon.api("POST", "/sessions", body, **options)
    return answer.status, answer.json["error"]["code"], answer.json["error"]["message"]


def test_a_directory_of_the_allowlist_is_mounted_read_only(allowing, tree):
    daemon = allowing(tree / "data")
    before = listing(tree)
    session = daemon.session(**mount(tree / "data"))
    result = daemon.execute(session, ["cat", "/d/in.txt", "/d/near/deep.txt"])
    assert result["stdout"] == "brought alongdeep", result
    for command in ("touch /d/new", "echo x >> /d/in.txt", "rm /d/in.txt", "chmod 777 /d/in.txt", "mount -o remount,rw /d"):
        assert daemon.execute(session, command=command, user="root")["exit_code"] != 0, command
    assert daemon.api("GET", f"/sessions/{session}").json["mounts"] == [{"host_path": str(tree / "data"), "path": "/d", "read_only": True}]
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    assert daemon.api("GET", f"/sessions/{session}").json["mounts"][0]["path"] == "/d"
    assert listing(tree) == before


def test_links_in_the_directory_do_not_lead_out(allowing, tree):
    daemon = allowing(tree / "data")
    session = daemon.session(**mount(tree / "data"))
    for name in ("out", "up"):
        assert daemon.execute(session, ["cat", f"/d/{name}/key"])["exit_code"] != 0


def test_writing_needs_an_entry_that_says_so(allowing, tree):
    daemon = allowing(tree / "data", f"{tree}/data/sub:rw")
    assert refusal(daemon, mount(tree / "data", read_only=False))[:2] == (403, "mount_not_allowed")
    session = daemon.session(**mount(tree / "data" / "sub", read_only=False))
    assert daemon.execute(session, command="echo out > /d/out.txt", user="root")["exit_code"] == 0
    assert (tree / "data" / "sub" / "out.txt").read_text() == "out\n"


@pytest.mark.parametrize("path", ["/etc", "{}/secret", "{}/data/out", "{}/data/up", "{}/data/../secret", "{}/data2", "{}", "/", "{}/data/."])
def test_what_is_not_in_the_allowlist_is_refused(allowing, tree, path):
    daemon = allowing(tree / "data")
    (tree / "data2").mkdir()
    status, code, message = refusal(daemon, mount(path.format(tree)))
    assert (status, code) == (403, "mount_not_allowed") and "sandbox.max.mounts" in message, message
    answer = daemon.api("POST", "/execute", {"code": "print(1)", **mount(path.format(tree))})
    assert (answer.status, answer.json["error"]["code"]) == (403, "mount_not_allowed")
    assert daemon.api("GET", "/sessions").json["sessions"] == []


def test_nothing_is_allowed_by_default(make_daemon, tree):
    daemon = make_daemon(backend="native")
    assert refusal(daemon, mount(tree / "data"))[:2] == (403, "mount_not_allowed")
    assert daemon.api("GET", f"/sessions/{daemon.session()}").json["mounts"] == []


def test_an_owner_has_a_list_of_its_own(allowing, tree):
    daemon = allowing(tree / "data", owners=[{"name": "bob", "max": {"mounts": [str(tree / "secret")]}},
                                             {"name": "eve", "max": {"mounts": ["none"]}}])
    status, code, message = refusal(daemon, mount(tree / "data"), headers=OWNER)
    assert (status, code) == (403, "mount_not_allowed") and '"bob"' in message
    session = daemon.api("POST", "/sessions", mount(tree / "secret"), expect=201, headers=OWNER).json["id"]
    result = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["cat", "/d/key"]}, expect=201, headers=OWNER).json
    assert result["stdout"] == "not for you"
    assert refusal(daemon, mount(tree / "secret"))[:2] == (403, "mount_not_allowed")
    assert refusal(daemon, mount(tree / "data"), headers={"X-Sandglass-On-Behalf-Of": "eve"})[:2] == (403, "mount_not_allowed")


def test_a_directory_that_the_daemon_may_not_look_into_is_judged_by_the_launcher(allowing, tree):
    """As root the daemon has given up its rights: only the launcher can see where these links lead."""
    daemon = allowing(tree / "data")
    closed = tree / "data" / "closed"
    (closed / "inside").mkdir(parents=True)
    (closed / "inside" / "a").write_text("closed")
    (closed / "out").symlink_to("../../secret")
    closed.chmod(0o700)
    session = daemon.session(**mount(closed / "inside"))
    assert daemon.execute(session, ["cat", "/d/a"], user="root")["stdout"] == "closed"
    answer = daemon.api("POST", "/sessions", mount(closed / "out"))
    if answer.status == 201:
        answer = daemon.api("POST", f"/sessions/{answer.json['id']}/executions", {"argv": ["cat", "/d/key"]})
    assert (answer.status, answer.json["error"]["code"]) == (403, "mount_not_allowed"), answer.body


def test_the_directory_is_looked_at_again_for_each_sandbox(allowing, tree):
    daemon = allowing(tree / "data")
    session = daemon.session(**mount(tree / "data" / "sub"))
    assert daemon.execute(session, ["cat", "/d/deep.txt"])["stdout"] == "deep"
    (tree / "data" / "sub").rename(tree / "data" / "moved")
    (tree / "data" / "sub").symlink_to(tree / "secret")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["cat", "/d/key"]})
    assert (answer.status, answer.json["error"]["code"]) == (403, "mount_not_allowed"), answer.body


def test_mounts_outlive_the_daemon_and_follow_its_settings(allowing, tree):
    daemon = allowing(tree / "data", shutdown={"policy": "keep"})
    session = daemon.session(key="k", **mount(tree / "data"))
    assert daemon.execute(session, ["cat", "/d/in.txt"])["stdout"] == "brought along"
    assert daemon.api("POST", "/sessions", {"key": "k", **mount(tree / "data")}).status == 200
    differs = daemon.api("POST", "/sessions", {"key": "k", **mount(tree / "data", "/other")})
    assert (differs.status, differs.json["error"]["code"]) == (409, "parameters_differ")
    daemon.stop()
    daemon.start()
    wait_for(lambda: daemon.execute(session, ["cat", "/d/in.txt"])["stdout"] == "brought along", "the sandbox goes on")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    assert daemon.execute(session, ["cat", "/d/in.txt"])["stdout"] == "brought along"
    daemon.stop()
    daemon.settings["sandbox"]["max"] = {"mounts": []}
    daemon.start()
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    answer = daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["true"]})
    assert (answer.status, answer.json["error"]["code"]) == (403, "mount_not_allowed")
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_what_the_host_mounts_later_does_not_come(allowing, tree):
    """It would not be read-only. A session that asks for it has it."""
    late = tree / "data" / "late"
    late.mkdir()
    subprocess.run(["mount", "--bind", tree / "data", tree / "data"], check=True)
    try:
        subprocess.run(["mount", "--make-shared", tree / "data"], check=True)
        daemon = allowing(tree / "data")
        session = daemon.session(**mount(tree / "data"))
        assert daemon.execute(session, ["ls", "/d/late"])["stdout"] == ""
        subprocess.run(["mount", "-t", "tmpfs", "late", late], check=True)
        (late / "file").write_text("late")
        assert daemon.execute(session, ["ls", "/d/late"])["stdout"] == ""
        assert daemon.execute(session, command="touch /d/late/x", user="root")["exit_code"] != 0
        second = daemon.session(**mount(late))
        assert daemon.execute(second, command="cat /d/file; touch /d/x", user="root")["stdout"] == "late"
        assert os.listdir(late) == ["file"]
        subprocess.run(["umount", late], check=True)  # no sandbox keeps the host from it
        daemon.stop()
    finally:
        subprocess.run(["umount", "-R", tree / "data"], check=True)


@pytest.mark.parametrize("body, why", [
    ([{"host_path": "data", "path": "/d"}], "absolute path of the host"),
    ([{"host_path": "{}/data", "path": "d"}], "not a place for a mount"),
    ([{"host_path": "{}/data", "path": "/d/../etc"}], "not a place for a mount"),
    ([{"host_path": "{}/data", "path": "/"}], "not a place for a mount"),
    ([{"path": "/d"}], "host_path"),
    ([{"host_path": "{}/data", "mode": "rw"}], "mode"),
    ([{"host_path": "{}/data/in.txt", "path": "/d"}], "not a directory"),
    ([{"host_path": "{}/data/missing", "path": "/d"}], "not a directory"),
    ([{"host_path": "{}/data", "path": "/d"}, {"host_path": "{}/data/sub", "path": "/d/x"}], "another mount"),
    ([{"host_path": "{}/data", "path": f"/d{i}"} for i in range(9)], "at most 8"),
    (["{}/data"], "array of objects"),
    ({"host_path": "/d"}, "array of objects"),
    ([{"host_path": "{}/data", "path": "/" + "x" * 300}], "longer than"),
])
def test_mounts_of_the_wrong_form_are_refused_with_the_reason(allowing, tree, body, why):
    daemon = allowing(tree / "data")
    text = json.dumps({"mounts": body}).replace("{}", str(tree))
    answer = daemon.api("POST", "/sessions", text, headers={"Content-Type": "application/json"})
    assert answer.status == 400 and why in answer.json["error"]["message"], answer.body


def test_a_backend_that_cannot_mount_says_so_by_name(make_daemon, tree):
    daemon = make_daemon(backend="direct", settings={"sandbox": {"max": {"mounts": [str(tree / "data")]}}})
    status, code, message = refusal(daemon, mount(tree / "data"))
    assert (status, code) == (400, "backend_unable") and "direct" in message


@pytest.mark.parametrize("entry, why", [("relative", "not the path"), ("{}/missing", "not a directory"), ("{}/data/in.txt", "not a directory"),
                                        ("{}/data/../data", "not the path"), ("{}/data:rx", "not a directory")])
def test_config_check_finds_wrong_entries(tree, entry, why):
    (tree / "c.yaml").write_text("sandbox: {max: {mounts: ['%s']}}\n" % entry.format(tree))
    found = subprocess.run([SANDGLASS, "config", "check", "--config", tree / "c.yaml"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 1 and why in found.stdout + found.stderr and "max.mounts" in found.stdout + found.stderr


# --- the command line --------------------------------------------------------------------------------


def test_run_uses_a_daemon_that_allows_the_directory(allowing, tree):
    daemon = allowing(tree / "data", f"{tree}/data/sub:rw")
    result = daemon.cli("run", "--mount", f"{tree}/data:/d:ro", "--", "cat", "/d/in.txt")
    assert (result.stdout, result.returncode) == ("brought along", 0), result.stderr
    assert daemon.cli("run", "-u", "root", "--mount", f"{tree}/data/near:/d", "--", "touch", "/d/new").returncode == 0
    assert (tree / "data" / "sub" / "new").exists()
    refused = daemon.cli("run", "--mount", f"{tree}/data:/d", "--", "true")
    assert refused.returncode == 125 and "read-only" in refused.stderr and "sandbox.max.mounts" in refused.stderr
    refused = daemon.cli("run", "--mount", f"{tree}/secret:/d:ro", "--", "true")
    assert refused.returncode == 125 and "sandbox.max.mounts" in refused.stderr
    kept = daemon.cli("session", "create", "--key", "m", "-v", f"{tree}/data:/d:ro")
    assert kept.returncode == 0, kept.stderr
    assert daemon.cli("exec", "m", "--", "cat", "/d/in.txt").stdout == "brought along"


def test_run_without_an_address_falls_back_to_a_private_daemon(allowing, tree, work):
    daemon = allowing(tree / "data")
    config = work / "client.yaml"
    config.write_text(f"listen: ['{daemon.url}']\n")
    environment = {**os.environ, "SANDGLASS_CONFIG": str(config), "TMPDIR": str(work)}
    environment.pop("SANDGLASS_URL", None)

    def run(*arguments):
        return subprocess.run([SANDGLASS, "run", *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert run("-v", f"{tree}/data:/d:ro", "--", "cat", "/d/in.txt").stdout == "brought along"
    assert daemon.api("GET", "/sessions?state=ended").json["total"] == 1
    result = run("-v", f"{tree}/secret:/d:ro", "--", "cat", "/d/key")
    assert result.stdout == "not for you", result.stderr
    assert daemon.api("GET", "/sessions?state=ended").json["total"] == 1
    refused = run("--keep", "-v", f"{tree}/secret:/d:ro", "--", "cat", "/d/key")
    assert refused.returncode == 125 and "sandbox.max.mounts" in refused.stderr


def test_a_daemon_of_another_machine_gets_no_mounts(tree):
    refused = subprocess.run([SANDGLASS, "run", "--url", "http://192.0.2.1:1", "-v", f"{tree}/data:/d", "--", "true"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 125 and "this machine" in refused.stderr and "--copy" in refused.stderr


def test_mcp_uses_a_daemon_that_allows_the_directory(allowing, tree):
    daemon = allowing(tree / "data")
    client = Stdio({"SANDGLASS_URL": daemon.url}, arguments=["--mount", f"{tree}/data:/d:ro"])
    assert client.bash("cat /d/in.txt") == "brought along"
    (session,) = daemon.api("GET", "/sessions").json["sessions"]
    assert session["mounts"] == [{"host_path": str(tree / "data"), "path": "/d", "read_only": True}]
    assert client.close() == 0
    refused = daemon.cli("mcp", "--mount", f"{tree}/secret:/d:ro", stdin="")
    assert refused.returncode == 1 and "sandbox.max.mounts" in refused.stderr
