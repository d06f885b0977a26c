# SPDX-License-Identifier: Apache-2.0
"""The page "From one machine to many": its commands run, each on the machine that it names, and its settings are accepted."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import pytest

import network
import nodes
import servers

PAGE = (nodes.ROOT / "docs" / "how-to" / "cluster.md").read_text()
MACHINES = {"alpha": "10.77.0.1", "beta": "10.77.0.2", "redis": "10.77.0.3"}
USER = 62420  # of the daemon where no user sandglass exists
WHY_NOT = network.missing() or servers.missing()


def steps():
    """(machine, commands) of each block, in the order of the page: the last "On MACHINE:" before it says where."""
    found = []
    machine = None
    for match in re.finditer(r"\bOn (alpha|beta|redis):\n|^```sh\n(.*?)^```", PAGE, re.M | re.S):
        machine = match[1] or machine
        if match[2]:
            found.append((machine, match[2]))
    return found


class Machine:
    """A shell in a network namespace; files that a machine has of its own are below a directory."""

    def __init__(self, net, name, directory):
        self.net, self.name, self.directory = net, name, directory
        self.environment = ""  # what one block exports the next one has, as in one shell
        self.programs = directory / "bin"
        for path in (directory, self.programs, directory / "etc" / "sandglass", directory / "etc" / "redis", directory / "root"):
            path.mkdir(parents=True)
            os.chmod(path, 0o755)
        (self.programs / "sandglass").symlink_to(nodes.SANDGLASS)
        self.program("systemctl", SYSTEMCTL.format(directory=directory, name=name))
        self.program("apt-get", "exit 0")
        self.program("chown", f'[ "$1" = sandglass: ] && exec {shutil.which("chown")} {USER} "$2"')  # there may be no such user here
        self.program("scp", 'shift; cp --preserve=mode "$1" "$2" ' + f"{directory.parent}/beta/etc/sandglass/")
        self.program("ssh", f'[ "$2" != mkdir ] || exit 0; sed s:{directory.parent}/alpha/:{directory.parent}/beta/:g | bash -c "${{2//alpha/beta}}"')

    def program(self, name, text):
        path = self.programs / name
        path.write_text(f"#!/bin/bash\nset -eu\n{text}\n")
        path.chmod(0o755)

    def run(self, commands):
        for path in ("/etc/sandglass", "/etc/redis", "/root", "/run/sandglass"):
            commands = commands.replace(path, f"{self.directory}{path}")
        script = f"set -euo pipefail\n{self.environment}\n{commands}\n"
        self.environment += "\n".join(line for line in commands.splitlines() if line.startswith("export "))
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}:/usr/sbin", "SANDGLASS_URL": f"unix:{self.directory}/run/sandglass/sandglass.sock"}
        done = subprocess.run([*self.net.prefix(self.name), "bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
        log = self.directory / "log"
        assert done.returncode == 0, (self.name, commands, done.stdout, done.stderr, log.read_text()[-3000:] if log.exists() else "")
        return done.stdout


# What systemd does with the unit of packaging/: starts the daemon, or Redis, and waits until it serves. Machines share a host name here.
SYSTEMCTL = """
state={directory}
case "$*" in
"restart redis-server")
    redis-server $state/etc/redis/redis.conf --dir $state --daemonize yes --save '' --pidfile $state/redis.pid >/dev/null
    until redis-cli -a change-this-password --no-auth-warning ping 2>/dev/null | grep -q PONG; do sleep 0.05; done ;;
"enable --now sandglass" | "start sandglass")
    grep -q ^instance: $state/etc/sandglass/sandglass.yaml || echo "instance: pages$PPID-{name}
state_dir: $state/state
pool: {{size: 1}}
shutdown: {{policy: destroy}}" >>$state/etc/sandglass/sandglass.yaml
    setsid sandglass serve --config $state/etc/sandglass/sandglass.yaml </dev/null >>$state/log 2>&1 &
    echo $! >$state/daemon.pid
    until curl -fs --unix-socket $state/run/sandglass/sandglass.sock http://localhost/readyz >/dev/null; do sleep 0.05; kill -0 $(cat $state/daemon.pid); done ;;
"kill -s KILL sandglass") kill -9 $(cat $state/daemon.pid) ;;
"stop sandglass") kill $(cat $state/daemon.pid); while kill -0 $(cat $state/daemon.pid) 2>/dev/null; do sleep 0.05; done ;;
*) echo "systemctl $*" is not known >&2; exit 1 ;;
esac
"""


@pytest.fixture
def machines():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sgp-"))
    os.chmod(directory, 0o755)  # the daemon drops root
    net = network.Network(f"sgp-{os.getpid()}", MACHINES)
    assert net.machines == MACHINES
    made = {name: Machine(net, name, directory / name) for name in MACHINES}
    yield made
    for name in ("alpha", "beta"):
        if (made[name].directory / "daemon.pid").exists():
            subprocess.run([made[name].programs / "systemctl", "stop", "sandglass"], capture_output=True, timeout=60)
    net.remove()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
def test_the_commands_of_the_page(machines):
    written = []
    for machine, commands in steps():
        if "node.id" not in commands and machine == "beta" and "operator.key" in commands:
            key = machines["alpha"].directory / "root" / "operator.key"
            (machines["beta"].directory / "root" / "operator.key").write_text(key.read_text())  # the operator carries it
        written.append((machine, commands, machines[machine].run(commands)))
    outputs = [output for _, _, output in written]
    nodes_listed = next(output for _, commands, output in written if commands.endswith("sandglass nodes\n"))
    assert [line.split("\t")[:2] for line in sorted(nodes_listed.splitlines()[-2:])] == [["alpha*", "up"], ["beta", "up"]], nodes_listed
    assert any("hello" in output for output in outputs) and any("here again" in output for output in outputs)
    assert any(re.search(r"^beta\tdraining", output, re.M) for output in outputs), outputs


def test_the_settings_of_the_page_are_accepted(tmp_path):
    for name in ("secret", "ca.pem", "alpha.pem", "alpha.key"):
        (tmp_path / name).write_text("x" * 64)
        os.chmod(tmp_path / name, 0o600)
    found = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    assert found
    for number, block in enumerate(found):
        config = tmp_path / f"{number}.yaml"
        config.write_text(block.replace("/etc/sandglass", str(tmp_path)))
        done = subprocess.run([nodes.SANDGLASS, "config", "check", config], capture_output=True, text=True, timeout=20, env={**os.environ, "REDIS_PASSWORD": "sesame"})
        assert done.returncode == 0, (block, done.stdout, done.stderr)


def test_the_page_names_only_commands_that_exist():
    help_text = subprocess.run([nodes.SANDGLASS, "--help"], capture_output=True, text=True, check=True).stdout
    used = {shlex.split(line)[1] for _, commands in steps() for line in commands.splitlines() if line.startswith("sandglass ")}
    assert used and all(re.search(rf"^  {name}\b", help_text, re.M) for name in used), used
