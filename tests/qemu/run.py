#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Boots a virtual machine whose kernel has version 2 of control groups with all controllers, and runs the tests of the native
backend in it, as root and as a user with a delegated group. Prints TAP.

    tests/qemu/run.py BUILD [PART...]

BUILD is a build directory; the parts are root, root-daemon, root-launcher_killed and the same for user. The kernel is Debian's for clouds, fetched once into BUILD/qemu; it is emulated, so no KVM is needed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
WORK = BUILD / "qemu"
KERNEL_PACKAGE = "linux-image-cloud-amd64"
MODULES = ["fs/overlayfs/overlay.ko", "drivers/block/loop.ko"]
TESTS = ["test_backend_native", "test_backend_launcher_killed"]
PARTS = sys.argv[2:] or [who + what for who in ("root", "user") for what in ("", "-daemon", "-launcher_killed")]
PATIENCE = os.environ.get("SANDGLASS_TEST_PATIENCE", "8")  # more on a machine that has other things to do
TIMEOUT_S = 1800

PROGRAMS = """python3.11 python3 sh bash dash cat chown chmod cp cut date dd echo env false find grep head hostname id kill ln ls mkdir mkfifo
mv nohup rm rmdir sed seq setsid sleep sort stat tail tee test touch tr true uname wc xargs timeout setpriv""".split()


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def fetch_kernel():
    """The directory with boot/ and lib/modules/ of the kernel package."""
    target = WORK / "kernel"
    if not (target / "boot").is_dir():
        name = re.search(r"Depends: (linux-image-\S+)", output("apt-cache", "depends", KERNEL_PACKAGE))[1]
        subprocess.run(["apt-get", "download", "-qq", name], check=True, cwd=WORK)
        package = next(WORK.glob("linux-image-*.deb"))
        subprocess.run(["dpkg", "-x", package, target], check=True)
        package.unlink()
    return target


def libraries(program):
    lines = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines()
    return [word for line in lines for word in line.split() if word.startswith("/")]


def copy(source, root):
    """To the same path, links followed; /bin and /lib are links to /usr in the tree."""
    path = str(source)
    target = root / (path if path.startswith("/usr/") else "/usr" + path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=True)


def make_tree(kernel):
    root = WORK / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("proc sys dev run tmp etc home root var/tmp var/lib mnt opt srv usr/bin usr/lib usr/share/doc modules tests").split():
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to("usr/" + name)
    programs = [path for path in (pathlib.Path("/usr/bin") / name for name in PROGRAMS) if path.exists()]
    programs.append(pathlib.Path("/usr/sbin/mkfs.ext4"))
    tests = [BUILD / "tests/integration/backend" / name for name in TESTS]
    extensions = list(pathlib.Path("/usr/lib/python3.11/lib-dynload").glob("*.so"))
    for path in programs + sorted({pathlib.Path(item) for file in [*programs, *tests, BUILD / "sandglass", *extensions] for item in libraries(file)}):
        copy(path, root)
    shutil.copytree("/usr/lib/python3.11", root / "usr/lib/python3.11", symlinks=False, ignore_dangling_symlinks=True,
                    ignore=shutil.ignore_patterns("test", "idlelib", "ensurepip", "tkinter", "lib2to3", "config-*", "pydoc_data"))
    for program in tests:
        shutil.copy2(program, root / "tests" / program.name)
    shutil.copy2(BUILD / "sandglass", root / "usr/bin/sandglass")
    shutil.copy2(HERE / "guest.py", root / "init")
    probe = HERE.parent / "integration/backend/probe.py"
    (root / str(probe.parent).lstrip("/")).mkdir(parents=True)
    shutil.copy2(probe, root / str(probe).lstrip("/"))
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    modules = next((kernel / "lib/modules").iterdir()) / "kernel"
    for number, module in enumerate(MODULES):
        shutil.copy2(modules / module, root / "modules" / f"{number}-{pathlib.Path(module).name}")
    return root


def make_image(root):
    image = WORK / "root.img"
    image.unlink(missing_ok=True)
    subprocess.run(["/usr/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, image, "400M"], check=True)
    return image


def boot(kernel, image):
    """Everything that the machine says on its console, line by line."""
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1536",
               "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
               "-kernel", str(next((kernel / "boot").glob("vmlinuz-*"))),
               "-append",
               "console=ttyS0 root=/dev/nvme0n1 rw init=/init quiet panic=-1 cgroup_no_v1=all mitigations=off "
               f"PARTS={','.join(PARTS)} PATIENCE={PATIENCE}",
               "-drive", f"file={image},if=none,format=raw,id=disk", "-device", "nvme,drive=disk,serial=disk"]
    machine = subprocess.Popen(["timeout", str(TIMEOUT_S), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    begin = time.monotonic()
    for line in machine.stdout:
        if os.environ.get("VERBOSE"):
            print(f"# {time.monotonic() - begin:6.1f}", line.rstrip(), file=sys.stderr)
        yield line.rstrip("\r\n")
    machine.wait()


class Results:
    """TAP out of what the guest tells."""

    def __init__(self):
        self.count = 0
        self.failed = 0
        self.run = ""
        self.told = []
        self.ended = set()

    def add(self, good, name, detail=()):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        for line in () if good else detail:
            print(f"# {line}")
        sys.stdout.flush()

    def take(self, words):
        kind, _, rest = words.partition(" ")
        if kind == "begin":
            self.run = rest
        elif kind == "line":
            row = re.match(r"(ok|not ok) \d+ - (.*)", rest)
            if row:
                self.add(row[1] == "ok", f"{self.run}: {row[2]}", self.told[-20:])
                self.told = []
            else:
                self.told.append(rest)
        elif kind == "end":
            name, code = rest.rsplit(" ", 1)
            self.ended.add(name)
            self.add(code == "0", f"{name}: the tests end well", [f"exit code {code}", *self.told[-20:]])
        elif kind == "left":
            name, *groups = rest.split()
            self.add(not groups, f"{name}: no group is left", groups)
        elif kind == "broken":
            self.add(False, "the guest works", [rest])


def main():
    WORK.mkdir(exist_ok=True)
    kernel = fetch_kernel()
    image = make_image(make_tree(kernel))
    results = Results()
    console = []
    for line in boot(kernel, image):
        console.append(line)
        if "@sandglass " in line:
            results.take(line.split("@sandglass ", 1)[1])
    image.unlink()
    results.add(set(PARTS) <= results.ended, "the machine came to the end", console[-40:])
    print(f"1..{results.count}")
    return 1 if results.failed else 0


sys.exit(main())
