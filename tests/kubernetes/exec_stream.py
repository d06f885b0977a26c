# SPDX-License-Identifier: Apache-2.0
"""The end of an exec that the API server plays: WebSocket frames with a channel in their first byte, as v5.channel.k8s.io has them."""
import base64
import contextlib
import hashlib
import json
import os
import select
import struct

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
BINARY, END, PING, PONG = 2, 8, 9, 10
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


def accept_key(key):
    return base64.b64encode(hashlib.sha1(key.encode() + MAGIC).digest()).decode()


def choose(offered):
    return next((name for name in PROTOCOLS if name in [word.strip() for word in offered.split(",")]), None)


def frame(opcode, payload):
    head = struct.pack(">BB", 0x80 | opcode, len(payload)) if len(payload) < 126 else struct.pack(">BBH", 0x80 | opcode, 126, len(payload)) \
        if len(payload) < 65536 else struct.pack(">BBQ", 0x80 | opcode, 127, len(payload))
    return head + payload


class Frames:
    """Whole frames out of what came so far; of a client, and so masked."""

    def __init__(self):
        self.bytes = bytearray()

    def take(self):
        """Opcode and payload of the next one, or None."""
        data = self.bytes
        if len(data) < 2:
            return None
        size, at = data[1] & 127, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            if len(data) < at + wide:
                return None
            size, at = int.from_bytes(data[at:at + wide], "big"), at + wide
        if not data[1] & 128:
            raise ValueError("a frame of a client must be masked")
        if len(data) < at + 4 + size:
            return None
        mask, payload = data[at:at + 4], bytes(data[at + 4:at + 4 + size])
        result = data[0] & 15, bytes(one ^ mask[number % 4] for number, one in enumerate(payload)) if size < 64 else unmask(mask, payload)
        del data[:at + 4 + size]
        return result


def unmask(mask, payload):
    whole = int.from_bytes(payload, "big") ^ int.from_bytes((bytes(mask) * (len(payload) // 4 + 1))[:len(payload)], "big")
    return whole.to_bytes(len(payload), "big")


class Exec:
    """Moves bytes between a connection and a process until one of them ends. `cut` is asked before each write whether the connection breaks now."""

    def __init__(self, connection, process, cut=lambda count: False):
        self.connection, self.process, self.cut = connection, process, cut
        self.frames = Frames()
        self.sent = 0
        self.outputs = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}

    def send(self, channel, payload):
        self.sent += len(payload)
        if self.cut(self.sent):
            raise ConnectionError("cut")
        self.connection.sendall(frame(BINARY, bytes([channel]) + payload))

    def run(self):
        try:
            while self.outputs:
                pending = self.connection.pending() if hasattr(self.connection, "pending") else 0
                ready = select.select([self.connection, *self.outputs], [], [], 0 if pending else 1)[0]
                if (self.connection in ready or pending) and not self.receive():
                    return
                for fd in [one for one in ready if one in self.outputs]:
                    self.pass_on(fd)
            self.tell_end(self.process.wait())
        except (OSError, ValueError):
            pass
        finally:
            self.finish()

    def pass_on(self, fd):
        data = os.read(fd, 16384)
        if data:
            self.send(self.outputs[fd], data)
        else:
            del self.outputs[fd]

    def receive(self):
        data = self.connection.recv(65536)
        self.frames.bytes += data
        while data and (message := self.frames.take()):
            opcode, payload = message
            if opcode == END:
                return False
            if opcode == PING:
                self.connection.sendall(frame(PONG, payload))
            if opcode == BINARY and payload[:1] == bytes([STDIN]) and self.process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    self.process.stdin.write(payload[1:])
                    self.process.stdin.flush()
            if opcode == BINARY and payload[:2] == bytes([CLOSE, STDIN]):
                self.close_input()
        return bool(data)

    def close_input(self):
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdin = None

    def tell_end(self, code):
        body = {"metadata": {}, "status": "Success"}
        if code:
            code = 128 - code if code < 0 else code
            body = {"metadata": {}, "status": "Failure", "message": f"command terminated with non-zero exit code: exit status {code}", "reason": "NonZeroExitCode",
                    "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        self.send(STATUS, json.dumps(body).encode())
        self.connection.sendall(frame(END, struct.pack(">H", 1000)))

    def finish(self):
        """As the kubelet: the program sees the end of its input, and is not killed."""
        self.close_input()
        with contextlib.suppress(OSError):
            self.connection.close()
