# SPDX-License-Identifier: Apache-2.0
"""Names of sessions on the command line: ids, beginnings of ids, keys; and tables that fit the terminal."""
import json
import os
import re

from conftest import SANDGLASS
from terminal import Terminal
from test_cli_sessions import create


def on_terminal(daemon, *arguments, columns=80):
    terminal = Terminal([SANDGLASS, *arguments], {**os.environ, "SANDGLASS_URL": daemon.url}, columns=columns)
    assert terminal.wait(60) == 0, terminal.seen
    return terminal.seen.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def test_the_beginning_of_an_id_names_its_session(daemon):
    session = create(daemon)
    for name in session[:12], session[4:12]:
        assert json.loads(daemon.cli("inspect", name).stdout)["id"] == session
        assert daemon.cli("exec", name, "--", "echo", "hi").stdout == "hi\n"
        assert session in daemon.cli("why", name).stdout
    assert daemon.cli("execute", "-s", session[:10], "--code", "print(3)").stdout == "3\n"
    assert daemon.cli("rm", session[:12]).stdout == session + "\n"


def test_a_bare_key_names_its_session(daemon):
    session = create(daemon, "--key", "bob")
    assert json.loads(daemon.cli("inspect", "bob").stdout)["id"] == session
    assert daemon.cli("exec", "bob", "--", "sh", "-c", "echo in > f").returncode == 0
    assert daemon.cli("cp", "bob:f", "-").stdout == "in\n"
    assert daemon.cli("execute", "--session", "bob", "--code", "print(open('f').read())").stdout == "in\n\n"
    assert daemon.cli("tools", "call", "-s", "bob", "bash", '{"command": "cat f"}').stdout.startswith("in")
    assert daemon.cli("rm", "bob").stdout == session + "\n"


def test_an_ended_session_is_found_by_its_beginning(daemon):
    session = create(daemon)
    assert daemon.cli("rm", session).returncode == 0
    answer = daemon.cli("why", session[:12])
    assert (answer.returncode, session in answer.stdout) == (0, True), answer.stderr


def test_an_ambiguous_beginning_lists_the_candidates(daemon):
    by_letter = {}
    while not any(len(each) > 1 for each in by_letter.values()):
        session = create(daemon, "--no-preload")
        by_letter.setdefault(session[:5], []).append(session)
    beginning, sessions = next(each for each in by_letter.items() if len(each[1]) > 1)
    refused = daemon.cli("rm", beginning)
    assert refused.returncode == 1
    assert all(each in refused.stderr for each in sessions), refused.stderr
    assert set(sessions) <= set(daemon.cli("ls", "-q").stdout.split())
    document = json.loads(daemon.cli("inspect", beginning, "--json").stdout)
    assert document["error"]["code"] == "ambiguous"


def test_a_name_that_fits_nothing_is_not_found(daemon):
    create(daemon)
    for name in "nobody", "ses_00000000", "a b/c", "zz":
        refused = daemon.cli("inspect", name)
        assert refused.returncode == 1 and "not found" in refused.stderr, refused.stderr
        assert "GET /" not in refused.stderr


def test_the_beginning_of_an_execution_names_it(daemon):
    session = create(daemon)
    assert daemon.cli("exec", session, "--", "echo", "one").returncode == 0
    execution = daemon.cli("ps", session).stdout.split("\t")[0]
    assert daemon.cli("logs", session, execution[:12]).stdout == "one\n"
    assert json.loads(daemon.cli("inspect", session[:12], execution[4:14]).stdout)["id"] == execution


def test_tables_fit_the_terminal(daemon):
    session = create(daemon, "--key", "a-key-that-is-long-" * 4, "--label", "project=" + "x" * 60)
    assert daemon.cli("exec", session, "--", "echo", "w" * 200).returncode == 0
    for command in ["ls"], ["ls", "--owner", "*"], ["ps", session], ["top", "--once"], ["flavors"]:
        for columns in 80, 60, 40:
            lines = on_terminal(daemon, *command, columns=columns)
            assert all(len(line) <= columns for line in lines), (command, columns, lines)
    lines = on_terminal(daemon, "ls")
    assert lines[0].split() == ["SESSION", "KEY", "ENDS"]
    assert lines[1].startswith(session[:12] + "  ") and session not in lines[1]
    wide = on_terminal(daemon, "ls", "--owner", "*", columns=400)
    assert wide[0].split() == ["SESSION", "KEY", "STATE", "SANDBOX", "AGE", "ENDS", "LABELS", "OWNER"]
    assert "x" * 60 in wide[1]


def test_ids_are_whole_in_a_pipe(daemon):
    session = create(daemon)
    assert daemon.cli("ls").stdout.split("\t")[0] == session
    assert re.fullmatch(r"exe_[a-z0-9]{26}", daemon.cli("exec", "-d", session, "--", "true").stdout.strip())


def test_hints_name_commands_and_never_requests(daemon):
    session = create(daemon)
    for arguments, hint in [(("storage", "get", session, "none"), None), (("tools", "call", "none"), "tools ls"),
                            (("approvals", "approve", "apr_none"), "approvals ls"), (("inspect", "nobody"), "sandglass ls"),
                            (("node", "drain", "none"), None), (("cp", f"{session}:none", "-"), None)]:
        refused = daemon.cli(*arguments)
        assert refused.returncode != 0, arguments
        assert not re.search(r"(GET|POST|PUT|PATCH|DELETE) /|/api/v1", refused.stderr), refused.stderr
        assert hint is None or hint in refused.stderr, refused.stderr
