# SPDX-License-Identifier: Apache-2.0
"""A command on a real terminal: a pty whose other end the test holds."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest


class Terminal:
    """Runs a command with a terminal as its stdin, stdout and stderr, and as its controlling terminal."""

    def __init__(self, arguments, environment, columns=91, rows=23):
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.seen = b""
        self.process = subprocess.Popen(
            list(map(str, arguments)), stdin=slave, stdout=slave, stderr=slave, env=environment,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def read(self, seconds=0.05):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                pass

    def expect(self, text, seconds=30):
        """Reads until `text` has been shown and forgets what came before its end."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            if time.monotonic() > deadline:
                pytest.fail(f"{text!r} not within {seconds} s; the terminal shows {self.seen!r}")
            self.read()
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def wait(self, seconds=30):
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                pytest.fail(f"no end within {seconds} s; the terminal shows {self.seen!r}")
            self.read()
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
