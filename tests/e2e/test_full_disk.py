# SPDX-License-Identifier: Apache-2.0
"""A disk that is full: not ready for what needs it, said once and not a thousand times, and over when there is space again."""
import os
import subprocess

import pytest

from conftest import WALLS, wait_for

SIZE = 256 << 20
ROUNDS = 30

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


@pytest.fixture
def small(make_daemon):
    """A daemon with its state on a small disk; a file that fills it."""
    daemon = make_daemon(backend=WALLS, settings={"pool": {"size": 0}}, start=False)
    disk = daemon.directory / "disk"
    disk.mkdir(mode=0o711)
    daemon.state = disk / "state"
    daemon.settings["state_dir"] = str(daemon.state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "none", disk], check=True)
    try:
        yield daemon.start(), disk / "filler"
    finally:
        daemon.stop()
        wait_for(lambda: subprocess.run(["umount", disk], check=False).returncode == 0, "nothing on the disk is open")


def fill(path):
    with open(path, "wb", buffering=0) as file:
        chunk = b"x" * (1 << 20)
        while len(chunk) >= 512:
            try:
                file.write(chunk)
            except OSError:
                chunk = chunk[:len(chunk) // 2]


def readiness(daemon):
    answer = daemon.request("GET", "/readyz")
    return answer.status, answer.json["error"]["code"] if answer.status != 200 else None


def test_a_full_disk_is_told_and_passes(small):
    daemon, filler = small
    session = daemon.session()
    daemon.execute(session, ["/bin/true"])
    fill(filler)
    for _ in range(ROUNDS):
        answer = daemon.api("POST", f"/sessions/{session}/executions", {"command": "seq 5000"})
        if answer.status == 201:  # it ran; then all of its output is there, or it says that some is not
            run = answer.json
            assert run["stdout"].count("\n") == 5000 or run["error"] or run["reason"], run
        else:
            assert answer.json["error"]["code"] in ("store_failing", "store_full", "disk_full", "spool_full"), answer.body
    status, code = wait_for(lambda: (told := readiness(daemon))[0] != 200 and told, "it is not ready")
    assert status == 503 and code in ("disk_full", "store_failing"), (status, code)
    assert daemon.request("GET", "/healthz").status == 200
    lines = [line for line in daemon.log().splitlines() if '"error"' in line or '"warn"' in line]
    assert len(lines) < ROUNDS, "\n".join(lines[:40])
    filler.unlink()
    wait_for(lambda: readiness(daemon)[0] == 200, "it is ready again")
    assert daemon.execute(session, command="echo after")["stdout"] == "after\n"
