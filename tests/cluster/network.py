# SPDX-License-Identifier: Apache-2.0
"""Machines that are network namespaces: each has one address, all are ports of one bridge, and the wires between them can be cut.

The bridge is in a namespace of its own, so nothing changes in the network of the host. The rig reaches daemons and servers over
unix sockets, which no cut touches.
"""
import atexit
import os
import shutil
import signal
import subprocess

HUB = "hub"


def missing():
    """Why there can be no such network here; None when there can."""
    if os.geteuid():
        return "network namespaces need root"
    for program in ("ip", "nft", "nsenter"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            return f"there is no {program} here"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "this machine allows no network namespaces"
    return None


def run(*words, stdin=None):
    subprocess.run(words, input=stdin, text=True, check=True, capture_output=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})


class Network:
    """Network(name, machines): `name` is part of the names of the namespaces; the number of a machine is the end of its address."""

    def __init__(self, name, machines):
        self.name = name
        self.machines = {}
        self.cuts = {}
        atexit.register(self.remove)
        self.add_namespace(HUB)
        self.ip_in(HUB, "link", "add", "bridge", "type", "bridge")
        self.ip_in(HUB, "link", "set", "bridge", "up")
        for number, machine in enumerate(machines, 1):
            self.add_machine(machine, f"10.77.0.{number}")

    def namespace(self, machine):
        return f"{self.name}-{machine}"

    def add_namespace(self, machine):
        run("ip", "netns", "add", self.namespace(machine))
        self.ip_in(machine, "link", "set", "lo", "up")

    def add_machine(self, machine, address):
        self.add_namespace(machine)
        self.machines[machine] = address
        self.cuts[machine] = set()
        run("ip", "-n", self.namespace(HUB), "link", "add", f"to-{machine}", "type", "veth", "peer", "name", "eth0", "netns", self.namespace(machine))
        self.ip_in(HUB, "link", "set", f"to-{machine}", "master", "bridge", "up")
        self.ip_in(machine, "addr", "add", f"{address}/24", "dev", "eth0")
        self.ip_in(machine, "link", "set", "eth0", "up")

    def ip_in(self, machine, *words):
        run("ip", "-n", self.namespace(machine), *words)

    def prefix(self, machine):
        """A command that starts another one on that machine. Not `ip netns exec`, which mounts /sys anew, without control groups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(machine)}"]

    def cut(self, machine, other, directions=("in", "out")):
        """From now on `machine` gets nothing from `other` (in), or sends nothing to it (out): packets vanish, as in a broken network."""
        self.cuts[machine] |= {(direction, other) for direction in directions}
        self.apply(machine)

    def mend(self, machine, other):
        self.cuts[machine] -= {(direction, other) for direction in ("in", "out")}
        self.apply(machine)

    def mend_all(self):
        for machine in self.machines:
            if self.cuts[machine]:
                self.cuts[machine].clear()
                self.apply(machine)

    def apply(self, machine):
        rules = ["table inet rig", "delete table inet rig", "table inet rig {"]
        for direction, hook, field in (("in", "input", "saddr"), ("out", "output", "daddr")):
            cut = [f"ip {field} {self.machines[other]} drop" for which, other in sorted(self.cuts[machine]) if which == direction]
            rules += [f"chain {hook} {{ type filter hook {hook} priority 0;", *cut, "}"]
        run(*self.prefix(machine), "nft", "-f", "-", stdin="\n".join([*rules, "}"]) + "\n")

    def remove(self):
        for machine in [*self.machines, HUB]:
            for pid in subprocess.run(["ip", "netns", "pids", self.namespace(machine)], capture_output=True, text=True).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", self.namespace(machine)], capture_output=True)
        self.machines = {}
