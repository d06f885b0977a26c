# SPDX-License-Identifier: Apache-2.0
"""The rig is tested by breaking what it is for: a build whose store does not refuse the writes of a node that was taken over has to be found out.

tests/cluster/unfenced.py DIRECTORY: copies the tree there, takes the comparison of epochs out of two scripts of the Redis store, builds the
daemon, and runs storms of nodes that stand still or lose the store until the checker finds something. The product has no switch for this.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FAULTS, TRIES = 6, 3

# In each script: what is there, and what takes its place.
REFUSAL = r"if stored > own then\n    return \{'fenced'[^\n]*\}\nend\n"
COMMIT = [
    (REFUSAL, "own = math.max(stored, own)\naccept = stored > tonumber(epoch) and '1' or accept\n"),
    (re.escape("if stored == own and was[2] == number then"), "if stored == tonumber(epoch) and was[2] == number then"),
    (re.escape("redis.call('HSET', home, 'epoch', epoch, 'sequence'"), "redis.call('HSET', home, 'epoch', string.format('%.0f', own), 'sequence'"),
]
RENEW = [(REFUSAL, "")]


def copy_tree(directory):
    for name in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def break_fencing(directory):
    for name, changes in (("commit.lua", COMMIT), ("renew.lua", RENEW)):
        script = directory / "src" / "store" / "redis" / name
        text = script.read_text()
        for old, new in changes:
            text, times = re.subn(old, new.replace("\\", "\\\\"), text)
            assert times == 1, f"{name} has changed: tell {__file__} how to break it"
        script.write_text(text)


def main():
    directory = pathlib.Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    copy_tree(directory)
    break_fencing(directory)
    build = directory / "build"
    subprocess.run(["meson", "setup", build, directory], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, "sandglass", "tests/cluster/cluster_clock.so"], check=True, stdout=subprocess.DEVNULL)
    for _ in range(TRIES):
        done = subprocess.run([sys.executable, ROOT / "tests" / "cluster" / "storm.py", "--faults", str(FAULTS), "--only", "pause_daemon,cut_from_store"],
                              env={**os.environ, "SANDGLASS_BUILD": str(build)}, capture_output=True, text=True)
        print(done.stdout)
        found = [line for line in done.stdout.splitlines() if line.startswith("not ok") and "the rig" not in line]
        if found:
            print(f"ok 1 - a store without fencing is found out by {len(found)} rules")
            return 0
    print(f"not ok 1 - a store without fencing is found out ({TRIES} storms of {FAULTS} faults)")
    return 1


if __name__ == "__main__":
    sys.exit(main())
