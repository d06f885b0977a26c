# SPDX-License-Identifier: Apache-2.0
"""An API server that is played, for tests of what a real one does seldom: quotas, storms of 429, expired watches, rotated tokens, cut streams.

It answers as kube-apiserver 1.34 does (test_api_server.py compares the two), over TLS with tokens, and runs pods as processes of this host (pod_runner.py).

    server = ApiServer(directory); server.url; server.token; server.write_kubeconfig(path)
    server.fail(r"POST .*/pods$", 429, times=3, retry_after=1)     the next three creates
    server.cut_streams(after=1000)                                 every exec breaks after a thousand bytes of output
    server.store.expire()                                          every watch has to list again
    server.rotate("new token")                                     the old one is 401 from now on
    server.close()
"""
import base64
import contextlib
import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes import exec_stream, objects, pod_runner  # noqa: E402

RESOURCE = re.compile(r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?$")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
BOOKMARK_SECONDS = 1
DISCOVERY = {  # as much as kubectl asks for before it does anything
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": name, "singularName": "", "namespaced": True, "kind": objects.KINDS[name], "verbs": ["create", "delete", "get", "list", "watch"]}
        for name in ("pods", "configmaps")]},
}
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
           504: "Timeout"}


class Fault:
    """Requests whose "METHOD PATH" matches get this instead of an answer, `times` times."""

    def __init__(self, pattern, code, times=1, retry_after=None, message=None, after=False):
        self.pattern, self.code, self.times = re.compile(pattern), code, times
        self.headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        self.message = message or f"a fault of the test: {code}"
        self.after = after  # the request is done, and its answer lost

    def takes(self, line):
        if self.times <= 0 or not self.pattern.search(line):
            return False
        self.times -= 1
        return True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a connection that finds no place in the queue is made a second later


class ApiServer:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.store = objects.Store()
        self.pods = {}  # that run, by namespace and name
        self.lock = threading.Lock()
        self.pod_lock = threading.Lock()  # a pod that is being made is not deleted half made
        self.faults = []
        self.requests = []  # "METHOD PATH", in the order in which they came
        self.missing_images, self.denied = set(), set()  # of images; of "VERB RESOURCE" that RBAC refuses
        self.unschedulable = None  # the scheduler's message
        self.groups = {}  # resources of controllers that are played: group and version -> names
        self.cut_after = None
        self.streams = set()  # open connections of watches and execs
        self.token = "played-token"
        self.tokens = {self.token}
        self.is_closing = False
        self.server = self.listen()

    def listen(self):
        make_certificate(self.directory)
        server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"played": self}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"https://127.0.0.1:{server.server_address[1]}"
        return server

    def write_kubeconfig(self, path, token_file=None, namespace="default"):
        """Of a user with the token, or with a file in which it is."""
        authority = base64.b64encode((self.directory / "server.crt").read_bytes()).decode()
        user = {"tokenFile": str(token_file)} if token_file else {"token": self.token}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "played", "users": [{"name": "user", "user": user}],
            "clusters": [{"name": "played", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "contexts": [{"name": "played", "context": {"cluster": "played", "user": "user", "namespace": namespace}}]}))

    # --- what a test does to it ---

    def fail(self, pattern, code, **options):
        """Code 0 breaks the connection without an answer."""
        fault = Fault(pattern, code, **options)
        with self.lock:
            self.faults.append(fault)
        return fault

    def fault_for(self, line):
        with self.lock:
            self.requests.append(line)
            return next((fault for fault in self.faults if fault.takes(line)), None)

    def cut_streams(self, after=None):
        """Now, and those to come after so many bytes of output each; None: no longer."""
        self.cut_after = after
        with self.lock:
            streams = list(self.streams)
        for connection in streams:
            with contextlib.suppress(OSError):
                connection.shutdown(2)

    def rotate(self, token, keep_old=False):
        self.tokens = {token} | (self.tokens if keep_old else set())
        self.token = token

    def end_pod(self, name, namespace="default", phase="Failed", **status):
        """What a kubelet or a controller says of a pod that it has ended: reason, message, terminated={"reason": "OOMKilled", "exitCode": 137}."""
        pod = self.pods[namespace, name]
        pod.is_judged = True
        pod.say(phase=phase, **status)
        pod.kill()

    def close(self):
        self.is_closing = True
        for pod in list(self.pods.values()):
            pod.delete(0)
        for pod in list(self.pods.values()):
            pod.ended.wait(20)
        self.cut_streams()
        self.server.shutdown()
        self.server.server_close()

    # --- pods ---

    def create_pod(self, namespace, item):
        name = item.get("metadata", {}).get("name", "")
        if name and not POD_NAME.match(name):
            raise objects.Refused(422, "Invalid", f"Pod \"{name}\" is invalid: metadata.name: Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case "
                                  "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character", name=name, kind="Pod")

        def begin(target):
            target["status"] = {"phase": "Pending", "qosClass": "Guaranteed"}
            if self.unschedulable:
                target["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.unschedulable}]
        with self.pod_lock:
            self.store.create("pods", namespace, item, "v1")
            made = self.store.change("pods", namespace, name, begin)
            if not self.unschedulable:
                self.pods[namespace, name] = pod_runner.Pod(self.store, made, self.directory / "pods", self.missing_images)
        return made

    def delete_pod(self, namespace, name, options):
        with self.pod_lock:
            return self.end_or_remove(namespace, name, options)

    def end_or_remove(self, namespace, name, options):
        item = self.store.get("pods", namespace, name)
        wanted = options.get("preconditions", {}).get("uid")
        if wanted and wanted != item["metadata"]["uid"]:
            raise objects.Refused(409, "Conflict", f"Operation cannot be fulfilled on Pod \"{name}\": the UID in the precondition ({wanted}) does not match the UID in record "
                                  f"({item['metadata']['uid']}). The object might have been deleted and then recreated", name=name, kind="pods")
        grace = options.get("gracePeriodSeconds", item["spec"].get("terminationGracePeriodSeconds", pod_runner.GRACE_SECONDS))
        pod = self.pods.get((namespace, name))
        if not pod or pod.ended.is_set():
            return self.store.remove("pods", namespace, name)

        def mark(target):
            target["metadata"] |= {"deletionTimestamp": objects.now(), "deletionGracePeriodSeconds": grace}
        item = self.store.change("pods", namespace, name, mark)
        pod.delete(grace)
        return item


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    played = None
    timeout = 120

    def setup(self):
        super().setup()
        with contextlib.suppress(OSError):
            self.connection.do_handshake()

    def log_message(self, *_):
        pass

    def handle_any(self):
        self.target = urllib.parse.urlsplit(self.path)
        self.query = {key: values[-1] for key, values in urllib.parse.parse_qs(self.target.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else {}
        fault = self.played.fault_for(f"{self.command} {self.path}")
        try:
            self.check_token()
            if fault and not fault.after:
                return self.obey(fault)
            answer = self.route()
            if fault:
                return self.obey(fault)
            if answer is not None:
                self.reply(201 if self.command == "POST" else 200, answer)
        except objects.Refused as refused:
            self.reply(refused.code, refused.body, refused.headers)
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def check_token(self):
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.played.tokens:
            raise objects.Refused(401, "Unauthorized", "Unauthorized")

    def obey(self, fault):
        if fault.code:
            self.reply(fault.code, objects.status(fault.code, REASONS.get(fault.code, "Unknown"), fault.message), fault.headers)
        else:
            self.close_connection = True
            self.connection.shutdown(2)

    def reply(self, code, body, headers=None):
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def route(self):
        if self.target.path in ("/readyz", "/healthz", "/livez"):
            return {"status": "ok"}
        if self.target.path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.11-played", "platform": "linux/amd64"}
        if self.target.path in DISCOVERY:
            return DISCOVERY[self.target.path]
        if (group := self.target.path.removeprefix("/apis/")) in self.played.groups:
            return {"kind": "APIResourceList", "groupVersion": group, "resources": [
                {"name": name, "singularName": "", "namespaced": True, "kind": objects.KINDS.get(name, name), "verbs": ["create", "delete", "get", "list", "watch"]}
                for name in self.played.groups[group]]}
        if self.target.path == REVIEW:
            return self.review()
        found = RESOURCE.match(self.target.path)
        if not found:
            raise objects.Refused(404, "NotFound", "the server could not find the requested resource")
        self.namespace, self.resource, self.name, sub = found["namespace"], found["resource"], found["name"], found["sub"]
        self.api_version = found["core"] or found["group"]
        if "agents.x-k8s.io" in self.api_version and self.resource not in self.played.groups.get(self.api_version, ()):
            raise objects.Refused(404, "NotFound", "the server could not find the requested resource")
        self.check_access(sub)
        if sub == "exec":
            return self.exec()
        if sub == "eviction":
            self.played.delete_pod(self.namespace, self.name, {})
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return {"GET": self.get, "POST": self.post, "PUT": self.put, "PATCH": self.patch, "DELETE": self.delete}[self.command]()

    def verb(self, sub):
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        return verbs.get(self.command) or ("get" if self.name or sub else "watch" if self.query.get("watch") in ("1", "true") else "list")

    def check_access(self, sub):
        verb, resource = self.verb(sub), self.resource + (f"/{sub}" if sub else "")
        if f"{verb} {resource}" in self.played.denied:
            raise objects.Refused(403, "Forbidden", f"{resource} is forbidden: User \"user\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \"{self.namespace}\"",
                                  kind=self.resource)

    def review(self):
        asked = self.body["spec"]["resourceAttributes"]
        resource = asked["resource"] + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        return {**self.body, "status": {"allowed": f"{asked['verb']} {resource}" not in self.played.denied}}

    def get(self):
        if self.name:
            return self.played.store.get(self.resource, self.namespace, self.name)
        if self.query.get("watch") in ("1", "true"):
            return self.watch()
        items, version = self.played.store.list(self.resource, self.namespace, self.query.get("labelSelector", ""))
        return self.page(items, version)

    def page(self, items, version):
        """`continue` is the number of what was told so far; it forgets changes in between, as lists of one moment do."""
        begin, limit = int(self.query.get("continue") or 0), int(self.query.get("limit") or 0)
        meta = {"resourceVersion": str(version)}
        if limit and begin + limit < len(items):
            meta |= {"continue": str(begin + limit), "remainingItemCount": len(items) - begin - limit}
        kind = objects.KINDS.get(self.resource, self.resource) + "List"
        return {"kind": kind, "apiVersion": self.api_version, "metadata": meta, "items": items[begin:begin + limit] if limit else items[begin:]}

    def post(self):
        if self.resource == "pods":
            return self.played.create_pod(self.namespace, self.body)
        return self.played.store.create(self.resource, self.namespace, self.body, self.api_version)

    def put(self):
        return self.played.store.replace(self.resource, self.namespace, self.name, self.body)

    def patch(self):
        self.played.store.get(self.resource, self.namespace, self.name)
        return self.played.store.change(self.resource, self.namespace, self.name, lambda item: objects.merge(item, self.body))

    def delete(self):
        if self.resource == "pods":
            return self.played.delete_pod(self.namespace, self.name, self.body)
        item = self.played.store.get(self.resource, self.namespace, self.name)
        if self.resource == "sandboxclaims":
            return self.mark_claim(item)
        self.played.store.remove(self.resource, self.namespace, self.name)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": self.name, "kind": self.resource}}

    def mark_claim(self, item):
        """Deleted in the foreground: it goes when its controller has removed what belongs to it."""
        wanted, uid = self.body.get("preconditions", {}).get("uid"), item["metadata"]["uid"]
        if wanted and wanted != uid:
            raise objects.Refused(409, "Conflict", f"the UID in the precondition ({wanted}) does not match the UID in record ({uid})", name=self.name, kind=self.resource)
        return self.played.store.change(self.resource, self.namespace, self.name, lambda target: target["metadata"].setdefault("deletionTimestamp", objects.now()))

    # --- streams ---

    @contextlib.contextmanager
    def stream(self):
        self.close_connection = True
        with self.played.lock:
            self.played.streams.add(self.connection)
        try:
            yield
        finally:
            with self.played.lock:
                self.played.streams.discard(self.connection)

    def watch(self):
        with self.stream():
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.tell_events()
            self.wfile.write(b"0\r\n\r\n")

    def tell(self, kind, item):
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def tell_events(self):
        """An old version is answered with 200 and one event, as the real one does."""
        store, selector = self.played.store, self.query.get("labelSelector", "")
        last = int(self.query.get("resourceVersion") or 0) or store.version
        deadline = time.monotonic() + int(self.query.get("timeoutSeconds") or 1800)
        marks = self.query.get("allowWatchBookmarks") in ("1", "true")
        marked = time.monotonic()
        while time.monotonic() < deadline and not self.played.is_closing:
            with store.changed:
                if last < store.oldest - 1:
                    expired = objects.status(410, "Expired", f"too old resource version: {last} ({store.oldest})")
                    events, last_known = None, last
                else:
                    if store.version == last:
                        store.changed.wait(0.2)
                    events, last_known = [event for event in store.events if event[0] > last], store.version
            if events is None:
                return self.tell("ERROR", expired)
            for version, kind, resource, namespace, item in events:
                if resource == self.resource and self.namespace in (None, namespace) and objects.selects(selector, item["metadata"].get("labels", {})):
                    self.tell(kind, item)
            last = max(last, last_known)
            if marks and time.monotonic() - marked > BOOKMARK_SECONDS:
                marked = time.monotonic()
                self.tell("BOOKMARK", {"kind": objects.KINDS.get(self.resource), "apiVersion": self.api_version, "metadata": {"resourceVersion": str(last)}})

    def exec(self):
        query = urllib.parse.parse_qs(self.target.query)
        self.played.store.get("pods", self.namespace, self.name)
        protocol = exec_stream.choose(self.headers.get("Sec-WebSocket-Protocol", ""))
        if self.headers.get("Upgrade", "").lower() != "websocket" or not protocol:
            raise objects.Refused(400, "BadRequest", "Upgrade request required")
        pod = self.played.pods.get((self.namespace, self.name))
        container = query.get("container", [None])[0]
        process = pod.exec(container, query.get("command", []), query.get("stdin", ["false"])[0] in ("1", "true")) if pod else None
        if not process:
            raise objects.Refused(500, "InternalError", f"Internal error occurred: error executing command in container: container not found (\"{container}\")")
        with self.stream():
            self.send_response(101)
            for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", exec_stream.accept_key(self.headers["Sec-WebSocket-Key"])),
                                ("Sec-WebSocket-Protocol", protocol)):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()
            exec_stream.Exec(self.connection, process, lambda count: self.played.cut_after is not None and count > self.played.cut_after).run()


def make_certificate(directory):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=played", "-addext",
                    "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(directory / "server.key"), "-out", str(directory / "server.crt")],
                   capture_output=True, check=True)


def main():
    """Until its input ends: api_server.py DIRECTORY; prints the path of a kubeconfig."""
    server = ApiServer(sys.argv[1])
    path = pathlib.Path(sys.argv[1]) / "kubeconfig"
    server.write_kubeconfig(path)
    print(path, flush=True)
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
