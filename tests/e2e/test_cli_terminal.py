# SPDX-License-Identifier: Apache-2.0
"""sandglass exec -t and run -t on a real terminal."""
import os
import pty
import signal
import subprocess

import pytest

from conftest import SANDGLASS, wait_for
from terminal import Terminal


@pytest.fixture
def terminal(daemon):
    """terminal(*arguments) runs a command of the CLI on a terminal of 91 × 23."""
    made = []

    def make(*arguments, **environment):
        made.append(Terminal([SANDGLASS, *arguments],
                             {**os.environ, "SANDGLASS_URL": daemon.url, "TERM": "xterm", **environment}))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def session(daemon):
    return daemon.session()


def test_the_program_has_a_terminal_of_our_size(terminal, session):
    shell = terminal("exec", "-t", session, "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size")
    shell.expect(b"23 91")
    assert shell.wait() == 0
    assert shell.is_restored()


def test_a_resize_reaches_the_program(terminal, session):
    shell = terminal("exec", "-it", session, "--", "bash", "--norc", "-c",
                     "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done")
    shell.expect(b"ready")
    shell.resize(120, 40)
    shell.expect(b"40 120")
    assert shell.wait() == 3


def test_typing_is_echoed_once_and_reaches_the_program(terminal, session):
    shell = terminal("exec", "-it", session, "--", "sh", "-c", "read line; echo got=$line")
    wait_for(shell.is_raw, "raw mode")
    shell.type(b"hello\r")
    shell.expect(b"hello\r\n")
    shell.expect(b"got=hello\r\n")
    assert shell.wait() == 0


def test_ctrl_c_is_a_byte_that_the_programs_terminal_turns_into_a_signal(terminal, session):
    shell = terminal("exec", "-it", session, "--", "sh", "-c",
                     "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done")
    shell.expect(b"ready")
    assert shell.is_raw()
    shell.type(b"\x03")
    shell.expect(b"interrupted")
    assert shell.wait() == 7
    assert shell.is_restored()


def test_ctrl_d_ends_a_shell(terminal, session):
    shell = terminal("exec", "-it", session, "--", "sh", "-i")
    wait_for(shell.is_raw, "raw mode")
    shell.type(b"echo $((6*7))\r")
    shell.expect(b"42")
    shell.type(b"\x04")
    assert shell.wait() == 0
    assert shell.is_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_from_outside_leaves_no_raw_terminal(terminal, session, number):
    shell = terminal("exec", "-it", session, "--", "sleep", "1000")
    wait_for(shell.is_raw, "raw mode")
    shell.process.send_signal(number)
    assert shell.wait() == 128 + number
    assert shell.is_restored()


def test_a_crash_of_ours_leaves_no_raw_terminal(terminal, session):
    shell = terminal("exec", "-it", session, "--", "sleep", "1000")
    wait_for(shell.is_raw, "raw mode")
    shell.process.send_signal(signal.SIGABRT)
    assert shell.wait() == -signal.SIGABRT
    assert shell.is_restored()


def test_a_program_that_is_killed_leaves_no_raw_terminal(terminal, session):
    shell = terminal("exec", "-it", session, "--", "sh", "-c", "kill -KILL $$")
    assert shell.wait() == 137
    assert shell.is_restored()


def test_a_refused_request_leaves_the_terminal_alone(terminal):
    shell = terminal("exec", "-it", "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa", "--", "true")
    assert shell.wait() == 125
    assert shell.is_restored()


def test_the_kind_of_terminal_is_passed_on(terminal, session):
    shell = terminal("exec", "-t", session, "--", "sh", "-c", "echo kind=$TERM", TERM="vt220")
    shell.expect(b"kind=vt220")
    assert shell.wait() == 0


def test_run_with_a_terminal_removes_its_session(terminal, daemon):
    shell = terminal("run", "-it", "--", "sh", "-c", "stty size; exit 5")
    shell.expect(b"23 91")
    assert shell.wait() == 5
    assert daemon.cli("ls", "-q").stdout == ""


def test_code_is_asked_for_when_stdin_is_a_terminal(terminal):
    shell = terminal("execute")
    shell.expect(b"provide code as a file, via --code, or on stdin")
    assert shell.wait() == 125


def test_lists_are_aligned_on_a_terminal(terminal, session):
    shell = terminal("ls")
    shell.expect(b"SESSION")
    shell.expect(session[:12].encode())
    assert shell.wait() == 0


@pytest.mark.parametrize("command, given", [("cat", b""), ("cat", b"no newline"), ("cat; cat; echo over", b"a\n"), ("exec bash", b"")])
def test_the_end_of_an_input_that_is_no_terminal_ends_the_program(daemon, session, command, given):
    """The end of a terminal's input is a byte, which a begun line or a second reader uses up."""
    master, slave = pty.openpty()
    reader, writer = os.pipe()
    os.write(writer, given)
    os.close(writer)
    try:
        process = subprocess.Popen([SANDGLASS, "exec", "-it", session, "--", "sh", "-c", command], stdin=reader, stdout=slave, stderr=slave,
                                   env={**os.environ, "SANDGLASS_URL": daemon.url, "TERM": "dumb"})
        assert process.wait(60) == 0
    finally:
        process.kill()
        for each in (reader, master, slave):
            os.close(each)
