"""HTTP/1.1 to the daemon, over unix sockets and TCP, with connections that are used again."""
from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
import threading
import urllib.parse
import weakref
from typing import Any, Dict, IO, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import SandglassError, Unavailable, error_from

Body = Union[bytes, bytearray, memoryview, IO[bytes], None]
Query = Sequence[Tuple[str, Any]]

CONNECT_SECONDS = 10.0
IDLE_CONNECTIONS = 16
SYSTEM_SOCKET = "/run/sandglass/sandglass.sock"


def default_url() -> str:
    """Where a daemon with default settings listens: `SANDGLASS_URL`, else the socket of this user, else the system's where
    that lets this user in."""
    url = os.environ.get("SANDGLASS_URL")
    if url:
        return url
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0:
        return f"unix:{SYSTEM_SOCKET}"
    own = f"/tmp/sandglass-{os.geteuid()}/sandglass.sock"
    if runtime.startswith("/"):
        own = f"{runtime}/sandglass/sandglass.sock"
    return f"unix:{own if _answers(own) or not _answers(SYSTEM_SOCKET) else SYSTEM_SOCKET}"


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _state_dir() -> str:
    """The daemon's state directory, as its settings name it for this user."""
    named = os.environ.get("SANDGLASS_STATE_DIR")
    if named:
        return named
    config_home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for path in (os.environ.get("SANDGLASS_CONFIG"), "/etc/sandglass/sandglass.yaml", f"{config_home}/sandglass/sandglass.yaml"):
        try:
            with open(path or "", encoding="utf-8") as settings:
                found = re.search(r"""^[\s{]*["']?state_dir["']?\s*:\s*["']?([^"',\s}#]+)""", settings.read(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return found.group(1)
        break
    if os.geteuid() == 0:
        return "/var/lib/sandglass"
    state = os.environ.get("XDG_STATE_HOME", "")
    return f"{state}/sandglass" if state.startswith("/") else os.path.expanduser("~/.local/state/sandglass")


def local_token(url: str) -> Optional[str]:
    """The token of a daemon of this host that serves TCP without authentication; None where it is not ours to read."""
    address = Address(url)
    if address.path or address.host not in ("localhost", "::1") and not address.host.startswith("127."):
        return None
    try:
        with open(os.path.join(_state_dir(), f"token-{address.port}"), encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


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


class Address:
    """A daemon's URL: `unix:PATH`, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = ""
        self.tls = False
        if url.startswith("unix:"):
            self.path = url[len("unix://"):] if url.startswith("unix:///") else url[len("unix:"):]
            if not self.path:
                raise ValueError(f"{url!r} names no socket")
            return
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is neither unix:PATH nor http://HOST:PORT")
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.tls else 7420)

    def connection(self) -> http.client.HTTPConnection:
        if self.path:
            return _UnixConnection(self.path)
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=CONNECT_SECONDS)
        return http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)


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
        """What has come, at most `limit` bytes, waiting for the first; b"" at the end."""
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


def lost(problem: BaseException) -> Unavailable:
    return Unavailable(f"the connection to the daemon was lost: {problem or type(problem).__name__}",
                       code="connection_lost", retryable=True)


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Nothing is expected on an idle connection: whatever can be read there is its end."""
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

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.address = Address(url)
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
        connection = self.address.connection()
        try:
            connection.connect()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as problem:
            connection.close()
            raise Unavailable(f"no daemon at {self.address.url}: {problem}", code="daemon_not_running",
                              hint="start one with 'sandglass serve'", retryable=True) from problem
        return connection

    def open(self, method: str, path: str, query: Query = (), body: Body = None,
             headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
             repeatable: Optional[bool] = None) -> Answer:
        """Sends a request; the answer's body is the caller's to read. Errors of the daemon are raised.

        `timeout` is for each wait of the socket, None for ever. A request that is `repeatable` (all but POST, unless
        told otherwise) is sent once more when the daemon closed the connection just then.
        """
        target = "/api/v1" + path
        given = [(name, value) for name, value in query if value is not None]
        if given:
            target += "?" + urllib.parse.urlencode(given)
        if repeatable is None:
            repeatable = method != "POST"
        connection = self._take()
        if connection is not None:
            try:
                return self._exchange(connection, method, target, body, headers, timeout)
            except Unavailable as problem:
                if problem.status or not repeatable or hasattr(body, "read"):
                    raise
        return self._exchange(self._connect(), method, target, body, headers, timeout)

    def _exchange(self, connection: http.client.HTTPConnection, method: str, target: str, body: Body,
                  headers: Optional[Mapping[str, str]], timeout: Optional[float]) -> Answer:
        connection.sock.settimeout(timeout)
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
        raise error_from(answer.status, answer.headers, _parse(answer.read()))

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
        document = _parse(text)
        if document is None:
            raise SandglassError("the daemon's answer is not JSON", status=answer.status)
        return document


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
