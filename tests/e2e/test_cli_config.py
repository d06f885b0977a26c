# SPDX-License-Identifier: Apache-2.0
"""sandglass config init, and groups without a command."""
import json
import os
import re
import subprocess

import pytest

from conftest import SANDGLASS


def cli(*arguments, **environment):
    return subprocess.run([SANDGLASS, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "SANDGLASS_CONFIG": "", **environment})


def test_init_writes_a_file_that_the_daemon_finds(tmp_path):
    path = tmp_path / "deep" / "sandglass.yaml"
    written = cli("config", "init", SANDGLASS_CONFIG=str(path))
    assert (written.stdout, written.returncode) == (f"{path}\n", 0), written.stderr
    text = path.read_text()
    assert all(line.startswith("#") or not line for line in text.splitlines())
    assert "#session.idle_timeout: 30m" in text.splitlines()
    assert max(map(len, (line for line in text.splitlines() if line.startswith("# ")))) <= 104
    again = cli("config", "init", path)
    assert again.returncode == 1 and "exists already" in again.stderr and path.read_text() == text
    assert json.loads(cli("config", "init", "--json", tmp_path / "two.yaml").stdout) == {"file": str(tmp_path / "two.yaml")}
    assert cli("config", "init", "--print").stdout == text


def test_every_line_of_the_file_is_the_default_when_it_is_uncommented(tmp_path):
    text = cli("config", "init", "--print").stdout
    described = {each["key"] for each in json.loads(cli("config", "describe", "--json").stdout)["settings"]}
    keys = re.findall(r"^#([a-z][a-z0-9_.]*):", text, re.M)
    assert set(keys) == described and len(keys) == len(described)
    path = tmp_path / "sandglass.yaml"
    path.write_text(re.sub(r"^#(?=[a-z][a-z0-9_.]*: )", "", text, flags=re.M))
    checked = cli("config", "show", path)
    assert checked.returncode == 0, checked.stderr
    before, after = cli("config", "show").stdout, checked.stdout
    values = [re.sub(r"\s+# .*", "", each) for each in (before, after)]
    assert values[0] == values[1]


@pytest.mark.parametrize("group, listed", [("session", "create"), ("template", "import"), ("config", "init"), ("storage", "url")])
def test_a_group_without_a_command_lists_its_commands(group, listed):
    result = cli(group)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{group} needs a command" in result.stderr and re.search(rf"^  {listed} +[A-Z]", result.stderr, re.M)
    assert json.loads(cli(group, "--json").stdout)["error"]["code"] == "usage"


def test_only_a_near_name_is_suggested(tmp_path):
    assert "did you mean" not in cli("serve", "--set", "foo=bar", "--state", tmp_path).stderr
    assert 'did you mean "listen"' in cli("serve", "--set", "listne=x", "--state", tmp_path).stderr


def test_templates_are_not_managed_over_a_url(tmp_path):
    for command in ["ls"], ["rm", "x"], ["import", "x", "/dev/null"]:
        refused = cli("template", *command, "--url", "http://127.0.0.1:1", "--state", tmp_path)
        assert refused.returncode == 1 and "--url" in refused.stderr and "machine" in refused.stderr, refused.stderr
