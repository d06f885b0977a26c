# SPDX-License-Identifier: Apache-2.0
"""The MCP server over streamable HTTP, in both eras of the protocol."""
import concurrent.futures
import json

import pytest

from conftest import wait_for
from key_file import bearer, keyed, keys  # noqa: F401  (fixtures)
from mcp_client import META, NAP, NEWEST, STATELESS, Http, events, message, read_event, text_of


@pytest.fixture
def server(make_daemon):
    return make_daemon(backend="direct")


def sessions(daemon, **options):
    return daemon.api("GET", "/sessions", **options).json["sessions"]


# --- life ------------------------------------------------------------------------------------------------------------

def test_a_session_is_made_on_first_use_and_ends_with_the_client(daemon):
    client = Http(daemon)
    assert client.result["serverInfo"]["name"] == "sandglass"
    tools = client.ask("tools/list")[0]["result"]["tools"]
    assert all(tool["description"] and not tool["inputSchema"]["additionalProperties"] for tool in tools)
    assert sessions(daemon) == []
    assert client.bash("echo kept > note; pwd").strip()
    assert client.bash("cat note") == "kept\n"
    assert [session["key"] for session in sessions(daemon)] == [f"mcp:{client.id}"]
    assert client.end().status == 204
    assert sessions(daemon) == []
    answer = client.post(message("ping", number=1))
    assert answer.status == 404 and answer.json["error"]["code"] == -32001
    assert client.end().status == 404


@pytest.mark.parametrize("asked, agreed", [("2025-11-25",) * 2, ("2025-06-18",) * 2, ("2025-03-26",) * 2, ("2024-11-05",) * 2,
                                           ("1999-01-01", NEWEST), ("2026-07-28", NEWEST)])
def test_older_versions_are_agreed_on_and_unknown_ones_get_the_newest(server, asked, agreed):
    client = Http(server, version=asked)
    assert client.result["protocolVersion"] == agreed
    tool = client.ask("tools/list")[0]["result"]["tools"][0]
    assert ("title" in tool) == (agreed >= "2025-06-18")
    assert ("annotations" in tool) == (agreed >= "2025-03-26")


def test_clients_do_not_see_each_other(server):
    def work(number):
        client = Http(server)
        client.bash(f"echo {number} > mine; sleep 0.1")
        found = client.bash("ls; cat mine")
        answer = client.end()
        return found, answer.status

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(work, range(50)))
    assert results == [(f"mine\n{number}\n", 204) for number in range(50)]
    assert sessions(server) == []


def test_an_owner_cannot_reach_the_client_of_another(keys, keyed):
    headers = [bearer(keys.create(name)["key"]) for name in ("ann", "bob")]
    daemon = keyed()
    ann, bob = (Http(daemon, each) for each in headers)
    ann.bash("echo secret > note")
    [session] = sessions(daemon, headers=ann.common)
    assert session["owner"] == "ann"
    bob.common["Mcp-Session-Id"] = ann.id
    assert bob.post(message("ping", number=1)).status == 404
    assert bob.end().status == 404
    bob.common["Mcp-Session-Id"] = bob.id
    assert "not found" in bob.bash("cat note", session_id=session["id"])
    answer, _ = bob.ask("resources/read", {"uri": f"sandglass://{session['id']}/note"})
    assert answer["error"]["code"] == -32002
    assert daemon.request("POST", "/mcp", message("ping", number=1)).status == 401
    assert ann.bash("cat note") == "secret\n"


def test_a_client_goes_on_when_the_daemon_was_killed(make_daemon):
    daemon = make_daemon(backend="direct", settings={"shutdown": {"policy": "keep"}})
    client = Http(daemon)
    client.bash("echo kept > note")
    daemon.kill()
    daemon.start()
    assert client.bash("cat note") == "kept\n"
    assert client.end().status == 204
    assert sessions(daemon) == []


def test_a_client_that_says_nothing_more_is_forgotten(make_daemon):
    daemon = make_daemon(backend="direct", settings={"mcp": {"idle_timeout": "5s"}})
    client = Http(daemon)
    client.bash("true")
    wait_for(lambda: sessions(daemon) == [], "its session is gone")
    assert client.post(message("ping", number=1)).status == 404


# --- sessions by name ------------------------------------------------------------------------------------------------

def test_other_sessions_are_named(server):
    client = Http(server)
    client.bash("echo one > note", key="shared")
    [session] = sessions(server)
    assert client.bash("cat note", session_id=session["id"]) == "one\n"
    assert "No such file" in client.bash("cat note")
    client.end()
    assert [row["id"] for row in sessions(server)] == [session["id"]], "a session with a name of its own stays"
    other = Http(server)
    assert other.bash("cat note", key="shared") == "one\n"
    answer, _ = other.call("bash", {"command": "true", "session_id": "ses_" + "0" * 26})
    assert answer["result"]["isError"] and "leave session_id out" in text_of(answer)
    answer, _ = other.call("bash", {"command": "true", "session_id": "x", "key": "y"})
    assert answer["result"]["isError"] and "not both" in text_of(answer)


def test_a_session_that_ended_is_replaced_and_said_so(server):
    client = Http(server)
    client.bash("echo x > note")
    server.api("DELETE", f"/sessions/key:mcp:{client.id}", expect=200)
    assert client.bash("ls").startswith("[notice]")
    assert client.bash("ls") == "" or "[notice]" not in client.bash("ls")


# --- progress, cancelling, taking up again ---------------------------------------------------------------------------

def test_output_of_a_long_command_is_progress(server):
    client = Http(server)
    connection, response = client.open("POST", message("tools/call", {
        "name": "bash", "arguments": {"command": "echo line 1; until [ -e go ]; do sleep 0.05; done; echo line 2; sleep 0.3; echo line 3"},
        "_meta": {"progressToken": "p-1"}}, 5))
    assert read_event(response)[1] == ""
    first = json.loads(read_event(response)[1])
    server.api("PUT", f"/sessions/key:mcp:{client.id}/files?path=go", b"", expect=201)
    *notes, answer = [first, *(json.loads(data) for _, data in events(response.read().decode()) if data)]
    connection.close()
    assert text_of(answer) == "line 1\nline 2\nline 3\n"
    assert [note["params"]["progressToken"] for note in notes] == ["p-1"] * len(notes)
    assert "".join(note["params"]["message"] for note in notes) in text_of(answer) and notes[0]["params"]["message"] == "line 1\n"
    amounts = [note["params"]["progress"] for note in notes]
    assert amounts == sorted(set(amounts))


def test_a_cancelled_call_is_killed_and_not_answered(server):
    client = Http(server)
    client.bash("true")
    connection, response = client.open("POST", message("tools/call", {
        "name": "bash", "arguments": {"command": f"echo started; sh -c '{NAP}; echo x' | cat"}, "_meta": {"progressToken": 1}}, 77))
    assert read_event(response)[1] == ""
    assert json.loads(read_event(response)[1])["method"] == "notifications/progress"
    assert client.post(message("notifications/cancelled", {"requestId": 77})).status == 202
    assert b'"id":77' not in response.read()
    connection.close()
    wait_for(lambda: NAP not in client.bash("ps ax -o args"), "the tree is gone")


def test_an_answer_that_was_cut_off_is_taken_up_again(server):
    client = Http(server)
    connection, response = client.open("POST", message("tools/call", {
        "name": "bash", "arguments": {"command": "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two"},
        "_meta": {"progressToken": 1}}, 5))
    first, data = read_event(response)
    assert data == ""
    second, data = read_event(response)
    assert json.loads(data)["params"]["message"] == "one\n"
    connection.close()
    connection, response = client.open("GET", **{"Last-Event-ID": first})
    assert read_event(response) == (second, data), "what had been sent already comes again"
    server.request("PUT", f"/api/v1/sessions/key:mcp:{client.id}/files?path=go", b"")
    found = [json.loads(part) for part in (line[6:] for line in response.read().decode().splitlines() if line.startswith("data: "))]
    assert found[-1]["id"] == 5 and text_of(found[-1]) == "one\ntwo\n"
    connection.close()
    connection, response = client.open("GET", **{"Last-Event-ID": second})
    assert b'"id":5' in response.read(), "also when it has ended"
    connection.close()
    for unknown in ("9999-0", first.split("-")[0] + "-9999", "x", "-"):
        connection, response = client.open("GET", **{"Last-Event-ID": unknown})
        assert response.status == 400
        connection.close()


def test_several_streams_at_once(server):
    client = Http(server)
    held = [client.open("GET") for _ in range(3)]
    assert [response.status for _, response in held] == [200] * 3
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: client.post(message("tools/call", {
            "name": "bash", "arguments": {"command": f"sleep 0.1; echo {n}", "key": f"s{n % 2}"}}, 1000 + n)).status, range(8)))
    assert results == [200] * 8
    assert client.end().status == 204
    for connection, response in held:
        response.read()
        connection.close()


def test_a_client_that_leaves_before_its_answer_has_cancelled(server):
    client = Http(server)
    client.bash("true")
    with pytest.raises(TimeoutError):
        server.request("POST", "/mcp", message("tools/call", {"name": "bash", "arguments": {"command": NAP}}, 9),
                       headers={**client.common, "Accept": "application/json"}, timeout=0.5)
    wait_for(lambda: NAP not in client.bash("ps ax -o args"), "the command is gone")


# --- files -----------------------------------------------------------------------------------------------------------

def test_files_are_resources(server):
    client = Http(server)
    client.bash("echo text > 'a b.txt'; printf '\\377\\000' > bytes")
    session = sessions(server)[0]["id"]
    read = lambda path: client.ask("resources/read", {"uri": f"sandglass://{session}/{path}"})[0]  # noqa: E731
    assert read("a%20b.txt")["result"]["contents"][0]["text"] == "text\n"
    assert read("bytes")["result"]["contents"][0]["blob"] == "/wA="
    assert "root" in read("/etc/passwd")["result"]["contents"][0]["text"]
    for path in ("nothing", "%00", "%zz", "", "../../../nothing"):
        assert read(path)["error"]["code"] in (-32002, -32602), path
    for uri in ("file:///etc/passwd", "sandglass://", f"sandglass://{session}", "sandglass:///x", "sandglass://ses_x/y"):
        answer, _ = client.ask("resources/read", {"uri": uri})
        assert answer["error"]["code"] == -32002 and answer["error"]["data"]["uri"] == uri
    assert client.ask("resources/templates/list")[0]["result"]["resourceTemplates"]
    assert client.ask("resources/list")[0]["result"]["resources"] == []


def test_images_and_made_files(server):
    client = Http(server)
    answer, _ = client.call("execute_python", {"code": "open('table.csv', 'w').write('a,b')"})
    links = [part for part in answer["result"]["content"] if part["type"] == "resource_link"]
    assert [link["name"] for link in links] == ["table.csv"]
    assert client.ask("resources/read", {"uri": links[0]["uri"]})[0]["result"]["contents"][0]["text"] == "a,b"
    assert [row["uri"] for row in client.ask("resources/list")[0]["result"]["resources"]] == [links[0]["uri"]]
    client.bash("printf '\\211PNG\\r\\n\\032\\n....' > dot.png")
    answer, _ = client.call("read", {"path": "dot.png"})
    assert [part["mimeType"] for part in answer["result"]["content"] if part["type"] == "image"] == ["image/png"]


# --- hostile messages ------------------------------------------------------------------------------------------------

HOSTILE = [
    ("", 400, -32700), ("{", 400, -32700), ("nonsense", 400, -32700), ("[]", 400, -32600), ("[1,2]", 400, -32600),
    ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600), ("7", 400, -32700), ('"x"', 400, -32700),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600), ('{"id":1,"method":"ping"}', 400, -32600),
    ('{"jsonrpc":"2.0","id":[],"method":"ping"}', 400, -32600), ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    ('{"jsonrpc":"2.0","id":%s,"method":"ping"}' % ("9" * 40), 400, -32700),
    ('{"jsonrpc":"2.0","id":"%s","method":"ping"}' % ("x" * 100000), 400, -32600),
    ('{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600), ('{"jsonrpc":"2.0","id":1,"method":"%s"}' % ("m" * 5000), 400, -32600),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', 400, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","id":2}', 400, -32700), ("{" * 100000, 400, -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"no/such"}', 200, -32601), ('{"jsonrpc":"2.0","id":1,"method":"rpc.x"}', 200, -32601),
    ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}', 200, -32600),
    ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call"}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no_such"}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["bash"]}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":[]}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"true"},'
     '"_meta":{"progressToken":"%s"}}}' % ("t" * 100000), 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","_meta":{"progressToken":{}}}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}', 200, -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":7}}', 200, -32602),
]


def test_hostile_messages_get_proper_errors(server):
    client = Http(server)
    for text, status, code in HOSTILE:
        answer = client.post(text, **{"Content-Type": "application/json"})
        assert (answer.status, answer.json["error"]["code"]) == (status, code), text[:200]
    assert client.post(message("notifications/no/such", {"a": 1})).status == 202
    assert client.post(message("notifications/cancelled", {"requestId": "nobody's"})).status == 202
    assert client.post({"jsonrpc": "2.0", "id": 1, "result": {}}).status == 202
    answer, _ = client.call("bash", {"command": 7})
    assert answer["result"]["isError"] and "command must be" in text_of(answer)
    answer, _ = client.call("bash", {"command": "true", "unknown": 1})
    assert answer["result"]["isError"] and "it takes" in text_of(answer)
    assert client.ask("ping")[0]["result"] == {}


def test_what_http_itself_gets_wrong(server):
    ping = message("ping", number=1)
    early = server.request("POST", "/mcp", message("tools/call", {"name": "bash"}, 3))
    assert early.status == 400 and early.json["error"]["code"] == -32600 and early.json["id"] == 3
    client = Http(server)
    assert client.post(ping, **{"Mcp-Protocol-Version": "1999-01-01"}).status == 400
    assert client.post(ping, Accept="text/html").status == 406
    assert client.post(ping, **{"Content-Type": "text/plain"}).status == 415
    assert client.post(ping, Origin="http://evil.example").status == 403
    assert client.post(ping, **{"Mcp-Session-Id": "mcp_" + "0" * 26}).status == 404
    assert client.post(ping, **{"Mcp-Session-Id": "../x"}).status == 404
    assert client.open("GET", Accept="application/json")[1].status == 406
    assert server.request("PUT", "/mcp", b"x").status == 405
    assert server.request("GET", "/mcp", headers={"Accept": "text/event-stream"}).status == 400


def test_an_id_that_is_in_use_is_refused(server):
    client = Http(server)
    connection, response = client.open("POST", message("tools/call", {
        "name": "bash", "arguments": {"command": "echo x; sleep 1003"}, "_meta": {"progressToken": 1}}, 8))
    read_event(response)
    assert client.post(message("ping", number=8)).json["error"]["code"] == -32600
    connection.close()


# --- the stateless era -----------------------------------------------------------------------------------------------

def ask_stateless(daemon, method, params=None, name=None, timeout=30, **headers):
    meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": STATELESS, "Mcp-Method": method,
               **({"Mcp-Name": name} if name else {}), **headers}
    return daemon.request("POST", "/mcp", message(method, {"_meta": meta, **(params or {})}, 1),
                          headers={key: value for key, value in headers.items() if value is not None}, timeout=timeout)


def test_without_a_state_each_request_says_all(server):
    found = ask_stateless(server, "server/discover").json["result"]
    assert found["supportedVersions"] == [STATELESS] and found["_meta"][META + "serverInfo"]["name"] == "sandglass"
    tools = ask_stateless(server, "tools/list").json["result"]
    assert tools["resultType"] == "complete" and tools["ttlMs"] >= 0
    answer = ask_stateless(server, "tools/call", {"name": "bash", "arguments": {"command": "echo x > note"}}, "bash").json
    session = text_of(answer).split("id=")[1].split()[0]
    answer = ask_stateless(server, "tools/call", {"name": "bash", "arguments": {"command": "cat note", "session_id": session}},
                           "bash").json
    assert text_of(answer) == "x\n"
    uri = f"sandglass://{session}/note"
    assert ask_stateless(server, "resources/read", {"uri": uri}, uri).json["result"]["contents"][0]["text"] == "x\n"
    for method in ("initialize", "ping", "no/such"):
        answer = ask_stateless(server, method)
        assert answer.status == 404 and answer.json["error"]["code"] == -32601


def test_without_a_state_headers_and_body_agree(server):
    assert ask_stateless(server, "tools/list", **{"Mcp-Method": "ping"}).json["error"]["code"] == -32020
    assert ask_stateless(server, "tools/list", **{"Mcp-Method": None}).status == 400
    assert ask_stateless(server, "tools/call", {"name": "bash"}, "other").json["error"]["code"] == -32020
    assert ask_stateless(server, "tools/list", **{"Mcp-Protocol-Version": NEWEST}).json["error"]["code"] == -32020
    unknown = ask_stateless(server, "tools/list", {"_meta": {META + "protocolVersion": "2099-01-01"}},
                            **{"Mcp-Protocol-Version": "2099-01-01"})
    assert unknown.status == 400 and unknown.json["error"]["code"] == -32022
    assert unknown.json["error"]["data"] == {"supported": [STATELESS], "requested": "2099-01-01"}


def test_without_a_state_a_client_that_leaves_has_cancelled(server):
    with pytest.raises(TimeoutError):
        ask_stateless(server, "tools/call", {"name": "bash", "arguments": {"command": NAP}}, "bash", timeout=1.5)
    wait_for(lambda: sessions(server) == [], "the session that nobody knows is gone")
