# SPDX-License-Identifier: Apache-2.0
"""sandglass execute: code in, output out, metadata on stderr."""
import json
import re

import pytest

from conftest import SLOWER


def session_of(result):
    match = re.search(r"^\[session\] (\S+) \(ttl: (\S+)\)$", result.stderr, re.M)
    assert match, result.stderr
    return match.group(1)


def test_python_is_the_default_language(daemon):
    result = daemon.cli("execute", "--code", "import sys; print('out'); print('err', file=sys.stderr)")
    assert (result.stdout, result.returncode) == ("out\n", 0)
    assert result.stderr.startswith("err\n")
    assert session_of(result).startswith("ses_")


def test_the_session_goes_on_with_its_id(daemon):
    first = daemon.cli("execute", "--code", "open('note.txt', 'w').write('kept')")
    session = session_of(first)
    again = daemon.cli("execute", "--language", "bash", "--session", session, "--code", "cat note.txt")
    assert again.stdout == "kept"
    assert session_of(again) == session


def test_new_files_are_named_on_stderr(daemon):
    result = daemon.cli("execute", "--code", "open('b.csv', 'w').close(); open('a.png', 'w').close()")
    assert re.search(r"^\[files\] (a\.png, b\.csv|b\.csv, a\.png)$", result.stderr, re.M), result.stderr
    assert result.stdout == ""


def test_the_ttl_reads_like_a_duration(daemon):
    result = daemon.cli("execute", "--code", "pass")
    assert re.search(r"\(ttl: (\d+h)?(\d+m)?(\d+s)?\)", result.stderr), result.stderr


@pytest.mark.parametrize("code, status", [("raise SystemExit(7)", 7), ("1/0", 1),
                                          ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_exit_code_is_the_programs(daemon, code, status):
    assert daemon.cli("execute", "--code", code).returncode == status


def test_a_timeout_is_124(daemon):
    result = daemon.cli("execute", "--timeout", f"{max(5000, 500 * SLOWER)}ms", "--code", "print('before', flush=True)\nwhile True: pass")
    assert (result.returncode, result.stdout) == (124, "before\n")


def test_code_comes_from_stdin(daemon):
    assert daemon.cli("execute", stdin="print(6 * 7)").stdout == "42\n"


def test_code_comes_from_a_file_and_its_name_tells_the_language(daemon, tmp_path):
    script = tmp_path / "script.sh"
    script.write_text("echo $((6 * 7)) $BASH_VERSION | cut -c1-3")
    assert daemon.cli("execute", "--file", script).stdout.startswith("42 ")


@pytest.mark.parametrize("arguments, stdin, message", [
    ([], "", "no code provided"),
    (["--code", ""], None, "no code provided"),
    (["--file", "/nonexistent/code.py"], None, "reading file: /nonexistent/code.py"),
    (["--code", "1", "--file", "x"], None, "exclude each other"),
    (["--language", "cobol", "--code", "1"], None, "python bash"),
])
def test_what_is_missing_is_said_and_is_125(daemon, arguments, stdin, message):
    result = daemon.cli("execute", *arguments, stdin=stdin)
    assert (result.returncode, result.stdout) == (125, "")
    assert message in result.stderr


def test_json_is_the_whole_answer_and_nothing_else(daemon):
    result = daemon.cli("execute", "--json", "--code", "print('x'); raise SystemExit(3)")
    document = json.loads(result.stdout)
    assert (document["stdout"], document["exit_code"], result.returncode) == ("x\n", 3, 3)
    assert result.stderr == ""


def test_errors_are_json_with_json(daemon):
    result = daemon.cli("execute", "--json", "--session", "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", "--code", "1")
    assert json.loads(result.stdout)["error"]["code"]
    assert (result.returncode, result.stderr) == (125, "")


def test_variables_reach_the_code(daemon):
    result = daemon.cli("execute", "-e", "WHAT=ever", "--code", "import os; print(os.environ['WHAT'])")
    assert result.stdout == "ever\n"


def test_rm_leaves_no_session(daemon):
    result = daemon.cli("execute", "--rm", "--code", "print('x'); open('f', 'w').close()")
    assert (result.returncode, result.stdout) == (0, "x\n")
    assert re.search(r"^\[session\] ses_\w+ \(ttl: ended\)$", result.stderr, re.M), result.stderr
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_rm_prints_output_that_is_long(daemon):
    result = daemon.cli("execute", "--rm", "--code", "import sys; sys.stdout.write('a' * 3_000_000)")
    assert (result.returncode, result.stdout) == (0, "a" * 3_000_000)


def test_rm_wants_a_session_of_its_own(daemon):
    result = daemon.cli("execute", "--rm", "--key", "k", "--code", "1")
    assert result.returncode == 125 and "ephemeral" in result.stderr
