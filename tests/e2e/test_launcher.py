# SPDX-License-Identifier: Apache-2.0
"""The launcher, or one of its helpers, is killed: it is replaced, and nothing is lost."""
import os
import pathlib
import signal
import threading

from conftest import read_process, wait_for


def children_of(pid):
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            process = read_process(child)
            if process:
                found[process[0]] = int(child)
    return found


def keeper_of(daemon):
    return children_of(daemon.process.pid)["sandglass-keepe"]


def launcher_of(daemon):
    return children_of(keeper_of(daemon)).get("sandglass-launc")


def another(find, before):
    return wait_for(lambda: (found := find()) and found != before and found, "it is replaced")


def run(daemon, session, *argv):
    return daemon.api("POST", f"/sessions/{session}/executions?wait=true", {"argv": argv}, timeout=60)


def test_work_goes_on_while_the_launcher_is_killed_again_and_again(daemon):
    kept = daemon.session()
    run(daemon, kept, "sh", "-c", "echo kept > file")
    failures = []
    stop = threading.Event()

    def work():
        while not stop.is_set():
            session = daemon.session()
            answer = run(daemon, session, "echo", "hello")
            if answer.status >= 300 or answer.json.get("exit_code") != 0:
                failures.append(answer.body[:300])
            gone = daemon.api("DELETE", f"/sessions/{session}", timeout=60)
            if gone.status >= 300:
                failures.append(gone.body[:300])

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(5):
        before = wait_for(lambda: launcher_of(daemon), "there is a launcher")
        os.kill(before, signal.SIGKILL)
        another(lambda: launcher_of(daemon), before)
        wait_for(daemon.is_ready, "the daemon is ready")
    stop.set()
    for worker in workers:
        worker.join(90)
    assert not failures
    assert run(daemon, kept, "cat", "file").json["exit_code"] == 0, "the sandbox from before all of it is still there"
    wait_for(lambda: "the launcher was replaced" in daemon.log(), "the log says so")


def test_the_daemon_is_not_ready_without_a_launcher(daemon):
    keeper = keeper_of(daemon)
    os.kill(keeper, signal.SIGSTOP)  # it cannot start another
    os.kill(launcher_of(daemon), signal.SIGKILL)
    answer = wait_for(lambda: (a := daemon.request("GET", "/readyz")).status == 503 and a, "not ready")
    assert answer.json["error"]["code"] == "launcher_unavailable"
    assert answer.json["error"]["retryable"] is True
    os.kill(keeper, signal.SIGCONT)
    wait_for(daemon.is_ready, "ready again")
    assert run(daemon, daemon.session(), "true").json["exit_code"] == 0


def test_a_killed_teardown_process_is_replaced(make_daemon):
    daemon = make_daemon(backend="native")
    launcher = launcher_of(daemon)

    def find():
        return children_of(launcher).get("sandglass-tdown")

    before = find()
    if before is None:
        return  # a host without native sandboxes
    os.kill(before, signal.SIGKILL)

    def found_by_the_next_destroy():
        daemon.api("DELETE", f"/sessions/{daemon.session()}", expect=200)
        return (found := find()) and found != before

    wait_for(found_by_the_next_destroy, "it is replaced")
    session = daemon.session()
    assert run(daemon, session, "true").json["exit_code"] == 0
    daemon.api("DELETE", f"/sessions/{session}")
    assert launcher_of(daemon) == launcher


def test_a_killed_builder_of_spares_is_replaced(make_daemon):
    """What it was at is dropped, sandboxes are made without spares meanwhile, and another one makes new ones."""
    daemon = make_daemon(backend="native")
    launcher = launcher_of(daemon)

    def find():
        return children_of(launcher).get("sandglass-build")

    before = wait_for(find, "there is a builder")
    os.kill(before, signal.SIGKILL)
    session = daemon.session()
    assert run(daemon, session, "true").json["exit_code"] == 0
    another(find, before)
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    assert run(daemon, daemon.session(), "true").json["exit_code"] == 0
    assert launcher_of(daemon) == launcher
