# SPDX-License-Identifier: Apache-2.0
"""Scopes: everything of an owner goes with whoever holds it, however that ends, and nothing else does."""
import json
import os
import re
import signal
import subprocess

import pytest

from conftest import SANDGLASS, UnixConnection, wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)

OWNER = "X-Sandglass-On-Behalf-Of"


def scope(daemon, *command, owner=None, url=True, **options):
    """Starts `sandglass scope -- command`; its output is in pipes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDGLASS_")}
    environment.update(options.pop("environment", {}))
    if url:
        environment["SANDGLASS_URL"] = daemon.url
    return subprocess.Popen([SANDGLASS, "scope", *(["--owner", owner] if owner else []), "--", *map(str, command)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment, **options)


def finish(process, seconds=60):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"no end within {seconds} s: {out!r} {err!r}")
    return process.returncode, out, err


def sessions_of(daemon, owner):
    page = daemon.api("GET", "/sessions?limit=1000", headers={OWNER: owner}, expect=200).json
    return [session["id"] for session in page["sessions"]]


def make_session(daemon, owner=""):
    return daemon.api("POST", "/sessions", {}, headers={OWNER: owner}, expect=201).json["id"]


def reason_of(daemon, owner, session):
    return wait_for(lambda: daemon.ended(session, headers={OWNER: owner}), "the end of the session").json["end_reason"]


# --- the command -----------------------------------------------------------------------------------


def test_a_command_has_an_owner_of_its_own_and_its_sessions_go_with_it(daemon):
    mine, others = make_session(daemon), make_session(daemon, "somebody")
    process = scope(daemon, "sh", "-c", f"echo $SANDGLASS_ON_BEHALF_OF; echo $SANDGLASS_URL; "
                                        f"for i in 1 2 3; do {SANDGLASS} session create; done; {SANDGLASS} ls -q; exit 7")
    code, out, err = finish(process)
    owner, url, *ids = out.split()
    assert (code, url, len(ids), ids[:3]) == (7, daemon.url, 6, ids[3:])
    assert owner.startswith("scp_") and len(owner) == 30
    assert err == "[scope] destroyed 3 session(s)\n"
    assert sessions_of(daemon, owner) == []
    assert reason_of(daemon, owner, ids[0]) == "deleted"
    assert sessions_of(daemon, "") == [mine] and sessions_of(daemon, "somebody") == [others]


def test_the_exit_code_is_the_commands(make_daemon):
    daemon = make_daemon(backend="direct")
    for script, code in (("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143)):
        result = finish(scope(daemon, "sh", "-c", f"{SANDGLASS} session create >&2; {script}"))
        assert (result[0], result[2].splitlines()[-1]) == (code, "[scope] destroyed 1 session(s)")
    plain = {"PATH": "/usr/bin:/bin"}  # others may have directories in it that they cannot look into
    assert finish(scope(daemon, "no-such-program", environment=plain))[0] == 127
    assert finish(scope(daemon, "/etc/passwd", environment=plain))[0] == 126
    assert daemon.cli("scope").returncode == 125


def test_stdio_and_signals_are_the_commands(make_daemon):
    daemon = make_daemon(backend="direct")
    process = scope(daemon, "cat")
    assert process.communicate("text\n", timeout=60) == ("text\n", "[scope] destroyed 0 session(s)\n")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        name = number.name[3:]
        process = scope(daemon, "bash", "-c", f"trap 'echo {name}; exit 9' {name}; {SANDGLASS} session create; "
                                              f"echo ready; while :; do sleep 0.02; done")
        session = process.stdout.readline().strip()
        assert session and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert finish(process) == (9, f"{name}\n", "[scope] destroyed 1 session(s)\n")


def test_a_signal_of_the_terminal_comes_once(make_daemon):
    """The whole foreground group gets it: passing it on would deliver it twice."""
    daemon = make_daemon(backend="direct")
    leader, follower = os.openpty()
    process = subprocess.Popen([SANDGLASS, "scope", "--", "bash", "-c",
                                "n=0; trap 'n=$((n+1))' INT; echo ready; until [ $n -gt 0 ]; do sleep 0.02; done; "
                                "for ((i = 0; i < 30; i++)); do sleep 0.02; done; echo $n"],
                               env={**os.environ, "SANDGLASS_URL": daemon.url}, stdin=follower, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                               preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E, 0))  # TIOCSCTTY
    os.close(follower)
    assert process.stdout.readline() == "ready\n"
    os.write(leader, b"\x03")
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert (process.returncode, out) == (0, "1\n")


def test_kill_9_of_scope_itself_takes_its_sessions(daemon):
    mine = make_session(daemon)
    process = scope(daemon, "sh", "-c", f"echo $SANDGLASS_ON_BEHALF_OF; {SANDGLASS} session create; exec sleep 100")
    owner, session = process.stdout.readline().strip(), process.stdout.readline().strip()
    assert sessions_of(daemon, owner) == [session]
    process.kill()
    wait_for(lambda: sessions_of(daemon, owner) == [], "the end of its sessions")
    finish(process)
    assert reason_of(daemon, owner, session) == "deleted: scope"
    assert sessions_of(daemon, "") == [mine]


def test_a_command_that_outlives_its_scope_gets_no_more_sessions(make_daemon):
    daemon = make_daemon(backend="direct")
    process = scope(daemon, "bash", "-c", f"trap '' TERM; echo $SANDGLASS_ON_BEHALF_OF; read; {SANDGLASS} session create")
    owner = process.stdout.readline().strip()
    process.kill()
    process.wait()
    wait_for(lambda: "scope ended" in daemon.log(), "the end of the scope")
    out, err = process.communicate("\n", timeout=60)
    assert out == "" and "has ended" in err
    assert sessions_of(daemon, owner) == []


def test_an_owner_that_is_given_is_used(daemon):
    before = make_session(daemon, "team")
    code, out, err = finish(scope(daemon, "sh", "-c", f"{SANDGLASS} session create; {SANDGLASS} ls -q", owner="team"))
    assert code == 0 and before in out.split()
    assert err == "[scope] destroyed 2 session(s)\n"
    assert sessions_of(daemon, "team") == []


def test_nested_and_parallel_scopes_do_not_touch_each_other(daemon):
    inner = f"{SANDGLASS} scope -- sh -c '{SANDGLASS} session create >/dev/null; {SANDGLASS} ls -q | wc -l'"
    outer = [scope(daemon, "sh", "-c", f"{SANDGLASS} session create; {inner}; {SANDGLASS} ls -q; read wait")
             for _ in range(3)]
    for process in outer:
        session, count, left = (process.stdout.readline().strip() for _ in range(3))
        assert (count, left) == ("1", session)
    for process in outer:
        out, err = process.communicate("\n", timeout=60)
        assert err.splitlines() == ["[scope] destroyed 1 session(s)"] * 2
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_without_a_daemon_a_private_one_is_there_and_leaves_nothing(work, backend):
    config = work / "nobody.yaml"
    config.write_text(f'listen: ["unix:{work}/none.sock"]\n')
    process = subprocess.run([SANDGLASS, "scope", "--backend", backend, "--", "sh", "-c",
                              f"echo $SANDGLASS_URL; {SANDGLASS} run -- echo hello; {SANDGLASS} session create >&2"],
                             env={**os.environ, "SANDGLASS_CONFIG": str(config), "TMPDIR": str(work)},
                             capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[1:] == ["hello"]
    assert process.stderr.endswith("[scope] destroyed 1 session(s)\n")
    assert list(work.glob("sandglass.*")) == []


def test_scopes_survive_a_daemon_that_is_killed_and_started_again(daemon):
    process = scope(daemon, "sh", "-c", f"echo $SANDGLASS_ON_BEHALF_OF; {SANDGLASS} session create; read wait; "
                                        f"{SANDGLASS} ls -q; read wait")
    owner, session = process.stdout.readline().strip(), process.stdout.readline().strip()
    daemon.kill()
    daemon.start()
    wait_for(lambda: daemon.log().count("scope opened") == 2, "the lease was taken up again")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == session
    process.kill()
    wait_for(lambda: sessions_of(daemon, owner) == [], "the end of its sessions")
    finish(process)


# --- the route -------------------------------------------------------------------------------------


class Lease:
    def __init__(self, daemon, body=None):
        self.connection = UnixConnection(str(daemon.socket))
        self.connection.request("POST", "/api/v1/scopes", json.dumps(body or {}), {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.owner = json.loads(self.response.readline())["owner"]

    def close(self):
        self.response.close()
        self.connection.close()


def test_a_lease_ends_with_its_connection(daemon):
    lease = Lease(daemon)
    assert lease.response.status == 201
    sessions = [make_session(daemon, lease.owner) for _ in range(3)]
    assert sorted(sessions_of(daemon, lease.owner)) == sorted(sessions)
    lease.close()
    wait_for(lambda: sessions_of(daemon, lease.owner) == [], "the end of its sessions")


def test_every_scope_has_another_owner_of_128_bits(make_daemon):
    daemon = make_daemon(backend="direct")
    leases = [Lease(daemon) for _ in range(20)]
    assert len({lease.owner for lease in leases}) == 20
    assert all(re.fullmatch("scp_[0-9a-hjkmnp-tv-z]{26}", lease.owner) for lease in leases)
    for lease in leases:
        lease.close()


def test_an_owner_that_is_held_is_refused_until_it_is_free(make_daemon):
    daemon = make_daemon(backend="direct")
    lease = Lease(daemon, {"owner": "team"})
    answer = daemon.api("POST", "/scopes", {"owner": "team"}, expect=409)
    assert answer.json["error"]["code"] == "scope_taken"
    lease.close()
    wait_for(lambda: "scope ended" in daemon.log(), "the end of the first")
    Lease(daemon, {"owner": "team"}).close()


def test_a_name_that_no_header_can_carry_is_refused(make_daemon):
    daemon = make_daemon(backend="direct")
    for body in ({"owner": ""}, {"owner": " x"}, {"owner": "x\n"}, {"owner": "ä"}, {"owner": "x" * 300}, {"owner": 7},
                 {"who": "x"}):
        daemon.api("POST", "/scopes", body, expect=400)


# --- with authentication ---------------------------------------------------------------------------


def test_a_delegate_has_scopes_of_its_own(keys, keyed):
    key = keys.create("ann", "delegate")["key"]
    other = keys.create("bob", "delegate")["key"]
    daemon = keyed()
    mine = daemon.api("POST", "/sessions", {}, headers=bearer(key), expect=201).json["id"]
    process = scope(daemon, "sh", "-c", f"echo $SANDGLASS_ON_BEHALF_OF; {SANDGLASS} session create; read wait",
                    environment={"SANDGLASS_API_KEY": key})
    owner, session = process.stdout.readline().strip(), process.stdout.readline().strip()
    scoped = {**bearer(key), OWNER: owner}
    assert daemon.api("GET", f"/sessions/{session}", headers=scoped, expect=200).json["owner"] == f"ann/{owner}"
    daemon.api("GET", f"/sessions/{session}", headers={**bearer(other), OWNER: owner}, expect=404)
    assert process.communicate("\n", timeout=60)[1] == "[scope] destroyed 1 session(s)\n"
    daemon.api("GET", f"/sessions/{mine}", headers=bearer(key), expect=200)
    daemon.api("POST", "/sessions", {}, headers=scoped, expect=410)


def test_without_the_role_there_is_no_scope(keys, keyed):
    key = keys.create("ann")["key"]
    daemon = keyed()
    answer = daemon.api("POST", "/scopes", {}, headers=bearer(key), expect=403)
    assert answer.json["error"]["code"] == "delegate_required"
    process = scope(daemon, "echo", "must not run", environment={"SANDGLASS_API_KEY": key})
    code, out, err = finish(process)
    assert (code, out) == (125, "") and "delegate" in err
    daemon.api("POST", "/scopes", {}, expect=401)
