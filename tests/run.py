# SPDX-License-Identifier: Apache-2.0
"""Builds every variant and runs every test; the last line is 'N passed, N failed[, N skipped]'.

Called by scripts/test, which has installed the packages. Each step prints one line; what failed prints its output.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

import engine
from engine import shared
from kubernetes import cluster, programs

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZERS = ["-Db_sanitize=address,undefined", "-Db_lundef=false"]

# name, compiler, meson options, what to build
BUILDS = [
    ("gcc", "gcc", ["-Dwerror=true"], ["all"]),
    # Not optimized: that takes three times as long to compile as it saves in the tests.
    ("asan", "gcc", ["-Dwerror=true", "-Dbuildtype=debug", "-Doptimization=0", *SANITIZERS], ["all"]),
    # For what the other compiler says about the programs, and for its fuzzers.
    ("fuzz", "clang", ["-Dwerror=true", "-Dfuzz=true", "-Doptimization=0", *SANITIZERS], ["end_to_end", "fuzz"]),
]

# Programs in C, and how many of them run at once: those of the last two wait more than they work.
SUITES = {"unit": 2, "contract": 4, "integration": 4, "fuzz": 2}

# What does not change with the build: clients and pages that are not ours or not in C, and the launcher, which is linked against another libc.
ONCE = [f"tests/e2e/test_{name}.py" for name in ("mcp_official", "used_again", "pytest_plugin", "chat_page", "packages", "bench", "daemon_container",
                                                   "docs_docker", "podman", "docker_walls", "sweep_containers", "engine_rig", "attached", "sdk",
                                                   "python_sdk_surface", "dashboard", "release", "drivers")]

# What measures memory, or needs more data than sanitizers can bear: it runs in both builds.
OPTIMIZED_TOO = [f"tests/e2e/test_{name}.py" for name in ("history", "limits", "reconnect")]

# What takes minutes, because engines are killed and started again: `--docker` runs it.
AT_LENGTH = [f"tests/e2e/test_{name}.py" for name in ("docker_engine_faults", "docker_crowd")]

# Folders whose files the analyzer follows path by path, in CI too: they parse what strangers send, or hold privileges. Never init, whose
# system calls are inline assembly: the analyzer takes everything that the kernel writes there for garbage.
ANALYZED = ("src/auth/", "src/launcher/", "src/net/", "src/wire/")
# Not unix.Malloc, which does not follow our intrusive lists: ASan looks for that.
ANALYZER = ",clang-analyzer-core.*,clang-analyzer-deadcode.*,clang-analyzer-unix.*,-clang-analyzer-unix.Malloc"

# What runs a second time with sandboxes that are reached over the bridge; `--relay` runs all of them so.
OVER_THE_BRIDGE = [f"tests/e2e/test_{name}.py" for name in ("executions", "files", "recovery", "terminal_crash", "chaos", "crowd")]

# What runs a second time with records in Redis instead of SQLite: whatever depends on what is remembered.
WITH_REDIS = [f"tests/e2e/test_{name}.py" for name in ("sessions", "recovery", "lifecycle")]

# The backends that need a Docker engine, and what runs with each of them; `--docker` and `--gvisor` run all that makes sense there.
ENGINE_BACKENDS = ("docker", "gvisor")
WITH_ENGINE = {
    "docker": ("executions", "files", "recovery", "sessions", "contexts", "terminal_crash", "chaos"),
    "gvisor": ("executions", "recovery", "sessions", "limits"),
}
# Not in that part: programs start slowly in gVisor.
SLOW_WITH_GVISOR = ("a_thousand_executions", "sixty_four_executions", "a_stopped_init", "only_files_that_the_run_has_changed")

FUZZ_SECONDS = 2
END_TO_END_WORKERS = 4  # most of their time is waiting
ENGINE_WORKERS = 2  # an engine works for a third of a second to start a container
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


class Tally:
    """What passed, failed and was skipped, with the reasons."""

    def __init__(self):
        self.lock = threading.Lock()
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, name, outcome, detail=""):
        with self.lock:
            if outcome == "passed":
                self.passed += 1
            elif outcome == "skipped":
                self.skipped.append((name, detail or "no reason given"))
            else:
                self.failed.append((name, detail))
                print(f"FAILED {name}\n{detail}", flush=True)


def run(command, environment=None, **options):
    return subprocess.run(command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, **options)


def step(tally, name, command, environment=None, **options):
    """One command that is a test by itself: it passes when it exits with 0."""
    begin = time.monotonic()
    result = run(command, environment, **options)
    tally.add(name, "passed" if result.returncode == 0 else "failed", result.stdout[-8000:])
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return result.returncode == 0


def check_tree(tally):
    step(tally, "includes point one way", ["/usr/bin/python3", "scripts/check-includes"])
    step(tally, "every source file says its licence", ["scripts/spdx"])
    step(tally, "one version", ["scripts/version", "--check"])
    sources = run(["git", "ls-files", "src/**.c", "src/**.h", "tests/**.c", "tests/**.h", "bench/**.c"]).stdout.split()
    step(tally, "clang-format agrees", ["xargs", "-P", "2", "-n", "64", "clang-format", "--dry-run", "-Werror"], input="\n".join(sources))


def build(tally, name, compiler, options, targets):
    directory = ROOT / f"build-{name}"
    if not (directory / "build.ninja").exists():
        setup = run(["meson", "setup", str(directory), *options], {"CC": compiler})
        if setup.returncode != 0:
            tally.add(f"build {name}", "failed", setup.stdout[-4000:])
            return None
    return directory if step(tally, f"build {name}", ["ninja", "-C", str(directory), *targets]) else None


BAD = ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT")  # results of programs
TAP_LINE = re.compile(r"^(ok|not ok) \d+ - (.*?)(?: # SKIP ?(.*))?$")


def add_tap(tally, suite, test):
    """Counts each sentence of a cmocka program; a program that says nothing counts as one test."""
    lines = test["stdout"].splitlines() if test.get("stdout") else []
    rows = [match for match in map(TAP_LINE.match, lines) if match]
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    reasons = iter(re.findall(r"^(?:# )?skip: (.*)$", output, re.M))
    bad = False
    for row in rows:
        name = f"{suite} {test['name']}: {row[2]}"
        if row[3] is not None:
            tally.add(name, "skipped", row[3] or next(reasons, ""))
        elif row[1] == "ok":
            tally.add(name, "passed")
        else:
            bad = True
            tally.add(name, "failed", output[-6000:])
    crashed = test["returncode"] not in (0, None) and not bad
    if crashed or test["result"] in BAD and not bad:
        tally.add(f"{suite} {test['name']}", "failed",
                  f"{test['result']}, exit code {test['returncode']}\n{output[-6000:]}")
    elif not rows:
        tally.add(f"{suite} {test['name']}", "skipped" if test["result"] == "SKIP" else "passed",
                  next(reasons, ""))


def run_c_tests(tally, name, directory, word, suites=tuple(SUITES), programs_of_suite=()):
    for suite in suites:
        begin = time.monotonic()
        log = directory / "meson-logs" / "testlog.json"
        log.unlink(missing_ok=True)
        command = ["meson", "test", "-C", str(directory), "--no-rebuild", "--suite", suite, "-t", "4",
                   "--num-processes", str(SUITES[suite]), *programs_of_suite]
        hangs = EngineOfRun.hangs()
        result = run(command, SANITIZER_ENVIRONMENT)
        tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if not tests and "No suitable tests" not in result.stdout:
            tally.add(f"{name} {suite}", "failed", result.stdout[-4000:])
        bad = {test["name"].split(" / ")[-1]: test.get("stdout") or "" for test in tests if test["result"] in BAD}
        again = EngineOfRun.excuse(hangs, bad)
        for test in tests:
            if word in test["name"] and test["name"].split(" / ")[-1] not in again:
                add_tap(tally, name, test)
        print(f"{name} {suite}: {len(tests)} programs, {time.monotonic() - begin:.0f} s", flush=True)
        if again:
            run_c_tests(tally, name, directory, word, [suite], again)


def failure_of(case):
    """The element that tells why a test failed, or None."""
    return case.find("failure") if case.find("failure") is not None else case.find("error")


def test_of(case):
    """Its name as pytest takes it."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def run_end_to_end(tally, name, directory, word, paths=("tests/e2e",), relay=False, backend=None, redis=False, cluster=False, workers=None,
                   is_shared=False):
    """`is_shared`: only what is for the backend direct, ONCE and OPTIMIZED_TOO; another build runs the rest."""
    begin = time.monotonic()
    build_name = name
    report = directory / f"e2e{'-bridge' * relay}{'-redis' * redis}{'-cluster' * cluster}{f'-{backend}' if backend else ''}.xml"  # with the time of each test
    report.unlink(missing_ok=True)
    command = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers or (ENGINE_WORKERS if backend else END_TO_END_WORKERS)),
               *paths, f"--junit-xml={report}", *(["-k", word] if word else []),
               *(f"--ignore={path}" for path in ONCE if name != "gcc" or relay or backend),
               *(f"--ignore={path}" for path in AT_LENGTH if backend != "docker"),
               *([] if "SANDGLASS_OLD_PROGRAMS" in os.environ else ["--ignore=tests/e2e/test_upgrade.py"])]
    # Both backends share their code but for the walls: with sanitizers, and over the bridge, the one that has some is enough.
    backends = backend or ("direct native" if name == "gcc" and not relay and not redis else "native")
    environment = {"SANDGLASS_BUILD": str(directory), "SANDGLASS_BACKENDS": backends, **SANITIZER_ENVIRONMENT}
    if is_shared:
        environment["SANDGLASS_WHOLE_FILES"] = " ".join(pathlib.Path(path).name for path in ONCE + OPTIMIZED_TOO)
    if relay:
        name += " bridge"
        environment["SANDGLASS_RELAY"] = "1"
    if redis:
        name += " redis"
        environment["SANDGLASS_STORE"] = "redis"
    name += " cluster" if cluster else ""
    name += f" {backend}" if backend else ""
    hangs = EngineOfRun.hangs()
    result = run(command, environment)
    if not report.exists():
        tally.add(f"{name} end to end", "failed", result.stdout[-6000:])
        return
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = {test_of(case): failure_of(case).text or "" for case in cases if failure_of(case) is not None}
    again = EngineOfRun.excuse(hangs, bad, all_need_it=backend in ENGINE_BACKENDS)
    for case in cases:
        if test_of(case) in again:
            continue
        title = f"{name} e2e {case.get('classname', '').split('.')[-1]}: {case.get('name')}"
        bad = failure_of(case)
        skip = case.find("skipped")
        if bad is not None:
            tally.add(title, "failed", (bad.text or bad.get("message", ""))[-6000:])
        elif skip is not None and skip.get("message", "").startswith("another backend: "):
            continue  # as if it had not been chosen
        elif skip is not None:
            tally.add(title, "skipped", skip.get("message", ""))
        else:
            tally.add(title, "passed")
    if not cases and not word:
        tally.add(f"{name} end to end", "failed", "no test was found\n" + result.stdout[-3000:])
    print(f"{name} end to end: {len(cases)} tests, {time.monotonic() - begin:.0f} s", flush=True)
    if again:
        run_end_to_end(tally, build_name, directory, word, again, relay, backend, redis, cluster, workers, is_shared)


class EngineOfRun:
    """One Docker engine for everything that this run starts; tests say themselves why there is none.

    An engine that hangs is replaced (tests/engine/shared.py), and the tests of the engine that failed meanwhile run once more; the output says
    which, and why they had failed.
    """

    # Words in the names of tests that need it, beside those of the backends that do.
    TESTS = ("docker", "gvisor", "daemon_container", "engine_rig", "sweep_containers")

    def __init__(self):
        self.held = None

    @staticmethod
    def hangs():
        return shared.hangs(os.environ.get("SANDGLASS_ENGINE", ""))

    @classmethod
    def excuse(cls, before, failed, all_need_it=False):
        """Of the tests that failed, by name with the reason, those to run once more because the engine has hung since `before`."""
        hangs = cls.hangs()[len(before):]
        again = [name for name in failed if hangs and (all_need_it or any(word in name for word in cls.TESTS))]
        for stacks in hangs if again else []:
            print(f"THE ENGINE HUNG and was replaced. It was waiting for:\n{pathlib.Path(stacks).read_text(errors='replace')[:20000]}", flush=True)
        for name in again:
            print(f"FAILED WHILE THE ENGINE HUNG, runs once more: {name}\n{failed[name][-2000:]}", flush=True)
        return again

    def __enter__(self):
        if not engine.missing():
            self.held = shared.use(f"run-{os.getpid()}")
            os.environ["SANDGLASS_ENGINE"] = self.held.name
            os.environ["SANDGLASS_TEST_ENGINE"] = str(self.held.socket)
        return self

    def __exit__(self, *_):
        if self.held:
            self.held.release()
            shared.wait_until_ended(self.held.name)
            for stacks in [*self.hangs(), shared.hangs_path(self.held.name)]:
                pathlib.Path(stacks).unlink(missing_ok=True)


class ClusterOfRun:
    """A real Kubernetes cluster for everything that this run starts, or the one that SANDGLASS_TEST_CLUSTER names."""

    def __init__(self, program):
        self.program = program
        self.own = None

    def __enter__(self):
        begin = time.monotonic()
        if not os.environ.get("SANDGLASS_TEST_CLUSTER"):
            self.own = cluster.Cluster(f"/var/tmp/sgk-{os.getpid()}")
            os.environ["SANDGLASS_TEST_CLUSTER"] = str(self.own.directory)
            self.own.up(say=lambda text: print(text, flush=True))
        running = cluster.Cluster(os.environ["SANDGLASS_TEST_CLUSTER"])
        os.environ |= {"SANDGLASS_TEST_KUBECONFIG": str(running.kubeconfig), "SANDGLASS_TEST_IMAGE": "sandglass-test:1", "SANDGLASS_TEST_NAMESPACE": "contract",
                       "SANDGLASS_TEST_API_PID": str(running.pid_of("kube-apiserver"))}
        running.make_namespace("contract")
        running.load_images(self.program)
        print(f"cluster: {time.monotonic() - begin:.0f} s", flush=True)
        return running

    def __exit__(self, *_):
        if self.own:
            self.own.down()


def run_kubernetes(tally, directory, word):
    """The backend in a real cluster, and the daemon in its pods."""
    if programs.missing():
        tally.add("kubernetes", "skipped", programs.missing())
        return
    with ClusterOfRun(directory / "sandglass"):
        run_c_tests(tally, "gcc", directory, word, ["integration"], ["contract/backend_kubernetes"])
        run_end_to_end(tally, "gcc", directory, word, ["tests/kubernetes"], cluster=True, workers=1)
        run_end_to_end(tally, "gcc", directory, word, backend="kubernetes")


def run_fuzzers(tally, directory):
    for target in sorted((directory / "tests" / "fuzz").glob("fuzz_*")):
        if not target.is_file() or not os.access(target, os.X_OK):
            continue
        corpus = ROOT / "tests" / "fuzz" / "corpus" / target.name.removeprefix("fuzz_")
        fresh = directory / f"corpus-{target.name}"
        fresh.mkdir(exist_ok=True)
        step(tally, f"fuzz {target.name}",
             [str(target), f"-max_total_time={FUZZ_SECONDS}", "-timeout=5", "-rss_limit_mb=1024", "-verbosity=0",
              f"-artifact_prefix={directory}/", str(fresh), *([str(corpus)] if corpus.is_dir() else [])])


def run_tidy(tally, directory, everything=False):
    """clang-tidy over all of src/ by the list of a clang build: .clang-tidy has the checks and their reasons."""
    begin = time.monotonic()
    sources = run(["git", "ls-files", "src/**.c"]).stdout.split()
    deep = [path for path in sources if path.startswith(ANALYZED) or everything and not path.startswith("src/init/")]
    for name, paths, checks in (("clang-tidy", sources, ""), ("clang-tidy analyzer", deep, "--checks=-*" + ANALYZER)):
        command = ["xargs", "-P", "2", "-n", "8", "clang-tidy", "-p", str(directory), "--quiet", *([checks] if checks else [])]
        result = run(command, input="\n".join(paths))
        found = "\n".join(line for line in result.stdout.splitlines() if re.search(r": (warning|error): ", line))
        tally.add(name, "passed" if result.returncode == 0 else "failed", found or result.stdout[-4000:])
    print(f"clang-tidy: {len(sources)} files, {time.monotonic() - begin:.0f} s", flush=True)


def run_in_machine(tally, directory):
    """The native backend on a kernel with version 2 of control groups: minutes, because the machine is emulated."""
    begin = time.monotonic()
    result = run(["/usr/bin/python3", "tests/qemu/run.py", str(directory)])
    rows = [match for match in map(TAP_LINE.match, result.stdout.splitlines()) if match]
    for row in rows:
        tally.add(f"qemu {row[2]}", "passed" if row[1] == "ok" else "failed", result.stdout[-6000:])
    if not rows:
        tally.add("qemu", "failed", result.stdout[-6000:])
    print(f"qemu: {len(rows)} tests, {time.monotonic() - begin:.0f} s", flush=True)


def run_faults(tally, directory, word):
    """One fault in each daemon; SANDGLASS_SEED repeats the choice of an earlier run."""
    begin = time.monotonic()
    seed = os.environ.get("SANDGLASS_SEED")
    result = run(["/usr/bin/python3", "tests/faults/sweep.py", "--word", word, *(["--seed", seed] if seed else [])],
                 {"SANDGLASS_BUILD": str(directory)})
    rows = [match for match in map(TAP_LINE.match, result.stdout.splitlines()) if match]
    for row in rows:
        tally.add(f"faults {row[2]}", "passed" if row[1] == "ok" else "failed")
    if not rows or result.returncode:
        tally.add("faults", "failed", result.stdout[-20000:])
    print(f"{result.stdout.splitlines()[-1:]}\nfaults: {len(rows)} cases, {time.monotonic() - begin:.0f} s", flush=True)


def run_storms(tally, directory):
    """Many machines under load, half of SANDGLASS_FAULTS with one Redis server and half with failovers; SANDGLASS_SEED repeats the choice of an earlier run."""
    number = int(os.environ.get("SANDGLASS_FAULTS", "500"))
    seed = os.environ.get("SANDGLASS_SEED")
    for name, faults, more in (("one server", (number + 1) // 2, []), ("sentinel", number // 2, ["--sentinel"])):
        begin = time.monotonic()
        history = directory / f"storm-{name.replace(' ', '-')}.jsonl"
        result = run(["/usr/bin/python3", "tests/cluster/storm.py", "--faults", str(faults), "--history", str(history), *more, *(["--seed", seed] if seed else [])],
                     {"SANDGLASS_BUILD": str(directory)})
        rows = [match for match in map(TAP_LINE.match, result.stdout.splitlines()) if match]
        for row in rows:
            tally.add(f"cluster, {name}: {row[2]}", "passed" if row[1] == "ok" else "failed", result.stdout[-20000:])
        skipped = re.search(r"^1\.\.0 # SKIP (.*)$", result.stdout, re.M)
        if not rows:
            tally.add(f"cluster, {name}", "skipped" if skipped else "failed", skipped[1] if skipped else result.stdout[-20000:])
        summary = next((line for line in result.stdout.splitlines() if line.startswith("seed ")), "")
        print(f"{summary}\ncluster, {name}: {len(rows)} rules, {time.monotonic() - begin:.0f} s, history in {history}", flush=True)


def run_upgrade(tally, directory, word):
    """From the programs of older commits, which are built once and kept in the cache of the tests."""
    begin = time.monotonic()
    built = subprocess.run(["tests/upgrade/build"], cwd=ROOT, capture_output=True, text=True)
    tally.add("build of older commits", "failed" if built.returncode else "passed", built.stderr)
    print(f"build of older commits: {time.monotonic() - begin:.0f} s", flush=True)
    if not built.returncode:
        os.environ["SANDGLASS_OLD_PROGRAMS"] = built.stdout.strip()
        run_end_to_end(tally, "gcc", directory, word, ["tests/e2e/test_upgrade.py"])


def check_skips(tally):
    """A skip that nobody expects is a failure: a test that silently stops running protects nothing."""
    allowed = (ROOT / "tests" / "expected-skips.txt").read_text().splitlines()
    allowed = [line for line in allowed if line and not line.startswith("#")]
    for name, reason in tally.skipped:
        if os.environ.get("CI") and not any(entry in f"{name}: {reason}" for entry in allowed):
            tally.add(name, "failed", f"skipped, which tests/expected-skips.txt does not expect: {reason}")


class Later(threading.Thread):
    """What waits for nobody, at low priority, while the end-to-end tests wait for things to happen: the tree, the other builds, fuzzing."""

    def __init__(self, tally, builds):
        super().__init__(daemon=True)
        self.tally = tally
        self.builds = builds
        self.directories = {}
        self.is_built = {name: threading.Event() for name, *_ in builds}

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # its children inherit it
        check_tree(self.tally)
        for name, compiler, arguments, targets in self.builds:
            try:
                self.directories[name] = build(self.tally, name, compiler, arguments, targets)
            except Exception as problem:  # whoever waits for this build must not wait for ever
                self.tally.add(f"build {name}", "failed", repr(problem))
            self.is_built[name].set()
        if self.directories.get("fuzz"):
            run_tidy(self.tally, self.directories["fuzz"])
            run_fuzzers(self.tally, self.directories["fuzz"])

    def directory(self, name):
        """The build of that name once it is there, or None when it failed."""
        self.is_built[name].wait()
        return self.directories.get(name)


def part_of(backend):
    """The expression that chooses the tests of the ordinary run with that backend out of its files."""
    return " and ".join(f"not {name}" for name in SLOW_WITH_GVISOR) if backend == "gvisor" else ""


def run_tests(tally, name, directory, word, scope):
    """Each test runs once, most of them with sanitizers, unless there is one build only or both are asked for."""
    if name == "asan" or scope != "once":
        run_c_tests(tally, name, directory, word)
    run_end_to_end(tally, name, directory, word, is_shared=name == "gcc" and scope == "once")
    if name == "gcc":
        run_end_to_end(tally, name, directory, word, OVER_THE_BRIDGE, relay=True)
        run_end_to_end(tally, name, directory, word, WITH_REDIS, redis=True)
        run_end_to_end(tally, name, directory, word, ["tests/cluster", "tests/kubernetes"], cluster=True)
        for backend in ENGINE_BACKENDS:
            run_end_to_end(tally, name, directory, word or part_of(backend), [f"tests/e2e/test_{file}.py" for file in WITH_ENGINE[backend]],
                           backend=backend)


def run_lane(tally, name, wait_for_build, word, scope):
    """The tests of one build as soon as it is there, beside those of the other: tests of either wait more than they work."""
    directory = wait_for_build()
    if not directory:
        return
    try:
        run_tests(tally, name, directory, word, scope)
    except Exception as problem:  # the other lane goes on
        tally.add(f"tests of the build {name}", "failed", repr(problem))


def run_benchmark(tally, directory):
    """Before anything else runs beside it: what is off by a factor is a failure, a time never is."""
    step(tally, "benchmark", ["/usr/bin/python3", "bench/run.py", "--check", "--build", str(directory)])


class Load:
    """Programs that keep every processor busy while the tests run."""

    def __enter__(self):
        self.programs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
            program.wait()


def run_all(tally, scope, word, times=1):
    """`scope`: once, both (every test in the optimized build and in the one with sanitizers) or quick (the optimized build alone)."""
    name, compiler, arguments, targets = BUILDS[0]
    directory = build(tally, name, compiler, arguments, ["end_to_end"] if scope == "once" else targets)
    if directory and word in "benchmark":
        run_benchmark(tally, directory)
    later = Later(tally, [] if scope == "quick" else BUILDS[1:])
    later.start()
    for turn in range(times):
        lanes = [threading.Thread(target=run_lane, args=(tally, "gcc", lambda: directory, word, scope))]
        if later.builds:
            lanes.append(threading.Thread(target=run_lane, args=(tally, "asan", lambda: later.directory("asan"), word, scope)))
        for lane in lanes:
            lane.start()
        for lane in [*lanes, later]:
            lane.join()
        if times > 1:
            print(f"turn {turn + 1} of {times}: {len(tally.failed)} failed until now", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one build, no sanitizers, no fuzzing")
    parser.add_argument("--both", action="store_true", help="every test in both builds, not just in one of them")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="every test so many times, in turns; the builds, the analysis and the fuzzers once")
    parser.add_argument("--busy", action="store_true", help="beside programs that keep every processor busy")
    parser.add_argument("-k", default="", metavar="WORD", help="only tests whose name has WORD in it")
    parser.add_argument("--qemu", action="store_true", help="only the tests in an emulated machine, which nothing else runs")
    parser.add_argument("--analyze", action="store_true", help="only clang-tidy, with the analyzer over every file")
    parser.add_argument("--relay", action="store_true", help="only the end-to-end tests, with sandboxes that are reached over the bridge")
    for backend in ENGINE_BACKENDS:
        parser.add_argument(f"--{backend}", action="store_true", help=f"only the end-to-end tests, with the backend {backend}")
    parser.add_argument("--cluster", action="store_true", help="only three daemons on machines of their own, under load and faults, at length")
    parser.add_argument("--kubernetes", action="store_true", help="only the backend kubernetes and the manifests, in a real cluster of this host")
    parser.add_argument("--page", action="store_true", help="only the dashboard in a browser, every screen in every size")
    parser.add_argument("--faults", action="store_true", help="only the fault sweep, which nothing else runs")
    parser.add_argument("--schemathesis", action="store_true", help="only requests that are made up from the OpenAPI document, which nothing else runs")
    parser.add_argument("--release", action="store_true", help="only the packages and the image of a release, built twice, and the data-science template")
    parser.add_argument("--upgrade", action="store_true", help="only daemons that take over from the daemons of older commits, which nothing else runs")
    options = parser.parse_args()
    tally = Tally()

    # Whoever starts us in the background has SIGINT ignored, and so would everything that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begin = time.monotonic()
    chosen = [backend for backend in ENGINE_BACKENDS if getattr(options, backend)]
    if options.analyze:
        directory = build(tally, *BUILDS[2])
        if directory:
            run_tidy(tally, directory, everything=True)
    elif options.qemu or options.faults or options.relay or options.cluster or options.kubernetes or options.page or options.schemathesis or options.upgrade or options.release or chosen:
        directory = build(tally, *BUILDS[0])
        for backend in chosen if directory else []:
            with EngineOfRun():
                run_end_to_end(tally, "gcc", directory, options.k, backend=backend)
        if directory and options.relay:
            run_end_to_end(tally, "gcc", directory, options.k, relay=True)
        if directory and options.page:
            os.environ["SANDGLASS_PAGE"] = "1"
            run_end_to_end(tally, "gcc", directory, options.k, ["tests/e2e/test_dashboard.py"])
        if directory and options.qemu:
            run_in_machine(tally, directory)
        if directory and options.kubernetes:
            run_kubernetes(tally, directory, options.k)
        if directory and options.cluster:
            run_storms(tally, directory)
            step(tally, "cluster: a store without fencing is found out", ["/usr/bin/python3", "tests/cluster/unfenced.py", str(directory / "unfenced")])
        if directory and options.faults:
            run_faults(tally, directory, options.k)
        if directory and options.release:
            os.environ["SANDGLASS_RELEASE"] = "1"
            with EngineOfRun():
                run_end_to_end(tally, "gcc", directory, options.k, ["tests/e2e/test_release.py", "tests/e2e/test_template_data_science.py"])
        if directory and options.upgrade:
            run_upgrade(tally, directory, options.k)
        if directory and options.schemathesis:
            step(tally, "answers to requests that schemathesis makes up", ["tests/sdk/fuzz", str(directory)])
    else:
        with EngineOfRun(), Load() if options.busy else contextlib.nullcontext():
            run_all(tally, "quick" if options.quick else "both" if options.both else "once", options.k, options.times)
    check_skips(tally)
    print(f"all: {time.monotonic() - begin:.0f} s")
    for name, reason in tally.skipped:
        print(f"skipped {name}: {reason}")
    for name, _ in tally.failed:
        print(f"FAILED {name}")
    skipped = f", {len(tally.skipped)} skipped" if tally.skipped else ""
    print(f"{tally.passed} passed, {len(tally.failed)} failed{skipped}")
    return 1 if tally.failed or not tally.passed else 0


sys.exit(main())
