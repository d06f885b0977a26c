# SPDX-License-Identifier: Apache-2.0
"""The parent of an engine's processes: starts dockerd when it is told to, reaps what nobody else does, and ends everything with its input.

Shims outlive whoever has started them, and so do containerd and containers when dockerd is killed: without a parent that waits for them they
would stay as zombies where PID 1 does not reap, and dockerd takes a zombie for a containerd that still runs. The input ends also when the
process is killed that wanted the engine.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import sys
import time

from . import private

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
libc = ctypes.CDLL(None)


def spawn(command, log):
    child = os.fork()
    if child == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(3, 256)
            os.chdir("/")
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    return child


def reap(*_):
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end(child, seconds):
    """As an operator ends it; with force when that takes too long."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        deadline = time.monotonic() + patience
        while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
            time.sleep(0.01)


def main():
    directory = pathlib.Path(sys.argv[1])
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, reap)
    child = None
    for line in sys.stdin:
        child = spawn(json.loads(line), directory / "engine.log")
        print(child, flush=True)
    if child:
        private.kill_containers(directory)  # dockerd gives each of them ten seconds
        end(child, 20)
    private.sweep(directory)


if __name__ == "__main__":
    main()
