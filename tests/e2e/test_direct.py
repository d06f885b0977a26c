# SPDX-License-Identifier: Apache-2.0
"""The direct backend has no walls, and says so: it claims nothing that does not hold, refuses what it cannot do, and leaves nothing
behind."""
import contextlib
import os
import pathlib
import subprocess

import pytest

from conftest import SANDGLASS, wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sandboxes ids of their own")


@pytest.fixture
def direct(make_daemon):
    return make_daemon(backend="direct")


def check(work, settings, *arguments):
    path = work / "settings.yaml"
    path.write_text(settings)
    return subprocess.run([SANDGLASS, "config", "check", *arguments, path], capture_output=True, text=True, timeout=30,
                          env={**os.environ, "SANDGLASS_STATE_DIR": str(work / "state"), "SANDGLASS_LISTEN": f"unix:{work}/run/s"})


def test_nothing_is_claimed_that_does_not_hold(direct):
    session = direct.session()
    direct.execute(session, ["true"])
    shown = direct.api("GET", f"/sessions/{session}", expect=200).json
    assert shown["network"] == "host" and shown["limits"]["disk_bytes"] is None
    report = shown["sandbox"]["isolation"]
    assert report["network"] == "host" and report["namespaces"] == []
    assert (report["limits"]["disk_bytes"], report["limits"]["disk_kind"]) == (0, "none")
    assert {"namespaces", "disk"} <= set(report["missing"])
    direct.api("DELETE", f"/sessions/{session}", expect=200)


@pytest.mark.parametrize("field, value", [("template", "debian"), ("template", "/usr"), ("network", "none"), ("disk", "64m")])
def test_what_it_cannot_do_is_refused_by_name(direct, field, value):
    answer = direct.api("POST", "/sessions", {field: value}, expect=400).json["error"]
    assert answer["message"].startswith(field) and not answer["retryable"]
    assert direct.api("GET", "/sessions", expect=200).json["sessions"] == []


def test_settings_that_it_cannot_keep_are_refused(work):
    for settings, field in (("{sandbox: {backend: direct, template: /usr}}", "sandbox.template"),
                            ("{sandbox: {backend: direct, mounts: [{host_path: /usr, path: /mnt}]}}", "sandbox.mounts"),
                            ("{sandbox: {backend: direct, direct: {uid: 0}}}", "sandbox.direct.uid"),
                            ("{sandbox: {backend: direct, direct: {gid: 0}}}", "sandbox.direct.gid")):
        result = check(work, settings)
        assert result.returncode != 0 and field in result.stderr, result


@as_root
def test_programs_do_not_run_as_the_daemon(work):
    result = check(work, "{user: daemon, sandbox: {backend: direct, direct: {uid: 1, gid: 77}}}")
    assert result.returncode != 0 and "sandbox.direct.uid" in result.stderr, result
    assert check(work, "{user: daemon, sandbox: {backend: direct, direct: {uid: 77, gid: 77}}}").returncode == 0


def test_home_and_temporary_files_can_be_written(direct):
    session = direct.session()
    script = 'cat <<END\nhere\nEND\nfile=$(mktemp) && echo there > "$file" && cat "$file" && echo home > ~/home && cat home'
    assert direct.execute(session, ["bash", "-c", script])["stdout"] == "here\nthere\nhome\n"
    assert direct.execute(session, ["python3", "-c", "import tempfile; print(tempfile.TemporaryFile().fileno() > 2)"])["stdout"] == "True\n"
    listed = direct.api("GET", f"/sessions/{session}/files/list?path=.", expect=200).json["entries"]
    own = ".sandglass"  # for the script of the Python that waits, once it has started
    assert [entry["path"] for entry in listed if entry["path"] != own] == ["home"], "temporary files are not part of the workspace"


def test_files_are_listed_whatever_they_are_called(direct):
    session = direct.session()
    result = direct.api("POST", "/execute", {"code": "for n in ('script.py', 'script.sh', 'code.py'): open(n, 'w').write('x')",
                                             "session_id": session}, expect=200).json
    assert sorted(file["name"] for file in result["session_files"]) == ["code.py", "script.py", "script.sh"]
    listed = direct.api("GET", f"/sessions/{session}/files/list?path=.", expect=200).json["entries"]
    assert {"code.py", "script.py", "script.sh"} <= {entry["path"] for entry in listed}


def objects(uid):
    """Everything that a user has under names of the host's."""
    found = []
    for path in pathlib.Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of somebody who has removed it meanwhile
            found += [path] if path.lstat().st_uid == uid else []
    for kind, column in (("shm", 7), ("sem", 4), ("msg", 7)):
        lines = pathlib.Path("/proc/sysvipc", kind).read_text().splitlines()[1:]
        found += [f"{kind} {line}" for line in lines if int(line.split()[column]) == uid]
    return found


@as_root
def test_shared_objects_go_with_the_session(direct):
    session = direct.session()
    made = direct.execute(session, command="id -u; touch /dev/shm/sgt-$$; ipcmk -M 4096 -S 2 -Q >&2")
    assert made["exit_code"] == 0, made
    uid = int(made["stdout"])
    assert len(objects(uid)) == 4
    direct.api("DELETE", f"/sessions/{session}", expect=200)
    assert objects(uid) == []


def less_power(caps=None, uid=None):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid else \
        ["setpriv", f"--bounding-set={caps}", "--inh-caps=-all"]


def run(work, *command, backend="direct", caps=None, uid=None):
    prefix = less_power(caps, uid)
    place = work / "place"
    place.mkdir(exist_ok=True)
    os.chmod(place, 0o1777)
    return subprocess.run([*prefix, SANDGLASS, "run", "--backend", backend, "--", *command], capture_output=True, text=True,
                          timeout=60, env={"PATH": os.environ["PATH"], "TMPDIR": str(place), "XDG_RUNTIME_DIR": str(place),
                                           "HOME": str(place)})


# What container engines leave to root by default.
CONTAINER = ",".join(["-all", *(f"+{name}" for name in "chown dac_override fowner fsetid kill setgid setuid setpcap "
                                "net_bind_service net_raw sys_chroot mknod audit_write setfcap".split())])


@as_root
def test_a_process_elsewhere_with_the_same_user_id_lives_on(direct):
    """A daemon in a container has no part in the host's list of user ids; its sandboxes are processes of the host all the same."""
    session = direct.session()
    uid = int(direct.execute(session, ["id", "-u"])["stdout"])
    with subprocess.Popen(["sleep", "60"], user=uid, group=uid, extra_groups=[]) as stranger:
        try:
            direct.api("DELETE", f"/sessions/{session}", expect=200)
            assert stranger.poll() is None
        finally:
            stranger.kill()


@as_root
def test_root_of_a_container_gives_sandboxes_ids_of_their_own(work):
    result = run(work, "sh", "-c", f"id -u; touch /dev/shm/{work.name}; ipcmk -M 4096; grep CapBnd /proc/self/status", caps=CONTAINER)
    assert result.returncode == 0, result
    uid, made, bounding = result.stdout.splitlines()
    assert int(uid) > 1000 and int(bounding.split()[1], 16) == 0
    # Nobody holds the user id any more: another daemon may have it by now, and objects of its own.
    segments = pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    assert made.split()[-1] not in [line.split()[1] for line in segments] and not pathlib.Path("/dev/shm", work.name).exists()


@as_root
@pytest.mark.parametrize("backend", ["direct", "native"])
@pytest.mark.parametrize("who", [{"caps": CONTAINER}, {"uid": 1001}], ids=["container", "user"])
def test_it_runs_with_what_power_there_is(work, backend, who):
    result = run(work, "echo", "ran", backend=backend, **who)
    assert (result.returncode, result.stdout) == (0, "ran\n"), result
    wait_for(lambda: os.listdir(work / "place") == [], "nothing is left")


@as_root
def test_without_any_power_walls_are_not_left_out_in_silence(work):
    """Root without a single capability cannot map itself into a user namespace."""
    result = run(work, "echo", "ran", backend="native", caps="-all")
    assert (result.returncode, result.stdout) == (125, ""), result
    assert "--backend direct" in result.stderr and "SETFCAP" in result.stderr
    assert run(work, "echo", "ran", caps="-all").stdout == "ran\n"


@as_root
def test_without_ids_of_their_own_there_are_no_shared_objects(work):
    result = run(work, "sh", "-c", "touch /dev/shm/sgt-$$; ipcmk -M 4096; ipcmk -S 1; ipcmk -Q; true", uid=1001)
    assert result.returncode == 0 and result.stdout == "" and len(result.stderr.splitlines()) >= 4, result
    assert objects(1001) == []


@as_root
@pytest.mark.parametrize("who, backend, runs", [({"caps": CONTAINER}, "direct", True), ({"caps": "-all"}, "direct", True),
                                                ({"caps": "-all"}, "native", False)])
def test_the_doctor_tries_a_sandbox(work, who, backend, runs):
    place = work / "place"
    place.mkdir()
    config = work / "settings.yaml"
    config.write_text(f"{{state_dir: {place}/state, listen: ['unix:{place}/s'], sandbox: {{backend: {backend}}}}}")
    result = subprocess.run(["setpriv", f"--bounding-set={who['caps']}", "--inh-caps=-all", SANDGLASS, "doctor", "--config", config],
                            capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"], "TMPDIR": str(place)})
    line = next(line for line in result.stdout.splitlines() if line.split()[1:2] == ["sandbox"])
    assert (line.split()[0], result.returncode) == (("ok", 0) if runs else ("fail", 1)), result.stdout
    assert (" 0 failures" in result.stdout) == runs


INTRUDER = """
import http.client, os, resource, socket, sys
daemon, *inits = sys.argv[1:]

def knock():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
        for own in range(16):
            resource.setrlimit(own, (resource.getrlimit(own)[1],) * 2)
        resource.setrlimit(10, (resource.RLIM_INFINITY,) * 2)
        print("raised a limit")
    except (OSError, ValueError):
        pass
    client = http.client.HTTPConnection("localhost")
    client.sock = socket.socket(socket.AF_UNIX)
    client.sock.connect(daemon)
    for method, path in (("GET", "/api/v1/sessions"), ("GET", "/healthz"), ("POST", "/mcp")):
        client.request(method, path)
        answer = client.getresponse()
        print(answer.status, b"sandbox_not_allowed" in answer.read())
    for path in inits:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(20)
        peer.connect(path)
        try:
            print(peer.recv(4096))
        except ConnectionResetError:
            print(b"")

knock()
sys.stdout.flush()
end, far_end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        knock()
        sys.stdout.flush()
        os.write(far_end, b"x")
    os._exit(0)
os.wait()
os.close(far_end)
os.read(end, 1)
"""


@as_root
@pytest.mark.parametrize("who", [{"uid": 1001}, {"caps": "-all"}], ids=["user", "root without power"])
def test_programs_with_the_daemon_s_user_id_cannot_use_it(make_daemon, who):
    daemon = make_daemon(backend="direct", settings={"pool": {"size": 0}}, prefix=less_power(**who), start=False)
    os.chmod(daemon.directory, 0o777)
    daemon.start()
    sessions = [daemon.session(), daemon.session()]
    for session in sessions:
        daemon.execute(session, ["true"])
    inits = list(map(str, (daemon.state / "sandboxes").glob("*/init.sock")))
    assert len(inits) >= 2
    result = daemon.execute(sessions[0], ["/usr/bin/python3", "-c", INTRUDER, str(daemon.socket), *inits])
    assert (result["exit_code"], result["stderr"]) == (0, ""), result
    assert result["stdout"].splitlines() == (["403 True"] * 3 + ["b''"] * len(inits)) * 2
    outside = subprocess.run([*less_power(**who), SANDGLASS, "ls"], capture_output=True, text=True, timeout=30,
                             env={**os.environ, "SANDGLASS_URL": daemon.url})
    assert outside.returncode == 0 and sessions[1] in outside.stdout, outside
    report = daemon.api("GET", f"/sessions/{sessions[1]}", expect=200).json["sandbox"]["isolation"]
    assert "other processes share its user id" in report["boundary"]
    assert daemon.execute(sessions[1], ["echo", "still there"])["stdout"] == "still there\n"
