# SPDX-License-Identifier: Apache-2.0
"""Scopes: an owner whose sessions end with us, however we end."""
from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, List, Optional

from ..errors import Conflict, SandglassError, Unavailable
from ._transport import FOREVER, AsyncAnswer, AsyncTransport

if TYPE_CHECKING:
    from .client import AsyncClient

LOST_SECONDS = 30.0


class _Lease:
    """A request that the daemon answers for as long as we live: its end ends the owner's sessions. A task takes it up again
    when the daemon is replaced."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._answer: Optional[AsyncAnswer] = None
        self._task: Optional["asyncio.Task[None]"] = None
        self.owner = ""

    async def open(self, owner: Optional[str]) -> None:
        await self._take(owner)
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _take(self, owner: Optional[str]) -> None:
        body = json.dumps({"owner": owner} if owner else {}).encode()
        self._answer = await self._transport.open("POST", "/scopes", (), body, {"Content-Type": "application/json"},
                                                  timeout=FOREVER)
        line = b""
        while not line.endswith(b"\n"):
            data = await self._answer.read_some()
            if not data:
                raise Unavailable("the daemon ended the scope at once", code="connection_lost")
            line += data
        self.owner = str(json.loads(line)["owner"])

    async def _watch(self) -> None:
        while self._answer is not None:
            try:
                while await self._answer.read_some():
                    pass
            except SandglassError:
                pass
            if not await self._take_up():
                return

    async def _take_up(self) -> bool:
        deadline = time.monotonic() + LOST_SECONDS
        while time.monotonic() < deadline:
            try:
                await self._take(self.owner)
                return True
            except (Unavailable, Conflict):
                await asyncio.sleep(0.1)
            except SandglassError:
                return False
        return False

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._answer is not None:
            self._answer.close()
            self._answer = None


class AsyncScope:
    """An owner for a while. Entering gives an `AsyncClient` for that owner; leaving destroys all of its sessions, and only
    those. `destroyed` has their ids afterwards. `export()` sets the environment for programs that we start."""

    def __init__(self, client: "AsyncClient", owner: Optional[str] = None) -> None:
        self._parent = client
        self._wanted = owner
        self._lease: Optional[_Lease] = None
        self._client: Optional["AsyncClient"] = None
        self.destroyed: List[str] = []

    @property
    def owner(self) -> str:
        """Whose sessions they are; empty before it is entered."""
        return self._lease.owner if self._lease else ""

    @property
    def client(self) -> "AsyncClient":
        """The client of this owner."""
        if self._client is None:
            raise RuntimeError("the scope is not open")
        return self._client

    async def open(self) -> "AsyncClient":
        """As entering it."""
        if self._client is None:
            lease = _Lease(self._parent.transport)
            await lease.open(self._wanted)
            self._lease = lease
            self._client = self._parent.with_owner(lease.owner)
        return self._client

    def export(self) -> None:
        """Programs that we start make their sessions in this scope."""
        os.environ["SANDGLASS_ON_BEHALF_OF"] = self.owner
        os.environ["SANDGLASS_URL"] = self.client.url

    async def close(self) -> List[str]:
        """Destroys the sessions and returns their ids, when all of them are gone."""
        if self._client is None or self._lease is None:
            return []
        try:
            self.destroyed = [str(name) for name in (await self._client.delete_all())["destroyed"]]
        finally:
            # The daemon ends sessions that came meanwhile, and all of them if it could not be asked.
            await self._lease.close()
            await self._client.close()
            self._client = None
        return self.destroyed

    async def __aenter__(self) -> "AsyncClient":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())
