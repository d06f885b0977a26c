# SPDX-License-Identifier: Apache-2.0
"""The tools that run something: bash and python, what they keep between calls and how they end."""
import json
import random
import shutil
import threading

import pytest
from conftest import UnixConnection, wait_for
from toolbox import call, fails, ok, text_of


@pytest.fixture
def daemon(make_daemon, backend):
    """A shell that is interrupted has the time to come back, also where the machine is busy."""
    return make_daemon(backend=backend, settings={"exec": {"grace": "10s"}})


def run(daemon, session, command, **options):
    return call(daemon, session, "bash", command=command, **options)


def test_a_command_gives_its_output_and_keeps_its_shell(daemon):
    session = daemon.session()
    result = run(daemon, session, "cd /tmp && colour=red && echo one; echo two >&2; echo three")
    assert (text_of(result), result["is_error"]) == ("one\ntwo\nthree\n", False)
    assert result["structured"]["exit_code"] == 0
    assert text_of(run(daemon, session, "echo $colour in $PWD")) == "red in /tmp\n"
    assert text_of(run(daemon, session, "true")) == "(no output)"


def test_clients_of_a_session_have_shells_of_their_own(daemon):
    session = daemon.session()
    run(daemon, session, "x=1", client="first")
    assert text_of(run(daemon, session, "echo [$x]", client="second")) == "[]\n"
    assert text_of(run(daemon, session, "echo [$x]", client="first")) == "[1]\n"


def test_clients_that_come_and_go_leave_nothing_behind(make_daemon):
    daemon = make_daemon(backend="direct")
    session = daemon.session()
    run(daemon, session, "x=kept", client="first")
    for number in range(70):
        run(daemon, session, "exit", client=f"passing-{number}")
    assert len(daemon.api("GET", f"/sessions/{session}/contexts").json["contexts"]) <= 64
    assert text_of(run(daemon, session, "echo $x", client="first")) == "kept\n"


def test_a_failure_is_a_result_with_its_exit_code(daemon):
    session = daemon.session()
    result = run(daemon, session, "echo before; ls /nowhere")
    assert result["is_error"] and result["structured"]["exit_code"] == 2
    assert text_of(result).startswith("before\nls: ") and text_of(result).endswith("directory\n\nERROR: exit code 2.")
    result = run(daemon, session, "echo a; fi")
    assert result["is_error"] and "line 1: syntax error near" in text_of(result)
    assert text_of(run(daemon, session, "echo still here")) == "still here\n"


def test_a_directory_to_run_in(daemon):
    session = daemon.session()
    assert text_of(run(daemon, session, "pwd", work_dir="/usr/lib")) == "/usr/lib\n"
    result = run(daemon, session, "echo not reached", work_dir="/no/such 'place'")
    assert result["is_error"] and "not reached" not in text_of(result) and "No such file" in text_of(result)


def test_a_command_that_takes_too_long_keeps_what_it_wrote(daemon):
    session = daemon.session()
    run(daemon, session, "kept=yes")
    result = run(daemon, session, "echo partial; sleep 100; echo never", timeout=5)
    text = text_of(result)
    assert result["is_error"] and text.startswith("partial\n") and "never" not in text.split("ERROR")[0]
    assert "timeout: it did not end within 5 seconds" in text and "nohup" in text
    assert result["structured"]["state"] == "timeout"
    assert text_of(run(daemon, session, "echo $kept")) == "yes\n"


def test_a_shell_that_ends_is_told_and_replaced(daemon):
    session = daemon.session()
    result = run(daemon, session, "x=1; echo bye; exit 3")
    assert result["is_error"] and text_of(result).startswith("bye\n")
    assert "exit code 3" in text_of(result) and "next call starts a new one" in text_of(result)
    text = text_of(run(daemon, session, "echo [$x]"))
    assert text.startswith("[notice] The shell of before is gone (exit 3)") and text.endswith("[]\n")
    assert text_of(run(daemon, session, "echo fine")) == "fine\n"


def test_a_long_output_is_cut_and_kept(daemon):
    session = daemon.session()
    result = run(daemon, session, "seq 1 100000")
    text = text_of(result)
    path = result["structured"]["output_path"]
    assert result["structured"]["truncated"] and not result["is_error"]
    head, marker, tail = text.split("\n\n...")[0], text.split("...")[1], text.split("...\n\n")[1]
    whole = "".join(f"{n}\n" for n in range(1, 100001))
    assert len(head) == 6250 and whole.startswith(head)
    assert len(tail) == 18750 and whole.endswith(tail)
    assert path in marker and "563,895 of 588,895 characters omitted" in marker
    kept = daemon.api("GET", f"/sessions/{session}/files?path={path}", expect=200).body
    assert kept.decode() == whole


def test_characters_are_counted_and_not_bytes(daemon):
    session = daemon.session()
    result = run(daemon, session, "python3 -c \"print('ä' * 24999)\"")
    assert text_of(result) == "ä" * 24999 + "\n" and not result["structured"]["truncated"]
    result = run(daemon, session, "printf 'a\\0b\\377c'")
    assert text_of(result) == "a\ufffdb\ufffdc"


def test_an_interrupt_kills_what_runs_and_keeps_the_sandbox(daemon):
    session = daemon.session()
    before = daemon.api("GET", f"/sessions/{session}").json
    results = []
    thread = threading.Thread(target=lambda: results.append(run(daemon, session, "echo begun; touch begun; sleep 1000")))
    thread.start()
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/files/stat?path=begun").status == 200, "it runs")
    assert daemon.api("POST", f"/sessions/{session}/interrupt", {}, expect=200).json == {"interrupted": 1}
    thread.join(30)
    assert results and results[0]["is_error"] and text_of(results[0]).startswith("begun\n")
    assert "interrupted by the user" in text_of(results[0])
    assert text_of(run(daemon, session, "ls")) == "begun\n"
    after = daemon.api("GET", f"/sessions/{session}").json
    assert after["generation"] <= max(before["generation"], 1)
    assert daemon.api("POST", f"/sessions/{session}/interrupt", {}, expect=200).json == {"interrupted": 0}


def test_what_an_interrupted_command_put_into_the_background_goes_with_it(daemon):
    session = daemon.session()
    earlier, later = (str(100000 + random.randrange(10**8)) for _ in range(2))
    run(daemon, session, f"sleep {earlier} &")
    result = run(daemon, session, f"sleep {later} & (sleep {later}; true) & echo up; sleep 100", timeout=5)
    assert result["is_error"] and text_of(result).startswith("up\n")
    look = "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$one; echo; done 2>/dev/null | grep ^sleep"
    seen = wait_for(lambda: later not in (text := text_of(run(daemon, session, look))) and text, "what was killed is gone")
    assert f"sleep {earlier} " in seen


def test_a_client_that_leaves_has_interrupted_its_call(daemon):
    session = daemon.session()
    seconds = 100000 + random.randrange(10**8)  # other tests run at the same time, and direct sandboxes see their processes
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{session}/tools/bash", json.dumps({"command": f"touch begun; sleep {seconds}; touch ended"}),
                       {"Content-Type": "application/json"})
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}/files/stat?path=begun").status == 200, "it runs")
    connection.close()
    assert text_of(run(daemon, session, f"pgrep -f '[s]leep {seconds}'; ls")).startswith("begun\n")


def test_output_comes_as_it_is_written(daemon):
    session = daemon.session()
    connection = UnixConnection(str(daemon.socket))
    connection.request("POST", f"/api/v1/sessions/{session}/tools/bash",
                       json.dumps({"command": "echo first; until test -e go; do sleep 0.01; done; echo last"}),
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    stream = connection.getresponse()
    assert stream.readline() == b"event: output\n" and json.loads(stream.readline()[6:]) == {"text": "first\n"}
    daemon.api("PUT", f"/sessions/{session}/files?path=go", b"", expect=201)
    rest = stream.read().decode()
    connection.close()
    assert 'data: {"text":"last\\n"}' in rest
    result = json.loads(rest.rsplit("event: result\ndata: ", 1)[1])
    assert text_of(result) == "first\nlast\n"


def test_a_reset_is_told_once(daemon):
    session = daemon.session()
    run(daemon, session, "touch mine")
    daemon.api("POST", f"/sessions/{session}/sandbox/teardown", {}, expect=202)
    text = text_of(run(daemon, session, "ls"))
    assert text.startswith("[notice] The sandbox of this session was reset") and "mine" not in text
    assert text_of(run(daemon, session, "ls")) == "(no output)"


def test_a_shell_outlives_the_daemon(daemon):
    session = daemon.session()
    run(daemon, session, "x=kept; cd /usr")
    daemon.session()  # what was written before it is durable with it
    daemon.kill()
    daemon.start()
    assert text_of(run(daemon, session, "echo $x $PWD")) == "kept /usr\n"


@pytest.mark.parametrize("arguments, code, word", [
    ({}, "missing_field", "command"),
    ({"command": ""}, "invalid_field", "command"),
    ({"command": 7}, "invalid_field", "command"),
    ({"command": "ls", "timeout": 0}, "invalid_field", "timeout"),
    ({"command": "ls", "timeout": 1201}, "invalid_field", "1200"),
    ({"command": "ls", "timeout": "10"}, "invalid_field", "timeout"),
    ({"command": "ls", "cwd": "/"}, "unknown_field", "cwd"),
])
def test_wrong_arguments_are_named_and_nothing_runs(daemon, arguments, code, word):
    session = daemon.session()
    error = daemon.api("POST", f"/sessions/{session}/tools/bash", arguments, expect=400).json["error"]
    assert error["code"] == code and word in error["message"]
    assert daemon.api("GET", f"/sessions/{session}/executions").json["executions"] == []


def test_the_list_has_closed_schemas(daemon):
    tools = {tool["name"]: tool for tool in daemon.api("GET", "/tools", expect=200).json["tools"]}
    schema = tools["bash"]["input_schema"]
    assert schema["additionalProperties"] is False and schema["required"] == ["command"]
    assert schema["properties"]["timeout"] == {"type": "integer", "minimum": 1, "maximum": 1200, "default": 240,
                                               "description": schema["properties"]["timeout"]["description"]}
    assert "do not create one first" in tools["bash"]["description"]
    session = daemon.session()
    assert daemon.api("POST", f"/sessions/{session}/tools/nothing", {}, expect=404).json["error"]["code"] == "tool_not_found"


def test_python_keeps_its_variables_and_shows_values(daemon):
    session = daemon.session()
    assert ok(daemon, session, "python", code="x = 20\nprint('made')") == "made\n"
    assert ok(daemon, session, "python", code="print('sum:')\nx + 1") == "sum:\n21\n"
    text = fails(daemon, session, "python", code="def f():\n    return 1 / 0\nprint('before')\nf()")
    assert text.startswith("before\nTraceback") and "ZeroDivisionError: division by zero" in text
    assert ok(daemon, session, "python", code="x") == "20\n"


def test_an_image_that_is_shown_comes_as_an_image(daemon):
    session = daemon.session()
    code = "import base64\npng = base64.b64decode('iVBORw0KGgo=')\ndisplay({'image/png': base64.b64encode(png).decode(), 'text/plain': 'x'}, raw=True)"
    result = call(daemon, session, "python", code=code)
    assert [content["type"] for content in result["content"]] == ["text", "image"]
    assert result["content"][1] == {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo="}
    assert result["content"][0]["text"] == "(no output but the image)"


def test_a_secret_is_told_by_no_tool(daemon):
    session = daemon.api("POST", "/sessions", {"secrets": {"API_TOKEN": "s3cret-value-42"}}, expect=201).json["id"]
    assert ok(daemon, session, "bash", command="echo token=$API_TOKEN; printf s3cret-; sleep 0.1; echo value-42") == \
        "token=[redacted]\n[redacted]\n"
    assert "s3cret" not in ok(daemon, session, "python", code="import os; os.environ['API_TOKEN']")
    ok(daemon, session, "bash", command="echo $API_TOKEN > kept")
    assert ok(daemon, session, "read", path="kept") == "     1\t[redacted]\n"
    assert "s3cret" not in ok(daemon, session, "grep", pattern="cret")
    assert "s3cret" not in ok(daemon, session, "bash", command="for i in $(seq 3000); do echo $API_TOKEN; done")


def test_output_that_cannot_be_kept_ends_the_run_and_is_told(daemon):
    session = daemon.session()
    spool = daemon.state / "output"
    if spool.exists():
        shutil.rmtree(spool)
    spool.write_text("no directory")
    text = fails(daemon, session, "bash", command="echo lost", timeout=600)
    assert "its output is incomplete: create the spool" in text, text
    spool.unlink()
    assert text_of(run(daemon, session, "echo again")).endswith("again\n")
