# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven through its DevTools by the standard library alone."""
import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess

from conftest import wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio",
         "--remote-debugging-port=0", "--remote-allow-origins=*"]


class Tab:
    """One page: its WebSocket, with messages in JSON."""

    def __init__(self, browser, target):
        self.browser, self.id, self.number, self.held = browser, target["id"], 0, b""
        path = target["webSocketDebuggerUrl"].split("/", 3)[3]
        self.socket = socket.create_connection(("127.0.0.1", browser.port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{browser.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        while b"\r\n\r\n" not in self.held:
            piece = self.socket.recv(65536)
            assert piece, "the browser has hung up"
            self.held += piece
        assert self.held.startswith(b"HTTP/1.1 101"), self.held
        self.held = self.held.split(b"\r\n\r\n", 1)[1]

    def take(self, count):
        while len(self.held) < count:
            piece = self.socket.recv(65536)
            assert piece, "the browser has hung up"
            self.held += piece
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def receive(self):
        """One message; fragments and pings do not come in what we ask for."""
        length = self.take(2)[1] & 127
        if length == 126:
            length = struct.unpack(">H", self.take(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self.take(8))[0]
        return json.loads(self.take(length))

    def call(self, method, **parameters):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        size = bytes([128 | len(text)]) if len(text) < 126 else bytes([128 | 126]) + struct.pack(">H", len(text))
        self.socket.sendall(b"\x81" + size + b"\0\0\0\0" + text)  # masked with nothing
        while True:
            message = self.receive()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression, what):
        """Also while a page is left for the next one: an expression that runs then has no value."""
        def look():
            with contextlib.suppress(AssertionError):
                return self.evaluate(expression)
            return None
        return wait_for(look, what)

    def reload(self):
        """Returns when the old page is gone."""
        self.evaluate("window.isLeft = true")
        self.call("Page.reload")
        self.wait_for("!window.isLeft", "the old page is left")

    def close(self):
        """As a user closes a tab."""
        self.browser.devtools("GET", f"/json/close/{self.id}")
        self.socket.close()


class Browser:
    def __init__(self, folder):
        self.process = subprocess.Popen([CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}, start_new_session=True)
        port_file = folder / "DevToolsActivePort"
        wait_for(lambda: port_file.exists() and port_file.read_text().count("\n"), "the browser has started", 60)
        self.port = int(port_file.read_text().split()[0])

    def devtools(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path)
            body = connection.getresponse().read()
        finally:
            connection.close()
        return json.loads(body) if body[:1] in (b"{", b"[") else body.decode()

    def open(self, url):
        return Tab(self, self.devtools("PUT", f"/json/new?{url}"))

    def stop(self):
        os.killpg(self.process.pid, 9)
        self.process.wait()
