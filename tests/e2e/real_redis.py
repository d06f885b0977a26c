# SPDX-License-Identifier: Apache-2.0
"""The Redis server of a run with SANDGLASS_STORE=redis: one for each process of the suite, on a unix socket, gone with it."""
import atexit
import functools
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

IN_USE = os.environ.get("SANDGLASS_STORE") == "redis"


def takes_connections(path):
    """Whether it listens, for everybody: the socket is there before that."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return path.stat().st_mode & 0o777 == 0o777


@functools.cache
def socket_path():
    """Starts it. Daemons that have dropped root may use the socket."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sgr-"))
    os.chmod(directory, 0o711)
    path = directory / "socket"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--unixsocketperm", "777", "--dir", directory, "--save", "",
                               "--appendonly", "no", "--logfile", directory / "log"], stdin=subprocess.DEVNULL)

    def stop():
        server.kill()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(stop)
    deadline = time.monotonic() + 30
    while not takes_connections(path):
        assert server.poll() is None and time.monotonic() < deadline, "redis-server did not start"
        time.sleep(0.01)
    return path


def settings_for(state, settings):
    """The settings of a daemon, with a store of its own in the server; those of a test that names a store are left alone."""
    if not IN_USE or "store" in settings:
        return settings
    return {**settings, "store": {"kind": "redis", "redis": {"url": f"unix://{socket_path()}", "prefix": f"{state}:"}}}
