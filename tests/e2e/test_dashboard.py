# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser, on a live daemon: each screen, as a person uses it."""
import json
import os
import subprocess
import urllib.request

import pytest

import page_driver
from conftest import ROOT, wait_for
from key_file import bearer, keys  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.skipif(page_driver.missing() is not None, reason=str(page_driver.missing())), pytest.mark.xdist_group("dashboard")]

PLOT = ("import struct, zlib; c = lambda k, d: struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d)); "
        "open('plot.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + c(b'IHDR', struct.pack('>IIBBBBB', 40, 20, 8, 0, 0, 0, 0)) + "
        "c(b'IDAT', zlib.compress(b''.join(b'\\0' + bytes([n * 12] * 40) for n in range(20)))) + c(b'IEND', b'')); print('drawn')")
THOROUGH = bool(os.environ.get("SANDGLASS_PAGE"))  # scripts/test --page: every screen, in every size
FLAVORS = [{"name": "cpu-basic"}, {"name": "gpu", "price_per_hour": 1.5, "needs_approval": True}]


@pytest.fixture(scope="session")
def driver():
    made = page_driver.Driver()
    yield made
    made.stop()


class Page:
    """One page of the browser, with its own cookies."""

    def __init__(self, driver, daemon, name="main", **options):
        self.driver, self.daemon, self.name = driver, daemon, name
        self.base = f"http://127.0.0.1:{daemon.port}/"
        driver.run("if (pages[args.page]) await pages[args.page].context().close(); (await open(args.page, args.options)).context().setDefaultTimeout(30000)", page=name,
                   options={"origin": self.base, "acceptDownloads": True, **options})

    def run(self, code, **args):
        return self.driver.run(code, page=self.name, base=self.base, **args)

    def log_in(self):
        if b"ui/app-" not in self.daemon.request("GET", "/").body:
            pytest.skip("this build has no page: Node.js was not there")
        done = self.daemon.cli("dashboard", "--json")
        assert done.returncode == 0, done.stderr
        self.run("await page.goto(args.url); await page.waitForSelector('.tile')", url=json.loads(done.stdout)["url"])
        return self

    def go(self, where):
        self.run("await page.goto(args.base + args.where); await page.waitForTimeout(0)", where=where)

    def see(self, selector, text=None):
        """Waits until it can be seen."""
        return self.run("await page.locator(args.selector).filter(args.text ? {hasText: args.text} : {}).first().waitFor({state: 'visible'})", selector=selector, text=text)

    def click(self, selector):
        return self.run("await page.locator(args.selector).first().click()", selector=selector)

    def text(self, selector="body"):
        return self.run("return await page.locator(args.selector).first().innerText()", selector=selector)

    def check(self):
        """Nothing went wrong: no exception, nothing that the policy refuses, no other host."""
        problems = self.run("return problems[args.page]")
        assert not problems, problems
        text = self.text()
        assert "undefined" not in text and "NaN" not in text and "[object" not in text, text


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(backend="native", tcp=True, settings={"flavors": FLAVORS})


@pytest.fixture
def page(driver, daemon):
    made = Page(driver, daemon).log_in()
    yield made
    made.check()


def test_the_first_screen_shows_what_runs_who_waits_and_what_ended(page, daemon):
    page.see(".empty", "No session yet")
    name = daemon.session(key="worker", labels={"team": "red"})
    daemon.execute(name, command="sleep 300", background=True)
    gone = daemon.session(key="short")
    daemon.execute(gone, command="echo last words")
    daemon.api("DELETE", f"/sessions/{gone}", expect=200)
    page.see(".row .name-link", "worker")
    page.see(".row .runs", "sleep 300")
    page.see(".row .ends-text", " in ")
    page.see(".recent li", "deleted")
    page.see(".recent .command", "echo last words")
    daemon.session(key="other", labels={"team": "blue"})
    page.see(".row .name-link", "other")
    page.run("""await Promise.all([page.locator('.toast').filter({hasText: 'other: ends in'}).first().waitFor({state: 'visible'}),  // it goes again after a moment
                                    page.locator("button[aria-label='Extend other']").first().click()])""")
    page.run("await page.keyboard.press('/'); await page.keyboard.type('team=red'); await page.waitForFunction(() => document.querySelectorAll('.space .row:not([hidden])').length === 1)")
    assert "q=team" in page.run("return page.url()")
    page.run("await page.keyboard.press('Enter'); await page.keyboard.press('w')")
    page.see("dialog", "Extended by")
    page.run("await page.keyboard.press('Escape'); await page.locator('dialog').waitFor({state: 'detached'}); await page.locator('.grid').focus(); await page.keyboard.press('x')")
    page.click("dialog button.danger")
    wait_for(lambda: daemon.ended(name), "the session has ended from the page")
    page.run("await page.fill('.filter', '')")
    page.see(".row .name-link", "other")


def test_an_approval_is_decided(page, daemon):
    session = daemon.session(key="asks")
    daemon.api("POST", f"/sessions/{session}/sandbox", {"flavor": "gpu"}, expect=202)
    page.see(".need.approval", "gpu, $1.50 an hour")
    page.click(".need.approval button:has-text('Once')")
    page.run("await page.locator('.needs-box').waitFor({state: 'hidden'})")
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["flavor"] == "gpu", "the approved flavor is there")
    wait_for(lambda: daemon.api("GET", f"/sessions/{session}").json["spent_usd"] > 0, "it costs something")
    daemon.api("PATCH", f"/sessions/{session}/budget", {"cap_usd": 1.6}, expect=200)
    page.run("await page.reload()")
    page.see(".need.budget", "The budget of asks is nearly used up")


def test_a_session_tells_its_story_and_its_walls(page, daemon):
    session = daemon.session(key="story")
    daemon.api("POST", "/execute", {"session_id": session, "code": PLOT}, expect=200)
    daemon.execute(session, command="echo to the log; exit 3")
    page.go(f"#/s/{session}/timeline")
    page.see(".timeline pre.stdout", "drawn")
    page.see(".timeline .inline-image")
    page.see(".timeline .state", "exit 3")
    context = daemon.api("POST", f"/sessions/{session}/contexts", {}, expect=201).json["id"]
    large = "import os, struct, zlib\ndef part(k, d): return struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d))\n" \
            "rows = b''.join(b'\\0' + os.urandom(150) for _ in range(50))\n" \
            "png = b'\\x89PNG\\r\\n\\x1a\\n' + part(b'IHDR', struct.pack('>IIBBBBB', 50, 50, 8, 2, 0, 0, 0)) + part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b'')\n" \
            "from IPython.display import Image\nImage(data=png)"
    assert daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": large}, expect=200).json["state"] == "ok"
    page.run("await page.reload()")
    page.run("await page.waitForFunction(() => [...document.querySelectorAll('.timeline [data-type=\"context.ran\"] img')].some(image => image.naturalWidth === 50))")
    page.run("await page.keyboard.press(']'); await page.waitForFunction(() => location.hash.endsWith('/terminal'))")
    page.go(f"#/s/{session}/executions")
    page.click(".execution:has-text('echo to the log')")
    page.see(".output", "to the log")
    page.go(f"#/s/{session}/isolation")
    page.see(".walls li", "pid namespace")
    page.go(f"#/s/{session}/clocks")
    page.see(".clock.next", "ends it")
    page.see(".money", "spent of")
    page.go(f"#/s/{session}/usage")
    page.see(".plot canvas")
    page.go(f"#/s/{session}/audit")
    page.see(".plain-table", "session.created")
    page.go(f"#/s/{session}/snippets")
    page.see(".snippets", f"sandglass exec -it {session}")
    page.go(f"#/s/{session}/ports")
    page.see(".ports .empty", "No program in the sandbox listens")


def test_a_terminal_is_typed_into_and_goes_on_after_a_reload(page, daemon):
    session = daemon.session()
    page.go(f"#/s/{session}/terminal")
    page.see(".terminal [role=status]", "connected")
    page.run("await page.locator('.xterm-helper-textarea').focus(); await page.keyboard.type('echo $((40 + 2))-answer; x=kept\\n')")
    read = "return await page.locator('.xterm-rows').innerText()"
    wait_for(lambda: "42-answer" in page.run(read), "the shell has answered")
    page.run("await page.reload()")
    page.see(".terminal [role=status]", "connected")
    wait_for(lambda: "42-answer" in page.run(read), "the output is there again")
    page.run("await page.locator('.xterm-helper-textarea').focus(); await page.keyboard.type('echo still-$x\\n')")
    wait_for(lambda: "still-kept" in page.run(read), "it is the same shell")
    page.run("""await Promise.all([page.waitForResponse(answer => answer.url().endsWith('/resize') && JSON.parse(answer.request().postData()).cols < 130), page.setViewportSize({width: 900, height: 500})]);
                await page.keyboard.type('stty size\\n')""")
    size = wait_for(lambda: [line for line in page.run(read).splitlines() if line.split() and all(word.isdigit() for word in line.split())], "the size is told")
    assert int(size[-1].split()[1]) < 130


def test_a_file_is_dropped_shown_and_downloaded(page, daemon):
    session = daemon.session()
    daemon.api("POST", "/execute", {"session_id": session, "code": PLOT}, expect=200)
    page.go(f"#/s/{session}/files")
    page.see(".entry", "plot.png")
    page.run("""const data = await page.evaluateHandle(() => { const transfer = new DataTransfer(); transfer.items.add(new File(["dropped text"], "notes.txt")); return transfer; });
                await page.locator('.files').dispatchEvent('drop', {dataTransfer: data})""")
    page.see(".entry", "notes.txt")
    assert daemon.request("GET", f"/api/v1/sessions/{session}/files?path=notes.txt").body == b"dropped text"
    page.click(".entry:has-text('notes.txt')")
    page.see(".preview pre", "dropped text")
    page.click(".entry:has-text('plot.png')")
    page.see(".preview img")
    size = page.run("""const [download] = await Promise.all([page.waitForEvent('download'), page.click('.preview button:has-text("Download")')]);
                       return (await (await import('node:fs')).promises.readFile(await download.path())).length""")
    assert size == len(daemon.request("GET", f"/api/v1/sessions/{session}/files?path=plot.png").body)


def test_a_port_is_opened_and_what_it_serves_cannot_use_the_login(page, daemon):
    session = daemon.session(network="none")
    hostile = "<script>fetch('/api/v1/whoami').then(a => a.status, () => 'refused').then(s => { document.title = 'got ' + s })</script><h1>inside</h1>"
    daemon.request("PUT", f"/api/v1/sessions/{session}/files?path=index.html", hostile.encode(), {"Content-Type": "application/octet-stream"})
    daemon.execute(session, argv=["python3", "-m", "http.server", "8000"], background=True)
    wait_for(lambda: 8000 in [row["port"] for row in daemon.api("GET", f"/sessions/{session}/ports").json["ports"]], "the server listens")
    page.go(f"#/s/{session}/ports")
    page.see(".port-list", "8000")
    title = page.run("""const [opened] = await Promise.all([page.context().waitForEvent('page'), page.click('.port-list button:has-text("Open")')]);
                        await opened.locator('h1').waitFor(); await opened.waitForFunction(() => document.title.startsWith('got')); return await opened.title()""")
    assert title in ("got refused", "got 401", "got 403"), title


def test_a_session_begins_in_the_page_and_the_scratch_pad_runs_code(page, daemon):
    page.click("button:has-text('New session')")
    page.run("await page.fill('dialog [name=key]', 'from-the-page'); await page.fill('dialog [name=memory_bytes]', '256m')")
    page.click("dialog button:has-text('Create')")
    page.see(".scratch textarea")
    made = daemon.api("GET", "/sessions/key:from-the-page", expect=200).json
    assert made["limits"]["memory_bytes"] == 256 << 20
    page.run("await page.fill('.code-input', 'x = 6\\nprint(\"out\")\\nx * 7'); await page.keyboard.press('Control+Enter')")
    page.see(".results .stdout", "out")
    page.see(".results .result", "42")
    page.run("await page.fill('.code-input', 'x + 1'); await page.click('.scratch button:has-text(\"Run\")')")
    page.see(".results .result", "7")
    page.run("await page.selectOption('.scratch select', 'bash'); await page.fill('.code-input', 'echo from bash; false'); await page.click('.scratch button:has-text(\"Run\")')")
    page.see(".results .stdout", "from bash")


def test_a_restart_of_the_daemon_is_survived(page, daemon):
    session = daemon.session(key="stays")
    page.go(f"#/s/{session}/terminal")
    page.see(".terminal [role=status]", "connected")
    page.run("await page.locator('.xterm-helper-textarea').focus(); await page.keyboard.type('echo before\\n')")
    read = "return await page.locator('.xterm-rows').innerText()"
    wait_for(lambda: page.run(read).count("before") > 1, "the shell has answered")
    daemon.kill()
    page.see(".banner", "cannot be reached")
    daemon.start()
    page.run("await page.locator('.banner').waitFor({state: 'hidden', timeout: 30000})")
    page.run("await page.locator('.xterm-helper-textarea').focus(); await page.keyboard.type('echo after\\n')")
    wait_for(lambda: page.run(read).count("after") > 1, "the same shell goes on")
    page.go("#/")
    page.see(".row .name-link", "stays")
    new = daemon.session(key="born-later")
    page.see(".row .name-link", "born-later")
    daemon.api("DELETE", f"/sessions/{new}", expect=200)
    page.see(".recent li", "born-later")


def test_a_key_logs_in_and_a_strangers_session_is_never_shown(driver, make_daemon, keys):
    ann, bob = keys.create("ann")["key"], keys.create("bob")["key"]
    daemon = make_daemon(backend="native", tcp=True, settings={"auth": {"mode": "keys", "keys_file": str(keys.path)}})
    hers = daemon.api("POST", "/sessions", {"key": "secret-plan"}, expect=201, headers=bearer(ann)).json["id"]
    page = Page(driver, daemon)
    page.go("")
    page.see(".login")
    page.run("await page.fill('#key', 'sg_wrong'); await page.keyboard.press('Enter')")
    page.see(".login .problem", "not valid")
    page.run("await page.fill('#key', args.key); await page.keyboard.press('Enter')", key=bob)
    page.see(".empty", "No session yet")
    mine = daemon.api("POST", "/sessions", {"key": "mine"}, expect=201, headers=bearer(bob)).json["id"]
    page.see(".row .name-link", "mine")
    daemon.api("POST", f"/sessions/{hers}/executions", {"command": "true"}, expect=201, headers=bearer(ann))
    assert "secret-plan" not in page.text() and hers not in page.run("return await page.content()")
    page.go(f"#/s/{hers}/timeline")
    page.see(".empty", "There is no such session")
    assert page.run("return await page.evaluate(() => document.cookie)") == ""
    page.go(f"#/s/{mine}/audit")
    page.see(".empty", "Only administrators")
    page.click("button:has-text('Log out')")
    page.see(".login")
    page.check()


def test_no_serious_finding_of_axe_in_light_dark_and_small(page, daemon):
    session = daemon.session(key="accessible", labels={"team": "red"})
    daemon.api("POST", "/execute", {"session_id": session, "code": PLOT}, expect=200)
    daemon.api("POST", f"/sessions/{session}/sandbox", {"flavor": "gpu"}, expect=202)
    tabs = ["timeline", "terminal", "scratch", "files", "executions", "usage", "ports", "isolation", "clocks", "audit", "snippets"]
    some, more = (["", *tabs], ["", *tabs]) if THOROUGH else (["", "timeline", "clocks"], ["", "isolation"])
    for scheme, width, screens in (("light", 1280, some), ("dark", 360, more)):
        page.run("await page.emulateMedia({colorScheme: args.scheme}); await page.setViewportSize({width: args.width, height: 740})", scheme=scheme, width=width)
        for tab in screens:
            page.go(f"#/s/{session}/{tab}" if tab else "#/")
            page.see(f"#tab-{tab}[aria-selected=true]" if tab else ".row .name-link")
            page.run("await page.waitForFunction(() => !/Loading…/.test(document.body.innerText))")
            findings = page.run("return await axe(page)")
            assert not findings, (scheme, tab, findings)
            wide = page.run("return await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)")
            assert wide <= 0, (scheme, width, tab, wide)


def test_the_page_works_below_a_prefix(driver, make_daemon, work):
    """A proxy strips the prefix; everything that the page asks for is relative."""
    daemon = make_daemon(backend="native", tcp=True)
    proxy = subprocess.Popen(["node", ROOT / "tests" / "web" / "proxy.mjs", str(daemon.port), "/tools/sandglass"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(proxy.stdout.readline())
        base = f"http://127.0.0.1:{port}/tools/sandglass/"
        ticket = json.loads(daemon.cli("dashboard", "--json").stdout)["url"].split("#")[1]
        page = Page(driver, daemon)
        page.run("await page.goto(args.url); await page.waitForSelector('.tile')", url=f"{base}#{ticket}")
        daemon.session(key="through-the-proxy")
        page.see(".row .name-link", "through-the-proxy")
        asked = page.run("return await page.evaluate(() => performance.getEntriesByType('resource').map(entry => entry.name))")
        assert asked and all(name.startswith(base) for name in asked), asked
    finally:
        proxy.kill()
        proxy.wait()


def test_a_daemon_on_a_unix_socket_only_opens_a_port_for_the_page(make_daemon):
    daemon = make_daemon(backend="native")
    done = daemon.cli("dashboard", "--no-open")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:") and "#token=sgd_" in done.stdout
    base = done.stdout.split("#")[0]
    with urllib.request.urlopen(base, timeout=30) as answer:
        assert answer.status == 200 and "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert daemon.cli("dashboard", "--no-open").stdout.split("#")[0] == base  # one port is enough


def test_the_dashboard_can_be_turned_off(make_daemon):
    daemon = make_daemon(backend="native", settings={"dashboard": {"enabled": False}})
    assert daemon.request("GET", "/").json["error"]["code"] == "route_not_found"
    assert daemon.cli("dashboard").returncode == 1


def test_a_build_without_node_says_how_to_get_the_page(tmp_path):
    build = ["/usr/bin/python3", ROOT / "web" / "build"]
    done = subprocess.run([*build, "--auto", tmp_path / "assets.c", tmp_path / "assets.d"], capture_output=True, text=True,
                          env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "node is not installed" in done.stdout
    assert "asset_0" not in (tmp_path / "assets.c").read_text()
    done = subprocess.run([*build, "--enabled", tmp_path / "assets.c", tmp_path / "assets.d"], capture_output=True, text=True,
                          env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert done.returncode == 1 and "node is not installed" in done.stderr


def test_the_types_of_the_page_are_right(driver, tmp_path):
    """TypeScript checks what the bundler only removes."""
    modules = next(path for path in (subprocess.run(["sh", "-c", "ls -d ${XDG_CACHE_HOME:-$HOME/.cache}/sandglass-page/*/node_modules"], capture_output=True, text=True).stdout.split()) if path)
    for name in ("src", "tsconfig.json", "package.json"):
        (tmp_path / name).symlink_to(ROOT / "web" / name)
    (tmp_path / "node_modules").symlink_to(modules)
    done = subprocess.run(["node", f"{driver.modules}/typescript/bin/tsc", "-p", str(tmp_path), "--preserveSymlinks"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout

