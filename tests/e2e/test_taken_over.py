# SPDX-License-Identifier: Apache-2.0
"""A daemon that has been taken over owns its state directory and nothing more: it cannot choose what root kills, changes or removes."""
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

from conftest import INSTANCE, our_processes, wait_for
from test_sweep import is_alive, outcomes, sweep

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="without root the daemon and the launcher are the same user")

ID = "sbx_" + "0" * 26
AT_ONCE = ("--older-than", "0s")


def mark(pid, identity=ID, instance=INSTANCE):
    """As wire/mark.h has it."""
    started = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    head = struct.pack("<II64s32sQiIIIII", 0x6C676473, 3, instance.encode(), identity.encode(), started, pid, 0, 1, 0, 0, 0)
    return head + struct.pack("<QQIIII", 1 << 30, 1 << 30, 1000, 100, 0, 0) + bytes(64)


def as_daemon(daemon, script):
    """Runs as the user who owns the state directory, in it."""
    owner = daemon.state.stat()
    assert owner.st_uid != 0
    return subprocess.run([sys.executable, "-c", script], cwd=daemon.state, user=owner.st_uid, group=owner.st_gid, extra_groups=[],
                          capture_output=True, text=True, timeout=60)


@pytest.fixture
def victim():
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        assert process.poll() is None, "root killed a process of somebody else"
        process.kill()


def wait_for_helpers(daemon):
    """Until a killed daemon's launcher is gone, and what helps it: they end by themselves, one after the other."""
    helpers = ("sandglass-keepe", "sandglass-launc", "sandglass-build", "sandglass-tdown")
    wait_for(lambda: not any(name.startswith(helpers) for name in our_processes(daemon.directory).values()), "its launcher is gone")


@pytest.fixture
def dead(make_daemon):
    """Its sandbox lives; it and its launcher do not."""
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}})
    session = daemon.session()
    daemon.execute(session, ["true"])
    daemon.sandbox = daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["pid"]
    daemon.kill()
    wait_for_helpers(daemon)
    yield daemon
    assert is_alive(daemon.sandbox), "nothing was done to what was there"
    daemon.start()


def put_back(daemon):
    """What the operator would do."""
    for name in ("sandboxes", "trash", "ahead"):
        moved = daemon.state / (name + ".moved")
        if moved.exists():
            place = daemon.state / name
            place.unlink() if place.is_symlink() else shutil.rmtree(place)
            moved.rename(place)


def refuses_to_start(daemon):
    daemon.spawn()
    assert daemon.process.wait(60) != 0
    return "state directory" in daemon.log()


FORGE = "import os; os.rename('sandboxes', 'sandboxes.moved'); os.makedirs('{0}'); open('{0}/mark', 'wb').write(bytes.fromhex('{1}')); {2}"


@pytest.mark.parametrize("after", ["os.chmod('sandboxes', 0o711)", "os.rename('sandboxes', 'other'); os.symlink('other', 'sandboxes')"], ids=["directory", "link"])
def test_a_forged_mark_is_nobodys_death(dead, victim, after):
    forged = as_daemon(dead, FORGE.format(f"sandboxes/{ID}", mark(victim).hex(), after))
    assert forged.returncode == 0, forged
    code, found = sweep(*AT_ONCE, "--state", dead.state)
    assert code == 0 and set(outcomes(found)) <= {"skipped"}, found
    assert refuses_to_start(dead)
    assert is_alive(victim)
    put_back(dead)
    shutil.rmtree(dead.state / "other", ignore_errors=True)


@pytest.mark.parametrize("name", ["sandboxes", "trash", "ahead"])
def test_a_directory_that_is_not_the_launchers_is_not_emptied(dead, name):
    precious = dead.directory / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    assert as_daemon(dead, f"import os; os.rename('{name}', '{name}.moved'); os.symlink('{precious}', '{name}')").returncode == 0
    assert refuses_to_start(dead)
    as_daemon(dead, f"import os; os.unlink('{name}'); os.makedirs('{name}/sub'); os.chmod('{name}', 0o700)")
    assert refuses_to_start(dead)
    assert (precious / "file").read_text() == "mine" and (dead.state / name / "sub").is_dir()
    put_back(dead)


def test_live_sandboxes_are_not_made_trash(dead):
    exchange = "import os; os.rename('trash', 'x'); os.rename('sandboxes', 'trash'); os.rename('x', 'sandboxes')"
    assert as_daemon(dead, exchange).returncode == 0
    assert refuses_to_start(dead)
    assert sweep(*AT_ONCE, "--state", dead.state) == (0, [])
    assert len(list((dead.state / "trash").iterdir())) == 1
    assert as_daemon(dead, exchange).returncode == 0


def test_marks_cannot_be_reached_by_the_daemons_user(dead):
    for what in ("os.listdir('trash')", "open('sandboxes/x', 'w')", "os.rename('sandboxes', 'spool/sandboxes')", "os.listdir('ahead')"):
        assert "PermissionError" in as_daemon(dead, "import os; os.makedirs('spool', exist_ok=True); " + what).stderr, what


def put_mark(daemon, pid):
    place = daemon.state / "sandboxes" / ID
    place.mkdir(mode=0o711)
    (place / "mark").write_bytes(mark(pid))
    (place / "mark").chmod(0o600)
    return place


@pytest.mark.parametrize("which", ["stranger", "init"])
def test_a_process_that_is_no_sandbox_is_left_and_named(dead, victim, which):
    """A mark of ours from before a reboot may name any process, by its pid and its start time."""
    place = put_mark(dead, victim if which == "stranger" else 1)
    code, found = sweep(*AT_ONCE, "--dry-run", "--state", dead.state)
    assert code == 0 and outcomes(found) == ["skipped", "would_remove"], found
    assert "is no sandbox" in next(item["detail"] for item in found if item["id"] == ID)
    code, found = sweep(*AT_ONCE, "--max", "0", "--state", dead.state)
    assert code == 0 and place.exists()
    shutil.rmtree(place)


def test_the_launcher_takes_no_stranger_for_a_sandbox(dead, victim):
    place = put_mark(dead, victim)
    dead.start()
    wait_for(lambda: not place.exists(), "a sandbox that nobody knows is removed")
    assert is_alive(victim)
    dead.kill()
    wait_for_helpers(dead)


@pytest.mark.parametrize("trick", ["os.symlink(other, 'mark')", "os.link(other, 'mark')", "os.mkfifo('mark')", "os.mkdir('mark')"])
def test_a_mark_is_a_plain_file_of_roots(dead, victim, trick, work):
    place = put_mark(dead, victim)
    (place / "mark").rename(work / "other")
    subprocess.run([sys.executable, "-c", f"import os; other = '{work}/other'; {trick}"], cwd=place, check=True)
    code, found = sweep(*AT_ONCE, "--dry-run", "--state", dead.state)
    assert code == 0 and outcomes(found) == ["skipped", "would_remove"], found
    shutil.rmtree(place)
