# SPDX-License-Identifier: Apache-2.0
"""What a test asks the API server behind the daemon's back; one connection for each request."""
import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import time
import urllib.parse
from types import SimpleNamespace


class ApiError(Exception):
    pass


class Api:
    """Of a kubeconfig with a certificate or a token."""

    def __init__(self, config):
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urllib.parse.urlsplit(cluster["server"])
        self.token = user.get("token")
        self.context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as file:
                file.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
                file.flush()
                self.context.load_cert_chain(file.name)

    @classmethod
    def of(cls, path):
        with open(path) as file:
            return cls(json.load(file))

    def request(self, method, path, body=None, kind="application/json", timeout=30):
        connection = http.client.HTTPSConnection(self.address.hostname, self.address.port, context=self.context, timeout=timeout)
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        if body is not None:
            headers["Content-Type"] = kind
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        parsed = None
        with contextlib.suppress(ValueError):
            parsed = json.loads(data)
        return SimpleNamespace(status=answer.status, headers=answer.headers, body=data, json=parsed)

    def call(self, method, path, body=None, **options):
        """As request, but an answer that is no success raises."""
        answer = self.request(method, path, body, **options)
        if answer.status >= 300:
            raise ApiError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        return answer.json

    def pods(self, namespace="default", selector=""):
        return self.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={urllib.parse.quote(selector)}")["items"]

    def pod(self, name, namespace="default"):
        return self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/readyz", timeout=5).status == 200
        return False


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found
