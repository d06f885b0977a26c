# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon while a terminal writes: no byte of it is missing afterwards."""
import os
import random
import time

from conftest import wait_for

KILLS = int(os.environ.get("SANDGLASS_TERMINAL_KILLS", "6"))
LINES = 50000  # in one go: the writer has to wait for the terminal, not for the next program

# Numbered lines for as long as there is no file `stop`; at the end it tells how many there were.
WRITER = f"""i=0
until [ -e stop ]; do seq $i $((i + {LINES} - 1)); i=$((i + {LINES})); done
echo end $i"""


def start(daemon, session):
    answer = daemon.api("POST", f"/sessions/{session}/executions",
                        {"command": WRITER, "background": True, "tty": {"cols": 80, "rows": 24}}, expect=201)
    return f"/sessions/{session}/executions/{answer.json['id']}"


def length(daemon, path):
    return daemon.api("GET", path, expect=200).json["stdout_bytes"]


def first_difference(output):
    """Where the numbers do not follow each other; None when all are there."""
    *lines, end, rest = output.split(b"\r\n")
    for number, line in enumerate(lines):
        if line != b"%d" % number:
            return f"line {number}: {lines[max(number - 1, 0):number + 2]}"
    return None if (end, rest) == (b"end %d" % len(lines), b"") else f"end: {end}, {rest}"


def test_no_byte_of_a_terminal_is_missing_after_the_daemon_was_killed(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"exec": {"output_spool": "1gb"}})
    session = daemon.session()
    path = start(daemon, session)
    seed = int(os.environ.get("SANDGLASS_SEED", time.time_ns()))
    chance = random.Random(seed)
    for _ in range(KILLS):
        before = length(daemon, path)
        wait_for(lambda: length(daemon, path) > before, "more output")
        time.sleep(chance.random() * 0.05)
        daemon.kill()
        daemon.start()
    daemon.execute(session, command="touch stop")
    result = daemon.api("GET", path + "?wait=30", timeout=60).json
    assert (result["state"], result["exit_code"]) == ("exited", 0)
    answer = daemon.api("GET", path + "/output", timeout=60)
    assert "X-Sandglass-Gap" not in answer.headers
    difference = first_difference(answer.body)
    assert difference is None, f"{difference} (SANDGLASS_SEED={seed})"


def test_a_terminal_that_ended_while_no_daemon_ran_has_its_last_bytes(daemon):
    session = daemon.session()
    answer = daemon.api("POST", f"/sessions/{session}/executions",
                        {"command": "until [ -e stop ]; do sleep 0.05; done; sleep 0.5; seq 0 499; echo end 500; exit 9",
                         "background": True, "tty": {"cols": 80, "rows": 24}}, expect=201)
    path = f"/sessions/{session}/executions/{answer.json['id']}"
    wait_for(lambda: daemon.api("GET", path).json["state"] == "running", "running")
    daemon.execute(session, command="touch stop")
    daemon.kill()
    time.sleep(1.0)
    daemon.start()
    result = daemon.api("GET", path + "?wait=25").json
    assert (result["state"], result["exit_code"]) == ("exited", 9)
    assert first_difference(daemon.api("GET", path + "/output").body) is None
