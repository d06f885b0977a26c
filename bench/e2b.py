#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`Sandbox.create` and `commands.run("true")` through the published JavaScript client of E2B, unmodified, over one TCP port, in turns with F0
(`posix_spawn` and `wait` of /bin/true) and with the same calls to a server that answers fixed bytes: what the client costs by itself. Prints a line
of JSON for each row: the median in milliseconds and in F0, and the tenth of the times that were the best, for a machine that is not at rest.

    bench/e2b.py [build] [--rounds N]
    bench/e2b.py [build] --files [--mib N]    upload and download by E2B's routes beside our own, in turns, in MiB per second
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
F0 = """
import os, statistics, time
def once():
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)
    return (time.perf_counter() - begin) * 1000
print(statistics.median(once() for _ in range(9)))
"""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
parser.add_argument("--rounds", type=int, default=100)
parser.add_argument("--files", action="store_true", help="measure files instead of commands")
parser.add_argument("--mib", type=int, default=1024, help="size of the file (1024)")


def serve(program, folder):
    """A daemon with keys on a free port: its process, its URL and a key for the clients."""
    keys, config = folder / "keys", folder / "sandglass.yaml"
    made = subprocess.run([program, "key", "create", "--principal", "ann", "--e2b", "--json", "--keys-file", keys], capture_output=True, text=True, check=True)
    config.write_text(json.dumps({
        "state_dir": str(folder / "state"), "listen": [f"unix:{folder}/run/s.sock", "127.0.0.1:0"], "log": {"level": "error"},
        "auth": {"mode": "keys", "keys_file": str(keys)}, "shutdown": {"policy": "destroy"}, "pool": {"size": 4},
        "sandbox": {"memory": "6g"}}))
    daemon = subprocess.Popen([program, "serve", "--config", config])
    return daemon, json.loads(made.stdout)["key"]


def find_url(daemon):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and daemon.poll() is None:
        for port in ports_of(daemon.pid):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1)
                return f"http://127.0.0.1:{port}"
            except OSError:
                continue
        time.sleep(0.05)
    raise SystemExit("the daemon does not answer")


def ports_of(pid):
    """The TCP ports that a process listens on."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes]


# --- a server that does nothing ---------------------------------------------------------------------------------------------------

HEAD = "X-Request-Id: req_00000000000000000000000000\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
CREATED = json.dumps({"sandboxID": "i" + "0" * 26, "templateID": "base", "alias": "base", "clientID": "sandglass", "envdVersion": "0.6.13",
                      "envdAccessToken": "0" * 64, "trafficAccessToken": "0" * 64, "domain": None})


def chunk(message, flags=0):
    content = bytes([flags]) + len(message).to_bytes(4, "big") + message
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


# How a request begins, how it ends, and the pieces of its answer.
ANSWERS = [
    (b"POST /v2/sandboxes", b"0\r\n\r\n", [f"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {len(CREATED)}\r\n{HEAD}{CREATED}".encode()]),
    (b"POST /process", b"}", [
        f"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n{HEAD}".encode() + chunk(b'{"event":{"start":{"pid":11}}}'),
        chunk(b'{"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}}') + chunk(b"{}", 2) + b"0\r\n\r\n"]),
    (b"DELETE", b"\r\n\r\n", [f"HTTP/1.1 204 No Content\r\n{HEAD}".encode()]),
]


def answer(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = b""
    while got := connection.recv(65536):
        request += got
        for begin, end, pieces in ANSWERS:
            if request.startswith(begin) and request.endswith(end):
                request = b""
                for piece in pieces:
                    connection.sendall(piece)


def serve_nothing():
    """The URL of a server with fixed answers, in threads of this process."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


# --- files ------------------------------------------------------------------------------------------------------------------------

BLOCK = os.urandom(1 << 20)


class Peer:
    """A connection that sends and takes large bodies with as little of its own as Python allows."""

    def __init__(self, url, headers):
        self.address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self.headers = headers

    def open(self, method, path, headers):
        stream = socket.create_connection(self.address)
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"] + [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        stream.sendall("\r\n".join(lines + ["", ""]).encode())
        return stream

    def call(self, method, path, body=b"", **headers):
        with self.open(method, path, {"Content-Length": len(body), **headers}) as stream:
            stream.sendall(body)
            return self.answer_of(stream)

    @staticmethod
    def answer_of(stream):
        whole = b"".join(iter(lambda: stream.recv(65536), b""))
        head, _, body = whole.partition(b"\r\n\r\n")
        if head.split(b" ")[1][:1] != b"2":
            raise SystemExit(whole.decode(errors="replace"))
        return body

    def put(self, method, path, mib, before=b"", after=b"", **headers):
        begin = time.perf_counter()
        with self.open(method, path, {"Content-Length": (mib << 20) + len(before) + len(after), **headers}) as stream:
            stream.sendall(before)
            for _ in range(mib):
                stream.sendall(BLOCK)
            stream.sendall(after)
            self.answer_of(stream)
        return mib / (time.perf_counter() - begin)

    def get(self, path, mib):
        space, begin, total = bytearray(1 << 20), time.perf_counter(), 0
        with self.open("GET", path, {}) as stream:
            while got := stream.recv_into(space):
                total += got
        if total < mib << 20:
            raise SystemExit(f"{path}: {total} bytes came")
        return mib / (time.perf_counter() - begin)


def measure_files(url, key, mib, turns=3):
    api = Peer(url, {"X-API-Key": key, "Content-Type": "application/json"})
    made = json.loads(api.call("POST", "/v2/sandboxes", b'{"templateID":"base"}'))
    envd = Peer(url, {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": made["envdAccessToken"]})
    own = Peer(url, {"Authorization": f"Bearer {key.replace('e2b_', 'sg_')}"})
    ours = f"/api/v1/sessions/ses_{made['sandboxID'][1:]}/files?path=/home/user/file"
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n\r\n'
    works = {
        "upload: own route": lambda: own.put("PUT", ours, mib, **{"Content-Type": "application/octet-stream"}),
        "upload: E2B, octet-stream": lambda: envd.put("POST", "/files?path=/home/user/file", mib, **{"Content-Type": "application/octet-stream"}),
        "upload: E2B, form": lambda: envd.put("POST", "/files?path=/home/user/file", mib, form, b"\r\n--x--\r\n", **{"Content-Type": "multipart/form-data; boundary=x"}),
        "download: own route": lambda: own.get(ours, mib),
        "download: E2B": lambda: envd.get("/files?path=/home/user/file", mib),
    }
    speeds = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            speeds[name].append(work())
    for name, values in speeds.items():
        reference = speeds[name.split(":")[0] + ": own route"]
        print(json.dumps({"name": name, "mib": mib, "median_mib_s": round(statistics.median(values)), "best_mib_s": round(max(values)),
                          "of_own_route": round(max(values) / max(reference), 2)}), flush=True)


# --- calls ------------------------------------------------------------------------------------------------------------------------


def low(values):
    return sorted(values)[len(values) // 10]


def report(times):
    f0, best = statistics.median(times["f0"]), low(times["f0"])
    for name, values in times.items():
        median = statistics.median(values)
        print(json.dumps({"name": name, "count": len(values), "median_ms": round(median, 3), "f0": round(median / f0, 2),
                          "p10_ms": round(low(values), 3), "p10_f0": round(low(values) / best, 2)}), flush=True)


def measure_calls(url, key, rounds):
    packages = subprocess.run([ROOT / "tests" / "e2b" / "install"], capture_output=True, text=True, check=True).stdout.strip()
    known = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    done = subprocess.run(["node", ROOT / "bench" / "e2b.mjs", "/usr/bin/python3", str(rounds), F0], capture_output=True, text=True,
                          env={**known, "NODE_MODULES": f"{packages}/node_modules", "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key,
                               "ALONE_URL": serve_nothing()})
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    report(json.loads(done.stdout))


def main():
    options = parser.parse_args()
    program = options.build.resolve() / "sandglass"
    with tempfile.TemporaryDirectory(prefix="sgb-") as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o755)
        daemon, key = serve(program, folder)
        try:
            url = find_url(daemon)
            if options.files:
                measure_files(url, key, options.mib)
            else:
                measure_calls(url, key, options.rounds)
        finally:
            daemon.terminate()
            daemon.wait(30)


if __name__ == "__main__":
    main()
