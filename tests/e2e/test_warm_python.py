"""A Python that waits in the sandbox runs a script as one that is started for it would."""
import re

import pytest

from conftest import wait_for

IS_WARM = "import sys\nprint('json' in sys.modules)"

SCRIPTS = [
    "import sys\nprint(sys.argv == [__file__], __name__, __doc__, __spec__, __package__, __cached__, __annotations__, sorted(globals()))",
    "'what it is'\nprint(__doc__)",
    "import sys\nprint(sys.flags, len(sys.path), sys.path[0] == __file__.rsplit('/', 1)[0], sys.stdin.read(), open('/proc/self/cmdline').read().split('\\0')[0])",
    "import sys\nprint(open(__file__).read())\nprint(open('/proc/self/cmdline').read().split('\\0')[1] == __file__)",
    "import os\nprint(sorted(name for name in os.environ), os.getcwd())",
    "import os\nprint(sorted(os.listdir('/proc/self/fd')), os.getppid() > 0, os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())",
    "import signal\nprint([(s, signal.getsignal(s)) for s in (1, 2, 13, 15, 17)], signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "def f():\n    raise ValueError('no')\nf()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as problem:\n    raise KeyError('y') from problem",
    "if",
    "raise SystemExit(5)",
    "raise SystemExit('a message')",
    "raise KeyboardInterrupt",
    "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)",
    "import os\nos.kill(os.getpid(), 9)",
    "import os\nprint('lost')\nos._exit(9)",
    "import atexit, sys\natexit.register(print, 'bye')\nsys.excepthook = lambda kind, problem, place: print(problem, place.tb_frame.f_code.co_name, place.tb_next)\n1 / 0",
    "import threading\nthreading.Thread(target=lambda: print('thread')).start()",
    "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__)",
    "from __future__ import annotations\nx: undefined = 1\nprint(__annotations__)",
]


def run(daemon, session, code, **options):
    result = daemon.execute(session, code=code, **options)
    text = lambda value: value.replace(result["id"], "ID")
    return result["state"], result["exit_code"], result["signal"], result["stdout"], text(result["stderr"])


def without_names(result):
    """The script's own name is another in each run."""
    return tuple(re.sub(r"exe_[0-9a-z]{26}|ID", "exe", value) if isinstance(value, str) else value for value in result)


def warm_session(daemon):
    session = daemon.session()
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python")
    return session


def run_warm(daemon, session, code, **options):
    wait_for(lambda: daemon.execute(session, command="cat /proc/[0-9]*/comm | grep -c python3")["stdout"] == "1\n", "a warm Python")
    return run(daemon, session, code, **options)


def test_scripts_cannot_tell_the_difference(make_daemon):
    warm, cold = make_daemon(), make_daemon(settings={"python": {"warm": False}})
    warm_one, cold_one = warm_session(warm), cold.session()
    for script in SCRIPTS:
        for stdin in (None, "some input"):
            options = {"stdin": stdin} if stdin else {}
            expected = without_names(run(cold, cold_one, script, **options))
            assert without_names(run_warm(warm, warm_one, script, **options)) == expected, script


@pytest.mark.parametrize("backend", ["direct", "native"])
def test_the_first_code_in_a_fresh_session_finds_it_warm(daemon):
    seen = []
    for _ in range(20):
        seen.append(run(daemon, daemon.session(), IS_WARM)[3])
        if seen[-1] == "True\n":
            return
    pytest.fail(f"never warm: {seen}")


def test_what_python_looks_at_when_it_starts_is_as_asked(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    for env in ({"PYTHONUNBUFFERED": "1"}, {"PYTHONPATH": "/tmp"}, {"PYTHONHASHSEED": "0"}, {"LANG": "C"}, {"TZ": "UTC-5"}):
        assert run_warm(daemon, session, IS_WARM, env=env)[3] == "False\n", env
    assert run_warm(daemon, session, IS_WARM, cwd="/tmp")[3] == "False\n"
    assert run_warm(daemon, session, IS_WARM)[3] == "True\n"
    assert run(daemon, session, "import os\nprint(os.environ['X'], os.environ['SANDGLASS_EXECUTION_ID'][:4])", env={"X": "ä"})[3] == "ä exe_\n"


def test_random_state_is_fresh_each_time(make_daemon):
    daemon = make_daemon(settings={"python": {"preload": ["json", "random", "uuid"]}})
    session = warm_session(daemon)
    seen = {run_warm(daemon, session, "import random, uuid\nprint(random.random(), uuid.uuid4(), hash('x'))")[3] for _ in range(5)}
    assert len(seen) == 5


def test_large_scripts_and_timeouts_work_as_ever(make_daemon):
    daemon = make_daemon(settings={"exec": {"grace": "200ms"}})
    session = warm_session(daemon)
    assert run_warm(daemon, session, "x = '" + "a" * 200000 + "'\nprint(len(x))")[3] == "200000\n"
    assert run_warm(daemon, session, "import subprocess\nsubprocess.run(['sleep', '60'])", timeout=0.2)[0] == "timeout"
    assert daemon.execute(session, command="pgrep -x sleep || cat /proc/[0-9]*/comm | grep -x sleep")["stdout"] == ""


def test_a_daemon_that_is_killed_leaves_no_python_waiting(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    daemon.kill()
    daemon.start()
    assert run(daemon, session, "print('after')")[3] == "after\n"
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python again")
