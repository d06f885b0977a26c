# SPDX-License-Identifier: Apache-2.0
"""TCP on this host where authentication is off: only for those who can read the token of the daemon."""
import http.client
import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from conftest import ROOT, SANDGLASS, WALLS, Answer, free_port, wait_for

SDK = ROOT / "sdk" / "python" / "src"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users, which needs root")


def ask(port, path="/api/v1/sessions", token=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(backend=WALLS if os.geteuid() == 0 else "direct", tcp=True)


@needs_root
def test_tcp_needs_the_token(daemon):
    daemon.session(key="private")
    for token in (None, "", "sgt_" + "0" * 64, daemon.token()[:-1], daemon.token() + "0", daemon.token().upper()):
        refused = ask(daemon.port, token=token)
        assert refused.status == 401, token
        assert b"private" not in refused.body
    assert ask(daemon.port, token=daemon.token()).json["total"] == 1
    assert ask(daemon.port, "/healthz").status == 200
    mode = (daemon.state / f"token-{daemon.port}").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@needs_root
def test_cli_and_sdk_find_the_token(daemon):
    environment = {**os.environ, "SANDGLASS_URL": f"http://127.0.0.1:{daemon.port}",
                   "SANDGLASS_CONFIG": str(daemon.directory / "sandglass.yaml")}
    listed = subprocess.run([SANDGLASS, "ls"], env=environment, capture_output=True, text=True, timeout=30)
    assert listed.returncode == 0, listed.stderr
    code = "from sandglass import Client; c = Client(); s = c.session(); print(s.run('echo hi').stdout); s.delete()"
    done = subprocess.run([sys.executable, "-c", code], env={**environment, "PYTHONPATH": str(SDK)}, capture_output=True,
                          text=True, timeout=60)
    assert done.stdout.strip() == "hi", done.stderr


@needs_root
def test_another_local_user_gets_nothing(daemon):
    code = f"import test_local_tcp as t; print(t.ask({daemon.port}).status, t.ask({daemon.port}, method='DELETE').status)"
    other = subprocess.run([sys.executable, "-c", code], user=65533, group=65533, extra_groups=[], capture_output=True, text=True,
                           timeout=30, env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
    assert other.stdout.split() == ["401", "401"], other.stderr
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(["cat", daemon.state / f"token-{daemon.port}"], user=65533, group=65533, extra_groups=[], check=True,
                       capture_output=True)


@needs_root
def test_the_token_is_another_after_a_restart(daemon):
    before = daemon.token()
    daemon.kill()
    daemon.start()
    assert daemon.token() != before
    assert ask(daemon.port, token=before).status == 401
    daemon.stop()
    assert not list(daemon.state.glob("token-*"))


def test_only_the_unix_socket_is_served_by_default():
    shown = subprocess.run([SANDGLASS, "config", "show", "--json"], capture_output=True, text=True, timeout=30,
                           env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    addresses = json.loads(shown.stdout)["listen"]["value"]
    assert [address.split(":")[0] for address in addresses] == ["unix"]


ASK_FROM_INSIDE = """
import http.client, socket, sys
def ask(connection):
    connection.request("GET", "/api/v1/sessions", headers=dict(h.split("=") for h in sys.argv[3:]))
    return connection.getresponse().status
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
for make in (lambda: http.client.HTTPConnection("127.0.0.1", int(sys.argv[2])), lambda: Unix("localhost")):
    try:
        print(ask(make()))
    except OSError:
        print("none")
"""


@needs_root
def test_programs_in_direct_sandboxes_are_refused(make_daemon):
    """Whatever they have found: the token too."""
    daemon = make_daemon(backend="direct", tcp=True)
    daemon.socket.parent.chmod(0o755)
    daemon.socket.chmod(0o666)
    inside = ["/usr/bin/python3", "-c", ASK_FROM_INSIDE, str(daemon.socket), str(daemon.port),
              f"X-API-Key={daemon.token()}"]
    done = daemon.execute(daemon.session(), inside)
    assert set(done["stdout"].split()) <= {"403", "none"}, done
    assert done["stdout"].split()[0] == "403", done


def as_ordinary_user(daemon, addresses):
    """A daemon that is nobody special: programs of its direct sandboxes have its own user."""
    daemon.directory.chmod(0o777)
    config = daemon.directory / "sandglass.yaml"
    config.write_text(json.dumps({**daemon.settings, "sandbox": {"backend": "direct"}}))
    config.chmod(0o644)
    listen = [part for address in addresses for part in ("--listen", address)]
    other = {"user": 65533, "group": 65533, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.Popen([SANDGLASS, "serve", "--config", config, *listen], stderr=subprocess.PIPE, text=True, **other)


def test_a_program_of_the_daemons_own_user_is_refused(make_daemon):
    daemon = make_daemon(start=False)
    daemon.process = as_ordinary_user(daemon, [daemon.url])
    wait_for(daemon.is_ready, "the daemon is ready")
    session = daemon.session()
    inside = ["/usr/bin/python3", "-c", ASK_FROM_INSIDE, str(daemon.socket), "1"]
    assert daemon.execute(session, inside)["stdout"].split() == ["none", "403"]
    alone = ': > out; (setsid "$@" >> out 2>&1 &) ; until [ $(wc -l < out) -ge 2 ]; do sleep 0.05; done; cat out'
    left = daemon.execute(session, ["/bin/sh", "-c", alone, "sh", *inside], timeout=25)
    assert left["stdout"].split() == ["none", "403"]
    daemon.api("DELETE", f"/sessions/{session}", expect=200)


def test_tcp_needs_keys_where_sandboxes_have_the_daemons_user(make_daemon):
    daemon = make_daemon(start=False)
    process = as_ordinary_user(daemon, [daemon.url, f"127.0.0.1:{free_port()}"])
    _, said = process.communicate(timeout=30)
    assert process.returncode != 0 and "needs authentication" in said and "auth.mode" in said
