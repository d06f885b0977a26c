# SPDX-License-Identifier: Apache-2.0
"""What is measured: each section is a part of the table and can be measured alone."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from .daemon import Daemon, available_kb, proportional_kb
from .peers import Peers, for_crun

QUICK_PEERS = ["bare", "bwrap"]
SLOW_PEERS = ["crun", "runc", "podman", "docker"]


class Results:
    """rows[row][subject] = {unit, count, p50, p99, …} or {error}."""

    def __init__(self):
        self.rows = {}
        self.notes = {}

    def add(self, rows, prefix="", suffix=""):
        for row in rows:
            name = prefix + row.pop("row") + suffix
            self.rows.setdefault(name, {})[row.pop("subject")] = row

    def put(self, row, subject, unit, value):
        self.rows.setdefault(row, {})[subject] = {"unit": unit, "count": 1, "p50": round(value, 3)}


class Bench:
    """The folder, the servers and the sizes of one run."""

    def __init__(self, build, sizes, use_peers=True):
        self.build = pathlib.Path(build).resolve()
        self.sizes = sizes
        self.use_peers = use_peers
        self.results = Results()

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sandglass-bench."))
        os.chmod(self.folder, 0o711)
        self.tools = self.folder / "tools"
        self.tools.mkdir(mode=0o755)
        for name in ("true", "pause", "init"):
            shutil.copy(self.build / "bench" / f"bench_tiny_{name}", self.tools / name)
        self.peers = Peers(self.folder, self.tools)
        return self

    def __exit__(self, *_):
        self.peers.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemon(self, name, **settings):
        return Daemon(self.build / "sandglass", self.folder, name, settings)

    def engine(self, section, subjects, prefix="", suffix="", **options):
        """Measures and takes the rows over."""
        words = [f"{name}={value}" for name, value in {"tools": self.tools, **options}.items()]
        places = [f"{name}={place}" if place else name for name, place in subjects.items()]
        command = [*(for_crun() if "crun" in subjects else []), self.build / "bench" / "bench_engine", section, *words, *places]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=900)
        self.results.add(json.loads(answer.stdout)["rows"], prefix, suffix)

    def with_peers(self, names, subjects):
        """The subjects, and those peers that can be measured here."""
        if not self.use_peers:
            return subjects
        self.peers.start(names)
        return {**subjects, **{name: self.peers.places[name] for name in names if name in self.peers.places}}


# --- sections ------------------------------------------------------------------------------------

def latency(bench):
    with bench.daemon("warm") as warm, bench.daemon("cold", pool={"size": 0}) as cold:
        subjects = {"plain": "", "sandglass": warm.url, "sandglass-cold": cold.url}
        bench.engine("latency", bench.with_peers(QUICK_PEERS, subjects), seconds=bench.sizes.latency, folder=bench.folder)
        hits, misses = (warm.metric(f"sandglass_pool_{kind}_total") for kind in ("hits", "misses"))
        bench.results.notes["pool"] = {"hits": hits, "misses": misses}


def alone(bench):
    """Tails: exec with nothing else going on, once the machine has come to rest."""
    with bench.daemon("alone") as daemon:
        time.sleep(2)
        bench.engine("alone", {"plain": "", "sandglass": daemon.url}, prefix="alone_", seconds=bench.sizes.alone)


def containers(bench):
    """Those that take their time, with a floor of their own: what they leave behind would disturb the quick ones."""
    subjects = bench.with_peers(SLOW_PEERS, {})
    if subjects:
        rows = bench.results.rows
        before = {name: cells["plain"] for name, cells in rows.items() if "plain" in cells}
        bench.engine("latency", {"plain": "", **subjects}, seconds=bench.sizes.containers, at_most=2000)
        rows["floor_containers"] = dict(rows["floor"])
        for name, cell in before.items():
            rows[name]["plain"] = cell


def rate(bench):
    with bench.daemon("rate") as daemon:
        subjects = bench.with_peers(QUICK_PEERS, {"plain": "", "sandglass": daemon.url})
        bench.engine("rate", subjects, widths=bench.sizes.widths, seconds=bench.sizes.rate)
    subjects = bench.with_peers(SLOW_PEERS, {})
    if subjects:
        bench.engine("rate", subjects, widths=bench.sizes.slow_widths, seconds=bench.sizes.rate / 2, slices=1)


def burst(bench):
    """The first crowd that a daemon sees, and the next one, when as many are ready as were asked for then."""
    with bench.daemon("burst") as daemon:
        number = bench.sizes.burst
        bench.engine("burst", {"sandglass": daemon.url}, suffix="_new", number=number)
        bench.results.notes["pool of the second crowd"] = {"ready": fill_pool(daemon, number)}
        subjects = bench.with_peers([*QUICK_PEERS, "crun"], {"plain": "", "sandglass": daemon.url})
        bench.engine("burst", subjects, number=number)


def fill_pool(daemon, number, seconds=10):
    """How many are ready: fewer than asked for if these did not come within one moment."""
    deadline = time.monotonic() + seconds
    while (ready := daemon.metric("sandglass_pool_ready")) < number and time.monotonic() < deadline:
        time.sleep(0.1)
    return ready


def bytes_(bench):
    with bench.daemon("bytes") as daemon:
        folder = bench.folder / "plain"
        folder.mkdir()
        bench.engine("output", {"sandglass": daemon.url}, number=bench.sizes.output_bytes, folder=folder)
        shutil.rmtree(folder)


def requests(bench):
    with bench.daemon("requests") as daemon:
        subjects = bench.with_peers(["nginx"], {"sandglass": daemon.url})
        bench.engine("requests", subjects, seconds=bench.sizes.requests, slices=6)


def memory(bench):
    """What idle ones of the others cost; Sandglass is measured in `many`."""
    subjects = bench.with_peers(["bwrap", *SLOW_PEERS], {})
    for name, place in subjects.items():
        number = 20 if name in ("podman", "docker") else 100
        bench.engine("memory", {name: place}, number=number, suffix="_100")


def many(bench):
    """10, 100, 1,000, 5,000 that live: memory, the cost of one more, a restart, the end of all."""
    # Without the pool that follows a crowd: it would be counted as memory of those that were made.
    with bench.daemon("many", session={"idle_timeout": 0, "max_lifetime": 0}, pool={"peak": 0}) as daemon:
        before = available_kb()
        live = 0
        for number in bench.sizes.many:
            begin = time.monotonic()
            bench.engine("populate", {"sandglass": daemon.url}, suffix=f"_{number}", number=number - live)
            settle(daemon)
            bench.results.put(f"made_{number}", "sandglass", "per second", (number - live) / (time.monotonic() - begin))
            live = number
            put_memory(bench.results, daemon, number, before)
            bench.engine("growth", {"sandglass": daemon.url}, prefix="growth_", suffix=f"_{number}", seconds=bench.sizes.growth)
            if number == bench.sizes.restart:
                restart(bench.results, daemon, number)
                destroy_all(bench.results, daemon, number)
                live = 0
        if live:
            destroy_all(bench.results, daemon, live)


def settle(daemon, seconds=300):
    """Until no sandbox is being made: a session is answered before its sandbox is there."""
    deadline = time.monotonic() + seconds
    while daemon.metric('sandglass_sandboxes{state="creating"}'):
        if time.monotonic() > deadline:
            raise RuntimeError(f"sandboxes are still being made after {seconds} s")
        time.sleep(0.02)


def put_memory(results, daemon, number, before):
    core, launcher = daemon.resident_kb()
    sizes = [proportional_kb(session["sandbox"]["pid"]) for session in daemon.sessions(50) if session["sandbox"]["pid"]]
    sizes = [size for size in sizes if size is not None]
    results.put(f"memory_{number}", "sandglass", "kB", (before - available_kb()) / number)
    results.put(f"daemon_{number}", "sandglass", "kB", core)
    results.put(f"launcher_{number}", "sandglass", "kB", launcher)
    if sizes:
        results.put(f"init_{number}", "sandglass", "kB", statistics.median(sizes))


def restart(results, daemon, number):
    daemon.kill()
    begin = time.monotonic()
    daemon.start()
    results.put(f"restart_{number}", "sandglass", "s", time.monotonic() - begin)
    session = daemon.sessions(1)[0]["id"]
    daemon.api("POST", f"/sessions/{session}/executions", {"argv": ["/bin/true"]})
    results.put(f"restart_exec_{number}", "sandglass", "s", time.monotonic() - begin)


def destroy_all(results, daemon, number):
    begin = time.monotonic()
    gone = len(daemon.api("DELETE", "/sessions")["destroyed"])
    results.put(f"destroy_{number}", "sandglass", "s", time.monotonic() - begin)
    if gone < number:
        raise RuntimeError(f"{gone} of {number} sessions were there to be destroyed")


def python(bench):
    modules = ["json", "re", "asyncio"]
    if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        modules.append("numpy")
    with bench.daemon("python", python={"preload": modules}) as daemon:
        bench.engine("python", {"sandglass": daemon.url}, seconds=bench.sizes.python, at_most=50)


def mcp(bench):
    program = bench.build / "sandglass"
    if subprocess.run([program, "mcp", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        bench.results.notes["skipped mcp"] = "this program has no `mcp`"
        return
    with bench.daemon("mcp") as daemon:
        bench.engine("mcp", {"sandglass": daemon.url}, seconds=bench.sizes.mcp, program=program)


SECTIONS = {"latency": latency, "alone": alone, "containers": containers, "rate": rate, "burst": burst, "bytes": bytes_, "requests": requests,
            "memory": memory, "many": many, "python": python, "mcp": mcp}
