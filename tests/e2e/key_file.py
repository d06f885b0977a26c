# SPDX-License-Identifier: Apache-2.0
"""API keys for tests: made by the command line, and daemons that ask for them."""
import json
import subprocess

import pytest

from conftest import SANDGLASS


class Keys:
    """The file of keys of a daemon, through the command line."""

    def __init__(self, path):
        self.path = path

    def command(self, *arguments):
        return subprocess.run([SANDGLASS, "key", *arguments, "--keys-file", self.path], capture_output=True, text=True,
                              timeout=30)

    def create(self, principal, *roles, **options):
        more = [word for role in roles for word in ("--role", role)]
        more += [word for name, value in options.items() for word in (f"--{name}", value)]
        done = self.command("create", "--principal", principal, "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keys(work):
    directory = work / "etc"
    directory.mkdir(mode=0o755)
    return Keys(directory / "keys")


@pytest.fixture
def keyed(make_daemon, keys):
    """keyed(**settings) starts a daemon that asks for keys."""
    def make(failure_limit=0, **settings):
        return make_daemon(backend="direct", settings={
            "pool": {"size": 0}, "session": {"preload": False},
            "auth": {"mode": "keys", "keys_file": str(keys.path), "failure_limit": failure_limit}, **settings})
    return make
