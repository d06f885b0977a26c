# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, with real runs of pytest against the real daemon."""
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import ROOT, SANDGLASS, our_processes, wait_for

SOURCE = str(ROOT / "sdk" / "python" / "src")


class Suite:
    """A directory with tests, and runs of pytest in it."""

    def __init__(self, directory):
        self.directory = directory
        self.owners = directory / "owners"
        self.owners.mkdir()
        (directory / "pytest.ini").write_text("[pytest]\n")
        (directory / "conftest.py").write_text(textwrap.dedent(f"""
            import os, pathlib

            def pytest_runtest_setup(item):
                owner = os.environ.get("SANDGLASS_ON_BEHALF_OF")
                if owner:
                    (pathlib.Path({str(self.owners)!r}) / owner).touch()
        """))

    def write(self, text):
        (self.directory / "test_it.py").write_text(textwrap.dedent(text))

    def run(self, *arguments, environment=None, seconds=120):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SANDGLASS_", "PYTEST_"))}
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "sandglass.pytest_plugin", "-p", "no:cacheprovider",
                               f"--junit-xml={self.directory}/report.xml", *map(str, arguments)],
                              cwd=self.directory, capture_output=True, text=True, timeout=seconds,
                              env={**variables, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1",
                                   **(environment or {})})
        done.owners = [path.name for path in self.owners.iterdir()]
        return done

    def properties(self):
        """test name → ids in destroyed_sandbox_sessions"""
        found = {}
        for case in ElementTree.parse(self.directory / "report.xml").iter("testcase"):
            for entry in case.iter("property"):
                if entry.get("name") == "destroyed_sandbox_sessions":
                    found[case.get("name")] = re.findall(r"ses_\w+", entry.get("value"))
        return found


@pytest.fixture
def suite(work):
    directory = work / "suite"
    directory.mkdir()
    return Suite(directory)


def sessions_left(daemon, owners):
    return [session["id"] for owner in ["", *owners]
            for session in daemon.api("GET", "/sessions", headers={"X-Sandglass-On-Behalf-Of": owner}).json["sessions"]]


def programs(*argv):
    """Processes with exactly this command line."""
    wanted = b"".join(word.encode() + b"\0" for word in argv)
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def test_each_test_has_a_fresh_sandbox_that_is_named_after_it_and_gone_after_it(daemon, suite):
    suite.write("""
        import os, pytest

        def test_one(sandbox, sandglass_client):
            assert sandbox.run("echo hello > note; cat note").stdout == "hello\\n"
            assert sandbox.raw["key"] == "test_it.py::test_one"
            assert sandbox.raw["labels"] == {"pytest": "test_it.py::test_one"}
            assert [s.id for s in sandglass_client.sessions()] == [sandbox.id]
            assert sandglass_client.owner == os.environ["SANDGLASS_ON_BEHALF_OF"]

        def test_two(sandbox, sandglass_client):
            assert sandbox.run("ls").stdout == ""
            assert len(sandglass_client.sessions()) == 1

        @pytest.mark.sandbox(memory="64m", labels={"mine": "x"})
        @pytest.mark.parametrize("n", ["long" * 100])
        def test_options(sandbox, n):
            assert sandbox.raw["limits"]["memory_bytes"] == 64 << 20
            assert sandbox.raw["labels"]["mine"] == "x"

        def test_that_fails(sandbox):
            raise RuntimeError("on purpose")

        def test_shared_a(sandbox_session):
            sandbox_session.run("echo kept > note")

        def test_shared_b(sandbox_session, sandbox):
            assert sandbox_session.run("cat note").stdout == "kept\\n"
            assert sandbox_session.id != sandbox.id

        def test_without():
            pass
    """)
    done = suite.run("--sandglass-url", daemon.url)
    assert "1 failed, 6 passed" in done.stdout, done.stdout + done.stderr
    assert "5 session(s) destroyed after tests, 0 leaked" in done.stdout
    destroyed = suite.properties()
    assert {name: len(ids) for name, ids in destroyed.items()} == {
        "test_one": 1, "test_two": 1, "test_that_fails": 1, "test_shared_b": 1,
        **{name: 1 for name in destroyed if name.startswith("test_options")}}
    assert len(done.owners) == 1 and sessions_left(daemon, done.owners) == []


def test_what_the_code_under_test_leaves_is_destroyed_after_the_test(make_daemon, suite):
    daemon = make_daemon(backend="direct")
    suite.write(f"""
        import subprocess, pytest
        from sandglass import Client

        @pytest.fixture(scope="module")
        def shared():
            with Client().session() as session:
                yield session

        def test_by_command_line(shared):
            subprocess.run([{str(SANDGLASS)!r}, "session", "create"], check=True)
            subprocess.run([{str(SANDGLASS)!r}, "execute", "--code", "1"], check=True)

        def test_by_client(shared):
            Client().session()
            assert len(Client().sessions()) == 2
            assert shared.run("true").ok
    """)
    done = suite.run(environment={"SANDGLASS_URL": daemon.url})
    assert "2 passed" in done.stdout, done.stdout
    assert {name: len(ids) for name, ids in suite.properties().items()} == {"test_by_command_line": 2, "test_by_client": 1}
    assert "3 session(s) destroyed after tests, 0 leaked" in done.stdout
    assert sessions_left(daemon, done.owners) == []


def test_cleaning_only_at_the_end_of_the_run(make_daemon, suite):
    daemon = make_daemon(backend="direct")
    (suite.directory / "pytest.ini").write_text("[pytest]\nsandglass_cleanup = run\n")
    suite.write("""
        from sandglass import Client
        def test_a():
            Client().session()
        def test_b():
            assert len(Client().sessions()) == 1
    """)
    done = suite.run(environment={"SANDGLASS_URL": daemon.url})
    assert "2 passed" in done.stdout and "0 leaked" in done.stdout, done.stdout
    assert sessions_left(daemon, done.owners) == []


def test_stopping_at_the_first_failure_leaves_nothing(make_daemon, suite):
    daemon = make_daemon(backend="direct")
    suite.write("""
        import pytest
        @pytest.mark.parametrize("n", range(20))
        def test_it(sandbox, sandbox_session, n):
            sandbox.start("sleep 100")
            assert n != 5
    """)
    for arguments in (["-x"], ["-x", "-n", "2"]):
        done = suite.run("--sandglass-url", daemon.url, *arguments)
        assert "failed" in done.stdout and "0 leaked" in done.stdout, done.stdout
        assert sessions_left(daemon, done.owners) == []


def test_an_interrupted_run_leaves_nothing(make_daemon, suite):
    daemon = make_daemon(backend="direct")
    suite.write("""
        import os, signal, time
        def test_it(sandbox, sandbox_session):
            sandbox.start("sleep 100")
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
    """)
    done = suite.run("--sandglass-url", daemon.url)
    assert done.returncode == 2 and "0 leaked" in done.stdout, done.stdout
    assert sessions_left(daemon, done.owners) == []


def test_a_killed_run_leaves_nothing(make_daemon, suite):
    daemon = make_daemon(backend="direct")
    suite.write("""
        import os, signal
        def test_it(sandbox, sandbox_session):
            sandbox.start("sleep 100")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert suite.run("--sandglass-url", daemon.url).returncode == -9
    wait_for(lambda: sessions_left(daemon, [path.name for path in suite.owners.iterdir()]) == [], "the end of its sessions")


def test_two_hundred_tests_in_four_workers_of_which_one_is_killed(make_daemon, backend, suite):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}})
    seconds = f"12321.{os.getpid()}"  # the same test may run beside this one, with another backend
    suite.write(f"""
        import os, pathlib, signal, time, pytest
        flag = pathlib.Path({str(suite.directory)!r}) / "killed"
        owners = pathlib.Path({str(suite.owners)!r})

        @pytest.mark.parametrize("n", range(200))
        def test_it(sandbox, sandbox_session, n):
            deadline = time.monotonic() + 60
            while flag.exists() and len(list(owners.iterdir())) < 5 and time.monotonic() < deadline:
                time.sleep(0.01)  # the one in place of the killed one finds something to do
            assert sandbox.run(["echo", str(n)]).stdout == f"{{n}}\\n"
            sandbox.start(["sleep", "{seconds}"])
            sandbox_session.run("echo x >> log")
            if n > 60 and not flag.exists():
                try:
                    flag.touch(exist_ok=False)
                except FileExistsError:
                    return
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    before = set(our_processes(daemon.directory))
    done = suite.run("-n", "4", "--sandglass-url", daemon.url, seconds=300)
    assert re.search(r"1 failed, 199 passed", done.stdout), done.stdout[-3000:]
    assert "crashed while running" in done.stdout
    assert re.search(r"\d+ session\(s\) destroyed after tests, 0 leaked", done.stdout), done.stdout[-3000:]
    assert len(done.owners) == 5  # four workers and the one in place of the killed one
    assert sessions_left(daemon, done.owners) == []
    wait_for(lambda: programs("sleep", seconds) == [], "none of their programs is left")
    wait_for(lambda: not set(our_processes(daemon.directory)) - before, "nothing is left of their sandboxes")
    ids = [name for ids in suite.properties().values() for name in ids]
    assert len(ids) == len(set(ids)) >= 199


def test_without_a_daemon_a_private_one_is_started_when_it_is_needed(work, suite, backend):
    config = work / "nobody.yaml"
    config.write_text(f'listen: ["unix:{work}/none.sock"]\n')
    suite.write("""
        import os, pytest
        @pytest.mark.parametrize("n", range(4))
        def test_it(sandbox, n):
            assert sandbox.run("echo private").stdout == "private\\n"
            assert "sandglass." in os.environ["SANDGLASS_URL"]
    """)
    environment = {"SANDGLASS_CONFIG": str(config), "SANDGLASS_BIN": str(SANDGLASS), "TMPDIR": str(work),
                   "XDG_RUNTIME_DIR": str(work)}
    for arguments in ([], ["-n", "2", "--sandglass-private"]):
        done = suite.run("--sandglass-backend", backend, *arguments, environment=environment)
        assert "4 passed" in done.stdout and "0 leaked" in done.stdout, done.stdout + done.stderr
    assert list(work.glob("sandglass.*")) == []


def test_a_run_without_sandboxes_needs_no_daemon(suite, work):
    suite.write("""
        def test_it():
            pass
    """)
    done = suite.run(environment={"XDG_RUNTIME_DIR": str(work), "PATH": "/usr/bin:/bin"})
    assert "1 passed" in done.stdout and "sandglass" not in done.stdout, done.stdout
    done = suite.run("--sandglass-url", f"unix:{work}/none.sock")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "no daemon" in done.stderr + done.stdout
