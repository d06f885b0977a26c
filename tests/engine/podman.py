# SPDX-License-Identifier: Apache-2.0
"""A private Podman for tests: the service that answers the Engine API, with a socket, storage and state of its own.

It runs in a mount namespace of its own with an empty /run and /var/lib, so that what Podman keeps at fixed places (caches, network
state) is not the host's. Its control groups are below /libpod_parent, which all of a host's Podmans share.
"""
import json
import subprocess
import tarfile

from . import image, private

# What others unmount must go here, too: it would be in use otherwise.
NAMESPACE = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", 'mount -t tmpfs run /run && mount -t tmpfs lib /var/lib && exec "$@"', "sh"]
# Locks are by default in a segment of shared memory that all of the host's Podmans use.
SETTINGS = """[engine]
lock_type = "file"
"""


def missing():
    """Why no Podman can run here, or None."""
    return private.missing("runc", ("podman", "conmon"))


class Podman(private.Engine):
    """The service; containers go on without it, each with a `conmon` as its parent."""

    def prepare_data(self):
        """In memory: Podman flushes every file of an image that it loads."""
        data = self.directory / "data"
        if not data.exists():
            data.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1G,mode=711", "podman", data], check=True)
        return data

    def load_images(self, name="sandglass-test:1"):
        """Only one: Podman reads the layers of each anew."""
        part = self.data / "image.tar"
        with tarfile.open(image.archive_of_images()) as whole, tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
            manifest = [entry for entry in json.load(whole.extractfile("manifest.json")) if entry["RepoTags"] == [name]]
            for member in [manifest[0]["Config"], *manifest[0]["Layers"]]:
                tar.addfile(whole.getmember(member), whole.extractfile(member))
            image.add_bytes(tar, "manifest.json", json.dumps(manifest).encode())
        self.api.load(part)
        part.unlink()

    def command(self):
        directory = self.directory
        (directory / "containers.conf").write_text(SETTINGS)
        runtime = directory / "runc"  # with a state directory of its own; crun refuses hybrid control groups
        runtime.write_text(f'#!/bin/sh\nexec {private.find("runc")} --root {directory}/state "$@"\n')
        runtime.chmod(0o755)
        self.socket.unlink(missing_ok=True)
        options = {"root": self.data / "root", "runroot": directory / "run", "tmpdir": directory / "tmp", "network-config-dir": directory / "net",
                   "storage-driver": "overlay", "cgroup-manager": "cgroupfs", "events-backend": "file", "runtime": runtime}
        return [*NAMESPACE, "env", f"CONTAINERS_CONF={directory}/containers.conf", f"TMPDIR={self.data}", private.find("podman"),
                *(f"--{name}={value}" for name, value in options.items()), "system", "service", "--time=0", self.host]

    def conmons(self):
        """Containers with a process that waits for them: process numbers."""
        return [pid for pid, command in private.engine_processes(self.directory).items() if "conmon" in command.split()[0]]
