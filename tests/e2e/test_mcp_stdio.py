# SPDX-License-Identifier: Apache-2.0
"""`sandglass mcp`: the MCP server on stdio, of a daemon that runs or of a private one."""
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from conftest import SANDGLASS, read_process, wait_for
from mcp_client import META, NAP, STATELESS, Stdio, message, text_of
from test_mcp_http import HOSTILE, sessions


@pytest.fixture
def alone(work):
    """An environment in which no daemon runs."""
    environment = {**os.environ, "TMPDIR": str(work), "XDG_RUNTIME_DIR": str(work), "SANDGLASS_CONFIG": ""}
    environment.pop("SANDGLASS_URL", None)
    return environment


@pytest.fixture
def server(make_daemon):
    return make_daemon(backend="direct")


def client_of(daemon, **options):
    return Stdio({"SANDGLASS_URL": daemon.url}, **options)


def test_a_private_daemon_serves_and_is_gone_with_the_client(work, alone):
    client = Stdio(alone)
    assert client.bash("echo kept > note; cat note") == "kept\n"
    assert client.bash("cat note") == "kept\n"
    assert client.close() == 0
    assert os.listdir(work) == []


def test_what_was_asked_before_the_end_of_input_is_answered(work, alone):
    lines = [message("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}, 1),
             message("notifications/initialized"), message("tools/call", {"name": "bash", "arguments": {
                 "command": "sleep 0.3; echo done"}}, "two")]
    done = subprocess.run([SANDGLASS, "mcp"], env=alone, text=True, capture_output=True, timeout=60,
                          input="\n".join(map(json.dumps, lines)))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [answer["id"] for answer in answers] == [1, "two"]
    assert text_of(answers[1]) == "done\n"
    assert os.listdir(work) == []


def test_a_daemon_that_runs_is_used_and_everything_made_there_is_gone(server):
    kept = server.session(key="of somebody else")
    client = client_of(server)
    client.bash("echo x > note")
    client.bash("true", key="named")
    assert len(sessions(server)) == 3
    assert client.bash("echo reached", session_id=kept) == "reached\n"
    assert client.close() == 0
    assert [row["id"] for row in sessions(server)] == [kept], "gone when the command has ended"


def test_sessions_made_by_tools_go_too_and_are_not_shown_to_others(server):
    kept = server.session(key="of somebody else")
    one, other = client_of(server), client_of(server)
    made = one.call("manage_session", {"operation": "create"})["result"]["structuredContent"]["session_id"]
    one.bash("true")
    first = text_of(one.call("execute_python", {"code": "open('a.txt', 'w').write('x')"}))
    own = first.split("id=")[1].split()[0]
    assert "x" in text_of(one.call("execute_python", {"code": "print(open('a.txt').read())"})), "one session for all calls"
    assert {row["session_id"] for row in one.call("manage_session", {"operation": "list"})["result"]["structuredContent"]["sessions"]} \
        == {kept, made, own}
    other.bash("true")
    seen = other.call("manage_session", {"operation": "list"})["result"]["structuredContent"]["sessions"]
    assert {made, own} & {row["session_id"] for row in seen} == set() and len(seen) == 2
    one.kill()
    wait_for(lambda: len(sessions(server)) == 2, "what it made is gone")
    assert other.close() == 0
    assert [row["id"] for row in sessions(server)] == [kept]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_everything_is_gone_when_it_is_killed(server, how):
    client = client_of(server)
    client.bash("true", key="named")
    client.send(message("tools/call", {"name": "bash", "arguments": {"command": "sleep 1000"}}, 9))
    wait_for(lambda: len(sessions(server)) == 2, "its session is there")
    client.process.send_signal(how)
    client.process.wait(90)
    wait_for(lambda: sessions(server) == [], "its sessions are gone")
    client.kill()


# A client that starts the server and dies at some moment of its work.
VICTIM = """
import json, subprocess, sys
server = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print("started", server.pid, flush=True)
lines = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}},
         {"jsonrpc": "2.0", "method": "notifications/initialized"}]
lines += [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "bash", "arguments": {
    "command": "echo x; sleep %s" % (1000 if n % 3 == 0 else 0.01), "key": "k%d" % (n % 5)}}} for n in range(2, 30)]
for line in lines:
    server.stdin.write(json.dumps(line).encode() + b"\\n")
    server.stdin.flush()
for line in server.stdout:
    pass
"""


def kill_after(environment, delay):
    """The process of the server, which may live on for a moment."""
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, SANDGLASS], env=environment, stdout=subprocess.PIPE)
    word, server = victim.stdout.readline().split()
    assert word == b"started"
    time.sleep(delay)
    victim.kill()
    victim.wait()
    victim.stdout.close()
    return int(server)


def test_killing_the_client_at_any_moment_leaves_nothing(server):
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    left = [kill_after({**os.environ, "SANDGLASS_URL": server.url}, moments.uniform(0, 0.5)) for _ in range(12)]
    wait_for(lambda: not any(map(read_process, left)), f"the servers have ended, seed {seed}", 60)
    wait_for(lambda: sessions(server) == [], f"all sessions are gone, seed {seed}")


def test_killing_the_client_leaves_no_private_daemon(work, alone):
    left = [kill_after(alone, delay) for delay in (0, 0.05, 0.2, 0.6)]
    wait_for(lambda: not any(map(read_process, left)), "the servers have ended", 60)
    wait_for(lambda: os.listdir(work) == [], "the private daemons are gone")


def test_a_daemon_that_is_replaced_is_found_again(make_daemon):
    daemon = make_daemon(backend="direct", settings={"shutdown": {"policy": "keep"}})
    client = client_of(daemon)
    client.bash("echo kept > note")
    client.send(message("tools/call", {"name": "bash", "arguments": {"command": f"echo begun; {NAP}"},
                                       "_meta": {"progressToken": 1}}, "lost"))
    assert client.receive()["method"] == "notifications/progress"
    daemon.kill()
    lost = client.answer("lost")
    assert lost["error"]["code"] == -32603 and "try again" in lost["error"]["message"]
    daemon.start()
    answer = client.call("bash", {"command": "cat note; ps ax -o args"})
    assert "kept\n" in text_of(answer) and NAP not in text_of(answer), "what was lost does not keep the next one waiting"
    assert client.close() == 0
    assert sessions(daemon) == []


def test_nobody_there_is_said_on_stderr(work):
    done = subprocess.run([SANDGLASS, "mcp", "--url", f"unix:{work}/none.sock"], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert done.returncode == 1 and done.stdout == "" and "no daemon at" in done.stderr


def test_progress_and_cancelling(server):
    client = client_of(server)
    client.send(message("tools/call", {"name": "bash", "arguments": {"command": f"echo begun; {NAP}"},
                                       "_meta": {"progressToken": "p"}}, "long"))
    assert client.receive()["params"] == {"progressToken": "p", "progress": 6, "message": "begun\n"}
    client.send(message("notifications/cancelled", {"requestId": "long"}))
    wait_for(lambda: NAP not in client.bash("ps ax -o args"), "the command is gone")
    assert all(note.get("id") != "long" for note in client.notifications)
    assert client.close() == 0


def test_hostile_lines_get_proper_errors(server):
    client = client_of(server)
    for text, _, code in HOSTILE:
        if not text:
            continue
        client.send_text(text)
        assert client.receive()["error"]["code"] == code, text[:200]
    client.send_text("  \r")
    assert client.ask("ping")["result"] == {}
    client.close()
    early = client_of(server, initialize=False)
    assert early.ask("tools/list")["error"]["code"] == -32600
    assert early.ask("ping")["result"] == {}
    early.send_text("x" * 100)
    assert early.receive()["error"]["code"] == -32700
    assert early.close() == 0


def test_the_stateless_era_on_stdio(server):
    client = client_of(server, initialize=False)
    meta = {"_meta": {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}}
    assert client.ask("server/discover", meta)["result"]["supportedVersions"] == [STATELESS]
    assert client.ask("server/discover", {})["error"]["code"] == -32602
    call = {"name": "bash", "arguments": {"command": "echo x >> note; cat note"}, **meta}
    assert text_of(client.ask("tools/call", call)) == "x\n"
    assert text_of(client.ask("tools/call", call)) == "x\nx\n", "a connection has a session of its own here"
    assert client.close() == 0


# --- install ---------------------------------------------------------------------------------------------------------

FILES = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"), "claude-code": (".claude.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"), "vscode": (".config/Code/User/mcp.json", "servers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"), "gemini": (".gemini/settings.json", "mcpServers"),
    "zed": (".config/zed/settings.json", "context_servers"),
}


def install(home, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    return subprocess.run([SANDGLASS, "mcp", "install", *arguments], text=True, timeout=30,
                          capture_output=True, env={**environment, "HOME": str(home)})


@pytest.mark.parametrize("client", FILES)
def test_install_adds_an_entry_and_keeps_the_rest(work, client):
    path = work / FILES[client][0]
    member = FILES[client][1]
    done = install(work, "--write", client)
    assert done.returncode == 0 and "added to" in done.stdout, done.stderr
    fresh = json.loads(path.read_text())[member]["sandglass"]
    assert fresh["command"].endswith("/sandglass") and fresh["args"] == ["mcp"]
    old = {"b": [1, 2.5, None, "é"], member: {"other": {"command": "x"}, "sandglass": {"command": "old"}}, "a": {"deep": True}}
    path.write_text(json.dumps(old))
    path.chmod(0o640)
    done = install(work, "--write", client, "--url", "http://127.0.0.1:7420")
    assert done.returncode == 0 and "replaced in" in done.stdout
    new = json.loads(path.read_text())
    assert new[member]["sandglass"]["args"] == ["mcp", "--url", "http://127.0.0.1:7420"]
    new[member]["sandglass"] = old[member]["sandglass"]
    assert new == old and list(new) == list(old)
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(path.parent) == [path.name] or client == "claude-code"
    before = path.stat().st_ino
    done = install(work, "--write", client, "--url", "http://127.0.0.1:7420", "--json")
    assert json.loads(done.stdout)["changed"] is False and path.stat().st_ino == before


@pytest.mark.parametrize("content", ["{", "[]", "// comment\n{}", '{"mcpServers": []}', '{"a": 1, "a": 2}', "\xff\xfe"])
def test_install_leaves_a_malformed_file_alone(work, content):
    path = work / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text(content)
    done = install(work, "--write", "cursor")
    assert done.returncode == 1 and "was not changed" in done.stderr
    assert path.read_text() == content and os.listdir(path.parent) == ["mcp.json"]


def test_install_follows_links_and_knows_toml(work):
    real = work / "dotfiles.toml"
    real.write_text('model = "x"')
    (work / ".codex").mkdir()
    (work / ".codex/config.toml").symlink_to(real)
    assert "added to" in install(work, "--write", "codex").stdout
    text = real.read_text()
    assert text.startswith('model = "x"\n\n[mcp_servers.sandglass]\ncommand = "') and text.endswith('args = ["mcp"]\n')
    assert (work / ".codex/config.toml").is_symlink()
    assert "already in" in install(work, "--write", "codex").stdout
    assert install(work, "--write", "codex", "--url", "x:1").returncode == 1
    assert real.read_text() == text


def test_install_prints_what_it_would_write(work):
    everything = install(work)
    assert everything.returncode == 0 and os.listdir(work) == []
    assert all(path in everything.stdout for path, _ in FILES.values())
    rows = json.loads(install(work, "--json").stdout)["clients"]
    assert {row["client"] for row in rows} == {*FILES, "codex"}
    assert json.loads(install(work, "cursor").stdout.split("\n", 1)[1])["mcpServers"]["sandglass"]
    for wrong in (["nothing"], ["--write", "nothing"], ["--name", "a b"], ["cursor", "zed"]):
        assert install(work, *wrong).returncode == 2
