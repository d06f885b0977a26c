# SPDX-License-Identifier: Apache-2.0
"""The table: what each row is called, what is aimed at, and whether it was met."""
import dataclasses
import typing

PEERS = ["plain", "bare", "bwrap", "crun", "runc", "podman", "docker", "nginx"]


@dataclasses.dataclass
class Row:
    """`aim` is the number to reach, for the ratio named in `of`; lower is better unless `more`."""
    name: str
    title: str
    aim: typing.Optional[float] = None
    of: str = "floor"  # "floor": in F0; a subject: against it in the same row; "": as it is; a row with a dot: row.subject
    more: bool = False
    scale: float = 1.0  # what the ratio is multiplied with before it is compared
    field: str = "p50"


ROWS = [
    Row("floor", "posix_spawn + wait of /bin/true (F0)"),
    Row("sync", "write + fdatasync of 4 kB, on the disk of the records", of=""),
    Row("cold", "cold: create → /bin/true → destroyed", 3.0),
    Row("warm", "from the pool: create → first /bin/true", 1.8),
    Row("exec_true", "exec /bin/true in a live sandbox", 1.4),
    Row("exec_true_p99", "its p99 against its median, among all that is measured", of="exec_true.sandglass", field="p99"),
    Row("alone_exec_true_p99", "… with nothing else going on", 3.0, of="alone_exec_true.sandglass", field="p99"),
    Row("alone_floor_p99", "… that of F0", of="alone_floor.plain", field="p99"),
    Row("exec_static", "exec a static program that ends at once"),
    Row("exec_python", "exec python3 -c pass"),
    Row("destroy", "destroy, until everything is dead", 0.5),
    Row("destroy_full", "destroy with 1,000 files in it", 0.5),
    Row("rate_1", "create + exec + destroy, 1 in flight", of="plain", more=True),
    Row("rate_4", "… 4 in flight", of="plain", more=True),
    Row("rate_16", "… 16 in flight", 0.35, of="plain", more=True),
    Row("rate_16_bwrap", "… against bubblewrap", 5.0, of="rate_16.bwrap", more=True),
    Row("rate_16_docker", "… against Docker", 200.0, of="rate_16.docker", more=True),
    Row("rate_64", "… 64 in flight", 0.35, of="plain", more=True),
    Row("burst", "100 at once for the second time, each to its first result: median"),
    Row("burst_p95", "… p95", of="", field="p95"),
    Row("burst_p99", "… p99, against a single one", 25.0, of="warm.sandglass", field="p99"),
    Row("burst_min", "… the first", of="", field="min"),
    Row("burst_max", "… the last", of="", field="max"),
    Row("burst_new_p99", "… p99 of the first time, against a single one", of="warm.sandglass", field="p99"),
    Row("python_stdlib", "warm Python, new session: json, re, asyncio", 1 / 15, of="plain"),
    Row("python_numpy", "warm Python, new session: numpy", 1 / 15, of="plain"),
    Row("output", "output of a program to a client", 0.6, of="plain", more=True),
    Row("upload", "upload of a file", of="plain", more=True),
    Row("download", "download of a file", of="plain", more=True),
    Row("requests", "GET /sessions/{id}", 0.5, of="nginx", more=True),
    Row("mcp_first", "MCP on stdio: start → first tool result"),
    Row("mcp_call", "MCP on stdio: one more call"),
    Row("memory_100", "memory of an idle sandbox, 100 of them", of=""),
    Row("memory_1000", "… 1,000 of them", 500, of=""),
    Row("memory_5000", "… 5,000 of them", 1000, of=""),
    Row("init_1000", "its init alone (Pss)", 32, of=""),
    Row("daemon_1000", "the daemon with 1,000 (RSS)", of=""),
    Row("daemon_5000", "the daemon with 5,000 (RSS)", 40 * 1024, of=""),
    Row("made_1000", "900 idle ones made, 8 callers", of=""),
    Row("made_5000", "5,000 idle ones made, 8 callers", of=""),
    Row("destroy_1000", "1,000 idle ones destroyed", 1.0, of=""),
    Row("restart_1000", "daemon killed with 1,000: serves again after", of=""),
    Row("restart_exec_1000", "… and has run a program in one after", of=""),
    Row("growth_first_10", "create + first with 10 live", of="growth_floor_10.plain"),
    Row("growth_first_1000", "… with 1,000", 1.3, of="growth_first_10.sandglass"),
    Row("growth_first_5000", "… with 5,000", 1.3, of="growth_first_10.sandglass"),
    Row("growth_exec_10", "exec with 10 live", of="growth_floor_10.plain"),
    Row("growth_exec_1000", "… with 1,000", 1.3, of="growth_exec_10.sandglass"),
    Row("growth_exec_5000", "… with 5,000", 1.3, of="growth_exec_10.sandglass"),
]

PLAIN = ("floor", "sync", "alone_floor")  # not of Sandglass at all
SUFFIXES = ("_p99", "_p95", "_min", "_max", "_bwrap", "_docker")


def cell_of(rows, row, subject="sandglass"):
    """The measurement behind a row: rows that are told in several ways share one."""
    name = row.name
    if name not in rows:
        name = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
    cell = rows.get(name, {}).get(subject if name not in PLAIN else "plain")
    return cell if cell and "error" not in cell else None


def reference(rows, row):
    """What the row is compared with, as a number; None where it was not measured."""
    if row.of == "":
        return 1.0
    name, subject = ("floor", "plain") if row.of == "floor" else row.of.split(".") if "." in row.of else (row.name, row.of)
    cell = rows.get(name, {}).get(subject)
    return cell["p50"] if cell and "error" not in cell else None


def ratio(rows, row):
    cell, base = cell_of(rows, row), reference(rows, row)
    if not cell or not base or row.field not in cell:
        return None
    # Growth is told against the floor of its own moment, so that a machine that has become slower does not count.
    if row.name.startswith("growth_") and row.of.startswith("growth_") and "floor" not in row.of:
        number = row.name.rsplit("_", 1)[1]
        floors = [rows.get(f"growth_floor_{n}", {}).get("plain", {}).get("p50") for n in (number, "10")]
        if all(floors):
            return cell[row.field] / base * floors[1] / floors[0]
    return cell[row.field] / base


def judge(rows):
    """[{name, title, value, aim, more, met}] of the rows that have an aim and were measured."""
    judged = []
    for row in ROWS:
        value = ratio(rows, row)
        if row.aim is not None and value is not None:
            met = value >= row.aim if row.more else value <= row.aim
            judged.append({"name": row.name, "title": row.title, "value": round(value, 4), "aim": round(row.aim, 4), "more": row.more,
                           "met": met})
    return judged


# --- as text ---------------------------------------------------------------------------------------

def human(value, unit):
    if unit == "us":
        return f"{value / 1e6:.2f} s" if value >= 1e6 else f"{value / 1e3:.1f} ms" if value >= 1e4 else f"{value / 1e3:.2f} ms"
    if unit == "kB" and value <= 0:
        return "noise"  # something else gave memory back meanwhile
    if unit == "kB":
        return f"{value / 1024:.1f} MB" if value >= 2048 else f"{value:.0f} kB"
    if unit == "MB/s":
        return f"{value:,.0f} MB/s"
    if unit == "per second":
        return f"{value:,.0f}/s" if value >= 10 else f"{value:.1f}/s"
    return f"{value:.2f} {unit}"


def human_ratio(row, value):
    if value is None:
        return ""
    if row.of == "" or row.name == "floor":
        return ""
    name = "F0" if row.of == "floor" or "floor" in row.of else "×"
    if value < 0.1:
        return f"1/{1 / value:.0f} {name}" if value else ""
    return f"{value:,.0f} {name}" if value >= 100 else f"{value:.2f} {name}"


def human_aim(row):
    if row.aim is None:
        return ""
    sign = "≥" if row.more else "≤"
    if row.of == "":
        unit = {"memory": "kB", "init": "kB", "daemon": "kB"}.get(row.name.split("_")[0], "s")
        return f"{sign} {human(row.aim, unit)}"
    if row.aim < 0.1:
        return f"{sign} 1/{1 / row.aim:.0f}"
    return f"{sign} {row.aim:g}" + (" F0" if row.of == "floor" else " ×")


def lines_of(rows):
    verdicts = {entry["name"]: "met" if entry["met"] else "missed" for entry in judge(rows)}
    for row in ROWS:
        cell = cell_of(rows, row)
        shared = row.name not in rows  # a row that is another one seen differently: its peers are shown there
        peers = []
        for peer in PEERS:
            other = None if shared or row.name in PLAIN else cell_of(rows, row, peer)
            peers.append(human(other["p50"], other["unit"]) if other else "")
        if not cell or row.field not in cell:
            if not any(peers):
                continue
            yield [row.title, "", "", "", *peers, human_aim(row), ""]
            continue
        p99 = human(cell["p99"], cell["unit"]) if cell["unit"] == "us" and row.field == "p50" and cell["count"] >= 100 else ""
        yield [row.title, human(cell[row.field], cell["unit"]), human_ratio(row, ratio(rows, row)), p99, *peers, human_aim(row),
               verdicts.get(row.name, "")]


def text(results):
    rows = results["rows"]
    table = [["", "sandglass", "ratio", "p99", *PEERS, "aim", ""], *lines_of(rows)]
    used = [i for i in range(len(table[0])) if i < 2 or any(line[i] for line in table[1:])]
    widths = [max(len(line[i]) for line in table) for i in used]
    out = []
    for line in table:
        cells = [line[i].ljust(width) if at == 0 else line[i].rjust(width) for at, (i, width) in enumerate(zip(used, widths))]
        out.append("  ".join(cells).rstrip())
    out.append("")
    for name, reason in results.get("missing", {}).items():
        out.append(f"not measured: {name}: {reason}")
    for row, subjects in rows.items():
        out += [f"failed: {row}: {subject}: {cell['error']}" for subject, cell in subjects.items() if "error" in cell]
    judged = judge(rows)
    out.append(f"{sum(entry['met'] for entry in judged)} of {len(judged)} aims met")
    return "\n".join(out)
