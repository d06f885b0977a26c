# SPDX-License-Identifier: Apache-2.0
"""What scripts/release makes, installed in a fresh minimal Debian 12: it serves, it is upgraded, and it leaves what is not its own."""
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import pytest

import daemon_image
import debian
import real_engine
from conftest import BUILD, ROOT, SANDGLASS

SERVE = """
serve() {
    sandglass serve 2>>/tmp/log &
    daemon=$!
    for i in $(seq 300); do if sandglass ls >/dev/null 2>&1; then return; fi; sleep 0.1; done
    cat /tmp/log; exit 1
}
stop() { kill $daemon; wait $daemon; }
"""


def tree_state():
    """Names the content of the tree, committed or not."""
    text = b"".join(subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
                    for words in (["rev-parse", "HEAD"], ["diff", "HEAD"], ["status", "--porcelain"]))
    return hashlib.sha256(text).hexdigest()[:16]


def make_release(directory, *options, **more):
    made = subprocess.run([ROOT / "scripts/release", "--dirty", "--out", directory, *options], capture_output=True, text=True, timeout=1500, **more)
    assert made.returncode == 0, made.stderr[-6000:]
    return pathlib.Path(directory)


@pytest.fixture(scope="module")
def dist():
    """Made once for each state of the tree, by the first worker that needs it."""
    above = BUILD / "release"
    above.mkdir(exist_ok=True)
    path = above / tree_state()
    with open(above / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for old in above.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            make_release(f"{path}.part", "--only", "deb,tar,python,npm")
            os.rename(f"{path}.part", path)
    return path


@pytest.fixture(scope="module")
def package(dist):
    return next(dist.glob("*.deb"))


@pytest.fixture
def disk():
    """Not below `work`: what is mounted there in another namespace is no leftover."""
    with tempfile.TemporaryDirectory(prefix="sgd-") as path:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
        yield pathlib.Path(path)
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def inside(disk):
    """Runs a script in the Debian tree and returns its output."""
    if debian.missing():
        pytest.skip(debian.missing())
    try:
        debian.tree()
    except OSError as problem:
        pytest.skip(str(problem))

    def run(files, script):
        done = debian.run(disk, files, SERVE + script)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    return run


def commands_of_the_page(section, dist):
    """What a reader of that section types, one text for each block."""
    text = (ROOT / "docs/reference/install.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    version = re.search(r"sandglass_(.*)-1_", next(dist.glob("*.deb")).name)[1]
    return [block.replace("VERSION", version) for block in re.findall(r"```sh\n(.*?)```", text, re.S)]


WAIT = "for i in $(seq 300); do if sandglass ls >/dev/null 2>&1; then break; fi; sleep 0.1; done\n"


def test_the_package_serves_in_a_fresh_debian_and_leaves_only_data(inside, package):
    out = inside({"/tmp/sandglass.deb": package}, """
        dpkg -i /tmp/sandglass.deb
        getent passwd sandglass
        test "$(stat -c %U /usr/bin/sandglass)" = root
        serve
        ps -o user= -p $daemon 2>/dev/null || stat -c %U /proc/$daemon
        sandglass run -- id -un
        id=$(sandglass session create --key first)
        sandglass exec key:first -- sh -c 'echo kept >file'
        dpkg -i /tmp/sandglass.deb                          # again, while it runs: nothing is lost
        sandglass exec key:first -- cat file
        stop
        echo removing
        echo '# mine' >>/etc/sandglass/sandglass.yaml
        dpkg -r sandglass
        test -e /var/lib/sandglass/sandglass.db; grep -c mine /etc/sandglass/sandglass.yaml
        ! test -e /usr/bin/sandglass
        for i in $(seq 300); do n=$({ grep -l sandglass-init /proc/[0-9]*/comm 2>/dev/null || true; } | wc -l); if [ $n = 0 ]; then break; fi; sleep 0.1; done
        echo sandboxes $n
        dpkg -P sandglass
        ls -d /var/lib/sandglass /etc/sandglass /run/sandglass 2>/dev/null || true
        getent passwd sandglass || echo no user
        dpkg -l sandglass 2>/dev/null | grep ^ii || echo no package
    """)
    assert "sandglass:/var/lib" not in out.split("removing")[1]
    lines = out.splitlines()
    assert "user" in lines and "kept" in lines and lines[-2:] == ["no user", "no package"] and "sandboxes 0" in lines, out
    assert "/var/lib/sandglass" not in lines


def test_the_commands_of_the_page_work_with_the_package(inside, dist):
    install, serve, use = commands_of_the_page("The package", dist)
    out = inside({"/download": dist}, f"cd /download\n{install}{serve}{WAIT}{use}kill $!; wait $!")
    assert {"user", "hello"} <= set(out.splitlines()), out


def test_the_commands_of_the_page_work_with_the_tarball(inside, dist):
    install, check = commands_of_the_page("The tarball", dist)
    out = inside({"/download": dist}, f"cd /download\n{check}{install}{WAIT}sandglass run -- echo inside\nkill $!; wait $!")
    assert out.splitlines()[-1] == "inside" and out.count(": OK") >= 4, out


def test_a_user_of_that_name_and_a_profile_of_somebody_else_stay(inside, package):
    out = inside({"/tmp/sandglass.deb": package}, """
        useradd --system --home-dir /srv/other sandglass
        mkdir -p /etc/apparmor.d
        dpkg -i /tmp/sandglass.deb >/dev/null
        serve; sandglass run -- true; stop
        mkdir -p /etc/sandglass/keys; touch /etc/sandglass/keys/mine
        dpkg -P sandglass
        getent passwd sandglass | cut -d: -f6
        ls /etc/sandglass/keys
    """)
    assert out.splitlines()[-2:] == ["/srv/other", "mine"], out


def test_the_profile_is_installed_where_apparmor_knows_user_namespaces(inside, package):
    out = inside({"/tmp/sandglass.deb": package}, """
        dpkg -i /tmp/sandglass.deb >/dev/null; ls /etc/apparmor.d/sandglass 2>/dev/null || echo none
        dpkg -P sandglass >/dev/null
        mkdir -p /etc/apparmor.d/abi; touch /etc/apparmor.d/abi/4.0
        dpkg -i /tmp/sandglass.deb >/dev/null; grep -c 'profile sandglass /usr/bin/sandglass' /etc/apparmor.d/sandglass
        dpkg -P sandglass >/dev/null; ls /etc/apparmor.d
    """)
    assert out.split() == ["none", "1", "abi"], out


def test_lintian_finds_no_errors(package):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    found = subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", package], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_tarball_has_one_program_with_two_libraries(dist, work):
    archive = next(dist.glob("*-linux-*.tar.gz"))
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        assert all(entry.uid == 0 and entry.gid == 0 for entry in tar)
        tar.extractall(work)
    top = next(work.glob("sandglass-*"))
    assert {"bin", "share"} == {path.name for path in top.iterdir()}
    for name in ("bash-completion/completions/sandglass", "zsh/site-functions/_sandglass", "fish/vendor_completions.d/sandglass.fish", "man/man1/sandglass.1.gz",
                 "man/man5/sandglass.yaml.5.gz", "sandglass/sandglass.service", "sandglass/sandglass.yaml", "doc/sandglass/third-party"):
        assert f"{top.name}/share/{name}" in names
    program = top / "bin/sandglass"
    needed = set(re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True).stdout))
    assert needed <= {"libc.so.6", "libm.so.6", "libseccomp.so.2", "ld-linux-x86-64.so.2"}
    assert "no symbols" in subprocess.run(["nm", program], capture_output=True, text=True).stderr
    out = subprocess.run([program, "run", "--", "echo", "fine"], capture_output=True, text=True, timeout=60)
    assert out.stdout == "fine\n", out


def test_the_sums_are_those_of_the_files(dist):
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True).returncode == 0
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    assert any(name.startswith("CHANGELOG-") for name in listed) and any(name.endswith(".spdx.json") for name in listed)


def test_the_same_tree_makes_the_same_files(dist, tmp_path):
    again = make_release(tmp_path / "again", "--only", "deb,tar,python,npm")
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_wheel_and_the_sdist_install_offline(dist, tmp_path):
    for file in (next(dist.glob("*.whl")), next(path for path in dist.glob("sandglass-*.tar.gz") if "linux" not in path.name)):
        target = tmp_path / file.name
        done = subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--target", target, file],
                              capture_output=True, text=True, env={**os.environ, "PIP_FIND_LINKS": ""})
        assert done.returncode == 0, done.stderr
        assert (target / "sandglass/__init__.py").exists()


def test_the_npm_package_can_be_required(dist, tmp_path):
    with tarfile.open(next(dist.glob("*.tgz"))) as tar:
        tar.extractall(tmp_path)
    done = subprocess.run(["node", "-e", "console.log(typeof require('./package').Client)"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "function\n", done


@pytest.mark.release
def test_the_image_is_loaded_and_runs(tmp_path):
    if daemon_image.missing():
        pytest.skip(daemon_image.missing())
    engine = real_engine.the_engine()
    daemon_image.make_base(engine)
    environment = daemon_image.environment(engine)
    made = make_release(tmp_path / "out", "--only", "image", "--build-arg", f"BASE={daemon_image.BASE}", "--build-arg", "PACKAGES=", env=environment)
    archive = next(made.glob("*-image.tar.gz"))
    name = "sandglass:" + re.search(r"sandglass-(.*)-image", archive.name)[1]
    subprocess.run(["docker", "rmi", name], env=environment, check=True, capture_output=True)
    subprocess.run(["docker", "load", "--input", archive], env=environment, check=True, capture_output=True)
    run = subprocess.run(["docker", "run", "--rm", "--network", "none", name, "run", "--backend", "direct", "--", "echo", "inside"], env=environment, capture_output=True, text=True)
    assert run.stdout == "inside\n", run


def test_a_version_that_the_tree_does_not_have_is_refused(tmp_path):
    done = subprocess.run([ROOT / "scripts/release", "99.0.0", "--dirty", "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1 and "scripts/version 99.0.0" in done.stderr
    (tmp_path / "precious").write_text("mine")
    done = subprocess.run([ROOT / "scripts/release", "--dirty", "--only", "python", "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "choose another directory" in done.stderr and (tmp_path / "precious").exists()


# --- scripts/install -----------------------------------------------------------------------------


def install_files(program):
    return {"/src/scripts": ROOT / "scripts", "/src/packaging": ROOT / "packaging", "/src/SECURITY.md": ROOT / "SECURITY.md", "/src/program": program}


def test_what_the_script_has_installed_it_removes(inside, dist, work):
    with tarfile.open(next(dist.glob("*-linux-*.tar.gz"))) as tar:
        tar.extractall(work)
    out = inside(install_files(next(work.glob("sandglass-*/bin/sandglass"))), """
        export SANDGLASS_PROGRAM=/src/program
        snapshot() { find /etc /usr /var/lib -xdev ! -path '/etc/passwd*' ! -path '/etc/group*' ! -path '/etc/*shadow*' ! -path '/etc/subuid*' ! -path '/etc/subgid*' | sort; }
        mkdir -p /usr/local/share/man/man1 /usr/local/share/man/man5 /etc/systemd/system   # shared with others: they may stay
        snapshot >/tmp/before
        /src/scripts/install
        echo '# mine' >>/etc/sandglass/sandglass.yaml
        /src/scripts/install                                # again: settings stay
        serve
        sandglass run -- true
        sandglass session create --key left >/dev/null
        if /src/scripts/install --remove; then echo removed under a daemon that runs; fi
        stop
        /src/scripts/install --remove
        tail -1 /etc/sandglass/sandglass.yaml
        ls /var/lib/sandglass/sandglass.db; getent passwd sandglass | cut -d: -f1
        for i in $(seq 300); do n=$({ grep -l sandglass-init /proc/[0-9]*/comm 2>/dev/null || true; } | wc -l); if [ $n = 0 ]; then break; fi; sleep 0.1; done
        echo sandboxes $n
        /src/scripts/install; /src/scripts/install --purge
        getent passwd sandglass || echo no user
        snapshot >/tmp/after
        echo left: $(comm -13 /tmp/before /tmp/after | grep sandglass || true)
    """)
    assert out.splitlines() == ["# mine", "/var/lib/sandglass/sandglass.db", "sandglass", "sandboxes 0", "no user", "left:"], out


def test_a_directory_for_packages_is_respected(work):
    environment = {**os.environ, "DESTDIR": str(work / "root"), "PREFIX": "/opt/sandglass", "SANDGLASS_PROGRAM": str(SANDGLASS)}
    subprocess.run([ROOT / "scripts/install"], env=environment, check=True, capture_output=True)
    unit = (work / "root/etc/systemd/system/sandglass.service").read_text()
    assert "ExecStart=/opt/sandglass/bin/sandglass serve" in unit and "@BINDIR@" not in unit
    subprocess.run([ROOT / "scripts/install", "--remove"], env=environment, check=True, capture_output=True)
    assert not [path for path in (work / "root").rglob("*") if path.is_file()]


# --- the unit and the settings -------------------------------------------------------------------


def test_systemd_accepts_the_unit(work):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = work / "sandglass.service"
    unit.write_text((ROOT / "packaging/sandglass.service").read_text().replace("@BINDIR@", str(BUILD)).replace("Documentation=", "#"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert found.returncode == 0 and "sandglass.service" not in found.stderr, found.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="a bounding set is for root")
def test_the_capabilities_of_the_unit_are_enough(make_daemon):
    unit = (ROOT / "packaging/sandglass.service").read_text()
    names = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M)[1].replace("CAP_", "").lower().split()
    bound = "-all," + ",".join(f"+{name}" for name in names)
    walls = []
    for prefix in ((), ("setpriv", "--bounding-set", bound)):
        daemon = make_daemon(backend="native", settings={"sandbox": {"backend": "native"}}, prefix=prefix)
        for network in ("none", "open"):
            session = daemon.session(network=network)
            assert daemon.execute(session, command="echo fine", user="root")["stdout"] == "fine\n"
            isolation = daemon.api("GET", f"/sessions/{session}").json["sandbox"]["isolation"]
            walls.append(sorted(isolation.get("missing", [])))
        daemon.stop()
    assert walls[:2] == walls[2:]


def test_the_example_of_the_settings_is_valid_as_it_is_and_without_its_comment_signs(work):
    text = (ROOT / "packaging/sandglass.yaml").read_text()
    example = re.sub(r"(?m)^#(?=[a-z]|  [a-z])", "", text)
    (work / "a.yaml").write_text(text)
    (work / "b.yaml").write_text(example)
    checked = subprocess.run([SANDGLASS, "config", "check", work / "a.yaml"], capture_output=True, text=True,
                             env={**os.environ, "SANDGLASS_STATE_DIR": str(work / "state"), "SANDGLASS_RUNTIME_DIR": str(work / "run")})
    assert checked.returncode == 0, checked
    shown = subprocess.run([SANDGLASS, "config", "show", work / "b.yaml"], capture_output=True, text=True)
    assert shown.returncode == 0 and re.search(r"^sandbox.max.memory: 4g", shown.stdout, re.M), shown
