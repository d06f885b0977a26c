#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How smooth the dashboard is with many sessions: a private daemon, COUNT live sessions without sandboxes, RATE changes a second, and a
Chromium that measures its frames and the work in them while the list is scrolled and while it is left alone.

    SANDGLASS_BUILD=build tests/web/frames.py [COUNT [RATE [SECONDS]]]      prints one JSON object"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent.parent / "sdk" / "python" / "src"))
from page_driver import Driver  # noqa: E402
from sandglass import Client  # noqa: E402

SANDGLASS = pathlib.Path(os.environ.get("SANDGLASS_BUILD", "build")).resolve() / "sandglass"
COUNT, RATE, SECONDS = (int(word) for word in (sys.argv[1:] + ["5000", "50", "10"][len(sys.argv) - 1:]))
SETTINGS = {"session": {"preload": False}, "pool": {"size": 0}}

# Frames as the browser makes them, and how long its main thread worked for each: what is left for everything else.
MEASURE = """
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  const used = async () => Object.fromEntries((await client.send("Performance.getMetrics")).metrics.map(one => [one.name, one.value])).TaskDuration;
  const before = await used();
  await page.evaluate(seconds => {
    const frames = [], work = [];
    const grid = document.querySelector(".grid");
    let last = performance.now(), end = last + seconds * 1000, at = 0;
    window.measured = new Promise(resolve => {
      const channel = new MessageChannel();
      let begun = 0;
      channel.port1.onmessage = () => work.push(performance.now() - begun); // comes when the frame's own work is done
      const step = now => {
        frames.push(now - last);
        last = now;
        begun = performance.now();
        if (window.scrolls) { at += 137; grid.scrollTop = at % (grid.scrollHeight - grid.clientHeight); }
        channel.port2.postMessage(0);
        if (now < end) requestAnimationFrame(step);
        else resolve({ frames, work });
      };
      requestAnimationFrame(step);
    });
  }, args.seconds);
  const { frames, work } = await page.evaluate(() => window.measured);
  const cpu = 1000 * (await used() - before);
  await client.detach();
  const rank = (list, part) => list.sort((a, b) => a - b)[Math.floor(list.length * part)];
  return { frames: frames.length, main_thread_cpu_ms_per_frame: cpu / frames.length, main_thread_cpu_percent: cpu / args.seconds / 10, frame_ms: { median: rank(frames, .5), p95: rank(frames, .95) }, work_ms: { median: rank(work, .5), p95: rank(work, .95), longest: rank(work, .9999) } };
"""


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(folder):
    settings = folder / "sandglass.yaml"
    settings.write_text(json.dumps(SETTINGS))
    socket = folder / "run" / "sandglass.sock"
    daemon = subprocess.Popen([SANDGLASS, "serve", "--config", settings, "--state", folder / "state", "--listen", f"unix:{socket}", "--listen", "127.0.0.1:0"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not socket.exists():
        time.sleep(0.05)
    return daemon, f"unix:{socket}"


def fill(url):
    """Some owners, because each may have so many."""
    clients = [Client(url, owner=f"team-{n}") for n in range(10)]
    for n in range(COUNT):
        clients[n % 10].session(key=f"task-{n:05}", labels={"team": f"t{n % 10}", "run": str(n)})


def change(url, stop, done):
    """RATE events a second, of the kind that costs the page most: sessions begin and end, and the list changes."""
    client, begun = Client(url), time.monotonic()
    while not stop.is_set():
        client.session(labels={"team": "t1", "run": str(done[0])}).delete()
        done[0] += 2
        stop.wait(max(0, begun + done[0] / RATE - time.monotonic()))


def main():
    with tempfile.TemporaryDirectory(prefix="sandglass-frames-") as folder:
        os.chmod(folder, 0o755)
        daemon, url = start(pathlib.Path(folder))
        driver = Driver()
        try:
            fill(url)
            page = json.loads(subprocess.run([SANDGLASS, "dashboard", "--json"], env={**os.environ, "SANDGLASS_URL": url}, capture_output=True, text=True, check=True).stdout)["url"]
            driver.run("const shown = await open('main'); await shown.goto(args.url); await shown.waitForFunction(count => document.querySelector('.count')?.textContent === String(count), args.count, {timeout: 60000});", url=page, count=COUNT)
            stop = threading.Event()
            done = [0]
            worker = threading.Thread(target=change, args=(url, stop, done))
            quiet = cpu_seconds(daemon.pid)
            time.sleep(SECONDS)
            quiet = (cpu_seconds(daemon.pid) - quiet) / SECONDS
            worker.start()
            began, first = time.monotonic(), done[0]
            still = driver.run("await page.evaluate(() => { window.scrolls = false; });" + MEASURE, seconds=SECONDS)
            busy = cpu_seconds(daemon.pid)
            scrolled = driver.run("await page.evaluate(() => { window.scrolls = true; });" + MEASURE, seconds=SECONDS)
            busy = (cpu_seconds(daemon.pid) - busy) / SECONDS
            rate = (done[0] - first) / (time.monotonic() - began)
            driver.run("await page.context().close()")
            alone = cpu_seconds(daemon.pid)
            time.sleep(SECONDS)
            alone = (cpu_seconds(daemon.pid) - alone) / SECONDS
            stop.set()
            worker.join()
            print(json.dumps({"sessions": COUNT, "events_per_second": round(rate, 1), "left_alone": still, "scrolled": scrolled,
                              "daemon_core_percent": {"page_open_nothing_happens": round(100 * quiet, 2), "events_and_page": round(100 * busy, 2),
                                                      "events_without_page": round(100 * alone, 2)}}, indent=2))
        finally:
            driver.stop()
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=120)


main()
