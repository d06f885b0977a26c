# SPDX-License-Identifier: Apache-2.0
"""Writes what is made from the OpenAPI document and from the source of the SDKs; with --check says what is not up to date.

    generate.py OPENAPI.JSON [--check] [--node PATH] [--modules DIRECTORY]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import error_reference
import python_reference
import python_types
import unasync

SDK = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = SDK / "python" / "src" / "sandglass"
DOCS = SDK.parent / "docs" / "reference"


def python_files(document):
    yield PACKAGE / "types.py", python_types.generate(document)
    for name in unasync.MODULES:
        yield PACKAGE / name, unasync.generate(name, (PACKAGE / "aio" / name).read_text())


def run_node(node, modules, script, *arguments):
    """A script of sdk/typescript with its development dependencies, which may be elsewhere."""
    folder = SDK / "typescript"
    with tempfile.TemporaryDirectory() as work:
        for name in ("scripts", "src", "package.json", "tsconfig.json"):
            os.symlink(folder / name, f"{work}/{name}")
        os.symlink(modules, f"{work}/node_modules")
        options = ["--preserve-symlinks", "--preserve-symlinks-main"]
        return subprocess.run([node, *options, f"{work}/scripts/{script}", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def typescript_files(source, node, modules):
    with tempfile.NamedTemporaryFile("r", suffix=".ts") as schema:
        run_node(node, modules, "types.mjs", source, schema.name)
        yield SDK / "typescript" / "src" / "schema.ts", pathlib.Path(schema.name).read_text()
    yield DOCS / "sdk-typescript.md", run_node(node, modules, "reference.mjs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--node", default="node")
    parser.add_argument("--modules", type=pathlib.Path, help="node_modules of sdk/typescript; without it its files are left alone")
    options = parser.parse_args()
    stale = []

    def put(path, text):
        if path.exists() and path.read_text() == text:
            return
        stale.append(str(path.relative_to(SDK.parent)))
        if not options.check:
            path.write_text(text)

    for path, text in python_files(json.loads(options.document.read_text())):
        put(path, text)
    put(DOCS / "errors.md", error_reference.generate(json.loads(options.document.read_text())))
    put(DOCS / "sdk-python.md", python_reference.generate(PACKAGE))
    if options.modules:
        for path, text in typescript_files(options.document.resolve(), options.node, options.modules.resolve()):
            put(path, text)
    print("\n".join(stale))
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
