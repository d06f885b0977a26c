# SPDX-License-Identifier: Apache-2.0
"""examples/chat in a browser: output, values and pictures while code runs, the history when the page is opened again, and no sandbox behind a closed page."""
import os
import subprocess
import sys

import pytest

from browser import CHROMIUM, Browser
from conftest import ROOT, wait_for

PICTURE = "display({'image/png': 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'text/plain': 'dot'}, raw=True)"


@pytest.fixture
def page(make_daemon, work):
    """(daemon, tab) of a page that is open; a page that is opened again is `tab.browser.open(tab.address)`."""
    if not CHROMIUM:
        pytest.skip("there is no Chromium here")
    daemon = make_daemon(backend="native")
    server = subprocess.Popen([sys.executable, ROOT / "examples/chat/server.py", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "SANDGLASS_URL": daemon.url, "PYTHONPATH": str(ROOT / "sdk/python/src")})
    folder = work / "browser"
    folder.mkdir()
    browser = Browser(folder)
    try:
        address = server.stdout.readline().strip()
        tab = browser.open(address)
        tab.address = address
        tab.wait_for("typeof execute == 'function'", "the page is there")
        yield daemon, tab
    finally:
        browser.stop()
        server.terminate()
        server.wait()
        server.stdout.close()


def typed(tab, code):
    """What the page shows of a run."""
    tab.evaluate(f"execute({code!r}).then(() => 1)")
    tab.wait_for("runs.lastElementChild.dataset.done == 'yes'", "the code has ended")
    return tab.evaluate("[...runs.lastElementChild.children].map(part => part.className + ':' + part.textContent.trim()).join('|')")


def state_of(daemon):
    [session] = daemon.api("GET", "/sessions", expect=200).json["sessions"]
    return session["sandbox"]["state"]


def test_the_page_shows_output_values_errors_and_pictures(page):
    daemon, tab = page
    assert typed(tab, "x = 41; print('hi'); x + 1") == "code:x = 41; print('hi'); x + 1|stdout:hi|result:42"
    assert typed(tab, "x") == "code:x|result:41"
    assert "error:ZeroDivisionError: division by zero" in typed(tab, "1/0")
    typed(tab, PICTURE)
    tab.wait_for("runs.lastElementChild.querySelector('img').naturalWidth == 1", "the picture is shown")


def test_a_page_that_is_closed_leaves_its_history_and_no_sandbox(page):
    daemon, tab = page
    typed(tab, "print('kept')")
    tab.reload()
    tab.wait_for("typeof execute == 'function' && performance.getEntriesByType('navigation')[0].type == 'reload'", "the page is there again")
    assert typed(tab, "1") == "code:1|result:1"
    assert daemon.api("GET", "/sessions", expect=200).json["sessions"][0]["sandbox"]["generation"] == 1
    tab.browser.open("about:blank")
    tab.close()
    wait_for(lambda: state_of(daemon) == "none", "the sandbox is gone")
    again = tab.browser.open(tab.address)
    again.wait_for("typeof execute == 'function' && runs.children.length == 2", "the page has its history")
    assert "kept" in again.evaluate("runs.textContent")
    assert typed(again, "1 + 1") == "code:1 + 1|result:2"
