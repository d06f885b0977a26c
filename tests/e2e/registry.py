# SPDX-License-Identifier: Apache-2.0
"""A registry of one's own: Debian's docker-registry on loopback, images that are pushed by plain HTTP, and a proxy that misbehaves."""
import base64
import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import tarfile
import threading
import urllib.parse

import pytest
from conftest import free_port, wait_for

PROGRAM = shutil.which("docker-registry")

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer(files, links=(), compress=True):
    """A layer with files by name: bytes, or (bytes, mode)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            data, mode = content if isinstance(content, tuple) else (content, 0o644)
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return gzip.compress(packed.getvalue(), mtime=0) if compress else packed.getvalue()


class Registry:
    """docker-registry with a configuration of the test's own."""

    def __init__(self, directory, auth=None, certificate=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(exist_ok=True)
        self.storage = self.directory / "storage"
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.authorization = None
        settings = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(self.storage)}},
                    "http": {"addr": self.host, "secret": "test"}}
        self.context = None
        if auth:
            settings["auth"] = auth
        if certificate:
            settings["http"]["tls"] = {"certificate": str(certificate.chain), "key": str(certificate.key)}
            self.context = ssl.create_default_context(cafile=certificate.chain)
        self.config = self.directory / "config.yml"
        self.config.write_text(json.dumps(settings))  # JSON is YAML
        self.process = None

    def start(self):
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen([PROGRAM, "serve", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})
        wait_for(self.answers, "the registry answers")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            return self.ask("GET", "/v2/").status in (200, 401)
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)

    def ask(self, method, target, body=None, headers=None):
        if self.context:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = dict(headers or {})
        if self.authorization:
            headers["Authorization"] = self.authorization
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            response.body = response.read()
            return response
        finally:
            connection.close()

    def push_blob(self, path, data):
        started = self.ask("POST", f"/v2/{path}/blobs/uploads/")
        assert started.status == 202, started.body
        place = urllib.parse.urlsplit(started.headers["Location"])
        target = f"{place.path}?{place.query}&digest={urllib.parse.quote(digest(data))}"
        answer = self.ask("PUT", target, data, {"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer.body
        return digest(data)

    def push_manifest(self, path, reference, document, media_type):
        data = json.dumps({"mediaType": media_type, **document}).encode()
        answer = self.ask("PUT", f"/v2/{path}/manifests/{reference}", data, {"Content-Type": media_type})
        assert answer.status == 201, answer.body
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}

    def push(self, path, tag, layers, config=None, docker=False):
        """Pushes an image; its descriptor. The layers are gzipped ones."""
        types = (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER) if docker else (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER + "+gzip")
        described = json.dumps({"os": "linux", "architecture": "amd64", **(config or {})}).encode()
        document = {"schemaVersion": 2,
                    "config": {"mediaType": types[1], "digest": self.push_blob(path, described), "size": len(described)},
                    "layers": [{"mediaType": types[2] if data[:2] == b"\x1f\x8b" else OCI_LAYER, "digest": self.push_blob(path, data),
                                "size": len(data)} for data in layers]}
        return self.push_manifest(path, tag or digest(json.dumps({"mediaType": types[0], **document}).encode()), document, types[0])

    def blob_file(self, blob):
        digits = blob.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / digits[:2] / digits / "data"


class Front(http.server.ThreadingHTTPServer):
    """Stands in front of a registry, passes requests on, keeps a log of them, and lets a test change the answers.

    `answer(request)`: a hook that has answered when it returns True."""

    daemon_threads = True

    def __init__(self, registry, answer=None, certificate=None):
        super().__init__(("127.0.0.1", 0), FrontHandler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.chain, certificate.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.registry, self.answer = registry, answer
        self.host = f"127.0.0.1:{self.server_address[1]}"
        self.log = []  # (path, headers)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a client that goes away is what some tests are about

    def asked(self, word):
        return [(path, headers) for path, headers in self.log if word in path]


class FrontHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.server.log.append((self.path, dict(self.headers)))
        if not (self.server.answer and self.server.answer(self)):
            self.pass_on()

    def fetch(self):
        """The registry's own answer."""
        return self.server.registry.ask("GET", self.path, headers={name: value for name, value in self.headers.items()
                                                                  if name in ("Accept", "Range")})

    def pass_on(self):
        answer = self.fetch()
        self.send(answer.status, answer.body, {name: value for name, value in answer.headers.items()
                                               if name in ("Content-Type", "Docker-Content-Digest", "Content-Range")})

    def send(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self, after, slowly=None):
        """Sends the head and so many bytes of the body, and closes the connection."""
        answer = self.fetch()
        self.send_response(answer.status)
        for name in ("Content-Type", "Content-Range"):
            if answer.headers.get(name):
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = answer.body[:after]
        if slowly:
            slowly(self.wfile, body)
        else:
            self.wfile.write(body)
        self.wfile.flush()
        self.close_connection = True


class TokenAuth:
    """Demands a token for everything, and gives one for a scope to everybody, or only to a user with a password."""

    def __init__(self, user=None):
        self.basic = "Basic " + base64.b64encode(user.encode()).decode() if user else None
        self.issued = []

    def __call__(self, request):
        if request.path.startswith("/token?"):
            if self.basic and request.headers.get("Authorization") != self.basic:
                request.send(401, b'{"errors": []}')
                return True
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
            self.issued.append(query)
            body = json.dumps({"token": f"token-{len(self.issued)}", "expires_in": 60}).encode()
            request.send(200, body, {"Content-Type": "application/json"})
            return True
        if self.issued and request.headers.get("Authorization") == f"Bearer token-{len(self.issued)}":
            return False
        name = "user/image" if request.path == "/v2/" else "tiny"  # ghcr.io names an example at its front page
        realm = f'Bearer realm="http://{request.server.host}/token",service="the test",scope="repository:{name}:pull"'
        request.send(401, b'{"errors": []}', {"WWW-Authenticate": realm})
        return True


needs_registry = pytest.mark.skipif(not PROGRAM, reason="docker-registry is not installed")


@contextlib.contextmanager
def running(server):
    try:
        yield server
    finally:
        server.stop()
