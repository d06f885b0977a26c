# SPDX-License-Identifier: Apache-2.0
"""pip inside of a sandbox: it installs as user and as root, interpreters that wait see it, and without a network the answer says what is missing."""
import io
import os
import shlex
import zipfile

import pytest

from conftest import ROOT, WALLS
from mcp_client import Http

NAME = "sgtool-1.0-py3-none-any.whl"


@pytest.fixture
def backend():
    return WALLS


@pytest.fixture
def session(daemon):
    """A session with a wheel in it: a module and a program."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("sgtool.py", "def main():\n    print('this is sgtool')\n")
        wheel.writestr("sgtool-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sgtool\nVersion: 1.0\n")
        wheel.writestr("sgtool-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("sgtool-1.0.dist-info/entry_points.txt", "[console_scripts]\nsgtool = sgtool:main\n")
        wheel.writestr("sgtool-1.0.dist-info/RECORD", "")
    session = daemon.session()
    daemon.api("PUT", f"/sessions/{session}/files?path=/tmp/{NAME}", content.getvalue())
    return session


def execute(daemon, session, **body):
    """pip takes its time, above all when it tries again without a network."""
    return daemon.api("POST", f"/sessions/{session}/executions", body, expect=201, timeout=180).json


def context_of(daemon, session, **options):
    context = daemon.api("POST", f"/sessions/{session}/contexts", options, expect=201).json["id"]
    return lambda code: daemon.api("POST", f"/sessions/{session}/contexts/{context}/run", {"code": code}, expect=200, timeout=180).json


def run_code(daemon, session, code):
    return execute(daemon, session, code=code)


@pytest.mark.parametrize("user", ["user", "root"])
def test_pip_install_works_as_it_is_typed(daemon, session, user):
    if user == "root" and os.geteuid() != 0:
        pytest.skip("a sandbox has a root of its own only where the daemon has root")
    done = execute(daemon, session, command=f"pip install --no-index /tmp/{NAME} && sgtool && python3 -c 'import sgtool'", user=user)
    assert done["exit_code"] == 0, done["stdout"] + done["stderr"]
    assert done["stdout"].endswith("this is sgtool\n")
    assert "not on PATH" not in done["stderr"] and "WARNING" not in done["stderr"]


def test_a_virtual_environment_is_not_disturbed(daemon, session):
    done = execute(daemon, session, command="python3 -m venv --without-pip --system-site-packages v && "
                                            f"v/bin/python -m pip install --no-index /tmp/{NAME} && v/bin/sgtool")
    assert (done["exit_code"], done["stdout"].splitlines()[-1]) == (0, "this is sgtool"), done["stderr"]


def test_interpreters_that_wait_see_what_was_installed(daemon, session):
    """A warm Python and a context have started before there was a directory for packages of the user."""
    run = context_of(daemon, session)
    assert run_code(daemon, session, "import sgtool")["exit_code"] == 1
    assert run("import sgtool")["error"]["name"] == "ModuleNotFoundError"
    assert execute(daemon, session, command=f"pip install --no-index /tmp/{NAME}")["exit_code"] == 0
    for _ in range(3):
        done = run_code(daemon, session, "import sys, sgtool\nsgtool.main()\nprint(sys.path.index(sgtool.__file__.rsplit('/', 1)[0]) < "
                                         "sys.path.index('/usr/lib/python3/dist-packages') if '/usr/lib/python3/dist-packages' in sys.path else True)")
        assert done["stdout"] == "this is sgtool\nTrue\n", done
    assert run("import sgtool\nsgtool.main()")["stdout"] == "this is sgtool\n"


def test_a_context_imports_what_the_same_code_installs(daemon, session):
    run = context_of(daemon, session)
    done = run(f"%pip install --quiet --no-index /tmp/{NAME}\nimport sgtool\nsgtool.main()")
    assert (done["state"], done["stdout"]) == ("ok", "this is sgtool\n"), done


def test_without_a_network_the_answer_says_so(daemon, session):
    done = execute(daemon, session, command="pip install sgtool-that-is-nowhere")
    assert done["exit_code"] == 1
    assert "no network" in done["warning"] and "--network open" in done["warning"]
    again = daemon.api("GET", f"/sessions/{session}/executions/{done['id']}", expect=200).json
    assert again["warning"] == done["warning"]
    run = context_of(daemon, session)
    assert "--network open" in run("%pip install sgtool-that-is-nowhere")["warning"]
    assert "--network open" in run("import urllib.request\nurllib.request.urlopen('http://pypi.org/')")["warning"]
    assert "--network open" in context_of(daemon, session, language="bash")("getent hosts pypi.org || echo 'Could not resolve host: pypi.org'")["warning"]
    assert run("1 / 0")["warning"] is None and execute(daemon, session, command="false")["warning"] is None
    noted = daemon.cli("exec", session, "--", "pip", "install", "sgtool-that-is-nowhere", timeout=180)
    assert noted.returncode == 1 and "--network open" in noted.stderr


def test_python_writes_into_pipes_at_once(daemon, session):
    code = "import os\nprint('first')\nos.write(1, b'second\\n')"
    assert execute(daemon, session, argv=["python3", "-c", code])["stdout"] == "first\nsecond\n"
    assert run_code(daemon, session, code)["stdout"] == "first\nsecond\n"
    other = execute(daemon, session, argv=["python3", "-c", code], env={"PYTHONUNBUFFERED": ""})
    assert other["stdout"] == "second\nfirst\n"


def test_nothing_of_the_daemons_path_gets_inside(make_daemon):
    daemon = make_daemon(backend=WALLS, environment={"PATH": "/somebodys/own/programs:" + os.environ["PATH"]})
    session = daemon.session()
    path = execute(daemon, session, command="echo $PATH")["stdout"]
    assert "/somebodys/own" not in path and path.rstrip().endswith("/usr/bin:/sbin:/bin")
    assert "/somebodys/own" not in run_code(daemon, session, "import os\nprint(os.environ['PATH'])")["stdout"]


def test_models_are_told_what_the_sandbox_has(make_daemon):
    daemon = make_daemon(backend=WALLS)
    client = Http(daemon)
    assert "no network" in client.result["instructions"] and "template" in client.result["instructions"]
    assert "--network open" in client.bash("pip install sgtool-that-is-nowhere")
    open_one = make_daemon(backend=WALLS, settings={"sandbox": {"network": "open"}, "session": {"idle_timeout": "20m"}})
    told = Http(open_one).result["instructions"]
    assert "has a network" in told and "unused for 20m" in told and "no network" not in told


def test_errors_of_bash_name_no_descriptor(daemon, session):
    run = context_of(daemon, session, language="bash")
    assert run("nosuch")["stderr"] == "/dev/stdin: line 1: nosuch: command not found\n"
    assert run("cat; read x; echo $?")["stdout"] == "1\n"


def test_the_commands_of_the_page_work(make_daemon):
    """docs/how-to/packages.md, with a network that leads to a package index."""
    if os.geteuid() != 0 or not os.path.exists("/usr/sbin/nft"):
        pytest.skip("network open needs root and nft")
    daemon = make_daemon(backend="native")
    session = daemon.session(network="open")
    if execute(daemon, session, command="python3 -c 'import urllib.request as r; r.urlopen(\"https://pypi.org/simple/cowsay/\", timeout=20)'")["exit_code"]:
        pytest.skip("the index of PyPI cannot be reached from a sandbox")
    commands = [line.strip() for line in (ROOT / "docs" / "how-to" / "packages.md").read_text().splitlines() if line.startswith("    sandglass ")]
    assert commands
    for command in commands:
        arguments = shlex.split(command)[1:]
        done = daemon.cli(*arguments, timeout=120)
        assert done.returncode == 0 and "hello" in done.stdout, done.stderr
    run = context_of(daemon, session)
    done = run("%pip install --quiet cowsay\nimport cowsay\ncowsay.cow('in a context')")
    assert (done["state"], "in a context" in done["stdout"]) == ("ok", True), done
