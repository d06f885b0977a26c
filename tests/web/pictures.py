#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the dashboard for README and docs: a private daemon, sessions as agents make them, and a browser.

    SANDGLASS_BUILD=build tests/web/pictures.py TARGET_DIRECTORY"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent.parent / "sdk" / "python" / "src"))
from page_driver import Driver  # noqa: E402
from sandglass import Client  # noqa: E402

SANDGLASS = pathlib.Path(os.environ.get("SANDGLASS_BUILD", "build")).resolve() / "sandglass"
SETTINGS = """
flavors:
  - {name: cpu-basic}
  - {name: roomy, memory: 4g, cpus: 2, price_per_hour: 0}
  - {name: gpu-small, memory: 4g, price_per_hour: 1.50, needs_approval: true}
budget: {owner_cap: 20}
usage: {interval: 1s}
"""
PLOT = """
import math, struct, zlib
W, H = 460, 220
rows = [bytearray(b"\\xff" * 3 * W) for _ in range(H)]
def dot(x, y, colour):
    if 0 <= x < W and 0 <= y < H: rows[y][3 * x:3 * x + 3] = bytes(colour)
for x in range(W):
    for k, colour in enumerate(((180, 120, 30), (40, 110, 160), (60, 140, 80))):
        y = int(H / 2 - 80 * math.sin(x / 30 + k) * math.exp(-x / 300))
        for d in range(-1, 2): dot(x, y + d, colour)
    dot(x, H // 2, (200, 190, 170))
raw = b"".join(b"\\0" + bytes(row) for row in rows)
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
open("decay.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
print("amplitude after 300 steps:", round(math.exp(-1), 3))
"""


def start(folder):
    """With usage samples where the daemon has them."""
    settings = folder / "sandglass.yaml"
    socket = folder / "run" / "sandglass.sock"
    for text in (SETTINGS, SETTINGS.replace("usage: {interval: 1s}\n", "")):
        settings.write_text(text)
        if subprocess.run([SANDGLASS, "config", "check", settings], capture_output=True).returncode == 0:
            break
    daemon = subprocess.Popen([SANDGLASS, "serve", "--config", settings, "--state", folder / "state", "--listen", f"unix:{socket}", "--listen", "127.0.0.1:0"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not socket.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return daemon, f"unix:{socket}"


def populate(url):
    """What a day looks like: eval runs, a notebook, a build, an approval, some that ended."""
    client = Client(url)
    ended = [client.session(key=f"eval-{n:03}", labels={"suite": "swe", "team": "evals"}) for n in range(3)]
    ended[0].run("pytest -q tests/test_parser.py || true")
    ended[1].execute("print('done')")
    ended[2].run("python3 -c \"print('x' * 10)\"")
    for session in ended:
        session.delete()
    for n, team in enumerate(("evals", "evals", "research", "web", "web")):
        Client(url, owner=("ann", "ben", "cleo")[n % 3]).session(key=f"task-{n + 41}", labels={"team": team, "run": str(n)}, idle_timeout=(75, 45, 1800, 120, 600)[n])
    busy = client.session(key="nightly-build", labels={"team": "web"}, timeout=3600)
    busy.start("i=0; while true; do i=$((i+1)); echo compile $i; for n in $(seq 20000); do :; done; sleep 0.2; done")
    note = client.session(key="analysis", labels={"team": "research"}, timeout=7200)
    note.execute("import platform\nprint(platform.python_version())")
    note.execute(PLOT)
    note.run("wc -c decay.png; printf 'a,b\\n1,2\\n3,4\\n' > table.csv; mkdir -p notes; echo '# Findings' > notes/readme.md; false")
    note.start("python3 -m http.server 8000")
    note.sandbox("gpu-small")
    return note.id, busy.id


def shoot(target, url, ids):
    environment = {**os.environ, "SANDGLASS_URL": url}
    page = json.loads(subprocess.run([SANDGLASS, "dashboard", "--json"], env=environment, capture_output=True, text=True, check=True).stdout)["url"]
    driver = Driver()
    note, busy = ids
    try:
        driver.run("const p = await open('main', {viewport: {width: 1280, height: 760}}); await p.goto(args.url); await p.waitForSelector('.row .name-link'); await p.waitForTimeout(8000);", url=page)
        driver.run("await page.screenshot({path: `${args.target}/dashboard.png`});", target=str(target))
        driver.run("await page.emulateMedia({colorScheme: 'dark'}); await page.waitForTimeout(300); await page.screenshot({path: `${args.target}/dashboard-dark.png`}); await page.emulateMedia({colorScheme: 'light'});", target=str(target))
        for name, session, tab in (("timeline", note, "timeline"), ("terminal", note, "terminal"), ("files", note, "files"), ("usage", busy, "usage"), ("isolation", note, "isolation")):
            driver.run("await page.goto(args.base + '#/s/' + args.session + '/' + args.tab); await page.waitForTimeout(1500);", base=page.split("#")[0], session=session, tab=tab)
            if tab == "terminal":
                driver.run("await page.click('.xterm'); await page.keyboard.type('ls -la && head -3 table.csv\\n'); await page.waitForTimeout(1200);")
            if tab == "files":
                driver.run("await page.click('text=decay.png'); await page.waitForTimeout(800);")
            if tab == "usage":
                driver.run("await page.waitForTimeout(9000);")
            driver.run("await page.screenshot({path: `${args.target}/dashboard-${args.name}.png`});", target=str(target), name=name)
        driver.run("await page.setViewportSize({width: 360, height: 720}); await page.goto(args.base + '#/'); await page.waitForTimeout(1500); await page.screenshot({path: `${args.target}/dashboard-phone.png`});", base=page.split("#")[0], target=str(target))
        print(driver.run("return problems"))
    finally:
        driver.stop()


def main():
    target = pathlib.Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sandglass-pictures-") as folder:
        os.chmod(folder, 0o755)
        daemon, url = start(pathlib.Path(folder))
        try:
            shoot(target, url, populate(url))
            Client(url).delete_all(owner="*")
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=60)


main()
