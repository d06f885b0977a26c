# SPDX-License-Identifier: Apache-2.0
"""What notebooks add to Python, in contexts: lines of shell, magics, IPython.display."""
import base64

import pytest

from conftest import WALLS

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")


@pytest.fixture
def backend():
    return WALLS


@pytest.fixture
def run(daemon):
    session = daemon.session()
    context = daemon.api("POST", f"/sessions/{session}/contexts", {}, expect=201).json["id"]
    return lambda code: daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code}, expect=200).json


def shown(result):
    assert result["state"] == "ok", result["error"]
    return [item["data"] for item in result["results"]]


def test_lines_of_shell(run):
    result = run("word = 'hello'\n!echo one; echo $word {word.upper()} $HOME\nprint('three')")
    assert (result["state"], result["stdout"]) == ("ok", "one\nhello HELLO /home/user\nthree\n")
    result = run("lines = !printf 'a\\nb\\n'\nfor line in lines:\n    !echo line {line}\nlines, _exit_code")
    assert result["stdout"] == "line a\nline b\n" and shown(result)[0]["text/plain"] == "(['a', 'b'], 0)"
    assert shown(run("!exit 3\n_exit_code"))[0]["text/plain"] == "3"


def test_what_only_looks_like_an_idiom_stays_python(run):
    assert run("print('''\n!no\n%cd nowhere\n''')")["stdout"] == "\n!no\n%cd nowhere\n\n"
    result = run("!echo shell\ntext = '''\n!no\n%cd nowhere\n'''\nx = (7\n%4)\nprint(text, x)")
    assert (result["state"], result["stdout"]) == ("ok", "shell\n\n!no\n%cd nowhere\n 3\n"), result["error"]
    wrong = run("!echo shell\nif")
    assert (wrong["error"]["name"], wrong["error"]["frames"][0]["line"]) == ("SyntaxError", 2)


def test_magics(run):
    assert run("%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\nprint(1)")["stdout"] == "1\n"
    assert run("%cd /tmp")["stdout"] == "/tmp\n" and shown(run("%pwd"))[0]["text/plain"] == "'/tmp'"
    assert run("%cd -")["stdout"] == "/home/user\n"
    assert run("%env COLOUR=red\n!echo $COLOUR\nimport os\nprint(os.environ['COLOUR'])")["stdout"].endswith("red\nred\n")
    assert run("%%writefile a.txt\n%not a magic\n")["state"] == "ok"
    assert run("%%bash\ncat a.txt\nx=4; echo $x")["stdout"] == "%not a magic\n4\n"
    timed = run("%time x = sum(range(10))")
    assert "Wall time" in timed["stdout"] and shown(run("x"))[0]["text/plain"] == "45"
    assert "per loop" in run("%timeit -n 1 1 + 1")["stdout"]
    assert "Return the number of items" in run("len?")["stdout"]


def test_an_unknown_magic_says_what_there_is(run):
    for code in ("%load_ext autoreload", "%%cython\nx"):
        error = run(code)["error"]
        assert error["name"] == "UsageError" and "is not available" in error["value"] and "%pip" in error["value"]
        assert "!COMMAND" in error["traceback"] and "<notebook>" not in error["traceback"]


def test_displays_without_ipython(run):
    result = run("""
from IPython.display import display, HTML, Markdown, JSON, Image, clear_output
import IPython, IPython.display as shown
display(HTML("<b>x</b>"), Markdown("*y*"))
clear_output(wait=True)
display(JSON({"a": [1]}))
open("p.png", "wb").write(__import__("base64").b64decode(%r))
shown.display(Image("p.png"), Image(url="https://example.org/p.png"))
handle = display("z", display_id=True)
HTML("last")
""" % base64.b64encode(PNG).decode())
    data = shown(result)
    assert [next(kind for kind in item if kind != "text/plain") for item in data if len(item) > 1] == [
        "text/html", "text/markdown", "application/json", "image/png", "text/html", "text/html"]
    assert data[2]["application/json"] == {"a": [1]} and base64.b64decode(data[3]["image/png"]) == PNG
    assert data[-1]["text/html"] == "last" and data[5]["text/plain"] == "'z'"


def test_displays_of_a_real_ipython_come_as_results(run):
    """One that was installed: without a shell of its own its display() would print."""
    result = run("""
import os, sys
os.makedirs("lib/IPython/core")
open("lib/IPython/__init__.py", "w").close()
open("lib/IPython/core/__init__.py", "w").close()
open("lib/IPython/core/display_functions.py", "w").write("def display(*values): print(values)\\n")
open("lib/IPython/display.py", "w").write("from IPython.core.display_functions import *\\n")
sys.path.insert(0, "lib")
from IPython.display import display
display(5)
""")
    assert (result["stdout"], shown(result)) == ("", [{"text/plain": "5"}])
