# SPDX-License-Identifier: Apache-2.0
"""What the Python clients can do beyond programs and plain files: code, search, terminals, attach, and how requests are sent."""
import asyncio
import http.server
import io
import logging
import sys
import tarfile
import threading

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))

import sandglass  # noqa: E402
from sandglass import AsyncClient, Client  # noqa: E402


def is_ours(path):
    """The directory that sessions have for interpreters: it may be made at any moment."""
    return path == ".sandglass" or path.startswith(".sandglass/")


@pytest.fixture
def client(make_daemon):
    daemon = make_daemon(backend="direct")
    with Client(daemon.url, owner="py") as made:
        made.daemon = daemon
        yield made


def test_code_keeps_its_variables_and_tells_what_it_shows(client):
    with client.session() as session:
        session.run_code("x = 6")
        assert session.run_code("x * 7").text == "42"
        told = []
        result = session.run_code("print('hi'); display({'n': 1}); 5", on_stdout=told.append,
                                  on_result=lambda value: told.append(value.json or value.text))
        assert (told, result.text, result.stdout, result.ok) == (["hi\n", {"n": 1}, "5"], "5", "hi\n", True)
        broken = session.run_code("def f():\n    return 1 / 0\nf()", on_error=lambda error: told.append(error.name))
        assert (broken.error.name, broken.error.frames[-1]["line"], told[-1]) == ("ZeroDivisionError", 2, "ZeroDivisionError")
        assert "ZeroDivisionError" in repr(broken) and "division" in broken.error.traceback
        with pytest.raises(sandglass.CodeFailed) as caught:
            session.run_code("nothing", check=True)
        assert caught.value.result.error.name == "NameError"
        assert session.run_code("while True: pass", timeout=0.3).state == "timeout"
        with session.context("bash", env={"A": "b"}) as shell:
            assert shell.run("echo $A").stdout == "b\n"
            shell.restart()
            assert {context.language for context in session.contexts()} == {"python", "bash"}
        assert len(session.contexts()) == 1


def test_files_are_found_edited_watched_and_packed(client, tmp_path):
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "leaf").write_text("leaf")
    with client.session() as session:
        files = session.files
        assert files.write_many({"d/one.txt": "alpha\nbeta\n", "d/two.txt": b"gamma"}) == 2
        assert [file.name for file in files.glob("*.txt", path="d")] == ["one.txt", "two.txt"]
        assert [(match.path, match.line, match.is_match) for match in files.grep("BETA", ignore_case=True, context=1)] == [
            ("d/one.txt", 1, False), ("d/one.txt", 2, True)]
        assert files.edit("d/one.txt", "beta", "delta") == 1 and files.read_text("d/one.txt") == "alpha\ndelta\n"
        with pytest.raises(sandglass.Conflict) as caught:
            files.edit("d/one.txt", "nothing", "")
        assert caught.value.detail["error"]["count"] == 0
        with pytest.raises(sandglass.FileNotFound):
            files.read("nothing")
        with tarfile.open(fileobj=io.BytesIO(files.archive("d"))) as archive:
            assert {"one.txt", "two.txt"} <= {member.name for member in archive}
        files.upload(tmp_path / "tree", "uploaded")
        assert files.read("uploaded/below/leaf") == b"leaf"
        files.download_archive(tmp_path / "all.tar")
        assert tarfile.is_tarfile(tmp_path / "all.tar")
        with files.watch() as changes:
            files.write("watched", "x")
            assert next(change.path for change in changes if not is_ours(change.path)) == "watched"


def test_a_terminal_and_an_attached_stream(client):
    with client.session() as session:
        with session.pty(["/bin/sh"], columns=100, rows=30) as terminal:
            terminal.write("stty size\n")
            screen = ""
            while "30 100" not in screen:
                screen += next(terminal).text
            terminal.resize(120, 40)
            terminal.write("stty size; exit 7\n")
            assert "40 120" in "".join(chunk.text for chunk in terminal)
            assert terminal.wait().exit_code == 7
        process = session.start("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; echo e >&2")
        with process.attach() as output:
            first = next(chunk for chunk in output if chunk.stream == "stdout")
        with process.attach(stdout=len(first.data)) as output:
            rest = [chunk for chunk in output]
            assert output.wait().ok
        assert first.data + b"".join(chunk.data for chunk in rest if chunk.stream == "stdout") == b"1\n2\n3\n4\n5\n"
        with process.attach(stdout=2) as output:  # it has ended
            assert b"".join(chunk.data for chunk in output if chunk.stream == "stdout") == b"2\n3\n4\n5\n"
        with pytest.raises(sandglass.Invalid) as caught:
            next(process.attach(stdout=1000))
        assert caught.value.code == "offset_beyond_end"
        assert "stderr='e'" in repr(process.wait())


def test_a_stream_goes_on_when_the_daemon_is_replaced(make_daemon):
    daemon = make_daemon(settings={"shutdown": {"policy": "keep"}})
    with Client(daemon.url) as client, client.session() as session:
        process = session.start("for i in $(seq 30); do echo $i; sleep 0.1; done")
        with process.attach() as output:
            data = [next(output).data]
            daemon.kill()
            daemon.start()
            data += [chunk.data for chunk in output]
        assert b"".join(data) == b"".join(b"%d\n" % i for i in range(1, 31))


async def next_path(changes):
    while is_ours(path := (await changes.__anext__()).path):
        pass
    return path


async def find(session, command):
    return [found for found in await session.executions() if found.raw["request"].get("command") == command]


def test_the_same_for_asyncio_without_threads(client):
    async def story():
        async with AsyncClient(client.url, owner="py") as ours, await ours.session() as session:
            assert (await session.run_code("6 * 7")).text == "42"
            told = []

            async def tell(text):
                told.append(text)

            result = await session.run("echo a; sleep 0.1; echo b >&2; exit 3", on_stdout=told.append, on_stderr=tell)
            assert (sorted(told), result.exit_code) == (["a\n", "b\n"], 3) and "stderr='b'" in repr(result)
            assert await session.files.write_many({"a": "1", "b": b"2"}) == 2
            assert [file.path for file in await session.files.glob("*")] == ["a", "b"]
            async with await session.files.watch() as changes:
                await session.files.write("c", "3")
                assert await next_path(changes) == "c"
            async with await session.pty(["/bin/sh"]) as terminal:
                await terminal.write("exit 7\n")
                assert (await terminal.wait()).exit_code == 7
            process = await session.start("for i in 1 2 3; do echo $i; sleep 0.1; done")
            async with await process.attach() as output:
                assert b"".join([chunk.data async for chunk in output]) == b"1\n2\n3\n"
            with pytest.raises(sandglass.FileNotFound):
                await session.files.read("nothing")
            results = await asyncio.gather(*(session.run(["sleep", "0.2"]) for _ in range(20)))
            assert all(result.ok for result in results)
            big = bytes(range(256)) * 4096
            await session.files.write("big", io.BytesIO(big))
            assert await session.files.read("big") == big
            impatient = asyncio.ensure_future(session.run("sleep 100"))
            while not (sleeping := await find(session, "sleep 100")):
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(impatient, 0.3)
            assert set(threading.enumerate()) <= before
            [cancelled] = sleeping
            assert (await asyncio.wait_for(cancelled.wait(), 30)).state == "cancelled"

    before = set(threading.enumerate())  # other tests of this process may have left some that are ending
    asyncio.run(asyncio.wait_for(story(), 120))


def test_the_daemon_is_described(client):
    [node] = client.nodes()
    assert node["state"] == "up" and client.templates()[0]["name"] and client.keys() == []
    assert any(backend["default"] for backend in client.backends())
    with client.session(keep_files=True) as session:
        assert (session.state, session.end_reason, session.expires_at) == ("open", None, None)
        assert session.teardown_url()["url"]
    assert (session.state, session.end_reason) == ("ended", "deleted")


# --- how requests are sent -------------------------------------------------------------------------


class Recorder(http.server.BaseHTTPRequestHandler):
    """A server that notes what it is asked, and answers as it is told: a proxy, too."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("X-Mine")))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 0:
            self.server.is_over.wait(60)
        body = b'{"owner": "recorded"}'
        self.send_response(status or 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def recorder():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        server.daemon_threads, server.seen, server.statuses, server.is_over = True, [], [], threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.is_over.set()
        server.shutdown()
        thread.join()


def whoami(kind, *arguments, **options):
    if kind == "plain":
        with Client(*arguments, **options) as client:
            return client.whoami()

    async def ask():
        async with AsyncClient(*arguments, **options) as client:
            return await client.whoami()
    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["plain", "asyncio"])
def test_requests_have_headers_proxies_retries_and_a_logger(recorder, kind, caplog):
    assert whoami(kind, recorder.url, headers={"X-Mine": "yes"})["owner"] == "recorded"
    assert recorder.seen == [("/api/v1/whoami", "yes")]

    assert whoami(kind, "http://198.51.100.1:7420", proxy=recorder.url)["owner"] == "recorded"
    assert recorder.seen[-1][0] == "http://198.51.100.1:7420/api/v1/whoami"

    recorder.statuses = [503, 503]
    with caplog.at_level(logging.DEBUG, logger="mine"):
        whoami(kind, recorder.url, logger=logging.getLogger("mine"))
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "DEBUG"]
    recorder.statuses = [503]
    with pytest.raises(sandglass.Unavailable):
        whoami(kind, recorder.url, retries=0)
    recorder.statuses = []


def test_a_daemon_that_does_not_answer_in_time(recorder):
    recorder.statuses = [0, 0]
    for make in (lambda: Client(recorder.url, timeout=0.1, retries=0).templates(),
                 lambda: asyncio.run(AsyncClient(recorder.url, timeout=0.1, retries=0).templates())):
        with pytest.raises(sandglass.Unavailable) as caught:
            make()
        assert caught.value.code == "request_timeout"


def test_ports_are_listed_used_and_shared(make_daemon):
    with Client(make_daemon(backend="native").url) as client, client.session() as session:
        session.files.write("index.html", "from inside")
        server = session.start("exec python3 -m http.server 8000")
        assert server.wait_for(port=8000)["met"]
        assert [port["port"] for port in session.ports()] == [8000]
        status, _, body = session.request_port(8000, "/index.html")
        assert (status, body) == (200, b"from inside")
        assert session.port_url(8000, expires=60)["port"] == 8000
        assert session.usage_history()["session_id"] == session.id
