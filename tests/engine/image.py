# SPDX-License-Identifier: Apache-2.0
"""The images of the tests, without a registry: a Debian root from the packages that this host has, as one tar archive in a cache.

Files come from dpkg's lists, so the image holds whole packages and nothing else of the host. What packages leave to their scripts
(users, alternatives, the linker's cache) is made here.
"""
import fcntl
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import time

# What the end-to-end tests run inside of sandboxes; packages that these depend on come with them.
PACKAGES = ["base-files", "bash", "bsdutils", "bsdextrautils", "coreutils", "curl", "dash", "diffutils", "findutils", "grep", "gzip", "hostname",
            "iproute2", "libc-bin", "login", "mawk", "mount", "ncurses-base", "ncurses-bin", "passwd", "perl-base", "procps", "python3", "sed", "tar",
            "util-linux"]
LEFT_OUT = re.compile(r"/usr/share/(doc|man|info|locale|lintian|bug|bash-completion|zsh|common-licenses)(/|$)|.*/__pycache__(/|$)")
UNUSED_SECONDS = 7 * 24 * 3600
USER, UID = "user", 1000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PASSWD = f"""root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
{USER}:x:{UID}:{UID}:a user of the image:/home/{USER}:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = f"root:x:0:\ndaemon:x:1:\ntty:x:5:\nstaff:x:50:\n{USER}:x:{UID}:\nnogroup:x:65534:\n"
SHADOW = f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n"


def cache_directory():
    above = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "/tmp") + "/.cache"
    path = pathlib.Path(os.environ.get("SANDGLASS_TEST_CACHE") or f"{above}/sandglass-tests") / "engine"
    path.mkdir(parents=True, exist_ok=True)
    return path


def installed_packages():
    """Name -> (version, names that it depends on), and what stands for names that are only provided."""
    form = "${Package}\t${Version}\t${Pre-Depends}, ${Depends}\t${Provides}\t${db:Status-Status}\n"
    packages, provided = {}, {}
    for line in subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout.splitlines():
        name, version, needs, provides, status = line.split("\t")
        if status != "installed":
            continue
        packages[name] = (version, [[bare_name(word) for word in item.split("|")] for item in needs.split(",") if item.strip()])
        provided.update({bare_name(item): name for item in provides.split(",")})
    return packages, provided


def bare_name(text):
    """Of "libc6:any (>= 2.36)"."""
    return text.split("(")[0].split(":")[0].strip()


def closure(names):
    """The installed packages of that name with what they depend on, each with its version."""
    packages, provided = installed_packages()
    found, open_names = {}, list(names)
    while open_names:
        name = open_names.pop()
        name = name if name in packages else provided.get(name)
        if name and name not in found:
            version, needs = packages[name]
            found[name] = version
            open_names += [next((choice for choice in item if choice in packages or choice in provided), "") for item in needs]
    return found


def package_files(names):
    """Paths of files, links and directories as they are in the file system: below /usr where /bin is a link to /usr/bin."""
    out = subprocess.run(["dpkg-query", "-L", *names], capture_output=True, text=True, check=True).stdout
    paths = set()
    for line in out.splitlines():
        if line.startswith("/") and line != "/." and not LEFT_OUT.match(line) and os.path.lexists(line):
            parent, name = os.path.split(line)
            paths.add(os.path.join(os.path.realpath(parent), name))
    paths |= {f"/{name}" for name in ("bin", "sbin", "lib", "lib64") if os.path.lexists(f"/{name}")}
    return paths


def alternatives(paths):
    """Links that update-alternatives makes, where the program at the end is one of ours: awk, pager and the like."""
    links = set()
    for entry in os.scandir("/etc/alternatives"):
        if entry.is_symlink() and os.path.realpath(entry.path) in paths:
            generic = next((f"/usr/{place}/{entry.name}" for place in ("bin", "sbin") if os.path.islink(f"/usr/{place}/{entry.name}")), None)
            links |= {entry.path, generic} if generic else set()
    return links


class Archive:
    """A layer: each name once, whatever the host's files are linked to."""

    def __init__(self, stream):
        self.tar = tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT)
        self.names = set()

    def add_host_file(self, path):
        info = self.tar.gettarinfo(path, arcname=path.lstrip("/"))
        if info is None or info.name in self.names:
            return
        if info.islnk():  # a hard link whose other name may be left out
            info = self.tar.gettarinfo(os.path.realpath(path), arcname=path.lstrip("/"))
            info.type, info.size = tarfile.REGTYPE, os.path.getsize(path)
        info.uname = info.gname = ""
        self.names.add(info.name)
        if info.isreg():
            with open(path, "rb") as file:
                self.tar.addfile(info, file)
        else:
            self.tar.addfile(info)

    def add(self, name, content=None, mode=0o644, owner=0, kind=None):
        info = tarfile.TarInfo(name)
        info.mode, info.uid, info.gid, info.mtime = mode, owner, owner, 1767225600  # as the image says, 2026-01-01
        if content is None:
            info.type = kind or tarfile.DIRTYPE
            self.tar.addfile(info)
        else:
            data = content if isinstance(content, bytes) else content.encode()
            info.size = len(data)
            self.tar.addfile(info, io.BytesIO(data))
        self.names.add(name)

    def close(self):
        self.tar.close()


def add_system_files(archive):
    """What the scripts of packages would have made, and the directories that every system has."""
    for name, mode in (("dev", 0o755), ("proc", 0o555), ("sys", 0o555), ("run", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700),
                       ("home", 0o755), ("srv", 0o755), ("opt", 0o755)):
        archive.add(name, mode=mode)
    archive.add(f"home/{USER}", mode=0o755, owner=UID)
    archive.add("etc/passwd", PASSWD)
    archive.add("etc/group", GROUP)
    archive.add("etc/shadow", SHADOW, mode=0o640)
    archive.add("etc/hostname", "image\n")
    archive.add("etc/from-the-image", "this file is in the image only\n")


def byte_code(path):
    """What packages compile at their installation, without which each start of Python would."""
    if not path.endswith(".py"):
        return []
    parent, name = os.path.split(path)
    cache = f"{parent}/__pycache__"
    return [cache, *(f"{cache}/{entry}" for entry in os.listdir(cache) if entry.startswith(name[:-2] + "cpython-"))] if os.path.isdir(cache) else []


def write_debian(stream, packages=tuple(PACKAGES)):
    archive = Archive(stream)
    paths = package_files(closure(packages))
    paths |= alternatives(paths)
    paths |= {extra for path in paths for extra in byte_code(path)}
    add_system_files(archive)  # first: a name that is there is not taken from the host
    for path in sorted(paths):
        archive.add_host_file(path)
    archive.close()


def write_empty(stream):
    """No program at all: a user, and nothing to run."""
    archive = Archive(stream)
    archive.add("etc", mode=0o755)
    archive.add("etc/passwd", f"{USER}:x:{UID}:{UID}::/home/{USER}:/no/shell\n")
    archive.close()


def write_statx(stream):
    """Above the first one: `ls` and `stat` of Debian 12 call statx() with AT_NO_AUTOMOUNT, which runsc of Debian 12 answers with EINVAL."""
    with tempfile.TemporaryDirectory() as place:
        library = pathlib.Path(place) / "statx.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-Os", "-s", "-o", library, "-x", "c", "-"], input=STATX, text=True, check=True)
        archive = Archive(stream)
        archive.add("usr/lib/statx.so", library.read_bytes())
        archive.add("etc/ld.so.preload", "/usr/lib/statx.so\n")
        archive.close()


LAYERS = {"debian": write_debian, "empty": write_empty, "statx": write_statx}
STATX = """#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict out)
{
    return (int)syscall(SYS_statx, directory, path, flags & ~AT_NO_AUTOMOUNT, mask, out);
}
"""


def images():
    """Name, layers and configuration of each."""
    variables = [f"PATH={PATH}", "IMAGE_VARIABLE=from-the-image"]
    ordinary = {"User": USER, "WorkingDir": f"/home/{USER}", "Env": variables, "Cmd": ["/bin/bash"]}
    odd = {"User": f"{USER}:staff", "WorkingDir": "/srv", "Entrypoint": ["/bin/false"], "Cmd": ["x"], "Env": [*variables, "HOME=/srv"],
           "Volumes": {"/data": {}}, "StopSignal": "SIGQUIT", "Healthcheck": {"Test": ["CMD", "/bin/false"]},
           "Labels": {"sandglass.instance": "of-the-image"}}
    return [
        ("sandglass-test:1", ["debian"], ordinary),
        ("sandglass-gvisor:1", ["debian", "statx"], ordinary),
        # As most images are: root, and no directory of its own.
        ("sandglass-root:1", ["debian"], {"Env": [f"PATH={PATH}"], "Cmd": ["/bin/bash"]}),
        ("sandglass-numeric:1", ["debian"], {"User": "4242:4242", "WorkingDir": "/srv/work", "Env": variables}),
        # With a program of its own that must not run, and what else an image can say.
        ("sandglass-entry:1", ["debian"], odd),
        ("sandglass-empty:1", ["empty"], {"User": USER}),
        ("sandglass-foreign:1", ["debian"], ordinary),
        ("sandglass-nobody:1", ["debian"], {"User": "no-such-user", "Env": variables}),
    ]


def configuration(name, layers, config):
    """By which an engine knows an image: with other variables and users the same layers are another image."""
    here, other = ("arm64", "amd64") if os.uname().machine == "aarch64" else ("amd64", "arm64")
    created = "2026-01-01T00:00:00Z"
    return json.dumps({"architecture": other if name.startswith("sandglass-foreign") else here, "os": "linux", "created": created, "config": config,
                       "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}" for layer in layers]},
                       "history": [{"created": created, "created_by": "tests/engine/image.py"} for _ in layers]}).encode()


def write_images(path):
    """One archive as `docker save` makes it: layers, configurations, and a list of images."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place, tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        digests, manifest = {}, []
        for name, write in LAYERS.items():
            layer = pathlib.Path(place) / name
            with open(layer, "wb") as stream:
                write(stream)
            with open(layer, "rb") as stream:
                digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()
            tar.add(layer, f"{digests[name]}.tar")
        for name, layers, config in images():
            layers = [digests[layer] for layer in layers]
            content = configuration(name, layers, config)
            file = hashlib.sha256(content).hexdigest() + ".json"
            manifest.append({"Config": file, "RepoTags": [name], "Layers": [f"{layer}.tar" for layer in layers]})
            add_bytes(tar, file, content)
        add_bytes(tar, "manifest.json", json.dumps(manifest).encode())


def add_bytes(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def fingerprint():
    """Changes with the packages and with this file."""
    lines = sorted(f"{name} {version}" for name, version in closure(PACKAGES).items())
    return hashlib.sha256("\n".join(lines).encode() + pathlib.Path(__file__).read_bytes()).hexdigest()[:16]


def archive_of_images():
    """The path of the archive with all images; made at first use, by one process. Other versions of this file have others."""
    directory = cache_directory()
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = directory / f"images-{fingerprint()}.tar"
        for old in directory.glob("images-*.tar"):
            if old.stat().st_mtime < time.time() - UNUSED_SECONDS:
                old.unlink()
        if path.exists():
            os.utime(path)
        else:
            part = directory / "images.tar.part"
            write_images(part)
            part.rename(path)
    return path
