# SPDX-License-Identifier: Apache-2.0
"""A fresh minimal Debian 12 to install into: a tree that debootstrap makes once, and a private view of it for each test."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine import image  # noqa: E402

SUITE = "bookworm"

# Root of a mount namespace and not of chroot(2), in which no user namespace can be made.
ENTER = """set -e
mkdir -p "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mkdir -p mnt/old
pivot_root . mnt/old
exec chroot . /bin/bash -c 'umount -l /mnt/old; cd /; exec /bin/bash -euo pipefail /script' </dev/null
"""


def mirror():
    """Where this machine takes its packages from; None when its sources name no such place."""
    asked = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Release: {SUITE}"],
                           capture_output=True, text=True, timeout=60, check=True)
    return next((place.rstrip("/") for place in sorted(set(asked.stdout.split()))), None)


def missing():
    """Why there is no tree here, or None."""
    if os.geteuid() != 0:
        return "a Debian tree to install into needs root"
    if not shutil.which("debootstrap", path=os.environ["PATH"] + ":/usr/sbin"):
        return "debootstrap is not installed"
    if not mirror():
        return f"apt has no source of {SUITE} here"
    return None


def tree():
    """The path of the tree; raises OSError where it cannot be made."""
    path = image.cache_directory().parent / f"debian-{SUITE}"
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            shutil.rmtree(f"{path}.part", ignore_errors=True)
            made = subprocess.run(["debootstrap", "--variant=minbase", SUITE, f"{path}.part", mirror()], capture_output=True, text=True, timeout=900,
                                  env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
            if made.returncode != 0:
                raise OSError(f"debootstrap failed: {made.stdout[-300:]}")
            os.rename(f"{path}.part", path)
    return path


def run(directory, files, script, timeout=300):
    """Runs the bash script in a private copy of the tree with those files (path inside -> source). Everything that it has started ends
    with it."""
    upper = pathlib.Path(directory) / "upper"
    for target, source in files.items():
        (upper / target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if pathlib.Path(source).is_dir() else shutil.copy)(source, upper / target.lstrip("/"))
    upper.mkdir(exist_ok=True)
    (upper / "script").write_text(script)
    command = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER, "enter", tree(), directory]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"})
