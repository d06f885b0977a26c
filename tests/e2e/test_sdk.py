# SPDX-License-Identifier: Apache-2.0
"""Both SDKs as packages: generated parts are up to date, types catch mistakes, the examples print what they say."""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from typescript import Toolchain, installed

PYTHON = ROOT / "sdk" / "python"
EXAMPLES = {language: sorted((ROOT / "examples" / language).glob(f"*.{ending}"))
            for language, ending in (("python", "py"), ("typescript", "ts"))}
FLAVORS = [{"name": "cpu-basic"}, {"name": "big", "price_per_hour": 1, "needs_approval": True}]

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="Node 22 comes as a package for x86_64 only")


@pytest.fixture(scope="module")
def typescript():
    toolchain = Toolchain()
    yield toolchain
    toolchain.remove()


@pytest.fixture
def server(make_daemon):
    return make_daemon(backend="direct", settings={"flavors": FLAVORS})


def document_of(daemon, directory):
    path = directory / "openapi.json"
    path.write_bytes(daemon.request("GET", "/openapi.json").body)
    return path


def expected(path):
    """The lines behind "prints:" at the end of an example."""
    mark = "//" if path.suffix == ".ts" else "#"
    text = path.read_text().split(f"{mark} prints:\n")[1]
    return "".join(line[len(mark) + 1:] + "\n" for line in text.splitlines())


PIECE = re.compile(r"(stdout|stderr) (\d+) (?:b'(\w+)'|(\w+) (\d+))")  # as 04_streaming prints it


def joined(text):
    """What an example prints, with the pieces of a stream as one: a busy machine may deliver two of them together."""
    lines = []
    for line in text.replace("told: ", "").splitlines():
        if piece := PIECE.fullmatch(line):
            stream, offset, data = piece[1], int(piece[2]), piece[3] or piece[4]
            assert piece[5] in (None, str(len(data))), line
            if lines and isinstance(lines[-1], tuple) and lines[-1][0] == stream and lines[-1][1] + len(lines[-1][2]) == offset:
                offset, data = lines[-1][1], lines.pop()[2] + data
            line = (stream, offset, data)
        lines.append(line)
    return lines


# --- the document ----------------------------------------------------------------------------------


@on_x86
def test_the_document_is_lint_free(server, typescript, tmp_path):
    path = document_of(server, tmp_path)
    done = typescript.run(typescript.modules / "@redocly/cli/bin/cli.js", "lint", path, "--format", "json", cwd=tmp_path)
    problems = json.loads(done.stdout[done.stdout.index("{"):])["problems"]
    assert not problems, json.dumps(problems[:5], indent=1)


@on_x86
def test_a_client_generated_from_the_document_type_checks(server, typescript, tmp_path):
    done = typescript.run(typescript.modules / "openapi-typescript/bin/cli.js", document_of(server, tmp_path), "-o", tmp_path / "document.ts")
    assert done.returncode == 0, done.stderr
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "use.mts").write_text((ROOT / "tests/sdk/generated.mts").read_text())
    os.symlink(typescript.modules, tmp_path / "node_modules")
    checked = typescript.compile(tmp_path / "use.mts")
    assert checked.returncode == 0, checked.stdout


@on_x86
def test_generated_parts_of_the_sdks_are_up_to_date(server, typescript, tmp_path):
    done = subprocess.run(["/usr/bin/python3", ROOT / "sdk/tools/generate.py", document_of(server, tmp_path), "--check", "--node", typescript.node,
                           "--modules", typescript.modules], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"run scripts/sdk: {done.stdout}{done.stderr}"


# --- TypeScript ------------------------------------------------------------------------------------


@on_x86
def test_the_typescript_client_with_a_live_daemon(server, typescript):
    source = typescript.directory / "client.mts"
    source.write_text((ROOT / "tests/sdk/client.mts").read_text())
    checked = typescript.compile(source, emit=typescript.directory)
    assert checked.returncode == 0, checked.stdout
    done = typescript.run(typescript.directory / "client.mjs", environment={"SANDGLASS_URL": server.url})
    assert done.stdout.endswith("ok\n"), done.stdout[-2000:] + done.stderr[-4000:]


@on_x86
def test_the_typescript_package_is_for_both_kinds_of_modules_and_needs_no_other(typescript):
    package = json.loads((typescript.package / "package.json").read_text())
    assert not package.get("dependencies")
    for kind, code in (("mjs", 'import { Client } from "sandglass"'), ("cjs", 'const { Client } = require("sandglass")')):
        (typescript.directory / f"use.{kind}").write_text(f"{code}; console.log(typeof Client)")
        assert typescript.run(typescript.directory / f"use.{kind}").stdout == "function\n"
    use = 'import { Client } from "sandglass"; new Client().session({ memory: "1g" });\n'
    for kind in ("mts", "cts"):  # types of both, and they catch mistakes
        (typescript.directory / f"typed.{kind}").write_text(use + use.split(";")[1].replace("memory", "memroy"))
    found = typescript.compile(typescript.directory / "typed.mts", typescript.directory / "typed.cts").stdout
    assert [found.count(f"typed.{kind}(2") for kind in ("mts", "cts")] == [1, 1] == [found.count(f"typed.{kind}") for kind in ("mts", "cts")], found


@on_x86
def test_examples_in_typescript_print_what_they_say(server, typescript):
    assert len(EXAMPLES["typescript"]) == 10
    for path in EXAMPLES["typescript"]:
        (typescript.directory / path.name).write_text(path.read_text())
    checked = typescript.compile(*(typescript.directory / path.name for path in EXAMPLES["typescript"]), emit=typescript.directory / "out")
    assert checked.returncode == 0, checked.stdout
    for path in EXAMPLES["typescript"]:
        done = typescript.run(typescript.directory / "out" / f"{path.stem}.js", environment={"SANDGLASS_URL": server.url})
        assert joined(done.stdout) == joined(expected(path)), f"{path.name}: {done.stdout}{done.stderr[-2000:]}"


# --- Python ----------------------------------------------------------------------------------------


def test_examples_in_python_print_what_they_say(server):
    assert len(EXAMPLES["python"]) == 10
    for path in EXAMPLES["python"]:
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(PYTHON / "src"), "SANDGLASS_URL": server.url})
        assert joined(done.stdout) == joined(expected(path)), f"{path.name}: {done.stdout}{done.stderr[-2000:]}"


def mypy(*files, cwd):
    where = installed(ROOT / "tests" / "sdk" / "install")
    return subprocess.run(["/usr/bin/python3", "-m", "mypy", "--strict", "--allow-untyped-decorators", "--cache-dir", cwd / "cache", *files], capture_output=True, text=True,
                          timeout=300, cwd=cwd, env={**os.environ, "PYTHONPATH": str(where), "MYPYPATH": str(PYTHON / "src")})


def test_the_types_of_the_python_client_hold_and_catch_mistakes(tmp_path):
    clean = mypy(PYTHON / "src" / "sandglass", *EXAMPLES["python"], cwd=tmp_path)
    assert clean.returncode == 0, clean.stdout
    mistakes = {"Client().session(memroy='1g')": "memroy", "Client().session(memory=1.5)": "memory",
                "Client().session().run('true', timout=3)": "timout", "Client().session().update(lables={})": "lables",
                "Client().session().raw['lables']": "lables", "Client().flavors()[0]['prize']": "prize"}
    (tmp_path / "wrong.py").write_text("from sandglass import Client\n" + "".join(f"{line}\n" for line in mistakes))
    found = mypy(tmp_path / "wrong.py", cwd=tmp_path).stdout
    for number, word in enumerate(mistakes.values(), 2):
        assert re.search(rf"wrong\.py:{number}: error: .*{word}", found), f"{word}: {found}"


def test_wheel_and_sdist_install_without_a_network(tmp_path):
    build = "import sys; sys.path.insert(0, '.'); import build_backend as b; print(b.build_wheel(sys.argv[1]), b.build_sdist(sys.argv[1]))"
    names = subprocess.run([sys.executable, "-c", build, tmp_path], cwd=PYTHON, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        target = tmp_path / pathlib.Path(name).stem
        subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-warn-script-location", "--target", target, tmp_path / name],
                       check=True, capture_output=True, timeout=120, env={name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"})
        done = subprocess.run([sys.executable, "-c", "import sandglass; print(sandglass.__file__)"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(target)}, check=True)
        assert str(target) in done.stdout and (target / "sandglass" / "py.typed").exists()
    assert not list(PYTHON.glob("build")) and not list((PYTHON / "src").glob("*.egg-info"))
