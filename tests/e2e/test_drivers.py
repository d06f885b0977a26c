# SPDX-License-Identifier: Apache-2.0
"""Drivers of contexts without a daemon: interrupts at any moment end the code and never the interpreter."""
import contextlib
import multiprocessing
import os
import pathlib
import random
import selectors
import shutil
import signal
import subprocess
import time

import pytest

from conftest import ROOT

DRIVERS = pathlib.Path(ROOT) / "src" / "core" / "run" / "drivers"
TOKEN = "0123456789abcdef0123456789abcdef"


def driver_text(name):
    text = (DRIVERS / name).read_text()
    return f"_sandglass_notebook = r'''{(DRIVERS / 'notebook.py').read_text()}'''\n{text}" if name == "python.py" else text


class Interpreter:
    """A driver as a context starts it: code goes in by its stdin, frames come out of its stdout."""

    def __init__(self, program, name, folder):
        script = folder / name
        script.write_text(driver_text(name))
        self.process = subprocess.Popen([program, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.output = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def send(self, code, number):
        self.process.stdin.write(f"{TOKEN} {number}\n{code}\0".encode())
        self.process.stdin.flush()

    def read_until(self, mark, seconds=30):
        """The output up to a mark; a driver that dies or says nothing in time fails the test."""
        deadline = time.monotonic() + seconds
        while mark not in self.output:
            assert self.selector.select(max(0, deadline - time.monotonic())), f"no {mark} in {self.output[-300:]}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"the driver ended with {self.process.wait()}: {self.output[-300:]}"
            self.output += data
        seen, _, self.output = self.output.partition(mark)
        return seen

    def interrupt(self):
        """As init does it: the interpreter and the programs that it has started."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def interpreter(tmp_path, request):
    program, name = request.param
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    driver = Interpreter(shutil.which(program) if program != "python3" else "/usr/bin/python3", name, tmp_path)
    yield driver
    driver.close()


def storm_of_interrupts(interpreter, seed):
    """Bursts of signals: those behind the first one meet what it has begun."""
    chance = random.Random(seed)
    while True:
        for _ in range(chance.randint(2, 30)):
            interpreter.interrupt()
            time.sleep(chance.choice([0, 0, 0, 1e-5, 3e-4]))
        time.sleep(chance.choice([0.002, 0.005]))


@pytest.mark.parametrize("interpreter", [("python3", "python.py")], indirect=True, ids=["python"])
def test_a_storm_of_interrupts_ends_each_run_of_python_and_never_the_interpreter(interpreter):
    interpreter.send("x = 5", 1)
    interpreter.read_until(b'"done"')
    storm = multiprocessing.get_context("fork").Process(target=storm_of_interrupts, args=(interpreter, 7), daemon=True)
    storm.start()
    try:
        for number in range(2, 302):
            interpreter.send("import time\nwhile True:\n    time.sleep(60)", number)
            interpreter.read_until(b'"done"')
    finally:
        storm.terminate()
        storm.join()
    interpreter.send("print('x is', x)", 999)
    assert b"x is 5" in interpreter.read_until(b'"done"')


@pytest.mark.parametrize("interpreter", [("python3", "python.py")], indirect=True, ids=["python"])
def test_an_interrupted_run_shows_the_frames_of_the_code_alone(interpreter):
    interpreter.send("import asyncio, time\ndef f():\n    print('it', 'sleeps')\n    time.sleep(60)\nf()", 1)
    interpreter.read_until(b"it sleeps")
    interpreter.interrupt()
    told = interpreter.read_until(b'"done"')
    assert b"KeyboardInterrupt" in told and b'"function": "f"' in told and b"python.py" not in told
    interpreter.send("async def g():\n    try:\n        print('it', 'waits')\n        await asyncio.sleep(60)\n"
                     "    except asyncio.CancelledError:\n        print('left', 'in order')\n        raise\nasyncio.run(g())", 2)
    interpreter.read_until(b"it waits")
    interpreter.interrupt()
    assert b"left in order" in interpreter.read_until(b'"done"')


# Interrupts itself before each command of the driver that follows the code, which a storm from outside would seldom meet.
BASH_THAT_INTERRUPTS_ITS_DRIVER = """
x=5
set -T
trap '[[ $BASH_COMMAND == *sandglass_* || $BASH_COMMAND == "trap : INT" || $BASH_COMMAND == local* ]] && kill -INT $$' DEBUG
"""


@pytest.mark.parametrize("interpreter", [("bash", "bash.sh")], indirect=True, ids=["bash"])
def test_an_interrupt_behind_the_code_does_not_swallow_its_end(interpreter):
    interpreter.send(BASH_THAT_INTERRUPTS_ITS_DRIVER, 1)
    interpreter.read_until(b'"done"')
    interpreter.send("trap - DEBUG; set +T; echo x is $x", 2)
    assert b"x is 5" in interpreter.read_until(b'"done"')


@pytest.mark.parametrize("interpreter", [("node", "node.js")], indirect=True, ids=["javascript"])
def test_interrupts_while_javascript_waits_leave_the_interpreter(interpreter):
    """Not in the moments when node itself exchanges its handlers: those are its own."""
    for number in range(1, 20):
        interpreter.send("globalThis.x = (globalThis.x || 0) + 1; await new Promise((done) => setTimeout(done, 1)); "
                         "console.log('it' + ' waits'); await new Promise((done) => setTimeout(done, 60000))", number)
        interpreter.read_until(b"it waits")
        for _ in range(5):
            interpreter.interrupt()
        interpreter.read_until(b'"done"')
    interpreter.send("x", 99)
    assert b'"19"' in interpreter.read_until(b'"done"')
