# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to the daemon for asyncio: no threads, connections that are used again."""
from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple

from .._wire import (CONNECT_SECONDS, FOREVER, IDLE_CONNECTIONS, Address, Body, EventParser, Options, Query, default_url,
                     is_repeatable, local_token, lost, make_target, no_daemon, parse, proxy_of, retry_after)
from ..errors import SandglassError, Unavailable, error_from

__all__ = ["Address", "AsyncAnswer", "AsyncTransport", "FOREVER", "Options", "default_url", "local_token"]

PIECE_BYTES = 256 * 1024
LIMIT_BYTES = 1024 * 1024


class _Connection:
    """A connection and the task that waits for nothing on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def is_stale(self) -> bool:
        return self.reader.at_eof() or self.writer.is_closing()

    def close(self) -> None:
        try:
            self.writer.close()
        except RuntimeError:  # its loop has ended
            pass


async def _within(seconds: Optional[float], work: Any) -> Any:
    try:
        return await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        raise lost(TimeoutError()) from None
    except (OSError, EOFError, ValueError) as problem:  # EOFError: cut short; ValueError: a line without an end
        raise lost(problem) from problem


class AsyncAnswer:
    """An answer whose head has come; the body is still to be read."""

    def __init__(self, transport: "AsyncTransport", connection: _Connection, status: int, headers: Dict[str, str],
                 method: str, timeout: Optional[float]) -> None:
        self._transport = transport
        self._connection: Optional[_Connection] = connection
        self._timeout = timeout
        self.status = status
        self.headers = headers
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left: Optional[int] = None
        if method == "HEAD" or status in (204, 304) or status < 200:
            self._chunked, self._left = False, 0
        elif not self._chunked and "content-length" in headers:
            self._left = int(headers["content-length"])
        elif self._chunked:
            self._left = 0
        self._ended = not self._chunked and self._left == 0
        if self._ended:
            self._finish()

    async def read(self) -> bytes:
        """All of the body; gives the connection back."""
        pieces: List[bytes] = []
        while True:
            data = await self.read_some(PIECE_BYTES)
            if not data:
                return b"".join(pieces)
            pieces.append(data)

    async def read_some(self, limit: int = 65536) -> bytes:
        """Bytes that have come, at most `limit`, waiting for the first; b"" at the end."""
        if self._ended:
            return b""
        if self._connection is None:
            raise Unavailable("the answer was closed", code="connection_lost")
        try:
            data: bytes = await _within(self._timeout, self._next(self._connection.reader, limit))
        except BaseException:
            self.close()
            raise
        if not data:
            self._ended = True
            self._finish()
        return data

    async def _next(self, reader: asyncio.StreamReader, limit: int) -> bytes:
        if self._chunked and self._left == 0:
            size = int((await _line(reader)).split(b";")[0], 16)
            if size == 0:
                while await _line(reader):
                    pass
                return b""
            self._left = size
        if self._left == 0:
            return b""
        data = await reader.read(limit if self._left is None else min(limit, self._left))
        if self._left is None:
            return data
        if not data:
            raise EOFError("the daemon cut its answer short")
        self._left -= len(data)
        if self._chunked and self._left == 0:
            await reader.readexactly(2)
        return data

    async def pieces(self) -> AsyncIterator[bytes]:
        """A body of any size, as it comes."""
        try:
            while True:
                data = await self.read_some()
                if not data:
                    return
                yield data
        finally:
            self.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """The body line by line, without their ends, as they come."""
        held = b""
        while True:
            data = await self.read_some()
            if not data:
                break
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                yield line
        if held:
            yield held

    async def events(self) -> AsyncIterator[Tuple[str, str, str]]:
        """(name, data, id) of each Server-Sent Event, as they come."""
        parser = EventParser()
        async for line in self.lines():
            event = parser.feed(line)
            if event is not None:
                yield event

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.headers.get("connection", "").lower() == "close" or (self._left is None and not self._chunked):
            connection.close()
        else:
            self._transport.give_back(connection)

    def close(self) -> None:
        """Hangs up if the body was not read to its end. Safe at any time."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the daemon closed the connection")
    return line.rstrip(b"\r\n")


async def _read_head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    while True:
        status = int((await _line(reader)).split(b" ", 2)[1])
        headers: Dict[str, str] = {}
        while True:
            line = await _line(reader)
            if not line:
                break
            name, _, value = line.partition(b":")
            headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
        if status >= 200 or status == 101:
            return status, headers


class AsyncTransport:
    """One daemon, the headers of each request to it, and idle connections. Belongs to one event loop at a time."""

    def __init__(self, url: str, headers: Mapping[str, str], options: Options = Options()) -> None:
        self.address = Address(url)
        self.options = options
        self.proxy = proxy_of(options, self.address)
        self.headers = dict(headers)
        self._idle: List[_Connection] = []
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def give_back(self, connection: _Connection) -> None:
        if connection.is_stale or len(self._idle) >= IDLE_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(connection)

    def _take(self) -> Optional[_Connection]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.close()
            self._loop = loop
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        try:
            return await asyncio.wait_for(self._dial(), CONNECT_SECONDS)
        except (OSError, EOFError, asyncio.TimeoutError) as problem:
            raise no_daemon(self.address, problem) from problem

    async def _dial(self) -> _Connection:
        address = self.address
        if address.path:
            return _Connection(*await asyncio.open_unix_connection(address.path, limit=LIMIT_BYTES))
        if self.proxy is None:
            context = ssl.create_default_context() if address.tls else None
            return _Connection(*await asyncio.open_connection(address.host, address.port, ssl=context, limit=LIMIT_BYTES))
        connection = _Connection(*await asyncio.open_connection(self.proxy.host, self.proxy.port, limit=LIMIT_BYTES))
        if address.tls:
            await self._tunnel(connection)
        return connection

    async def _tunnel(self, connection: _Connection) -> None:
        name = f"{self.address.host}:{self.address.port}"
        connection.writer.write(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        status, _ = await _read_head(connection.reader)
        if status != 200:
            connection.close()
            raise OSError(f"the proxy answered {status}")
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(connection.writer.transport, connection.writer.transport.get_protocol(),
                                         ssl.create_default_context(), server_hostname=self.address.host)
        assert transport is not None
        connection.writer = asyncio.StreamWriter(transport, transport.get_protocol(), connection.reader, loop)
        connection.reader.set_transport(transport)

    async def open(self, method: str, path: str, query: Query = (), body: Body = None,
                   headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
                   repeatable: Optional[bool] = None) -> AsyncAnswer:
        """Sends a request; the answer's body is the caller's to read. Errors of the daemon are raised.

        `timeout` is for each wait: None is that of the client, `FOREVER` none. A request that is `repeatable` (all but POST,
        unless told otherwise) is sent again when the daemon is not there, or not ready.
        """
        target = make_target(path, query)
        repeats = is_repeatable(method, body, repeatable)
        wait = self.options.wait(timeout)
        attempt = 0
        while True:
            try:
                return await self._once(method, target, body, headers, wait, repeats)
            except SandglassError as problem:
                pause = retry_after(problem, attempt)
                if pause is None or not repeats or attempt >= self.options.retries:
                    raise
                self.options.logger.info("%s %s failed (%s), once more in %.1f s", method, target, problem.code, pause)
            attempt += 1
            await asyncio.sleep(pause)

    async def _once(self, method: str, target: str, body: Body, headers: Optional[Mapping[str, str]],
                    wait: Optional[float], repeats: bool) -> AsyncAnswer:
        begin = time.monotonic()
        connection = self._take()
        answer: Optional[AsyncAnswer] = None
        if connection is not None:
            try:
                answer = await self._exchange(connection, method, target, body, headers, wait)
            except Unavailable as problem:
                if problem.status or not repeats or problem.code == "request_timeout":
                    raise
        if answer is None:
            answer = await self._exchange(await self._connect(), method, target, body, headers, wait)
        self.options.logger.debug("%s %s: %d in %.0f ms", method, target, answer.status,
                                  (time.monotonic() - begin) * 1000)
        return answer

    async def _exchange(self, connection: _Connection, method: str, target: str, body: Body,
                        headers: Optional[Mapping[str, str]], wait: Optional[float]) -> AsyncAnswer:
        try:
            sending = self._send(connection, method, target, body, {**self.headers, **(headers or {})})
            try:
                await _within(wait, sending)
            except Unavailable as problem:
                if problem.code == "request_timeout" or connection.reader.at_eof():
                    raise  # otherwise the daemon may have said why it took no more
            status, answered = await _within(wait, _read_head(connection.reader))
        except BaseException:  # a cancelled task too: the answer must not be taken for the next one
            connection.close()
            raise
        answer = AsyncAnswer(self, connection, status, answered, method, wait)
        if status < 400:
            return answer
        try:
            said = parse(await answer.read())
        finally:
            answer.close()
        raise error_from(status, answered, said)

    async def _send(self, connection: _Connection, method: str, target: str, body: Body,
                    headers: Mapping[str, str]) -> None:
        host = "localhost" if self.address.path else f"{self.address.host}:{self.address.port}"
        if self.proxy and not self.address.tls:
            target = f"http://{host}{target}"
        chunked = hasattr(body, "read")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")  # type: ignore[arg-type]
        if any("\n" in line or "\r" in line for line in lines):
            raise SandglassError("a header or a path must not have line breaks", code="invalid_header")
        writer = connection.writer
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if chunked:
            await self._send_file(writer, body)
        elif body:
            writer.write(bytes(body))  # type: ignore[arg-type]
        await writer.drain()

    @staticmethod
    async def _send_file(writer: asyncio.StreamWriter, file: Any) -> None:
        while True:
            piece = file.read(PIECE_BYTES)
            if not piece:
                break
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def call(self, method: str, path: str, query: Query = (), body: Any = None,
                   headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
                   repeatable: Optional[bool] = None) -> Any:
        """A whole exchange of JSON; returns the document, {} for an empty answer."""
        data = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if data is not None:
            sent["Content-Type"] = "application/json"
        answer = await self.open(method, path, query, data, sent, timeout, repeatable)
        try:
            text = await answer.read()
        finally:
            answer.close()
        if not text:
            return {}
        document = parse(text)
        if document is None:
            raise SandglassError("the daemon's answer is not JSON", status=answer.status)
        return document

    async def entries(self, path: str, field: str, query: Query = ()) -> List[Any]:
        """The entries of a list, of all its pages."""
        found: List[Any] = []
        cursor: Optional[str] = None
        while True:
            page = await self.call("GET", path, [*query, ("cursor", cursor)])
            found += page[field]
            cursor = page.get("next_cursor")
            if not cursor:
                return found
