# SPDX-License-Identifier: Apache-2.0
"""What CI looks at: ratios that are off by a factor, never times. A machine that is busy with other tests is slow at
everything alike; what is wrong by several times is wrong."""
from . import table

SECTIONS = ["latency", "rate", "burst", "bytes", "many"]
FACTOR = 5.0

# Those that depend on what else the machine does: a tail, a burst on two cores, the end of
# something whose parts the kernel takes away in its own time.
LOOSE = {"burst_p99": 20.0, "destroy": 30.0, "destroy_full": 30.0}

# Their records are on the disk before the answer: what the disk needs for so many of them is no fault of ours.
DURABLE = {"cold": 6, "warm": 3, "destroy": 3, "destroy_full": 3}
DISK_BOUND = {"rate_16": 50.0, "rate_64": 50.0}


def off(entry, rows):
    factor = LOOSE.get(entry["name"]) or DISK_BOUND.get(entry["name"], FACTOR)
    aim = entry["aim"]
    if entry["name"] in DURABLE and "sync" in rows:
        aim += DURABLE[entry["name"]] * rows["sync"]["plain"]["p50"] / rows["floor"]["plain"]["p50"]
    return entry["value"] * factor < aim if entry["more"] else entry["value"] > aim * factor


def complain(results):
    """Says what is off by a factor; the exit code."""
    wrong = [entry for entry in table.judge(results["rows"]) if off(entry, results["rows"])]
    for entry in wrong:
        print(f"OFF BY A FACTOR: {entry['title']}: {entry['value']:g}, aimed at {entry['aim']:g}")
    failed = [f"{row}: {subject}: {cell['error']}" for row, subjects in results["rows"].items() for subject, cell in subjects.items()
              if "error" in cell] + [str(note) for name, note in results["notes"].items() if name.startswith("failed")]
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if wrong or failed else 0
