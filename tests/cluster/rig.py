# SPDX-License-Identifier: Apache-2.0
"""A cluster to break: daemons on machines of their own, a store, keys of owners, a place where programs say that they ran, and the history.

What is real: daemons, launchers, sandboxes (native), Redis, Sentinel, the network stack of the kernel. What is simulated: a machine
is a network namespace (its processes and file systems are the host's), and clocks jump by a preloaded library (clock.c).
"""
import json
import os
import pathlib
import random
import secrets
import shutil
import subprocess
import tempfile
import threading
import time

import network
import nodes
import servers

OWNERS = ("ann", "bob", "cy")
LEASE_S = 3
PRICE = 3.6  # of an hour, which is reserved at once: no pause costs more than that
PAID_CAP = 2  # sandboxes that an owner can pay at a time


def missing():
    return network.missing() or servers.missing()


def now():
    """Seconds of the clock that counts since boot: programs in sandboxes read the same one in /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Recorder:
    """The history, from all threads."""

    def __init__(self):
        self.lock = threading.Lock()
        self.entries = []

    def add(self, what, **fields):
        entry = {"what": what, **fields}
        with self.lock:
            self.entries.append(entry)
        return entry

    def save(self, path):
        with self.lock:
            pathlib.Path(path).write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))


class Rig:
    """Rig(names, is_replicated): not started. `is_clustered`: the daemons are nodes of one cluster; else there may be only one."""

    def __init__(self, names=("a", "b", "c"), is_replicated=False, is_clustered=True, settings=None, cap=8):
        self.instance = f"rig{os.getpid()}-{secrets.token_hex(2)}"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sgc-"))
        os.chmod(self.directory, 0o711)
        self.cap = cap
        self.recorder = Recorder()
        self.network = network.Network(f"sgc-{os.getpid()}-{secrets.token_hex(2)}", [*names, *servers.Store.MACHINES])
        self.store = servers.Store(self.network, self.directory / "store", is_replicated)
        self.witness = self.directory / "witness"
        self.witness.mkdir()
        (self.witness / "ran").touch()
        for path in (self.witness, self.witness / "ran"):
            os.chmod(path, 0o777)
        self.keys = self.make_keys()
        self.secret = self.directory / "etc" / "secret"
        self.secret.write_text(secrets.token_hex(32))
        os.chmod(self.secret, 0o600)
        self.is_clustered = is_clustered
        self.nodes = {name: nodes.Node(self.network, name, self.directory / name, self.instance, self.settings_of(name, settings or {})) for name in names}

    def make_keys(self):
        directory = self.directory / "etc"
        directory.mkdir(mode=0o755)
        keys = {}
        for principal in (*OWNERS, "root"):
            made = subprocess.run([nodes.SANDGLASS, "key", "create", "--principal", principal, "--json", "--keys-file", directory / "keys",
                                   *(("--role", "admin") if principal == "root" else ())], capture_output=True, text=True, check=True)
            keys[principal] = json.loads(made.stdout)["key"]
        return keys

    def settings_of(self, name, more):
        common = {
            "auth": {"mode": "keys", "keys_file": str(self.directory / "etc" / "keys")},
            "store": {"kind": "redis", "redis": {**self.store.settings(), "prefix": "rig:"}},
            "sandbox": {"backend": "native", "memory": "128m", "pids": 64, "disk": "64m", "env": {"set": {"NODE": name}},
                        "mounts": [{"host_path": str(self.witness), "path": "/witness", "read_only": False}]},
            "session": {"idle_timeout": "24h", "max_lifetime": "72h"},
            "pool": {"size": 1}, "capacity": {"max_per_owner": self.cap, "overflow": "reject"},
            "flavors": [{"name": "cpu-basic"}, {"name": "paid", "price_per_hour": PRICE}],
            "budget": {"owner_cap": PAID_CAP * PRICE + 0.5, "session_cap": PRICE + 0.5, "window": "1h"},
            "shutdown": {"policy": "keep", "timeout": "15s"},
            "http": {"rate_limit": 0},
        }
        if self.is_clustered:
            common["node"] = {"id": name, "address": f"http://{self.network.machines[name]}:{nodes.PORT}", "lease": f"{LEASE_S}s",
                              "secret_file": str(self.secret)}
        for key, value in more.items():
            common[key] = {**common.get(key, {}), **value} if isinstance(value, dict) else value
        return common

    def start(self):
        self.store.start()
        for node in self.nodes.values():
            node.start(wait=False)
        for node in self.nodes.values():
            node.wait()

    def any_node(self, chance=random):
        return chance.choice(list(self.nodes.values()))

    def read_witness(self):
        """What programs have said: token, session, node, time. A line that is cut off was not written by a program of ours."""
        for line in (self.witness / "ran").read_text().split("\n")[:-1]:
            words = line.split()
            if len(words) == 4:
                self.recorder.add("ran", token=words[0], session=words[1], node=words[2], at=float(words[3]))

    def stop(self):
        """Stops the daemons, and notes what they have left; returns what went wrong."""
        problems = [problem for problem in [node.stop() for node in self.nodes.values()] if problem]
        deadline = time.monotonic() + 15
        while any((left := {node.name: node.leftovers() for node in self.nodes.values()}).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for name, found in left.items():
            for kind, what in found:
                self.recorder.add("left", node=name, kind=kind, name=what)
        return problems

    def remove(self):
        """Removes all that the rig has made, whatever still runs."""
        for node in self.nodes.values():
            node.sweep()
        self.store.stop()
        self.network.remove()
        shutil.rmtree(self.directory, ignore_errors=True)
