# SPDX-License-Identifier: Apache-2.0
"""Scopes: an owner whose sessions end with us, however we end."""
from __future__ import annotations

import json
import os
import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, List, Optional

from ._transport import FOREVER, Answer, Transport
from .errors import Conflict, SandglassError, Unavailable

if TYPE_CHECKING:
    from .client import Client

LOST_SECONDS = 30.0

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def mint_owner() -> str:
    """A random owner for a scope, written as the daemon writes its own."""
    number = secrets.randbits(128)
    return "scp_" + "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


class _Lease:
    """A request that the daemon answers for as long as we live: its end ends the owner's sessions.

    A daemon that is replaced finds it again: a thread takes it up anew within the time that the daemon allows.
    """

    def __init__(self, transport: Transport, owner: Optional[str]) -> None:
        self._transport = transport
        self._closing = False
        self._answer = self._open(owner)
        self.owner = self._first_line(self._answer)
        _leases.add(self)
        self._thread = threading.Thread(target=self._watch, name="sandglass-lease", daemon=True)
        self._thread.start()

    def _open(self, owner: Optional[str]) -> Answer:
        body = json.dumps({"owner": owner} if owner else {}).encode()
        return self._transport.open("POST", "/scopes", (), body, {"Content-Type": "application/json"},
                                    timeout=FOREVER)

    @staticmethod
    def _first_line(answer: Answer) -> str:
        for line in answer.lines():
            return str(json.loads(line)["owner"])
        raise Unavailable("the daemon ended the scope at once", code="connection_lost")

    def _watch(self) -> None:
        while not self._closing:
            try:
                while self._answer.read_some():
                    pass
            except SandglassError:
                pass
            except Exception:  # the socket was closed under us, by close() in another thread
                if not self._closing:
                    raise
            self._answer.close()
            if self._closing or not self._take_up():
                return

    def _take_up(self) -> bool:
        deadline = time.monotonic() + LOST_SECONDS
        while not self._closing and time.monotonic() < deadline:
            try:
                self._answer = self._open(self.owner)
                self._first_line(self._answer)
                if self._closing:
                    self._answer.close()
                return not self._closing
            except (Unavailable, Conflict):
                time.sleep(0.1)
            except SandglassError:
                return False
        return False

    def close(self) -> None:
        self._closing = True
        self._answer.close()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def forget(self) -> None:
        """In a forked child: the lease is the parent's, and must not be held open by a copy."""
        self._closing = True
        self._answer.forget()


_leases: "weakref.WeakSet[_Lease]" = weakref.WeakSet()


def _forget_after_fork() -> None:
    for lease in list(_leases):
        lease.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


class Scope:
    """An owner for a while. Entering gives a `Client` for that owner; leaving destroys all of its sessions, and only
    those. `destroyed` has their ids afterwards.

    Not entered yet, a scope holds nothing. `export()` sets `SANDGLASS_ON_BEHALF_OF` and `SANDGLASS_URL`, so that
    programs which we start make their sessions in this scope.
    """

    def __init__(self, client: "Client", owner: Optional[str] = None) -> None:
        self._parent = client
        self._wanted = owner
        self._lease: Optional[_Lease] = None
        self._client: Optional["Client"] = None
        self.destroyed: List[str] = []

    @property
    def owner(self) -> str:
        """Whose sessions they are; empty before it is entered."""
        return self._lease.owner if self._lease else ""

    @property
    def client(self) -> "Client":
        if self._client is None:
            raise RuntimeError("the scope is not open")
        return self._client

    def open(self) -> "Client":
        if self._client is None:
            self._lease = _Lease(self._parent.transport, self._wanted)
            self._client = self._parent.with_owner(self._lease.owner)
        return self._client

    def export(self) -> None:
        os.environ["SANDGLASS_ON_BEHALF_OF"] = self.owner
        os.environ["SANDGLASS_URL"] = self.client.url

    def close(self) -> List[str]:
        """Destroys the sessions and returns their ids, when all of them are gone."""
        if self._client is None or self._lease is None:
            return []
        try:
            self.destroyed = [str(name) for name in self._client.delete_all()["destroyed"]]
        finally:
            # The daemon ends sessions that came meanwhile, and all of them if it could not be asked.
            self._lease.close()
            self._client.close()
            self._client = None
        return self.destroyed

    def __enter__(self) -> "Client":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()
