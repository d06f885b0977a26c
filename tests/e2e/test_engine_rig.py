# SPDX-License-Identifier: Apache-2.0
"""The engine that other tests use: it runs containers by runc and by runsc, is shared, and leaves nothing however it ends."""
import contextlib
import http.client
import os
import pathlib
import signal
import ssl
import subprocess
import sys

import pytest

import real_engine
from conftest import ROOT, free_port, wait_for
from engine import Engine, EngineError, certificates, private, shared

LONG = ["sleep", "1000"]
RUNTIMES = ["runc", "runsc", "runsc-uds"]
TELL = "import json, os, ssl, sqlite3; print(os.getuid(), os.getcwd(), os.environ['HOME'], os.environ['IMAGE_VARIABLE'], json.dumps([6 * 7]))"


def skip_without(runtime):
    if private.missing("runsc" if runtime.startswith("runsc") else runtime):
        pytest.skip(private.missing("runsc" if runtime.startswith("runsc") else runtime))


@pytest.fixture
def own(work):
    """own(**options) is an engine of one's own, not yet started."""
    skip_without("runc")
    made = []

    def make(**options):
        made.append(Engine(f"rig-{os.getpid()}-{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.end()
        assert private.leftovers(one.directory) == {}


@contextlib.contextmanager
def container(engine, runtime="runc", image="sandglass-test:1", argv=tuple(LONG), **options):
    made = engine.api.create(image, list(argv), host={"Runtime": runtime}, **options)
    try:
        engine.api.start(made)
        yield made
    finally:
        engine.api.remove(made)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_container_runs_what_the_image_has_as_the_image_says(engine, runtime):
    skip_without(runtime)
    with container(engine, runtime) as box:
        assert engine.api.execute(box, ["python3", "-c", TELL]) == (0, "1000 /home/user /home/user from-the-image [42]\n")
        assert engine.api.execute(box, ["bash", "-c", "awk 'BEGIN { print 7 }'; ps -o comm= -p 1; cat /etc/from-the-image; exit 3"]) == \
            (3, "7\nsleep\nthis file is in the image only\n")
        is_gvisor = "gVisor" in engine.api.execute(box, ["dmesg"])[1]
        assert is_gvisor == runtime.startswith("runsc")
    wait_for(lambda: real_engine.strays() == {}, "no process is without its container")


def test_the_image_for_gvisor_has_an_ls_that_works_there(engine):
    skip_without("runsc")
    with container(engine, "runsc", image="sandglass-gvisor:1") as box:
        assert engine.api.execute(box, ["sh", "-c", "ls /home && stat -c %U /home/user"]) == (0, "user\nuser\n")


def test_images_differ_in_what_they_say(engine):
    told = {}
    for name in ("sandglass-root:1", "sandglass-numeric:1", "sandglass-test:1"):
        with container(engine, image=name) as box:
            told[name] = engine.api.execute(box, ["sh", "-c", "echo $(id -u):$(id -g) $PWD"])[1].strip()
    assert told == {"sandglass-root:1": "0:0 /", "sandglass-numeric:1": "4242:4242 /srv/work", "sandglass-test:1": "1000:1000 /home/user"}
    with pytest.raises(EngineError, match="executable file not found|no such file"), container(engine, image="sandglass-empty:1", argv=["sh"]):
        pass
    with pytest.raises(EngineError, match="unable to find user"), container(engine, image="sandglass-nobody:1"):
        pass
    assert engine.api.json("GET", "/images/sandglass-foreign:1/json")["Architecture"] != engine.api.json("GET", "/images/sandglass-test:1/json")["Architecture"]
    wait_for(lambda: real_engine.strays() == {}, "no process is without its container")


def test_containers_are_found_by_the_label_of_their_daemon(engine):
    instance = f"rig-{os.getpid()}"
    with container(engine, Labels={"sandglass.instance": f"{instance}-a"}) as box:
        assert list(real_engine.containers_of(instance)) == [box[:12]]
        assert real_engine.containers_of("rig-somebody-else") == {} == real_engine.containers_of(instance[:-1])
        wait_for(lambda: real_engine.strays() == {}, "no process is without its container")
    assert real_engine.containers_of(instance) == {}


def test_daemons_can_use_its_socket_and_others_cannot(engine):
    say = ["/usr/bin/python3", "-c", "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", str(engine.socket)]
    uid, gid = private.daemon_ids()
    assert subprocess.run(say, user=uid, group=gid, extra_groups=[], check=False).returncode == 0
    assert subprocess.run(say, user=1234, group=1234, extra_groups=[], check=False, capture_output=True).returncode != 0


def test_a_container_with_a_network_reaches_the_engine_s_bridge_alone(engine):
    box = engine.api.create("sandglass-root:1", LONG, host={"NetworkMode": "bridge"})
    try:
        engine.api.start(box)
        address, gateway = (engine.api.inspect(box)["NetworkSettings"][key] for key in ("IPAddress", "Gateway"))
        assert f"inet {address}/" in engine.api.execute(box, ["ip", "addr"])[1]
        assert gateway not in subprocess.run(["ip", "addr"], capture_output=True, text=True, check=True).stdout, "the host's network is not touched"
    finally:
        engine.api.remove(box)


@pytest.mark.parametrize("live_restore", [False, True])
def test_an_engine_that_is_killed_goes_on_where_it_was(own, live_restore):
    engine = own(live_restore=live_restore).start()
    engine.load_images()
    box = engine.api.create("sandglass-test:1", LONG, StopSignal="SIGKILL")
    engine.api.start(box)
    engine.kill()
    assert not engine.api.ping()
    engine.start()
    assert engine.api.inspect(box)["State"]["Running"] == live_restore
    engine.stop()
    if live_restore:
        assert private.our_processes(engine.directory), "shims and containers stay with live restore"
    else:
        wait_for(lambda: not private.our_processes(engine.directory), "shims and containers stay with live restore alone")


def test_a_killed_engine_with_containers_leaves_nothing(own):
    engine = own(live_restore=True).start()
    engine.load_images()
    for runtime in [name for name in RUNTIMES if not private.missing("runsc" if name.startswith("runsc") else name)]:
        engine.api.start(engine.api.create("sandglass-test:1", LONG, host={"Runtime": runtime}))
    sockets = private.shim_sockets(engine.directory)
    assert sockets and all(path.is_socket() for path in sockets)
    engine.kill()
    engine.end()
    assert private.leftovers(engine.directory) == {} and not any(path.exists() for path in sockets)


def test_a_start_of_runsc_that_fails_leaves_nothing(own):
    """With gVisor's own network, which this kernel may not have: then processes stay, which the engine forgets."""
    skip_without("runsc")
    engine = own(runtimes={"runsc-fails": ["--network=sandbox"]}).start()
    engine.load_images()
    box = engine.api.create("sandglass-test:1", LONG, host={"Runtime": "runsc-fails"})
    with contextlib.suppress(EngineError):
        engine.api.start(box)
    engine.api.remove(box)
    engine.end()
    assert private.leftovers(engine.directory) == {}


def test_a_disk_that_is_full(own):
    engine = own(disk="256M").start()
    engine.load_images()
    with container(engine) as box:
        code, output = engine.api.execute(box, ["sh", "-c", "head -c 300M /dev/zero >file"])
        assert code != 0 and "No space left on device" in output


def test_an_engine_on_tcp_takes_only_clients_with_a_certificate(own, work):
    certificates.make(work)
    port = free_port()
    own(network=False, hosts=[f"tcp://127.0.0.1:{port}"], settings=certificates.settings(work)).start()

    def ping(name):
        context = ssl.create_default_context(cafile=work / "ca.pem")
        context.load_cert_chain(work / f"{name}.pem", work / f"{name}-key.pem")
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        connection.request("GET", "/_ping")
        return connection.getresponse().read()
    assert ping("client") == b"OK"
    with pytest.raises(OSError):
        ping("stranger")


USE = "import sys; sys.path.insert(0, sys.argv[1]); from engine import shared; one = shared.use(sys.argv[2]); print('in', flush=True); sys.stdin.read()"


def test_the_last_user_ends_a_shared_engine_also_when_it_is_killed(work):
    skip_without("runc")
    name = f"rig-{os.getpid()}-shared"
    start = [sys.executable, "-c", USE, str(ROOT / "tests"), name]
    users = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [user.stdout.readline() for user in users] == ["in\n"] * 3
    directory = shared.directory_of(name)
    keeper = (directory / "keeper.pid").read_text()
    users[0].kill()
    users[1].stdin.close()
    for user in users[:2]:
        user.wait()
    with shared.use(name).lock:
        assert (directory / "keeper.pid").read_text() == keeper, "it is the same engine"
    assert shared.is_ready(name)
    users[2].send_signal(signal.SIGKILL)
    wait_for(lambda: not directory.exists(), "the keeper ends it", 90)
    assert private.leftovers(directory) == {}
    for user in users:
        user.wait()
        user.stdout.close()
        user.stdin.close()
    wait_for(lambda: not pathlib.Path(f"/proc/{keeper}").exists(), "the keeper has ended")
    assert not shared.users_path(name).exists()


def test_a_killed_keeper_takes_the_engine_and_its_containers_along(work):
    skip_without("runc")
    with in_use("killed") as (one, keeper, _):
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: not private.leftovers(one.directory), "its guard ends everything", 90)


def test_what_a_killed_guard_leaves_goes_with_the_next_start(own):
    with in_use("dead") as (one, keeper, guard):
        for pid in (guard, keeper):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not private.is_alive(one.directory), "nobody keeps it")
        own().start()
        assert private.leftovers(one.directory) == {}


def test_an_engine_that_hangs_is_replaced_and_told(work):
    """Else hundreds of tests would wait for their deadlines, one after the other."""
    skip_without("runc")
    with in_use("hangs", hang_seconds=2) as (one, keeper, _):
        first = int((one.directory / "docker.pid").read_text())
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: shared.is_ready(one.name) and int((one.directory / "docker.pid").read_text()) != first, "another one answers", 120)
        stacks, = shared.hangs(one.name)
        assert "API listen on" in pathlib.Path(stacks).read_text()
        assert one.api.containers() == [] and "sandglass-test:1" in one.api.images()
        with shared.use(one.name).lock:
            assert int((one.directory / "keeper.pid").read_text()) == keeper, "whoever wants it meanwhile starts no other"
        os.unlink(stacks)
    wait_for(lambda: not one.directory.exists(), "the keeper ends it", 90)
    shared.hangs_path(one.name).unlink()


def test_an_engine_tells_what_it_is_waiting_for(own):
    one = own().start()
    containerd = (one.directory / "exec/containerd/containerd.pid").read_text()
    told = one.stacks()
    assert "goroutine 1 [" in told and "github.com/docker/docker/cmd/dockerd" in told and "containerd/cmd/containerd" in told
    assert not pathlib.Path(f"/tmp/containerd.{containerd}.stacks.log").exists()


@contextlib.contextmanager
def in_use(name, **options):
    """A shared engine with a container, its keeper and its guard."""
    one = shared.use(f"rig-{os.getpid()}-{name}", **options)
    one.api.start(one.api.create("sandglass-test:1", LONG))
    keeper = int((one.directory / "keeper.pid").read_text())
    guard = int(pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])
    try:
        yield one, keeper, guard
    finally:
        one.release()
        shared.users_path(one.name).unlink(missing_ok=True)
        shared.keeper_path(one.name).unlink(missing_ok=True)  # a killed one cannot


def test_a_developer_has_one_by_hand(work):
    skip_without("runc")
    name = f"rig-{os.getpid()}-hand"

    def run(command):
        return subprocess.run([ROOT / "tests/engine/run", command, "--name", name], capture_output=True, text=True, check=False, timeout=120).stdout
    assert run("status") == "none runs\n"
    address = run("start")
    assert address == f"unix://{shared.directory_of(name)}/docker.sock\n" == run("start") == run("status")
    assert run("stop") == "ended\n" and run("stop") == "none runs\n"
    assert private.leftovers(shared.directory_of(name)) == {}
