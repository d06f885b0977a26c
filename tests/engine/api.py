# SPDX-License-Identifier: Apache-2.0
"""A client of the Engine API for tests: what a test does behind the daemon's back, and what the rig does."""
import http.client
import json
import socket
import urllib.parse


class EngineError(Exception):
    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """Requests to an engine whose socket is at `path`; an answer of 400 and above is an EngineError."""

    def __init__(self, path):
        self.path = path

    def request(self, method, path, body=None, timeout=60, headers=None, **query):
        """Bytes of the answer; `body` is what becomes JSON, or bytes, or an open file. Query values that are not text become JSON."""
        if query:
            path += "?" + urllib.parse.urlencode({name: value if isinstance(value, str) else json.dumps(value) for name, value in query.items()})
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif body is not None:
            headers.setdefault("Content-Type", "application/x-tar")
        connection = Connection(self.path, timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            message = content.decode(errors="replace")
            raise EngineError(response.status, json.loads(message).get("message", message) if message.startswith("{") else message)
        return content

    def json(self, method, path, body=None, **options):
        content = self.request(method, path, body, **options)
        return json.loads(content) if content.strip() else None

    def ping(self):
        try:
            return self.request("GET", "/_ping", timeout=5) == b"OK"
        except (OSError, EngineError):
            return False

    def load(self, archive):
        """Images of an archive as `docker save` makes it. The engine answers 200 before it has looked at it."""
        with open(archive, "rb") as stream:
            answer = self.request("POST", "/images/load", stream, quiet="1").decode()
        if '"error"' in answer:
            raise EngineError(500, answer)

    def images(self):
        return sorted(name for image in self.json("GET", "/images/json") for name in image["RepoTags"] or [])

    def containers(self, **labels):
        """All of them, running or not, that have these labels: label names with `_` for `.`; None where the value does not matter."""
        wanted = [name.replace("_", ".") + (f"={value}" if value is not None else "") for name, value in labels.items()]
        return self.json("GET", "/containers/json", all="1", **({"filters": {"label": wanted}} if wanted else {}))

    def create(self, image, argv, name=None, **options):
        """The id of a container. Options with a capital letter belong to the container, those of `host` to its HostConfig."""
        body = {"Image": image, "Entrypoint": argv[:1], "Cmd": argv[1:], "HostConfig": {"NetworkMode": "none", **options.pop("host", {})}, **options}
        return self.json("POST", "/containers/create", body, **({"name": name} if name else {}))["Id"]

    def start(self, container):
        self.request("POST", f"/containers/{container}/start")

    def inspect(self, container):
        return self.json("GET", f"/containers/{container}/json")

    def wait(self, container):
        return self.json("POST", f"/containers/{container}/wait")["StatusCode"]

    def kill(self, container, signal="SIGKILL"):
        self.request("POST", f"/containers/{container}/kill", signal=signal)

    def remove(self, container, timeout=60):
        self.request("DELETE", f"/containers/{container}", timeout=timeout, force="1", v="1")

    def execute(self, container, argv, **options):
        """Runs a program in a container that runs: (exit code, output and errors)."""
        body = {"Cmd": argv, "AttachStdout": True, "AttachStderr": True, **options}
        run = self.json("POST", f"/containers/{container}/exec", body)["Id"]
        output = without_frames(self.request("POST", f"/exec/{run}/start", {"Detach": False, "Tty": False}))
        return self.json("GET", f"/exec/{run}/json")["ExitCode"], output.decode(errors="replace")

    def logs(self, container):
        return without_frames(self.request("GET", f"/containers/{container}/logs", stdout="1", stderr="1")).decode(errors="replace")


def without_frames(content):
    """Takes off the headers of eight bytes by which the engine tells output from errors."""
    found, at = [], 0
    while at + 8 <= len(content):
        size = int.from_bytes(content[at + 4:at + 8], "big")
        found.append(content[at + 8:at + 8 + size])
        at += 8 + size
    return b"".join(found)
