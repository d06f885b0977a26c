# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to the daemon, over unix sockets and TCP, with connections that are used again."""
from __future__ import annotations

import http.client
import json
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._wire import (CONNECT_SECONDS, FOREVER, IDLE_CONNECTIONS, Address, Body, EventParser, Options, Query, default_url,
                    is_repeatable, local_token, lost, make_target, no_daemon, parse, proxy_of, retry_after)
from .errors import SandglassError, Unavailable, error_from

__all__ = ["Address", "Answer", "FOREVER", "Options", "Transport", "default_url", "local_token"]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            self.sock = None
            raise


def _connection(address: Address, proxy: Optional[Address]) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path)
    first = proxy or address
    if address.tls:
        made = http.client.HTTPSConnection(first.host, first.port, timeout=CONNECT_SECONDS)
        if proxy:
            made.set_tunnel(address.host, address.port)
        return made
    return http.client.HTTPConnection(first.host, first.port, timeout=CONNECT_SECONDS)


class Answer:
    """An answer whose head has come; the body is still to be read."""

    def __init__(self, transport: "Transport", connection: http.client.HTTPConnection,
                 response: http.client.HTTPResponse) -> None:
        self._transport = transport
        self._connection: Optional[http.client.HTTPConnection] = connection
        self._response = response
        self.status = response.status
        self.headers: Dict[str, str] = {name.lower(): value for name, value in response.getheaders()}

    def read(self) -> bytes:
        """All of the body; gives the connection back."""
        try:
            data = self._response.read()
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise lost(problem) from problem
        self._finish()
        return data

    def read_some(self, limit: int = 65536) -> bytes:
        """Bytes that have come, at most `limit`, waiting for the first; b"" at the end."""
        try:
            data = self._response.read1(limit)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.close()
            raise lost(problem) from problem
        if not data:
            if self._response.length:
                self.close()
                raise Unavailable("the daemon cut its answer short", code="connection_lost", retryable=True)
            self._finish()
        return data

    def pieces(self) -> Iterator[bytes]:
        """A body of any size, as it comes."""
        try:
            while True:
                data = self.read_some()
                if not data:
                    return
                yield data
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """The body line by line, without their ends, as they come."""
        held = b""
        while True:
            data = self.read_some()
            if not data:
                break
            *whole, held = (held + data).split(b"\n")
            yield from whole
        if held:
            yield held

    def events(self) -> Iterator[Tuple[str, str, str]]:
        """(name, data, id) of each Server-Sent Event, as they come."""
        parser = EventParser()
        for line in self.lines():
            event = parser.feed(line)
            if event is not None:
                yield event

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._response.close()
            self._transport.give_back(connection, self._response)

    def close(self) -> None:
        """Hangs up if the body was not read to its end. Safe at any time, also from another thread."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        sock = connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        connection.close()

    def forget(self) -> None:
        """In a forked child: drops our copy of the connection without hanging up."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            os.close(connection.sock.detach())


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """No bytes are expected on an idle connection: a readable one has ended."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


_all: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _forget_after_fork() -> None:
    for transport in list(_all):
        transport.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


class Transport:
    """One daemon, the headers of each request to it, and idle connections. May be shared by threads."""

    def __init__(self, url: str, headers: Mapping[str, str], options: Options = Options()) -> None:
        self.address = Address(url)
        self.options = options
        self.proxy = proxy_of(options, self.address)
        self.headers = dict(headers)
        self._idle: List[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        _all.add(self)

    def forget(self) -> None:
        """In a forked child: the connections are the parent's, closing our copy does not disturb it."""
        self._lock = threading.Lock()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Optional[http.client.HTTPConnection]:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _is_stale(connection):
                return connection
            connection.close()

    def give_back(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        if connection.sock is None or response.will_close:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = _connection(self.address, self.proxy)
        try:
            connection.connect()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as problem:
            connection.close()
            raise no_daemon(self.address, problem) from problem
        return connection

    def open(self, method: str, path: str, query: Query = (), body: Body = None,
             headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
             repeatable: Optional[bool] = None) -> Answer:
        """Sends a request; the answer's body is the caller's to read. Errors of the daemon are raised.

        `timeout` is for each wait of the socket: None is that of the client, `FOREVER` none. A request that is `repeatable`
        (all but POST, unless told otherwise) is sent again when the daemon is not there, or not ready.
        """
        target = make_target(path, query)
        repeats = is_repeatable(method, body, repeatable)
        wait = self.options.wait(timeout)
        attempt = 0
        while True:
            try:
                return self._once(method, target, body, headers, wait, repeats)
            except SandglassError as problem:
                pause = retry_after(problem, attempt)
                if pause is None or not repeats or attempt >= self.options.retries:
                    raise
                self.options.logger.info("%s %s failed (%s), once more in %.1f s", method, target, problem.code, pause)
            attempt += 1
            time.sleep(pause)

    def _once(self, method: str, target: str, body: Body, headers: Optional[Mapping[str, str]], wait: Optional[float],
              repeats: bool) -> Answer:
        begin = time.monotonic()
        connection = self._take()
        answer: Optional[Answer] = None
        if connection is not None:
            try:
                answer = self._exchange(connection, method, target, body, headers, wait)
            except Unavailable as problem:
                if problem.status or not repeats or problem.code == "request_timeout":
                    raise
        if answer is None:
            answer = self._exchange(self._connect(), method, target, body, headers, wait)
        self.options.logger.debug("%s %s: %d in %.0f ms", method, target, answer.status,
                                  (time.monotonic() - begin) * 1000)
        return answer

    def _exchange(self, connection: http.client.HTTPConnection, method: str, target: str, body: Body,
                  headers: Optional[Mapping[str, str]], timeout: Optional[float]) -> Answer:
        connection.sock.settimeout(timeout)
        if self.proxy and not self.address.tls:
            target = f"http://{self.address.host}:{self.address.port}{target}"
        try:
            try:
                connection.request(method, target, body=body, headers={**self.headers, **(headers or {})})
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:  # otherwise the daemon may have said why it took no more
                    raise
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            raise lost(problem) from problem
        except BaseException:  # KeyboardInterrupt: the answer must not be taken for the next one
            connection.close()
            raise
        answer = Answer(self, connection, response)
        if answer.status < 400:
            return answer
        raise error_from(answer.status, answer.headers, parse(answer.read()))

    def call(self, method: str, path: str, query: Query = (), body: Any = None,
             headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
             repeatable: Optional[bool] = None) -> Any:
        """A whole exchange of JSON; returns the document, {} for an empty answer."""
        data = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if data is not None:
            sent["Content-Type"] = "application/json"
        answer = self.open(method, path, query, data, sent, timeout, repeatable)
        try:
            text = answer.read()
        finally:
            answer.close()
        if not text:
            return {}
        document = parse(text)
        if document is None:
            raise SandglassError("the daemon's answer is not JSON", status=answer.status)
        return document

    def entries(self, path: str, field: str, query: Query = ()) -> List[Any]:
        """The entries of a list, of all its pages."""
        found: List[Any] = []
        cursor: Optional[str] = None
        while True:
            page = self.call("GET", path, [*query, ("cursor", cursor)])
            found += page[field]
            cursor = page.get("next_cursor")
            if not cursor:
                return found
