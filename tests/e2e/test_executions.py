# SPDX-License-Identifier: Apache-2.0
"""Executions: every exit code and every byte right."""
import concurrent.futures
import hashlib
import json
import os
import signal
import threading
import time

import pytest

from conftest import SANDGLASS, SLOWER, UnixConnection, wait_for


@pytest.fixture
def session(daemon):
    return daemon.session()


def test_output_and_exit_code_come_back(daemon, session):
    result = daemon.execute(session, ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result["state"], result["exit_code"]) == ("exited", 3)
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")


def test_arguments_environment_and_directory_are_exact(daemon, session):
    result = daemon.execute(session, ["/bin/sh", "-c", 'printf "%s|" "$0" "$@" "$X"; pwd', "a b", "", "ü\n"],
                            env={"X": "1 2"}, cwd="/tmp")
    assert result["stdout"] == "a b||ü\n|1 2|/tmp\n"


def test_shell_text_runs_in_a_shell(daemon, session):
    assert daemon.execute(session, command="echo $((6*7)) | cat")["stdout"] == "42\n"


def test_python_code_runs_as_a_script(daemon, session):
    result = daemon.execute(session, code="import sys\nprint(__name__, len(sys.argv))\nraise SystemExit(7)",
                            language="python")
    assert (result["stdout"], result["exit_code"]) == ("__main__ 1\n", 7)


def test_a_traceback_shows_the_line(daemon, session):
    result = daemon.execute(session, code="def f():\n    return 1 / 0\nf()", language="python")
    assert result["exit_code"] == 1
    assert "return 1 / 0" in result["stderr"]


def test_bash_code_runs_as_a_script(daemon, session):
    assert daemon.execute(session, code="set -- $BASH_VERSION; [ -n \"$1\" ] && echo bash", language="bash")["stdout"] == "bash\n"


def test_the_time_of_a_short_program_is_told(daemon, session):
    for seconds in (0.001, 0.001, 0.05):
        result = daemon.execute(session, ["sleep", str(seconds)])
        assert result["created_at"] <= result["started_at"] <= result["ended_at"]
        assert result["duration_seconds"] >= seconds


def test_a_signal_is_told(daemon, session):
    result = daemon.execute(session, command="kill -SEGV $$")
    assert (result["state"], result["signal"]) == ("exited", 11)


@pytest.mark.parametrize("argv, code", [(["/no/such/file"], 127), (["nosuchcommand"], 127), (["/etc/passwd"], 126),
                                        (["/tmp"], 126)])
def test_what_cannot_be_executed_ends_with_the_usual_code(daemon, session, argv, code):
    result = daemon.execute(session, argv)
    assert result["exit_code"] == code
    assert argv[0] in result["error"]["message"]


def test_files_live_as_long_as_the_session_and_in_no_other(daemon, session):
    daemon.execute(session, command="echo mine > note.txt")
    assert daemon.execute(session, command="cat note.txt")["stdout"] == "mine\n"
    other = daemon.session()
    assert daemon.execute(other, command="cat note.txt")["exit_code"] != 0


def test_no_secret_of_the_daemon_reaches_a_program(make_daemon, backend):
    daemon = make_daemon(backend=backend, environment={"OPENAI_API_KEY": "sk-canary-4242", "LC_ALL": "C.UTF-8"})
    result = daemon.execute(daemon.session(), env={"GIVEN": "yes"}, command="env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "canary" not in result["stdout"]
    assert "GIVEN=yes" in result["stdout"] and "LC_ALL=C.UTF-8" in result["stdout"]


def test_ids_are_in_the_environment_and_cannot_be_given(daemon, session):
    result = daemon.execute(session, command="echo $SANDGLASS_SESSION_ID $SANDGLASS_EXECUTION_ID",
                            env={"SANDGLASS_EXECUTION_ID": "stale"})
    assert result["stdout"] == f"{session} {result['id']}\n"


def test_no_descriptor_but_the_standard_ones_is_open(daemon, session):
    assert daemon.execute(session, ["/bin/sh", "-c", "echo /proc/self/fd/*"])["stdout"].split() == [
        f"/proc/self/fd/{n}" for n in (0, 1, 2, 3)]  # 3 is the shell's own look into the directory


ENOUGH = max(SLOWER, 5)  # seconds in which a program of a sandbox that is ready has started and written a line


def test_a_timeout_kills_the_whole_tree_and_keeps_the_output(daemon, session):
    daemon.execute(session, ["true"])  # the time until the sandbox is ready counts
    begin = time.monotonic()
    result = daemon.execute(session, timeout=ENOUGH, command=(
        "echo begun; (setsid sh -c 'echo $$ > pid; sleep 1000') & "
        "python3 -c 'import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "open(\"pid2\",\"w\").write(str(os.getpid()))\ntime.sleep(1000)'; sleep 1000"))
    assert time.monotonic() - begin < 20 + ENOUGH
    assert (result["state"], result["stdout"]) == ("timeout", "begun\n")
    alive = daemon.execute(session, command="for p in $(cat pid pid2); do kill -0 $p 2>/dev/null && echo $p; done; true")
    assert alive["stdout"] == ""


def test_a_timeout_of_a_program_that_ignores_term_is_still_a_timeout(daemon, session):
    daemon.execute(session, ["true"])
    result = daemon.execute(session, timeout=ENOUGH, command="trap '' TERM; echo on; while :; do sleep 1; done")
    assert (result["state"], result["stdout"]) == ("timeout", "on\n")


def test_a_background_child_does_not_keep_an_execution_from_ending(daemon, session):
    begin = time.monotonic()
    result = daemon.execute(session, command="sleep 1000 & echo done")
    assert (result["state"], result["stdout"]) == ("exited", "done\n")
    assert time.monotonic() - begin < 25


def test_cancel_ends_a_running_program(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"argv": ["/bin/sleep", "1000"], "background": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: daemon.api("GET", path).json["state"] == "running", "running")
    daemon.api("DELETE", path)
    assert daemon.api("GET", path + "?wait=25").json["state"] == "cancelled"


def test_a_signal_by_name_reaches_the_program(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.05; done", "background": True},
                     expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: b"ready" in daemon.api("GET", path + "/output?stream=stdout").body, "the trap is set")
    daemon.api("POST", path + "/signal", {"signal": "SIGUSR1"})
    result = daemon.api("GET", path + "?wait=25").json
    assert result["exit_code"] == 5


def test_stdin_streams_and_ends(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"argv": ["/bin/cat"], "background": True, "stdin": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    octets = {"Content-Type": "application/octet-stream"}
    daemon.request("POST", f"/api/v1{path}/stdin", b"one\n", octets)
    daemon.request("POST", f"/api/v1{path}/stdin?eof=1", b"two\n", octets)
    assert daemon.api("GET", path + "?wait=25").json["exit_code"] == 0
    assert daemon.api("GET", path + "/output?stream=stdout").body == b"one\ntwo\n"


def test_a_running_execution_says_how_much_input_has_arrived(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"argv": ["/bin/cat"], "background": True, "stdin": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    octets = {"Content-Type": "application/octet-stream"}
    for total in (4, 8):
        assert daemon.request("POST", f"/api/v1{path}/stdin", b"one\n", octets).json["written"] == 4
        shown = daemon.api("GET", path).json
        assert (shown["stdin_bytes"], shown["stdin_pending"]) == (total, 0)
    daemon.request("POST", f"/api/v1{path}/stdin?eof=1", b"", octets)
    assert "stdin_bytes" not in daemon.api("GET", path + "?wait=25").json


def test_a_large_stdin_arrives_whole(daemon, session):
    data = os.urandom(8 << 20)
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"argv": ["sha256sum"], "background": True, "stdin": True}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    daemon.request("POST", f"/api/v1{path}/stdin?eof=1", data, {"Content-Type": "application/octet-stream"})
    daemon.api("GET", path + "?wait=25")
    assert daemon.api("GET", path + "/output?stream=stdout").body.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_terminal_has_its_size_and_can_be_resized(daemon, session):
    run = daemon.api("POST", f"/sessions/{session}/executions",
                     {"command": "stty size; read x; stty size", "tty": {"cols": 91, "rows": 23}, "background": True},
                     expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run}"
    wait_for(lambda: b"23 91" in daemon.api("GET", path + "/output?stream=stdout").body, "first size")
    daemon.api("POST", path + "/resize", {"cols": 100, "rows": 40}, expect=200)
    daemon.request("POST", f"/api/v1{path}/stdin", b"\n", {"Content-Type": "application/octet-stream"})
    daemon.api("GET", path + "?wait=25")
    assert b"40 100" in daemon.api("GET", path + "/output?stream=stdout").body


def test_events_of_a_run_stream_live(daemon, session):
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{session}/executions",
                       json.dumps({"command": "echo one; until [ -e go ]; do sleep 0.02; done; echo two >&2; exit 4"}),
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    response = connection.getresponse()
    text = ""
    while "event: stdout" not in text:
        line = response.readline().decode()
        assert line, text
        text += line
    daemon.execute(session, ["touch", "go"])
    text += response.read().decode()
    connection.close()
    assert response.getheader("Content-Type").startswith("text/event-stream")
    assert "event: stdout" in text and "event: stderr" in text and "event: exit" in text
    assert text.index("event: stdout") < text.index("event: stderr") < text.index("event: exit")


def test_a_repeated_execution_key_returns_the_same_execution(daemon, session):
    first = daemon.execute(session, command="date +%N", key="once")
    again = daemon.api("POST", f"/sessions/{session}/executions", {"command": "date +%N", "key": "once"}).json
    assert again["id"] == first["id"]


def test_a_thousand_executions_one_after_the_other(daemon, session):
    connection = UnixConnection(str(daemon.socket))
    resident = None
    for i in range(1000):
        connection.request("POST", f"/api/v1/sessions/{session}/executions",
                           json.dumps({"argv": ["/bin/sh", "-c", f"echo {i}; exit {i % 250}"]}),
                           {"Content-Type": "application/json"})
        result = json.loads(connection.getresponse().read())
        assert (result["stdout"], result["exit_code"]) == (f"{i}\n", i % 250)
        if i == 200:
            resident = daemon.resident_kib()
    connection.close()
    if "asan" not in str(SANDGLASS):
        assert daemon.resident_kib() < resident + 4096, "the daemon's memory is flat"


def test_sixty_four_executions_at_once(daemon, session):
    def one(i):
        return daemon.execute(session, ["/bin/sh", "-c", f"sleep 0.{i % 10}; seq {i} {i + 2000}; exit {i}"])

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        results = list(pool.map(one, range(64)))
    for i, result in enumerate(results):
        assert result["exit_code"] == i
        assert result["stdout"] == "".join(f"{n}\n" for n in range(i, i + 2001))


def test_only_files_that_the_run_has_changed_are_told(daemon):
    """Runs follow each other faster than time stamps of files tell apart."""
    session = daemon.session()

    def run(code):
        answer = daemon.api("POST", "/execute", {"code": code, "language": "bash", "session_id": session}, expect=200).json
        assert answer["exit_code"] == 0, answer
        return sorted(answer["output_files"])

    for i in range(10):
        assert run(f"echo {i} > a.txt; mkdir -p d; echo {i} > d/{i}") == ["a.txt", f"d/{i}"]
        assert run("cat a.txt d/*") == []
        assert run("cat a.txt") == []
        assert run(f"echo {i} > b.txt; cat a.txt") == ["b.txt"]
        assert run("echo more >> a.txt; mv b.txt c.txt") == ["a.txt", "c.txt"]


@pytest.mark.parametrize("write", ["upload", "execution", "context"])
def test_files_that_others_wrote_just_before_are_not_those_of_the_run(daemon, write):
    """A stamp of a file is as old as the last tick of the kernel's clock: the run and the upload before are in the same one."""
    session = daemon.session()
    context = daemon.api("POST", f"/sessions/{session}/contexts", {"language": "bash"}, expect=201).json["id"]
    writers = {
        "upload": lambda name: daemon.api("PUT", f"/sessions/{session}/files?path={name}", b"x", expect=201),
        "execution": lambda name: daemon.execute(session, command=f"echo x > {name}"),
        "context": lambda name: daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": f"echo x > {name}"}, expect=200),
    }
    for i in range(20):
        writers[write](f"theirs{i}")
        answer = daemon.api("POST", "/execute", {"code": f"cat theirs{i} && echo > ours{i}", "language": "bash", "session_id": session}, expect=200).json
        assert (answer["exit_code"], answer["output_files"]) == (0, [f"ours{i}"]), answer


def test_files_of_a_run_are_told_by_a_daemon_that_hears_late_of_its_start(daemon):
    session = daemon.session()

    def stop_for_a_while():
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        daemon.process.send_signal(signal.SIGCONT)

    for i in range(8):
        stop = threading.Timer(0.001 * i, stop_for_a_while)
        stop.start()
        answer = daemon.api("POST", "/execute", {"code": "echo x >> a.txt", "language": "bash", "session_id": session}, expect=200).json
        stop.join()
        assert answer["output_files"] == ["a.txt"], answer


def test_execute_makes_a_session_and_tells_its_files(daemon):
    result = daemon.api("POST", "/execute", {"code": "open('a.txt','w').write('x'*10)\nprint('hi')"}, expect=200).json
    assert (result["stdout"], result["exit_code"]) == ("hi\n", 0)
    assert result["session_id"].startswith("ses_") and result["execution_id"].startswith("exe_")
    assert [(f["name"], f["size"]) for f in result["session_files"]] == [("a.txt", 10)]
    assert result["session_ttl_remaining"]
    again = daemon.api("POST", "/execute", {"code": "print(open('a.txt').read())", "session_id": result["session_id"]},
                       expect=200).json
    assert again["stdout"] == "x" * 10 + "\n"


def test_a_failed_first_execute_leaves_no_session(daemon):
    answer = daemon.api("POST", "/execute", {"code": "import time; time.sleep(100)", "timeout": 1})
    assert answer.json["state"] == "timeout" and answer.json["session_ended"]
    assert daemon.api("GET", "/sessions").json["total"] == 0
    assert daemon.api("GET", "/capacity").json["own"] == 0


@pytest.mark.parametrize("code, exit_code", [("open('a.txt', 'w').write('x'); print('hi')", 0), ("print('hi'); raise SystemExit(3)", 3)])
def test_an_ephemeral_execute_leaves_nothing(daemon, code, exit_code):
    answer = daemon.api("POST", "/execute", {"code": code, "ephemeral": True}, expect=200).json
    assert (answer["stdout"], answer["exit_code"]) == ("hi\n", exit_code)
    assert answer["session_ended"] and answer["session_ttl_remaining"] is None
    assert answer["output_files"] == (["a.txt"] if exit_code == 0 else [])
    assert daemon.api("GET", "/sessions").json["total"] == 0
    assert daemon.api("GET", "/capacity").json["own"] == 0
    ended = daemon.api("GET", f"/sessions/{answer['session_id']}", expect=200).json
    assert ended["state"] == "ended" and "ephemeral" in ended["end_reason"]
    output = f"/sessions/{answer['session_id']}/executions/{answer['execution_id']}/output?stream=stdout"
    assert daemon.api("GET", output, expect=200).body == b"hi\n"


def test_execute_makes_the_session_that_its_options_ask_for(daemon, backend):
    options = {"memory": "256m", "cpus": 0.5, "pids": 64, "labels": {"run": "7"}, "idle_timeout": 90, "max_lifetime": "1h", "template": "host",
               "network": "none", "on_timeout": "pause", "auto_restart": False, "key": "one-call"}
    if backend == "direct":
        options = {name: options[name] for name in ("labels", "idle_timeout", "max_lifetime", "key")}
    result = daemon.api("POST", "/execute", {"code": "print(6 * 7)", **options}, expect=200).json
    assert result["stdout"] == "42\n"
    session = daemon.api("GET", f"/sessions/{result['session_id']}", expect=200).json
    assert session["labels"] == {"run": "7"} and session["idle_timeout"] == 90 and session["max_lifetime"] == 3600 and session["key"] == "one-call"
    if backend != "direct":
        assert session["limits"]["memory_bytes"] == 256 << 20 and session["limits"]["cpus"] == 0.5 and session["limits"]["pids"] == 64
        assert session["on_timeout"] == "pause" and session["auto_restart"] is False
        refused = daemon.api("POST", "/execute", {"code": "1", "key": "one-call", "memory": "512m"}, expect=409).json["error"]
        assert refused["code"] == "parameters_differ"
    again = daemon.api("POST", "/execute", {"code": "print(1)", **options}, expect=200).json
    assert again["session_id"] == result["session_id"]


@pytest.mark.parametrize("options, word", [
    ({"memory": "1m"}, "memory"),
    ({"memroy": "1g"}, "memroy"),
    ({"template": "nope"}, "template"),
    ({"flavor": "nope"}, "nope"),
    ({"network": "some"}, "network"),
    ({"labels": {"": "x"}}, "label"),
    ({"node": "nope"}, "nope"),
])
def test_execute_checks_its_options_as_a_new_session_does(make_daemon, options, word):
    daemon = make_daemon(backend="direct")
    refused = daemon.api("POST", "/execute", {"code": "print(1)", **options})
    assert refused.status in (400, 404) and word in refused.json["error"]["message"], refused.json
    assert (refused.status, refused.json["error"]) == ((other := daemon.api("POST", "/sessions", options)).status, other.json["error"])
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_a_session_that_exists_has_its_options_already(daemon, session):
    refused = daemon.api("POST", "/execute", {"code": "print(1)", "session_id": session, "cpus": 1}, expect=400).json["error"]
    assert refused["code"] == "invalid_field" and "cpus" in refused["message"] and "session_id" in refused["message"]


@pytest.mark.parametrize("body, word", [
    ({"code": ""}, "code"),
    ({}, "code"),
    ({"code": "1", "language": "cobol"}, "language"),
    ({"code": "1", "timeout": -1}, "timeout"),
    ({"code": "1", "session_id": "ses_00000000000000000000000000"}, "not found"),
])
def test_execute_refuses_what_it_cannot_do(make_daemon, body, word):
    daemon = make_daemon(backend="direct")
    answer = daemon.api("POST", "/execute", body)
    assert answer.status in (400, 404)
    assert word in answer.json["error"]["message"]
    assert daemon.api("GET", "/sessions").json["total"] == 0


def test_destroying_during_an_execution_does_not_lose_its_result(daemon, session):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(daemon.api, "POST", f"/sessions/{session}/executions", {"command": "echo kept; sleep 100"})
        wait_for(lambda: [e for e in daemon.api("GET", f"/sessions/{session}/executions").json["executions"]
                          if e["state"] == "running"], "running")
        run = daemon.api("GET", f"/sessions/{session}/executions").json["executions"][0]["id"]
        wait_for(lambda: daemon.api("GET", f"/sessions/{session}/executions/{run}/output?stream=stdout").body, "output")
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
        result = running.result(60).json
    assert result["state"] in ("cancelled", "crashed") and result["stdout"] == "kept\n"


def test_signals_and_sizes_for_one_that_still_waits_reach_it(make_daemon, backend):
    daemon = make_daemon(backend=backend, settings={"pool": {"size": 0}})
    for _ in range(5):
        session = daemon.session()
        paths = [f"/sessions/{session}/executions/" + daemon.api("POST", f"/sessions/{session}/executions", {**body, "background": True}, expect=201).json["id"]
                 for body in ({"argv": ["/bin/sleep", "60"]}, {"command": "while [ ! -e go ]; do sleep 0.02; done; stty size", "tty": {"cols": 80, "rows": 24}})]
        daemon.api("POST", paths[0] + "/signal", {"signal": "USR1"}, expect=200)
        daemon.api("POST", paths[1] + "/resize", {"cols": 101, "rows": 11}, expect=200)
        wait_for(lambda: daemon.api("GET", paths[1]).json["state"] == "running", "it runs, with the new size")
        daemon.execute(session, ["touch", "go"])
        assert daemon.api("GET", paths[0] + "?wait=20").json["signal"] == 10
        assert daemon.api("GET", paths[1] + "?wait=20").json["exit_code"] == 0
        assert daemon.api("GET", paths[1] + "/output").body == b"11 101\r\n"
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
