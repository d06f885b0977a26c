# SPDX-License-Identifier: Apache-2.0
"""Runs the pods of the API server that is played: each container is a process in namespaces of its own, above the host's files, with the pod's volumes.

What an image holds is not played: every image is the host. What a kubelet says of a pod is.
"""
import base64
import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading
import time

from kubernetes import objects, pod_network

NODE = "played-node"
GRACE_SECONDS = 30  # where the pod does not say
# What a container sees: the host's files below a layer of its own, without the host's temporary ones.
ENTER = """set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs {place}
mkdir {place}/upper {place}/work {place}/root
mount -t overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work overlay {place}/root
mount --rbind /dev {place}/root/dev
mount -t tmpfs -o mode=1777 tmpfs {place}/root/tmp
{volumes}
mount -t proc proc {place}/root/proc
ip link set lo up || true
exec setpriv {identity} chroot {place}/root /bin/sh -c {inner} sh "$@"
"""


class Pod:
    """One pod that runs. Changes of its status go to the store; `ended` is set when nothing of it is left."""

    def __init__(self, store, item, directory, missing_images):
        self.store, self.spec = store, item["spec"]
        self.namespace, self.name, self.uid = (item["metadata"][key] for key in ("namespace", "name", "uid"))
        self.directory = pathlib.Path(directory) / self.uid
        self.missing_images = missing_images
        self.processes = {}  # of containers, by name
        self.address = None  # of one whose container names ports
        self.is_judged = False  # a test has said how it ended
        self.is_deleted = threading.Event()
        self.ended = threading.Event()
        threading.Thread(target=self.live, daemon=True).start()

    def live(self):
        try:
            self.run()
        finally:
            self.ended.set()

    def run(self):
        self.directory.mkdir(parents=True)
        self.say(phase="Pending", condition=("PodScheduled", "True"))
        missing = next((one["image"] for one in self.containers() if one["image"] in self.missing_images), None)
        if missing:
            self.say_waiting("ErrImageNeverPull", f"Container image \"{missing}\" is not present with pull policy of Never")
            self.is_deleted.wait()
        elif self.run_first():
            self.start_all()
            self.wait_for_end()
        self.remove()

    def containers(self):
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def run_first(self):
        for container in self.spec.get("initContainers", []):
            code = self.start(container).wait()
            if code:
                self.say(phase="Failed", terminated={"exitCode": code, "reason": "Error"})
                self.is_deleted.wait()
                return False
        return not self.is_deleted.is_set()

    def start_all(self):
        for container in self.spec["containers"]:
            self.processes[container["name"]] = self.start(container)
        self.make_reachable()
        self.say(phase="Running", condition=("Ready", "True"), running=True)

    def make_reachable(self):
        ports = [port["containerPort"] for container in self.spec["containers"] for port in container.get("ports", [])]
        main = next(iter(self.processes.values()))
        while ports and main.poll() is None and not self.is_deleted.is_set():
            with contextlib.suppress(OSError):
                pid = first_child(main.pid)
                if pid and os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                    self.address = pod_network.PodAddress(f"/proc/{pid}/ns/net", ports)
                    return
            time.sleep(0.005)

    def wait_for_end(self):
        """Of the first container, or of the pod by deletion or deadline."""
        main = next(iter(self.processes.values()))
        deadline = time.monotonic() + self.spec.get("activeDeadlineSeconds", 10**9)
        while main.poll() is None and not self.is_deleted.wait(0.02):
            if time.monotonic() > deadline:
                self.kill()
                self.say(phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline")
                self.is_deleted.wait()
                return
        if self.is_judged:
            self.is_deleted.wait()
        elif main.poll() is not None and not self.is_deleted.is_set():
            code = main.returncode if main.returncode >= 0 else 128 - main.returncode
            self.say(phase="Failed" if code else "Succeeded", condition=("Ready", "False"), terminated={"exitCode": code, "reason": "Error" if code else "Completed"})
            self.is_deleted.wait()

    def start(self, container):
        place = self.directory / container["name"]
        place.mkdir()
        context = {**self.spec.get("securityContext", {}), **container.get("securityContext", {})}
        user, group = context.get("runAsUser", 0), context.get("runAsGroup", context.get("runAsUser", 0))
        volumes = "\n".join(self.volume(mount, place, context.get("fsGroup")) for mount in container.get("volumeMounts", []))
        inner = f"cd {shlex.quote(container.get('workingDir', '/'))} && exec setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs \"$@\""
        script = ENTER.format(place=place, volumes=volumes, identity="--no-new-privs", inner=shlex.quote(inner))
        command = [*container.get("command", ["/bin/sh", "-c", "sleep infinity"]), *container.get("args", [])]
        environment = {"PATH": os.environ["PATH"], "HOSTNAME": self.name} | {one["name"]: one.get("value", "") for one in container.get("env", [])}
        with open(self.directory / f"{container['name']}.log", "ab") as log:
            return subprocess.Popen(["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script, "sh", *command],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)

    def volume(self, mount, place, group):
        source = self.directory / "volumes" / mount["name"]
        if not source.exists():
            self.fill(source, next(one for one in self.spec.get("volumes", []) if one["name"] == mount["name"]), group)
        target = shlex.quote(f"{place}/root{mount['mountPath']}")
        return f"mkdir -p {target}; mount --bind {source} {target}" + (f"; mount -o remount,bind,ro {target}" if mount.get("readOnly") else "")

    def fill(self, source, volume, group):
        """An emptyDir, or the files of a ConfigMap."""
        source.mkdir(parents=True)
        for name, content in self.files_of(volume.get("configMap")).items():
            (source / name).write_bytes(content)
            (source / name).chmod(volume["configMap"].get("defaultMode", 0o644))
        source.chmod(0o777)
        if group is not None:
            os.chown(source, -1, group)
            source.chmod(0o2777)

    def files_of(self, reference):
        if not reference:
            return {}
        item = self.store.get("configmaps", self.namespace, reference["name"])
        return {name: text.encode() for name, text in item.get("data", {}).items()} | {
            name: base64.b64decode(text) for name, text in item.get("binaryData", {}).items()}

    def exec(self, container, command, stdin):
        """A process in a container of this pod, or None when it does not run."""
        process = self.processes.get(container or self.spec["containers"][0]["name"])
        pid = first_child(process.pid) if process and process.poll() is None else None
        if not pid:
            return None
        spec = next(one for one in self.spec["containers"] if one["name"] == (container or one["name"]))
        context = {**self.spec.get("securityContext", {}), **spec.get("securityContext", {})}
        user, group = context.get("runAsUser", 0), context.get("runAsGroup", context.get("runAsUser", 0))
        return subprocess.Popen(["nsenter", "-t", pid, "-m", "-p", "-n", "-u", "-i", "-r", "-w", "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
                                 "--no-new-privs", *command], stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def kill(self, number=signal.SIGKILL):
        for process in self.processes.values():
            pid = first_child(process.pid)
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(int(pid) if pid else process.pid, number)

    def delete(self, grace):
        """As a kubelet: asks, waits, kills; the record goes when nothing is left."""
        self.grace = grace
        self.is_deleted.set()

    def remove(self):
        self.is_deleted.wait()
        self.kill(signal.SIGTERM)
        deadline = time.monotonic() + getattr(self, "grace", GRACE_SECONDS)
        while any(process.poll() is None for process in self.processes.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill()
        for process in self.processes.values():
            process.wait()
        if self.address:
            self.address.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.store.remove("pods", self.namespace, self.name)

    # --- what the kubelet says ---

    def say(self, phase, condition=None, running=False, terminated=None, reason=None, message=None):
        def change(item):
            state = item.setdefault("status", {})
            state["phase"] = phase
            item["spec"]["nodeName"] = NODE
            if reason:
                state |= {"reason": reason, "message": message}
            if condition:
                kept = [row for row in state.get("conditions", []) if row["type"] != condition[0]]
                state["conditions"] = [*kept, {"type": condition[0], "status": condition[1], "lastTransitionTime": objects.now()}]
            if running:
                address = self.address.text if self.address else "127.0.0.1"
                state |= {"podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1", "startTime": objects.now()}
                state["containerStatuses"] = [self.container_state(one, {"running": {"startedAt": objects.now()}}) for one in self.spec["containers"]]
            if terminated:
                state["containerStatuses"] = [self.container_state(one, {"terminated": terminated}) for one in self.spec["containers"]]
        self.store.change("pods", self.namespace, self.name, change)

    def container_state(self, container, state):
        return {"name": container["name"], "image": container["image"], "restartCount": 0, "ready": "running" in state, "started": "running" in state, "state": state,
                "containerID": f"played://{self.uid}/{container['name']}"}

    def say_waiting(self, reason, message):
        def change(item):
            item["status"] |= {"phase": "Pending", "containerStatuses": [
                self.container_state(one, {"waiting": {"reason": reason, "message": message}}) for one in self.spec["containers"]]}
        self.store.change("pods", self.namespace, self.name, change)


def first_child(pid):
    with contextlib.suppress(OSError):
        return next(iter(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), None)
    return None
