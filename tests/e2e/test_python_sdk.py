# SPDX-License-Identifier: Apache-2.0
"""The Python SDK against the real daemon."""
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from conftest import ROOT, SANDGLASS, free_port, wait_for

SOURCE = str(ROOT / "sdk" / "python" / "src")
sys.path.insert(0, SOURCE)

import sandglass  # noqa: E402
from sandglass import AsyncClient, Client  # noqa: E402


@pytest.fixture
def client(daemon):
    with Client(daemon.url, owner="tester") as client:
        yield client


@pytest.fixture
def session(client):
    with client.session() as session:
        yield session


@pytest.fixture
def direct(make_daemon):
    """For what does not depend on the backend."""
    return make_daemon(backend="direct")


# --- sessions --------------------------------------------------------------------------------------


def test_a_session_is_gone_at_the_end_of_its_with_whatever_happens(client):
    with pytest.raises(ZeroDivisionError):
        with client.session(labels={"a": "b"}) as session:
            assert [found.id for found in client.sessions("a=b")] == [session.id]
            1 / 0
    assert client.sessions() == []
    session.refresh()
    assert (session.raw["state"], session.raw["end_reason"]) == ("ended", "deleted")
    with pytest.raises(sandglass.Gone) as caught:
        session.run("true")
    error = caught.value
    assert (error.code, error.status, error.reason, error.retryable) == ("session_ended", 410, "deleted", False)
    assert error.hint and error.request_id
    session.close()


def test_create_options_reach_the_daemon(client):
    with client.session(key="mine", labels={"k": "v"}, memory="64m", timeout=100, env={"A": "b"}) as session:
        assert (session.raw["key"], session.raw["labels"], session.raw["timeout"]) == ("mine", {"k": "v"}, 100)
        assert session.raw["limits"]["memory_bytes"] == 64 << 20
        assert session.run("echo $A").stdout == "b\n"
        assert client.session(key="mine").id == session.id == client.attach("key:mine").id
        with pytest.raises(sandglass.Conflict) as caught:
            client.session(key="mine", memory="128m")
        assert caught.value.code == "parameters_differ"


def test_many_sessions_are_listed_and_deleted_by_label(direct):
    client = Client(direct.url)
    made = [client.session(labels={"n": str(n % 2)}, preload=False) for n in range(10)]
    assert len(client.sessions()) == 10 and len(client.sessions({"n": "0"})) == 5
    assert sorted(client.delete_all("n=1")["destroyed"]) == sorted(s.id for s in made if s.raw["labels"]["n"] == "1")
    assert len(client.delete_all()["destroyed"]) == 5
    assert client.sessions() == []


def test_lease_pause_and_events(session):
    assert session.keepalive(500)["lease_remaining"] > 490
    assert session.update(labels={"x": "y"})["labels"] == {"x": "y"}
    if session.raw["backend"] != "direct":
        assert session.pause()["state"] == "paused"
        assert session.resume()["state"] == "open"
    session.run("true")
    types = [event.type for event in session.events()]
    assert types[0] == "session.created" and "execution.started" in types
    session.teardown()
    again = session.run("true")
    assert again.files_were_reset and again.raw["generation"] == 2


def test_events_follow_to_the_end_of_the_session(client):
    session = client.session()
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(event.type for event in session.events(follow=True)))
    thread.start()
    session.run("true")
    session.delete()
    thread.join(30)
    assert not thread.is_alive() and seen[-1] == "session.ended"


# --- programs --------------------------------------------------------------------------------------


def test_a_list_is_an_argv_and_a_text_is_for_the_shell(session):
    assert session.run(["echo", "$HOME  x"]).stdout == "$HOME  x\n"
    result = session.run("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.state, result.ok) == ("out\n", "err\n", 3, "exited", False)
    with pytest.raises(sandglass.ExecutionFailed) as caught:
        result.check()
    assert caught.value.result is result and "exit code 3" in str(caught.value)


def test_options_of_a_run(session):
    result = session.run(["sh", "-c", "pwd; echo $A; cat"], env={"A": "b"}, cwd="/tmp", stdin="typed")
    assert result.stdout == "/tmp\nb\ntyped"
    late = session.run(["sleep", "100"], timeout=0.3)
    assert (late.state, late.ok) == ("timeout", False)
    killed = session.run("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (None, 9)
    assert session.run("date +%N", key="once").id == session.run("date +%N", key="once").id


def test_code_and_its_files(session):
    result = session.execute("open('a.csv', 'w').write('1'); print(6 * 7)")
    assert (result.stdout, result.output_files) == ("42\n", ["a.csv"])
    assert [(f["name"], f["size"]) for f in result.session_files] == [("a.csv", 1)]
    assert session.execute("echo $BASH_VERSION", language="bash", check=True).stdout.strip()
    limited = session.client.execute("print('limited')", labels={"one": "call"}, idle_timeout=60, timeout=10)
    assert limited.stdout == "limited\n" and session.client.attach(limited.session.id).raw["labels"] == {"one": "call"}
    whole = session.client.execute("print('one call')")
    assert whole.stdout == "one call\n"
    whole.session.delete()


def test_output_streams_as_it_comes_and_byte_for_byte(session):
    every = bytes(range(256)) + b"\n"
    script = "import os, sys, time\nfor i in range(4):\n sys.stdout.buffer.write(bytes(range(256)) + b'\\n'); sys.stdout.flush()\n" \
             " sys.stderr.write('e'); sys.stderr.flush()\n while not os.path.exists(f'seen-{i}'): time.sleep(0.02)"
    with session.stream(["python3", "-c", script], timeout=60) as output:
        data, seen = {"stdout": b"", "stderr": b""}, 0
        for chunk in output:
            assert chunk.offset == len(data[chunk.stream])
            data[chunk.stream] += chunk.data
            if data == {"stdout": every * (seen + 1), "stderr": b"e" * (seen + 1)}:
                session.files.write(f"seen-{seen}", b"")  # for which the program waits
                seen += 1
        result = output.wait()
    assert data == {"stdout": every * 4, "stderr": b"eeee"}
    assert seen == 4 and result.exit_code == 0
    assert result.output() == every * 4 and result.output("stderr", 2) == b"ee"


def test_a_large_output_is_whole_by_stream_and_by_offset(session):
    expected = b"".join(b"%d\n" % n for n in range(1, 200001))
    with session.stream("seq 1 200000") as output:
        assert b"".join(chunk.data for chunk in output) == expected
        result = output.wait()
    assert result.truncated and len(result.stdout) < 100_000
    assert result.output() == expected


def test_leaving_a_stream_cancels_the_program(session):
    with session.stream("echo first; sleep 100") as output:
        assert next(output).data == b"first\n"
    process = output.process
    wait_for(lambda: process.refresh() and process.has_ended, "the end of the program")
    assert process.state == "cancelled"


def test_a_stream_goes_on_when_the_daemon_is_replaced(daemon):
    session = Client(daemon.url).session()
    with session.stream(["bash", "-c", "for i in $(seq 100); do echo $i; sleep 0.01; done"]) as output:
        first = next(output)
        daemon.kill()
        daemon.start()
        data = first.data + b"".join(chunk.data for chunk in output)
        assert data == b"".join(b"%d\n" % n for n in range(1, 101))
        assert output.wait().exit_code == 0


def test_a_background_program_takes_input_and_signals(session):
    process = session.start(["cat"], stdin=True)
    assert process.stdin.write("hello ") == 6
    wait_for(lambda: process.output() == b"hello ", "its output")
    process.stdin.write(b"world")
    process.stdin.close()
    assert process.wait(30).stdout == "hello world" and process.output(6) == b"world"

    sleeper = session.start("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert next(sleeper.follow()) == b"ready\n"
    with pytest.raises(TimeoutError):
        sleeper.wait(0.1)
    sleeper.signal("TERM")
    assert sleeper.wait(30).exit_code == 5
    with pytest.raises(sandglass.Conflict):
        sleeper.signal(15)
    stubborn = session.start("trap '' TERM; sleep 100")
    assert stubborn.cancel().state == "cancelled"
    assert {found.id for found in session.executions()} == {process.id, sleeper.id, stubborn.id}


def test_an_interrupted_run_cancels_the_program(direct):
    """As Ctrl-C does: the connection closes, and nobody would read the result."""
    script = "import sys; from sandglass import Client; s = Client(sys.argv[1]).session(key='k'); print('ready', flush=True);" \
             " s.run(['sleep', '100'])"
    process = subprocess.Popen([sys.executable, "-c", script, direct.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env={**os.environ, "PYTHONPATH": SOURCE})
    assert process.stdout.readline() == b"ready\n"
    session = Client(direct.url).attach("key:k")
    running = wait_for(lambda: session.executions("running"), "the program")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    wait_for(lambda: running[0].refresh() and running[0].has_ended, "its end")
    assert running[0].state == "cancelled"
    session.delete()


# --- files -----------------------------------------------------------------------------------------


def test_files_go_in_and_out(session, tmp_path):
    files = session.files
    data = bytes(range(256)) * 5000
    files.write("deep/er/data.bin", data)
    files.write("run.sh", "#!/bin/sh\necho ran", mode=0o755)
    assert files.read("deep/er/data.bin") == data and b"".join(files.stream("deep/er/data.bin")) == data
    assert session.run("./run.sh").stdout == "ran\n"
    info = files.stat("run.sh")
    assert (info.name, info.is_file, info.size, info.mode) == ("run.sh", True, 18, 0o755)
    assert {"deep", "deep/er", "deep/er/data.bin"} <= {entry.path for entry in files.list(depth=3)}
    files.move("run.sh", "other.sh")
    assert files.exists("other.sh") and not files.exists("run.sh")
    files.mkdir("a/b")
    assert files.stat("a/b").is_directory
    files.remove("deep", recursive=True)
    with pytest.raises(sandglass.NotFound) as caught:
        files.read("deep/er/data.bin")
    assert caught.value.code == "file_not_found"
    local = tmp_path / "local"
    local.write_bytes(data)
    files.upload(local, "up")
    files.download("up", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data
    files.write("from-a-stream", io.BytesIO(data))
    assert files.read("from-a-stream") == data


# --- scopes ----------------------------------------------------------------------------------------


def test_a_scope_destroys_exactly_its_own(client):
    mine = client.session()
    scope = client.scope()
    with pytest.raises(ZeroDivisionError):
        with scope as scoped:
            made = [scoped.session(preload=False).id for _ in range(3)]
            with scoped.scope() as inner:
                inner.session(preload=False)
                assert len(inner.sessions()) == 1
            assert sorted(s.id for s in scoped.sessions()) == sorted(made)
            1 / 0
    assert sorted(scope.destroyed) == sorted(made)
    assert [found.id for found in client.sessions()] == [mine.id]
    with pytest.raises(sandglass.Gone) as caught:
        client.with_owner(scoped.owner).session()
    assert caught.value.code == "scope_ended"
    mine.delete()


@pytest.mark.parametrize("fork", [False, True])
def test_a_scope_goes_with_a_process_that_is_killed(daemon, fork):
    script = f"""
import os, sys
from sandglass import Client
scope = Client(sys.argv[1]).scope()
client = scope.open()
client.session(); client.session()
if {fork} and os.fork() == 0:
    os.close(1)
    os.read(0, 1)  # a child that goes on must not hold the lease
    os._exit(0)
print(scope.owner, flush=True)
os.read(0, 1)
"""
    process = subprocess.Popen([sys.executable, "-c", script, daemon.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": SOURCE})
    client = Client(daemon.url, owner=process.stdout.readline().decode().strip())
    assert len(client.sessions()) == 2
    process.kill()
    process.stdout.close()
    process.wait()
    wait_for(lambda: not client.sessions(), "the end of its sessions")
    process.stdin.close()


def test_a_scope_outlives_the_daemon(daemon):
    client = Client(daemon.url)
    with client.scope() as scoped:
        session = scoped.session()
        daemon.kill()
        daemon.start()
        wait_for(lambda: daemon.log().count("scope opened") == 2, "the lease was taken up again")
        assert session.run("echo still here").stdout == "still here\n"
    assert client.with_owner(scoped.owner).sessions() == []


# --- errors and connections ------------------------------------------------------------------------


def test_errors_say_what_they_are(direct):
    client = Client(direct.url)
    with pytest.raises(sandglass.NotFound) as missing:
        client.attach("ses_aaaaaaaaaaaaaaaaaaaaaaaaaa")
    assert (missing.value.code, missing.value.status) == ("session_not_found", 404)
    with pytest.raises(sandglass.Invalid) as invalid:
        client.session(colour="red")
    assert "colour" in str(invalid.value)
    with pytest.raises(sandglass.Unavailable) as nobody:
        Client("unix:/nonexistent/sandglass.sock").whoami()
    assert (nobody.value.code, nobody.value.status, nobody.value.retryable) == ("daemon_not_running", 0, True)
    for url in ("unix:", "ftp://x", "http://"):
        with pytest.raises(ValueError):
            Client(url)


def test_a_full_daemon_says_when_to_try_again(make_daemon):
    daemon = make_daemon(backend="direct", settings={"capacity": {"max_sandboxes": 1, "overflow": "reject"}})
    client = Client(daemon.url)
    with client.session() as first, client.session(preload=False) as second:
        process = first.start("sleep 100")
        wait_for(lambda: process.refresh() and process.state == "running", "the program")
        with pytest.raises(sandglass.LimitReached) as caught:
            second.run("true")
        assert caught.value.retry_after >= 1 and caught.value.retryable
        process.cancel()


def test_connections_are_used_again_and_stale_ones_are_not(direct):
    client = Client(direct.url)
    with client.session() as session:
        for _ in range(20):
            session.run(["true"])
        assert len(client.transport._idle) == 1
        direct.stop()
        direct.start()
        assert client.whoami()["owner"] == ""


def test_the_environment_says_where_and_for_whom(direct, monkeypatch):
    monkeypatch.setenv("SANDGLASS_URL", direct.url)
    monkeypatch.setenv("SANDGLASS_ON_BEHALF_OF", "somebody")
    assert Client().whoami()["owner"] == "somebody"
    assert Client(owner="").whoami()["owner"] == ""


def test_tcp_works_as_unix_sockets_do(monkeypatch, make_daemon):
    port = free_port()
    daemon = make_daemon(backend="direct", start=False)
    config = daemon.directory / "sandglass.yaml"
    config.write_text(json.dumps(daemon.settings))
    with open(daemon.log_path, "wb") as log:
        daemon.process = subprocess.Popen([SANDGLASS, "serve", "--config", config, "--listen", daemon.url, "--listen",
                                           f"127.0.0.1:{port}"], stdout=log, stderr=log)
    wait_for(daemon.is_ready, "the daemon")
    monkeypatch.setenv("SANDGLASS_STATE_DIR", str(daemon.state))
    for url in (f"http://127.0.0.1:{port}", f"localhost:{port}"):
        with Client(url).scope() as client, client.session() as session:
            assert session.run("echo tcp").stdout == "tcp\n"


def test_threads_share_a_client(direct):
    client = Client(direct.url)
    results = []
    with client.session() as session:
        def work(n):
            results.append(session.run(["echo", str(n)]).stdout)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results, key=int) == [f"{n}\n" for n in range(16)]


# --- asyncio ---------------------------------------------------------------------------------------


def test_asyncio_streams_and_runs_many_at_once(daemon):
    async def main():
        async with AsyncClient(daemon.url) as plain, plain.scope() as client:
            async with await client.session() as session:
                chunks = []
                async with await session.stream("for i in 1 2 3; do echo $i; until [ -e seen-$i ]; do sleep 0.02; done; done", timeout=60) as output:
                    async for chunk in output:
                        chunks.append(chunk.data)
                        await session.files.write(f"seen-{len(chunks)}", b"")  # for which the program waits
                    assert (await output.wait()).ok
                assert chunks == [b"1\n", b"2\n", b"3\n"]

                # Each of them waits until all have begun.
                await session.files.mkdir("begun")
                script = ": > begun/{0}; until set -- begun/*; [ $# = 40 ]; do sleep 0.5; done; echo {0}"
                results = await asyncio.gather(*(session.run(script.format(n), timeout=60) for n in range(40)))
                assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]

                cat = await session.start(["cat"], stdin=True)
                await cat.write("typed")
                await cat.close_stdin()
                assert (await cat.wait()).stdout == "typed"
                await session.files.write("f", b"x")
                assert await session.files.read("f") == b"x"
                assert [event.type async for event in session.events()][0] == "session.created"
            return client.owner

    owner = asyncio.run(main())
    assert Client(daemon.url, owner=owner).sessions() == []


def test_a_cancelled_task_cancels_its_program_and_ends_its_session(direct):
    async def main():
        async with AsyncClient(direct.url, owner="a") as client:
            async def work():
                async with await client.session() as session:
                    await session.run("sleep 100")

            task = asyncio.create_task(work())
            while not [s for s in await client.sessions() if s.raw["executions"]["running"]]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.sessions() == []

    asyncio.run(asyncio.wait_for(main(), 60))


# --- the package -----------------------------------------------------------------------------------


def test_it_needs_nothing_but_the_standard_library():
    script = "import sys, sandglass; print([m for m in ('pytest', 'requests', 'httpx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {SOURCE!r}); {script}"],
                          capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_it_says_nothing_on_its_own():
    for path in (ROOT / "sdk" / "python" / "src").rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.lstrip().startswith("print(")]
        assert all("session." in line for line in lines), path  # only in examples of docstrings
