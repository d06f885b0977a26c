# SPDX-License-Identifier: Apache-2.0
"""The others: finds what is installed, prepares it in a folder of ours, and takes it away again."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import time

from .daemon import ask, await_socket

PACKAGES = {"bwrap": "bubblewrap", "crun": "crun", "runc": "runc", "podman": "podman", "docker": "docker.io", "nginx": "nginx-light"}
PROGRAMS = {"docker": "dockerd"}
ENVIRONMENT = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}

# Debian's crun refuses a host with version 1 of control groups beside a version 2 that has any controller; it is shown one
# that has none.
COVERED = pathlib.Path("/sys/fs/cgroup/unified/cgroup.controllers")
COVER = ["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {COVERED} && exec "$@"', "sh"]

BARE = 110  # at once: a burst of 100, and some that are still being taken down

LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
FOLDERS = ["usr", "bench", "proc", "dev", "tmp", "sys", "etc"]


def find(name):
    return shutil.which(PROGRAMS.get(name, name), path=ENVIRONMENT["PATH"])


def missing():
    return [name for name in PACKAGES if not find(name)]


def for_crun():
    """What a command that starts crun is preceded by here."""
    return COVER if os.geteuid() == 0 and COVERED.exists() and COVERED.read_text().strip() else []


class Peers(contextlib.ExitStack):
    """`places` maps each peer that runs to what the engine needs; `failed` says why one does not."""

    def __init__(self, folder, tools):
        super().__init__()
        self.folder = pathlib.Path(folder) / "peers"
        self.folder.mkdir(mode=0o711)
        self.tools = tools
        self.places = {}
        self.failed = {name: "not installed" for name in missing()}

    def start(self, names):
        prepare = {"bare": self.prepare_bare, "bwrap": self.prepare_bwrap, "crun": self.prepare_oci, "runc": self.prepare_oci,
                   "podman": self.start_podman, "docker": self.start_docker, "nginx": self.start_nginx}
        for name in names:
            if name in self.failed or name in self.places:
                continue
            if os.geteuid() != 0 and name not in ("bwrap", "nginx"):
                self.failed[name] = "measured as root only"
                continue
            try:
                self.places[name] = prepare[name](name)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                self.failed[name] = str(error).strip()[-300:]

    def prepare_bare(self, _):
        """The walls alone need no program but our own; the engine makes so many ready as are wanted at once."""
        return str(BARE)

    def prepare_bwrap(self, _):
        return ""

    # --- crun and runc ---------------------------------------------------------------------------

    def prepare_oci(self, name):
        place = self.folder / name
        root = place / "root"
        make_tree(root)
        (place / "state").mkdir()
        for bundle, program in (("once", "/bin/true"), ("live", "/bench/pause")):
            (place / bundle).mkdir()
            (place / bundle / "config.json").write_text(json.dumps(self.oci_config(program)))
        return str(place)

    def oci_config(self, program):
        def bind(source, target):
            return {"destination": target, "type": "bind", "source": str(source), "options": ["bind", "ro", "nosuid"]}

        return {
            "ociVersion": "1.0.2", "hostname": "bench", "root": {"path": "../root", "readonly": True},
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": [program], "cwd": "/",
                        "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": True},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]},
                       bind("/usr", "/usr"), bind(self.tools, "/bench")],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
                      "resources": {"memory": {"limit": 2 << 30}, "pids": {"limit": 256}}}}

    # --- engines ---------------------------------------------------------------------------------

    def spawn(self, name, command, socket, target, environment=None):
        """A server of ours: its log in the folder, ended by its process id."""
        log = self.enter_context(open(self.folder / f"{name}.log", "wb"))
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env={**ENVIRONMENT, **(environment or {})}, start_new_session=True)
        self.callback(end, process)
        try:
            await_socket(socket, process, target)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {(self.folder / f'{name}.log').read_text(errors='replace')[-200:]}") from error

    def import_image(self, socket):
        status, answer = ask(socket, "POST", "/images/create?fromSrc=-&repo=sandglass-bench&tag=latest", image(),
                             {"Content-Type": "application/x-tar"})
        if status >= 300 or b"error" in answer:
            raise RuntimeError(f"the image was not taken: {answer[-200:]!r}")

    def start_docker(self, name):
        place = self.folder / name
        place.mkdir()
        socket = place / "sock"
        self.callback(unmount_below, place)
        self.spawn(name, [find("docker"), "--data-root", place / "data", "--exec-root", place / "exec", "--pidfile", place / "pid",
                          "-H", f"unix://{socket}", "--iptables=false", "--ip6tables=false", "--bridge=none", "-l", "error"],
                   socket, "/_ping")
        self.import_image(socket)
        return f"unix:{socket}"

    def start_podman(self, name):
        place = self.folder / name
        place.mkdir()
        socket = place / "sock"
        self.callback(unmount_below, place)
        # Its defaults would raise the hard limits, which not every root may.
        (place / "containers.conf").write_text('[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n')
        self.spawn(name, [*for_crun(), find("podman"), "--root", place / "data", "--runroot", place / "run", "--tmpdir", place / "tmp",
                          "--cgroup-manager", "cgroupfs", "--events-backend", "none", "system", "service", "--time", "0",
                          f"unix://{socket}"], socket, "/_ping", {"CONTAINERS_CONF": str(place / "containers.conf")})
        self.import_image(socket)
        return f"unix:{socket}"

    def start_nginx(self, name):
        place = self.folder / name
        place.mkdir(mode=0o755)
        (place / "logs").mkdir()
        socket = place / "sock"
        (place / "nginx.conf").write_text(NGINX.format(place=place, socket=socket))
        self.spawn(name, [find("nginx"), "-p", place, "-c", place / "nginx.conf", "-g", "daemon off;"], socket, "/")
        return f"unix:{socket}"


NGINX = """
worker_processes 1;
pid {place}/pid;
error_log {place}/logs/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {place}/t1; proxy_temp_path {place}/t2; fastcgi_temp_path {place}/t3;
    uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5;
    server {{
        listen unix:{socket};
        location / {{ default_type application/json; return 200 '{{"status": "ok"}}'; }}
    }}
}}
"""


def make_tree(root):
    """An empty root: the host's /usr is mounted into it."""
    root.mkdir(parents=True)
    for name in FOLDERS:
        (root / name).mkdir()
    for name, target in LINKS.items():
        (root / name).symlink_to(target)


def image():
    """The same as a tar, which an engine imports."""
    with io.BytesIO() as bytes_:
        with tarfile.open(fileobj=bytes_, mode="w") as tar:
            for name in FOLDERS:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name, target in LINKS.items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return bytes_.getvalue()


def end(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def unmount_below(place):
    """What an engine that was ended leaves mounted."""
    for _ in range(20):
        mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
                  if line.split()[4].startswith(f"{place}/")]
        if not mounts:
            return
        for mount in sorted(mounts, reverse=True):
            subprocess.run(["umount", mount], stderr=subprocess.DEVNULL, check=False)
        time.sleep(0.1)
