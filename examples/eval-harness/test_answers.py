# SPDX-License-Identifier: Apache-2.0
"""Untrusted answers, each checked in a sandbox of its own.

    pip install ./sdk/python pytest pytest-xdist
    pytest -n 4 --sandglass-private examples/eval-harness
"""
import pytest

ANSWERS = {
    "right": "def add(a, b):\n    return a + b\n",
    "wrong": "def add(a, b):\n    return a - b\n",
    "hostile": "import os\nos.kill(os.getppid(), 9)\n",
    "endless": "while True:\n    pass\n",
}

CHECK = "from answer import add\nassert add(2, 3) == 5\nprint('passed')\n"


@pytest.mark.sandbox(memory_bytes="256m", network="none")
@pytest.mark.parametrize("name", ANSWERS)
def test_answer(sandbox, name, record_property):
    sandbox.files.write("answer.py", ANSWERS[name])
    sandbox.files.write("check.py", CHECK)
    result = sandbox.run(["python3", "check.py"], timeout=2)
    record_property("seconds", result.duration)
    assert (result.stdout == "passed\n") == (name == "right")
