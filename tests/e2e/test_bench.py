# SPDX-License-Identifier: Apache-2.0
"""sandglass bench: that it measures and cleans up, not how fast anything is."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import SANDGLASS

ROWS = {"floor", "first", "exec_true", "python_plain", "exec_python", "destroy", "burst", "rate"}


def test_bench_measures_a_running_daemon_and_leaves_nothing(daemon):
    mine = daemon.session()
    result = daemon.cli("bench", "--duration", "300ms", "--json", timeout=120)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert {row["row"] for row in rows} == ROWS
    assert all(row["p50"] > 0 for row in rows if "error" not in row)
    assert [session["id"] for session in daemon.api("GET", "/sessions").json["sessions"]] == [mine]


def test_bench_needs_no_daemon(work):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDGLASS_")}
    environment["XDG_RUNTIME_DIR"] = environment["SANDGLASS_RUNTIME_DIR"] = str(work / "nobody")
    environment["TMPDIR"] = str(work)
    result = subprocess.run([SANDGLASS, "bench", "--private", "--duration", "200ms"], capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert all(len(line) == 5 for line in lines) and lines[0][0].endswith("(F0)")


@pytest.mark.skipif(os.geteuid() != 0, reason="the walls alone are put up by root")
def test_the_walls_alone_stand_and_leave_nothing(work):
    build = pathlib.Path(SANDGLASS).parent / "bench"
    if not (build / "bench_engine").exists():
        pytest.skip("an installed program is tested, without what measures it")
    tools = work / "tools"
    tools.mkdir()
    for name in ("true", "init"):
        shutil.copy(build / f"bench_tiny_{name}", tools / name)
    command = [build / "bench_engine", "rate", f"tools={tools}", "widths=2", "seconds=0.3", "plain", "bare=4"]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = engine.communicate(timeout=60)
    rates = {row["subject"]: row.get("p50", row.get("error")) for row in json.loads(output)["rows"]}
    assert errors == "" and set(rates) == {"plain", "bare"} and all(rate > 0 for rate in rates.values()), rates
    assert not list(pathlib.Path("/sys/fs/cgroup").glob(f"*/sandglass-bare-{engine.pid}-*"))
    assert sorted(os.listdir(tools)) == ["init", "true"]


@pytest.mark.parametrize("arguments", [["extra"], ["--duration", "long"], ["--duration", "1ms"], ["--private"]])
def test_bench_says_what_is_wrong(daemon, arguments):
    result = daemon.cli("bench", *arguments)
    assert result.returncode in (1, 2) and result.stdout == "" and result.stderr.startswith("sandglass: ")


def test_bench_without_the_daemon_it_was_told_of_fails(work):
    result = subprocess.run([SANDGLASS, "bench", "--url", f"unix:{work}/nobody"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "connect" in result.stderr
