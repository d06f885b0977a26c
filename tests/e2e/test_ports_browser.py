# SPDX-License-Identifier: Apache-2.0
"""Servers of sandboxes in a real browser: a dev server with hot reload works, and a hostile page reaches nothing."""
import json
import urllib.parse

import pytest

from browser import CHROMIUM, Browser
from key_file import bearer, keys  # noqa: F401 (fixture)
from test_ports import serve

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium here")

# What a dev server's page does: a module, a request with a body of a type of its own, a WebSocket for hot reload.
DEV = """<!doctype html><title>dev</title>
<script type="module" src="app.js"></script>
<script>
window.result = {};
const socket = new WebSocket(new URL("ws", location.href).href.replace(/^http/, "ws"));
socket.onopen = () => socket.send("hot");
socket.onmessage = event => result.socket = event.data;
socket.onerror = () => result.socket = "error";
fetch("data", {method: "PUT", headers: {"Content-Type": "application/json", "X-Mine": "1"}, body: "{}"})
  .then(answer => answer.json()).then(body => result.fetch = body.method + " " + body.headers["x-mine"], error => result.fetch = "" + error);
window.attempt = work => { try { return "" + work(); } catch (error) { return error.name; } };
</script>
"""

# A page that tries all that it can with what the browser has: ours is the origin it came from.
HOSTILE = """<!doctype html><title>hostile</title>
<script>
window.results = {};
const note = (name, promise) => promise.then(value => results[name] = value, error => results[name] = "refused");
const read = (url, options) => fetch(url, options).then(answer => answer.status < 300 ? answer.text() : "status " + answer.status);
window.attack = (api, other) => {
  note("list sessions", read(api + "/api/v1/sessions", {credentials: "include"}));
  note("create a session", read(api + "/api/v1/sessions", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"}));
  note("blind create", fetch(api + "/api/v1/sessions", {method: "POST", mode: "no-cors", credentials: "include", body: "{}"}).then(() => "sent"));
  note("metrics", read(api + "/metrics"));
  note("page of the other", read(other + "/secret", {credentials: "include"}));
  note("blind post to the other", fetch(other + "/blind", {method: "POST", mode: "no-cors", credentials: "include", body: "x"}).then(() => "sent"));
  note("socket to the other", new Promise((open, fail) => {
    const socket = new WebSocket(other.replace(/^http/, "ws") + "/ws"); socket.onopen = () => open("open"); socket.onerror = fail; }));
  note("script of the other", new Promise((loaded, fail) => {
    const script = document.createElement("script"); script.src = other + "/app.js"; script.onload = () => loaded("loaded"); script.onerror = fail;
    document.head.append(script); }));
  note("frame of the other", new Promise(seen => {
    const frame = document.createElement("iframe"); frame.src = other + "/framed"; frame.onload = () => { try { seen(frame.contentDocument.title); } catch (e) { seen("refused"); } };
    document.body ? document.body.append(frame) : document.documentElement.append(frame); }));
  note("worker for all paths", (async () => { await navigator.serviceWorker.register("app.js", {scope: "/"}); return "registered"; })());
};
</script><body></body>
"""

PAGES = json.dumps({"dev": DEV, "hostile": HOSTILE})


@pytest.fixture
def browser(work):
    folder = work / "browser"
    folder.mkdir()
    opened = Browser(folder)
    yield opened
    opened.stop()


@pytest.fixture
def site(make_daemon, backend, keys):  # noqa: F811
    """A daemon with keys whose ports have names below localhost, which browsers take for this host."""
    daemon = make_daemon(start=False, backend=backend, tcp=True, settings={"auth": {"mode": "keys", "keys_file": str(keys.path)}})
    daemon.settings["ports"] = {"domain": f"localhost:{daemon.port}"}
    daemon.ann = bearer(keys.create("ann")["key"])
    daemon.start()
    return daemon


def open_port(site):
    """A session with a server that has the pages, and a signed URL of it."""
    session = site.api("POST", "/sessions", {}, expect=201, headers=site.ann).json["id"]
    port = serve(site, session, headers=site.ann, env={"PAGES": PAGES})
    return session, port, site.api("POST", f"/sessions/{session}/ports/{port}/url", {}, expect=201, headers=site.ann).json


def by_path(site, signed, name):
    return f"http://127.0.0.1:{site.port}{signed['path']}page?name={name}"


def by_host(signed, name):
    url = urllib.parse.urlsplit(signed["url"])
    return url._replace(path="/page", query=f"name={name}&{url.query}").geturl()


def open_tab(browser, url):
    return browser.open(urllib.parse.quote(url, safe=""))


def check_dev(tab):
    tab.wait_for("window.result && result.socket && result.fetch && window.loaded", "everything has loaded")
    assert tab.evaluate("result.socket") == "hot"
    assert tab.evaluate("result.fetch") == "PUT 1"
    assert tab.evaluate("window.loaded") == "app.js"


def test_a_dev_server_works_below_a_path_without_an_origin(site, browser):
    _, _, signed = open_port(site)
    tab = open_tab(browser, by_path(site, signed, "dev"))
    check_dev(tab)
    assert tab.evaluate("self.origin") == "null"
    assert tab.evaluate("attempt(() => document.cookie)") == "SecurityError"
    assert tab.evaluate("attempt(() => localStorage.length)") == "SecurityError"
    tab.close()


def test_a_dev_server_works_by_its_host_name(site, browser):
    session, port, signed = open_port(site)
    tab = open_tab(browser, by_host(signed, "dev"))
    check_dev(tab)
    assert tab.evaluate("location.search") == "?name=dev"  # the permission does not stay in the address
    assert tab.evaluate("self.origin") == f"http://{port}-{session}.localhost:{site.port}"
    assert tab.evaluate("document.cookie") == ""  # ours is not for scripts
    tab.reload()
    check_dev(tab)
    tab.close()


def attack(site, tab, other):
    tab.wait_for("!!window.attack", "the page is there")
    for api in (f"http://127.0.0.1:{site.port}", f"http://localhost:{site.port}"):
        tab.evaluate(f"results = {{}}; attack({json.dumps(api)}, {json.dumps(other)})")
        tab.wait_for("Object.keys(results).length == 10", "all attempts have an end")
        results = tab.evaluate("results")
        blind = {results.pop("blind create"), results.pop("blind post to the other")}
        assert blind <= {"sent", "refused"}  # whether it was answered the page cannot see
        assert {name: value for name, value in results.items() if value not in ("refused", "status 401", "status 403", "status 404")} == {}


@pytest.mark.parametrize("door", ["path", "host"])
def test_a_hostile_page_reaches_neither_the_api_nor_another_sandbox(site, browser, door):
    _, _, mine = open_port(site)
    session, port, other = open_port(site)
    opened = open_tab(browser, by_host(other, "dev"))  # the browser has the cookie of the other one
    check_dev(opened)
    sessions = len(site.api("GET", "/sessions", headers=site.ann).json["sessions"])
    tab = open_tab(browser, by_path(site, mine, "hostile") if door == "path" else by_host(mine, "hostile"))
    attack(site, tab, f"http://{port}-{session}.localhost:{site.port}")
    log = site.api("GET", f"/sessions/{session}/ports/{port}/log", headers=site.ann).json
    assert not [line for line in log if any(word in line for word in ("secret", "blind", "framed"))], log
    assert len(site.api("GET", "/sessions", headers=site.ann).json["sessions"]) == sessions
    opened.reload()
    check_dev(opened)  # and the other one goes on
    tab.close()
    opened.close()
