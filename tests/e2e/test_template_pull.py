# SPDX-License-Identifier: Apache-2.0
"""Templates from a registry: a real one on loopback, and a front before it that plays the bad days and the bad servers."""
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import pytest

import issuer
from conftest import ROOT, SANDGLASS, wait_for
from registry import (DOCKER_LIST, OCI_INDEX, OCI_LAYER, OCI_MANIFEST, Front, Registry, TokenAuth, digest, layer, needs_registry,
                      running)
from terminal import Terminal

pytestmark = needs_registry


def shell_layer():
    """The host's shell with its libraries: a root in which programs run."""
    listed = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    names = ["/bin/sh", "/bin/cat", *re.findall(r"(/\S+) \(0x", listed)]
    return layer({name.lstrip("/"): (pathlib.Path(name).read_bytes(), 0o755) for name in names})


BASE = {"etc/greeting": b"hello from the image\n", "opt/gone": b"x"}
UPPER = {"etc/upper": b"second layer\n", "opt/.wh.gone": b""}


@pytest.fixture
def registry(work):
    with running(Registry(work / "registry").start()) as server:
        yield server


@pytest.fixture
def state(work):
    path = work / "state"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def front(registry):
    """front(answer): a server before the registry that may answer itself."""
    made = []

    def make(answer=None, certificate=None):
        made.append(Front(registry, answer, certificate))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def command(state, image, *options):
    return [SANDGLASS, "template", "pull", "--state", state, "--insecure", *options, image]


def pull(state, image, *options, check=True, stdin=None, **environment):
    result = subprocess.run(command(state, image, *options), capture_output=True, text=True, timeout=120, input=stdin,
                            env={**os.environ, "HOME": str(state), **environment})
    assert not check or result.returncode == 0, result.stderr
    return result


def refused(state, image, *options, **environment):
    """The message of a pull that fails; it leaves no template."""
    result = pull(state, image, *options, check=False, **environment)
    assert result.returncode == 1 and not result.stdout, result
    templates = state / "templates"
    assert not templates.exists() or [entry.name for entry in templates.iterdir()] in ([], [".blobs"])
    return result.stderr


def root(state, name="tiny"):
    return state / "templates" / name / "files" / "root"


def blobs(state):
    return {entry.name: entry for entry in (state / "templates" / ".blobs").iterdir()}


def test_an_image_becomes_a_template(registry, state):
    config = {"config": {"Env": ["LANG=C.UTF-8"], "User": "app", "WorkingDir": "/srv"}}
    pushed = registry.push("tiny", "1.0", [layer(BASE), layer(UPPER, compress=False)], config)
    result = pull(state, f"{registry.host}/tiny:1.0")
    assert result.stdout == "tiny-1.0\n"
    assert f"pulled {registry.host}/tiny:1.0 ({pushed['digest']}, linux/amd64): 2 layers" in result.stderr
    files = root(state, "tiny-1.0")
    assert (files / "etc/greeting").read_bytes() == BASE["etc/greeting"] and (files / "etc/upper").exists()
    assert not (files / "opt/gone").exists() and not (files / "opt/.wh.gone").exists()
    assert json.loads((state / "templates/tiny-1.0/config.json").read_text())["config"] == config["config"]
    listed = json.loads(subprocess.run([SANDGLASS, "template", "ls", "--state", state, "--json"], capture_output=True, check=True).stdout)
    assert [template["name"] for template in listed["templates"]] == ["tiny-1.0"]


def test_a_session_runs_a_program_of_the_image(registry, make_daemon):
    registry.push("tools/shell", "latest", [shell_layer(), layer(BASE)], docker=True)
    daemon = make_daemon(backend="native", settings={"pool": {"size": 0}})
    error = daemon.api("POST", "/sessions", {"template": "shell"}, expect=400).json["error"]
    assert error["code"] == "template_unknown" and "host" in error["message"] and "template pull" in error["hint"]
    assert pull(daemon.state, f"{registry.host}/tools/shell").stdout == "shell\n"
    assert [row["name"] for row in daemon.api("GET", "/templates", expect=200).json["templates"]] == ["host", "shell"]
    daemon.api("POST", "/sessions", {"template": ".blobs"}, expect=400)
    session = daemon.session(template="shell")
    ran = daemon.execute(session, ["/bin/sh", "-c", "/bin/cat /etc/greeting; pwd"])
    assert (ran["exit_code"], ran["stdout"]) == (0, "hello from the image\n/home/user\n"), ran
    in_use = pull(daemon.state, f"{registry.host}/tools/shell", "--replace", check=False)
    assert in_use.returncode == 1 and 'sandboxes use the template "shell"' in in_use.stderr
    daemon.api("DELETE", f"/sessions/{session}", expect=200)
    registry.push("tools/shell", "latest", [shell_layer(), layer({"etc/greeting": b"anew\n"})], docker=True)
    wait_for(lambda: pull(daemon.state, f"{registry.host}/tools/shell", "--replace", check=False).returncode == 0, "the template is replaced")
    ran = daemon.execute(daemon.session(template="shell"), ["/bin/cat", "/etc/greeting"])
    assert (ran["exit_code"], ran["stdout"]) == (0, "anew\n"), ran


def test_a_digest_names_one_image_for_ever(registry, state):
    old = registry.push("tiny", "1.0", [layer({"etc/version": b"old"})])["digest"]
    registry.push("tiny", "1.0", [layer({"etc/version": b"new"})])
    assert pull(state, f"{registry.host}/tiny@{old}").stdout == f"tiny-{old[7:19]}\n"
    assert pull(state, f"{registry.host}/tiny:1.0@{old}", "--name", "pinned").stdout == "pinned\n"
    pull(state, f"{registry.host}/tiny:1.0", "--name", "moved")
    versions = [(root(state, name) / "etc/version").read_bytes() for name in (f"tiny-{old[7:19]}", "pinned", "moved")]
    assert versions == [b"old", b"old", b"new"]


@pytest.mark.parametrize("index", [OCI_INDEX, DOCKER_LIST])
def test_the_platform_is_chosen_from_an_index(registry, state, index):
    docker = index == DOCKER_LIST
    manifests = []
    for architecture in ("amd64", "arm64"):
        image = registry.push("tiny", architecture, [layer({"etc/arch": architecture.encode()})], {"architecture": architecture}, docker)
        manifests.append({**image, "platform": {"os": "linux", "architecture": architecture}})
    pushed = registry.push_manifest("tiny", "both", {"schemaVersion": 2, "manifests": manifests}, index)
    for arguments, architecture in (((), {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]), (("--platform", "linux/arm64"), "arm64")):
        result = pull(state, f"{registry.host}/tiny@{pushed['digest']}", "--name", "t", "--replace", "--json", *arguments)
        document = json.loads(result.stdout)
        assert document["platform"] == f"linux/{architecture}" and not result.stderr
        assert document["digest"] == next(m["digest"] for m in manifests if m["platform"]["architecture"] == architecture)
        assert (root(state, "t") / "etc/arch").read_text() == architecture
    result = pull(state, f"{registry.host}/tiny:both", "--platform", "linux/s390x", check=False)
    assert result.returncode == 1 and "not there for linux/s390x; it is there for linux/amd64, linux/arm64" in result.stderr
    assert "is not a platform" in pull(state, f"{registry.host}/tiny:both", "--platform", "amd64", check=False).stderr


def test_an_image_of_another_machine_is_refused(registry, state):
    registry.push("tiny", "latest", [layer(BASE)], {"architecture": "riscv64"})
    message = refused(state, f"{registry.host}/tiny")
    assert "it is there for linux/riscv64" in message and "--platform linux/riscv64" in message
    assert pull(state, f"{registry.host}/tiny", "--platform", "linux/riscv64").stdout == "tiny\n"


def test_an_existing_template_is_replaced_only_on_request(registry, state, front):
    registry.push("tiny", "latest", [layer(BASE)])
    server = front()
    pull(state, f"{server.host}/tiny")
    asked = len(server.log)
    again = pull(state, f"{server.host}/tiny", check=False)
    assert again.returncode == 1 and 'the template "tiny" already exists' in again.stderr and "--replace" in again.stderr
    assert len(server.log) == asked, "nothing is asked for what cannot be kept"
    registry.push("tiny", "latest", [layer(UPPER)])
    pull(state, f"{server.host}/tiny", "--replace")
    assert (root(state) / "etc/upper").exists() and not (root(state) / "etc/greeting").exists()
    assert sorted(entry.name for entry in (state / "templates").iterdir()) == [".blobs", "tiny"]


def test_blobs_are_downloaded_once(registry, state, front):
    server = front()
    shared = layer({"usr/share": os.urandom(200000)})
    registry.push("tiny", "1", [shared, layer(BASE)])
    registry.push("tiny", "2", [shared, layer(UPPER)])
    first = json.loads(pull(state, f"{server.host}/tiny:1", "--json").stdout)
    assert first["downloaded_bytes"] == first["layer_bytes"] > 200000
    second = json.loads(pull(state, f"{server.host}/tiny:2", "--json").stdout)
    assert second["downloaded_bytes"] < 1000
    third = json.loads(pull(state, f"{server.host}/tiny:2", "--name", "third", "--json").stdout)
    assert third["downloaded_bytes"] == 0
    assert len(server.asked(digest(shared))) == 1
    # A damaged blob of the cache is not used.
    blobs(state)[digest(shared)[7:]].write_bytes(b"damaged")
    pull(state, f"{server.host}/tiny:1", "--name", "fourth")
    assert len(server.asked(digest(shared))) == 2
    # What nobody has used for long goes.
    for entry in blobs(state).values():
        os.utime(entry, (time.time() - 8 * 86400,) * 2)
    pull(state, f"{server.host}/tiny:2", "--name", "fifth")
    assert len(server.asked(digest(shared))) == 3


def test_a_token_is_fetched_and_renewed(registry, state, front):
    registry.push("tiny", "latest", [layer(BASE), layer(UPPER)])
    auth = TokenAuth()
    server = front(auth)
    assert pull(state, f"{server.host}/tiny").stdout == "tiny\n"
    assert auth.issued == [{"service": ["the test"], "scope": ["repository:tiny:pull"]}]

    def expire(request):
        if digest(layer(UPPER)) in request.path and len(auth.issued) == 2:
            auth.issued.append({})
        return auth(request)

    server.answer = expire
    pull(state, f"{server.host}/tiny", "--name", "cached")
    for entry in blobs(state).values():
        entry.unlink()
    auth.issued.clear()
    auth.issued.append({})
    pull(state, f"{server.host}/tiny", "--name", "renewed")
    assert len(auth.issued) == 4


def test_a_token_server_that_wants_a_password(registry, state, front, work):
    registry.push("tiny", "latest", [layer(BASE)])
    server = front(TokenAuth(user="me:secret word"))
    message = refused(state, f"{server.host}/tiny")
    assert f"the registry {server.host} denies access to tiny" in message and "--password-file" in message
    (work / "password").write_text("wrong\n")
    assert 'check the password of "me"' in refused(state, f"{server.host}/tiny", "--username", "me", "--password-file", work / "password")
    (work / "password").write_text("secret word\n")
    assert pull(state, f"{server.host}/tiny", "--username", "me", "--password-file", work / "password").stdout == "tiny\n"
    assert pull(state, f"{server.host}/tiny", "--name", "two", "-u", "me", "--password-file", "-", stdin="secret word").stdout == "two\n"
    assert all("secret" not in json.dumps(entry) for entry in server.log)


def test_passwords_of_docker(work, state):
    (work / "htpasswd").write_text("me:$2b$04$jN1xhA8iks/K033ORv0rKOFbvJsSh2ihDmnL4qDPZeCJRrOchp/ky\n")  # secret
    locked = Registry(work / "locked", {"htpasswd": {"realm": "test", "path": str(work / "htpasswd")}})
    locked.authorization = "Basic bWU6c2VjcmV0"
    with running(locked.start()):
        locked.push("tiny", "latest", [layer(BASE)])
        image = f"{locked.host}/tiny"
        message = refused(state, image)
        assert "denies access to tiny without a login" in message and "docker login" in message
        docker = work / "docker"
        docker.mkdir()

        def write(document):
            (docker / "config.json").write_text(json.dumps(document))

        write({"auths": {}, "credsStore": "desktop"})
        assert "docker-credential-desktop, which is not run" in refused(state, image, DOCKER_CONFIG=str(docker))
        write({"auths": {"other:5000": {"auth": "eDp5"}}, "credHelpers": {locked.host: "pass"}})
        assert "docker-credential-pass, which is not run" in refused(state, image, DOCKER_CONFIG=str(docker))
        write({"auths": {locked.host: {"auth": "!"}}})
        assert f"{docker}/config.json" in refused(state, image, DOCKER_CONFIG=str(docker))
        write({"auths": {locked.host: {"auth": "bWU6c2VjcmV0"}}})
        assert pull(state, image, DOCKER_CONFIG=str(docker)).stdout == "tiny\n"
        (state / ".docker").mkdir()
        (docker / "config.json").rename(state / ".docker/config.json")
        assert pull(state, image, "--name", "home").stdout == "home\n"


def test_a_redirect_is_followed_without_the_credentials(registry, state, front):
    registry.push("tiny", "latest", [layer(BASE)])
    storage = front()
    auth = TokenAuth()

    def redirect(request):
        if auth(request):
            return True
        if "/blobs/" not in request.path:
            return False
        request.send(307, headers={"Location": f"http://{storage.host}{request.path}"})
        return True

    server = front(redirect)
    pull(state, f"{server.host}/tiny")
    assert len(storage.log) == 2 and all("Authorization" not in headers for _, headers in storage.log)
    assert all("Authorization" in headers for _, headers in server.asked("/blobs/"))


def test_the_password_is_not_for_a_server_that_is_redirected_to(registry, state, front, work):
    registry.push("tiny", "latest", [layer(BASE)])
    thief = front(TokenAuth())

    def redirect(request):
        if "/blobs/" not in request.path:
            return False
        request.send(307, headers={"Location": f"http://{thief.host}{request.path}"})
        return True

    (work / "password").write_text("secret")
    message = refused(state, f"{front(redirect).host}/tiny", "--username", "me", "--password-file", work / "password")
    assert "denies access" in message
    assert len(thief.log) == 1 and "Authorization" not in thief.log[0][1] and "/blobs/" in thief.log[0][0]


def test_a_redirect_in_circles_ends(registry, state, front):
    server = front(lambda request: request.send(302, headers={"Location": request.path}) or True)
    assert "redirected too often" in refused(state, f"{server.host}/tiny")
    server.answer = lambda request: request.send(302, headers={"Location": "file:///etc/passwd"}) or True
    assert "not an https:// address" in refused(state, f"{server.host}/tiny")


def test_a_download_goes_on_where_it_broke(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    cuts = [100000, 50000, 0]

    def cut(request):
        if digest(big) in request.path and cuts:
            request.cut(cuts.pop(0))
            return True
        return False

    server = front(cut)
    document = json.loads(pull(state, f"{server.host}/tiny", "--json").stdout)
    assert document["downloaded_bytes"] == len(big)
    assert [headers.get("Range") for _, headers in server.asked(digest(big))] == [None, "bytes=100000-", "bytes=150000-", "bytes=150000-"]


def test_the_next_pull_goes_on_where_the_last_one_broke(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    server = front()

    def cut(request):
        if digest(big) not in request.path:
            return False
        if len(server.asked(digest(big))) == 1:
            request.cut(100000)
        else:
            request.send(503)
        return True

    server.answer = cut
    message = refused(state, f"{server.host}/tiny")
    assert "answers with status 503" in message and len(server.asked(digest(big))) == 5
    assert blobs(state)[digest(big)[7:] + ".part"].stat().st_size == 100000
    server.log.clear()
    server.answer = None
    assert json.loads(pull(state, f"{server.host}/tiny", "--json").stdout)["downloaded_bytes"] == len(big) - 100000
    assert [headers.get("Range") for _, headers in server.asked(digest(big))] == ["bytes=100000-"]
    assert not [name for name in blobs(state) if name.endswith(".part")]


def test_a_damaged_part_is_downloaded_anew(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    server = front()
    (state / "templates/.blobs").mkdir(parents=True, mode=0o700)
    (state / f"templates/.blobs/{digest(big)[7:]}.part").write_bytes(bytes(100000))
    pull(state, f"{server.host}/tiny")
    assert [headers.get("Range") for _, headers in server.asked(digest(big))] == ["bytes=100000-", None]
    (state / f"templates/.blobs/{digest(big)[7:]}").rename(state / f"templates/.blobs/{digest(big)[7:]}.part")
    server.log.clear()
    assert json.loads(pull(state, f"{server.host}/tiny", "--replace", "--json").stdout)["downloaded_bytes"] == 0
    assert not server.asked(digest(big))


def test_a_server_that_knows_no_ranges_sends_all_again(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    server = front()

    def whole(request):
        if digest(big) not in request.path:
            return False
        if len(server.asked(digest(big))) == 1:
            request.cut(100000)
        else:
            request.send(200, big)
        return True

    server.answer = whole
    pull(state, f"{server.host}/tiny")
    assert len((root(state) / "usr/big").read_bytes()) == 400000


def test_a_pull_that_is_killed_leaves_nothing_for_long(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    blocked, release = threading.Event(), threading.Event()

    def slowly(out, body):
        out.write(body)
        out.flush()
        blocked.set()
        release.wait(30)

    server = front(lambda request: digest(big) in request.path and (request.cut(100000, slowly) or True))
    with subprocess.Popen(command(state, f"{server.host}/tiny"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        assert blocked.wait(30)
        part = state / f"templates/.blobs/{digest(big)[7:]}.part"
        wait_for(lambda: part.exists() and part.stat().st_size == 100000, "a part is there")
        process.kill()
    release.set()
    server.answer = None
    # As if it had been killed while it unpacked.
    (state / "templates/.tiny.1/files").mkdir(parents=True)
    assert json.loads(pull(state, f"{server.host}/tiny", "--json").stdout)["downloaded_bytes"] == len(big) - 100000
    assert sorted(entry.name for entry in (state / "templates").iterdir()) == [".blobs", "tiny"]


def test_two_pulls_at_once_download_one_blob(registry, state, front):
    big = layer({"usr/big": os.urandom(400000)})
    registry.push("tiny", "latest", [big])
    server = front()
    processes = [subprocess.Popen(command(state, f"{server.host}/tiny", "--name", f"t{i}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for i in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert len(server.asked(digest(big))) == 1


def test_a_blob_with_another_content_is_refused(registry, state):
    good = layer(BASE)
    registry.push("tiny", "latest", [good])
    stored = registry.blob_file(digest(good))
    stored.write_bytes(bytes(len(good)))
    assert f"the content of the blob {digest(good)} does not have that digest" in refused(state, f"{registry.host}/tiny")
    assert digest(good)[7:] not in blobs(state) and digest(good)[7:] + ".part" not in blobs(state)
    stored.write_bytes(good)
    assert pull(state, f"{registry.host}/tiny").stdout == "tiny\n"


def test_a_blob_of_another_size_is_refused(registry, state, front):
    good = layer(BASE)
    registry.push("tiny", "latest", [good])
    server = front(lambda request: digest(good) in request.path and (request.send(200, good + b"more") or True))
    assert f"the blob {digest(good)} is larger than the manifest says" in refused(state, f"{server.host}/tiny")
    server.answer = lambda request: digest(good) in request.path and "Range" not in request.headers and (request.send(200, good[:-1]) or True)
    assert pull(state, f"{server.host}/tiny").stdout == "tiny\n"


def test_what_is_not_there_is_named(registry, state, front):
    registry.push("tiny", "latest", [layer(BASE)])
    assert f"the registry {registry.host} has no image tiny:nope" in refused(state, f"{registry.host}/tiny:nope")
    assert f"the registry {registry.host} has no image some/thing:1.0" in refused(state, f"{registry.host}/some/thing:1.0")
    absent = "sha256:" + "0" * 64
    assert f"has no image tiny@{absent}" in refused(state, f"{registry.host}/tiny@{absent}")
    server = front(lambda request: request.path == "/v2/" and (request.send(404) or True))
    assert f"{server.host} is not a registry" in refused(state, f"{server.host}/tiny")
    with socket.socket() as deaf:  # the port is taken, and nobody listens
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        message = refused(state, f"127.0.0.1:{port}/tiny")
    assert f"the registry 127.0.0.1:{port} cannot be reached" in message and "refused" in message
    assert "cannot be reached" in refused(state, "registry.invalid/tiny")


def pull_secure(state, image, certificate=None):
    """Without --insecure; a certificate is trusted as users do it."""
    trusted = {"SSL_CERT_FILE": str(certificate.chain)} if certificate else {}
    return subprocess.run([SANDGLASS, "template", "pull", "--state", state, image], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "HOME": str(state), **trusted})


def test_a_registry_without_tls_needs_insecure(registry, state):
    registry.push("tiny", "latest", [layer(BASE)])
    result = pull_secure(state, f"{registry.host}/tiny")
    assert result.returncode == 1 and "cannot be reached" in result.stderr and "--insecure" in result.stderr


def test_a_registry_with_tls_has_to_be_trusted(work, state):
    certificate = issuer.Certificate(work)
    with running(Registry(work / "secure", certificate=certificate).start()) as registry:
        registry.push("tiny", "latest", [layer({"usr/big": os.urandom(400000)})])
        result = pull_secure(state, f"{registry.host}/tiny")
        assert result.returncode == 1 and "cannot be reached" in result.stderr and "certificate" in result.stderr
        result = pull_secure(state, f"{registry.host}/tiny", certificate)
        assert (result.returncode, result.stdout) == (0, "tiny\n"), result.stderr


def test_nothing_leads_from_tls_to_plain_http(registry, state, front, work):
    registry.push("tiny", "latest", [layer(BASE)])
    certificate = issuer.Certificate(work)
    plain = front()
    server = front(lambda request: "/blobs/" in request.path and (request.send(307, headers={"Location": f"http://{plain.host}{request.path}"}) or True),
                   certificate)
    result = pull_secure(state, f"{server.host}/tiny", certificate)
    assert result.returncode == 1 and "is not encrypted" in result.stderr
    server.answer = TokenAuth()  # whose realm is plain
    result = pull_secure(state, f"{server.host}/tiny", certificate)
    assert result.returncode == 1 and "is not encrypted" in result.stderr
    assert not plain.log


@pytest.mark.parametrize("image", ["", "UPPER", "a b", "tiny:", "tiny@sha256:12", "../etc", "host//x", "http://host/x", "a/b:c/d"])
def test_a_malformed_name_is_refused(state, image):
    assert "image" in refused(state, image)


HOSTILE = [
    ("huge", lambda image: (OCI_MANIFEST, b"{" + b" " * (5 << 20)), "the manifest is larger than 4 MB"),
    ("html", lambda image: ("text/html", b"<html></html>"), "not valid JSON"),
    ("type", lambda image: ("application/json", b"{}"), 'unsupported media type "application/json"'),
    ("old", lambda image: ("application/vnd.docker.distribution.manifest.v1+prettyjws", b"{}"), "manifest.v1+prettyjws"),
    ("two types", lambda image: (OCI_INDEX, json.dumps(image).encode()), "calls itself"),
    ("dots", lambda image: (OCI_MANIFEST, json.dumps({**image, "config": {**image["config"], "digest": "sha256:../../../../etc/passwd"}}).encode()),
     "a digest that is not sha256"),
    ("no layers", lambda image: (OCI_MANIFEST, json.dumps({**image, "layers": []}).encode()), "names no layers"),
    ("many layers", lambda image: (OCI_MANIFEST, json.dumps({**image, "layers": image["layers"] * 513}).encode()), "more than 512 layers"),
    ("large", lambda image: (OCI_MANIFEST, json.dumps({**image, "layers": [{**image["layers"][0], "size": 1 << 40}]}).encode()), "too large"),
    ("negative", lambda image: (OCI_MANIFEST, json.dumps({**image, "layers": [{**image["layers"][0], "size": -1}]}).encode()), "size"),
    ("zstd", lambda image: (OCI_MANIFEST, json.dumps({**image, "layers": [{**image["layers"][0], "mediaType": OCI_LAYER + "+zstd"}]}).encode()),
     f'unsupported media type "{OCI_LAYER}+zstd"'),
    ("not json", lambda image: (OCI_MANIFEST, b"[" * 100000), "manifest"),
]


@pytest.mark.parametrize("make, message", [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_manifest_is_refused(registry, state, front, make, message):
    registry.push("tiny", "latest", [layer(BASE)])
    image = json.loads(registry.ask("GET", "/v2/tiny/manifests/latest", headers={"Accept": OCI_MANIFEST}).body)
    media_type, body = make(image)
    server = front(lambda request: "/manifests/" in request.path and (request.send(200, body, {"Content-Type": media_type}) or True))
    assert message in refused(state, f"{server.host}/tiny")


def test_a_manifest_with_another_digest_is_refused(registry, state, front):
    pushed = registry.push("tiny", "latest", [layer(BASE)])
    other = registry.push("tiny", "other", [layer(UPPER)])
    body = registry.ask("GET", f"/v2/tiny/manifests/{other['digest']}", headers={"Accept": OCI_MANIFEST}).body
    server = front(lambda request: "/manifests/" in request.path and (request.send(200, body, {"Content-Type": OCI_MANIFEST}) or True))
    assert f"the manifest {pushed['digest']} does not have that digest" in refused(state, f"{server.host}/tiny@{pushed['digest']}")


def test_a_hostile_layer_stays_inside(registry, state, work):
    (work / "safe").write_text("safe")
    registry.push("tiny", "1", [layer({"../../../../safe": b"bad"})])
    assert "leads out of the archive" in refused(state, f"{registry.host}/tiny:1")
    registry.push("tiny", "2", [layer({}, links=[("out", str(work))]), layer({"out/safe": b"bad"})])
    pull(state, f"{registry.host}/tiny:2", check=False)
    assert (work / "safe").read_text() == "safe"
    registry.push("tiny", "3", [b"\x1f\x8b nonsense"])
    assert "layer sha256:" in pull(state, f"{registry.host}/tiny:3", check=False).stderr


# --- progress ---------------------------------------------------------------------------------------------------


def slowly(seconds):
    def send(out, body):
        for i in range(20):
            out.write(body[i * len(body) // 20:(i + 1) * len(body) // 20])
            out.flush()
            time.sleep(seconds / 20)

    return send


def test_progress_in_a_pipe_is_a_line_every_few_seconds(registry, state, front):
    big = layer({"usr/big": os.urandom(4000000)})
    registry.push("tiny", "latest", [layer(BASE), big])
    server = front(lambda request: digest(big) in request.path and (request.cut(len(big), slowly(5)) or True))
    result = pull(state, f"{server.host}/tiny")
    lines = result.stderr.splitlines()
    assert len(lines) >= 2 and "\r" not in result.stderr and result.stdout == "tiny\n"
    assert any(re.fullmatch(r"sandglass: downloading layer 2 of 2: [\d.]+ [KM]B of 3.8 MB, \d+%, [\d.]+ [KM]B/s", line) for line in lines), lines
    assert all(re.match(r"sandglass: (downloading|unpacking) layer [12] of 2: ", line) for line in lines[:-1]), lines
    assert lines[-1].startswith("sandglass: pulled ")


def test_progress_on_a_terminal_is_one_line(registry, state, front):
    big = layer({"usr/big": os.urandom(4000000)})
    registry.push("tiny", "latest", [big])
    terminal = None

    def until_shown(out, body):
        """In small pieces, until the line has been written anew often enough."""
        at = 0
        while at < len(body) and not (terminal and terminal.seen.count(b"\r") > 5):
            out.write(body[at:at + 20000])
            out.flush()
            at += 20000
            time.sleep(0.05)
        out.write(body[at:])

    server = front(lambda request: digest(big) in request.path and (request.cut(len(big), until_shown) or True))
    terminal = Terminal(command(state, f"{server.host}/tiny"), os.environ)
    try:
        assert terminal.wait(60) == 0
        wait_for(lambda: terminal.read(0) or terminal.seen.endswith(b"tiny\r\n"), "all of it is shown")
    finally:
        terminal.close()
    lines = terminal.seen.decode().split("\r\n")
    rewritten = lines[0].split("\r")
    assert len(rewritten) > 4 and all(re.match(r"(downloading|unpacking) layer 1 of 1: ", line) and line.endswith("\033[K") for line in rewritten[1:-1])
    assert rewritten[-1].startswith("\033[Ksandglass: pulled ") and lines[1:] == ["tiny", ""]


def test_import_shows_progress(state, work):
    archive = work / "big.tar.gz"
    archive.write_bytes(layer({"usr/big": os.urandom(3000000)}))
    result = subprocess.run([SANDGLASS, "template", "import", "--state", state, "big", archive], capture_output=True, text=True, timeout=60)
    reading = r"sandglass: reading the archive: [\d.]+ [KM]B, [\d.]+ [KM]B/s"  # of a machine that takes seconds for it
    assert (result.returncode, result.stdout) == (0, "") and re.fullmatch(rf"({reading}\n)*sandglass: imported big: 1 file, 2\.9 MB\n", result.stderr), result
    again = [SANDGLASS, "template", "import", "--state", state, "big", "-"]
    assert "--replace" in subprocess.run(again, input=b"", capture_output=True, timeout=60).stderr.decode()
    with subprocess.Popen([*again, "--replace"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=False) as process:
        data = archive.read_bytes()
        slowly(4)(process.stdin, data)
        process.stdin.close()
        lines = process.stderr.read().decode().splitlines()
    assert process.returncode == 0 and re.fullmatch(reading, lines[0]), lines
    assert lines[-1] == "sandglass: imported big: 1 file, 2.9 MB"


# --- the page ---------------------------------------------------------------------------------------------------


def test_the_commands_of_the_page_work(registry, state, work):
    """Each `template pull` of docs/reference/templates.md, with our registry in place of the one that it names."""
    lines = re.findall(r"^    sandglass template pull (.*)$", (ROOT / "docs/reference/templates.md").read_text(), re.M)
    assert len(lines) >= 5
    (work / "password").write_text("not asked for")
    for line in lines:
        *options, image = line.split()
        host, path = image.split("/", 1) if re.match(r"localhost|[^/]*[.:][^/]*/", image) else ("", image)
        path, _, pinned = path.partition("@")
        name, _, tag = path.partition(":")
        architecture = options[options.index("--platform") + 1].split("/")[1] if "--platform" in options else "amd64"
        pushed = registry.push(name, tag or "latest", [layer({"etc/line": line.encode()})], {"architecture": architecture})
        assert ("--insecure" in options) == host.startswith("localhost"), line
        options = [str(work / "password") if before == "--password-file" else word for before, word in zip(["", *options], options)]
        ours = f"{registry.host}/{path}" + (f"@{pushed['digest']}" if pinned else "")
        made = pull(state, ours, *[word for word in options if word != "--insecure"]).stdout.strip()
        assert (root(state, made) / "etc/line").read_text() == line
