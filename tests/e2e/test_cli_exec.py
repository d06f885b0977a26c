# SPDX-License-Identifier: Apache-2.0
"""sandglass exec, run and logs: streams, exit codes, signals."""
import hashlib
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import SANDGLASS, SLOWER, wait_for


@pytest.fixture
def session(daemon):
    return daemon.session()


def start(daemon, *arguments, **options):
    options.setdefault("bufsize", 0)  # what is read by line and what is read later must not meet in a buffer
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([SANDGLASS, *map(str, arguments)], env={**os.environ, "SANDGLASS_URL": daemon.url},
                            **options)


def finish(process, seconds=60):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"no end within {seconds} s: {out!r} {err!r}")
    return process.returncode, out, err


def read_line(process):
    return process.stdout.readline().decode().strip()


# --- streams ---------------------------------------------------------------------------------------


def test_both_streams_come_out_untouched_and_nothing_else_does(daemon, session):
    result = daemon.cli("exec", session, "--", "sh", "-c", "printf 'a\\tb'; printf 'c\\n' >&2")
    assert (result.stdout, result.stderr, result.returncode) == ("a\tb", "c\n", 0)


def test_bytes_that_are_not_text_come_out_as_they_are(daemon, session):
    everything = bytes(range(256)) * 64
    result = daemon.cli("exec", "-i", session, "--", "cat", stdin=everything, text=False)
    assert result.stdout == everything


def test_a_large_input_and_output_arrive_whole(daemon, session):
    data = os.urandom(1 << 20) * 24
    result = daemon.cli("exec", "-i", session, "--", "cat", stdin=data, text=False)
    assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(data).digest()


def test_stdin_comes_from_a_file_too(daemon, session):
    with open("/etc/passwd", "rb") as file:
        code, out, _ = finish(start(daemon, "exec", "-i", session, "--", "cat", stdin=file))
    assert (code, out) == (0, open("/etc/passwd", "rb").read())


def test_without_i_the_program_has_no_input(daemon, session):
    result = daemon.cli("exec", session, "--", "cat", stdin="not for it")
    assert (result.stdout, result.returncode) == ("", 0)


def test_an_input_that_stays_open_does_not_keep_us_from_ending(daemon, session):
    process = start(daemon, "exec", "-i", session, "--", "sh", "-c", "read line; echo $line", stdin=subprocess.PIPE)
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert read_line(process) == "one"
    wait_for(lambda: process.poll() is not None, "the end of exec")
    process.stdin.close()
    assert process.returncode == 0
    process.stdout.close()
    process.stderr.close()


def test_a_program_that_reads_nothing_ends_all_the_same(daemon, session):
    result = daemon.cli("exec", "-i", session, "--", "true", stdin=b"x" * (8 << 20), text=False)
    assert result.returncode == 0


def test_output_comes_while_the_program_runs(daemon, session):
    process = start(daemon, "exec", "-i", session, "--", "sh", "-c", "echo first; read line; echo second",
                    stdin=subprocess.PIPE)
    assert read_line(process) == "first"
    assert process.poll() is None
    process.stdin.write(b"\n")
    code, out, _ = finish(process)
    assert (code, out) == (0, b"second\n")


def test_a_reader_that_stops_reading_ends_the_program(daemon, session):
    process = start(daemon, "exec", session, "--", "sh", "-c", "trap '' PIPE; while echo y; do :; done")
    process.stdout.read(2)
    process.stdout.close()
    wait_for(lambda: process.poll() is not None, "the end of exec")
    process.stderr.close()
    assert process.returncode == 128 + signal.SIGPIPE
    wait_for(lambda: "running" not in daemon.cli("ps", session).stdout, "the end of the program")


def test_a_full_disk_is_said_and_ends_the_program(daemon, session):
    with open("/dev/full", "wb") as full:
        code, _, err = finish(start(daemon, "exec", session, "--", "sh", "-c", "while echo y; do :; done", stdout=full))
    assert code == 125 and b"No space left" in err
    assert "running" not in daemon.cli("ps", session).stdout


def test_a_reader_that_pauses_loses_nothing(daemon, session):
    process = start(daemon, "exec", session, "--", "seq", "1", "400000")
    first = process.stdout.read(10)
    time.sleep(0.3)
    code, out, _ = finish(process)
    expected = "".join(f"{i}\n" for i in range(1, 400001)).encode()
    assert (code, first + out) == (0, expected)


def test_a_daemon_that_is_replaced_costs_no_line(make_daemon, backend):
    daemon = make_daemon(backend=backend)
    session = daemon.session()
    process = start(daemon, "exec", session, "--", "bash", "-c", "for i in $(seq 200); do echo $i; sleep 0.01; done")
    assert read_line(process) == "1"
    daemon.kill()
    daemon.start()
    code, out, err = finish(process)
    assert (code, out) == (0, "".join(f"{i}\n" for i in range(2, 201)).encode()), err


# --- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("exit 255", 255),
                                          ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)])
def test_the_exit_code_is_the_programs(daemon, session, script, code):
    assert daemon.cli("exec", session, "--", "sh", "-c", script).returncode == code


def test_a_timeout_is_124_and_keeps_the_output(daemon, session):
    daemon.execute(session, ["true"])  # its sandbox is there, for which the timeout does not wait
    result = daemon.cli("exec", "--timeout", f"{5 + SLOWER}s", session, "--", "sh", "-c", "echo before; sleep 100")
    assert (result.returncode, result.stdout) == (124, "before\n")
    assert "timed out" in result.stderr


def test_what_does_not_exist_is_127(daemon, session):
    result = daemon.cli("exec", session, "--", "no-such-program")
    assert (result.returncode, result.stdout) == (127, "")
    assert "no-such-program" in result.stderr


def test_what_is_not_executable_is_126(daemon, session):
    result = daemon.cli("exec", session, "--", "/etc/passwd")
    assert (result.returncode, result.stdout) == (126, "")
    assert "/etc/passwd" in result.stderr


def test_what_sandglass_cannot_do_is_125(daemon, session):
    unknown = daemon.cli("exec", "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", "--", "true")
    assert (unknown.returncode, unknown.stdout) == (125, "")
    assert daemon.cli("exec", session).returncode == 125
    assert daemon.cli("exec", "--no-such-option", session, "--", "true").returncode == 125


# --- options ---------------------------------------------------------------------------------------


def test_environment_directory_and_options_in_any_place(daemon, session):
    result = daemon.cli("exec", "-e", "A=1", session, "--env=B=two words", "-e", "HERE", "-w", "/", "--",
                        "sh", "-c", "echo $A:$B:$HERE; pwd", environment={"HERE": "mine"})
    assert result.stdout == "1:two words:mine\n/\n"


def test_options_behind_the_command_are_the_commands(daemon, session):
    result = daemon.cli("exec", session, "echo", "-n", "--json", "--", "x")
    assert result.stdout == "--json -- x"


def test_detached_prints_the_execution_and_logs_follow_it(daemon, session):
    started = daemon.cli("exec", "-d", session, "--", "sh", "-c", "echo one; echo two >&2; sleep 0.3; echo three")
    execution = started.stdout.strip()
    assert (started.returncode, execution.startswith("exe_")) == (0, True)
    followed = daemon.cli("logs", "-f", session, execution)
    assert (followed.stdout, followed.stderr, followed.returncode) == ("one\nthree\n", "two\n", 0)
    assert daemon.cli("logs", session).stdout == "one\nthree\n"
    assert daemon.cli("logs", "--stderr", session).stdout == "two\n"
    assert daemon.cli("logs", "--stdout", "--offset", "4", session).stdout == "three\n"


def test_logs_of_nothing_say_so(daemon, session):
    result = daemon.cli("logs", session)
    assert (result.returncode, result.stdout) == (1, "")
    assert "has no executions" in result.stderr


def test_json_is_one_document_with_the_programs_exit_code(daemon, session):
    result = daemon.cli("exec", "--json", session, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    document = json.loads(result.stdout)
    assert (document["stdout"], document["stderr"], document["exit_code"]) == ("out\n", "err\n", 3)
    assert (result.returncode, result.stderr) == (3, "")


def test_json_takes_input_too(daemon, session):
    result = daemon.cli("exec", "-i", "--json", session, "--", "cat", stdin="text")
    assert json.loads(result.stdout)["stdout"] == "text"


def test_errors_are_json_with_json(daemon):
    result = daemon.cli("exec", "--json", "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", "--", "true")
    assert json.loads(result.stdout)["error"]["message"]
    assert (result.returncode, result.stderr) == (125, "")


def test_executions_are_listed_with_their_command(daemon, session):
    daemon.cli("exec", session, "--", "sh", "-c", "exit 3")
    row = daemon.cli("ps", session).stdout.rstrip("\n").split("\t")
    assert (len(row), row[1], row[2], row[6]) == (7, "exited", "3", "sh -c exit 3")
    assert row[0].startswith("exe_") and row[3].endswith("Z") and row[5].endswith("Z")


# --- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_to_the_program(daemon, session, number):
    name = number.name[3:]
    process = start(daemon, "exec", session, "--", "bash", "-c",
                    f"trap 'echo {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done")
    assert read_line(process) == "ready"
    process.send_signal(number)
    code, out, _ = finish(process)
    assert (code, out) == (9, f"{name}\n".encode())


def test_a_signal_that_kills_the_program_is_our_exit_code(daemon, session):
    process = start(daemon, "exec", session, "--", "sh", "-c", "echo ready; exec sleep 100")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


def test_a_second_signal_cancels_what_does_not_want_to_end(daemon, session):
    process = start(daemon, "exec", session, "--", "bash", "-c",
                    "trap 'echo no' INT; trap '' TERM; echo ready; while :; do sleep 0.05; done")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert read_line(process) == "no"
    process.send_signal(signal.SIGINT)
    code, _, _ = finish(process)
    assert code == 130
    assert "running" not in daemon.cli("ps", session).stdout


# --- run -------------------------------------------------------------------------------------------


def test_run_makes_a_session_and_removes_it(daemon):
    result = daemon.cli("run", "-e", "A=b", "--label", "x=y", "--", "sh", "-c", "echo $A; exit 6")
    assert (result.stdout, result.stderr, result.returncode) == ("b\n", "", 6)
    assert daemon.cli("ls", "-q").stdout == ""


def test_run_with_keep_leaves_the_session(daemon):
    result = daemon.cli("run", "--keep", "--label", "x=y", "--", "sh", "-c", "echo kept > note")
    session = daemon.cli("ls", "-q", "--label", "x=y").stdout.strip()
    assert result.returncode == 0 and session and session in result.stderr
    assert daemon.cli("exec", session, "--", "cat", "note").stdout == "kept\n"


def test_run_that_is_interrupted_removes_its_session(daemon):
    process = start(daemon, "run", "--", "sh", "-c", "echo ready; exec sleep 100")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert daemon.cli("ls", "-q").stdout == ""


def test_run_with_a_timeout_is_124(daemon):
    assert daemon.cli("run", "--timeout", "300ms", "--", "sleep", "100").returncode == 124
    assert daemon.cli("ls", "-q").stdout == ""
