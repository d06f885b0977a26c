# SPDX-License-Identifier: Apache-2.0
"""The line of progress of `cp`: percent, amount, rate and time left."""
import os
import pathlib
import re
import select
import signal
import time

import pytest

from conftest import SANDGLASS, wait_for
from terminal import Terminal
from test_cli_sessions import create

LINE = rb"\r *\d+%  [0-9.]+ [KMG]?B of [0-9.]+ [KMG]?B  [0-9.]+ [KMG]?B/s  \S+ left"


def has_read(pid):
    """How many bytes a process has read, of anything."""
    return int(re.search(r"^rchar: (\d+)$", pathlib.Path(f"/proc/{pid}/io").read_text(), re.M)[1])


def copy_slowly(daemon, *operands):
    """The daemon stands still until the first line of progress is due, which counts from when the copy has begun."""
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        terminal = Terminal([SANDGLASS, "cp", *operands], {**os.environ, "SANDGLASS_URL": daemon.url})
        wait_for(lambda: has_read(terminal.process.pid) > 256 << 10, "the copy has begun")
        due = time.monotonic() + 0.4
        wait_for(lambda: time.monotonic() > due, "a line of progress is due")
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert terminal.wait(60) == 0, terminal.seen
    return terminal.seen


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_copy_tells_how_far_it_is(daemon, tmp_path, what):
    session = create(daemon)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(b"x" * (64 << 20))
    source = tmp_path / "data" / ("large" if what == "file" else "")
    seen = copy_slowly(daemon, source, f"{session}:copy")
    assert re.search(LINE, seen), seen
    assert seen.endswith(b"\r\x1b[K")


def test_a_copy_out_knows_its_total(daemon, tmp_path):
    """Into a pipe whose reader begins when a line of progress is due."""
    session = create(daemon)
    assert daemon.cli("exec", session, "--", "sh", "-c", "head -c 67108864 /dev/zero > large").returncode == 0
    os.mkfifo(tmp_path / "pipe")
    terminal = Terminal([SANDGLASS, "cp", f"{session}:large", tmp_path / "pipe"], {**os.environ, "SANDGLASS_URL": daemon.url})
    with open(tmp_path / "pipe", "rb") as pipe:
        wait_for(lambda: select.select([pipe], [], [], 0)[0], "the copy has begun")
        due = time.monotonic() + 0.4
        wait_for(lambda: time.monotonic() > due, "a line of progress is due")
        assert len(pipe.read()) == 64 << 20
    assert terminal.wait(60) == 0, terminal.seen
    assert re.search(LINE, terminal.seen), terminal.seen
