# SPDX-License-Identifier: Apache-2.0
"""A Python that waits in the sandbox runs a script as one that is started for it would."""
import re

import pytest

from conftest import ONLY_ENGINE, WALLS, our_processes, wait_for

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


def pythons(daemon, session):
    """Process numbers of all that runs Python in the sandbox: the one that waits first, then minder, child and holder, once or twice."""
    text = daemon.execute(session, command="cd /proc; grep -l '^python3$' [0-9]*/comm | cut -d/ -f1 | sort -n")["stdout"]
    return [int(number) for number in text.split()]


def run_warm(daemon, session, code, **options):
    wait_for(lambda: len(pythons(daemon, session)) in (4, 7), "a warm Python")
    return run(daemon, session, code, **options)


def test_scripts_cannot_tell_the_difference(make_daemon):
    warm, cold = make_daemon(), make_daemon(settings={"python": {"warm": False}})
    warm_one, cold_one = warm_session(warm), cold.session()
    for script in SCRIPTS:
        for stdin in (None, "some input"):
            options = {"stdin": stdin} if stdin else {}
            expected = without_names(run(cold, cold_one, script, **options))
            assert without_names(run_warm(warm, warm_one, script, **options)) == expected, script


@pytest.mark.parametrize("backend", ["direct", WALLS])
def test_the_first_code_in_a_fresh_session_finds_it_warm(daemon):
    """Members of the pool get theirs when nobody takes any for a moment."""
    if ONLY_ENGINE:  # what runs in its containers is not known to be ours
        wait_for(lambda: run(daemon, daemon.session(), IS_WARM)[3] == "True\n", "a session that finds it warm")
        return

    def finds_it_warm():
        wait_for(lambda: sum(one.startswith("python3") for one in our_processes(daemon.directory).values()) >= 3, "a Python in the pool")
        session = daemon.session()
        first = run(daemon, session, IS_WARM)[3]
        daemon.api("DELETE", f"/sessions/{session}", expect=200)
        return first == "True\n"
    wait_for(finds_it_warm, "a session that finds it warm")  # that of the pool may have been about to wait


def test_what_python_looks_at_when_it_starts_is_as_asked(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    for env in ({"PYTHONUNBUFFERED": ""}, {"PYTHONPATH": "/tmp"}, {"PYTHONHASHSEED": "0"}, {"LANG": "C"}, {"TZ": "UTC-5"}):
        assert run_warm(daemon, session, IS_WARM, env=env)[3] == "False\n", env
    assert run_warm(daemon, session, IS_WARM, cwd="/tmp")[3] == "False\n"
    wait_for(lambda: run_warm(daemon, session, IS_WARM)[3] == "True\n", "a warm Python")
    assert run(daemon, session, "import os\nprint(os.environ['X'], os.environ['SANDGLASS_EXECUTION_ID'][:4])", env={"X": "ä"})[3] == "ä exe_\n"


def test_random_state_is_fresh_each_time(make_daemon):
    daemon = make_daemon(settings={"python": {"preload": ["json", "random", "uuid"]}})
    session = warm_session(daemon)
    seen = {run_warm(daemon, session, "import random, uuid\nprint(random.random(), uuid.uuid4())")[3] for _ in range(5)}
    assert len(seen) == 5


def test_large_scripts_and_timeouts_work_as_ever(make_daemon):
    daemon = make_daemon(settings={"exec": {"grace": "200ms"}})
    session = warm_session(daemon)
    assert run_warm(daemon, session, "x = '" + "a" * 200000 + "'\nprint(len(x))")[3] == "200000\n"
    assert run_warm(daemon, session, "import subprocess\nsubprocess.run(['sleep', '60'])", timeout=0.2)[0] == "timeout"
    wait_for(lambda: sleepers(daemon, session) == "0", "its child is gone, and reaped")


def test_a_daemon_that_is_killed_leaves_no_python_waiting(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    daemon.kill()
    daemon.start()
    assert run(daemon, session, "print('after')")[3] == "after\n"
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python again")


TREE = "import os, subprocess\nsubprocess.Popen(['setsid', '-f', 'sleep', '601'])\nsubprocess.Popen(['sleep', '601'])\n"
COLD = 3  # of a script that ends because the Python that runs it is not warm
ONLY_WARM = f"import sys\nif 'json' not in sys.modules: sys.exit({COLD})\n"


def sleepers(daemon, session):
    return daemon.execute(session, command="cat /proc/[0-9]*/comm | grep -cx sleep")["stdout"].strip()


def test_one_after_the_other_and_many_at_a_time_are_all_warm(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    wait_for(lambda: [run(daemon, session, IS_WARM)[3] for _ in range(10)] == ["True\n"] * 10, "ten in a row are warm")

    def are_warm():
        paths = [daemon.api("POST", f"/sessions/{session}/executions", {"background": True, "stdin": str(i), "code": "import sys, time\nx = input()\ntime.sleep(0.3)\n"
                            "print('json' in sys.modules, x)\nsys.exit(int(x))"}, expect=201).json["id"] for i in range(12)]
        warm = []
        for i, run_id in enumerate(paths):
            result = daemon.api("GET", f"/sessions/{session}/executions/{run_id}?wait=25").json
            assert result["exit_code"] == i
            is_warm, number = daemon.api("GET", f"/sessions/{session}/executions/{run_id}/output").body.split()
            assert number == b"%d" % i
            warm.append(is_warm == b"True")
        return all(warm)
    wait_for(are_warm, "twelve at a time are warm")  # one that has to wait too long, on a busy machine, is started as ever


def test_what_it_leaves_belongs_to_it(make_daemon):
    daemon = make_daemon(settings={"exec": {"grace": "200ms"}})
    session = warm_session(daemon)
    result = daemon.execute(session, code=TREE + "print('left')")
    assert result["stdout"] == "left\n"
    wait_for(lambda: sleepers(daemon, session) == "2", "what it leaves")  # setsid may be about to become sleep
    stopped = daemon.execute(session, code=TREE + "import time\ntime.sleep(60)", timeout=0.5)
    assert stopped["state"] == "timeout" and stopped["signal"] == 15
    wait_for(lambda: sleepers(daemon, session) == "2", "those of the first run alone")
    path = daemon.api("POST", f"/sessions/{session}/executions", {"background": True, "code": TREE + "import time\ntime.sleep(60)"}, expect=201).json["id"]
    wait_for(lambda: sleepers(daemon, session) == "4", "its children")
    daemon.kill()
    daemon.start()
    daemon.api("DELETE", f"/sessions/{session}/executions/{path}", expect=200)
    wait_for(lambda: sleepers(daemon, session) == "2", "its end")


def test_signals_reach_the_script_alone(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    code = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\nprint('on', flush=True)\ntime.sleep(60)"
    run_id = daemon.api("POST", f"/sessions/{session}/executions", {"background": True, "code": code}, expect=201).json["id"]
    path = f"/sessions/{session}/executions/{run_id}"
    wait_for(lambda: daemon.api("GET", path + "/output").body, "its word")
    daemon.api("POST", path + "/signal", {"signal": "USR1"}, expect=200)
    assert daemon.api("GET", path + "?wait=25").json["exit_code"] == 7
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python")


@pytest.mark.parametrize("signal", ["KILL", "STOP", "TERM"])
@pytest.mark.parametrize("who", [0, 1, 2, 3, slice(0, 4)])
def test_a_program_that_attacks_the_one_that_waits_costs_only_time(make_daemon, signal, who):
    daemon = make_daemon()
    session = warm_session(daemon)
    victims = wait_for(lambda: (found := pythons(daemon, session)) and len(found) in (4, 7) and found, "a warm Python")[who]
    numbers = " ".join(map(str, victims if isinstance(victims, list) else [victims]))
    daemon.execute(session, command=f"kill -{signal} {numbers}")
    for i in range(3):
        assert run(daemon, session, f"print({i})")[:4] == ("exited", 0, None, f"{i}\n")
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python again")


def test_a_script_that_kills_its_minder_ends_and_leaves_nothing(make_daemon):
    daemon = make_daemon()
    session = warm_session(daemon)
    wait_for(lambda: len(pythons(daemon, session)) in (4, 7), "a warm Python")
    other = daemon.api("POST", f"/sessions/{session}/executions", {"background": True, "code": "import time\ntime.sleep(2)\nprint('unharmed')"}, expect=201).json["id"]

    def kill_minder():
        result = daemon.execute(session, code=ONLY_WARM + TREE + "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(60)", timeout=25)
        return result if result["exit_code"] != COLD else None
    result = wait_for(kill_minder, "a warm Python")
    assert (result["state"], result["signal"]) == ("exited", 9)
    wait_for(lambda: sleepers(daemon, session) == "0", "the end of its children")
    assert daemon.api("GET", f"/sessions/{session}/executions/{other}?wait=25").json["exit_code"] == 0
    wait_for(lambda: run(daemon, session, IS_WARM)[3] == "True\n", "a warm Python again")


ENDS = [
    "import sys\nclass A:\n    def __del__(self): print('gone')\na = A()\nsys.exit(3)",
    "class A:\n    def __init__(self): self.me = self\n    def __del__(self): print('gone')\na = A()\ndef f(): return a",
    "f = open('left', 'w')\nf.write('all of it')\nopen('other', 'w').write('too')",
    "print(open('left').read(), open('other').read())",
    "import atexit, threading, time\natexit.register(lambda: print('last'))\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')",
    "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x' * 100)",
    "import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait()\n    print('parent')",
    "import sys\nsys.stdout.close()",
    "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')",
    "import sys\nsys.exit(-1)",
    "import sys\nsys.exit(2**40 + 5)",
    "import sys\nsys.exit(True)",
    "import ctypes\nctypes.CDLL(None).printf(b'not flushed')",
    "import ctypes, os\nlibc = ctypes.CDLL(None)\nctypes.CDLL('libm.so.6')\nend = ctypes.CFUNCTYPE(None)(lambda: os.write(1, b'handler'))\nlibc.atexit(end)",
    "import ctypes, os, threading, time\nreading, _ = os.pipe()\nos.dup2(reading, 0)\nthreading.Thread(target=ctypes.CDLL(None).getchar, daemon=True).start()\ntime.sleep(0.05)\nprint('ends')",
    "import os\nos.execv('/bin/echo', ['echo', 'instead'])",
    "x = bytearray(90 << 20)\nprint(len(x))",
    "import os\ntry: os.wait()\nexcept ChildProcessError as problem: print(problem)",
    "import multiprocessing\nif __name__ == '__main__':\n    with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
    "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv)'], capture_output=True, text=True).stdout)",
    "import sys\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError as e: print(e)",
    "import __main__, inspect\ndef f(): pass\nprint(inspect.getsource(f), __main__.__file__ == __file__, __loader__.get_filename() == __file__)",
]


def test_the_end_of_a_script_is_as_ever(make_daemon):
    warm, cold = make_daemon(), make_daemon(settings={"python": {"warm": False}})
    warm_one, cold_one = warm_session(warm), cold.session()
    for script in ENDS:
        expected = without_names(run(cold, cold_one, script))
        assert without_names(run_warm(warm, warm_one, script)) == expected, script
