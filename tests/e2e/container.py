# SPDX-License-Identifier: Apache-2.0
"""A container as Docker and Podman make it, and a pod as Kubernetes does, by crun alone: no engine, no image."""
import json
import os
import pathlib
import shutil
import subprocess
import uuid

LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
DIRECTORIES = ["usr", "etc", "proc", "dev", "sys", "tmp", "run", "root", "home", "opt/sandglass", "var/lib"]
DOCKER_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
                       "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"]
REFUSED_CALLS = ["mount", "umount2", "unshare", "setns", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount",
                 "open_tree", "mount_setattr", "bpf", "perf_event_open", "keyctl", "add_key", "request_key", "io_uring_setup",
                 "userfaultfd", "quotactl", "sethostname", "setdomainname", "swapon", "reboot", "init_module", "open_by_handle_at"]
NAMESPACE_FLAGS = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]

# Debian's crun refuses a host with version 1 of control groups beside a version 2 that has any controller; it is shown one
# that has none.
COVERED = pathlib.Path("/sys/fs/cgroup/unified/cgroup.controllers")
COVER = ["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {COVERED} && exec "$@"', "sh"]


CARELESS = """
import os, sys
child = os.fork()
if child == 0:
    os.execv("/bin/sh", ["sh", "-c", sys.argv[1]])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def missing():
    """Why no container can be made here, or None."""
    if os.geteuid() != 0:
        return "containers are made as root"
    return None if shutil.which("crun") else "crun is not installed"


def seccomp():
    """What the engines' default profiles refuse without CAP_SYS_ADMIN, as far as it concerns sandboxes."""
    clone = [{"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
              "args": [{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}]} for flag in NAMESPACE_FLAGS]
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"] if os.uname().machine == "x86_64" else [],
            "syscalls": [{"names": REFUSED_CALLS, "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
                         {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}, *clone]}


class Container:
    """A directory with a root whose /usr is the host's; `run` starts a shell script in it and waits for the end."""

    def __init__(self, work, program, uid=0, capabilities=(), filtered=True, no_new_privileges=False, masked=True):
        self.place = work / f"container-{uuid.uuid4().hex[:8]}"
        self.root = self.place / "root"
        self.program, self.uid, self.capabilities = pathlib.Path(program), uid, [f"CAP_{name}" for name in capabilities]
        self.filtered, self.no_new_privileges, self.masked = filtered, no_new_privileges, masked
        for name in DIRECTORIES:
            (self.root / name).mkdir(parents=True)
        for name, target in LINKS.items():
            (self.root / name).symlink_to(target)
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n")
        (self.root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
        shutil.copytree("/etc/alternatives", self.root / "etc/alternatives", symlinks=True)
        if pathlib.Path("/etc/ld.so.cache").exists():
            shutil.copy("/etc/ld.so.cache", self.root / "etc/ld.so.cache")
        os.chown(self.root / "home", 1000, 1000)
        os.chmod(self.root / "tmp", 0o1777)

    def config(self, arguments):
        def mount(target, kind, *options, source=None):
            return {"destination": target, "type": kind, "source": str(source or kind), "options": list(options)}

        sets = ("bounding", "permitted", "effective")
        return {
            "ociVersion": "1.0.2", "hostname": "box", "root": {"path": str(self.root), "readonly": False},
            "process": {"terminal": False, "user": {"uid": self.uid, "gid": self.uid}, "args": arguments, "cwd": "/",
                        "env": ["PATH=/opt/sandglass:/usr/bin:/usr/sbin", "HOME=" + ("/home" if self.uid else "/root")],
                        "noNewPrivileges": self.no_new_privileges,
                        "capabilities": {name: self.capabilities if not self.uid or name == "bounding" else [] for name in sets}},
            "mounts": [mount("/proc", "proc", "nosuid", "noexec", "nodev"),
                       mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
                       mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
                       mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
                       mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
                       mount("/sys/fs/cgroup", "bind", "rbind", "rro", source="/sys/fs/cgroup"),
                       mount("/usr", "bind", "bind", "ro", source="/usr"),
                       mount("/opt/sandglass", "bind", "bind", "ro", source=self.program.parent)],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
                      "seccomp": seccomp(),
                      "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"],
                      "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]}}

    def run(self, script, seconds=90, reaps=True):
        """As PID 1, or below one that reaps nobody, as many are: a program that waits for this script alone."""
        document = self.config(["/bin/sh", "-c", script] if reaps else ["/usr/bin/python3", "-c", CARELESS, script])
        for name in ["seccomp"] * (not self.filtered) + ["maskedPaths", "readonlyPaths"] * (not self.masked):
            del document["linux"][name]
        (self.place / "config.json").write_text(json.dumps(document))
        cover = COVER if COVERED.exists() and COVERED.read_text().strip() else []
        name = self.place.name
        try:
            return subprocess.run([*cover, "crun", "--root", self.place / "state", "--cgroup-manager", "disabled", "run", "--bundle",
                                   self.place, name], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        finally:
            subprocess.run([*cover, "crun", "--root", self.place / "state", "--cgroup-manager", "disabled", "delete", "--force", name],
                           capture_output=True, check=False)
