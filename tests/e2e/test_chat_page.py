# SPDX-License-Identifier: Apache-2.0
"""A real page in a real browser: closing its tab takes the sandbox, a reload does not, and the history stays."""
import http.server
import json
import pathlib
import re
import threading
import time

import pytest

from browser import CHROMIUM, Browser
from conftest import ROOT, wait_for
from test_auth import over_tcp


def script_of_the_docs():
    """What docs/how-to/chat-page.md tells people to use, as it stands there."""
    return re.search(r"```js\n(.*?)```", (ROOT / "docs" / "how-to" / "chat-page.md").read_text(), re.S)[1]


PAGE = """<!doctype html><title>chat</title>
<body data-session="{session}" data-teardown="{teardown}">
<script>
{script}
window.run = async code => (await (await fetch("/session/{session}/run", {{method: "POST", body: code}})).json());
window.entries = async () => (await (await fetch("/session/{session}/history")).json());
window.loaded = performance.getEntriesByType("navigation")[0].type;
</script>
"""


class Backend(http.server.BaseHTTPRequestHandler):
    """The page's own server: it alone talks to the daemon, for the one session of each page."""

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json"):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def token(self, session):
        url = self.server.daemon.api("POST", f"/sessions/{session}/teardown-token", {}, expect=201).json["url"]
        return f"http://127.0.0.1:{self.server.daemon_port}{url}"

    def do_GET(self):
        parts = self.path.strip("/").split("/")
        if parts[0] == "chat":
            self.answer(PAGE.format(session=parts[1], teardown=self.token(parts[1]), script=script_of_the_docs()), "text/html")
        elif parts[0] == "session" and parts[2] == "history":
            self.answer(self.server.daemon.api("GET", f"/sessions/{parts[1]}/history", expect=200).body)
        else:
            self.send_error(404)

    def do_POST(self):
        parts = self.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if parts[2] == "run":
            self.answer(self.server.daemon.api("POST", "/execute", {"code": body, "session_id": parts[1]}, expect=200).body)
        else:
            self.answer(json.dumps({"url": self.token(parts[1])}))


@pytest.fixture
def chat(make_daemon):
    daemon = make_daemon(backend="native", settings={"session": {"preload": False}}, start=False)
    port = over_tcp(daemon).port
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    server.daemon, server.daemon_port = daemon, port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browser(work):
    if not CHROMIUM:
        pytest.skip("there is no Chromium here")
    folder = work / "browser"
    folder.mkdir()
    browser = Browser(folder)
    yield browser
    browser.stop()


def state_of(daemon, session):
    return daemon.api("GET", f"/sessions/{session}", expect=200).json["sandbox"]["state"]


def open_page(chat, browser, session):
    tab = browser.open(f"http://127.0.0.1:{chat.server_port}/chat/{session}")
    tab.wait_for("typeof run == 'function'", "the page is there")
    return tab


def test_closing_the_tab_takes_the_sandbox_and_a_reload_does_not(chat, browser):
    daemon, session, other = chat.daemon, chat.daemon.session(), chat.daemon.session()
    daemon.execute(other, ["true"])
    tab = open_page(chat, browser, session)
    assert tab.evaluate("run('open(\"note\", \"w\").write(\"kept\"); print(6 * 7)').then(answer => answer.stdout)") == "42\n"

    tab.reload()
    tab.wait_for("window.loaded == 'reload'", "the page is there again")
    # Longer than the grace: the reload has dropped what the old page asked for.
    deadline = time.monotonic() + 1
    wait_for(lambda: time.monotonic() > deadline, "the grace is over")
    assert state_of(daemon, session) == "ready"
    assert tab.evaluate("run('print(open(\"note\").read())').then(answer => answer.stdout)") == "kept\n"

    tab.close()
    wait_for(lambda: state_of(daemon, session) == "none", "the sandbox is gone")
    assert state_of(daemon, other) == "ready", "another page's session is not touched"

    tab = open_page(chat, browser, session)
    codes = tab.evaluate("entries().then(history => history.entries.filter(entry => entry.execution)"
                         ".map(entry => entry.execution.stdout))")
    assert codes == ["42\n", "kept\n"]
    again = json.loads(tab.evaluate("run('print(1)').then(answer => JSON.stringify(answer))"))
    assert again["stdout"] == "1\n" and again["files_were_reset"]
    tab.close()
    wait_for(lambda: state_of(daemon, session) == "none", "the sandbox is gone again")
    # The browser may be asked for no more than the URL: the daemon has said nothing to it.
    assert "origin_not_allowed" not in pathlib.Path(daemon.log_path).read_text()
