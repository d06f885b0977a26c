# SPDX-License-Identifier: Apache-2.0
"""A chat page that runs code: a server of one file. PYTHONPATH=sdk/python/src python3 examples/chat/server.py [PORT], then open the address.

Each browser has a session of its own, named by a cookie. The page gets output while the code runs, as one JSON object a line. When the page is
closed its sandbox goes; the history stays, and is shown when the page is opened again. The browser never gets a key of the daemon.
"""
import html
import http.server
import json
import pathlib
import re
import secrets
import sys

from sandglass import Client

HERE = pathlib.Path(__file__).parent
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
client = Client()


def shown(data):
    """One value or display of a run, by its formats, as the page shows it: an image, or text."""
    return {"image": data["image/png"]} if "image/png" in data else {"result": data.get("text/plain", "")}


def past(session):
    """Earlier runs, as lists of what the page shows of each."""
    for entry in session.history():
        if entry["type"] == "context.ran":
            run = entry["data"]
            results = run.get("results") or [one for one in [run.get("result")] if one]
            yield [{"code": run["code"]}, {"stdout": run.get("stdout", "")}, {"stderr": run.get("stderr", "")}, *[shown(one.get("data") or {}) for one in results]]


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def session(self):
        """The session of this browser; the same cookie gives the same one, also after a restart of this server."""
        cookie = self.headers.get("Cookie", "").partition("chat=")[2].partition(";")[0]
        self.chat = cookie if cookie.isalnum() else secrets.token_hex(16)
        return client.session(key=f"chat-{self.chat}")

    def do_GET(self):
        name = {"/": "page.html"}.get(self.path, self.path[1:])
        if name not in ("page.html", "page.js", "page.css"):
            return self.send_error(404)
        body = (HERE / name).read_text()
        if name == "page.html":
            session = self.session()
            # Asked for while the page is made: of all these permissions only the last one counts, so a reload keeps its sandbox.
            permission = session.teardown_url()["url"].rpartition("/")[2]
            body = body.replace("PERMISSION", permission).replace("HISTORY", html.escape(json.dumps(list(past(session)))))
        self.answer(200, body.encode(), TYPES[pathlib.Path(name).suffix])

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return self.send_error(403)  # a page of another site
        if self.path == "/run":
            self.run(self.session(), body)
        elif self.path == "/closed" and re.fullmatch(r"ses_[\w.]+", body):  # sendBeacon of a page that is left
            client.transport.call("POST", f"/teardown/{body}")
            self.answer(204, b"", "text/plain")
        else:
            self.send_error(404)

    def run(self, session, code):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Connection", "close")
        self.end_headers()
        result = interpreter(session).run(
            code, on_stdout=lambda text: self.line(stdout=text), on_stderr=lambda text: self.line(stderr=text),
            on_result=lambda value: self.line(**shown(value.data)), on_error=lambda error: self.line(error=f"{error.name}: {error.value}"))
        if result.context_lost:
            self.line(note="The interpreter was replaced: variables of earlier code are gone.")
        elif result.state not in ("ok", "error"):
            self.line(note=f"The code did not end: {result.state}.")
        self.close_connection = True

    def line(self, **fields):
        self.wfile.write(json.dumps(fields).encode() + b"\n")
        self.wfile.flush()

    def answer(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if hasattr(self, "chat"):
            self.send_header("Set-Cookie", f"chat={self.chat}; HttpOnly; SameSite=Strict; Path=/; Max-Age=31536000")
        self.end_headers()
        self.wfile.write(body)


def interpreter(session):
    """The Python context of a session: the one that is there, else a new one."""
    return next((one for one in session.contexts() if one.language == "python"), None) or session.context()


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Page)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
