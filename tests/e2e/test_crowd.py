# SPDX-License-Identifier: Apache-2.0
"""Many executions of many owners at the same time: every byte, code and owner is right, and the daemon does not grow."""
import json
import os
import threading

import pytest

from conftest import SANDGLASS, WALLS, UnixConnection, wait_for

SESSIONS = 50
KINDS = ("stdin", "terminal", "signal", "timeout")


class Client:
    """One connection that is kept, as a real client does."""

    def __init__(self, daemon, owner):
        self.connection = UnixConnection(str(daemon.socket), timeout=120)
        self.owner = owner

    def call(self, method, path, body=None, raw=False, expect=200):
        headers = {"X-Sandglass-On-Behalf-Of": self.owner, "Content-Type": "application/octet-stream"}
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        self.connection.request(method, "/api/v1" + path, body, headers)
        response = self.connection.getresponse()
        data = response.read()
        assert response.status == expect, (method, path, response.status, data)
        return data if raw else json.loads(data)


def run_to_timeout(client, base, text):
    """A program that speaks and is ended by its timeout. On a busy machine it may be ended before it speaks: it gets longer then."""
    for timeout in (0.5, 4, 30):
        run = client.call("POST", base, {"command": f"echo {text}; sleep 600", "timeout": timeout, "background": True}, expect=201)
        end = client.call("GET", f"{base}/{run['id']}?wait=60")
        output = client.call("GET", f"{base}/{run['id']}/output?stream=stdout", raw=True)
        if output or end["state"] != "timeout":
            break
    if (end["state"], end["exit_code"], output.decode()) != ("timeout", None, text + "\n"):
        return f"timeout: {end['state']} {end['exit_code']} {end.get('error')} {output[:200]!r}"
    return None


def run_one(client, base, kind, seed):
    """One execution from its start to its end; what is wrong with it, or None."""
    text = f"{kind}-{seed}-" + "x" * (seed % 5000)
    if kind == "timeout":
        return run_to_timeout(client, base, text)
    bodies = {
        "stdin": {"argv": ["/bin/cat"], "stdin": True},
        "terminal": {"command": f"stty -echo -onlcr; echo ready; read line; echo \"$line\"; exit {seed % 50}", "tty": {"cols": 99, "rows": 9}},
        "signal": {"command": f"trap 'echo {text}; exit {seed % 50}' USR1; echo ready; while :; do sleep 0.05; done"},
    }
    run = client.call("POST", base, {**bodies[kind], "background": True}, expect=201)
    path = f"{base}/{run['id']}"
    if kind == "stdin":
        client.call("POST", path + "/stdin", text[:100])
        client.call("POST", path + "/stdin?eof=1", text[100:])
    elif kind == "terminal":
        client.call("GET", path + "/wait?output=ready&timeout=60")
        client.call("POST", path + "/resize", {"cols": 50, "rows": 5})
        client.call("POST", path + "/stdin", text[:1000] + "\n")
        text = "ready\n" + text[:1000] + "\n"
    else:
        client.call("GET", path + "/wait?output=ready&timeout=60")
        client.call("POST", path + "/signal", {"signal": "USR1"})
        text = f"ready\n{text}\n"
    end = client.call("GET", path + "?wait=60")
    code = 0 if kind == "stdin" else seed % 50
    output = client.call("GET", path + "/output?stream=stdout", raw=True)
    if (end["state"], end["exit_code"]) != ("exited", code) or output.decode().replace("\r", "") != text:
        return f"{kind} {seed}: {end['state']} {end['exit_code']} {end.get('error')} {output[:200]!r}"
    return None


def round_of(daemon, sessions, problems, number):
    def work(index):
        owner, session = sessions[index // len(KINDS)]
        client = Client(daemon, owner)
        try:
            problem = run_one(client, f"/sessions/{session}/executions", KINDS[index % len(KINDS)], number * 1000 + index)
            stranger = sessions[(index // len(KINDS) + 1) % len(sessions)][1]
            client.call("GET", f"/sessions/{stranger}/executions", expect=404)
            if problem:
                problems.append(problem)
        except Exception as problem:  # a thread's own failure is the test's
            problems.append(repr(problem))
        finally:
            client.connection.close()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(sessions) * len(KINDS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("backend", [WALLS])
def test_two_hundred_executions_in_fifty_sessions(make_daemon, backend):
    count = 12 if "asan" in str(SANDGLASS) or backend == "gvisor" else SESSIONS  # each kernel of gVisor needs a second to start
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}, "python": {"warm": False}, "exec": {"grace": "1s"}})
    sessions = []
    for index in range(count):
        owner = f"owner-{index}"
        sessions.append((owner, Client(daemon, owner).call("POST", "/sessions", {}, expect=201)["id"]))
    problems = []
    round_of(daemon, sessions, problems, 0)
    assert not problems, "\n".join(problems[:5])
    before = daemon.resident_kib(), daemon.descriptors()
    round_of(daemon, sessions, problems, 1)
    assert not problems, "\n".join(problems[:5])
    if "asan" not in str(SANDGLASS):
        wait_for(lambda: daemon.resident_kib() < before[0] + 2048, "its memory back, when it rests")
    wait_for(lambda: daemon.descriptors() <= before[1], "its descriptors back")
