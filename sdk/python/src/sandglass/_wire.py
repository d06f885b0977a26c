# SPDX-License-Identifier: Apache-2.0
"""Shared by both transports: where the daemon is, how a request is written, when it is sent again."""
from __future__ import annotations

import json
import logging
import os
import re
import socket
import urllib.parse
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .errors import SandglassError, Unavailable

Body = Union[bytes, bytearray, memoryview, IO[bytes], None]
Query = Sequence[Tuple[str, Any]]

FOREVER = -1.0  # for timeouts: however long it takes
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


class Options(NamedTuple):
    """How requests are sent. `timeout` is for each wait of a request in seconds, None for as long as the daemon takes;
    `retries` is how often a request that can do no harm twice is sent again when the daemon is not there or not ready."""

    timeout: Optional[float] = None
    retries: int = 2
    logger: logging.Logger = logging.getLogger("sandglass")
    proxy: Optional[str] = None
    headers: Mapping[str, str] = {}

    def wait(self, timeout: Optional[float]) -> Optional[float]:
        """The timeout of a call that was given this one."""
        wanted = self.timeout if timeout is None else timeout
        return None if wanted is None or wanted < 0 else wanted


def proxy_of(options: Options, address: Address) -> Optional[Address]:
    """Where to connect to instead; never for a unix socket."""
    if not options.proxy or address.path:
        return None
    return Address(options.proxy)


def make_headers(api_key: str, url: str, owner: str, extra: Mapping[str, str]) -> Dict[str, str]:
    headers = {"X-Sandglass-Surface": "sdk", **extra}
    credentials = api_key or local_token(url)
    if credentials:
        headers["Authorization"] = f"Bearer {credentials}"
    if owner:
        headers["X-Sandglass-On-Behalf-Of"] = owner
    return headers


def make_target(path: str, query: Query) -> str:
    target = path if path.startswith("//") else "/api/v1" + path
    filled: List[Tuple[str, Any]] = [(name, value) for name, value in query if value is not None]
    return target + ("?" + urllib.parse.urlencode(filled) if filled else "")


def is_repeatable(method: str, body: Body, wanted: Optional[bool]) -> bool:
    """All but POST, unless told otherwise; never a body that can be read only once."""
    return (method != "POST" if wanted is None else wanted) and not hasattr(body, "read")


def retry_after(problem: SandglassError, attempt: int) -> Optional[float]:
    """Seconds until a request that failed so may be sent again; None: it may not."""
    if not isinstance(problem, Unavailable) or problem.code == "request_timeout":
        return None
    return min(0.1 * 2.0 ** attempt, 2.0)


def lost(problem: BaseException) -> Unavailable:
    if isinstance(problem, (socket.timeout, TimeoutError)):
        return Unavailable("the daemon did not answer in time", code="request_timeout", retryable=True,
                           hint="give a larger timeout")
    return Unavailable(f"the connection to the daemon was lost: {problem or type(problem).__name__}",
                       code="connection_lost", retryable=True)


def no_daemon(address: Address, problem: BaseException) -> Unavailable:
    return Unavailable(f"no daemon at {address.url}: {problem}", code="daemon_not_running",
                       hint="start one with 'sandglass serve'", retryable=True)


def parse(text: bytes) -> Any:
    """The JSON of a body, or None if it has none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


class EventParser:
    """Server-Sent Events from lines: `feed()` returns (name, data, id) of an event that is complete."""

    def __init__(self) -> None:
        self._name = "message"
        self._data: List[str] = []
        self._id = ""

    def feed(self, raw: bytes) -> Optional[Tuple[str, str, str]]:
        line = raw.decode(errors="replace").rstrip("\r")
        if not line:
            done = (self._name, "\n".join(self._data), self._id) if self._data else None
            self._name, self._data = "message", []
            return done
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None
