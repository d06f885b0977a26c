# SPDX-License-Identifier: Apache-2.0
"""A client of the MCP server for tests: over HTTP, and over the standard streams of `sandglass mcp`."""
import json
import os
import queue
import subprocess
import threading

from conftest import SANDGLASS, Answer, UnixConnection

NEWEST = "2025-11-25"
STATELESS = "2026-07-28"
META = "io.modelcontextprotocol/"
NAP = f"sleep 1{os.getpid():07d}"  # a command that is found among the processes of the machine, and is only ours


def message(method, params=None, number=None):
    body = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        body["id"] = number
    if params is not None:
        body["params"] = params
    return body


def events(text):
    """The (id, data) of a text/event-stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in block.splitlines() if line
                      and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id"), fields["data"]))
    return found


class Http:
    """One MCP session over HTTP."""

    def __init__(self, daemon, headers=None, version=NEWEST, **params):
        self.daemon = daemon
        self.common = {"Accept": "application/json, text/event-stream", **(headers or {})}
        self.number = 0
        answer = self.post(message("initialize", {"protocolVersion": version, "capabilities": {},
                                                  "clientInfo": {"name": "test", "version": "1"}, **params}, 0))
        assert answer.status == 200, answer.body
        self.result = answer.json["result"]
        self.id = answer.headers["mcp-session-id"]
        self.common.update({"Mcp-Session-Id": self.id, "Mcp-Protocol-Version": self.result["protocolVersion"]})
        assert self.post(message("notifications/initialized")).status == 202

    def post(self, body, **headers):
        return self.daemon.request("POST", "/mcp", body, headers={**self.common, **headers}, timeout=60)

    def ask(self, method, params=None, **headers):
        """The answer to a request, and the notifications before it."""
        self.number += 1
        answer = self.post(message(method, params, self.number), **headers)
        assert answer.status == 200, answer.body
        if answer.headers["content-type"] == "application/json":
            return answer.json, []
        messages = [json.loads(data) for _, data in events(answer.body.decode()) if data]
        return messages[-1], messages[:-1]

    def call(self, tool, arguments, **meta):
        params = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return self.ask("tools/call", params)

    def bash(self, command, **arguments):
        answer, _ = self.call("bash", {"command": command, **arguments})
        return text_of(answer)

    def open(self, method, body=None, **headers):
        """A request whose answer is read bit by bit: (connection, response)."""
        connection = UnixConnection(str(self.daemon.socket))
        text = json.dumps(body) if body is not None else None
        more = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, "/mcp", body=text, headers={**self.common, **more, **headers})
        return connection, connection.getresponse()

    def end(self):
        return self.daemon.request("DELETE", "/mcp", headers=self.common)


def text_of(answer):
    assert "result" in answer, answer
    return "\n".join(part["text"] for part in answer["result"]["content"] if part["type"] == "text")


def read_event(response):
    """The next event of an open stream: (id, data)."""
    lines = []
    while True:
        line = response.readline().decode()
        assert line, "the stream has ended"
        if line != "\n":
            lines.append(line)
        elif any(line.startswith("data:") for line in lines):
            return events("".join(lines))[0]
        else:
            lines = []


class Stdio:
    """`sandglass mcp` as a child."""

    def __init__(self, environment=None, arguments=(), initialize=True):
        self.process = subprocess.Popen([SANDGLASS, "mcp", *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.number = 0
        self.notifications = []
        if initialize:
            self.result = self.ask("initialize", {"protocolVersion": NEWEST, "capabilities": {},
                                                  "clientInfo": {"name": "test", "version": "1"}})["result"]
            self.send(message("notifications/initialized"))

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send_text(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, body):
        self.send_text(json.dumps(body))

    def receive(self, seconds=60):
        line = self.lines.get(timeout=seconds)
        return json.loads(line) if line is not None else None

    def ask(self, method, params=None):
        self.number += 1
        self.send(message(method, params, self.number))
        return self.answer(self.number)

    def answer(self, number):
        """The answer with this id; notifications before it are kept."""
        while True:
            got = self.receive()
            assert got is not None, "sandglass mcp has ended"
            if got.get("id") == number and "method" not in got:
                return got
            self.notifications.append(got)

    def call(self, tool, arguments, **meta):
        params = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return self.ask("tools/call", params)

    def bash(self, command, **arguments):
        return text_of(self.call("bash", {"command": command, **arguments}))

    def close(self, seconds=30):
        """As clients do: close its input, and wait."""
        self.process.stdin.close()
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        self.process.stdout.close()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(30)
        self.process.stdin.close()
        self.process.stdout.close()
