# SPDX-License-Identifier: Apache-2.0
"""A Chromium that is driven by playwright-core (tests/web), for the tests of the dashboard."""
import json
import os
import shutil
import subprocess

from conftest import ROOT

FOLDER = ROOT / "tests" / "web"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def missing():
    """Why there is no browser to test with; None if there is."""
    if not CHROMIUM:
        return "chromium is not installed"
    return None if shutil.which("node") and shutil.which("npm") else "Node.js is not installed"


class Driver:
    def __init__(self):
        done = subprocess.run([FOLDER / "install"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
        assert done.returncode == 0, f"the packages could not be installed:\n{done.stderr[-3000:]}"
        self.modules = done.stdout.strip()
        self.process = subprocess.Popen(["node", FOLDER / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "NODE_MODULES": self.modules, "CHROMIUM": CHROMIUM})
        self.number = 0
        self.version = self.answer(0)

    def answer(self, number):
        line = self.process.stdout.readline()
        assert line, "the driver has ended"
        answer = json.loads(line)
        assert answer["id"] == number
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def run(self, code, **args):
        """The body of an async function in Node: `page` is the page "main", or the one that `page=` names."""
        self.number += 1
        self.process.stdin.write(json.dumps({"id": self.number, "code": code, "args": args}) + "\n")
        self.process.stdin.flush()
        return self.answer(self.number)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
