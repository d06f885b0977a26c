# SPDX-License-Identifier: Apache-2.0
"""Addresses for pods that are played: a pod has a network namespace of its own, and one of the addresses 127.77.x.y of this host leads into it.

    address = PodAddress(path of the namespace, [4247]); address.text; address.cut(); address.is_blocked = True; address.close()
"""
import contextlib
import ctypes
import itertools
import os
import socket
import threading

CLONE_NEWNET = 0x40000000
PIECE = 64 * 1024
_numbers = itertools.count(os.getpid() * 16 % 60000)


def next_address():
    number = next(_numbers) % 65000 + 256
    return f"127.77.{number // 256}.{number % 254 + 1}"


class PodAddress:
    """Forwards each connection to the same port of the pod's loopback device."""

    def __init__(self, namespace, ports):
        self.namespace = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        self.lock = threading.Lock()
        self.open = set()
        self.accepted = 0  # connections so far
        self.is_blocked = False  # as by a network policy: nothing is accepted, nothing answers
        self.cut_after = None  # bytes out of the pod, for each connection
        self.listeners = self.listen(ports)

    def listen(self, ports):
        while True:
            self.text = next_address()
            try:
                listeners = [socket.create_server((self.text, port)) for port in ports]
            except OSError:
                continue  # another test has it
            for listener in listeners:
                threading.Thread(target=self.serve, args=(listener,), daemon=True).start()
            return listeners

    def serve(self, listener):
        with contextlib.suppress(OSError):
            while True:
                outer, _ = listener.accept()
                self.accepted += 1
                threading.Thread(target=self.forward, args=(outer, listener.getsockname()[1]), daemon=True).start()

    def forward(self, outer, port):
        """In a thread of its own, which enters the namespace: a socket belongs to the one that it was made in."""
        with self.lock:
            self.open.add(outer)
        inner = None
        if not self.is_blocked:
            with contextlib.suppress(OSError):
                inner = self.connect_inside(port)
        if inner:
            back = threading.Thread(target=self.copy, args=(inner, outer, self.cut_after), daemon=True)
            back.start()
            self.copy(outer, inner, None)
            back.join()
            inner.close()
        if inner or not self.is_blocked:
            with self.lock:
                self.open.discard(outer)
            outer.close()

    def connect_inside(self, port):
        if ctypes.CDLL(None, use_errno=True).setns(self.namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        return socket.create_connection(("127.0.0.1", port), timeout=None)

    def copy(self, source, target, limit):
        left = limit
        with contextlib.suppress(OSError):
            while left is None or left > 0:
                data = source.recv(PIECE if left is None else min(PIECE, left))
                if not data:
                    break
                target.sendall(data)
                if limit is not None:
                    left -= len(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Every connection that is open; how many there were."""
        with self.lock:
            connections = list(self.open)
        for one in connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return len(connections)

    def close(self):
        for listener in self.listeners:
            listener.close()
        self.cut()
        os.close(self.namespace)
