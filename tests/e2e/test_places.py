# SPDX-License-Identifier: Apache-2.0
"""What was there before a daemon is never given away, changed or removed; what an earlier daemon made is found again by the
next one, whoever that runs as."""
import os
import socket
import subprocess

import pytest

from conftest import INSTANCE, SANDGLASS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")


def facts(path):
    status = os.lstat(path)
    return status.st_uid, status.st_gid, status.st_mode, status.st_ino


def serve(work, *arguments, seconds=30):
    """A daemon that is expected to refuse."""
    return subprocess.run([SANDGLASS, "serve", "--set", f"instance={INSTANCE}", "--set", "pool.size=0", "--backend", "direct",
                           *map(str, arguments)], capture_output=True, text=True, timeout=seconds,
                          env={**os.environ, "SANDGLASS_CONFIG": "", "HOME": str(work)})


@as_root
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o2777])
def test_the_directory_of_a_socket_stays_as_it_was(make_daemon, work, mode):
    place = work / "place"
    place.mkdir()
    os.chmod(place, mode)
    before = facts(place)
    daemon = make_daemon(backend="direct", start=False)
    daemon.socket = place / "s.sock"
    daemon.url = f"unix:{daemon.socket}"
    daemon.start()
    assert facts(place) == before
    daemon.stop()
    assert facts(place) == before
    assert os.listdir(place) == []


@as_root
def test_a_directory_that_the_daemon_cannot_write_to_is_refused(work):
    place = work / "place"
    place.mkdir(mode=0o755)
    before = facts(place)
    result = serve(work, "--state", work / "state", "--listen", f"unix:{place}/s.sock")
    assert result.returncode == 1
    assert f"cannot create a socket in {place}" in result.stderr and "chown" in result.stderr
    assert facts(place) == before and os.listdir(place) == []


@as_root
def test_a_state_directory_that_exists_stays_as_it_was(work):
    place = work / "state"
    place.mkdir(mode=0o755)
    (place / "mine").write_text("precious")
    before = facts(place), facts(place / "mine")
    result = serve(work, "--state", place, "--listen", f"unix:{work}/run/s.sock")
    assert result.returncode == 1 and f"in {place}" in result.stderr
    assert (facts(place), facts(place / "mine")) == before


@pytest.mark.parametrize("name", ["trash", "sandboxes", "ahead"])
def test_directories_of_somebody_else_are_not_emptied(work, name):
    place = work / "home"
    place.mkdir()
    os.chmod(place, 0o777)
    (place / name).mkdir(mode=0o755)
    (place / name / "letter").write_text("precious")
    before = facts(place), facts(place / name)
    result = serve(work, "--state", place, "--listen", f"unix:{work}/run/s.sock")
    assert result.returncode == 1 and f'"{name}"' in result.stderr
    assert (facts(place), facts(place / name)) == before
    assert (place / name / "letter").read_text() == "precious"


def test_a_file_where_the_socket_goes_stays(work):
    place = work / "place"
    place.mkdir()
    os.chmod(place, 0o777)
    (place / "s.sock").write_text("precious")
    result = serve(work, "--state", work / "state", "--listen", f"unix:{place}/s.sock")
    assert result.returncode != 0 and "not a socket" in result.stderr and "remove it, or choose another path" in result.stderr
    assert (place / "s.sock").read_text() == "precious"


@as_root
def test_a_socket_of_somebody_else_stays(work):
    place = work / "place"
    place.mkdir()
    os.chmod(place, 0o777)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place / "s.sock"))  # nobody listens any more
    before = facts(place / "s.sock")
    result = serve(work, "--state", work / "state", "--listen", f"unix:{place}/s.sock")
    assert result.returncode != 0 and "another user" in result.stderr and "remove it, or choose another path" in result.stderr
    assert facts(place / "s.sock") == before


def test_a_socket_that_is_in_use_stays(work):
    place = work / "place"
    place.mkdir()
    os.chmod(place, 0o777)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place / "s.sock"))
        other.listen()
        if os.geteuid() == 0:
            os.chown(place / "s.sock", 62420, 62420)  # the daemon without a user of its own
        result = serve(work, "--state", work / "state", "--listen", f"unix:{place}/s.sock", "--set", "user=no-such-user")
    assert result.returncode != 0 and "another process listens" in result.stderr and "stop that process" in result.stderr, result


@as_root
def test_directories_on_the_way_can_be_passed(make_daemon, work):
    daemon = make_daemon(backend="direct", start=False, settings={"state_dir": str(work / "a/b/state")})
    daemon.socket = work / "c/d/run/s.sock"
    daemon.url = f"unix:{daemon.socket}"
    daemon.start()
    assert {os.stat(work / path).st_mode & 0o777 for path in ("a", "a/b", "c", "c/d", "c/d/run")} == {0o755}
    assert os.stat(work / "a/b").st_uid == 0


@as_root
def test_a_daemon_of_another_user_takes_over(make_daemon, work):
    """The tour before the user is made, then the installed service."""
    first = make_daemon(backend="native", settings={"user": "no-such-user", "shutdown": {"policy": "keep"}})
    assert "unknown user" in first.log()
    session = first.session()
    assert first.execute(session, command="echo kept > file; echo done")["stdout"] == "done\n"
    stranger = first.state / "stranger"
    stranger.write_text("precious")
    before = facts(stranger)
    first.kill()
    first.settings["user"] = "daemon"
    first.start()
    assert os.stat(first.state / "sandglass.db").st_uid == os.stat(first.socket).st_uid == 1
    assert first.execute(session, command="cat file")["stdout"] == "kept\n"
    assert first.execute(first.session(), command="echo new")["stdout"] == "new\n"
    assert facts(stranger) == before
    first.api("DELETE", "/sessions", expect=200)


@as_root
def test_a_link_in_the_state_of_an_earlier_daemon_gives_nothing_away(make_daemon, work):
    daemon = make_daemon(backend="direct", settings={"user": "no-such-user"})
    daemon.stop()
    for name in ("root", "symbolic"):
        (work / name).write_text("precious")
    os.link(work / "root", daemon.state / "output" / "hard")
    os.symlink(work / "symbolic", daemon.state / "output" / "soft")
    before = facts(work / "root"), facts(work / "symbolic")
    daemon.settings["user"] = "daemon"
    daemon.start()
    assert (facts(work / "root"), facts(work / "symbolic")) == before


@as_root
def test_the_directory_with_the_records_of_uid_ranges_takes_the_socket_too(make_daemon, work):
    """The launcher of a daemon that listens elsewhere has made it; its records stay root's."""
    place = work / "run"
    (place / "uids").mkdir(parents=True, mode=0o700)
    os.chmod(place, 0o700)
    (place / "uids" / "0").write_text("record")
    before = facts(place / "uids"), facts(place / "uids" / "0")
    daemon = make_daemon(backend="direct", start=False, settings={"user": "daemon"})
    daemon.socket = place / "s.sock"
    daemon.url = f"unix:{daemon.socket}"
    daemon.start()
    status = os.stat(place)
    assert (status.st_uid, status.st_mode & 0o7777) == (0, 0o1775), "the daemon cannot put other records in their place"
    assert (facts(place / "uids"), facts(place / "uids" / "0")) == before


SYSTEM_DAEMON = """
mount -t tmpfs none /run && unset XDG_RUNTIME_DIR SANDGLASS_URL SANDGLASS_LISTEN
"$1" serve --state "$2/state" >"$2/log" 2>&1 &
for i in $(seq 200); do "$1" ls >/dev/null 2>&1 && break; sleep 0.1; done
group=$(stat -c %g /run/sandglass/sandglass.sock)
setpriv --reuid 54322 --regid 54322 --groups "$group" env HOME="$2" "$1" ls >/dev/null; echo "member $?"
setpriv --reuid 54322 --regid 54322 --clear-groups env HOME="$2" "$1" ls >/dev/null; echo "stranger $?"
kill $! && wait
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a /run of its own")
def test_a_user_without_a_daemon_uses_the_system_s(work):
    result = subprocess.run(["unshare", "-mnp", "--fork", "--mount-proc", "sh", "-c", SYSTEM_DAEMON, "sh", SANDGLASS, work],
                            capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == ["member 0", "stranger 1"], result
    assert "no daemon at unix:/tmp/sandglass-54322/" in result.stderr


MOUNTED_BELOW_USR = """
mount -t tmpfs none /usr/local/share && echo here >/usr/local/share/file && export HOME="$3" && unset XDG_RUNTIME_DIR
$2 "$1" run -- sh -c 'cat /usr/local/share/file 2>/dev/null; touch /usr/local/share/new 2>/dev/null || echo kept; ls /usr/bin/env'
ls /usr/local/share
"""


@as_root
@pytest.mark.parametrize("who, seen", [("setpriv --reuid 1001 --regid 1001 --clear-groups", ["here"]), ("", [])], ids=["user", "root"])
def test_something_is_mounted_below_usr(work, who, seen):
    """An ordinary user's sandboxes cannot part from it: they see it, and cannot write to /usr."""
    (work / "home").mkdir()
    os.chmod(work / "home", 0o777)
    result = subprocess.run(["unshare", "-m", "sh", "-c", MOUNTED_BELOW_USR, "sh", SANDGLASS, who, work / "home"], cwd="/",
                            capture_output=True, text=True, timeout=60, env={**os.environ, "SANDGLASS_URL": ""})
    assert result.stdout.splitlines() == [*seen, "kept", "/usr/bin/env", "file"], result


@as_root
def test_a_start_that_was_killed_while_it_made_its_directories_is_in_nobodys_way(make_daemon):
    """Under its own name a directory is there only when it belongs to the daemon; what a kill left goes."""
    daemon = make_daemon(backend="direct", start=False)
    left = [path.with_name(path.name + ".sandglass-new") for path in (daemon.state, daemon.socket.parent)]
    for path in left:
        path.mkdir(mode=0o700)
    daemon.start()
    assert os.lstat(daemon.state).st_uid != 0 and not any(path.exists() for path in left)


@as_root
@pytest.mark.parametrize("backend", ["direct", "native"])
def test_a_group_of_another_user_with_the_same_instance_name_is_not_in_the_way(make_daemon, backend):
    """Control groups of root's daemon are there and not ours: an ordinary user's goes on as on a host without any."""
    first = make_daemon(backend="direct")
    assert first.execute(first.session(), ["true"])["exit_code"] == 0
    second = make_daemon(backend=backend, start=False, prefix=["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"])
    for place in (second.state, second.socket.parent):
        place.mkdir(mode=0o755)
        os.chown(place, 1001, 1001)
    second.start()
    assert second.settings["instance"] == first.settings["instance"]
    session = second.session()
    assert second.execute(session, ["echo", "hello"])["stdout"] == "hello\n"
    report = second.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["isolation"]
    assert {"memory", "cpu", "pids"} & set(report["missing"]), report


NO_NAMESPACES = """
echo 0 >/proc/sys/user/max_user_namespaces && export HOME="$2" SANDGLASS_CONFIG="$2/sandglass.yaml" && unset XDG_RUNTIME_DIR
"$1" doctor; echo "doctor $?"
"$1" run -- true; echo "run $?"
"$1" run --backend direct -- echo direct
"""


def test_a_host_that_forbids_user_namespaces_is_told_the_setting(work):
    (work / "sandglass.yaml").write_text(f"state_dir: {work}/state\nruntime_dir: {work}/run\ninstance: {INSTANCE}\n")
    result = subprocess.run(["unshare", "-U", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh", SANDGLASS, work],
                            capture_output=True, text=True, timeout=60, env={**os.environ, "SANDGLASS_URL": ""})
    assert "Sandglass cannot run here" in result.stdout and "doctor 1\nrun 125\ndirect\n" in result.stdout, result
    assert "sysctl -w user.max_user_namespaces" in result.stdout and "sysctl -w user.max_user_namespaces" in result.stderr
    assert "--backend direct" in result.stderr


def test_a_place_that_cannot_be_written_comes_with_a_remedy(work):
    result = serve(work, "--state", "/proc/sandglass", "--listen", f"unix:{work}/run/s.sock")
    assert result.returncode == 1 and "/proc/sandglass" in result.stderr and "--state or state_dir" in result.stderr
    result = subprocess.run([SANDGLASS, "run", "--backend", "direct", "--", "true"], capture_output=True, text=True, timeout=30,
                            env={**os.environ, "TMPDIR": "/nope", "SANDGLASS_URL": "", "HOME": str(work), "XDG_RUNTIME_DIR": str(work)})
    assert result.returncode == 125 and "TMPDIR" in result.stderr, result


NO_DEVICES = """
mount -t tmpfs none /dev && export TMPDIR="$2" XDG_RUNTIME_DIR="$2" SANDGLASS_CONFIG=
"$1" run -- true; echo "run $?"
"$1" doctor; echo "doctor $?"
"""


@as_root
def test_a_host_without_devices_is_told_which_one_is_missing(work):
    result = subprocess.run(["unshare", "-m", "sh", "-c", NO_DEVICES, "sh", SANDGLASS, work], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=60, env={**os.environ, "SANDGLASS_URL": ""})
    assert "run 125" in result.stdout and "doctor 1" in result.stdout, result
    assert "mknod -m 666 /dev/null c 1 3" in result.stderr and "mknod -m 666 /dev/null c 1 3" in result.stdout, result


def on_a_host(work, change, *command):
    """Runs the command after the change of a mount namespace of its own."""
    return subprocess.run(["unshare", "-m", "sh", "-c", f'{change} && exec "$@"', "sh", SANDGLASS, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          cwd="/", env={**os.environ, "SANDGLASS_URL": "", "SANDGLASS_CONFIG": "", "TMPDIR": str(work), "XDG_RUNTIME_DIR": str(work), "HOME": str(work)})


@as_root
@pytest.mark.parametrize("change, command, message, remedy", [
    ("mount -t tmpfs none /usr/sbin", ["run", "--network", "open"], "/usr/sbin/nft is missing", "install the package nftables"),
    ("mount -t tmpfs none /proc", ["run"], "/proc/self/uid_map", "mount -t proc proc /proc"),
    ("mount -t tmpfs -o ro none /run", ["run"], "/run/sandglass/uids: Read-only file system", "a tmpfs at /run"),
], ids=["no-nft", "no-proc", "read-only-run"])
def test_what_a_host_lacks_is_told_with_a_remedy(work, change, command, message, remedy):
    result = on_a_host(work, change, *command, "--", "true")
    assert message in result.stderr and remedy in result.stderr and "in time" not in result.stderr, result
    # Without /proc a sanitizer can neither look for leaks nor read that it should not: it ends the program in its own way.
    assert result.returncode == 125 or "asan" in str(SANDGLASS) and "LeakSanitizer has encountered a fatal error" in result.stderr, result
    result = on_a_host(work, change, "doctor")
    assert message in result.stdout and remedy in result.stdout, result
    assert os.listdir(work) == []
