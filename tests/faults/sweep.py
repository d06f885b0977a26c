# SPDX-License-Identifier: Apache-2.0
"""Makes one call after the other of the daemon fail, be short or kill it, and checks that every promise is kept: see scenario.py for one case.

A run without a fault tells what is called from where. Each such place gets each error that can happen there, at an occurrence that the seed chooses; what does
not fit into the time is left out. Prints TAP; a case that failed says how to repeat it alone. Places are addresses: they are good for the same build only.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()

# Where conftest.py finds the program.
os.environ.setdefault("SANDGLASS_BUILD", str(HERE.parent.parent.parent / "build-gcc"))
import scenario  # noqa: E402

# The same order as in inject.c.
CALLS = ("write pwrite writev send sendmsg splice sendfile fsync fdatasync ftruncate fallocate open read pread recv recvmsg accept socket pipe memfd "
         "connect rename link unlink mkdir alloc").split()
OTHER, FILE, STREAM, PACKET, PIPE, CREATE = range(6)
KILLS = ["kill-before", "kill-after"]
WRITES = {FILE: ["EIO", "ENOSPC", "short", "disk-full", *KILLS], STREAM: ["EPIPE", "ECONNRESET", "EINTR", "EAGAIN", "short", *KILLS],
          PACKET: ["EPIPE", "EAGAIN", "ENOBUFS", *KILLS], PIPE: ["EAGAIN", "EINTR", "short", *KILLS], OTHER: KILLS}
READS = {FILE: ["EIO", "short", *KILLS], STREAM: ["ECONNRESET", "EINTR", "EAGAIN", "short", *KILLS],
         PACKET: ["ECONNRESET", "EINTR", "EAGAIN", "no-fds", *KILLS], PIPE: ["EINTR", "EAGAIN", "short", *KILLS], OTHER: ["kill-after"]}
NAMES = ["EIO", "ENOSPC", *KILLS]
ACTIONS = {
    **dict.fromkeys(["write", "pwrite", "writev", "send", "sendmsg", "splice", "sendfile"], WRITES),
    **dict.fromkeys(["read", "pread", "recv", "recvmsg"], READS),
    **dict.fromkeys(["fsync", "fdatasync", "ftruncate", "fallocate"], {FILE: NAMES}),
    **dict.fromkeys(["rename", "link", "mkdir"], {OTHER: NAMES}),
    "unlink": {OTHER: ["EIO", *KILLS]},
    "open": {FILE: ["EMFILE", "EIO", "no-files", *KILLS], CREATE: ["EMFILE", "ENOSPC", "EIO", "no-files", "disk-full", *KILLS]},
    "accept": {OTHER: ["EMFILE", "ECONNABORTED", "EINTR", "no-files", *KILLS]},
    **dict.fromkeys(["socket", "pipe", "memfd"], {OTHER: ["EMFILE", "no-files", "kill-after"]}),
    "connect": {OTHER: ["ECONNREFUSED", "EAGAIN", "EINTR", *KILLS]},
    "alloc": {OTHER: ["ENOMEM"]},
}


def plan(entries, seed):
    """Cases without end, as text: every place and action once, then again at other occurrences."""
    places = collections.Counter((call, kind, module, offset) for call, kind, module, offset in entries)
    pairs = [(place, action) for place in sorted(places) for action in ACTIONS[CALLS[place[0]]].get(place[1], [])]
    chance = random.Random(seed)
    told = set()
    for _ in range(20):
        chance.shuffle(pairs)
        for (call, kind, module, offset), action in pairs:
            occurrence = chance.randint(1, places[call, kind, module, offset])
            case = f"{CALLS[call]}@{module}+{offset:x}#{occurrence}={action}"
            if case not in told:
                told.add(case)
                yield case


class Names:
    """Where in the source a case is."""

    def __init__(self, binary):
        self.binary = binary
        self.known = {}

    def of(self, case):
        module, offset = case.split("@")[1].split("#")[0].split("+")
        if module != "0":
            return scenario.module_name(module)
        if offset not in self.known:
            text = subprocess.run(["addr2line", "-f", "-i", "-s", "-e", self.binary, hex(int(offset, 16) - 1)], capture_output=True, text=True).stdout
            lines = text.split("\n")
            frames = [(name, place.split(" ")[0]) for name, place in zip(lines[::2], lines[1::2])]
            self.known[offset] = " in ".join(f"{name} {place}" for name, place in frames if not place.split(":")[0].endswith("2.h"))
        return self.known[offset]


def run_case(options, case):
    """In a process of its own: its instance name marks what belongs to it."""
    command = ["/usr/bin/python3", str(HERE), "--backend", options.backend, "--case", case]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    except subprocess.TimeoutExpired as problem:
        return case, 1, f"the case itself hangs: {problem.stdout!r}"
    return case, result.returncode, result.stdout + result.stderr


def run_one(options):
    """Exits with 0, with 1 when something is wrong, and with 3 when the fault was not reached."""
    case = scenario.Case(options.backend, options.case)
    reached = case.execute()
    for problem in case.problems:
        print(f"# {problem}")
    if case.problems:
        print("".join(f"#   {line}\n" for line in case.log[-3000:].splitlines()))
    return 1 if case.problems else 0 if reached else 3


def trace(options):
    case = scenario.Case(options.backend)
    keep, case.sweep = case.sweep, lambda: None
    case.execute()
    entries = list(case.entries())
    keep()
    if case.problems:
        print("\n".join(f"# without any fault: {problem}" for problem in case.problems))
    return entries, not case.problems


def sweep(options):
    entries, is_sound = trace(options)
    print(f"# {len(entries)} calls from {len(set(entries))} places; seed {options.seed}", flush=True)
    print(f"{'ok' if is_sound else 'not ok'} 1 - without a fault everything works", flush=True)
    names = Names(str(scenario.conftest.SANDGLASS))
    cases = (case for case in plan(entries, options.seed) if options.word in f"{case} {names.of(case)}")
    deadline = time.monotonic() + options.seconds
    number, failed, missed = 1, not is_sound, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = set()
        while True:
            while len(running) < options.jobs and time.monotonic() < deadline and number + len(running) <= options.count:
                case = next(cases, None)
                if case is None:
                    break
                running.add(pool.submit(run_case, options, case))
            if not running:
                break
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for case, code, output in (future.result() for future in done):
                number += 1
                missed += code == 3
                failed = failed or code not in (0, 3)
                print(f"{'ok' if code in (0, 3) else 'not ok'} {number} - {case} ({names.of(case)})", flush=True)
                if code not in (0, 3):
                    print(f"{output}# again: SANDGLASS_BUILD={scenario.conftest.BUILD} {HERE} --backend {options.backend} --case '{case}'", flush=True)
    print(f"1..{number}\n# {number - 1} cases, {missed} of them not reached, seed {options.seed}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="native")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--count", type=int, default=1 << 30, help="at most so many cases")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--word", default="", help="only cases with this in their name: a call, an error, a function")
    parser.add_argument("--case", help="only this one")
    options = parser.parse_args()
    return run_one(options) if options.case else sweep(options)


sys.exit(main())
