# SPDX-License-Identifier: Apache-2.0
"""One engine for all that want it at a time: the workers of a test session, the programs of the contract tests.

A keeper, a process of its own, starts the engine and ends it when its last user is gone. Users hold a lock that the kernel takes back from
whoever is killed; the keeper waits until it can have that lock for itself. An engine that hangs is replaced: else hundreds of tests would
wait for their deadlines, one after the other. Whoever wants to know reads `hangs()`.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from . import image, private
from .api import Api

START_SECONDS = 120  # the first start on a machine makes the images
HANG_SECONDS = 60  # without an answer to a question that takes milliseconds
WATCH_SECONDS = 5  # between two such questions


class Shared:
    """A running engine, for as long as this object is not released or its process lives."""

    def __init__(self, name, lock):
        self.name, self.lock = name, lock
        self.directory = directory_of(name)
        self.socket = self.directory / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.api = Api(self.socket)

    def release(self):
        if self.lock:
            self.lock.close()
            self.lock = None


def directory_of(name):
    return private.PLACE / f"{private.PREFIX}{name}"


def users_path(name):
    return private.PLACE / f"{private.PREFIX}{name}.users"


def hangs_path(name):
    return image.cache_directory() / f"{name}.hangs"


def keeper_path(name):
    """Locked by the keeper for as long as it lives."""
    return image.cache_directory() / f"{name}.keeper"


def has_keeper(name):
    with contextlib.suppress(FileNotFoundError), open(keeper_path(name)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def hangs(name):
    """Of the engine of that name, which has been replaced each time: the file with what its programs were waiting for."""
    return hangs_path(name).read_text().splitlines() if hangs_path(name).exists() else []


def lock_as_user(name):
    """The file with the users' lock, or None while a keeper ends its engine."""
    lock = open(users_path(name), "a")
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.stat(users_path(name)).st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    lock.close()
    return None


def is_ready(name):
    directory = directory_of(name)
    return (directory / "ready").exists() and private.is_alive(directory) and Api(directory / "docker.sock").ping()


def use(name, **options):
    """A shared engine of that name, which is started if there is none."""
    deadline = time.monotonic() + START_SECONDS
    with open(image.cache_directory() / "using", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        while not (lock := lock_as_user(name)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the engine {name} does not end")
            time.sleep(0.02)
        try:
            private.wait_until(lambda: is_ready(name) or not has_keeper(name), START_SECONDS)  # its keeper may be replacing it
            if not is_ready(name):
                start_keeper(name, **options)
        except BaseException:
            lock.close()
            raise
    return Shared(name, lock)


def start_keeper(name, is_kept=False, **options):
    keeper = subprocess.Popen([sys.executable, "-m", "engine.shared", name, *(["--kept"] if is_kept else []), "--options", json.dumps(options)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                              cwd=pathlib.Path(__file__).resolve().parent.parent)
    first = keeper.stdout.readline()
    if first != "ready\n":
        problem = first + keeper.stdout.read()
        keeper.wait()
        raise RuntimeError(f"no engine: {problem}")
    keeper.stdout.close()
    keeper.returncode = 0  # it is nobody's child from here on: no warning that it still runs


def wait_until_ended(name, seconds=60):
    """After the last release: nothing is left when this returns True."""
    return private.wait_until(lambda: not directory_of(name).exists() and not users_path(name).exists(), seconds)


class Watch(threading.Thread):
    """Asks the engine all the time whether it hangs."""

    def __init__(self, engine, seconds):
        super().__init__(daemon=True)
        self.engine, self.seconds = engine, seconds
        self.hangs = threading.Event()
        self.start()

    def run(self):
        while True:
            if not self.hangs.is_set() and self.engine.is_running() and self.engine.hangs(self.seconds):
                self.hangs.set()
            time.sleep(WATCH_SECONDS)


class Keeper:
    def __init__(self, name, is_kept, hang_seconds=HANG_SECONDS, **options):
        self.name, self.is_kept, self.hang_seconds = name, is_kept, hang_seconds
        self.engine = private.Engine(name, **options)
        self.is_told_to_end = False
        signal.signal(signal.SIGTERM, self.on_terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def on_terminate(self, *_):
        self.is_told_to_end = True

    def begin(self):
        self.engine.start()
        self.engine.load_images()
        (self.engine.directory / "keeper.pid").write_text(str(os.getpid()))
        (self.engine.directory / "ready").touch()

    def begin_anew(self):
        stacks = image.cache_directory() / f"hang-{self.name}-{len(hangs(self.name))}.log"
        stacks.write_text(self.engine.stacks())
        with open(hangs_path(self.name), "a") as told:
            told.write(f"{stacks}\n")
        self.engine.end(by_force=True)
        self.begin()

    def run(self):
        users = open(users_path(self.name), "a")
        alive = open(keeper_path(self.name), "w")
        fcntl.flock(alive, fcntl.LOCK_EX)
        hangs_path(self.name).unlink(missing_ok=True)
        try:
            self.begin()
            print("ready", flush=True)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            watch = Watch(self.engine, self.hang_seconds)
            while not self.is_told_to_end and self.engine.is_running() and not self.is_alone(users):
                if watch.hangs.is_set():
                    self.begin_anew()
                    watch.hangs.clear()
                time.sleep(0.1)
        finally:
            self.engine.end()
            users_path(self.name).unlink(missing_ok=True)
            keeper_path(self.name).unlink(missing_ok=True)

    def is_alone(self, users):
        if self.is_kept:
            return False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


def stop_keeper(name, seconds=60):
    """Ends a shared engine whoever uses it; False when there is none."""
    directory = directory_of(name)
    if not private.is_alive(directory):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((directory / "keeper.pid").read_text()), signal.SIGTERM)
    if not wait_until_ended(name, seconds):
        raise RuntimeError(f"the engine in {directory} does not end")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    Keeper(arguments.name, arguments.kept, **arguments.options).run()


if __name__ == "__main__":
    main()
