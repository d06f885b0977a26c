# SPDX-License-Identifier: Apache-2.0
"""A small dev server that tests run inside of a sandbox, by the standard library alone: HTTP/1.1, WebSocket echo, raw TCP. Prints its port."""
import base64
import hashlib
import http.server
import json
import os
import socket
import socketserver
import struct
import sys
import threading
import urllib.parse

PATTERN = bytes(range(251)) * 1044  # about 256 kB that no boundary of a buffer divides


def pattern(total):
    """`total` bytes, piece by piece."""
    while total > 0:
        yield PATTERN[:total]
        total -= len(PATTERN[:total])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, kind="text/plain", status=200, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        """Digest and length of what was sent, in either framing."""
        digest, length = hashlib.sha256(), 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                piece = self.rfile.read(size)
                digest.update(piece)
                length += size
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536))
            if not piece:
                break
            digest.update(piece)
            length += len(piece)
            left -= len(piece)
        return {"length": length, "sha256": digest.hexdigest(), "chunked": "Transfer-Encoding" in self.headers}

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/log":
            return self.answer(json.dumps(LOG).encode(), "application/json")
        LOG.append(f"{self.command} {self.path}")
        if url.path == "/ws":
            return self.websocket()
        if url.path == "/big":
            return self.big(int(query["bytes"]), "chunked" in query)
        if url.path == "/old":  # an answer that ends with the connection
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")
            self.close_connection = True
            return None
        if url.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
            self.close_connection = True
            return None
        if url.path == "/raw":  # an answer as the test wants it
            self.wfile.write(base64.b64decode(query["text"]))
            self.close_connection = True
            return None
        if url.path == "/headers":
            sent = [tuple(pair) for pair in json.loads(query["set"])]
            return self.answer(b"headers", status=int(query.get("status", 200)), headers=sent)
        if url.path == "/page":
            return self.answer(PAGES[query.get("name", "dev")].encode(), "text/html")
        if url.path == "/app.js":
            return self.answer(b"window.loaded = 'app.js'; export const loaded = 'app.js';", "text/javascript")
        document = {"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()},
                    "body": self.body()}
        return self.answer(json.dumps(document).encode(), "application/json")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = serve

    def big(self, total, chunked):
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(total))))
        self.end_headers()
        for piece in pattern(total):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def websocket(self):
        """Sends back every message; "bye" ends it."""
        self.close_connection = True
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        if self.headers.get("Sec-WebSocket-Protocol"):
            self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"].split(",")[0].strip())
        self.end_headers()
        while True:
            first = self.rfile.read(2)
            if len(first) < 2 or first[0] & 15 == 8:
                return
            length = first[1] & 127
            if length == 126:
                length = struct.unpack(">H", self.rfile.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4) if first[1] & 128 else bytes(4)
            text = bytes(byte ^ mask[i & 3] for i, byte in enumerate(self.rfile.read(length)))
            size = bytes([len(text)]) if len(text) < 126 else b"\x7e" + struct.pack(">H", len(text))
            self.wfile.write(b"\x81" + size + text)
            if text == b"bye":
                return


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512


class Server6(Server):
    address_family = socket.AF_INET6


def serve_tcp(handle, address="127.0.0.1"):
    server = socket.create_server((address, 0), backlog=512)
    print("port", server.getsockname()[1], flush=True)

    def one(connection):
        with connection:
            handle(connection)

    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def echo(connection):
    """Sends back what comes, and its digest at the end: the client closes its half first."""
    digest, total = hashlib.sha256(), 0
    while piece := connection.recv(65536):
        connection.sendall(piece)
        digest.update(piece)
        total += len(piece)
    connection.sendall(f"\n{total} {digest.hexdigest()}".encode())


def count(connection):
    """Says all of it at once and closes its half; then reads to the end, and notes how much that was."""
    connection.sendall(b"all of it")
    connection.shutdown(socket.SHUT_WR)
    total = 0
    while piece := connection.recv(65536):
        total += len(piece)
    print("counted", total, flush=True)


LOG = []
PAGES = json.loads(os.environ.get("PAGES") or "{}")

if __name__ == "__main__":
    kind = sys.argv[1] if len(sys.argv) > 1 else "http"
    if kind in ("http", "http6"):
        server = Server(("127.0.0.1", 0), Handler) if kind == "http" else Server6(("::1", 0), Handler)
        print("port", server.server_address[1], flush=True)
        server.serve_forever()
    serve_tcp({"echo": echo, "count": count}[kind])
