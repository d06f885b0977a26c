# SPDX-License-Identifier: Apache-2.0
"""The audit log: what is written, what is not, and that no change to it stays unseen."""
import json
import os
import signal
import subprocess

import pytest

from conftest import SANDGLASS, wait_for


@pytest.fixture
def audited(make_daemon):
    """audited(**audit settings) starts a daemon without authentication."""
    def make(**audit):
        return make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False}, "audit": audit})
    return make


def log_of(daemon):
    return daemon.state / "audit.log"


def wait_for_line(daemon, **wanted):
    def find():
        return next((line for line in daemon.audit_lines() if all(line.get(k) == v for k, v in wanted.items())), None)
    return wait_for(find, f"a line with {wanted}")


def verify(*paths):
    done = subprocess.run([SANDGLASS, "audit", "verify", "--json", *map(str, paths)], capture_output=True, text=True, timeout=30)
    return done.returncode, json.loads(done.stdout)


def test_changes_are_written_with_who_and_what_became_of_them(audited):
    daemon = audited()
    answer = daemon.api("POST", "/sessions", {"key": "mine", "env": {"API_TOKEN": "hush-1", "LANG": "C"}}, expect=201,
                        headers={"X-Sandglass-On-Behalf-Of": "ann"})
    session = answer.json["id"]
    daemon.api("GET", f"/sessions/{session}", expect=200, headers={"X-Sandglass-On-Behalf-Of": "ann"})
    daemon.api("DELETE", f"/sessions/{session}", expect=404, headers={"X-Sandglass-On-Behalf-Of": "bob"})
    daemon.api("DELETE", f"/sessions/{session}", expect=200, headers={"X-Sandglass-On-Behalf-Of": "ann"})

    created = wait_for_line(daemon, method="POST", route="/api/v1/sessions")
    assert created["request_id"] == answer.headers["x-request-id"]
    assert (created["owner"], created["on_behalf_of"], created["session"], created["status"]) == ("ann", "ann", session, 201)
    assert created["peer"] == f"uid {os.getuid()}"
    assert created["body"] == {"key": "mine", "env": {"API_TOKEN": "[redacted]", "LANG": "C"}}
    assert wait_for_line(daemon, method="DELETE", owner="bob")["status"] == 404
    assert wait_for_line(daemon, type="session.ended", session=session)["data"]["reason"] == "deleted"
    wait_for_line(daemon, method="DELETE", owner="ann", status=200)
    assert not [line for line in daemon.audit_lines() if line.get("method") == "GET"]
    assert "hush-1" not in log_of(daemon).read_text()
    assert log_of(daemon).stat().st_mode & 0o777 == 0o600
    code, report = verify(log_of(daemon))
    assert code == 0 and report["ok"] and report["findings"] == [] and (report["first"], report["last"]) == (1, report["lines"])
    assert report["open"] and report["interruptions"] == 0
    daemon.stop()
    assert not verify(log_of(daemon))[1]["open"]


@pytest.mark.parametrize("with_code, with_output", [(False, False), (True, False), (False, True)])
def test_code_and_output_are_written_only_when_asked_for(audited, with_code, with_output):
    daemon = audited(code=with_code, output=with_output)
    session = daemon.session()
    execution = daemon.execute(session, ["echo", "told", "aloud"])
    ended = wait_for_line(daemon, type="execution.ended", session=session)
    assert ended["data"]["execution_id"] == execution["id"] and ended["data"]["exit_code"] == 0
    asked = wait_for_line(daemon, method="POST", session=session, route="/api/v1/sessions/{session}/executions")
    assert asked["body"]["argv"] == (["echo", "told", "aloud"] if with_code else "[left out]")
    assert ended.get("stdout") == ("told aloud\n" if with_output else None)


def test_executions_and_the_ends_of_sandboxes_are_written_with_their_reasons(audited):
    daemon = audited()
    session = daemon.session()
    execution = daemon.execute(session, ["true"])["id"]
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    started = wait_for_line(daemon, type="execution.started", session=session)
    assert started["data"]["execution_id"] == execution
    assert wait_for_line(daemon, type="sandbox.destroyed", session=session)["data"]["reason"] == "teardown"
    daemon.execute(session, ["true"])
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    ended = wait_for(lambda: [line for line in daemon.audit_lines() if line["type"] == "sandbox.destroyed"][1:], "its second end")
    assert ended[0]["data"]["generation"] == 2 and ended[0]["data"]["reason"]
    assert verify(log_of(daemon))[0] == 0


def test_crashes_and_evictions_are_written(make_daemon):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}, "session": {"preload": False},
                                                     "capacity": {"max_sandboxes": 1}})
    cold, warm = daemon.session(), daemon.session()
    daemon.execute(cold, ["true"])
    daemon.execute(warm, ["true"])
    assert wait_for_line(daemon, type="sandbox.evicted", session=cold)["data"]["sandbox"]
    os.kill(daemon.api("GET", f"/sessions/{warm}").json["sandbox"]["pid"], signal.SIGKILL)
    assert wait_for_line(daemon, type="sandbox.crashed", session=warm)["data"]["reason"]


def test_a_killed_daemon_tells_afterwards_what_its_log_lacks(audited):
    """The log is written a moment later: what the store knows by then is added by the next daemon."""
    daemon = audited()
    wait_for(daemon.audit_lines, "its start is written")
    told, happened, last = [], set(), set()
    for _ in range(4):
        session = daemon.session()
        happened |= {("session.created", session)}
        happened |= {("execution.ended", daemon.execute(session, ["true"])["id"]) for _ in range(3)}
        running = daemon.execute(session, ["sleep", "60"], background=True)["id"]
        last.add(running)
        daemon.kill()
        checked = subprocess.run([SANDGLASS, "audit", "verify", str(log_of(daemon))], capture_output=True, text=True, timeout=30)
        assert checked.returncode == 0 and "complete" not in checked.stdout and "was killed" in checked.stdout
        daemon.start()
        told += [line for line in daemon.audit_lines() if line.get("recovered") and line["type"] != "audit.started"]

    def found_in_log():
        return [(line["type"], line["data"].get("execution_id") or line["session"]) for line in daemon.audit_lines() if "data" in line]

    wait_for(lambda: last <= {what for _, what in found_in_log()}, "they are begun, or known never to have begun")
    daemon.stop()
    found = found_in_log()
    assert happened <= set(found)
    # A start that was in the log and not yet in the store when the daemon was killed is told again by the next one, which finds it running.
    twice = {one for one in found if found.count(one) > 1}
    assert twice <= {("execution.started", what) for what in last}, twice
    assert all(line["happened"] <= line["time"] for line in told)  # none, when each kill came later than the log
    code, report = verify(log_of(daemon))
    assert code == 0 and report["interruptions"] == 4 and report["recovered"] >= len({line["seq"] for line in told})
    checked = subprocess.run([SANDGLASS, "audit", "verify", str(log_of(daemon))], capture_output=True, text=True, timeout=30)
    assert "killed 4 times" in checked.stdout and "complete" not in checked.stdout


def test_it_can_be_turned_off(audited):
    daemon = audited(enabled=False)
    daemon.session()
    daemon.stop()
    assert not log_of(daemon).exists()


def test_the_chain_goes_on_over_restarts_and_kills(audited):
    daemon = audited()
    for _ in range(3):
        daemon.session()
        wait_for(lambda: daemon.audit_lines(), "something is written")
        daemon.kill()
        daemon.start()
    daemon.stop()
    code, report = verify(log_of(daemon))
    assert code == 0, report
    assert [line["seq"] for line in daemon.audit_lines()] == list(range(1, report["lines"] + 1))


def test_a_rotated_log_goes_on_in_a_new_file(audited):
    daemon = audited()
    daemon.session()
    wait_for_line(daemon, method="POST")
    moved = daemon.state / "audit.log.1"
    os.rename(log_of(daemon), moved)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: log_of(daemon).exists(), "a new file")
    daemon.session()
    wait_for_line(daemon, method="POST")
    assert verify(moved, log_of(daemon))[0] == 0
    assert verify(log_of(daemon))[0] == 0
    assert verify(log_of(daemon), moved)[0] == 1


def tampered(original):
    """Name, number of the first bad line (0: the end), and what was made of the lines."""
    yield "an edited type", 2, [original[0], original[1].replace('"type":"s', '"type":"x'), *original[2:]]
    yield "an edited last line", len(original), [*original[:-1], original[-1].replace('"time":"2', '"time":"3')]
    yield "a removed line", 3, [*original[:2], *original[3:]]
    yield "a removed first line", 1, original[1:]
    yield "a removed last line", 0, original[:-1]
    yield "two lines swapped", 2, [original[0], original[2], original[1], *original[3:]]
    yield "a repeated line", 3, [*original[:2], original[1], *original[2:]]
    yield "an added line", 3, [*original[:2], '{"seq":3,"type":"request"}', *original[2:]]
    yield "an empty log", 0, []


def test_every_kind_of_tampering_is_found_in_its_line(audited):
    daemon = audited()
    for _ in range(5):
        daemon.session()
    wait_for(lambda: len(daemon.audit_lines()) >= 5, "five lines")
    daemon.stop()
    original = log_of(daemon).read_text().splitlines()
    assert verify(log_of(daemon))[0] == 0
    for name, line, changed in tampered(original):
        log_of(daemon).write_text("".join(text + "\n" for text in changed))
        code, report = verify(log_of(daemon))
        assert code == 1 and not report["ok"], name
        assert report["findings"][0]["line"] == line, (name, report)


def test_wrong_credentials_are_written_but_not_what_they_were(make_daemon, work):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0},
                                                     "auth": {"mode": "keys", "keys_file": str(work / "keys")}})
    daemon.request("GET", "/api/v1/whoami", headers={"X-API-Key": "sg_guess"})
    daemon.request("GET", "/api/v1/whoami")
    line = wait_for_line(daemon, type="wrong_credentials")
    assert line["status"] == 401 and line["peer"] == f"uid {os.getuid()}"
    assert "sg_guess" not in log_of(daemon).read_text()


def test_verify_without_a_file_checks_the_log_of_the_settings(make_daemon):
    daemon = make_daemon(backend="direct", settings={"audit": {"enabled": True}, "pool": {"size": 0}})
    daemon.session(preload=False)
    daemon.stop()
    checked = daemon.cli("audit", "verify", environment={"SANDGLASS_CONFIG": str(daemon.directory / "sandglass.yaml")})
    assert checked.returncode == 0 and "complete and unchanged" in checked.stdout, checked.stderr
