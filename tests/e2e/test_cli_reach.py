# SPDX-License-Identifier: Apache-2.0
"""The command line reaches what the API has: teardown, flavors, budgets of owners, tools, stored and kept files."""
import json
import os
import subprocess

import pytest

from conftest import SANDGLASS, WALLS

FLAVORS = [{"name": "cpu-basic"}, {"name": "dear", "memory": "256m", "price_per_hour": 2.5, "needs_approval": True}]
STORE = 'echo content >file && curl -sf --abstract-unix-socket "$SANDGLASS_STORAGE" -T file http://sandbox/storage/'


@pytest.fixture
def box(make_daemon):
    return make_daemon(backend=WALLS, settings={"flavors": FLAVORS})


def ok(daemon, *arguments, **options):
    result = daemon.cli(*arguments, **options)
    assert result.returncode == 0, result
    return result.stdout


def test_a_sandbox_goes_and_its_session_stays(box):
    session = box.session()
    ok(box, "exec", session, "--", "touch", "file")
    ok(box, "session", "teardown", session)
    assert ok(box, "exec", session, "--", "ls") == ""
    assert box.api("GET", f"/sessions/{session}").json["generation"] == 2


def test_flavors_and_the_budgets_of_owners(box):
    rows = [line.split("\t") for line in ok(box, "flavors").splitlines()]
    assert [(row[0], row[6], row[7]) for row in rows] == [("cpu-basic", "0.00", "-"), ("dear", "2.50", "needed")]
    assert "cap           none" in ok(box, "budget")
    assert json.loads(ok(box, "budget", "--cap", "7", "--owner", "ann", "--json"))["cap_usd"] == 7
    assert "cap           7.00 USD" in ok(box, "budget", environment={"SANDGLASS_ON_BEHALF_OF": "ann"})
    assert "cap           none" in ok(box, "budget")
    assert "auto-approve  off" in ok(box, "budget", box.session())
    assert box.cli("budget", "--auto-approve", "on").returncode == 2


def test_tools_by_hand(box):
    session = box.session()
    assert ["bash", "needed", "Run a command"] in [line.split("\t") for line in ok(box, "tools", "ls").splitlines()]
    assert ok(box, "tools", "call", "-s", session, "bash", '{"command": "echo by hand"}') == "by hand\n"
    assert ok(box, "tools", "call", "manage_session", "-", stdin='{"operation": "list"}')
    failed = box.cli("tools", "call", "-s", session, "bash", '{"command": "exit 3"}')
    assert failed.returncode == 1 and "exit code 3" in failed.stdout
    wrong = box.cli("tools", "call", "-s", session, "bash", '{"comand": "true"}')
    assert wrong.returncode == 1 and "comand" in wrong.stderr and wrong.stdout == ""


def test_stored_files(box, tmp_path):
    session = box.session()
    ok(box, "exec", session, "--", "sh", "-c", STORE + "a%20b")
    ok(box, "rm", session)
    assert ok(box, "storage", "ls", session).split("\t")[:2] == ["a b", "8"]
    assert ok(box, "storage", "get", session, "a b", "-") == "content\n"
    ok(box, "storage", "get", session, "a b", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "content\n"
    url = ok(box, "storage", "url", "--valid-for", "1m", session, "a b").strip()
    assert box.request("GET", url).body == b"content\n"
    ok(box, "storage", "rm", session, "a b")
    assert box.cli("storage", "get", session, "a b").returncode == 1


def test_cp_out_of_a_session_that_has_ended(box, tmp_path):
    kept = box.session(keep_files=True)
    ok(box, "exec", kept, "--", "sh", "-c", "mkdir d; echo one >f; echo two >d/g")
    ok(box, "rm", kept)
    result = box.cli("cp", f"{kept}:./f", tmp_path)
    assert result.returncode == 0 and (tmp_path / "f").read_text() == "one\n"
    assert "has ended: deleted" in result.stderr and "files kept at" in result.stderr
    ok(box, "cp", f"{kept}:.", tmp_path / "all")
    assert (tmp_path / "all/d/g").read_text() == "two\n"
    assert b"two\n" in box.cli("cp", f"{kept}:", "-", text=False).stdout
    assert box.cli("cp", f"{kept}:f", "-").stdout == "one\n"
    for path, words in (("d", f"{kept}:."), ("nope", "not among the kept files")):
        result = box.cli("cp", f"{kept}:{path}", tmp_path / "x")
        assert result.returncode == 1 and words in result.stderr and not (tmp_path / "x").exists()
    gone = box.session()
    ok(box, "rm", gone)
    result = box.cli("cp", f"{gone}:f", tmp_path)
    assert result.returncode == 1 and "has ended" in result.stderr and "--keep-files" in result.stderr


BESIDE = """
mount -t tmpfs none /run && mkdir /run/sandglass && unset XDG_RUNTIME_DIR SANDGLASS_URL
python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind("/run/sandglass/sandglass.sock"); s.listen(); time.sleep(60)' &
while ! [ -S /run/sandglass/sandglass.sock ]; do sleep 0.02; done; chmod 660 /run/sandglass/sandglass.sock
setpriv --reuid 54321 --regid 54321 --clear-groups "$1" ls
kill $!
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a /run of its own")
def test_a_user_beside_the_system_s_daemon_is_told_how_to_use_it():
    result = subprocess.run(["unshare", "-m", "sh", "-c", BESIDE, "sh", SANDGLASS], capture_output=True, text=True, timeout=60, cwd="/")
    assert "no daemon at unix:/tmp/sandglass-54321/" in result.stderr and "adduser NAME sandglass" in result.stderr, result


def test_a_user_that_the_sandbox_does_not_have(box):
    result = box.cli("exec", "--user", "nobody-here", box.session(), "--", "id")
    assert result.returncode == 126 and "nobody-here: the sandbox has no such user" in result.stderr


def test_hints_are_in_the_words_of_the_command_line(box):
    for arguments, words in ((("inspect", "nope"), "sandglass ls"), (("approvals", "deny", "nope"), "sandglass approvals ls"),
                             (("tools", "call", "nope"), "sandglass tools ls"), (("tools", "call", "bash", "{}"), "--session")):
        result = box.cli(*arguments)
        assert result.returncode == 1 and words in result.stderr and "/api/v1" not in result.stderr, result
