# SPDX-License-Identifier: Apache-2.0
"""The published clients of E2B, unmodified, over one port: see tests/e2b."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import ROOT
from key_file import keys  # noqa: F401  (a fixture)

FOLDER = ROOT / "tests" / "e2b"

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")


@pytest.fixture(scope="session")
def packages():
    done = subprocess.run([FOLDER / "install"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
    if done.returncode:
        pytest.skip(f"the clients of E2B could not be installed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


@pytest.fixture
def server(make_daemon, keys):  # noqa: F811
    """A daemon with keys that listens on TCP too; `environment` is all that a user of the clients sets."""
    key = json.loads(keys.command("create", "--principal", "ann", "--e2b", "--json").stdout)["key"]
    assert key.startswith("e2b_")
    daemon = make_daemon(backend="native", tcp=True, settings={"auth": {"mode": "keys", "keys_file": str(keys.path)}})
    url = f"http://127.0.0.1:{daemon.port}"
    daemon.environment_of_clients = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key}
    return daemon


def run(server, packages, *command, cwd=None):
    known = {name: value for name, value in os.environ.items() if not name.startswith("E2B_") and name != "NODE_OPTIONS"}
    environment = {**known, "NODE_MODULES": f"{packages}/node_modules", "PYTHONPATH": f"{packages}/python", "NO_COLOR": "1",
                   **server.environment_of_clients}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, cwd=cwd,
                          env=environment)


def expected_failures(client):
    lines = [line for line in (FOLDER / "expected-failures.txt").read_text().splitlines() if line and line[0] != "#"]
    return {line.split(" / ")[1].split(":")[0] for line in lines if line.split(" / ")[0] == client}


@pytest.mark.parametrize("client, command", [
    ("javascript sdk", ["node", FOLDER / "checks.mjs", "sdk"]),
    ("javascript code", ["node", FOLDER / "checks.mjs", "code"]),
    ("python sync", ["/usr/bin/python3", FOLDER / "checks.py", "sync"]),
    ("python async", ["/usr/bin/python3", FOLDER / "checks.py", "async"]),
    ("python code", ["/usr/bin/python3", FOLDER / "checks.py", "code"]),
], ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "")
def test_a_client_finds_what_it_expects(server, packages, client, command):
    done = run(server, packages, *command)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    found = json.loads(done.stdout)
    assert len(found) >= 4
    failed = {name: why for name, why in found.items() if why}
    assert set(failed) == expected_failures(client), failed


def test_the_command_line(server, packages):
    e2b = lambda *arguments: run(server, packages, "node", f"{packages}/node_modules/@e2b/cli/dist/index.js", *arguments)  # noqa: E731
    script = "import('file://' + process.argv[1]).then(async (m) => console.log((await (m.Sandbox ?? m.default.Sandbox).create()).sandboxId))"
    made = run(server, packages, "node", "-e", script, f"{packages}/node_modules/e2b/dist/index.js")
    sandbox = made.stdout.strip()
    assert sandbox.startswith("i"), made.stderr
    listed = e2b("sandbox", "list", "--format", "json")
    assert sandbox in [one["sandboxId"] for one in json.loads(listed.stdout)], listed.stdout + listed.stderr
    done = e2b("sandbox", "exec", sandbox, "echo hi")
    assert done.stdout == "hi\n", done.stdout + done.stderr
    for command in (["info", sandbox, "--format", "json"], ["logs", sandbox], ["metrics", sandbox, "--format", "json"], ["pause", sandbox],
                    ["resume", sandbox], ["kill", sandbox]):
        done = e2b("sandbox", *command)
        assert done.returncode == 0, (command, done.stdout + done.stderr)
    templates = e2b("template", "list", "--format", "json")
    assert "base" in [one["templateID"] for one in json.loads(templates.stdout)], templates.stdout + templates.stderr
    assert sandbox not in e2b("sandbox", "list", "--format", "json").stdout


def test_what_the_page_shows(server, packages):
    page = (ROOT / "docs" / "reference" / "e2b.md").read_text()
    python, javascript = (re.search(rf"^```{language}\n(.*?)^```", page, re.M | re.S)[1] for language in ("python", "js"))
    done = run(server, packages, "/usr/bin/python3", "-c", python)
    assert done.stdout == "hello\n\n", done.stderr
    done = run(server, packages, "node", "--input-type=module", "-e", javascript, cwd=packages)
    assert done.stdout == "42\n", done.stderr


def test_the_provider_of_computesdk(server, packages):
    done = run(server, packages, "node", FOLDER / "compute.mjs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {"stdout": "hi\n", "exitCode": 3, "text": "x", "names": ["a.txt"]}
