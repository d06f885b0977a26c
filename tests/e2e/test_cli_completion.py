# SPDX-License-Identifier: Apache-2.0
"""Completion of what only the daemon and the settings know."""
import os
import shutil
import subprocess

import pytest

from conftest import SANDGLASS


def environment_of(daemon):
    return {**os.environ, "SANDGLASS_URL": daemon.url, "PATH": f"{SANDGLASS.parent}:{os.environ['PATH']}"}


def bash(daemon, line):
    """What bash offers: words are split at colons, as its COMP_WORDBREAKS says."""
    words = [piece for word in line.split(" ") for piece in word.replace(":", " : ").split(" ")] if ":" in line else line.split(" ")
    script = subprocess.run([SANDGLASS, "completion", "bash"], capture_output=True, text=True, check=True).stdout + f"""
COMP_WORDS=({' '.join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
COMP_LINE='{line}'
COMP_POINT={len(line)}
_sandglass
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment_of(daemon), timeout=60)
    return result.stdout.split()


def fish(daemon, line, tmp_path):
    script = subprocess.run([SANDGLASS, "completion", "fish"], capture_output=True, text=True, check=True).stdout
    (tmp_path / "sandglass.fish").write_text(script)
    result = subprocess.run(["fish", "-c", f"source {tmp_path}/sandglass.fish; complete -C '{line}'"], capture_output=True, text=True,
                            env={**environment_of(daemon), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}, timeout=60)
    return [each.split("\t")[0] for each in result.stdout.splitlines()]


@pytest.fixture
def notes(daemon):
    session = daemon.session(key="notes")
    daemon.execute(session, ["/bin/sh", "-c", "mkdir dir; touch dir/one.txt dir/two.txt note.md"])
    return session


def test_bash_offers_sessions_once(daemon, notes):
    assert sorted(bash(daemon, "sandglass why ")) == sorted(["notes", notes])
    assert bash(daemon, "sandglass logs no") == ["notes"]
    assert bash(daemon, f"sandglass exec {notes} ") == []
    assert sorted(bash(daemon, "sandglass rm notes ")) == sorted(["notes", notes])
    assert bash(daemon, "sandglass execute --session no") == ["notes"]
    assert bash(daemon, "sandglass session extend --timeout 1h no") == ["notes"]


def test_bash_offers_executions_behind_their_session(daemon, notes):
    (execution,) = [each["id"] for each in daemon.api("GET", f"/sessions/{notes}/executions", expect=200).json["executions"]]
    assert bash(daemon, "sandglass logs notes ") == [execution]
    assert bash(daemon, "sandglass logs -f notes exe_") == [execution]


def templates(daemon):
    """Which ones there are depends on the backend: "host" is a directory of this machine, and a pod has an image."""
    names = [template["name"] for template in daemon.api("GET", "/templates", expect=200).json["templates"]]
    assert names
    return names


def test_bash_offers_templates_and_settings(daemon):
    assert set(templates(daemon)) <= set(bash(daemon, "sandglass run --template "))
    assert bash(daemon, "sandglass serve --set session.idle") == ["session.idle_timeout="]


def test_bash_offers_files_behind_a_session(daemon, notes):
    assert "notes:" in bash(daemon, "sandglass cp no")
    assert sorted(bash(daemon, "sandglass cp notes:")) == ["dir/", "note.md"]
    assert sorted(bash(daemon, "sandglass cp x.txt notes:dir/")) == ["dir/one.txt", "dir/two.txt"]
    assert bash(daemon, "sandglass cp notes:no") == ["note.md"]
    daemon.api("PUT", f"/sessions/{notes}/files?path=.hidden", b"x")
    assert sorted(bash(daemon, "sandglass cp notes:")) == ["dir/", "note.md"], "as shells do"
    assert bash(daemon, "sandglass cp notes:.h") == [".hidden"]


def test_a_completion_starts_no_sandbox(daemon):
    daemon.session(key="empty", preload=False)
    assert bash(daemon, "sandglass cp empty:") == []
    assert daemon.api("GET", "/sessions/key:empty", expect=200).json["generation"] == 0


def test_nothing_is_offered_without_a_daemon(tmp_path):
    for kind in "sessions", "templates", "files", "executions", "nonsense":
        result = subprocess.run([SANDGLASS, "--url", f"unix:{tmp_path}/none", "completion", "values", kind, "a:b"], capture_output=True, text=True)
        assert (result.stdout, result.returncode) == ("", 0)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_offers_the_same(daemon, notes, tmp_path):
    assert {"notes", notes} <= set(fish(daemon, "sandglass why ", tmp_path))
    assert "notes:note.md" in fish(daemon, "sandglass cp notes:no", tmp_path)
    assert set(templates(daemon)) <= set(fish(daemon, "sandglass run --template ", tmp_path))
