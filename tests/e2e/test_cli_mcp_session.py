# SPDX-License-Identifier: Apache-2.0
"""Options of `sandglass mcp`: what the session of the client is like, and `mcp install` that passes them on."""
import json
import os
import subprocess
import tomllib

import pytest

from conftest import SANDGLASS
from mcp_client import Stdio
from test_mcp_http import sessions
from test_mcp_stdio import alone  # noqa: F401 (a fixture)


def client_of(daemon, *arguments):
    return Stdio({"SANDGLASS_URL": daemon.url}, arguments=arguments)


def test_the_session_has_the_options_of_the_command(daemon):
    client = client_of(daemon, "--memory", "256m", "--pids", "77", "--env", "MARK=blue ü", "--idle-timeout", "7m", "--keep-files")
    assert client.bash("echo $MARK") == "blue ü\n"
    (document,) = sessions(daemon)
    assert document["limits"]["memory_bytes"] == 256 << 20 and document["limits"]["pids"] == 77
    assert document["idle_timeout"] == 420 and document["keep_files"] is True
    assert client.close() == 0
    assert sessions(daemon) == []


def test_a_session_with_a_key_stays(daemon):
    first = client_of(daemon, "--key", "project")
    first.bash("echo kept > note")
    assert first.close() == 0
    (document,) = sessions(daemon)
    assert document["key"] == "project"
    second = client_of(daemon, "--key", "project")
    assert second.bash("cat note") == "kept\n"
    second.bash("true", key="other")
    assert second.close() == 0
    assert [each["key"] for each in sessions(daemon)] == ["project"]


def test_wrong_options_end_the_command(daemon):
    for option, value, why in [("--memory", "1k", "memory"), ("--template", "../etc", "template"), ("--key", "", "key")]:
        done = subprocess.run([SANDGLASS, "mcp", option, value], env={**os.environ, "SANDGLASS_URL": daemon.url}, input="",
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and why in done.stderr, (option, done.stderr)
    answer = daemon.request("GET", "/mcp", headers={"Connection": "Upgrade", "Upgrade": "mcp-lines", "Sandglass-Session": '{"memroy": 1}'})
    assert answer.status == 400 and "memroy" in answer.body.decode()
    assert daemon.api("GET", "/sessions", expect=200).json["sessions"] == []


def test_a_private_daemon_keeps_nothing(work, alone):  # noqa: F811
    done = subprocess.run([SANDGLASS, "mcp", "--key", "k"], env=alone, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "sandglass serve" in done.stderr


def test_a_private_daemon_mounts(work, alone, tmp_path):  # noqa: F811
    (tmp_path / "in.txt").write_text("shared")
    tmp_path.chmod(0o755)
    client = Stdio(alone, arguments=["--mount", f"{tmp_path}:/data:ro"])
    assert client.bash("cat /data/in.txt") == "shared"
    assert client.close() == 0


def install(home, *arguments):
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": ""}
    return subprocess.run([SANDGLASS, "mcp", "install", *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=60)


def test_install_passes_session_options_on(tmp_path):
    (tmp_path / "data").mkdir()
    options = ["--template", "py", "--network", "open", "--memory", "1g", "--keep-files", "-e", "A=b"]
    assert install(tmp_path, *options, "--mount", f"{tmp_path}/./data:/d:ro", "--write", "cursor").returncode == 0
    entry = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]["sandglass"]
    assert entry["args"] == ["mcp", "--template", "py", "--env", "A=b", "--memory", "1g", "--network", "open", "--keep-files",
                             "--mount", f"{tmp_path}/data:/d:ro"]


@pytest.mark.parametrize("client, path", [("cursor", ".cursor/mcp.json"), ("codex", ".codex/config.toml")])
def test_install_removes_its_entry_and_nothing_else(tmp_path, client, path):
    file = tmp_path / path
    file.parent.mkdir()
    file.write_text('{"theme": "dark", "mcpServers": {"other": {"command": "x"}}}' if client == "cursor" else
                    'theme = "dark"\n\n[mcp_servers.other]\ncommand = "x"\n')
    read = json.loads if client == "cursor" else tomllib.loads
    before = read(file.read_text())
    assert install(tmp_path, "--write", client).returncode == 0
    assert read(file.read_text()) != before
    removed = install(tmp_path, "--remove", client)
    assert removed.returncode == 0 and "removed from" in removed.stdout
    assert read(file.read_text()) == before
    absent = install(tmp_path, "--remove", client)
    assert absent.returncode == 0 and "is not in" in absent.stdout and read(file.read_text()) == before
