# SPDX-License-Identifier: Apache-2.0
"""scripts/bench: measures Sandglass and what else is installed, and shows it as one table. See README.md beside this file."""
import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from lib import check, measure, peers, picture, table  # noqa: E402

FULL = types.SimpleNamespace(latency=20, alone=5, containers=25, rate=2.0, burst=100, output_bytes=1 << 30, requests=6, many=[10, 100, 1000, 5000],
                             restart=1000, growth=4, python=15, mcp=5, widths="1,4,16,64", slow_widths="1,4,16")
QUICK = types.SimpleNamespace(latency=6, alone=3, containers=5, rate=1.0, burst=50, output_bytes=256 << 20, requests=2, many=[10, 100], restart=100,
                              growth=1, python=4, mcp=2, widths="1,4,16,64", slow_widths="1,16")
CHECK = types.SimpleNamespace(latency=5, rate=0.6, burst=50, output_bytes=128 << 20, many=[10, 50], restart=50, growth=0.5, widths="1,16")


def options():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install the peers that are missing, from Debian")
    parser.add_argument("--json", metavar="FILE", help="write the results there ('-' is stdout, instead of the table)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes: under a minute")
    parser.add_argument("--no-peers", action="store_true", help="only Sandglass and plain processes")
    parser.add_argument("--only", metavar="SECTION", action="append", choices=list(measure.SECTIONS),
                        help="only this section; may be repeated: " + ", ".join(measure.SECTIONS))
    parser.add_argument("--from", metavar="FILE", nargs="+", dest="files", help="measure nothing: join these results")
    parser.add_argument("--picture", metavar="FILE", help="draw the results there, as SVG")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio is off by a factor; for CI")
    parser.add_argument("--build", default=os.environ.get("SANDGLASS_BUILD", HERE.parent / "build"), help="the build directory")
    return parser.parse_args()


def machine():
    memory = next(line.split()[1] for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {"cpus": os.cpu_count(), "memory_gb": round(int(memory) / 1048576, 1), "kernel": platform.release(),
            "root": os.geteuid() == 0}


def run(arguments):
    sizes = CHECK if arguments.check else QUICK if arguments.quick else FULL
    sections = arguments.only or (check.SECTIONS if arguments.check else list(measure.SECTIONS))
    with measure.Bench(arguments.build, sizes, not (arguments.no_peers or arguments.check)) as bench:
        for name in sections:
            begin = time.monotonic()
            print(f"measuring {name} …", end="", file=sys.stderr, flush=True)
            try:
                measure.SECTIONS[name](bench)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                bench.results.notes[f"failed {name}"] = str(error)[-500:]
            print(f" {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        return {"format": 1, "machine": machine(), "quick": sizes is not FULL, "missing": bench.peers.failed if bench.use_peers else {},
                "notes": bench.results.notes, "rows": bench.results.rows}


def join(files):
    joined = None
    for file in files:
        one = json.loads(pathlib.Path(file).read_text())
        if joined is None:
            joined = one
            continue
        for name, subjects in one["rows"].items():
            # What was measured twice, as the floor of each part, is kept as it was first.
            joined["rows"][name] = {**subjects, **joined["rows"].get(name, {})}
        joined["missing"].update(one["missing"])
        joined["notes"].update(one["notes"])
    return joined


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave nothing behind
    arguments = options()
    results = join(arguments.files) if arguments.files else run(arguments)
    results["targets"] = table.judge(results["rows"])
    if arguments.json == "-":
        print(json.dumps(results, indent=1))
    else:
        print(table.text(results))
        for name, note in results["notes"].items():
            if name.startswith(("failed", "skipped")):
                print(f"{name}: {note}")
    if arguments.json and arguments.json != "-":
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    if arguments.picture:
        pathlib.Path(arguments.picture).write_text(picture.draw(results))
    return check.complain(results) if arguments.check else 0


sys.exit(main())
