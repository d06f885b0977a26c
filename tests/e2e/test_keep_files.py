# SPDX-License-Identifier: Apache-2.0
"""Files that outlive their sandbox: packed before it ends, restored into the next one, readable until retention."""
import http.client
import io
import os
import tarfile
import threading

import pytest

from conftest import WALLS, wait_for

MAKE = ("mkdir -p outputs/deep node_modules/x __pycache__; echo plot > outputs/plot.txt; echo deep > outputs/deep/d; "
        "echo dep > node_modules/x/y; echo c > __pycache__/m.pyc; echo c > left.pyc; ln -s outputs/plot.txt link; "
        "echo secret > .hidden; printf x > empty-not; : > empty; chmod 755 outputs/plot.txt")


def settings(**keep):
    return {"pool": {"size": 0}, "session": {"preload": False}, "keep": keep}


@pytest.fixture
def keeper(make_daemon, backend):
    return make_daemon(backend=backend, settings=settings())


def run(daemon, session, command):
    return daemon.execute(session, ["sh", "-c", command])


def tear_down(daemon, session):
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "none", "the sandbox is gone")


def look(daemon, session):
    """The session, or its final record."""
    document = daemon.api("GET", f"/sessions/{session}").json
    return document.get("session", document)


def kept(daemon, session):
    return {row["path"]: row for row in daemon.api("GET", f"/sessions/{session}/kept", expect=200).json["files"]}


def file_of(daemon, session, path):
    return daemon.api("GET", f"/sessions/{session}/kept/file?path={path}", expect=200).body


def events_of(daemon, session, kind):
    return [entry["data"] for entry in daemon.api("GET", f"/sessions/{session}/history?limit=1000").json["entries"]
            if entry["type"] == kind]


def test_the_next_sandbox_has_the_files(keeper):
    session = keeper.session(keep_files=True)
    assert run(keeper, session, MAKE)["exit_code"] == 0
    tear_down(keeper, session)
    told = keeper.api("GET", f"/sessions/{session}").json
    assert told["keep_files"] and told["kept"]["generation"] == 1 and told["kept"]["bytes"] > 0

    again = run(keeper, session, "cat outputs/plot.txt outputs/deep/d link .hidden; ls -A; test -x outputs/plot.txt")
    assert again["generation"] == 2 and again["exit_code"] == 0 and not again["files_were_reset"]
    assert again["stdout"].split()[:4] == ["plot", "deep", "plot", "secret"]
    assert not {"node_modules", "__pycache__", "left.pyc"} & set(again["stdout"].split()[4:])
    assert {"outputs", "link", ".hidden", "empty", "empty-not"} <= set(again["stdout"].split()[4:])
    assert events_of(keeper, session, "sandbox.reset") == [{"generation": 2, "files": "restored", "from_generation": 1, "reason": "teardown"}]

    # Once more, with what has changed meanwhile.
    run(keeper, session, "rm .hidden; echo more > outputs/more")
    tear_down(keeper, session)
    assert run(keeper, session, "cat outputs/more; ls -A")["stdout"].split().count(".hidden") == 0
    assert len(events_of(keeper, session, "files.kept")) == 2


def test_an_ended_session_can_be_read_until_retention(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings=settings())
    session = daemon.session(keep_files=True)
    run(daemon, session, MAKE)
    assert daemon.api("GET", f"/sessions/{session}/kept").status == 404
    ended = daemon.api("DELETE", f"/sessions/{session}", expect=200).json
    assert ended["kept"]["bytes"] > 0
    files = kept(daemon, session)
    assert files["outputs/plot.txt"]["size"] == 5 and files["outputs"]["type"] == "directory" and files["link"]["type"] == "symlink"
    assert "node_modules" not in files
    assert file_of(daemon, session, "outputs/plot.txt") == b"plot\n" and file_of(daemon, session, "./outputs//deep/d") == b"deep\n"
    assert file_of(daemon, session, "empty") == b""
    with tarfile.open(fileobj=io.BytesIO(daemon.api("GET", f"/sessions/{session}/kept/archive", expect=200).body)) as tar:
        assert tar.extractfile("outputs/plot.txt").read() == b"plot\n"
    for path, status in (("outputs", 409), ("none", 404), ("../x", 400), ("/etc/passwd", 400), ("", 400), ("link", 404), ("x" * 5000, 400)):
        assert daemon.api("GET", f"/sessions/{session}/kept/file?path={path}").status == status, path
    assert os.stat(daemon.state / "kept" / f"{session}.tar").st_mode & 0o777 == 0o600

    # Each record has the retention of the time at which its session has ended.
    daemon.stop()
    daemon.settings["session"] = {"preload": False, "retention": "1s"}
    daemon.start()
    brief = daemon.session(keep_files=True)
    run(daemon, brief, MAKE)
    assert daemon.api("DELETE", f"/sessions/{brief}", expect=200).json["kept"]["bytes"] > 0
    wait_for(lambda: os.listdir(daemon.state / "kept") == [f"{session}.tar"], "the archive goes with the record")
    assert daemon.api("GET", f"/sessions/{brief}/kept").status == 404
    assert file_of(daemon, session, "outputs/plot.txt") == b"plot\n"


@pytest.mark.parametrize("end", ["idle", "lease", "replace", "shutdown", "paused", "evicted"])
def test_whatever_ends_the_sandbox(make_daemon, end):
    capacity = {"capacity": {"max_sandboxes": 1}} if end == "evicted" else {}
    daemon = make_daemon(backend=WALLS, settings={**settings(), **capacity})
    session = daemon.session(keep_files=True)
    run(daemon, session, "echo one > note")
    if end in ("idle", "lease"):
        daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout" if end == "idle" else "timeout": 0.3}, expect=200)
    elif end == "replace":
        daemon.api("POST", f"/sessions/{session}/sandbox", {"memory": "300m"})
    elif end == "shutdown":
        daemon.stop()
        daemon.start()
    elif end == "paused":
        daemon.api("POST", f"/sessions/{session}/pause", {}, expect=200)
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
    elif end == "evicted":
        run(daemon, daemon.session(), "true")
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/kept").status == 200, "the files are kept")
    assert file_of(daemon, session, "note") == b"one\n"


def test_an_end_while_it_is_being_paused_keeps_the_files(make_daemon):
    daemon = make_daemon(backend=WALLS, settings=settings())
    for _ in range(8):
        session = daemon.session(keep_files=True)
        run(daemon, session, "echo one > note")
        pause = threading.Thread(target=lambda: daemon.api("POST", f"/sessions/{session}/pause", {}))
        pause.start()
        ended = daemon.api("DELETE", f"/sessions/{session}", expect=200).json
        pause.join()
        assert ended["kept"] and file_of(daemon, session, "note") == b"one\n"


def test_without_being_asked_nothing_is_kept(keeper):
    session = keeper.session()
    run(keeper, session, "echo one > note")
    tear_down(keeper, session)
    assert run(keeper, session, "cat note")["files_were_reset"]
    assert events_of(keeper, session, "sandbox.reset") == [{"generation": 2, "files": "lost", "reason": "teardown"}]
    assert keeper.api("GET", f"/sessions/{session}/kept").json["error"]["code"] == "nothing_kept"
    assert not (keeper.state / "kept").exists()


def test_what_is_too_large_or_too_slow_does_not_hold_up_the_end(make_daemon):
    daemon = make_daemon(backend=WALLS, settings=settings(max_size="1m", timeout="8s"))
    session = daemon.session(keep_files=True)
    run(daemon, session, "echo one > note")
    tear_down(daemon, session)
    run(daemon, session, "head -c 3000000 /dev/zero > large")
    tear_down(daemon, session)
    assert events_of(daemon, session, "files.not_kept") == [{"generation": 2, "reason": "they are larger than keep.max_size"}]
    # The archive before it stays, and is what the next one gets.
    again = run(daemon, session, "cat note; ls")
    assert again["stdout"].split() == ["one", "note"] and not again["files_were_reset"]
    # Its init does not answer: the end comes all the same.
    pid = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"]
    os.kill(pid, 19)
    tear_down(daemon, session)
    assert "keep.timeout" in events_of(daemon, session, "files.not_kept")[-1]["reason"]
    assert os.listdir(daemon.state / "kept") == [f"{session}.tar"]


def test_a_crash_leaves_what_was_kept_before(make_daemon):
    daemon = make_daemon(backend=WALLS, settings=settings())
    session = daemon.session(keep_files=True)
    run(daemon, session, "echo one > note")
    tear_down(daemon, session)
    run(daemon, session, "echo two > note")
    os.kill(daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"], 9)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["sandbox"]["state"] == "none", "it has crashed")
    assert run(daemon, session, "cat note")["stdout"] == "one\n"
    assert events_of(daemon, session, "sandbox.reset")[-1] | {"reason": ""} == {"generation": 3, "files": "restored", "from_generation": 1, "reason": ""}


def test_a_daemon_that_is_killed_meanwhile_loses_nothing(make_daemon):
    daemon = make_daemon(backend=WALLS, settings=settings())
    sessions = {session: str(number) for number, session in enumerate(daemon.session(keep_files=True) for _ in range(6))}
    for session, text in sessions.items():
        run(daemon, session, f"echo {text} > note; head -c 20000000 /dev/urandom > large")

    def ask(session, method, path):
        try:
            daemon.api(method, path, {} if method == "POST" else None)
        except (OSError, http.client.HTTPException):
            pass

    asked = [threading.Thread(target=ask, args=(session, *(("DELETE", f"/sessions/{session}") if number % 2 else
                                                           ("POST", f"/sessions/{session}/sandbox/teardown"))))
             for number, session in enumerate(sessions)]
    for thread in asked:
        thread.start()
    wait_for(lambda: (daemon.state / "kept").exists() and os.listdir(daemon.state / "kept"), "packing has begun")
    daemon.kill()
    for thread in asked:
        thread.join()
    daemon.start()

    def settled():
        rows = [look(daemon, session) for session in sessions]
        return all(row["state"] != "ending" and row["sandbox"]["state"] in ("none", "ready") for row in rows) and \
            not any(name.endswith(".part") for name in os.listdir(daemon.state / "kept"))
    wait_for(settled, "all is settled and half-written archives are gone")
    for session, text in sessions.items():
        if look(daemon, session)["state"] == "open":
            assert run(daemon, session, "cat note")["stdout"] == text + "\n"
        else:
            assert events_of(daemon, session, "files.not_kept") == []
            assert file_of(daemon, session, "note") == text.encode() + b"\n"


def test_it_can_be_switched_on_later_and_by_the_cli(keeper):
    session = keeper.session()
    assert keeper.api("PATCH", f"/sessions/{session}", {"keep_files": True}, expect=200).json["keep_files"]
    run(keeper, session, "echo one > note")
    tear_down(keeper, session)
    assert run(keeper, session, "cat note")["stdout"] == "one\n"
    done = keeper.cli("run", "--keep", "--keep-files", "--json", "--", "sh", "-c", "echo x > y")
    assert done.returncode == 0
    keeper.api("POST", "/sessions", {"keep_files": "yes"}, expect=400)


def damaged(daemon, session, path):
    answer = daemon.api("GET", f"/sessions/{session}/kept{path}")
    return answer.status == 500 and answer.json["error"]["code"] == "archive_damaged"


def test_an_archive_that_is_cut_or_gone_is_told(make_daemon):
    keeper = make_daemon(backend="direct", settings=settings())
    ended, live = keeper.session(keep_files=True), keeper.session(keep_files=True)
    for session in (ended, live):
        run(keeper, session, "for n in 1 2 3; do seq 300 > f$n; done")
    tear_down(keeper, live)
    keeper.api("DELETE", f"/sessions/{ended}", expect=200)
    archives = {session: keeper.state / "kept" / f"{session}.tar" for session in (ended, live)}
    for archive in archives.values():
        with tarfile.open(archive) as tar:
            last = max(member.offset for member in tar)
            name = next(member.name for member in tar if member.offset == last)
        os.truncate(archive, last)  # where no member is cut
    for session in archives:
        assert damaged(keeper, session, "") and damaged(keeper, session, "/archive")
        assert damaged(keeper, session, f"/file?path={name}")
    again = run(keeper, live, "ls")
    assert again["files_were_reset"], again

    os.truncate(archives[ended], 600)
    with tarfile.open(archives[ended], ignore_zeros=True) as tar:
        first = tar.next().name
    assert damaged(keeper, ended, f"/file?path={first}")
    archives[ended].unlink()
    assert damaged(keeper, ended, "") and damaged(keeper, ended, "/archive") and damaged(keeper, ended, f"/file?path={name}")
    archives[ended].mkdir()
    assert keeper.api("GET", f"/sessions/{ended}/kept").status == 500
