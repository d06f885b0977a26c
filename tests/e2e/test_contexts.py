# SPDX-License-Identifier: Apache-2.0
"""Contexts: interpreters that keep their state between runs, and tell what came of the code."""
import base64
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from conftest import ROOT, WALLS, UnixConnection, wait_for


@pytest.fixture
def backend():
    """One will do for most: what the backends have to do with it is in the tests that name both."""
    return WALLS


both = pytest.mark.parametrize("backend", ["direct", WALLS])


@pytest.fixture
def session(daemon):
    return daemon.session()


def make_context(daemon, session, **options):
    return daemon.api("POST", f"/sessions/{session}/contexts", options, expect=201).json["id"]


def run(daemon, session, context, code, **options):
    return daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code, **options}, expect=200).json


def run_events(daemon, session, context, code, **options):
    answer = daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code, **options}, expect=200,
                        headers={"Accept": "text/event-stream"})
    events = []
    for block in answer.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            events.append((fields["event"], json.loads(fields["data"])))
    return events


def text_of(result):
    return [item["data"]["text/plain"] for item in result["results"]]


BEGUN = "import os, time\nopen('begun', 'w').close()\n"  # code that tells that it runs
UNTIL_GO = "while not os.path.exists('go'):\n    time.sleep(0.01)\n"


def wait_for_file(daemon, session, name):
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/files?path={name}").status == 200, f"there is a file {name}")


# --- Python

@both
def test_python_keeps_variables_and_tells_the_last_value(daemon, session):
    context = make_context(daemon, session)
    first = run(daemon, session, context, "x = 20\nprint('hello')\nx + 1")
    assert (first["state"], first["stdout"], text_of(first)) == ("ok", "hello\n", ["21"])
    second = run(daemon, session, context, "[x, {'a': None}]")
    assert second["results"] == [{"type": "result", "data": {"text/plain": "[20, {'a': None}]",
                                                             "application/json": [20, {"a": None}]}}]
    assert run(daemon, session, context, "y = 1")["results"] == []
    assert text_of(run(daemon, session, context, "__name__, _")) == ["('__main__', [20, {'a': None}])"]


def test_errors_come_with_their_frames(daemon, session):
    context = make_context(daemon, session)
    result = run(daemon, session, context, "def f():\n    return 1 / 0\n\nf()\n")
    assert result["state"] == "error"
    assert (result["error"]["name"], result["error"]["value"]) == ("ZeroDivisionError", "division by zero")
    assert [(frame["file"], frame["line"], frame["function"]) for frame in result["error"]["frames"]] == [
        ("<cell 1>", 4, "<module>"), ("<cell 1>", 2, "f")]
    assert "return 1 / 0" in result["error"]["traceback"]
    wrong = run(daemon, session, context, "if")["error"]
    assert (wrong["name"], [frame["line"] for frame in wrong["frames"]]) == ("SyntaxError", [1])
    assert run(daemon, session, context, "raise SystemExit(3)")["error"]["name"] == "SystemExit"
    assert text_of(run(daemon, session, context, "f.__name__")) == ["'f'"]


def test_values_are_shown_as_mime_bundles(daemon, session):
    context = make_context(daemon, session)
    result = run(daemon, session, context, """
class Shown:
    def _repr_html_(self): return "<b>bold</b>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_svg_(self): raise RuntimeError("no")
    def __repr__(self): return "Shown()"
display(Shown(), 7)
Shown()
""")
    bundle = {"text/plain": "Shown()", "text/html": "<b>bold</b>", "image/png": base64.b64encode(b"\x89PNG").decode()}
    assert result["results"] == [{"type": "display", "data": bundle}, {"type": "display", "data": {"text/plain": "7"}},
                                 {"type": "result", "data": bundle}]


FAKE_PYPLOT = """
import sys, types
pyplot = types.ModuleType("matplotlib.pyplot")
open_figures = [1, 2]
class Figure:
    def savefig(self, file, format, **options): file.write(b"picture" * 20000)
    def __repr__(self): return "<Figure>"
pyplot.get_fignums = lambda: list(open_figures)
pyplot.figure = lambda number: Figure()
pyplot.close = lambda which: open_figures.clear()
sys.modules["matplotlib.pyplot"] = pyplot
"""


def test_figures_are_caught_without_asking(daemon, session):
    context = make_context(daemon, session)
    result = run(daemon, session, context, FAKE_PYPLOT)
    picture = base64.b64encode(b"picture" * 20000).decode()
    assert [item["data"]["image/png"] for item in result["results"]] == [picture, picture]
    assert run(daemon, session, context, "1 + 1")["results"] == [{"type": "result", "data": {"text/plain": "2"}}]


def test_output_of_children_and_bytes_that_look_like_frames_stay_output(daemon, session):
    context = make_context(daemon, session)
    code = "import subprocess, sys\nprint('\\x1e' + 'a' * 60)\nsubprocess.run(['sh', '-c', 'echo child; echo problem >&2'])\nNone"
    result = run(daemon, session, context, "sys = None\n" + code)
    assert (result["stdout"], result["stderr"]) == ("\x1e" + "a" * 60 + "\nchild\n", "problem\n")


def test_code_awaits_at_its_top_level(daemon, session):
    context = make_context(daemon, session)
    assert text_of(run(daemon, session, context, "import asyncio\nx = await asyncio.sleep(0, 5)\nawait asyncio.sleep(0, x + 1)")) == ["6"]


def test_large_output_is_cut_and_counted(daemon, session):
    context = make_context(daemon, session)
    result = run(daemon, session, context, "print('b' * 1000000)")
    assert result["stdout_bytes"] == 1000001 and result["truncated"]
    assert 60000 < len(result["stdout"]) < 70000 and "bytes left out" in result["stdout"]
    events = run_events(daemon, session, context, "print('b' * 1000000)")
    assert sum(len(data["text"]) for name, data in events if name == "stdout") == 1000001


def test_events_come_in_order_and_while_it_runs(daemon, session):
    context = make_context(daemon, session)
    events = run_events(daemon, session, context, "print('ä')\ndisplay(1)\nprint('b')\n1/0")
    assert [name for name, _ in events] == ["stdout", "display", "stdout", "error", "done"]
    assert events[0][1] == {"text": "ä\n"} and events[-1][1]["state"] == "error"
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{session}/contexts/{context}/run",
                       json.dumps({"code": "import time, sys\nprint('first', flush=True)\ntime.sleep(60)"}),
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    response = connection.getresponse()
    assert response.readline() == b"event: stdout\n"
    daemon.api("POST", f"/sessions/{session}/contexts/{context}/interrupt", {}, expect=200)
    assert b'"state":"interrupted"' in response.read()
    connection.close()


# --- life

def test_an_interrupt_ends_the_code_and_keeps_the_context(daemon, session):
    context = make_context(daemon, session)
    run(daemon, session, context, "x = 5")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sleeper = pool.submit(run, daemon, session, context, BEGUN + "time.sleep(60)")
        wait_for_file(daemon, session, "begun")
        assert daemon.api("GET", f"/sessions/{session}/contexts/{context}").json["state"] == "busy"
        daemon.api("POST", f"/sessions/{session}/contexts/{context}/interrupt", {}, expect=200)
        assert (sleeper.result()["state"], sleeper.result()["error"]["name"]) == ("interrupted", "KeyboardInterrupt")
    assert text_of(run(daemon, session, context, "x")) == ["5"]


def test_a_timeout_interrupts_and_then_replaces(make_daemon):
    daemon = make_daemon(settings={"exec": {"grace": "20s"}})
    session = daemon.session()
    context = make_context(daemon, session)
    run(daemon, session, context, "x = 5\nimport time")
    polite = run(daemon, session, context, "time.sleep(60)", timeout=0.2)
    assert (polite["state"], polite["context_lost"], text_of(run(daemon, session, context, "x"))) == ("timeout", False, ["5"])
    daemon = make_daemon(settings={"exec": {"grace": "300ms"}})
    session = daemon.session()
    context = make_context(daemon, session)
    run(daemon, session, context, "x = 5\nimport time")
    deaf = run(daemon, session, context, "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass",
               timeout=3)  # it has to come behind the first try
    assert (deaf["state"], deaf["context_lost"]) == ("timeout", True)
    after = run(daemon, session, context, "'x' in globals()")
    assert (text_of(after), after["replaced"]) == (["False"], "a run did not end in time")


@both
def test_a_crash_is_told_with_its_cause_and_the_next_run_gets_a_new_interpreter(daemon, session):
    context = make_context(daemon, session)
    crashed = run(daemon, session, context, "print('last words', flush=True)\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert (crashed["state"], crashed["cause"], crashed["stdout"]) == ("crashed", "signal 11", "last words\n")
    assert (crashed["error"]["name"], crashed["context_lost"]) == ("context_crashed", True)
    assert daemon.api("GET", f"/sessions/{session}/contexts/{context}").json["state"] == "stopped"
    after = run(daemon, session, context, "1 + 1")
    assert (text_of(after), after["replaced"]) == (["2"], "signal 11")
    assert run(daemon, session, context, "1")["replaced"] is None


def test_a_forked_child_that_returns_is_not_a_second_driver(daemon, session):
    context = make_context(daemon, session)
    result = run(daemon, session, context, "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(7)\nos.waitpid(pid, 0)[1] >> 8")
    assert (result["state"], text_of(result)) == ("ok", ["7"])


def test_contexts_are_apart_listed_restarted_and_removed(daemon, session):
    first, second = make_context(daemon, session), make_context(daemon, session, env={"X": "1"}, cwd="/tmp")
    run(daemon, session, first, "x = 1")
    assert run(daemon, session, second, "x")["error"]["name"] == "NameError"
    assert text_of(run(daemon, session, second, "import os\nos.environ['X'], os.getcwd()")) == ["('1', '/tmp')"]
    listed = daemon.api("GET", f"/sessions/{session}/contexts", expect=200).json["contexts"]
    assert [(item["id"], item["language"], item["state"]) for item in listed] == [(first, "python", "idle"), (second, "python", "idle")]
    assert daemon.api("POST", f"/sessions/{session}/contexts/{first}/restart", {}, expect=200).json["state"] == "idle"
    assert run(daemon, session, first, "x")["error"]["name"] == "NameError"
    process = int(text_of(run(daemon, session, first, "import os\nos.getpid()"))[0])
    daemon.api("DELETE", f"/sessions/{session}/contexts/{first}", expect=200)
    assert daemon.api("GET", f"/sessions/{session}/contexts/{first}").status == 404
    wait_for(lambda: daemon.execute(session, command=f"kill -0 {process}")["exit_code"] != 0, "its process is gone")


def test_runs_wait_for_each_other_in_their_order(daemon, session):
    context = make_context(daemon, session)
    run(daemon, session, context, "import time\nseen = []")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda n: run(daemon, session, context, f"seen.append({n})\ntime.sleep(0.02)\nseen.append({n})"), range(8)))
    seen = eval(text_of(run(daemon, session, context, "seen"))[0])
    assert sorted(seen[::2]) == list(range(8)) and seen[::2] == seen[1::2]


def test_what_cannot_be_started_says_why(daemon, session):
    def post(**body):
        answer = daemon.api("POST", f"/sessions/{session}/contexts", body)
        return answer.status, answer.json["error"]["code"]
    assert post(language="cobol") == (400, "unsupported_language")
    assert post(cwd="/nowhere") == (409, "context_crashed")
    assert post(language="python", env={"PATH": "/nowhere"}) == (409, "language_unavailable")
    for language, program in (("javascript", "node"), ("python", "python3"), ("bash", "bash")):
        error = daemon.api("POST", f"/sessions/{session}/contexts", {"language": language, "env": {"PATH": "/nowhere"}}).json["error"]
        assert f"{program}: not found; use a template that has it" in error["message"]
        done = daemon.execute(session, code="1", language=language, env={"PATH": "/nowhere"})
        assert (done["exit_code"], done["error"]["message"]) == (127, f"{program}: not found; use a template that has it")
    assert daemon.api("GET", f"/sessions/{session}/contexts").json["contexts"] == []
    context = make_context(daemon, session)
    answer = daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": "a\0b"})
    assert answer.status == 400


def test_strangers_do_not_see_contexts(daemon, session):
    context = make_context(daemon, session)
    for method, path in (("GET", ""), ("POST", ""), ("GET", f"/{context}"), ("DELETE", f"/{context}"), ("POST", f"/{context}/run"),
                         ("POST", f"/{context}/interrupt"), ("POST", f"/{context}/restart")):
        answer = daemon.api(method, f"/sessions/{session}/contexts{path}", {"code": "1"} if path.endswith("run") else {} if method == "POST" else None,
                            headers={"X-Sandglass-On-Behalf-Of": "mallory"})
        assert answer.status == 404


def test_an_idle_context_does_not_keep_its_session(daemon):
    session = daemon.session()
    context = make_context(daemon, session)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        busy = pool.submit(run, daemon, session, context, BEGUN + UNTIL_GO)
        wait_for_file(daemon, session, "begun")
        daemon.api("PATCH", f"/sessions/{session}", {"idle_timeout": 0.5}, expect=200)
        time.sleep(0.8)  # longer than that
        daemon.api("PUT", f"/sessions/{session}/files?path=go", b"", expect=201)
        assert busy.result()["state"] == "ok"
    wait_for(lambda: daemon.ended(session), "the idle end")


@both
def test_a_context_is_found_again_by_the_next_daemon(daemon, session):
    context = make_context(daemon, session)
    run(daemon, session, context, "x = 'kept'")
    daemon.kill()
    daemon.start()
    assert text_of(run(daemon, session, context, "x")) == ["'kept'"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        lost = pool.submit(lambda: pytest.raises(Exception, run, daemon, session, context, BEGUN + UNTIL_GO + "print('late')\ny = 1"))
        wait_for_file(daemon, session, "begun")
        daemon.kill()
        lost.result()
    daemon.start()
    daemon.api("PUT", f"/sessions/{session}/files?path=go", b"", expect=201)
    after = run(daemon, session, context, "x, y")
    assert (text_of(after), after["stdout"]) == (["('kept', 1)"], "")


def test_a_sandbox_that_dies_takes_the_context_and_the_next_run_says_so(daemon, session):
    context = make_context(daemon, session)
    run(daemon, session, context, "x = 1")
    os.kill(daemon.api("GET", f"/sessions/{session}").json["sandbox"]["pid"], signal.SIGKILL)
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/contexts/{context}").json["state"] == "stopped", "it is noticed")
    after = run(daemon, session, context, "'x' in globals()")
    assert text_of(after) == ["False"] and "crashed" in after["replaced"]


# --- bash and JavaScript

@both
def test_bash_keeps_directory_variables_and_functions(daemon, session):
    context = make_context(daemon, session, language="bash")
    run(daemon, session, context, "cd /tmp\nX=5\nexport Y=6\ndeclare -A map=([k]=v)\nf() { echo \"f $X $1\"; }")
    result = run(daemon, session, context, "f a; sh -c 'echo $Y'; pwd; echo ${map[k]}; echo problem >&2; false")
    assert (result["stdout"], result["stderr"]) == ("f 5 a\n6\n/tmp\nv\n", "problem\n")
    assert (result["state"], result["exit_code"]) == ("ok", 1)
    assert "syntax error" in run(daemon, session, context, "if")["stderr"]
    assert run(daemon, session, context, "cat; read line; ls /proc/self/fd | wc -l")["stdout"] == "4\n"
    stopped = run(daemon, session, context, "sleep 60; echo not reached", timeout=0.2)
    assert (stopped["state"], stopped["stdout"], stopped["context_lost"]) == ("timeout", "", False)
    assert run(daemon, session, context, "f b")["stdout"] == "f 5 b\n"
    ended = run(daemon, session, context, "exit 3")
    assert (ended["state"], ended["exit_code"], ended["cause"]) == ("crashed", 3, "exit 3")
    assert run(daemon, session, context, "echo ${X-unset}")["stdout"] == "unset\n"


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
@pytest.mark.parametrize("old", [False, True], ids=["this node", "a node without a loader for scripts"])
def test_javascript_imports_modules(work, old):
    """The driver by itself, as it is in a sandbox, also with a node as Debian 12 has it."""
    (work / "driver.js").write_text((ROOT / "src" / "core" / "run" / "drivers" / "node.js").read_text())
    (work / "own.mjs").write_text("export const x = 42; export default 'all of it'")
    (work / "old.js").write_text("delete require('vm').constants")
    cells = ["import { readFileSync as read } from 'fs'\nimport * as path from 'path'\nconsole.log(typeof read, typeof path.join)",
             "import own from './own.mjs'\nconsole.log(own)", "(await import('./own.mjs')).x", "import nothing from 'no-such-package'"]
    done = subprocess.run(["node", *(["--require", "./old.js"] if old else []), "driver.js"], cwd=work, capture_output=True, timeout=60,
                          input=b"".join(f"tok {number}\n{cell}\0".encode() for number, cell in enumerate(cells)))
    out = done.stdout.decode()
    assert "function function\n" in out and "all of it\n" in out and '"text/plain":"42"' in out, out
    assert "Cannot find package 'no-such-package'" in out and out.count('"state":"ok"') == 3, out


def test_javascript_keeps_its_scope(make_daemon):
    daemon = make_daemon()
    session = daemon.session()
    answer = daemon.api("POST", f"/sessions/{session}/contexts", {"language": "javascript"})
    if answer.status == 409 and answer.json["error"]["code"] == "language_unavailable":
        pytest.skip("the sandbox has no node")
    context = answer.json["id"]
    run(daemon, session, context, "const x = 4; function f() { return { x }; }")
    result = run(daemon, session, context, "console.log('out'); console.error('err'); f()")
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
    assert result["results"] == [{"type": "result", "data": {"text/plain": "{ x: 4 }", "application/json": {"x": 4}}}]
    assert text_of(run(daemon, session, context, "await Promise.resolve(7)")) == ["7"]
    error = run(daemon, session, context, "function g() { throw new TypeError('bad') }\ng()")["error"]
    assert (error["name"], error["value"], error["frames"][0]["line"], error["frames"][0]["function"]) == ("TypeError", "bad", 1, "g")
    assert run(daemon, session, context, "while (true);", timeout=0.2)["state"] == "timeout"
    assert run(daemon, session, context, "await new Promise(() => {})", timeout=0.2)["state"] == "timeout"
    assert text_of(run(daemon, session, context, "x")) == ["4"]
    assert run(daemon, session, context, "process.exit(2)")["cause"] == "exit 2"
