# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a page as a reader would type them, one block after the other in one shell.

A block `text` behind a block `sh` is what the commands print; `…` stands for anything. A block `yaml` are settings, which are in force after the
next `systemctl restart sandglass`. That command and others that change the host are done by the test, or noted.
"""
import contextlib
import os
import re
import signal
import subprocess
import sys

import yaml

from conftest import ROOT, SANDGLASS, wait_for

NOTED = ("adduser", "apt-get")  # they would change the host
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(path):
    """(language, text, the language and text of the block behind it when nothing but blank lines is between) of each block."""
    text = path.read_text()
    found = list(BLOCK.finditer(text))
    for block, following in zip(found, [*found[1:], None]):
        behind = following and not text[block.end():following.start()].strip()
        yield block[1], block[2], following[2] if behind and following[1] == "text" else None


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def as_pattern(expected):
    return r"\s*".join(".*".join(re.escape(part) for part in line.strip().split("…")) for line in expected.strip().splitlines())


class Reader:
    """A shell in a directory of its own, with `sandglass` in its path and a daemon that it may restart."""

    def __init__(self, work, daemon, replace=None):
        self.work, self.daemon, self.replace, self.count = work, daemon, replace or {}, 0
        self.here = work / "reader"
        programs = work / "programs"
        for directory in (self.here, programs, work / "etc"):
            directory.mkdir(mode=0o755)
        (programs / "sandglass").symlink_to(SANDGLASS)
        for name in NOTED:
            write_program(programs / name, f'#!/bin/sh\necho {name} "$@" >>{work}/noted\n')
        self.shell = subprocess.Popen(["bash", "-euo", "pipefail"], stdin=subprocess.PIPE, cwd=self.here, start_new_session=True, text=True,
                                      env=self.environment(programs))

    def environment(self, programs):
        return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.here), "USER": "ann", "SANDGLASS_URL": self.daemon.url,
                "SANDGLASS_CONFIG": str(self.daemon.directory / "sandglass.yaml"), "PYTHONPATH": str(ROOT / "sdk/python/src")}

    def replaced(self, text):
        for old, new in {"/etc/sandglass": str(self.work / "etc"), **self.replace}.items():
            text = text.replace(old, new)
        return re.sub(r"^(sandglass exec -it )", r"echo exit | \1", text, flags=re.M)  # what a reader types there

    def type(self, commands):
        """Runs commands, and returns what they print on both streams."""
        self.count += 1
        out, done = self.work / f"out{self.count}", self.work / f"done{self.count}"
        self.shell.stdin.write(f"exec >{out} 2>&1\n{{\n{self.replaced(commands)}\n}} </dev/null\n: >{done}\n")
        self.shell.stdin.flush()
        wait_for(lambda: done.exists() or self.shell.poll() is not None, f"these commands end:\n{commands}", 180)
        printed = out.read_text()
        assert done.exists(), f"a command failed:\n{commands}\n{printed}\n{self.daemon.log()[-1500:]}"
        return printed

    def service(self, line):
        """What systemctl would do with the daemon."""
        action = line.split()[1]
        if action == "kill":
            self.daemon.kill()
        else:
            if self.daemon.process and self.daemon.process.poll() is None:
                self.daemon.stop()
            self.daemon.start()

    def settings(self, text):
        for key, value in yaml.safe_load(self.replaced(text)).items():
            if key == "listen":  # besides the daemon's own socket
                self.daemon.port = int(value[-1].rsplit(":", 1)[1])
            elif isinstance(value, dict):
                self.daemon.settings[key] = {**self.daemon.settings.get(key, {}), **value}
            else:
                self.daemon.settings[key] = value

    def python(self, code):
        if "def test_" in code:
            (self.here / "test_page.py").write_text(code)
            return self.type(f"{sys.executable} -m pytest -q -p no:cacheprovider -p sandglass.pytest_plugin test_page.py")
        (self.here / "page.py").write_text(code)
        return self.type(f"SANDGLASS_URL={self.daemon.url} {sys.executable} page.py")

    def read(self, path):
        """The whole page; fails where it does not do what it says."""
        for language, text, expected in blocks(path):
            if language == "yaml":
                self.settings(text)
            elif language == "python":
                self.python(text)
            elif language == "sh" and text.startswith("systemctl"):
                for line in text.splitlines():
                    self.service(line)
            elif language == "sh":
                printed = self.type(text)
                if expected is not None:
                    assert re.fullmatch(as_pattern(expected), printed.strip()), (text, expected, printed)

    def close(self):
        """Ends what the page has left running in the background."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGTERM)
        with contextlib.suppress(BrokenPipeError):
            self.shell.stdin.close()
        self.shell.wait(20)

    @property
    def noted(self):
        file = self.work / "noted"
        return file.read_text().splitlines() if file.exists() else []
